"""The port that tells what a file held before."""

from typing import Protocol


class Earlier(Protocol):
    """What the files of one agent's workspace held before they were changed."""

    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        """What stood at this very path, workspace-relative, at that version.

        None where nobody knows that it stood there, where it is not kept (any more), and
        where it is larger than `bytes_max`. Never raises: it is asked in a refusal.
        """
        ...
