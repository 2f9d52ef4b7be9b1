"""Is this text? Content that is to be shown, edited or written."""

from paddock import limits
from paddock.errors import BinaryFileError, TextEncodingError, TextTooLargeError
from paddock.text.show import quote


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
            hint="convert the file to UTF-8 first; nothing was changed",
        ) from None


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
