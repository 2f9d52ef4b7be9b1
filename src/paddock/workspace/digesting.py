"""The version of a large content, computed in a second thread meanwhile.

Hashing lets the interpreter's lock go, and so do reading and writing: on a machine with
two processors the version of a large file costs next to nothing. One thread serves the whole
process and goes when there was nothing to do for a while. Nobody depends on it: who wants a
version that it has not begun with computes it.
"""

import os
import queue
import threading
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from paddock.workspace.reading import version_of

_IN_A_THREAD_BYTES: Final = 262_144
"""From here on to wake the thread costs less than it saves."""
_IDLE_S: Final = 1.0


Pieces: TypeAlias = Sequence[bytes | memoryview]
"""A content in pieces that follow one another."""


class PendingVersion(Protocol):
    """A version that is being computed."""

    def result(self) -> str:
        """The version; waits for it."""
        ...


class _Asked:
    __slots__ = ("_lock", "_pieces", "_version")

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._version = ""
        self._lock = threading.Lock()

    def result(self) -> str:
        """See `PendingVersion`. Whoever comes first computes it."""
        with self._lock:
            if not self._version:
                self._version = version_of(*self._pieces)
                self._pieces = ()
            return self._version


class KnownVersion:
    """A version that nobody waits for."""

    __slots__ = ("_version",)

    def __init__(self, version: str) -> None:
        self._version = version

    def result(self) -> str:
        return self._version


class _Worker:
    """Computes what was asked, in turn."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, asked: _Asked) -> None:
        self._asked.put(asked)
        if self._thread is not None and self._thread.is_alive():
            return
        thread = threading.Thread(target=self._run, name="paddock-version", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # There are too many threads: whoever asked computes it.
            return
        self._thread = thread

    def _run(self) -> None:
        try:
            while True:
                self._asked.get(timeout=_IDLE_S).result()
        except queue.Empty:
            return


_worker = _Worker()


def _start_anew() -> None:
    global _worker  # noqa: PLW0603 - a fork copies the object and not its thread
    _worker = _Worker()


os.register_at_fork(after_in_child=_start_anew)


def version_meanwhile(*pieces: bytes | memoryview) -> PendingVersion:
    """Begin to compute `version_of` these pieces, one after the other."""
    if sum(map(len, pieces)) < _IN_A_THREAD_BYTES:
        return KnownVersion(version_of(*pieces))
    asked = _Asked(pieces)
    _worker.ask(asked)
    return asked
