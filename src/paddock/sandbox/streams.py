"""Capture a command's output: keep head and tail, and render it safely for a model.

Control and direction characters are escaped: a command may print terminal sequences. The whole
output is spooled to a file, which is kept in the history if the shown text was truncated.
"""

import codecs
import errno
import fcntl
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final, Literal

from paddock import limits
from paddock.kernel.files import start_writing_back
from paddock.sandbox.values import Captured, CommandEnd, KeptOutput, Stream
from paddock.storage.atomic import host_error
from paddock.storage.history import History, current_call
from paddock.text.show import show_line
from paddock.values.entries import DIGEST_PREFIX

BYTES_A_CHARACTER_MAX: Final = 4
OUTPUT_BYTES: Final = limits.shell_output_chars_max * BYTES_A_CHARACTER_MAX
_LINE_BYTES_MAX: Final = 4096
_LINE_CHARS_MAX: Final = 200
_CONTINUATION: Final = range(0x80, 0xC0)


class Decoding:
    def __init__(self, on_text: Callable[[Literal["stdout", "stderr"], str], None]) -> None:
        self._on_text = on_text
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def __call__(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        text = self._decoders[name].decode(chunk)
        if text:
            self._on_text(name, text)

    def finish(self) -> None:
        for name in ("stdout", "stderr"):
            text = self._decoders[name].decode(b"", final=True)
            if text:
                self._on_text(name, text)


class LastLine:
    def __init__(self) -> None:
        self._kept = {"stdout": b"", "stderr": b""}
        self._last: Literal["stdout", "stderr"] = "stdout"

    def __call__(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        self._kept[name] = (self._kept[name] + chunk)[-_LINE_BYTES_MAX:]
        self._last = name

    @property
    def text(self) -> str:
        lines = self._kept[self._last].decode("utf-8", "replace").splitlines()
        line = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return show_line(line)[0][-_LINE_CHARS_MAX:]


def render_stream(captured: Captured, chars_max: int) -> tuple[str, bool]:
    half = chars_max // 2
    if captured.missing_bytes == 0:
        head = tail = _safe(_decode(captured.head + captured.tail, is_whole=True))
        if len(head) <= chars_max:
            return head, False
    else:
        head = _safe(_decode(captured.head, is_whole=False))
        tail = _safe(_decode(_from_a_character(captured.tail), is_whole=True))
    return f"{head[:half]}\n[TRUNCATED at {chars_max} chars]\n{tail[-half:]}", True


def safe_text(content: bytes) -> str:
    """Escape output, or a part of it, for a model."""
    return _safe(_decode(_from_a_character(content), is_whole=True))


def whole_characters(content: bytes) -> bytes:
    """Return the content without an incomplete last character or line end."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    whole = content[: len(content) - len(decoder.getstate()[0])]
    return whole.removesuffix(b"\r")


def _decode(content: bytes, *, is_whole: bool) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, final=is_whole)


def _from_a_character(content: bytes) -> bytes:
    start = 0
    while start < min(len(content), BYTES_A_CHARACTER_MAX - 1) and content[start] in _CONTINUATION:
        start += 1
    return content[start:]


def _safe(text: str) -> str:
    return "\n".join(show_line(line)[0] for line in text.replace("\r\n", "\n").split("\n"))


_READ_BYTES: Final = 131_072
_PIPE_BYTES: Final = 1_048_576
"""An unprivileged user's limit for one pipe (pipe(7), pipe-max-size)."""
_FULL_PIPE: Final = 65_536
"""A read of this size means that the writer is blocked: only then the pipe is enlarged."""
_CHUNK_BYTES: Final = 2_097_152
"""Spooled output is hashed and written back to the device in pieces of this size."""


class Spool:
    def __init__(self, open_file: Callable[[], int], bytes_max: int) -> None:
        """`open_file` is called at the first byte; the caller closes the file."""
        self._open_file = open_file
        self._bytes_max = bytes_max
        self._fd = -1
        self._written_back = 0
        self._digest = _Digest()
        self.size_bytes = 0

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = self._open_file()
        return self._fd

    @property
    def digest(self) -> str:
        return DIGEST_PREFIX + self._digest.hexdigest()

    def write(self, chunk: memoryview) -> None:
        """Raises: OSError, HostError."""
        chunk = chunk[: self._bytes_max - self.size_bytes]
        self._digest.add(chunk)
        while chunk:
            count = os.write(self.fd, chunk)
            self.size_bytes += count
            chunk = chunk[count:]
        if self.size_bytes - self._written_back >= _CHUNK_BYTES:
            # It has to be on the device before the result is returned: start while there is time.
            start_writing_back(self.fd, self._written_back, self.size_bytes - self._written_back)
            self._written_back = self.size_bytes


class Capture:
    """Head, tail and total size of one output, in constant memory."""

    def __init__(self, fd: int, bytes_max: int, spool: Spool | None = None) -> None:
        self._fd = fd
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._tail = bytearray()
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._is_wide = False
        self._spool = spool
        self.total_bytes = 0
        self.listener: Callable[[bytes], None] | None = None

    def fileno(self) -> int:
        return self._fd

    def turn_to(self, fd: int) -> None:
        os.close(self._fd)
        self._fd = fd

    def read(self) -> bool:
        """Read available output; False at the end. May block on an empty pipe. Raises: OSError."""
        try:
            count = os.readv(self._fd, [self._buffer])
        except BlockingIOError:
            # Threat: a command reads its own output between our poll and our read.
            return True
        except OSError as error:
            # A terminal whose other end is closed returns EIO (tty_io.c, hung_up_tty).
            if error.errno != errno.EIO:
                raise
            count = 0
        if count:
            self._take(self._buffer[:count])
        if count >= _FULL_PIPE and not self._is_wide:
            self._is_wide = True
            # The user's pipes share a limit (pipe-user-pages-soft): failing only costs time.
            with suppress(PermissionError):
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return count > 0

    def close(self) -> None:
        os.close(self._fd)

    def captured(self) -> Captured:
        return Captured(bytes(self._head), bytes(self._tail), self.total_bytes)

    def _take(self, chunk: memoryview) -> None:
        self.total_bytes += len(chunk)
        if self.listener is not None:
            self.listener(bytes(chunk))
        if self._spool is not None:
            self._spool.write(chunk)
        missing = self._head_max - len(self._head)
        self._head += chunk[:missing]
        chunk = chunk[missing:]
        self._tail += chunk[max(0, len(chunk) - self._tail_max) :]
        del self._tail[: max(0, len(self._tail) - self._tail_max)]


Streams = tuple[Stream, Stream]
"""Stdout and stderr."""


class Spooling:
    """Two unnamed files, in the history's store if possible: one is kept by giving it a name."""

    def __init__(self, directory: Path, history: History) -> None:
        self._directory = directory
        self._history = history
        self._is_adoptable = True
        self._opened = ExitStack()
        most = limits.shell_output_kept_bytes_max
        self.spools: tuple[Spool, Spool] = Spool(self._open, most), Spool(self._open, most)

    def close(self) -> None:
        self._opened.close()

    def streams(self, end: CommandEnd) -> Streams:
        out, error = self.spools
        return self._stream(end.stdout, out), self._stream(end.stderr, error)

    def _open(self) -> int:
        draft = self._history.store.open_draft()
        if draft is not None:
            self._opened.callback(os.close, draft)
            return draft
        self._is_adoptable = False
        with host_error("cannot spool a command's output", str(self._directory)):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file: IO[bytes] = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 - held until the end
            return self._opened.enter_context(file).fileno()

    def _stream(self, captured: Captured, spool: Spool) -> Stream:
        text, is_cut = render_stream(captured, limits.shell_output_chars_max)
        if not is_cut:
            return Stream(text)
        store = self._history.store
        with store.held():
            if self._is_adoptable:
                store.adopt(spool.fd, spool.digest)
            else:
                store.put_file(spool.fd, digest=spool.digest)
            store.sync()
            running = current_call()
            if running is not None:
                running.kept.add(spool.digest)
        return Stream(text, KeptOutput(spool.digest, spool.size_bytes, captured.total_bytes))


class _Digest:
    """SHA-256, in a separate thread for large outputs: hashing releases the GIL."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._held = bytearray()
        self._thread: threading.Thread | None = None

    def add(self, chunk: memoryview) -> None:
        self._held += chunk
        if len(self._held) >= _CHUNK_BYTES:
            self._join()
            held, self._held = self._held, bytearray()
            self._thread = threading.Thread(target=self._digest.update, args=(held,), daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                # Too many threads.
                self._thread = None
                self._digest.update(held)

    def hexdigest(self) -> str:
        self._join()
        self._digest.update(self._held)
        self._held.clear()
        return self._digest.hexdigest()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
