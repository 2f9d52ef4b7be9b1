"""The port that tells what a file held before, and the one of a workspace without a history."""

from typing import Final, Protocol


class Earlier(Protocol):
    """What the files of one agent's workspace held before they were changed."""

    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        """What stood at this very path, workspace-relative, at that version.

        None where nobody knows that it stood there, where it is not kept (any more), and
        where it is larger than `bytes_max`. Never raises: it is asked in a refusal.
        """
        ...


class NothingEarlier:
    """Of a workspace that was opened without a history."""

    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        return None


NOTHING_EARLIER: Final[Earlier] = NothingEarlier()
