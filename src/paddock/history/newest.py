"""What the newest call replaced: it stays, however full the store is.

    newest/<nanoseconds since 1970, in 20 digits>-<random>      a digest a line

Whoever records a call that kept something, and finds the store over its bound, writes a
file of its own and then removes those before it. So of several processes at once none takes
away what a newer call replaced: at worst two files stand until the next call. Where the
clock was set back, the older one stays too until its time has passed again.

A file is written while the store's lock is shared, and read by whoever has it alone. Nobody
waits for it to be on the device: after a crash no process is left that recorded an older
call, and whoever records one later is the newest itself.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Collection
from typing import Final

from paddock.history.packing import chunks_of, name_of
from paddock.history.shelf import Shelf, names_in, open_directory
from paddock.storage.disk import READ

_NEWEST: Final = "newest"
_TIME_DIGITS: Final = 20
_FILE_BYTES_MAX: Final = 64_000_000
"""A call replaces fewer contents than would fit. More is somebody else's."""


def mark_newest(shelf: Shelf, digests: Collection[str]) -> None:
    """Say that the newest call replaced these. Raises: OSError; then what stood there stays."""
    content = "".join(f"{name_of(digest)}\n" for digest in sorted(digests)).encode("ascii")
    own = f"{time.time_ns():0{_TIME_DIGITS}d}-{secrets.token_hex(8)}"
    dir_fd = open_directory(shelf.disk, shelf.fd, _NEWEST)
    try:
        fd = shelf.disk.create(dir_fd, own)
        try:
            shelf.disk.write(fd, content)
        finally:
            os.close(fd)
        for name in names_in(dir_fd):
            if name < own:
                with contextlib.suppress(FileNotFoundError):
                    shelf.disk.unlink(dir_fd, name)
    finally:
        os.close(dir_fd)


def newest(shelf: Shelf) -> set[str]:
    """The names of the objects that stay. Raises: OSError: then nothing may be pruned."""
    dir_fd = open_directory(shelf.disk, shelf.fd, _NEWEST)
    try:
        return {line for name in names_in(dir_fd) for line in _lines(dir_fd, name)}
    finally:
        os.close(dir_fd)


def _lines(dir_fd: int, name: str) -> list[str]:
    fd = os.open(name, READ, dir_fd=dir_fd)
    try:
        text = b"".join(chunks_of(fd, min(os.fstat(fd).st_size, _FILE_BYTES_MAX)))
    finally:
        os.close(fd)
    return text.decode("ascii", "replace").splitlines()
