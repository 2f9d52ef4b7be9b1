"""Contents that are not pruned though no call at work needs them: what waits for an answer.

    pins/<name>      a line with the second since 1970 until which it counts, or `-`; then a
                     digest a line

Durability: file under another name → fsync → rename → fsync of the directory. A pin is
written while the store's lock is shared, so that its contents are there when it counts.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Collection
from typing import Final

from paddock.errors import InternalError
from paddock.history.packing import chunks_of, name_of
from paddock.history.shelf import Shelf, names_in, open_directory
from paddock.storage.disk import READ
from paddock.text.show import quote

_PINS: Final = "pins"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_DRAFT: Final = ".part"
_FOR_EVER: Final = "-"
_FILE_BYTES_MAX: Final = 64_000_000
"""A set of changes has fewer contents than would fit. More is somebody else's."""


def write_pin(shelf: Shelf, name: str, digests: Collection[str], until_s: float | None) -> None:
    """Pin these under a name, whatever it held before; see `ObjectStore.pin`. Raises: OSError."""
    _require_name(name)
    for digest in digests:
        name_of(digest)  # IntegrityError where it is none
    until = _FOR_EVER if until_s is None else str(int(until_s) + 1)
    content = "".join(f"{line}\n" for line in (until, *sorted(digests))).encode("ascii")
    dir_fd = open_directory(shelf.disk, shelf.fd, _PINS)
    try:
        draft = secrets.token_hex(16) + _DRAFT
        try:
            fd = shelf.disk.create(dir_fd, draft)
            try:
                shelf.disk.write(fd, content)
                shelf.disk.sync(fd)
            finally:
                os.close(fd)
            shelf.disk.replace(dir_fd, draft, dir_fd, name)
        except BaseException:
            with contextlib.suppress(OSError):
                shelf.disk.unlink(dir_fd, draft)
            raise
        shelf.disk.sync(dir_fd)
    finally:
        os.close(dir_fd)


def remove_pin(shelf: Shelf, name: str) -> None:
    """Unpin; no such pin is fine. Raises: OSError."""
    _require_name(name)
    dir_fd = open_directory(shelf.disk, shelf.fd, _PINS)
    try:
        with contextlib.suppress(FileNotFoundError):
            shelf.disk.unlink(dir_fd, name)
    finally:
        os.close(dir_fd)


def pinned(shelf: Shelf, now_s: float) -> set[str]:
    """The names of the objects that are pinned now; pins whose time is over go.

    To be called by whoever has the store's lock alone: a draft is a dead process's then.

    Raises:
        OSError: a pin cannot be read: then nothing may be pruned.
    """
    dir_fd = open_directory(shelf.disk, shelf.fd, _PINS)
    try:
        found: set[str] = set()
        for name in names_in(dir_fd):
            kept = None if name.endswith(_DRAFT) else _read(dir_fd, name, now_s)
            if kept is None:
                shelf.disk.unlink(dir_fd, name)
            else:
                found |= kept
        return found
    finally:
        os.close(dir_fd)


def _read(dir_fd: int, name: str, now_s: float) -> set[str] | None:
    """Of one pin; None where its time is over. What is no digest in it pins nothing."""
    fd = os.open(name, READ, dir_fd=dir_fd)
    try:
        text = b"".join(chunks_of(fd, min(os.fstat(fd).st_size, _FILE_BYTES_MAX)))
    finally:
        os.close(fd)
    until, *digests = text.decode("ascii", "replace").splitlines() or [_FOR_EVER]
    if until.isdecimal() and int(until) <= now_s:
        return None
    return {digest.partition(":")[2] for digest in digests}


def _require_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InternalError(f"a pin cannot have the name {quote(name)}")
