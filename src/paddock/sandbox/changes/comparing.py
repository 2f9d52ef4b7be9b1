"""What a layer has beside what the workspace has, under one name."""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass, field
from typing import Final

from paddock.values.digests import DIGEST_PREFIX
from paddock.workspace.resolution import PASS, READ_FILE, Resolution, detect_resolution

_ORIGIN: Final = "user.overlay.origin"
"""On what the overlay copied up: which file it was. What a command made has none."""
_CHUNK_BYTES: Final = 1 << 20
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES})
_NO_MARK: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT, errno.EPERM})


@dataclass(frozen=True, slots=True)
class Comparing:
    """Both by the descriptors of their roots; nothing is followed."""

    upper_fd: int
    lower_fd: int
    resolution: Resolution = field(default_factory=detect_resolution)

    def common_version(self, path: str) -> str | None:
        """The version of a file that is the same in both; None where it differs.

        What its mode keeps even us from reading differs. Raises: OSError.
        """
        try:
            upper = self.resolution.open(self.upper_fd, path, READ_FILE)
        except PermissionError:
            return None
        try:
            lower = self.resolution.open(self.lower_fd, path, READ_FILE)
        except OSError:
            os.close(upper)
            return None
        try:
            return _common_version(upper, lower)
        finally:
            os.close(upper)
            os.close(lower)

    def is_upper(self, path: str, content: bytes) -> bool:
        """Whether the layer's file has just this content. Raises: OSError."""
        return self._has(self.upper_fd, path, content)

    def is_lower(self, path: str, content: bytes) -> bool:
        """Whether the workspace's file has just this content. Raises: OSError."""
        return self._has(self.lower_fd, path, content)

    def _has(self, root_fd: int, path: str, content: bytes) -> bool:
        try:
            fd = self.resolution.open(root_fd, path, READ_FILE)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise
        try:
            if os.fstat(fd).st_size != len(content):
                return False
            with open(fd, "rb", closefd=False) as file:
                return file.read(len(content) + 1) == content
        finally:
            os.close(fd)

    def link_text(self, path: str) -> str | None:
        parent, _, name = path.rpartition("/")
        try:
            fd = self.resolution.open(self.lower_fd, parent or ".", PASS)
        except OSError:
            return None
        try:
            return os.readlink(name, dir_fd=fd)
        except OSError:
            return None
        finally:
            os.close(fd)

    def is_copy(self, path: str) -> bool:
        """Whether what the layer has was in the workspace when the command touched it."""
        try:
            os.getxattr(f"/proc/self/fd/{self.upper_fd}/{path}", _ORIGIN, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_MARK:
                return False
            raise
        return True

    def directory_changed_ns(self, path: str) -> int | None:
        try:
            fd = self.resolution.open(self.lower_fd, path or ".", PASS)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return found.st_ctime_ns if stat.S_ISDIR(found.st_mode) else None


def _common_version(one: int, other: int) -> str | None:
    digest = hashlib.sha256()
    offset = 0
    while True:
        chunk = os.pread(one, _CHUNK_BYTES, offset)
        if chunk != os.pread(other, _CHUNK_BYTES, offset):
            return None
        if not chunk:
            return DIGEST_PREFIX + digest.hexdigest()
        digest.update(chunk)
        offset += len(chunk)
