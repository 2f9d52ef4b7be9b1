"""The gzip layer of an archive (RFC 1952), written in one form and read within limits.

Written without compression, in stored blocks (RFC 1951, 3.2.4) of our own making: what a
compressor makes of one input differs between versions and builds of zlib, even at level 0,
and an archive is to have the same bytes wherever it is made. Packages are small.
"""

import zlib
from typing import Final

from paddock import limits
from paddock.packages.refusals import ArchiveRefusedError

# Magic, deflate, no flags, time 0, no extra flags, unknown system: the same everywhere.
_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_STORED_BYTES_MAX: Final = 65_535
_GZIP_WINDOW: Final = 31
"""zlib.h, inflateInit2: 15 bits of window, and 16 for a gzip header and nothing else."""
_PIECE_BYTES: Final = 1 << 20


def wrap(content: bytes) -> bytes:
    """`content` as one gzip member of stored blocks."""
    pieces = [_HEADER]
    starts = range(0, len(content), _STORED_BYTES_MAX) or range(1)
    for start in starts:
        piece = content[start : start + _STORED_BYTES_MAX]
        is_last = start + _STORED_BYTES_MAX >= len(content)
        size = len(piece)
        pieces.append(bytes([is_last]) + size.to_bytes(2, "little"))
        pieces.append((size ^ 0xFFFF).to_bytes(2, "little") + piece)
    pieces.append(zlib.crc32(content).to_bytes(4, "little"))
    pieces.append((len(content) & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(pieces)


def unwrap(archive: bytes) -> bytes:
    """What one gzip member holds.

    Threat: a bomb. What comes out is counted while it comes, and never more is made than
    the limit and one piece.

    Raises:
        ArchiveRefusedError: no gzip, damaged, cut off, followed by anything, or a bomb.
    """
    ceiling = min(
        limits.package_bytes_max,
        limits.package_ratio_allowance_bytes + limits.package_ratio_max * len(archive),
    )
    inflating = zlib.decompressobj(_GZIP_WINDOW)
    found: list[bytes] = []
    total, rest = 0, archive
    try:
        while not inflating.eof:
            piece = inflating.decompress(rest, _PIECE_BYTES)
            rest = inflating.unconsumed_tail
            total += len(piece)
            found.append(piece)
            if total > ceiling:
                raise ArchiveRefusedError(
                    f"{len(archive)} bytes unpack to more than {ceiling}: a bomb"
                )
            if not piece and not rest and not inflating.eof:
                raise ArchiveRefusedError("the archive is cut off")
    except zlib.error as fault:
        raise ArchiveRefusedError(f"it is no gzip archive, or a damaged one: {fault}") from fault
    if inflating.unused_data:
        raise ArchiveRefusedError(f"{len(inflating.unused_data)} bytes follow the archive's end")
    return b"".join(found)
