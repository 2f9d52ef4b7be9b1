"""How a handler says that it was stopped.

    if ports.cancel.is_cancelled:
        raise StoppedCallError(LeftEffect.NONE)

A handler that runs something long stops it when `ports.cancel` says so (`on_cancel`
calls back at once), waits until nothing of it is left, and raises this with what
was done by then. A call that has not begun is never handed to its handler.
"""

from typing import Final

from paddock.errors import CallCancelledError
from paddock.tools.spec import Change
from paddock.values.calls import LeftEffect

_HINTS: Final = {
    LeftEffect.NONE: "it changed nothing",
    LeftEffect.PARTIAL: "part of it was done: look at what it changed before going on",
    LeftEffect.UNKNOWN: "what it did is not known: look at the target before going on",
}


class StoppedCallError(CallCancelledError):
    """A call that was stopped while it ran. `changes` is what is known of its effect."""

    def __init__(self, effect: LeftEffect, *, changes: tuple[Change, ...] = ()) -> None:
        super().__init__("the call was cancelled", hint=_HINTS[effect])
        self.effect = effect
        self.changes = changes
