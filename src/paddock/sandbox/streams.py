"""A command's output as a model may see it: text, safe, and cut in the middle. Pure.

Control and direction characters are escaped: a command may print a file of terminal sequences.
"""

import codecs
from collections.abc import Callable
from typing import Final, Literal

from paddock.sandbox.values import Captured
from paddock.text.show import show_line

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
        text = _decode(captured.head + captured.tail, is_whole=True)
        # Of two characters at least one is shown: what is longer than that is cut anyway.
        if len(text) <= 2 * chars_max:
            shown = _safe(text)
            if len(shown) <= chars_max:
                return shown, False
        head = tail = text
    else:
        head = _decode(captured.head, is_whole=False)
        tail = _decode(_from_a_character(captured.tail), is_whole=True)
    return f"{_first(head, half)}\n[TRUNCATED at {chars_max} chars]\n{_last(tail, half)}", True


def _first(text: str, count: int) -> str:
    shown = _safe(_beginning(text, count + 1))
    if len(shown) < count:
        shown = _safe(_beginning(text, 2 * count + 1))
    return shown[:count]


def _beginning(text: str, count: int) -> str:
    return text if len(text) <= count else text[:count].removesuffix("\r")


def _last(text: str, count: int) -> str:
    # The second character of a line end is shown as both are.
    shown = _safe(text[-count:])
    return (shown if len(shown) >= count else _safe(text[-2 * count :]))[-count:]


def _decode(content: bytes, *, is_whole: bool) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, final=is_whole)


def _from_a_character(content: bytes) -> bytes:
    start = 0
    while start < min(len(content), BYTES_A_CHARACTER_MAX - 1) and content[start] in _CONTINUATION:
        start += 1
    return content[start:]


def _safe(text: str) -> str:
    return "\n".join(show_line(line)[0] for line in text.replace("\r\n", "\n").split("\n"))
