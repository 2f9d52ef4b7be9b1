"""A command's output as a model may see it: text, safe, and cut in the middle. Pure.

Control and direction characters are escaped: a command may print a file of terminal sequences.

The whole output, where it was cut, goes into a file for the history.
"""

import codecs
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Final, Literal

from paddock import limits
from paddock.sandbox.conversation import Spool
from paddock.sandbox.values import Captured, CommandEnd, KeptOutput, Stream
from paddock.storage.atomic import host_error
from paddock.storage.history import History, current_call
from paddock.text.show import show_line
from paddock.values.entries import DIGEST_PREFIX

BYTES_A_CHARACTER_MAX: Final = 4
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
    """Return what was printed as a model may see it, whole or a part of it."""
    return _safe(_decode(_from_a_character(content), is_whole=True))


def _decode(content: bytes, *, is_whole: bool) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, final=is_whole)


def _from_a_character(content: bytes) -> bytes:
    start = 0
    while start < min(len(content), BYTES_A_CHARACTER_MAX - 1) and content[start] in _CONTINUATION:
        start += 1
    return content[start:]


def _safe(text: str) -> str:
    return "\n".join(show_line(line)[0] for line in text.replace("\r\n", "\n").split("\n"))


OUTPUT_BYTES: Final = limits.shell_output_chars_max * BYTES_A_CHARACTER_MAX


_HASHED_BYTES: Final = 2_097_152


Streams = tuple[Stream, Stream]
"""Of its output, and of its errors."""


class Spooling:
    """Two files without a name, the history's own where it can: to keep one is to name it."""

    def __init__(self, directory: Path, history: History) -> None:
        self._directory = directory
        self._history = history
        self._is_adoptable = True
        self._fds: dict[int, int] = {}
        self._digests = _Digest(), _Digest()
        self._opened = ExitStack()

    def close(self) -> None:
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
            file: IO[bytes] = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 - held until the end
            return self._opened.enter_context(file).fileno()

    @property
    def spools(self) -> tuple[Spool, Spool]:
        most = limits.shell_output_kept_bytes_max
        one, other = (
            Spool(partial(self._fd, number), most, digest.add)
            for number, digest in enumerate(self._digests)
        )
        return one, other

    def streams(self, end: CommandEnd) -> Streams:
        return self._stream(end.stdout, 0), self._stream(end.stderr, 1)

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
