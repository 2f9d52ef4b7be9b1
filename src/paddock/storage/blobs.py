"""Contents that the ledger names by a salted digest, and that can be erased without it.

What is kept is `salt ‖ content`, in a store of its own, under the SHA-256 of just that.
So the digest in an entry is the object's name, and the salt stands nowhere else: with
the object it is gone, and nobody can try contents against the digest any more.

Nothing here is pruned. Contents come and go with no lock that the history holds.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from paddock.errors import IntegrityError
from paddock.storage.atomic import make_directories
from paddock.storage.locks import OpenedOnce
from paddock.storage.objects import ObjectStore
from paddock.values.entries import DIGEST_PREFIX

SALT_BYTES: Final = 16
"""128 bits: nobody tries them all."""


class BlobStore:
    """The contents of one plane's ledgers, opened when first needed; any thread may use it."""

    __slots__ = ("_directory", "_opened", "_randomness")

    def __init__(self, directory: Path, randomness: Callable[[int], bytes]) -> None:
        self._directory = directory
        self._randomness = randomness
        self._opened = OpenedOnce(self._open)

    def _open(self) -> ObjectStore:
        make_directories(self._directory.parent)
        return ObjectStore.open(str(self._directory), bytes_max=None)

    def put(self, content: bytes) -> str:
        """Keep a content under a new salt, with the next `sync`; its salted digest."""
        digest = self._opened.get().put_bytes(self._randomness(SALT_BYTES) + content)
        return digest.removeprefix(DIGEST_PREFIX)

    def sync(self) -> None:
        self._opened.get().sync()

    def read(self, digest: str) -> bytes | None:
        """The content of a salted digest; None where it is not there (any more)."""
        if not self.has(digest):
            return None
        kept = self._opened.get().read(DIGEST_PREFIX + digest)
        if len(kept) < SALT_BYTES:
            raise IntegrityError(f"the content {digest} has no salt")
        return kept[SALT_BYTES:]

    def has(self, digest: str) -> bool:
        return self._is_made() and self._opened.get().has(DIGEST_PREFIX + digest)

    def erase(self, digest: str) -> bool:
        return self._is_made() and self._opened.get().forget(DIGEST_PREFIX + digest)

    def close(self) -> None:
        opened = self._opened.take()
        if opened is not None:
            opened.close()

    def _is_made(self) -> bool:
        # Whoever only asks makes nothing.
        return self._opened.is_open or self._directory.is_dir()
