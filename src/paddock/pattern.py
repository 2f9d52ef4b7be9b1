"""Regular expressions that are compiled when they are first used.

Two hundred of them are written down in modules; one call needs a handful. Compiling
them all took a third of what `paddock call` costs.
"""

import re
from typing import Any, AnyStr, Generic, cast


class _LazyPattern(Generic[AnyStr]):
    def __init__(self, source: AnyStr, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # Asked once for each method: the compiled one takes its place.
        found = getattr(re.compile(self._source, self._flags), name)
        setattr(self, name, found)
        return found


def lazy_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` would, compiled at its first use.

    `source` is a constant of the program, so that an error in it is found by a test.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(source, flags))
