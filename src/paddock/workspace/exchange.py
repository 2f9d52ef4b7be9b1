"""Do, undo and clean up one step of a set, and detect its state after a crash.

A creation moves temporary → name, which must be free; a removal name → temporary; a replacement
exchanges the two. If the file system cannot exchange, the old entry is first moved aside, under a
second temporary name; in a single change, which no journal completes, the new one is renamed over
it. Afterwards the displaced entry is checked. If it is not the one that was read, the step fails
and the set is undone. Undo never loses newer content. The entries under the three names identify
every state that a crash can leave.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Generator
from typing import Final, TypeAlias

from msgspec import Struct

from paddock import limits
from paddock.storage.atomic import held_open
from paddock.storage.disk import Disk
from paddock.storage.journal import EntryMark, MarkKind, Metadata, MetadataStep, Step, SwapStep
from paddock.storage.locks import unlock
from paddock.workspace.failures import changed, too_deep
from paddock.workspace.metadata import FileStatus, kind_of, status_at, status_of
from paddock.workspace.paths import EntryKind, WorkspacePath, child_of, set_name
from paddock.workspace.targets import lock_directory
from paddock.workspace.workspace import PASS, PASS_DIRECTORY, READ_DIRECTORY

Marked: TypeAlias = tuple[EntryMark, str]
_EXCHANGES_MAX: Final = 64
_GOING: Final = 0x8000_0000
_ALL_BITS: Final = 0o7777
_OPEN: Final = READ_DIRECTORY | os.O_NOFOLLOW
_LOCK_WAIT_S: Final = 2.0  # bounded: its holder could be waiting for the locks held above it


class BoundSwap(Struct, frozen=True):
    disk: Disk
    dir_fd: int
    path: WorkspacePath
    step: SwapStep
    draft: str
    # Empty for a single change: without an exchange, one rename over the old entry is atomic,
    # and two are not.
    aside: str = ""
    going: str = ""  # a displaced directory that was compared again and is being removed
    times: str = ""

    def is_done(self) -> bool:
        # True if half done. False if the temporary is gone: then the step cannot be done.
        old, new = self.step.old, self.step.new
        draft = self._at(self.draft)
        is_ours = draft is not None and not draft.is_same_entry(self._at(self.path.name))
        if new is None:
            return is_ours
        if draft is None:
            return old is None or self._at(self.aside) is not None
        return not (is_ours and draft.inode == new.inode)

    def displaced_expected(self) -> bool:
        old, displaced = self.step.old, self._displaced()
        return old is None or displaced is None or self._fits(displaced, old)

    def do(self) -> None:
        """Raises: FileChangedError: another process interfered; it may be half done."""
        old, new = self.step.old, self.step.new
        if self._is_half_way():
            self._move(self.draft, self.path.name)
        else:
            # Threat: the name, or the temporary, was swapped since it was read. The check
            # below decides; but only this one detects a file that was rewritten and got its
            # old modification time back.
            if not self._fits(self.path.name, old, self.times) or (
                new is not None and not self._fits(self.draft, new)
            ):
                raise changed(self.path)
            try:
                if old is None:
                    self._move(self.draft, self.path.name)
                elif new is None:
                    self._move(self.path.name, self.draft)
                elif not self.disk.exchange(self.dir_fd, self.draft, self.path.name):
                    if not self.aside:
                        self.disk.replace(self.dir_fd, self.draft, self.dir_fd, self.path.name)
                        return
                    self._move(self.path.name, self.aside)
                    self._move(self.draft, self.path.name)
            except (FileExistsError, FileNotFoundError) as failure:
                raise changed(self.path) from failure
        if old is not None:
            displaced = self._displaced()
            # Threat: it was rewritten, filled or replaced between the check and the rename.
            if displaced is None or not self._fits(displaced, old):
                raise changed(self.path)

    def undo(self) -> bool:
        """Return False if another process has changed it since; that change is kept."""
        if self._is_half_way():
            return self._moved_back(self.aside)
        if not self.is_done():
            return True
        new, displaced = self.step.new, self._displaced()
        if new is None:
            return displaced is None or self._moved_back(displaced)
        if not self._fits(self.path.name, new):
            # It was never done, or another process replaced or removed our entry.
            return self._fits(self.path.name, self.step.old)
        if displaced == self.draft:
            return self._exchanged_back(new)
        try:
            self._move(self.path.name, self.draft)
        except FileNotFoundError:
            return False
        if not self._fits(self.draft, new):
            self._moved_back(self.draft)
            return False
        return displaced is None or self._moved_back(displaced)

    def clean(self, *, is_undone: bool) -> bool:
        """Remove the displaced or built entry. False: an unexpected entry stays there."""
        displaced, old = self._displaced(), self.step.old
        if not is_undone:
            if displaced is not None and old is not None and not self._is_cleared(displaced, old):
                return False
            remove_any(self.disk, self.dir_fd, self.going)
        there = [(name, status) for name in (self.draft, self.aside) if (status := self._at(name))]
        ours = [name for name, status in there if self._may_go(name, status, is_undone=is_undone)]
        for name in ours:
            remove_any(self.disk, self.dir_fd, name)
        return len(ours) == len(there)

    def _is_cleared(self, displaced: str, old: EntryMark) -> bool:
        # Threat: a process that has this working directory creates a file in it now, which
        # exists nowhere else. Only compared entries are removed.
        if old.kind is not MarkKind.DIRECTORY:
            return True
        status = self._at(displaced)
        if status is None or status.inode != old.inode:
            return False
        held = digest_tree(self.dir_fd, displaced, self.path)
        if held.digest != old.held:
            return False
        # From here on it may be half removed and no longer match: this name marks that.
        self._move(displaced, self.going)
        is_gone = remove_any(self.disk, self.dir_fd, self.going, held.names)
        if not is_gone:
            # Under its first name it no longer matches, so it stays.
            self._move(self.going, displaced)
        return is_gone

    def _may_go(self, name: str, status: FileStatus, *, is_undone: bool) -> bool:
        new, marks = self.step.new, [mark for mark in (self.step.old, self.step.new) if mark]
        if not is_undone:
            # By inode: a process that has the old file open may have written to it since.
            return status.inode in {mark.inode for mark in marks}
        if new is not None and new.kind is MarkKind.DIRECTORY and status.is_directory:
            # It was taken back whole, but we may have been killed while removing it.
            return status.inode == new.inode
        # Threat: an entry that could not be put back belongs to another process and exists
        # nowhere else. An inode number alone does not identify ours: it is soon reused.
        return any(self._fits(name, mark) for mark in marks)

    def _at(self, name: str) -> FileStatus | None:
        return status_at(self.dir_fd, name)

    def _fits(self, name: str, mark: EntryMark | None, times: str = "") -> bool:
        status = self._at(name)
        if status is None or mark is None:
            return status is None and mark is None
        if status.inode != mark.inode or kind_of(status.mode) is EntryKind.SPECIAL:
            return False
        found, seen = marked(self.dir_fd, self.path, status, name)
        return found == mark and times in ("", seen)

    def _displaced(self) -> str | None:
        draft, new = self._at(self.draft), self.step.new
        if draft is not None and (new is None or draft.inode != new.inode):
            return self.draft
        return self.aside if self._at(self.aside) is not None else None

    def _is_half_way(self) -> bool:
        old, new = self.step.old, self.step.new
        if not self.aside or old is None or new is None or self._at(self.path.name) is not None:
            return False
        draft, aside = self._at(self.draft), self._at(self.aside)
        return aside is not None and draft is not None and draft.inode == new.inode

    def _move(self, name: str, to: str) -> None:
        one, other = self._at(name), self._at(to)
        if one is not None and one.is_same_entry(other):
            self.disk.unlink(self.dir_fd, name)  # an interrupted move by link(2)
            return
        try:
            self.disk.move_new(self.dir_fd, name, self.dir_fd, to)
        except PermissionError:
            if one is None or not one.is_directory or other is not None:
                raise
            # A plain rename: it could only replace an empty directory that appeared in this
            # moment (rename(2)).
            self.disk.replace(self.dir_fd, name, self.dir_fd, to)

    def _moved_back(self, displaced: str) -> bool:
        try:
            self._move(displaced, self.path.name)
        except FileExistsError:
            return False  # another process created something there
        return True

    def _exchanged_back(self, new: EntryMark) -> bool:
        # Repeat until we take out what we put there last: entries of others are put back.
        last = new.inode
        for attempt in range(_EXCHANGES_MAX):
            returned = self._at(self.draft)
            try:
                self.disk.exchange(self.dir_fd, self.draft, self.path.name)
            except FileNotFoundError:
                return False  # another process removed the name, and so our old entry too
            taken = self._at(self.draft)
            if returned is None or taken is None:
                return False
            if taken.inode == last and (attempt or self._fits(self.draft, new)):
                return attempt == 0
            last = returned.inode
        return False


class BoundMetadata(Struct, frozen=True):
    disk: Disk
    dir_fd: int
    path: WorkspacePath
    step: MetadataStep

    def is_done(self) -> bool:
        status, new = status_at(self.dir_fd, self.path.name), self.step.new
        if status is None or status.inode != self.step.inode:
            return True  # another entry: there is nothing left to change
        is_set = status.mode & _ALL_BITS == new.mode
        return is_set and new.modified_ns in (None, status.modified_ns)

    def do(self) -> None:
        if not self._set(self.step.old, self.step.new):
            raise changed(self.path)

    def undo(self) -> bool:
        return self._set(self.step.new, self.step.old)

    def displaced_expected(self) -> bool:
        return True

    def clean(self, *, is_undone: bool) -> bool:
        del is_undone
        return True

    def _set(self, before: Metadata, after: Metadata) -> bool:
        try:
            fd = os.open(self.path.name, PASS | os.O_NOFOLLOW, dir_fd=self.dir_fd)
        except FileNotFoundError:
            return False
        with held_open(fd):
            status = status_of(fd)
            if status.inode != self.step.inode or status.is_link:
                return False
            # One of the two may be set already, by a crash in between.
            mode_is_ours = status.mode & _ALL_BITS in (before.mode, after.mode)
            times = (before.modified_ns, after.modified_ns)
            if not mode_is_ours or (None not in times and status.modified_ns not in times):
                return False
            # Mode first: the owner may set the time whatever the mode is (utimensat(2)).
            self.disk.set_mode_held(fd, after.mode)
            if after.modified_ns is not None:
                self.disk.set_modified(fd, after.modified_ns)
        return True


BoundStep = BoundSwap | BoundMetadata


def bind(
    disk: Disk, dir_fd: int, path: WorkspacePath, token: str, step: Step, times: str = ""
) -> BoundStep:
    if isinstance(step, MetadataStep):
        return BoundMetadata(disk, dir_fd, path, step)
    draft, aside = set_name(token, 2 * step.number), set_name(token, 2 * step.number + 1)
    going = set_name(token, _GOING + step.number)
    return BoundSwap(disk, dir_fd, path, step, draft, aside, going, times)


# A directory can be filled, through an old descriptor or by a writer that had its lock, just
# before it is moved: its content must be the same afterwards. Each directory in it is locked
# while it is read: a writer in it has finished, and is seen, or finds that it was moved.


class HeldTree(Struct, frozen=True):
    digest: str
    times: str
    names: frozenset[str]


def digest_tree(dir_fd: int, name: str, path: WorkspacePath) -> HeldTree:
    digest, times, names = hashlib.sha256(), hashlib.sha256(), set[str]()

    def walk(dir_fd: int, name: str, path: WorkspacePath, above: str) -> None:
        with reading(dir_fd, name, path) as (fd, children):
            for child in children:
                at, relative, status = child_of(path, child), above + child, status_at(fd, child)
                if status is None:
                    raise changed(at)
                names.add(relative)
                mark = mark_of(status)
                about = f"\0{status.mode:o} {mark.inode} {mark.size_bytes} {mark.modified_ns}\n"
                digest.update(relative.encode("utf-8", "surrogateescape") + about.encode("ascii"))
                if status.is_directory:
                    walk(fd, child, at, f"{relative}/")
                else:
                    times.update(f"{_change_time(status)}\n".encode("ascii"))

    walk(dir_fd, name, path, "")
    return HeldTree(digest.hexdigest(), times.hexdigest(), frozenset(names))


def marked(dir_fd: int, path: WorkspacePath, status: FileStatus, name: str = "") -> Marked:
    # Threat: a file that is rewritten in place with as many bytes, and gets its old modification
    # time back, has the same mark. The change time cannot be set (inode(7)). Our rename changes it
    # (on ext4, XFS, Btrfs and tmpfs), so it serves for the last check before that, and is not
    # in the journal.
    if not status.is_directory:
        return mark_of(status), _change_time(status)
    held = digest_tree(dir_fd, name or path.name, path)
    return mark_of(status, held.digest), held.times


def mark_of(status: FileStatus, held: str = "") -> EntryMark:
    if status.is_directory:
        return EntryMark(MarkKind.DIRECTORY, status.inode, 0, 0, held)
    kind = MarkKind.LINK if status.is_link else MarkKind.FILE
    return EntryMark(kind, status.inode, status.size_bytes, status.modified_ns)


def _change_time(status: FileStatus) -> str:
    # A step of ours on another hard link of the file also moves its change time.
    return "" if status.links > 1 else str(status.changed_ns)


@contextlib.contextmanager
def reading(dir_fd: int, name: str, path: WorkspacePath) -> Generator[tuple[int, list[str]]]:
    if len(path.parts) > limits.path_depth_max:
        raise too_deep(path)
    fd = os.open(name, _OPEN, dir_fd=dir_fd)
    try:
        lock_directory(fd, path, _LOCK_WAIT_S)
        yield fd, sorted(os.listdir(fd))
    finally:
        unlock(fd)


def remove_any(
    disk: Disk, dir_fd: int, name: str, only: Collection[str] | None = None, above: str = ""
) -> bool:
    # Threat: a file created in a directory after it was read exists nowhere else. `only` limits
    # the removal to the names that were read, relative to the first call's directory.
    status = status_at(dir_fd, name)
    if status is None:
        return True
    remove, is_empty = disk.unlink, True
    if status.is_directory:
        remove = disk.remove_directory
        with held_open(_open_to_empty(disk, dir_fd, name)) as fd:
            for child in os.listdir(fd):
                relative = above + child
                if only is None or relative in only:
                    is_empty = remove_any(disk, fd, child, only, f"{relative}/") and is_empty
                else:
                    is_empty = is_empty and status_at(fd, child) is None
    if not is_empty:
        return False
    try:
        _force_remove(remove, dir_fd, name)
    except OSError as failure:
        if only is None or failure.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False  # filled after the listing
    return True


def _force_remove(remove: Callable[[int, str], None], dir_fd: int, name: str) -> None:
    # Also works in a directory that the set has just made read-only.
    with contextlib.suppress(FileNotFoundError):
        try:
            remove(dir_fd, name)
        except PermissionError:
            mode = stat.S_IMODE(os.fstat(dir_fd).st_mode)
            os.fchmod(dir_fd, mode | stat.S_IRWXU)
            try:
                remove(dir_fd, name)
            finally:
                os.fchmod(dir_fd, mode)


def _open_to_empty(disk: Disk, dir_fd: int, name: str) -> int:
    try:
        return os.open(name, _OPEN, dir_fd=dir_fd)
    except PermissionError:
        # Threat: a link takes the name meanwhile. Only the opened directory is changed.
        with held_open(os.open(name, PASS_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)) as fd:
            disk.set_mode_held(fd, stat.S_IRWXU)
            return os.open(".", READ_DIRECTORY, dir_fd=fd)
