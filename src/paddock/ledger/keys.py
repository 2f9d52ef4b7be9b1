"""The ledger's own Ed25519 key. The private half never lies inside a plane.

It is one line of text, the signer key of C2SP signed-note's reference tools:
`PRIVATE+KEY+name+hash+base64(0x01 ‖ seed)`. Its public half stands in GENESIS.
"""

import os
import stat
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.errors import ConfigError, HostError
from paddock.ledger.format.genesis import ALGORITHM_ED25519, VerifierKey, is_key_name
from paddock.storage.atomic import FILE_MODE, create_file

_PREFIX: Final = "PRIVATE+KEY+"
_SEED_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 1024


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """Both halves of a key. Its text form never shows the seed."""

    verifier: VerifierKey
    seed: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.verifier})"

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of an Ed25519 signature (RFC 8032)."""
        # Imported here: it costs more than opening a ledger, and few calls sign.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - only where needed
            Ed25519PrivateKey,
        )

        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)


def make_key(name: str, seed: bytes) -> SigningKey:
    """Return the key that a name and 32 random bytes make.

    Raises:
        ConfigError: the name cannot stand in a key text.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - only where needed
        Ed25519PrivateKey,
    )

    if not is_key_name(name):
        raise ConfigError(f"not a name for a key: {name!a}", hint="printable, no space, no +")
    public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    return SigningKey(VerifierKey(name, public), seed)


def create_key(path: str, name: str, randomness: Callable[[int], bytes]) -> SigningKey:
    """Make a key and store it, mode 0600, as `plane.files.create_file` does; what exists stays.

    `path` is the caller's to choose, outside every plane: whoever can read it
    can sign as this ledger.

    Raises:
        HostError: something stands there already, or it cannot be written.
        ConfigError: the name cannot stand in a key text.
    """
    key = make_key(name, randomness(_SEED_BYTES))
    encoded = b64encode(ALGORITHM_ED25519 + key.seed).decode()
    text = f"{_PREFIX}{name}+{key.verifier.key_id.hex()}+{encoded}\n"
    if not create_file(Path(path), text.encode(), FILE_MODE):
        raise HostError("a key stands there already", where=ascii(path))
    return key


def load_key(path: str, *, if_missing: str = "") -> SigningKey:
    """Return a stored key.

    Raises:
        ConfigError: others can read it, or it is no key.
        HostError: it cannot be read; `if_missing` is its hint where there is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            text = os.read(descriptor, _FILE_BYTES_MAX).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError as fault:
        hint = if_missing if isinstance(fault, FileNotFoundError) else ""
        raise HostError(
            f"the key cannot be read: {fault.strerror}", where=ascii(path), hint=hint
        ) from fault
    # Threat: a key that others may read, or have put there, signs for them too.
    if status.st_mode & 0o077 or status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        raise ConfigError(
            "a private key must be a file that only its owner can read",
            where=ascii(path),
            hint="chmod 600, and make a new key if others could read this one",
        )
    return _parse_key(text, path)


def _parse_key(text: str, path: str) -> SigningKey:
    name, _, rest = text.removeprefix(_PREFIX).removesuffix("\n").partition("+")
    key_id, _, encoded = rest.partition("+")
    try:
        decoded = a2b_base64(encoded, strict_mode=True)
    except (Base64Error, ValueError):
        decoded = b""
    if (
        text.startswith(_PREFIX)
        and is_key_name(name)
        and len(decoded) == 1 + _SEED_BYTES
        and decoded[:1] == ALGORITHM_ED25519
    ):
        key = make_key(name, decoded[1:])
        if key.verifier.key_id.hex() == key_id:
            return key
    raise ConfigError("not an Ed25519 key of a ledger", where=ascii(path))
