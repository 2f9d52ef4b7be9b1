"""A command's output as a model may see it: text, safe, and cut in the middle. Pure.

What is no UTF-8 becomes U+FFFD. Control and direction characters are escaped, but for
line ends and tabs: a command may print a file that holds terminal sequences.
"""

import codecs
from typing import Final

from paddock.sandbox.values import Captured
from paddock.text.show import show_line

BYTES_A_CHARACTER_MAX: Final = 4
_CONTINUATION: Final = range(0x80, 0xC0)


def render_stream(captured: Captured, chars_max: int) -> tuple[str, bool]:
    """The text, and whether it was cut: then head and tail stay, with a line between them."""
    if captured.missing_bytes == 0:
        text = _safe(_decode(captured.head + captured.tail, is_whole=True))
        if len(text) <= chars_max:
            return text, False
        head = tail = text
    else:
        head = _safe(_decode(captured.head, is_whole=False))
        tail = _safe(_decode(_from_a_character(captured.tail), is_whole=True))
    half = chars_max // 2
    return f"{head[:half]}\n[TRUNCATED at {chars_max} chars]\n{tail[-half:]}", True


def _decode(content: bytes, *, is_whole: bool) -> str:
    """Without the beginning of a character at the end, where more came after it."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, final=is_whole)


def _from_a_character(content: bytes) -> bytes:
    """Without the rest of a character at the beginning."""
    start = 0
    while start < min(len(content), BYTES_A_CHARACTER_MAX - 1) and content[start] in _CONTINUATION:
        start += 1
    return content[start:]


def _safe(text: str) -> str:
    return "\n".join(show_line(line)[0] for line in text.replace("\r\n", "\n").split("\n"))
