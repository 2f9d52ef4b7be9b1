"""Contents by their digest, read from the store: nothing of it is made, moved or removed.

    <64 hex digits>          an object, as it is; with `.z`, one that an earlier version packed
    usage, notes/, pins/     see `prune` and `notes`
    incoming/<random>.held   a content that has no digest for a name yet: put, or a second name
                             of a large file that is about to be replaced; empty, a name for later
    incoming/<random>.part   a copy that is being made of what was held

Threat: whoever can write to the store can forge what undo brings back, so every object is checked
against its name when it is read.
"""

import hashlib
import os
import threading
import zlib
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from paddock.errors import HostError, IntegrityError
from paddock.storage.atomic import held_open, require_private
from paddock.storage.disk import (
    CHUNK_BYTES,
    DIRECTORY,
    READ,
    Disk,
    chunks_of,
    converting,
    digest_of_file,
)
from paddock.storage.locks import call_after_fork
from paddock.storage.prune import PACKED, name_of, names_in
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX

INCOMING: Final = "incoming"
HELD: Final = ".held"
PACKED_BYTES_MAX: Final = 64_000_000
"""Of the content. A packed object that holds more is a forgery."""


class StoreReader:
    """The store in one directory, as it is: also on a file system that is full, or read-only.

    Digests are `sha256:` and 64 hexadecimal digits. Where no store is, there is nothing in it.
    """

    def __init__(self, directory: str, *, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self._directory = directory
        self._fd = -1
        self._mutex = threading.RLock()
        self._digests: dict[tuple[str, int, int], str] = {}
        call_after_fork(self, StoreReader.renew)

    def renew(self) -> None:
        """In a forked child. What its parent's threads were about stays theirs."""
        self._mutex = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the directory go; it is opened again where it is needed again."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def look(self) -> int:
        """A descriptor of the store's directory. Raises: FileNotFoundError, ConfigError."""
        if self._fd < 0:
            with self._mutex:
                if self._fd < 0:
                    require_private(Path(self._directory))
                    self._fd = os.open(self._directory, DIRECTORY)
        return self._fd

    def has(self, digest: str) -> bool:
        with self._opened(digest) as found:
            return found is not None

    def stored_bytes(self, digest: str) -> int:
        """What the content takes on the disk; 0 where it is not there."""
        with self._opened(digest) as found:
            return 0 if found is None else os.fstat(found.fd).st_size

    def read(self, digest: str) -> bytes:
        return b"".join(self._content(digest))

    def find(self, digest: str) -> bytes | None:
        """As `read`; None where it is not there, or not any more."""
        return self.read(digest) if self.has(digest) else None

    def verify(self, digest: str) -> None:
        for _ in self._content(digest):
            continue

    def copy_to(self, digest: str, fd: int) -> None:
        """Write the content to an open file, checked; throw it away where this raises."""
        for piece in self._content(digest):
            self.disk.write(fd, piece)

    def _content(self, digest: str) -> Generator[bytes]:
        with self._opened(digest) as found:
            if found is None:
                raise HostError(
                    f"the history does not keep the content {quote(digest)} any more",
                    hint="it was pruned to keep to [history] bytes_max",
                )
            hashed = hashlib.sha256()
            pieces = chunks_of(found.fd, os.fstat(found.fd).st_size)
            try:
                for piece in _unpacked(pieces) if found.is_packed else pieces:
                    hashed.update(piece)
                    yield piece
            except (ValueError, zlib.error) as failure:
                raise _damaged(digest, str(failure)) from failure
            if DIGEST_PREFIX + hashed.hexdigest() != digest:
                raise _damaged(digest, "its content has another digest")

    @contextmanager
    def _opened(self, digest: str) -> Generator["_Opened | None"]:
        with converting("read the history"):
            found = self._find(digest)
            try:
                yield found
            finally:
                if found is not None:
                    os.close(found.fd)

    def _find(self, digest: str) -> "_Opened | None":
        name = name_of(digest)
        with suppress(FileNotFoundError):
            fd = self.look()
            for stands in self._places(name, digest):
                with suppress(FileNotFoundError):
                    return _Opened(os.open(stands, READ, dir_fd=fd), stands == name + PACKED)
        return None

    def _places(self, name: str, digest: str) -> Generator[str]:
        yield name
        yield name + PACKED
        # The power went, or its process was killed, before it had its digest for a name.
        yield from self._first_places(digest)
        # Its process lived, and has made it an object.
        yield name

    def _first_places(self, digest: str) -> Iterable[str]:
        for held, fd, status in self.held_contents():
            known = held, status.st_size, status.st_mtime_ns
            if known not in self._digests:
                self._digests[known] = digest_of_file(fd, status.st_size)
            if self._digests[known] == digest:
                yield f"{INCOMING}/{held}"

    def held_contents(self) -> Generator[tuple[str, int, os.stat_result]]:
        """Contents that wait for their digest, with a descriptor while it is asked for the next."""
        with suppress(FileNotFoundError):
            opened = os.open(INCOMING, DIRECTORY, dir_fd=self.look())
            with held_open(opened) as incoming_fd:
                for name in (name for name in names_in(incoming_fd) if name.endswith(HELD)):
                    # Where it is gone it has become an object, or was let go.
                    with (
                        suppress(FileNotFoundError),
                        held_open(os.open(name, READ, dir_fd=incoming_fd)) as fd,
                    ):
                        status = os.fstat(fd)
                        if status.st_size:
                            yield name, fd, status


class _Opened(NamedTuple):
    fd: int
    is_packed: bool


def _damaged(digest: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"the object {digest} of the history is damaged: {why}",
        hint="restore it from a backup; what refers to it cannot be undone",
    )


def _unpacked(chunks: Iterable[bytes]) -> Generator[bytes]:
    unpacker, total = zlib.decompressobj(), 0
    for chunk in chunks:
        rest = chunk
        while rest and not unpacker.eof:
            piece = unpacker.decompress(rest, CHUNK_BYTES)
            total += len(piece)
            if total > PACKED_BYTES_MAX:
                raise ValueError(f"it holds more than {PACKED_BYTES_MAX} bytes")
            yield piece
            rest = unpacker.unconsumed_tail
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is cut, or something stands behind it")
