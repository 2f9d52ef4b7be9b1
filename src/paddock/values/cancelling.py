"""Telling what runs to stop, and what a call that was stopped left behind."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol


class Cancel(Protocol):
    """Says when to stop. One token may be given to many calls, in many threads."""

    @property
    def is_cancelled(self) -> bool:
        """Whether to stop; once true it stays true."""
        ...

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` at once when cancelled, in the cancelling thread; returns the undoing.

        A token that is cancelled already calls it now.
        """
        ...


class _Never:
    """The token of what nobody can stop."""

    @property
    def is_cancelled(self) -> bool:
        return False

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        del callback
        return _nothing


def _nothing() -> None:
    return None


NEVER: Final[Cancel] = _Never()


class LeftEffect(StrEnum):
    """What a call that was stopped has done by then."""

    NONE = "none"
    PARTIAL = "partial"
    """Some of it: what is known stands in the effects."""
    UNKNOWN = "unknown"
