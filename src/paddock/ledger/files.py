"""Lock, create and rotate a ledger's open files, and recover files that do not end at a mark.

A ledger is created atomically: GENESIS is written and synced under a temporary name, then linked to
the final one; then the directory is synced. So only a new segment may have no whole line.

A torn tail is copied to `torn/`, the copy is synced, the tail is cut off, and an entry records it.
Until that entry is durable the copy is named `.pending`: after a crash the next writer records it.
On a full disk, the ballast frees the space that the append's caller had reserved.
"""

import fcntl
import os
import re
import stat
import threading
from contextlib import ExitStack
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError, LedgerBusyError, LedgerDamagedError
from paddock.ledger.format.line import PREV_OF_GENESIS, chain_line, leaf_hash
from paddock.ledger.format.lines import fitting_leaves
from paddock.ledger.read import (
    MORE_AND_BACKUP,
    LedgerText,
    Segment,
    believable_marks,
    damage,
    failing,
    find_identity,
    find_newest,
    list_starts,
    split_lines,
)
from paddock.ledger.tail import (
    HEAD_BYTES,
    NOTHING_DURABLE,
    HeadFile,
    HeadPage,
    LedgerPaths,
    Mark,
    is_file,
    line_before,
    wait_for_lock,
)
from paddock.pattern import lazy_pattern
from paddock.storage.disk import Disk, write_chunks
from paddock.values.calls import Json
from paddock.values.entries import DIGEST_PREFIX, LEDGER_RECOVERED, Entry

APPENDING: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_UNWRITABLE: Final = (
    "unrecorded calls do not run: check permissions and that the file system is writable"
)


def open_head(disk: Disk, path: str) -> HeadFile:
    with failing("the ledger's head file cannot be opened", path), ExitStack() as opened:
        head = HeadFile(disk, disk.open(path, _NEW_FLAGS | os.O_NONBLOCK, 0o600))
        opened.callback(disk.close, head.descriptor)
        size = disk.stat(head.descriptor).st_size
        if size < HEAD_BYTES:
            # Allocate the whole page, so that no later write needs a new block. Keep the rest of
            # a truncated one: a mark in it may show that the ledger was truncated too.
            disk.pwrite(head.descriptor, bytes(HEAD_BYTES - size), size)
            disk.sync(head.descriptor)
        opened.pop_all()
    return head


class FileLock:
    def __init__(self, disk: Disk, path: str, timeout_s: float) -> None:
        self.path, self._disk, self._timeout_s = path, disk, timeout_s
        # flock(2) excludes open file descriptions, not threads.
        self._threads = threading.Lock()
        with failing("the ledger's lock file cannot be opened", path, _UNWRITABLE):
            self.descriptor = disk.open(path, _NEW_FLAGS, 0o600)

    def acquire(self) -> None:
        if not self._threads.acquire(timeout=self._timeout_s):
            raise _busy(os.getpid(), self._timeout_s)
        try:
            with failing("the ledger cannot be locked", self.path):
                is_ours = wait_for_lock(self._disk.lock, self.descriptor, self._timeout_s)
            if not is_ours:
                status = self._disk.stat(self.descriptor)
                holder = find_holder(read_proc("/proc/locks"), status.st_dev, status.st_ino)
                raise _busy(holder, self._timeout_s)
        except BaseException:
            self._threads.release()
            raise

    def release(self, *_: object) -> None:
        """Unlock explicitly: a forked child may still share the open file description."""
        try:
            with failing("the ledger's lock cannot be released", self.path):
                self._disk.lock(self.descriptor, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    __enter__, __exit__ = acquire, release


def find_holder(locks: str, device: int, inode: int) -> int | None:
    """Return the pid that holds a file's flock, from proc_locks(5); None if unknown here."""
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4]) or None if fields[4].isdigit() else None
    return None


