"""The version of a large content, computed in a second thread meanwhile.

Hashing lets the interpreter's lock go, and so do reading and writing: on a machine with
two processors the version of a large file costs next to nothing.
"""

import threading
from typing import Final, Protocol

from paddock.workspace.reading import version_of

_IN_A_THREAD_BYTES: Final = 4_194_304
"""From here on a thread costs less than it saves, also while the machine is busy."""


class PendingVersion(Protocol):
    """A version that is being computed."""

    def result(self) -> str:
        """The version; waits for it."""
        ...


class _Hashing(threading.Thread):
    def __init__(self, content: bytes) -> None:
        super().__init__(name="paddock-version", daemon=True)
        self._content = content
        self._version = ""

    def run(self) -> None:
        """Hash all of it."""
        self._version = version_of(self._content)

    def result(self) -> str:
        """See `PendingVersion`."""
        self.join()
        return self._version


class _Hashed:
    __slots__ = ("_version",)

    def __init__(self, version: str) -> None:
        self._version = version

    def result(self) -> str:
        """See `PendingVersion`."""
        return self._version


def version_meanwhile(content: bytes) -> PendingVersion:
    """Begin to compute `version_of(content)`."""
    if len(content) < _IN_A_THREAD_BYTES:
        return _Hashed(version_of(content))
    hashing = _Hashing(content)
    hashing.start()
    return hashing
