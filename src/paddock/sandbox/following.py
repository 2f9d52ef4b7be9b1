"""The digest of a file that grows, computed behind the writer in a second thread.

Hashing costs twice as much as writing, and lets the interpreter's lock go. What stays small is
never hashed unless somebody asks, and then without a thread.
"""

import hashlib
import os
import threading
from typing import Final

_STEP_BYTES: Final = 4_194_304
"""The thread starts at so much, and is told of every so much more."""
_READ_BYTES: Final = 262_144


class FollowingDigest:
    """SHA-256 of a file that only grows at its end. `grown_to` is called by one thread."""

    def __init__(self, fd: int) -> None:
        """`fd` stays the caller's, open until `close`."""
        self._fd = fd
        self._digest = hashlib.sha256()
        self._hashed = 0
        self._told = 0
        self._is_over = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: OSError | None = None

    def grown_to(self, size_bytes: int) -> None:
        """So much of the file is written, and stays as it is."""
        if size_bytes - self._told < _STEP_BYTES:
            return
        with self._changed:
            self._told = size_bytes
            self._changed.notify()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="paddock-digest", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # There are too many threads: all is hashed at the end.
                return
            self._thread = thread

    def hexdigest(self, size_bytes: int) -> str:
        """Of the first so many bytes, which are all. Nothing can be added any more.

        Raises: OSError: the file cannot be read, or is shorter.
        """
        self.close()
        if self._error is not None:
            raise self._error
        self._hash_to(size_bytes)
        return self._digest.hexdigest()

    def close(self) -> None:
        """End the thread; it hashes no further than it was told. Again: nothing."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while (told := self._wait()) > self._hashed:
                self._hash_to(told)
        except OSError as error:
            self._error = error

    def _wait(self) -> int:
        with self._changed:
            while self._told == self._hashed and not self._is_over:
                self._changed.wait()
            return self._told

    def _hash_to(self, size_bytes: int) -> None:
        buffer = memoryview(bytearray(min(_READ_BYTES, max(0, size_bytes - self._hashed))))
        while self._hashed < size_bytes:
            wanted = buffer[: size_bytes - self._hashed]
            count = os.preadv(self._fd, [wanted], self._hashed)
            if count == 0:
                raise OSError(0, "the file is shorter than what was written to it")
            self._digest.update(buffer[:count])
            self._hashed += count
