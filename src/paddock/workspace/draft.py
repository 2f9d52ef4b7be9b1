"""New content on its way to a name: whole and on the device before anyone can see it.

Durability, step by step (open(2), rename(2), fsync(2)):

  new file     unnamed file → owner, mode, attributes → write → fsync → link to its name
               → fsync of the directory
  replacement  the same → keep the old content (`storage.history`) → link to a temporary
               name → exchange with the old file → look at what came out → fsync of the
               directory → unlink what came out

The old content is kept before the exchange and not after it, so that no moment is left in
which it has no name but a temporary one. What comes out must be what was kept.

link(2) never replaces, so a file that appeared meanwhile is not lost. The exchange shows
what was really replaced; if that is not the file that was read, it is exchanged back.
Where a file system lacks O_TMPFILE the draft has a temporary name from the beginning;
where it lacks the exchange, the last look comes just before the rename.

If the directory cannot be synced the step before is undone, so that failure leaves the
old content.

Also here:

- Paddock's temporary names: how they look, and how none outlives a killed process.
- Locks on directories of a workspace: two calls on one path come one after the other.
"""

import errno
import fcntl
import os
import resource
import secrets
from contextlib import ExitStack
from typing import Final, Self

from msgspec import Struct, field

from paddock import limits
from paddock.errors import FileChangedError, PaddockError, PathError, StorageFullError
from paddock.storage.disk import Disk
from paddock.storage.history import Keeper, Kept
from paddock.storage.locks import Identity, identity_of, unlock, wait_for_lock
from paddock.text.show import quote
from paddock.workspace.metadata import FileStatus, status_at, status_of
from paddock.workspace.paths import (
    OF_SET,
    ROOT,
    TEMPORARY_PREFIX,
    WorkspacePath,
    is_temporary_name,
    unchecked_path,
)
from paddock.workspace.resolve import PASS_DIRECTORY, READ_DIRECTORY, Resolution

# flock(2) on a descriptor of the parent directory itself: no lock file, so two planes on
# one tree, or a thread and another process, exclude each other without knowing of each
# other. Each lock opens the directory anew, because flock belongs to the open file and a
# shared descriptor would let every thread in.
#
# Rules kept here:
#   * the wait is bounded by limits.path_lock_timeout_s, and does not spin;
#   * once locked, the name must still lead to the locked directory, else it is opened
#     again: a lock on a directory that was moved away protects nothing;
#   * several locks are taken in the order of (device, inode), so that two moves never
#     wait for each other;
#   * a lock is given up by LOCK_UN before the descriptor is closed: a child forked
#     meanwhile holds a copy of it, and would keep the lock for as long as it lives.

_REOPENS_MAX: Final = 64
_CHECKED_FROM: Final = 64
"""So few directories are not worth the look."""
_SPARE: Final = 64
"""Descriptors for the work in the directories: drafts, walks, the store, the journal."""
_USED_AT_MOST: Final = 128
"""Where the system does not tell what is open."""


def lock_directory(fd: int, path: WorkspacePath, wait_s: float) -> None:
    """Wait for the exclusive lock, at most `wait_s`.

    Raises:
        PathError: the time is over.
    """
    if not wait_for_lock(fd, fcntl.LOCK_EX, wait_s):
        raise PathError(
            f"directory {quote(path.relative)} is locked by another write, for over {wait_s:g} s",
            hint="try again",
        )


def _require_descriptors(wanted: int) -> None:
    """Refuse what would leave no descriptor for the work itself: before anything changes.

    A lock lasts as long as its descriptor, so none of them can be closed and opened again.

    Raises:
        StorageFullError: this process may not open so many files at once.
    """
    if wanted <= _CHECKED_FROM:
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:
        used = _USED_AT_MOST
    room = max(0, most - used - _SPARE)
    if wanted > room:
        raise StorageFullError(
            f"{wanted} directories are changed at once, and this process may open {room} more",
            hint="nothing was changed; change less at once, or raise the limit of open files "
            "(ulimit -n)",
        )


