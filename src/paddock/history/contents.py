"""Reading one object, checked against its name."""

import hashlib
import os
from collections.abc import Generator
from dataclasses import dataclass

from paddock.errors import HostError, IntegrityError
from paddock.history.disk import READ
from paddock.history.packing import PACKED, chunks_of, name_of, unpacked
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX


@dataclass(frozen=True, slots=True)
class OpenObject:
    """One object, open; whoever opened it closes `fd`."""

    digest: str
    fd: int
    is_packed: bool

    def content(self) -> Generator[bytes]:
        """The content, piece by piece.

        Raises:
            IntegrityError: at the end, if it is not what the digest says.
        """
        hashed = hashlib.sha256()
        pieces = unpacked(self.fd) if self.is_packed else chunks_of(self.fd, _size(self.fd))
        try:
            for piece in pieces:
                hashed.update(piece)
                yield piece
        except ValueError as failure:
            raise damaged(self.digest, str(failure)) from failure
        if DIGEST_PREFIX + hashed.hexdigest() != self.digest:
            raise damaged(self.digest, "its content has another digest")


def _size(fd: int) -> int:
    return os.fstat(fd).st_size


def damaged(digest: str, why: str) -> IntegrityError:
    """The refusal of an object that is not what its name says."""
    return IntegrityError(
        f"the object {digest} of the history is damaged: {why}",
        hint="restore it from a backup; what refers to it cannot be undone",
    )


def open_object(dir_fd: int, digest: str) -> OpenObject | None:
    """The object with this digest, None where there is none.

    Raises:
        IntegrityError: `digest` is none.
        OSError: the disk fails.
    """
    name = name_of(digest)
    # Packing names the packed object before it removes the other, so a second look at
    # the first would find no more than one at the second does.
    for stands, is_packed in ((name, False), (name + PACKED, True)):
        try:
            return OpenObject(digest, os.open(stands, READ, dir_fd=dir_fd), is_packed)
        except FileNotFoundError:
            continue
    return None


def content_of(found: OpenObject | None, digest: str) -> Generator[bytes]:
    """The content with this digest, as it was found, piece by piece, checked at the end.

    Raises:
        IntegrityError: it is damaged.
        HostError: it is not there.
    """
    if found is None:
        raise HostError(
            f"the history does not keep the content {quote(digest)} any more",
            hint="it was pruned to keep to [history] bytes_max",
        )
    try:
        yield from found.content()
    finally:
        os.close(found.fd)
