"""Operator keys: Ed25519 (RFC 8032), the private half with the user, the public half in the plane.

    <user's configuration>/keys/operator.key      mode 0600; never in a plane
    HOT/registries/keys/<key_id>.json             {key_id, algorithm, public_key}

A key id is the first 32 hexadecimal digits of the SHA-256 of the public key's 32 bytes: it
names one key and no other, and who reads a key checks that it does.

Threat: whoever can put a file into `HOT/registries/keys` is an operator of the plane. No
package brings one there (`names.OWN_PLACES`), no agent writes there (the policy's own
files), and what stands there is no link and not writable for others.
"""

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError, HostError
from paddock.ledger.keys import SigningKey, create_key, load_key
from paddock.plane.environment import Environment
from paddock.plane.files import (
    FILE_MODE,
    create_file,
    host_errors,
    is_temporary_name,
    make_directories,
    read_file,
    require_private,
)
from paddock.plane.keys import operator_key_path
from paddock.plane.layout import PlaneLayout
from paddock.plane.strict_json import parse_object, write_object
from paddock.text.show import quote

ALGORITHM: Final = "Ed25519"
_KEY_NAME: Final = "paddock/operator"
_PUBLIC_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64
_KEY_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_KEY_FILE: Final = re.compile(r"([0-9a-f]{32})\.json", re.ASCII)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of an operator's key."""

    public: bytes

    @property
    def key_id(self) -> str:
        """The name of this key and of no other."""
        return hashlib.sha256(self.public).hexdigest()[:32]

    def verifies(self, message: bytes, signature: str) -> bool:
        """Whether this key made that signature (base64) of exactly this message."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - costs a start
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - as above
            Ed25519PublicKey,
        )

        raw = _from_base64(signature, _SIGNATURE_BYTES)
        if raw is None:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(raw, message)
        except (InvalidSignature, ValueError):
            return False
        return True


Keys = Mapping[str, PublicKey]
"""Keys by their ids."""


def is_key_id(text: str) -> bool:
    """Whether a key can have that id."""
    return _KEY_ID.fullmatch(text) is not None


def sign_bytes(key: SigningKey, message: bytes) -> str:
    """The signature of a message, in base64."""
    return base64.b64encode(key.sign(message)).decode("ascii")


def public_half(key: SigningKey) -> PublicKey:
    """What goes into a plane."""
    return PublicKey(key.verifier.public)


def parse_public_key(text: str) -> PublicKey | None:
    """The key that this base64 is; None where it is none."""
    raw = _from_base64(text, _PUBLIC_BYTES)
    return None if raw is None else PublicKey(raw)


def find_operator_key(environment: Environment) -> SigningKey | None:
    """The user's operator key, or None where there is none yet.

    Raises:
        ConfigError: others can read it, or it is no key.
    """
    path = operator_key_path(environment)
    return load_key(str(path)) if os.path.lexists(path) else None


def make_operator_key(environment: Environment) -> SigningKey:
    """The user's operator key, made on first use, mode 0600.

    Raises: ConfigError (it cannot be used), HostError (it cannot be stored).
    """
    path = operator_key_path(environment)
    make_directories(path.parent)
    require_private(path.parent)
    if not os.path.lexists(path):
        try:
            create_key(str(path), _KEY_NAME, os.urandom)
        except HostError:
            # Another process made it just now, or it cannot be made: loading tells.
            if not os.path.lexists(path):
                raise
    return load_key(str(path))


def enrol_key(layout: PlaneLayout, key: PublicKey) -> bool:
    """Put a public key into the plane: from now on it may approve. Whether it was new.

    Raises: ConfigError (something else stands there), HostError.
    """
    path = key_path(layout, key)
    make_directories(path.parent)
    if create_file(path, key_bytes(key), FILE_MODE):
        return True
    _read_key(path, key.key_id)
    return False


def key_path(layout: PlaneLayout, key: PublicKey) -> Path:
    """Where a public key stands in a plane."""
    return _directory(layout) / f"{key.key_id}.json"


def key_bytes(key: PublicKey) -> bytes:
    """What stands there."""
    return write_object(
        {
            "key_id": key.key_id,
            "algorithm": ALGORITHM,
            "public_key": base64.b64encode(key.public).decode("ascii"),
        }
    )


def read_keys(layout: PlaneLayout) -> Keys:
    """The keys that may approve changes of this plane.

    Raises:
        ConfigError: something in their directory is no key, or others can write there.
    """
    directory = _directory(layout)
    require_private(directory)
    if not directory.is_dir():
        return {}
    found: dict[str, PublicKey] = {}
    with host_errors("listing", directory):
        names = sorted(name for name in os.listdir(directory) if not is_temporary_name(name))
    for name in names:
        matched = _KEY_FILE.fullmatch(name)
        if matched is None:
            raise ConfigError(
                f"{quote(name)} is not the name of a key", where=str(directory), hint="remove it"
            )
        found[matched[1]] = _read_key(directory / name, matched[1])
    return found


def _read_key(path: Path, key_id: str) -> PublicKey:
    content = read_file(path, limits.key_file_bytes_max)
    fields = parse_object(content or b"", str(path))
    fields.require_only(frozenset({"key_id", "algorithm", "public_key"}))
    key = parse_public_key(fields.text("public_key"))
    if fields.text("algorithm") != ALGORITHM or key is None:
        raise ConfigError(f"{quote(str(path))} holds no Ed25519 key", where=str(path))
    if not key.key_id == fields.text("key_id") == key_id:
        raise ConfigError(
            f"{quote(str(path))} holds the key {key.key_id}, and is named after another",
            where=str(path),
            hint="remove it, or give it its own name",
        )
    return key


def _directory(layout: PlaneLayout) -> Path:
    return layout.registries / "keys"


def _from_base64(text: str, size_bytes: int) -> bytes | None:
    try:
        raw = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    # One text for one value: base64 has spare bits.
    is_one = base64.b64encode(raw).decode("ascii") == text
    return raw if len(raw) == size_bytes and is_one else None
