"""Digests of files, as manifests hold them: `sha256:` and 64 hexadecimal digits."""

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from paddock.errors import ConfigError
from paddock.plane.files import host_errors
from paddock.text.show import quote
from paddock.values.digests import DIGEST_PREFIX

_CHUNK_BYTES: Final = 1 << 20
# Never waits for a FIFO's writer, and never passes a link in the last place.
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def compute_sha256(path: Path) -> str:
    """The digest of a regular file's bytes, read in pieces; no link is followed.

    Raises:
        ConfigError: it is no regular file.
        HostError: it cannot be read, or is not there.
    """
    with host_errors("reading", path):
        descriptor = os.open(path, _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{quote(str(path))} is not a regular file", where=str(path))
            found = hashlib.sha256()
            while piece := os.read(descriptor, _CHUNK_BYTES):
                found.update(piece)
        finally:
            os.close(descriptor)
    return DIGEST_PREFIX + found.hexdigest()