def read_proc(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _busy(holder: int | None, waited_s: float) -> LedgerBusyError:
    who = "an unknown process" if holder is None else f"process {holder}"
    return LedgerBusyError(
        f"the ledger is locked by {who}; waited {waited_s:g} s",
        hint="if it is stopped, let it continue or end it: that releases the lock",
    )


_BLOCK_BYTES: Final = 4096


class Ballast:
    """Disk blocks allocated before an action, to record its outcome even on a full disk."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk, self._directory = disk, directory
        self.lock = threading.Lock()
        self._descriptor, self._reserved, self._size = -1, 0, 0

    def reserve(self, size_bytes: int) -> "HeldReservation":
        allocated = (-(-size_bytes // _BLOCK_BYTES) + 1) * _BLOCK_BYTES
        with self.lock, failing("space cannot be reserved", self._directory):
            wanted = self._reserved + allocated
            if wanted > self._size:
                if self._descriptor < 0:
                    path = os.path.join(self._directory, f"ballast.{os.getpid()}.{id(self):x}")
                    self._descriptor = self._disk.open(path, _NEW_FLAGS | os.O_EXCL, 0o600)
                    self._disk.unlink(None, path)
                # posix_fallocate(3) allocates the blocks or fails with ENOSPC.
                self._disk.allocate(self._descriptor, wanted)
                self._size = wanted
            self._reserved = wanted
        return HeldReservation(self, allocated)

    def give_back(self, held: "HeldReservation", *, to_disk: bool) -> bool:
        with self.lock, failing("reserved space cannot be freed", self._directory):
            freed_bytes, held.allocated_bytes = held.allocated_bytes, 0
            self._reserved -= freed_bytes
            if freed_bytes and to_disk:
                self._disk.ftruncate(self._descriptor, self._reserved)
                self._size = self._reserved
        return freed_bytes > 0

    def close(self) -> None:
        with self.lock:
            if self._descriptor >= 0:
                self._disk.close(self._descriptor)
            self._descriptor, self._size, self._reserved = -1, 0, 0


class HeldReservation(Struct):
    ballast: Ballast
    allocated_bytes: int

    def release(self) -> None:
        self.ballast.give_back(self, to_disk=False)


def sync_directory(disk: Disk, path: str) -> None:
    descriptor = disk.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def open_new(disk: Disk, path: str, flags: int = os.O_WRONLY | os.O_CLOEXEC) -> int:
    # Threat: opening a pipe in a draft's place would block, and a symlink would redirect the
    # write. Unlink a leftover draft, never truncate it: it may have another hard link.
    flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return disk.open(path, flags, 0o600)
    except FileExistsError:
        disk.unlink(None, path)
        return disk.open(path, flags, 0o600)


_PENDING: Final = ".pending"
_PENDING_NAME: Final = lazy_pattern(r"(\d{1,16})-([0-9a-f]{64})\.pending", re.ASCII)


class LedgerFiles(LedgerText):
    def __init__(
        self, disk: Disk, paths: LedgerPaths, lock_timeout_s: float, first_body: bytes | None
    ) -> None:
        super().__init__(disk, paths, [], Segment(-1, 0, (0, 0)))
        self.disk, self.paths = disk, paths
        self.syncing = threading.Lock()
        """Held while the newest segment is synced or replaced by the next one."""
        self.written_bytes = self.synced_bytes = 0
        """How far into the ledger this object has written and synced."""
        self.is_poisoned = False
        _prepare_folder(disk, paths, may_create=first_body is not None)
        with failing("the ledger cannot be opened", paths.ledger), ExitStack() as opened:
            self.lock = FileLock(disk, paths.lock, lock_timeout_s)
            opened.callback(disk.close, self.lock.descriptor)
            with self.lock:
                descriptor = _open_ledger(disk, paths, first_body)
                opened.callback(disk.close, descriptor)
                if not stat.S_ISREG(disk.stat(descriptor).st_mode):
                    raise HostError("a ledger is a regular file", where=ascii(paths.ledger))
                self.head = open_head(disk, paths.head)
                opened.callback(disk.close, self.head.descriptor)
                self._take_over(descriptor)
                self.genesis()  # refuses an unknown format
            self.commit_lock = FileLock(disk, paths.commit_lock, lock_timeout_s)
            opened.callback(disk.close, self.commit_lock.descriptor)
            locks = {each.path: each.descriptor for each in (self.lock, self.commit_lock)}
            held = {**locks, paths.head: self.head.descriptor}
            self._beside = {path: find_identity(disk, each) for path, each in held.items()}
            opened.pop_all()
        self.ballast = Ballast(disk, paths.folder)

    def verify_in_place(self, segment: Segment) -> None:
        # Threat: acknowledged entries would be lost with a file moved away or replaced in use.
        if not is_file(self.disk, self.path, segment.identity):
            self.verify_sealed(segment)
        self.verify_beside()

    def verify_sealed(self, segment: Segment) -> None:
        if not is_file(self.disk, self.paths.sealed(segment.base), segment.identity):
            said = "the ledger was removed or replaced by another file while in use"
            raise LedgerDamagedError(said, where=ascii(self.path))

    def verify_beside(self) -> None:
        # Threat: if the folder is removed, the next writer creates another lock and head file; two
        # writers that no longer exclude each other would cut off each other's lines.
        for path, identity in self._beside.items():
            if not is_file(self.disk, path, identity):
                said = "the folder beside the ledger was removed or replaced while in use"
                hint = "end every process that has the ledger open, and start again"
                raise damage(said, ascii(path), hint)

    def follow(self) -> None:
        with ExitStack() as opened:
            descriptor = self.disk.open(self.path, APPENDING)
            opened.callback(self.disk.close, descriptor)
            self._take_over(descriptor)
            if self.active.descriptor == descriptor:
                opened.pop_all()

    def _take_over(self, descriptor: int) -> None:
        """Switch to an open file; finish or undo a rotation that was killed."""
        found, starts = find_newest(self.disk, self.paths, descriptor)
        if starts and is_file(self.disk, self.paths.sealed(starts[-1]), found.identity):
            self.disk.unlink(None, self.paths.sealed(starts.pop()))
        if self.head.read().base != found.base:
            # The process that made the name may have been killed before it was durable.
            sync_directory(self.disk, self.paths.parent)
            self.head.store_base(found.base)
        if found.identity == self.active.identity:
            # A commit may be using the descriptor that is already open.
            found = found._replace(descriptor=self.active.descriptor)
        self._switch(found, starts)

    def rotate(self, end: int) -> None:
        """Seal the segment, which is all durable, and switch to a new one that begins at `end`.

        The append lock is held. After a failure, `follow` finds how far the rotation got. After a
        kill before the rename, the file has both names, and the next lock holder removes the
        sealed one. After a kill following the rename, the base is still cleared, and the next lock
        holder checks the names, syncs the directory and stores the base. So no line is appended to
        a sealed file, and no entry is acknowledged in a file whose name is not durable.
        """
        disk, paths, before = self.disk, self.paths, self.active
        # Threat: a file that replaced the ledger would be sealed as part of it.
        self.verify_in_place(before)
        with ExitStack() as opened:
            descriptor = open_new(disk, paths.next, APPENDING)
            opened.callback(disk.close, descriptor)
            disk.sync(descriptor)
            identity = find_identity(disk, descriptor)
            self.head.store_base(None)
            try:
                disk.link(None, paths.ledger, None, paths.sealed(before.base))
            except FileExistsError as fault:
                said = "another file has the name of a sealed segment of the ledger"
                where = ascii(paths.sealed(before.base))
                raise LedgerDamagedError(said, where=where) from fault
            # If the rename became durable before the link, a power cut would lose the full file.
            sync_directory(disk, paths.parent)
            disk.replace(None, paths.next, None, paths.ledger)
            sync_directory(disk, paths.parent)
            self.head.store_base(end)
            opened.pop_all()
        self._switch(Segment(descriptor, end, identity), self.starts)

    def _switch(self, segment: Segment, starts: list[int]) -> None:
        with self.syncing:
            before, self.active, self.starts = self.active, segment, [*starts, segment.base]
            if before.descriptor not in {-1, segment.descriptor}:
                # It was synced before it was sealed, so the old descriptor is not needed.
                self.disk.close(before.descriptor)

    def close(self) -> None:
        self.ballast.close()
        for each in (self.active, self.head, self.commit_lock, self.lock):
            self.disk.close(each.descriptor)


def _prepare_folder(disk: Disk, paths: LedgerPaths, *, may_create: bool) -> None:
    with failing("the ledger's folder cannot be used", paths.folder):
        try:
            device = disk.stat(paths.parent).st_dev
            mounts = read_proc("/proc/self/mountinfo")
            verify_local(mounts, os.major(device), os.minor(device), paths.parent)
            if not may_create:
                disk.stat(paths.ledger)
            os.close(disk.open_directory(None, paths.folder))
        except FileNotFoundError as fault:
            raise HostError("ledger not found", where=ascii(paths.ledger)) from fault


def _open_ledger(disk: Disk, paths: LedgerPaths, first_body: bytes | None) -> int:
    try:
        return disk.open(paths.ledger, APPENDING)
    except FileNotFoundError:
        if first_body is None:
            raise
    # Threat: a removed ledger would be replaced by an empty one. A head file proves that a ledger
    # existed: it is created after the ledger.
    if os.path.basename(paths.head) in disk.listdir(paths.folder) or list_starts(disk, paths):
        said = "the ledger is gone: its head file or its segments are still here"
        raise damage(said, ascii(paths.ledger), "restore it from a backup")
    descriptor = open_new(disk, paths.new)
    try:
        disk.write(descriptor, chain_line(first_body, 0, PREV_OF_GENESIS) + b"\n")
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.link(None, paths.new, None, paths.ledger)
    disk.unlink(None, paths.new)
    sync_directory(disk, paths.parent)
    return disk.open(paths.ledger, APPENDING)


# All functions below run with the append lock held.
#
# A killed writer leaves whole lines that no mark covers yet, and perhaps a torn line; a power cut
# may leave less than was written, or garbage. So choose a mark M, compare the line that ends there
# with its hash, and check the bytes after it:
#
#     newest append's mark   durable mark      M
#     of this boot           whole             the farther of the two; both compared
#     of this boot           torn              the append's
#     older boot, or torn    whole             the durable one
#     older boot, or torn    torn              none
#
#     file                                     with M                  without M
#     shorter than M                           damage                  -
#     other line before M, or no LF            damage                  -
#     longer: entries that chain               adopted                 adopted, from line 0
#     then a line that is not such an entry    torn tail (*)           damage
#     then bytes without LF                    torn tail               torn tail
#     no whole line at all                     -                       damage
#
# (*) damage if both slots of the append's mark are torn, because no crash does that.
# An append's mark from an older boot is ignored: a power cut may have undone the append.


def find_tail(text: LedgerText, page: HeadPage, boot: bytes) -> tuple[Mark, int]:
    start = verify_marks(text, page, boot)
    size, known = text.size(), start or NOTHING_DURABLE
    entries, end, leaf = known.entries, known.offset_bytes, known.leaf
    for _, lines, has_end in split_lines(text.read, end, size):
        # Threat: a forged line that chains but is not an entry (e.g. with a duplicate key) would
        # be built on, signed, and read differently by different readers.
        leaves = fitting_leaves(lines, entries, leaf) if has_end else []
        if leaves:
            end += sum(map(len, lines[: len(leaves)])) + len(leaves)
            entries, leaf = entries + len(leaves), leaves[-1].hex()
        if len(leaves) < len(lines):
            break
    else:
        has_end = False
    if entries == 0 or (has_end and (start is None or page.newest is None)):
        # Threat: without the head file, any bad line could pass for the result of a crash. Only a
        # last line without LF can be one.
        where = f"{text.path!a}, line {entries + 1}, byte {end}"
        raise damage("the ledger has a bad line", where)
    # The new mark is never poisoned: the durable mark records a failed sync.
    generation = max((each.generation for each in (page.newest, page.durable) if each), default=0)
    return Mark(generation + 1, entries, end, leaf, boot), size


def verify_marks(text: LedgerText, page: HeadPage, boot: bytes) -> Mark | None:
    marks = believable_marks(page, boot)
    size = text.size()
    if marks and size < marks[-1].offset_bytes:
        said = f"the ledger was cut: {size} bytes are left of {marks[-1].offset_bytes}"
        raise damage(said, ascii(text.path), "compare with a backup and with exported checkpoints")
    for mark in marks:
        # Threat: inserting or deleting a byte moves every later line, so that the end of an
        # acknowledged entry would pass for a torn tail.
        line = line_before(text.read, mark.offset_bytes)
        if line is None or leaf_hash(line) != mark.leaf:
            where = f"{text.path!a}, line {mark.entries}, before byte {mark.offset_bytes}"
            raise damage("a line of the ledger was changed", where, MORE_AND_BACKUP)
    return marks[-1] if marks else None


def quarantine(files: LedgerFiles, end: Mark, size: int) -> None:
    disk, paths, segment = files.disk, files.paths, files.active
    start, descriptor = end.offset_bytes - segment.base, segment.descriptor
    if start < 0:
        where = f"{paths.ledger!a}, line {end.entries + 1}, byte {end.offset_bytes}"
        raise damage("the ledger has a bad line in a sealed segment", where)
    draft, chunk = f"{paths.torn}/draft", limits.ledger_scan_chunk_bytes
    with failing("the torn end of the ledger cannot be put aside", paths.ledger):
        os.close(disk.open_directory(None, paths.torn))
        target = open_new(disk, draft)
        try:
            places = range(start, size - segment.base, chunk)
            pieces = (disk.pread(descriptor, chunk, at) for at in places)
            digest = write_chunks(pieces, disk, target)
            disk.sync(target)
        finally:
            disk.close(target)
        name = f"{end.offset_bytes}-{digest.removeprefix(DIGEST_PREFIX)}{_PENDING}"
        disk.replace(None, draft, None, f"{paths.torn}/{name}")
        sync_directory(disk, paths.torn)
        disk.ftruncate(descriptor, start)


def list_pending(disk: Disk, paths: LedgerPaths) -> list[tuple[str, Entry]]:
    """Return quarantined pieces that no entry records yet, with their entries, by offset."""
    with failing("quarantined bytes cannot be listed", paths.torn):
        try:
            names = disk.listdir(paths.torn)
        except FileNotFoundError:
            return []
        # Threat: names are recorded, and anyone who can write here may choose them.
        found = [each for each in map(_PENDING_NAME.fullmatch, names) if each]
        pieces: list[tuple[str, Entry]] = []
        for offset, digest in sorted((int(each[1]), each[2]) for each in found):
            path = f"{paths.torn}/{offset}-{digest}"
            metadata: dict[str, Json] = {
                "bytes": disk.stat(f"{path}{_PENDING}").st_size,
                "offset": offset,
                "digest": DIGEST_PREFIX + digest,
                "file": f"torn/{offset}-{digest}",
            }
            reason = "the file ended in the middle of an append"
            pieces.append((path, Entry(LEDGER_RECOVERED, reason=reason, metadata=metadata)))
        return pieces


def mark_reported(disk: Disk, paths: LedgerPaths, pieces: list[tuple[str, Entry]]) -> None:
    with failing("quarantined bytes cannot be renamed", paths.torn):
        for path, _ in pieces:
            disk.replace(None, f"{path}{_PENDING}", None, path)
        sync_directory(disk, paths.torn)


NETWORK_FILE_SYSTEMS: Final = (
    "9p afs beegfs ceph cifs coda fuse.ceph fuse.davfs2 fuse.gcsfuse fuse.glusterfs fuse.juicefs "
    "fuse.rclone fuse.s3fs fuse.sshfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs "
    "panfs smb3 smbfs"
).split()


def find_file_system(mountinfo: str, major: int, minor: int) -> str | None:
    wanted = f"{major}:{minor}"
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 6 and fields[2] == wanted and "-" in fields[6:]:
            after = fields[fields.index("-", 6) + 1 :]
            return after[0] if after else None
    return None


def verify_local(mountinfo: str, major: int, minor: int, path: str) -> None:
    """Refuse the network file systems listed above; any other counts as local."""
    found = find_file_system(mountinfo, major, minor)
    if found in NETWORK_FILE_SYSTEMS:
        said = f"a ledger cannot be on a network file system ({found})"
        raise HostError(said, where=ascii(path), hint="put the plane on a local disk")
