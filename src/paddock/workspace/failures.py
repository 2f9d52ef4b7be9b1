"""Convert an `OSError` to an exception of `paddock.errors` that names no host path.

A ToolError is something a model can act on; a failing disk or exhausted descriptors are a
HostError.
"""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

from paddock import errors, limits
from paddock.workspace.paths import WorkspacePath

NOT_FOUND_HINT: Final = "paths start at the workspace root; view . to list it"
NOT_A_FILE_HINT: Final = "name a file in it, or another path"
_SPECIAL_HINT: Final = "only files, directories and links can be used; use another path"
_CLOSED_HINT: Final = "ask for its permissions to be changed, or use another path"
_ODD_NAME: Final = "use another name"
READING_ACTS: Final = frozenset({"read", "list", "resolve", "inspect"})
_Message: TypeAlias = tuple[type[errors.PaddockError], str, str]
_NOT_READABLE: Final[_Message] = (errors.PathError, "not readable by this user", _CLOSED_HINT)
_NOT_WRITABLE: Final = (errors.ReadOnlyPathError, "not writable by this user", _CLOSED_HINT)
_PLAIN_FAILURES: Final[dict[int, _Message]] = {
    errno.ENOENT: (errors.PathNotFoundError, "no such file or directory", NOT_FOUND_HINT),
    errno.ENOTDIR: (errors.PathNotADirectoryError, "not a directory", "view its parent"),
    errno.EISDIR: (errors.PathNotAFileError, "is a directory", NOT_A_FILE_HINT),
    errno.EEXIST: (errors.PathExistsError, "already exists", "use another path"),
    errno.ENOTEMPTY: (errors.DirectoryNotEmptyError, "not empty", "empty it first"),
    errno.ENAMETOOLONG: (errors.InvalidPathError, "the name is too long", "use a shorter name"),
    errno.EILSEQ: (errors.InvalidPathError, "the file system refuses this name", _ODD_NAME),
    errno.EINVAL: (errors.InvalidPathError, "the file system refuses this name", _ODD_NAME),
    errno.ENXIO: (errors.SpecialFileError, "is a FIFO, socket or device", _SPECIAL_HINT),
    errno.ENODEV: (errors.SpecialFileError, "is a device", _SPECIAL_HINT),
    errno.ELOOP: (errors.FileChangedError, "a link replaced it meanwhile", "try again"),
    errno.ESTALE: (errors.FileChangedError, "it was removed while in use", "try again"),
    errno.EXDEV: (errors.PathError, "it is on another file system", "copy it, then delete it"),
    errno.ENOSPC: (errors.StorageFullError, "no space is left", "delete something, then try again"),
    errno.EDQUOT: (errors.StorageFullError, "the disk quota is used up", "delete something first"),
    errno.EFBIG: (errors.StorageFullError, "larger than this host allows", "write less"),
    errno.EMLINK: (errors.StorageFullError, "its directory is full", "use another directory"),
    errno.EROFS: (errors.ReadOnlyPathError, "the file system is read-only", "use another path"),
    errno.ETXTBSY: (errors.ReadOnlyPathError, "it is a running program", "try again later"),
    errno.EBUSY: (errors.ReadOnlyPathError, "something is mounted there", "use another path"),
}


def converted(failure: OSError, path: WorkspacePath, act: str) -> errors.PaddockError:
    code = failure.errno or 0
    if code in (errno.EACCES, errno.EPERM):
        known = _NOT_READABLE if act in READING_ACTS else _NOT_WRITABLE
    else:
        # EIO, ENOMEM, EMFILE, ENFILE and unknown codes: a model cannot do anything about them.
        known = _PLAIN_FAILURES.get(code, (errors.HostError, os.strerror(code), ""))
    kind, what, hint = known
    return kind(f"cannot {act} {path.shown}: {what}", hint=hint)


def special_file(path: WorkspacePath) -> errors.SpecialFileError:
    return errors.SpecialFileError(f"{path.shown} is a FIFO, socket or device", hint=_SPECIAL_HINT)


@contextmanager
def converting(path: WorkspacePath, act: str) -> Generator[None]:
    try:
        yield
    except OSError as failure:
        raise converted(failure, path, act) from failure


def changed(path: WorkspacePath) -> errors.FileChangedError:
    return errors.FileChangedError(
        f"another process changed {path.shown} meanwhile",
        hint="read it again, then repeat the call",
    )


def too_deep(path: WorkspacePath) -> errors.InvalidPathError:
    return errors.InvalidPathError(
        f"{path.shown} is deeper than {limits.path_depth_max} directories",
        hint="use a path with fewer directories",
    )


def conflict(paths: list[WorkspacePath]) -> errors.FileChangedError:
    unique = sorted(set(paths), key=lambda path: path.relative)
    if len(unique) == 1:
        return changed(unique[0])
    shown = [path.shown for path in unique[: limits.change_conflicts_listed_max]]
    missing = len(unique) - len(shown)
    more = f" and {missing} more" if missing else ""
    return errors.FileChangedError(
        f"another process changed {', '.join(shown)}{more} meanwhile",
        hint="nothing was changed; read them again, then repeat the call",
    )
