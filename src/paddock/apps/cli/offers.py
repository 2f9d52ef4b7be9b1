"""What a command says that wants a call and was given none: which there are.

None is chosen: the newest call may be another agent's by now.
"""

import shlex
from collections.abc import Iterable
from itertools import islice
from typing import Final

from paddock.apps.cli.history import what_changed
from paddock.assembly.past import Past
from paddock.errors import UsageError
from paddock.runtime.past import PastCall
from paddock.text.show import show_name

_OFFERED_MAX: Final = 3


def none_given(verb: str, past: Past, calls: Iterable[PastCall], can: str) -> UsageError:
    """The error, with a line to type for each of the newest calls.

    `calls` the newest first; `can` is what they have in common, such as "can be undone".
    """
    said = "no call is given, and none is chosen"
    named = ((call, name) for call in calls if (name := _name(past, call)))
    offers = [
        f"paddock {verb} {name}  ({show_name(call.tool)}: {what_changed(past, call)})"
        for call, name in islice(named, _OFFERED_MAX)
    ]
    if not offers:
        return UsageError(
            f"{said}; there is no call that {can}",
            where="CALL",
            hint="paddock history lists the calls that changed something",
        )
    rows = "\n".join(f"    {offer}" for offer in offers)
    hint = f"paddock history lists them all; the newest that {can}:\n{rows}"
    return UsageError(said, where="CALL", hint=hint)


def _name(past: Past, call: PastCall) -> str:
    """What `past.find` knows this call by: its entry where its id is another's, or no word."""
    own = call.call_id
    is_one = [each.call_id for each in past.calls].count(own) == 1
    is_word = shlex.quote(own) == own and not own.startswith("-")
    return own if is_one and is_word else call.entry_id
