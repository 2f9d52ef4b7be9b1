"""Is this text? Content that is to be shown, edited or written."""

import re
from collections.abc import Iterable
from typing import Final

from paddock import limits
from paddock.errors import BinaryFileError, TextEncodingError, TextTooLargeError
from paddock.text.show import quote

KEEP_ENCODING: Final = (
    "do not convert it: an edit whose old and new text are ASCII keeps its encoding; "
    "to read it, decode it in a command (iconv -f ENCODING)"
)
_MULTI_BYTE: Final = (
    re.compile(rb"(?:[\x00-\x80\xff]++|[\x81-\xfe][\x30-\x7e\x80-\xfe])*+"),
    re.compile(rb"(?:[\x00-\x80\xa0-\xdf\xfd-\xff]++|[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc])*+"),
)
"""Encodings in which a byte below 0x80 may end a character: GB 18030, Big5, UHC; Shift-JIS."""
_NEVER_WITHIN: Final = 0x30
"""In none of them does a smaller byte stand within a character."""
_LOOKED_BACK_BYTES: Final = 4096
_SAMPLE_BYTES: Final = 1_000_000
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def require_text(content: bytes, name: str) -> None:
    """Refuse content that is not UTF-8 text.

    Raises:
        BinaryFileError: a NUL byte among the first `limits.binary_probe_bytes`.
        TextEncodingError: invalid UTF-8; the message names line and byte.
    """
    if b"\0" in content[: limits.binary_probe_bytes]:
        raise BinaryFileError(
            f"{quote(name)} is a binary file: it has a NUL byte at offset {content.index(0)}",
            hint="only UTF-8 text can be viewed or edited",
        )
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TextEncodingError(
            f"{quote(name)} is not UTF-8: byte 0x{content[error.start]:02x} "
            f"at offset {error.start}, line {line}",
            hint=f"nothing was changed; {KEEP_ENCODING}",
        ) from None


def require_apart(content: bytes, starts: Iterable[int], name: str) -> None:
    """Refuse an edit of ASCII text that may begin within a character of another encoding.

    Such characters begin with a byte of 0x80 or more, so only the first byte of a place
    can be the end of one: 0x5c is both a backslash and half of a Japanese character.

    Raises:
        BinaryFileError: a NUL byte anywhere, or a byte-order mark of UTF-16.
        TextEncodingError: in an encoding that the file may be in, a place begins so.
    """
    if b"\0" in content or content.startswith(_UTF16_MARKS):
        raise BinaryFileError(f"{quote(name)} is a binary file", hint="only text can be edited")
    sample = content[:_SAMPLE_BYTES]
    # A character may be cut at the end of the sample.
    possible = [each for each in _MULTI_BYTE if _matched(each, sample) >= len(sample) - 1]
    for at in starts:
        if at == 0 or content[at - 1] < 0x80 or content[at] < _NEVER_WITHIN:
            continue
        begin = at
        while begin and at - begin < _LOOKED_BACK_BYTES and content[begin - 1] >= _NEVER_WITHIN:
            begin -= 1
        before = content[begin:at]
        if len(before) == _LOOKED_BACK_BYTES or any(
            _matched(each, before) < len(before) for each in possible
        ):
            raise TextEncodingError(
                f"{quote(name)} is not UTF-8, and the old text may begin within a character "
                f"of it, at offset {at}",
                hint="begin the old text one ASCII character earlier",
            )


def _matched(encoding: re.Pattern[bytes], content: bytes) -> int:
    found = encoding.match(content)
    return found.end() if found else 0


def require_content(text: str, argument: str) -> bytes:
    """The bytes of an argument that is to be written.

    Raises:
        BinaryFileError: it holds a NUL.
        TextEncodingError: it holds half of a surrogate pair.
        TextTooLargeError: over `limits.content_bytes_max`.
    """
    at = text.find("\0")
    if at >= 0:
        raise BinaryFileError(
            f"{argument} has a NUL character at position {at}",
            hint="only text can be written",
        )
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextEncodingError(
            f"{argument} has half of a surrogate pair at position {error.start}",
            hint="send whole Unicode characters",
        ) from None
    if len(content) > limits.content_bytes_max:
        raise TextTooLargeError(
            f"{argument} has {len(content)} bytes, {limits.content_bytes_max} are allowed",
            hint="write it in parts",
        )
    return content
