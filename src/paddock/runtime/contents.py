"""What becomes of a content that does not stand in a ledger entry itself."""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.storage.history import BlobStore

SALT_BYTES: Final = 16


class Contents(Protocol):
    def stand_in(self, content: bytes) -> dict[str, Json]:
        """Return digest and size for it. Raises: StorageFullError, HostError, ConfigError."""
        ...

    def sync(self) -> None:
        """Wait until what was taken is safe from a power cut; raises as `stand_in`."""
        ...


class DigestsAlone:
    """Keeps nothing; the salt stands in the entry, so that no table of digests helps."""

    __slots__ = ("_randomness",)

    def __init__(self, randomness: Callable[[int], bytes]) -> None:
        self._randomness = randomness

    def stand_in(self, content: bytes) -> dict[str, Json]:
        salt = self._randomness(SALT_BYTES)
        digest = hashlib.sha256(salt + content).hexdigest()
        return {"salted_sha256": digest, "salt": salt.hex(), "bytes": len(content)}

    def sync(self) -> None:
        """Nothing is kept."""


class KeptContents:
    __slots__ = ("_blobs",)

    def __init__(self, blobs: "BlobStore") -> None:
        self._blobs = blobs

    def stand_in(self, content: bytes) -> dict[str, Json]:
        return {"salted_sha256": self._blobs.put(content), "bytes": len(content)}

    def sync(self) -> None:
        self._blobs.sync()
