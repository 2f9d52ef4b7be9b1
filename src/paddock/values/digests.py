"""Digests as text, the same wherever one stands: `sha256:` and 64 hexadecimal digits."""

import json
from hashlib import sha256
from typing import Final

from paddock.values.calls import Json

DIGEST_PREFIX: Final = "sha256:"


def digest_of(*pieces: bytes | memoryview) -> str:
    """The digest of these bytes, one piece after the other."""
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return DIGEST_PREFIX + digest.hexdigest()


def digest_of_json(value: Json) -> str:
    """The digest of a value's one form: ASCII, members by name, no white space.

    Raises: TypeError, ValueError: it is no JSON value.
    """
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return digest_of(text.encode("ascii"))
