"""Signatures of packages: Ed25519 over the text of the manifest's digest.

`ARCHIVE.sig` beside an archive holds `{digest, key_id, signature}`. What is signed is the
71 characters of the digest, so a signature speaks of one package whatever file it came in.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import IntegrityError
from paddock.ledger.keys import SigningKey
from paddock.packages.keys import Keys, public_half, sign_bytes
from paddock.plane.files import read_file_through_links, replace_file
from paddock.plane.strict_json import Fields, parse_object, write_object
from paddock.text.show import quote
from paddock.values.calls import Json

SUFFIX: Final = ".sig"
SIGNATURE_MODE: Final = 0o644
_FIELDS: Final = frozenset({"digest", "key_id", "signature"})


@dataclass(frozen=True, slots=True)
class Signature:
    """Who vouches for a digest."""

    digest: str
    key_id: str
    signature: str
    """Base64."""

    def as_json(self) -> dict[str, Json]:
        """As it stands in a file."""
        return {"digest": self.digest, "key_id": self.key_id, "signature": self.signature}


def sign_digest(key: SigningKey, digest: str) -> Signature:
    """Vouch for a package."""
    return Signature(digest, public_half(key).key_id, sign_bytes(key, digest.encode("ascii")))


def verify_signature(signature: Signature, digest: str, keys: Keys) -> None:
    """Whether a known key vouches for exactly this package.

    Raises:
        IntegrityError: it speaks of another package, the key is not known, or the
            key did not make it.
    """
    if signature.digest != digest:
        raise IntegrityError(f"the signature is of {signature.digest}, not of {digest}")
    key = keys.get(signature.key_id)
    if key is None:
        raise IntegrityError(
            f"the key {quote(signature.key_id)} is not known here",
            hint="the plane's keys stand in HOT/registries/keys",
        )
    if not key.verifies(digest.encode("ascii"), signature.signature):
        raise IntegrityError(f"the key {signature.key_id} did not make this signature")


def signature_path(archive: Path) -> Path:
    """Where an archive's signature lies."""
    return archive.with_name(archive.name + SUFFIX)


def write_signature(archive: Path, signature: Signature) -> Path:
    """Put it beside the archive; where it lies. Raises: HostError."""
    path = signature_path(archive)
    replace_file(path, write_object(signature.as_json()), mode=SIGNATURE_MODE)
    return path


def read_signature(archive: Path) -> Signature | None:
    """The signature beside an archive, or None where there is none. Raises: ConfigError."""
    path = signature_path(archive)
    content = read_file_through_links(path, limits.key_file_bytes_max)
    return None if content is None else parse_signature(parse_object(content, str(path)))


def parse_signature(fields: Fields) -> Signature:
    """The signature that these fields are. Raises: ConfigError."""
    fields.require_only(_FIELDS)
    return Signature(fields.text("digest"), fields.text("key_id"), fields.text("signature"))
