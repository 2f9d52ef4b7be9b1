"""How an object stands on the disk: as it is, or packed by zlib under a name that says so.

An object is put as it is: packing costs more than an edit. It is packed when the store
needs room, and only where that saves something.
"""

import hashlib
import os
import re
import zlib
from collections.abc import Generator, Iterable
from typing import Final

from paddock.errors import IntegrityError
from paddock.history.disk import StoreDisk
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX

PACKED: Final = ".z"
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
OBJECT_NAME: Final = re.compile(r"([0-9a-f]{64})(\.z)?")
PACKED_BYTES_MIN: Final = 8192
"""Two blocks of most file systems: below that nothing is saved."""
PACKED_BYTES_MAX: Final = 64_000_000
"""Of the content. A packed object that holds more is a forgery."""
_SAMPLE_BYTES: Final = 65_536
_PAYS_BELOW: Final = 0.8
_LEVEL: Final = 6
_CHUNK_BYTES: Final = 1 << 20


def name_of(digest: str) -> str:
    """The name under which the content with this digest stands, as it is.

    Raises:
        IntegrityError: it is no digest. Threat: one read from a record that somebody
            wrote could be a path.
    """
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise IntegrityError(f"{quote(digest)} is no digest of an object")
    return found[1]


def chunks_of(fd: int, size_bytes: int) -> Generator[bytes]:
    """An open file's first bytes, piece by piece; fewer if it ends before."""
    offset = 0
    while offset < size_bytes:
        chunk = os.pread(fd, min(_CHUNK_BYTES, size_bytes - offset), offset)
        if not chunk:
            return
        yield chunk
        offset += len(chunk)


def written(pieces: Iterable[bytes], disk: StoreDisk, fd: int) -> str:
    """Write the pieces to an open file; the digest of them all."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        disk.write(fd, piece)
    return DIGEST_PREFIX + digest.hexdigest()


def digest_of_file(fd: int, size_bytes: int) -> str:
    """The digest of an open file's first bytes."""
    digest = hashlib.sha256()
    for piece in chunks_of(fd, size_bytes):
        digest.update(piece)
    return DIGEST_PREFIX + digest.hexdigest()


def pays(fd: int) -> bool:
    """Whether packing saves a good part, judged by the first bytes."""
    sample = os.pread(fd, _SAMPLE_BYTES, 0)
    return len(zlib.compress(sample, 1)) < len(sample) * _PAYS_BELOW


def pack(disk: StoreDisk, from_fd: int, to_fd: int, size_bytes: int) -> str:
    """Write the packed content; return the digest of what was packed."""
    packer = zlib.compressobj(_LEVEL)
    digest = hashlib.sha256()
    for chunk in chunks_of(from_fd, size_bytes):
        digest.update(chunk)
        disk.write(to_fd, packer.compress(chunk))
    disk.write(to_fd, packer.flush())
    return DIGEST_PREFIX + digest.hexdigest()


def unpacked(fd: int) -> Generator[bytes]:
    """The content of a packed object, piece by piece.

    Raises:
        ValueError: it is not what zlib made, is cut, or holds more than PACKED_BYTES_MAX.
    """
    unpacker = zlib.decompressobj()
    total = 0
    for chunk in chunks_of(fd, os.fstat(fd).st_size):
        rest = chunk
        while rest and not unpacker.eof:
            try:
                piece = unpacker.decompress(rest, _CHUNK_BYTES)
            except zlib.error as failure:
                raise ValueError(str(failure)) from failure
            total += len(piece)
            if total > PACKED_BYTES_MAX:
                raise ValueError(f"it holds more than {PACKED_BYTES_MAX} bytes")
            yield piece
            rest = unpacker.unconsumed_tail
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is cut, or something stands behind it")
