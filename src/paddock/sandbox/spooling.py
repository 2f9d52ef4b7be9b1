"""A command's whole output, beside what is shown of it: for the history, where it was cut."""

import hashlib
import os
import tempfile
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Final, Self

from msgspec import Struct

from paddock import limits
from paddock.sandbox.capture import Spool
from paddock.sandbox.conversation import Spools
from paddock.sandbox.streams import BYTES_A_CHARACTER_MAX, render_stream
from paddock.sandbox.values import Captured, CommandEnd, KeptOutput, Stream
from paddock.storage.atomic import host_error
from paddock.storage.history import History, current_call
from paddock.values.entries import DIGEST_PREFIX

OUTPUT_BYTES: Final = limits.shell_output_chars_max * BYTES_A_CHARACTER_MAX


_HASHED_BYTES: Final = 2_097_152


class Streams(Struct, frozen=True):
    stdout: Stream
    stderr: Stream


class Spooling:
    """Two files without a name, the history's own where it can: to keep one is to name it."""

    __slots__ = ("_digests", "_directory", "_fds", "_history", "_is_adoptable", "_opened")

    def __init__(self, directory: Path, history: History) -> None:
        self._directory = directory
        self._history = history
        self._is_adoptable = True
        self._fds: dict[int, int] = {}
        self._digests = _Digest(), _Digest()
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _fd(self, number: int) -> int:
        if number not in self._fds:
            self._fds[number] = self._open()
        return self._fds[number]

    def _open(self) -> int:
        draft = self._history.store.open_draft()
        if draft is not None:
            self._opened.callback(os.close, draft)
            return draft
        self._is_adoptable = False
        with host_error("no place for a command's output", str(self._directory)):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._opened.enter_context(_unnamed(self._directory)).fileno()

    @property
    def spools(self) -> Spools:
        most = limits.shell_output_kept_bytes_max
        one, other = (
            Spool(partial(self._fd, number), most, digest.add)
            for number, digest in enumerate(self._digests)
        )
        return Spools(one, other)

    def streams(self, end: CommandEnd) -> Streams:
        return Streams(self._stream(end.stdout, 0), self._stream(end.stderr, 1))

    def _stream(self, captured: Captured, number: int) -> Stream:
        text, is_cut = render_stream(captured, limits.shell_output_chars_max)
        if not is_cut:
            return Stream(text)
        digest = DIGEST_PREFIX + self._digests[number].hexdigest()
        store = self._history.store
        with store.held():
            if self._is_adoptable:
                store.adopt(self._fd(number), digest)
            else:
                store.put_file(self._fd(number), digest=digest)
            store.sync()
            running = current_call()
            if running is not None:
                running.kept.add(digest)
        return Stream(text, KeptOutput(digest, captured.spooled_bytes, captured.total_bytes))


class _Digest:
    """SHA-256 in a thread of its own once there is much: hashing lets the interpreter's lock go."""

    __slots__ = ("_digest", "_held", "_thread")

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._held = bytearray()
        self._thread: threading.Thread | None = None

    def add(self, chunk: memoryview) -> None:
        self._held += chunk
        if len(self._held) >= _HASHED_BYTES:
            self._join()
            held, self._held = self._held, bytearray()
            thread = threading.Thread(target=self._digest.update, args=(held,), daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # There are too many threads.
                self._digest.update(held)
            else:
                self._thread = thread

    def hexdigest(self) -> str:
        self._join()
        self._digest.update(self._held)
        self._held.clear()
        return self._digest.hexdigest()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _unnamed(directory: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=directory, buffering=0)
