"""Text is UTF-8 without NUL; anything else is refused with its place."""

import pytest

from paddock import limits
from paddock.errors import BinaryFileError, TextEncodingError, TextTooLargeError
from paddock.text.edit import require_content, require_text


def test_utf8_text_passes() -> None:
    require_text("héllo\n".encode(), "a.txt")


def test_a_nul_in_the_first_bytes_is_binary() -> None:
    with pytest.raises(BinaryFileError, match="offset 2"):
        require_text(b"ab\0", "a.bin")


def test_a_nul_beyond_the_probed_bytes_is_text() -> None:
    require_text(b"x" * limits.binary_probe_bytes + b"\0", "a.txt")


def test_invalid_utf8_says_byte_offset_and_line() -> None:
    with pytest.raises(TextEncodingError, match="byte 0xe9 at offset 7, line 2"):
        require_text(b"first\nx\xe9", "latin.txt")


def test_content_with_a_nul_is_binary() -> None:
    with pytest.raises(BinaryFileError):
        require_content("a\0b", "content")


def test_content_over_the_limit_says_both_sizes() -> None:
    with pytest.raises(TextTooLargeError, match="10000001 bytes, 10000000 are allowed"):
        require_content("x" * (limits.content_bytes_max + 1), "content")


def test_content_at_the_limit_passes() -> None:
    assert (
        len(require_content("x" * limits.content_bytes_max, "content")) == limits.content_bytes_max
    )
