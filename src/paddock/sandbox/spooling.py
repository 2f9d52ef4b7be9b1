"""A command's whole output, beside what is shown of it: for the history, where it was cut."""

import hashlib
import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Self

from paddock import limits
from paddock.errors import HostError
from paddock.history.keeping import History, current_call
from paddock.sandbox.capture import Spool
from paddock.sandbox.conversation import Spools
from paddock.sandbox.outcome import KeptOutput, Stream
from paddock.sandbox.streams import BYTES_A_CHARACTER_MAX, render_stream
from paddock.sandbox.values import Captured, CommandEnd
from paddock.values.digests import DIGEST_PREFIX

OUTPUT_BYTES: Final = limits.shell_output_chars_max * BYTES_A_CHARACTER_MAX
"""Held of each stream: enough for head and tail, whatever the characters are."""


_READ_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class Streams:
    """Both streams, as a model may see them."""

    stdout: Stream
    stderr: Stream


class Spooling:
    """Two files without a name, for as long as one command runs.

    They are the history's own where it can make such files: to keep one is to name it.
    """

    __slots__ = ("_fds", "_history", "_is_adoptable", "_opened")

    def __init__(self, directory: Path, history: History) -> None:
        """`directory` is ours, on a disk. Raises: HostError: no file can be made there."""
        self._history = history
        self._is_adoptable = True
        with ExitStack() as opened:
            self._fds = (self._open(directory, opened), self._open(directory, opened))
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _open(self, directory: Path, opened: ExitStack) -> int:
        draft = self._history.store.open_draft()
        if draft is not None:
            opened.callback(os.close, draft)
            return draft
        self._is_adoptable = False
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return opened.enter_context(_unnamed(directory)).fileno()
        except OSError as error:
            raise HostError(
                f"no place for a command's output: {os.strerror(error.errno or 0)}",
                where=str(directory),
            ) from error

    @property
    def spools(self) -> Spools:
        """Where the output goes while it is read."""
        most = limits.shell_output_kept_bytes_max
        one, other = self._fds
        return Spools(Spool(one, most), Spool(other, most))

    def streams(self, end: CommandEnd) -> Streams:
        """What is shown; what was cut is kept whole. Raises: StorageFullError, HostError."""
        return Streams(self._stream(end.stdout, 0), self._stream(end.stderr, 1))

    def _stream(self, captured: Captured, number: int) -> Stream:
        text, is_cut = render_stream(captured, limits.shell_output_chars_max)
        if not is_cut:
            return Stream(text)
        digest = _digest(self._fds[number], captured.spooled_bytes)
        store = self._history.store
        with store.held():
            if self._is_adoptable:
                store.adopt(self._fds[number], digest)
            else:
                store.put_file(self._fds[number], digest=digest)
            store.sync()
            running = current_call()
            if running is not None:
                running.kept.add(digest)
        return Stream(text, KeptOutput(digest, captured.spooled_bytes, captured.total_bytes))


def _digest(fd: int, size_bytes: int) -> str:
    digest, offset = hashlib.sha256(), 0
    try:
        while offset < size_bytes:
            piece = os.pread(fd, min(_READ_BYTES, size_bytes - offset), offset)
            if not piece:
                raise HostError("a command's output became shorter while it was read again")
            digest.update(piece)
            offset += len(piece)
    except OSError as error:
        raise HostError(
            f"a command's output cannot be read again: {os.strerror(error.errno or 0)}"
        ) from error
    return DIGEST_PREFIX + digest.hexdigest()


def _unnamed(directory: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=directory, buffering=0)
