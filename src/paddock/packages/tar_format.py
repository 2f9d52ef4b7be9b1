"""The one form of tar that a package has: ustar, regular files, nothing that varies. Pure.

A member is a header of 512 bytes and its content, padded with NULs to the next 512; two
blocks of NULs end the archive (POSIX.1-2017, pax, "ustar Interchange Format"). Everything
in a header that could differ from machine to machine is fixed: owner and group 0 and
without names, time 0, mode 0644 or 0755. So a header is decided by a name, a size and
whether the file is a program, and reading one means: take these three out, make the
header anew, compare all 512 bytes.

Threat: two programs that read one archive differently. Extended headers (pax, GNU) give a
member a second name or size, base-256 numbers a second length, sparse members a second
content, bytes behind a name's NUL a second name. What is not the one form is refused.
"""

from dataclasses import dataclass
from typing import Final

from paddock.packages.refusals import ArchiveRefusedError

BLOCK_BYTES: Final = 512
RECORD_BYTES: Final = 10_240
"""Twenty blocks: an archive is padded to whole records, as tar does."""
FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755
END: Final = b"\0" * (2 * BLOCK_BYTES)

_NAME_BYTES: Final = 100
_PREFIX_BYTES: Final = 155
_MAGIC: Final = b"ustar\x0000"
_REGULAR: Final = b"0"
_TYPES: Final = {
    b"\0": "a member of the oldest tar format",
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a directory",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"g": "a global pax header",
    b"x": "a pax header",
    b"K": "a long link name of GNU tar",
    b"L": "a long name of GNU tar",
    b"D": "a directory listing of GNU tar",
    b"M": "a continued file of GNU tar",
    b"N": "an old long name of GNU tar",
    b"S": "a sparse file of GNU tar",
    b"V": "a volume label of GNU tar",
}


@dataclass(frozen=True, slots=True)
class Header:
    """All that one header says."""

    name: str
    size_bytes: int
    mode: int


def fits(name: str) -> bool:
    """Whether a name has room in a header: 255 bytes at most, with a slash at the right place."""
    return _split(name.encode()) is not None


def encode_header(header: Header) -> bytes:
    """The 512 bytes of a header.

    Raises:
        ArchiveRefusedError: the name has no room.
    """
    split = _split(header.name.encode())
    if split is None:
        raise ArchiveRefusedError(
            "the name is too long for an archive", file=header.name, hint="shorten it"
        )
    prefix, name = split
    block = b"".join(
        (
            name.ljust(_NAME_BYTES, b"\0"),
            b"%07o\0" % header.mode,
            b"%07o\0" % 0,  # owner
            b"%07o\0" % 0,  # group
            b"%011o\0" % header.size_bytes,
            b"%011o\0" % 0,  # time
            b" " * 8,  # the checksum, counted as spaces
            _REGULAR,
            b"\0" * 100,  # a link's target
            _MAGIC,
            b"\0" * 80,  # names of owner and group, device numbers
            prefix.ljust(_PREFIX_BYTES, b"\0"),
            b"\0" * 12,
        )
    )
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def decode_header(block: bytes) -> Header:
    """What a header of the one form says.

    Raises:
        ArchiveRefusedError: another kind of member, or another form; it says which.
    """
    _require_checksum(block)
    name = _name_of(block)
    kind = block[156:157]
    if kind != _REGULAR:
        what = _TYPES.get(kind, f"a member of the unknown type {kind!r}")
        raise ArchiveRefusedError(
            f"it is {what}, and a package holds regular files only", file=name
        )
    if block[257:265] != _MAGIC:
        raise ArchiveRefusedError("its header is not of the ustar format", file=name)
    header = Header(name, _octal(block[124:136], name), _octal(block[100:108], name))
    if header.mode not in (FILE_MODE, PROGRAM_MODE):
        raise ArchiveRefusedError(f"its mode is {header.mode:04o}, not 0644 or 0755", file=name)
    if not fits(name) or encode_header(header) != block:
        raise ArchiveRefusedError(
            "its header says more than name, size and mode, or says them in another way",
            file=name,
            hint="make archives with: paddock package pack",
        )
    return header


def padding_of(size_bytes: int, unit_bytes: int = BLOCK_BYTES) -> int:
    """How many NULs follow so many bytes."""
    return -size_bytes % unit_bytes


def _split(name: bytes) -> tuple[bytes, bytes] | None:
    """Prefix and name, the prefix as short as it can be; None where there is no room."""
    if len(name) <= _NAME_BYTES:
        return b"", name
    cut = name.find(b"/", len(name) - _NAME_BYTES - 1)
    if cut <= 0 or cut > _PREFIX_BYTES or cut + 1 == len(name):
        return None
    return name[:cut], name[cut + 1 :]


def _require_checksum(block: bytes) -> None:
    counted = sum(block[:148]) + sum(b" " * 8) + sum(block[156:])
    if block[148:156] != b"%06o\0 " % counted:
        raise ArchiveRefusedError("a header's checksum is wrong: damaged, or no tar archive")


def _name_of(block: bytes) -> str:
    name, prefix = block[:_NAME_BYTES].rstrip(b"\0"), block[345:500].rstrip(b"\0")
    whole = prefix + b"/" + name if prefix else name
    try:
        return whole.decode("utf-8")
    except UnicodeDecodeError:
        shown = whole.decode("utf-8", "backslashreplace")
        raise ArchiveRefusedError("its name is not UTF-8", file=shown) from None


def _octal(field: bytes, name: str) -> int:
    digits = field[:-1]
    if field[-1:] != b"\0" or not digits.isdigit() or any(digit > ord("7") for digit in digits):
        raise ArchiveRefusedError("a number in its header is not plain octal", file=name)
    return int(digits, 8)
