"""Read and write Paddock's small files by path, where no agent can move them.

Reads are bounded and never block; writes are atomic and survive a power cut.
"""

import os
import stat
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, contextmanager
from errno import EACCES, ELOOP, EMLINK, ENODEV, ENOSYS, ENXIO, EOPNOTSUPP, EPERM, EXDEV
from itertools import takewhile
from pathlib import Path
from typing import Final, TypeVar

from paddock.errors import ConfigError, HostError, PaddockError
from paddock.pattern import lazy_pattern
from paddock.text.show import quote

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
WRITABLE_BY_OTHERS: Final = 0o022

_TEMPORARY_NAME: Final = lazy_pattern(r"\.paddock-[0-9a-f]{32}\.tmp")
"""The workspace hides and sweeps such names, because `init` writes in a project's root."""
_NO_HARD_LINKS: Final = (EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EXDEV)  # link(2): vfat says EPERM
_ODD: Final = ("is not a regular file", "put a regular file there, or remove it")
_CLOSED: Final = ("may not be read", "give yourself read permission, or remove the file")
_LINK: Final = ("is a link, and links are not followed here", "replace it with a copy of the file")
_REFUSALS: Final = {ELOOP: _LINK, EACCES: _CLOSED, EPERM: _CLOSED, ENXIO: _ODD, ENODEV: _ODD}
T = TypeVar("T")


@contextmanager
def held_open(fd: int) -> Generator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def host_error(said: str, where: str = "", hint: str = "") -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise HostError(f"{said}: {error.strerror or error}", where=where, hint=hint) from error


def host_errors(act: str, path: Path) -> AbstractContextManager[None]:
    hint = "check permissions, free space and that the file system is writable"
    return host_error(f"{act} {quote(str(path))} failed", str(path), hint)


def _refused(path: Path, problem: str, hint: str) -> ConfigError:
    return ConfigError(f"{quote(str(path))} {problem}", where=str(path), hint=hint)


def _try_read(path: Path, read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in _REFUSALS:
            raise _refused(path, *_REFUSALS[error.errno]) from error
        said = f"reading {quote(str(path))} failed: {error.strerror}"
        raise HostError(said, where=str(path)) from error


def read_file(path: Path, bytes_max: int) -> bytes | None:
    # Threat: a symlink would pass off another file as this one.
    return read_file_through_links(path, bytes_max, None, os.O_NOFOLLOW)


def read_file_through_links(
    path: Path, bytes_max: int, owners: Collection[int] | None = None, more_flags: int = 0
) -> bytes | None:
    """Read a path that only the user can set; refuse a file that others than `owners` can write."""
    # Threat: without O_NONBLOCK, open(2) of a FIFO without a writer would block forever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | more_flags
    opened = _try_read(path, lambda: os.open(path, flags))
    if opened is None:
        return None
    with held_open(opened) as fd, host_errors("reading", path):
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(path, *_ODD)
        if owners is not None and (problem := _open_to_others(status, owners)):
            raise _refused(path, problem, "only you may be able to write it: chmod go-w")
        content = b""
        while len(content) <= bytes_max and (part := os.read(fd, bytes_max + 1 - len(content))):
            content += part
    if len(content) > bytes_max:
        raise _refused(path, f"has more than {bytes_max} bytes", "make it smaller")
    return content


def replace_file(
    path: Path, content: bytes, *, mode: int = FILE_MODE, look: Callable[[], object] = lambda: None
) -> None:
    # Temporary in the same directory → fsync → last check → rename → fsync of the directory.
    with host_errors("writing", path):
        temporary = _write_temporary(path.parent, content, FILE_MODE)
        try:
            if mode != FILE_MODE:
                # The user chose a mode other than the default: the umask must not reduce it.
                os.chmod(temporary, mode)
            look()
            os.rename(temporary, path)
        except (OSError, PaddockError):
            os.unlink(temporary)
            raise
        sync_directory(path.parent)


def create_file(path: Path, content: bytes, mode: int, drafts: Path | None = None) -> bool:
    """Return False if the path exists. A killed writer leaves its temporary in `drafts`."""
    # Temporary → fsync → link(2), which never replaces → unlink of the temporary → fsync of the
    # directory. So only one of several concurrent writers succeeds, and no reader sees a part.
    with host_errors("writing", path):
        temporary = _write_temporary(path.parent if drafts is None else drafts, content, mode)
        try:
            try:
                os.link(temporary, path, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
                # Also exclusive without hard links, but a crash may leave a partial file.
                _write_new(path, content, mode)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        sync_directory(path.parent)
        return True


def is_temporary_name(name: str) -> bool:
    return _TEMPORARY_NAME.fullmatch(name) is not None


def _write_temporary(directory: Path, content: bytes, mode: int) -> Path:
    temporary = directory / f".paddock-{os.urandom(16).hex()}.tmp"
    _write_new(temporary, content, mode)
    return temporary


def _write_new(path: Path, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with held_open(os.open(path, flags, mode)) as fd:
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        except OSError:
            os.unlink(path)
            raise


def make_directories(path: Path) -> None:
    with host_errors("creating", path):
        missing = [path, *takewhile(lambda each: not each.exists(), path.parents)]
        for directory in reversed(missing):
            try:
                os.mkdir(directory, DIRECTORY_MODE)
            except FileExistsError:
                if not directory.is_dir():
                    raise
            else:
                sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    with held_open(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        os.fsync(descriptor)


def require_private(directory: Path, variable: str = "PADDOCK_HOME") -> None:
    # Threat: anyone who can write here can act for the user: trust a policy, declare an agent,
    # swap a ledger.
    status = _try_read(directory, lambda: os.lstat(directory))
    if status is None:
        return
    problem = "is not a directory"
    if stat.S_ISDIR(status.st_mode):
        problem = _open_to_others(status, trusted_owners(directory))
    if problem:
        hint = f"only you may be able to write there: chmod go-w, or choose another {variable}"
        raise _refused(directory, problem, hint)


def require_own_link(path: Path) -> None:
    # Threat: another user's symlink can lead to the user's unrelated files.
    status = _try_read(path, lambda: os.lstat(path))
    if status is None or not stat.S_ISLNK(status.st_mode):
        return
    if status.st_uid not in trusted_owners(path):
        problem = f"is a link that belongs to user {status.st_uid}"
        raise _refused(path, problem, "remove it, and create your own")


def _open_to_others(status: os.stat_result, owners: Collection[int]) -> str:
    if status.st_uid not in owners:
        return f"belongs to user {status.st_uid}"
    if status.st_mode & WRITABLE_BY_OTHERS:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def trusted_owners(directory: Path) -> frozenset[int]:
    """Return the user and root; for root also the parent's owner, for a mounted home directory."""
    owners = {os.geteuid(), 0}
    if os.geteuid() == 0:
        with host_errors("checking", directory.parent):
            owners.add(os.lstat(directory.parent).st_uid)
    return frozenset(owners)