class LockedDirectories:
    """Descriptors of directories, held and locked, in the order they were asked for.

    A directory named twice is locked once and its descriptor shared.
    """

    __slots__ = ("_fds", "_paths", "_resolution", "_root_fd", "_wait_s")

    def __init__(
        self,
        root_fd: int,
        resolution: Resolution,
        *paths: WorkspacePath,
        wait_s: float = limits.path_lock_timeout_s,
    ) -> None:
        self._wait_s = wait_s
        self._root_fd = root_fd
        self._resolution = resolution
        self._paths = paths
        self._fds: dict[Identity, int] = {}

    def __enter__(self) -> tuple[int, ...]:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> tuple[int, ...]:
        """Open and lock all of them; `release` gives them up again.

        Raises:
            PathError: a lock is not free in time.
            StorageFullError: this process may not open so many.
            FileChangedError: a directory is replaced faster than it can be locked.
            OSError: one of them cannot be opened.
        """
        _require_descriptors(len(self._paths))
        for _ in range(_REOPENS_MAX):
            found = self._lock_all()
            if all(map(self._still_there, self._paths, found)):
                return tuple(self._fds[identity] for identity in found)
            self.release()
        raise FileChangedError(
            f"directory {quote(self._paths[0].relative)} keeps being replaced",
            hint="try again when nobody else changes it",
        )

    def _lock_all(self) -> list[Identity]:
        found: list[Identity] = []
        try:
            for path in self._paths:
                fd = self._resolution.open(self._root_fd, path.relative, READ_DIRECTORY)
                identity = identity_of(fd)
                found.append(identity)
                if identity in self._fds:
                    os.close(fd)
                else:
                    self._fds[identity] = fd
            for identity in sorted(self._fds):
                lock_directory(self._fds[identity], self._paths[0], self._wait_s)
        except BaseException:
            self.release()
            raise
        return found

    def _still_there(self, path: WorkspacePath, identity: Identity) -> bool:
        try:
            fd = self._resolution.open(self._root_fd, path.relative, PASS_DIRECTORY)
        except OSError:
            return False  # opened again, and then it says what is wrong
        try:
            return identity_of(fd) == identity
        finally:
            os.close(fd)

    def release(self) -> None:
        """Give all of them up; a second time does nothing."""
        while self._fds:
            unlock(self._fds.popitem()[1])


# A new file needs no temporary name where the file system has O_TMPFILE: it is written
# without a name and linked to its place. Replacing a file does need one, for no call links
# over an existing name; so does deleting, which moves the entry aside to see that it is
# the one that was judged. Such a name stands in the directory of the file, because only
# there inherited group, default ACL and file system are right.
#
# A process can be killed while the name stands. Finding it again must not cost a walk of
# the tree, so the intention is recorded first where the next open looks: a symbolic link
# in the root, named like the temporary, whose text is the directory. One call makes such a
# record whole and one removes it; there is no journal that could tear, and no place
# outside the workspace is needed. `sweep` then reads one directory, the root. A name in
# the root itself needs no record.
#
#     lock directory → record → name the temporary → exchange or move → unlink → drop record
#
# Names and records live only while the lock of the temporary's directory is held. So
# whoever holds that lock and saw the record before knows that its writer is dead.
#
# A set of changes has names of its own, which the sweep leaves alone: they may hold what
# its journal still needs, so the journal's recovery is what removes them.
#
# What stays: where the root directory itself may not be written there is no record, and a
# temporary of a killed process remains there, hidden from every tool.

_NAMED: Final = ".tmp"
_RECORD: Final = ".at"
_UNWRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP})
_SWEEP_WAIT_S: Final = 2.0
"""Longer than a write holds a lock; an open does not wait for a stuck writer."""


def _is_swept(name: str) -> bool:
    # Threat: what stands under a set's name may be the only copy of an old version.
    return is_temporary_name(name) and not name.lower().endswith(OF_SET)


class TemporaryName:
    """A name in a locked directory, recorded for as long as anything may stand there.

    Whatever stands there at the end is removed, so the block decides by what it leaves:
    a draft that was not used, an old version, a deleted entry.
    """

    __slots__ = ("_dir_fd", "_directory", "_disk", "_record", "_root_fd", "_token")

    def __init__(self, disk: Disk, root_fd: int, directory: WorkspacePath, dir_fd: int) -> None:
        self._disk = disk
        self._root_fd = root_fd
        self._directory = directory
        self._dir_fd = dir_fd
        # Threat: a name that can be guessed is a file that can be planted. 128 random bits.
        self._token = secrets.token_hex(16)
        self._record: str | None = None

    def __enter__(self) -> str:
        """Record the name and return it; nothing stands there yet."""
        if not self._directory.is_root:
            record = TEMPORARY_PREFIX + self._token + _RECORD
            try:
                self._disk.make_link(self._root_fd, record, self._directory.relative)
                self._record = record
            except OSError as failure:
                if failure.errno not in _UNWRITABLE:
                    _removed(self._disk, self._root_fd, record)
                    raise
        return TEMPORARY_PREFIX + self._token + _NAMED

    def __exit__(self, *_: object) -> None:
        # Before the lock is given up. If the name cannot be removed the record stays, and
        # the next open tries again; the write itself is over and keeps its outcome.
        name = TEMPORARY_PREFIX + self._token + _NAMED
        if _removed(self._disk, self._dir_fd, name) and self._record:
            _removed(self._disk, self._root_fd, self._record)


