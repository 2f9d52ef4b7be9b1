"""Two ways to open a name under a descriptor without passing a link; they are interchangeable.

`Openat2Resolution` lets the kernel do it in one call. `WalkResolution` opens one component
after the other, each with O_NOFOLLOW under the descriptor of the one before, for kernels
and containers that have no openat2. Neither compares texts, and neither looks first and
opens later: the descriptor that a check was made on is the descriptor that is used.

Rules kept here, by both:
  * `relative` is canonical (no `..`, not absolute); anything else is refused;
  * no component may be a link, the last one included: `OSError(ELOOP)`;
  * every descriptor is close-on-exec.

A path with links is first taken apart by `links`, which yields one without; what was
judged is then opened here, and a link that appeared meanwhile fails.
"""

import errno
import os
import stat
from typing import Final, Protocol

from paddock import limits
from paddock.kernel.files import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    OpenHow,
)

# macOS has no O_PATH: there a directory must be readable to be passed through.
O_PATH: Final[int] = getattr(os, "O_PATH", os.O_RDONLY)
PASS: Final = O_PATH | os.O_CLOEXEC
"""To hold something without reading it."""
PASS_DIRECTORY: Final = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
READ_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer. O_NOCTTY: a terminal must not
# become ours.
READ_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# EAGAIN: the kernel saw a rename or mount during its walk and cannot vouch for it.
# EINTR: a slow file system was interrupted; os.open repeats by itself, ctypes does not.
_AGAIN: Final = frozenset({errno.EAGAIN, errno.EINTR})
_RESOLVE: Final = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS


class Resolution(Protocol):
    """How a canonical name becomes a descriptor."""

    @property
    def name(self) -> str:
        """`openat2` or `walk`, for reports."""
        ...

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        """A new descriptor of `relative` under `root_fd`, no link passed. Creates nothing.

        Raises:
            OSError: ELOOP where a component is a link, EXDEV where the name is
                not canonical, else the errno of open(2).
        """
        ...


class Openat2Resolution:
    """The kernel's own walk: openat2(2) with BENEATH, NO_MAGICLINKS and NO_SYMLINKS."""

    __slots__ = ("_hows",)

    name = "openat2"

    def __init__(self) -> None:
        # One laid-out argument for each set of flags; there are only four.
        self._hows: dict[int, OpenHow] = {}

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        how = self._hows.get(flags)
        if how is None:
            how = self._hows[flags] = OpenHow(flags, _RESOLVE)
        path = relative.encode("utf-8", "surrogateescape")
        try:
            return how.open(root_fd, path)
        except OSError as failure:
            if failure.errno not in _AGAIN:
                raise
        return self._open_again(how, root_fd, path)

    @staticmethod
    def _open_again(how: OpenHow, root_fd: int, path: bytes) -> int:
        for _ in range(limits.openat2_retries_max - 1):
            try:
                return how.open(root_fd, path)
            except OSError as failure:
                if failure.errno not in _AGAIN:
                    raise
        return how.open(root_fd, path)


class WalkResolution:
    """Our own walk: one openat(2) a component, each with O_NOFOLLOW."""

    __slots__ = ()

    name = "walk"

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        if relative == ".":
            return os.open(".", flags, dir_fd=root_fd)
        parts = relative.split("/")
        # Threat: `..` is no link, so O_NOFOLLOW would let it climb out of the root.
        if not all(parts) or ".." in parts or "." in parts:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        held = root_fd
        try:
            for part in parts[:-1]:
                below = _open_component(part, PASS_DIRECTORY, held)
                if held != root_fd:
                    os.close(held)
                held = below
            return _open_component(parts[-1], flags, held)
        finally:
            if held != root_fd:
                os.close(held)


def _open_component(name: str, flags: int, dir_fd: int) -> int:
    """Open one component, and answer ELOOP for a link as openat2 does."""
    try:
        fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=dir_fd)
    except NotADirectoryError:
        # O_DIRECTORY is looked at before O_NOFOLLOW, so a link answers ENOTDIR here.
        # The look only chooses the error: nothing is opened because of it.
        if stat.S_ISLNK(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
    # O_PATH with O_NOFOLLOW opens the link itself instead of failing.
    if flags & O_PATH and not flags & os.O_DIRECTORY and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return fd


def detect_resolution() -> Resolution:
    """The better way that works here: openat2 where the kernel lets us, else the walk.

    ENOSYS: a kernel before 5.6, or not Linux. EPERM: a container's filter that does not
    know the call. Anything else is an answer, so the call is there.
    """
    slash = os.open("/", PASS_DIRECTORY)
    try:
        os.close(OpenHow(PASS_DIRECTORY, _RESOLVE).open(slash, b"."))
    except OSError as failure:
        if failure.errno in (errno.ENOSYS, errno.EPERM):
            return WalkResolution()
        raise
    finally:
        os.close(slash)
    return Openat2Resolution()
