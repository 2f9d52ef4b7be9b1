"""Regular expressions that are compiled at their first use.

Modules define two hundred of them; a call needs a handful. Compiling all took a third of
the time of `paddock call`.
"""

import re
from typing import Any, AnyStr, Generic, cast


class _LazyPattern(Generic[AnyStr]):
    def __init__(self, source: AnyStr, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Called once for each method: the compiled one is then set as an attribute.
        found = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, found)
        return found


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like `re.compile`, but compiled at its first use.

    `source` must be a constant: then tests find errors in it.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))
