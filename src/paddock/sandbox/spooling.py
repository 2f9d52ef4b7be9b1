"""A command's whole output, beside what is shown of it: for the history, where it was cut."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from paddock import limits
from paddock.errors import HostError
from paddock.history.keeping import History, current_call
from paddock.sandbox.capture import Spool
from paddock.sandbox.conversation import Spools
from paddock.sandbox.outcome import KeptOutput, Stream
from paddock.sandbox.streams import BYTES_A_CHARACTER_MAX, render_stream
from paddock.sandbox.values import Captured, CommandEnd
from paddock.workspace.reading import VERSION_PREFIX

OUTPUT_BYTES: Final = limits.shell_output_chars_max * BYTES_A_CHARACTER_MAX
"""Held of each stream: enough for head and tail, whatever the characters are."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Both streams, as a model may see them."""

    stdout: Stream
    stderr: Stream


class Spooling:
    """Two files without a name, for as long as one command runs."""

    __slots__ = ("_digests", "_files", "_history")

    def __init__(self, directory: Path, history: History) -> None:
        """`directory` is ours, on a disk. Raises: HostError: no file can be made there."""
        self._history = history
        self._digests = (hashlib.sha256(), hashlib.sha256())
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._files: tuple[IO[bytes], IO[bytes]] = (_unnamed(directory), _unnamed(directory))
        except OSError as error:
            raise HostError(
                f"no place for a command's output: {os.strerror(error.errno or 0)}",
                where=str(directory),
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files:
            file.close()

    @property
    def spools(self) -> Spools:
        """Where the output goes while it is read."""
        most = limits.shell_output_kept_bytes_max
        one, other = (
            Spool(file.fileno(), most, digest)
            for file, digest in zip(self._files, self._digests, strict=True)
        )
        return Spools(one, other)

    def streams(self, end: CommandEnd) -> Streams:
        """What is shown; what was cut is kept whole. Raises: StorageFullError, HostError."""
        return Streams(self._stream(end.stdout, 0), self._stream(end.stderr, 1))

    def _stream(self, captured: Captured, number: int) -> Stream:
        text, is_cut = render_stream(captured, limits.shell_output_chars_max)
        if not is_cut:
            return Stream(text)
        store = self._history.store
        with store.held():
            known = VERSION_PREFIX + self._digests[number].hexdigest()
            digest = store.put_file(self._files[number].fileno(), digest=known)
            store.sync()
            running = current_call()
            if running is not None:
                running.kept.add(digest)
        return Stream(text, KeptOutput(digest, captured.spooled_bytes, captured.total_bytes))


def _unnamed(directory: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=directory, buffering=0)