def _removed(disk: Disk, dir_fd: int, name: str) -> bool:
    try:
        disk.unlink(dir_fd, name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep(root_fd: int, resolution: Resolution, disk: Disk) -> int:
    """Remove what killed processes left, and return how many temporaries that were.

    Waits for no stuck writer, and leaves what this user may not remove: opening a
    workspace never fails because of either.
    """
    return sum(
        _sweep_one(root_fd, resolution, disk, name, directory)
        for name, directory in _left_behind(root_fd)
    )


def _left_behind(root_fd: int) -> list[tuple[str, WorkspacePath]]:
    # The root's descriptor is O_PATH, which cannot be read: open it once more.
    try:
        fd = os.open(".", READ_DIRECTORY, dir_fd=root_fd)
    except PermissionError:
        return []
    try:
        names = [name for name in os.listdir(fd) if _is_swept(name)]
        return [(name, _directory_of(fd, name)) for name in sorted(names)]
    finally:
        os.close(fd)


def _directory_of(root_fd: int, name: str) -> WorkspacePath:
    if not name.endswith(_RECORD):
        return ROOT
    try:
        text = os.readlink(name, dir_fd=root_fd)
    except OSError:
        return ROOT
    # Threat: anyone who may write the root can plant a record. It is opened like any other
    # path, without links and beneath the root, and removes nothing but a name of ours.
    parts = text.split("/")
    return ROOT if not all(parts) or ".." in parts else unchecked_path(text)


def _sweep_one(
    root_fd: int, resolution: Resolution, disk: Disk, name: str, directory: WorkspacePath
) -> int:
    is_record = name.endswith(_RECORD)
    temporary = name.removesuffix(_RECORD) + _NAMED if is_record else name
    found = 0
    try:
        with LockedDirectories(root_fd, resolution, directory, wait_s=_SWEEP_WAIT_S) as (fd,):
            found = int(_stands(fd, temporary))
            if not _removed(disk, fd, temporary):
                return 0
    except (PermissionError, PaddockError):
        return 0  # not ours to remove, or its writer lives: the record stays
    except OSError:
        # The directory is gone or became a link, and its temporary cannot be found again.
        found = 0
    if is_record:
        _removed(disk, root_fd, name)
    return found


def _stands(dir_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


_NEW_FILE_MODE: Final = 0o666
"""Less the umask, or as the directory's default ACL says."""
_PRIVATE_MODE: Final = 0o600
_EXCHANGES_MAX: Final = 64


class DraftPlace(Struct, frozen=True):
    """A name in a directory that is open and locked."""

    disk: Disk
    root_fd: int
    directory: WorkspacePath
    dir_fd: int
    path: WorkspacePath
    keeper: Keeper
    """Who keeps what is replaced here."""

    @property
    def name(self) -> str:
        return self.path.name

    def status(self) -> FileStatus | None:
        """What stands there now; a link is a link."""
        return status_at(self.dir_fd, self.name)

    def temporary(self) -> TemporaryName:
        return TemporaryName(self.disk, self.root_fd, self.directory, self.dir_fd)


def changed(path: WorkspacePath) -> FileChangedError:
    """The refusal when somebody else was at the path between look and act."""
    return FileChangedError(
        f"{quote(path.relative)} was changed by somebody else meanwhile",
        hint="read it again, then repeat the call",
    )


class Draft(Struct):
    """A file that nobody sees yet. Leaving the context without placing it leaves nothing."""

    place: DraftPlace
    mode: int
    fd: int = -1
    _name: str | None = None
    _held: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of_new_file(cls, place: DraftPlace) -> Self:
        return cls(place, _NEW_FILE_MODE)

    @classmethod
    def of_replacement(cls, place: DraftPlace) -> Self:
        """A draft that nobody may read until it has the old file's permissions."""
        return cls(place, _PRIVATE_MODE)

    def __enter__(self) -> Self:
        place = self.place
        fd = place.disk.open_unnamed(place.dir_fd, self.mode)
        if fd is None:
            with ExitStack() as held:
                self._name = held.enter_context(place.temporary())
                fd = place.disk.create(place.dir_fd, self._name, self.mode)
                self._held = held.pop_all()
        self.fd = fd
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        self._held.close()

    def fill(self, *pieces: bytes | memoryview) -> None:
        """Write them one after the other, all of them, and wait for the device."""
        for piece in pieces:
            self.place.disk.write(self.fd, piece)
        self.place.disk.sync(self.fd)

    def place_new(self, kept: Kept) -> None:
        """Let it appear under its name; `kept` holds the note of it.

        Raises:
            FileExistsError: something has the name; it is left as it is.
            OSError: the disk fails; the name is free again.
        """
        disk, dir_fd, name = self.place.disk, self.place.dir_fd, self.place.name
        try:
            if self._name is None:
                disk.link_open(self.fd, dir_fd, name)
            else:
                disk.move_new(dir_fd, self._name, dir_fd, name)
            disk.sync(dir_fd)
        except BaseException:
            # Also if placing it failed: a file system across a network may have done it.
            if self._stands_at(name):
                disk.unlink(dir_fd, name)
            kept.release()
            raise
        kept.settle()

    def replace(self, old: FileStatus, kept: Kept) -> None:
        """Take the place of `old`, whose content is `kept`.

        Raises:
            FileChangedError: what stands there is not `old` any more; it is left or put back.
            OSError: the disk fails; the old file stands.
        """
        try:
            if self._name is not None:
                self._exchange(self._name, old, kept)
                return
            with self.place.temporary() as name:
                self.place.disk.link_open(self.fd, self.place.dir_fd, name)
                self._exchange(name, old, kept)
        except BaseException:
            kept.release()
            raise

    def _exchange(self, name: str, old: FileStatus, kept: Kept) -> None:
        disk, dir_fd = self.place.disk, self.place.dir_fd
        require_untouched(self.place, old, kept)
        try:
            if not disk.exchange(dir_fd, name, self.place.name):
                disk.replace(dir_fd, name, dir_fd, self.place.name)
                disk.sync(dir_fd)
                kept.settle()
                return
            displaced = status_at(dir_fd, name)
            # Threat: the name was swapped for a link, or rewritten, since it was read.
            if displaced is None or displaced.content_mark != old.content_mark:
                raise changed(self.place.path)
            disk.sync(dir_fd)
            # Last: nothing may fail once the displaced file belongs to the history.
            kept.settle()
        except BaseException as failure:
            # Also if exchanging failed: a file system across a network may have done it.
            if status_at(dir_fd, name) is not None and not self._stands_at(name):
                self._put_back(name)
            if isinstance(failure, FileNotFoundError):
                raise changed(self.place.path) from failure
            raise

    def _stands_at(self, name: str) -> bool:
        """Whether this draft is what that name in its directory leads to."""
        now = status_at(self.place.dir_fd, name)
        return now is not None and _same_inode(now, status_of(self.fd))

    def _put_back(self, name: str) -> None:
        """Return what the exchange displaced to its place, without losing anything newer.

        Each exchange shows what was taken away. If it is what was put there last, all is
        as if we had not been; else somebody was quicker, and theirs is the newer one.
        """
        dir_fd = self.place.dir_fd
        last = status_of(self.fd)
        for _ in range(_EXCHANGES_MAX):
            returned = status_at(dir_fd, name)
            try:
                self.place.disk.exchange(dir_fd, name, self.place.name)
            except FileNotFoundError:
                return  # somebody removed the name: what we held was theirs to remove
            taken = status_at(dir_fd, name)
            if returned is None or taken is None or _same_inode(taken, last):
                return
            last = returned


def require_untouched(place: DraftPlace, old: FileStatus, kept: Kept) -> None:
    """The last look at what is about to lose its place, with the change time.

    Threat: rewritten in place since it was kept, with as many bytes, and its old
    modification time set again. After our own rename the change time tells nothing.

    Raises:
        FileChangedError: it is not what was looked at, or not what was kept.
    """
    now = place.status()
    if now is None or not _is_same(now, old):
        raise changed(place.path)
    kept.require_untouched()


def _is_same(now: FileStatus, old: FileStatus) -> bool:
    """Whether it is the file that was looked at; keeping it may have given it one more name."""
    if now.links == old.links:
        return now == old
    return now.content_mark == old.content_mark and (now.mode, now.uid, now.gid) == (
        old.mode,
        old.uid,
        old.gid,
    )


def _same_inode(one: FileStatus, other: FileStatus) -> bool:
    return (one.device, one.inode) == (other.device, other.inode)
