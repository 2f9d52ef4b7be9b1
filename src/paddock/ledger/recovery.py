"""A ledger's open files: made, rotated, and recovered where they do not end at their mark.

A ledger appears whole: GENESIS is written and synced under another name, then linked to its
own, then the directory is synced. There is never an empty ledger, so an empty file is damage.

On a network file system locks are advisory between hosts at best, a page cache is not shared,
and a successful sync says little: those are refused by their type in mountinfo
(proc_pid_mountinfo(5)), found by device number, so that no name is resolved again.

A torn tail is copied to `torn/`, the copy synced, then it is cut off, and an entry records it.
Until that is durable the piece is named `.pending`: a crash in between reports it later.
"""

import os
import re
import stat
import threading
from contextlib import ExitStack
from typing import Final

from paddock import limits
from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.line import PREV_OF_GENESIS, chain_line, leaf_hash
from paddock.ledger.format.lines import fitting_leaves
from paddock.ledger.head import Ballast, FileLock, Waiting, open_head, read_proc
from paddock.ledger.read import LedgerText, believable_marks, split_lines
from paddock.ledger.segments import (
    APPENDING,
    LedgerPaths,
    Segment,
    failing,
    find_identity,
    find_newest,
    list_starts,
    open_new,
    sync_directory,
)
from paddock.ledger.tail import NOTHING_DURABLE, HeadPage, Mark, is_file, line_before
from paddock.pattern import lazy_pattern
from paddock.storage.disk import Disk, write_chunks
from paddock.values.entries import DIGEST_PREFIX, LEDGER_RECOVERED, Entry

_UNOPENED: Final = "the ledger cannot be opened"
_PENDING: Final = ".pending"
_PENDING_NAME: Final = lazy_pattern(r"(\d{1,16})-([0-9a-f]{64})\.pending", re.ASCII)


class LedgerFiles(LedgerText):
    def __init__(
        self, disk: Disk, paths: LedgerPaths, waiting: Waiting, first_body: bytes | None
    ) -> None:
        """Open everything; make the ledger from `first_body` where there is none."""
        super().__init__(disk, paths, [], Segment(-1, 0, (0, 0)))
        self.disk = disk
        self.paths = paths
        self.syncing = threading.Lock()
        """Held while the newest segment is synced, and while it becomes another one."""
        self.written_bytes = self.synced_bytes = 0
        """All before it was written, and synced, through these files."""
        self.is_poisoned = False
        _verify_place(disk, paths, may_create=first_body is not None)
        with failing(_UNOPENED, paths.ledger), ExitStack() as opened:
            self.lock = FileLock(disk, paths.lock, waiting)
            opened.callback(disk.close, self.lock.descriptor)
            with self.lock:
                descriptor = _open_ledger(disk, paths, first_body)
                opened.callback(disk.close, descriptor)
                if not stat.S_ISREG(disk.stat(descriptor).st_mode):
                    raise HostError("a ledger is a regular file", where=ascii(paths.ledger))
                self.head = open_head(disk, paths.head)
                opened.callback(disk.close, self.head.descriptor)
                self._take_over(descriptor)
                self.genesis()  # refuses a format that is not known
            self.commit_lock = FileLock(disk, paths.commit_lock, waiting)
            opened.callback(disk.close, self.commit_lock.descriptor)
            held = {
                paths.lock: self.lock,
                paths.commit_lock: self.commit_lock,
                paths.head: self.head,
            }
            self._beside = {
                path: find_identity(disk, each.descriptor) for path, each in held.items()
            }
            opened.pop_all()
        self.ballast = Ballast(disk, paths.folder)

    def verify_in_place(self, segment: Segment) -> None:
        # Threat: a ledger that was moved away or replaced while in use would take acknowledged
        # entries with it.
        if not is_file(self.disk, self.path, segment.identity):
            self.verify_sealed(segment)
        self.verify_beside()

    def verify_sealed(self, segment: Segment) -> None:
        if not is_file(self.disk, self.paths.sealed(segment.base), segment.identity):
            raise LedgerDamagedError(
                "the ledger is gone, or was replaced by another file while in use",
                where=ascii(self.path),
            )

    def verify_beside(self) -> None:
        # Threat: who removes the folder has the next writer make another lock and another head
        # file, and two that do not see each other would put aside what the other one wrote.
        for path, identity in self._beside.items():
            if not is_file(self.disk, path, identity):
                raise LedgerDamagedError(
                    "the folder beside the ledger was removed or replaced while in use",
                    where=ascii(path),
                    hint="end every process that has the ledger open, and start again",
                )

    def follow(self) -> None:
        with ExitStack() as opened:
            descriptor = self.disk.open(self.path, APPENDING)
            opened.callback(self.disk.close, descriptor)
            self._take_over(descriptor)
            if self.active.descriptor == descriptor:
                opened.pop_all()

    def _take_over(self, descriptor: int) -> None:
        """Go on in an open file; finish or take back a rotation that was killed."""
        found, starts = find_newest(self.disk, self.paths, descriptor)
        if starts and is_file(self.disk, self.paths.sealed(starts[-1]), found.identity):
            self.disk.unlink(None, self.paths.sealed(starts.pop()))
        if self.head.read().base != found.base:
            # Whoever made the name may have been killed before it was durable.
            sync_directory(self.disk, self.paths.parent)
            self.head.store_base(found.base)
        if found.identity == self.active.identity:
            # A commit may be on its way through the descriptor that we have.
            found = found._replace(descriptor=self.active.descriptor)
        self._go_on(found, starts)

    def rotate(self, end: int) -> None:
        """Seal the segment, all of it durable, and go on in a new one that begins at `end`.

        The append lock is held. After a failure `follow` finds out how far it came. Killed
        before the rename, the file has both names: whoever holds the lock next takes the sealed
        one away. Killed after it, the base is still cleared: whoever holds the lock next looks
        at the names, syncs the directory, and stores it. So nothing is appended to a sealed
        file, and no entry is acknowledged in one whose name could go.
        """
        disk, paths, before = self.disk, self.paths, self.active
        # Threat: a file that was put in our place would be sealed as ours.
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
                raise LedgerDamagedError(
                    "another file stands where a segment of the ledger belongs",
                    where=ascii(paths.sealed(before.base)),
                ) from fault
            # Were the rename durable and the link not, a power cut would take the full file.
            sync_directory(disk, paths.parent)
            disk.replace(None, paths.next, None, paths.ledger)
            sync_directory(disk, paths.parent)
            self.head.store_base(end)
            opened.pop_all()
        self._go_on(Segment(descriptor, end, identity), self.starts)

    def _go_on(self, segment: Segment, starts: list[int]) -> None:
        with self.syncing:
            before, self.active, self.starts = self.active, segment, [*starts, segment.base]
            if before.descriptor not in {-1, segment.descriptor}:
                # Nobody syncs through the old one any more: all in it is durable.
                self.disk.close(before.descriptor)

    def close(self) -> None:
        self.ballast.close()
        for each in (self.active, self.head, self.commit_lock, self.lock):
            self.disk.close(each.descriptor)


def _verify_place(disk: Disk, paths: LedgerPaths, *, may_create: bool) -> None:
    with failing("the ledger's folder cannot be used", paths.folder):
        try:
            device = disk.stat(paths.parent).st_dev
            mounts = read_proc("/proc/self/mountinfo")
            verify_local(mounts, os.major(device), os.minor(device), paths.parent)
            if not may_create:
                disk.stat(paths.ledger)
            _make_directory(disk, paths.folder)
        except FileNotFoundError as fault:
            raise HostError("there is no ledger here", where=ascii(paths.ledger)) from fault


def _open_ledger(disk: Disk, paths: LedgerPaths, first_body: bytes | None) -> int:
    try:
        return disk.open(paths.ledger, APPENDING)
    except FileNotFoundError:
        if first_body is None:
            raise
    _verify_never_made(disk, paths)
    _make_ledger(disk, paths, first_body)
    return disk.open(paths.ledger, APPENDING)


def _verify_never_made(disk: Disk, paths: LedgerPaths) -> None:
    # Threat: whoever removes the ledger alone would have it replaced by an empty one. Its head
    # file is made after it, and synced.
    try:
        disk.stat(paths.head)
    except FileNotFoundError:
        if not list_starts(disk, paths):
            return
    raise LedgerDamagedError(
        "the ledger is gone: its head file or its segments say that there was one",
        where=ascii(paths.ledger),
        hint="restore it from a backup",
    )


def _make_ledger(disk: Disk, paths: LedgerPaths, first_body: bytes) -> None:
    descriptor = open_new(disk, paths.new)
    try:
        disk.write(descriptor, chain_line(first_body, 0, PREV_OF_GENESIS) + b"\n")
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.link(None, paths.new, None, paths.ledger)
    disk.unlink(None, paths.new)
    sync_directory(disk, paths.parent)


# The append lock is held in all that follows.
#
# A writer that was killed leaves whole lines that no mark covers yet, and perhaps a torn one; a
# power cut may leave less than was written, or garbage. So, inside the lock, go on from a mark M
# and compare the line before it:
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
#     then a line that is no such entry        torn tail (*)           damage
#     then bytes without LF                    torn tail               torn tail
#     no whole line at all                     -                       damage
#
# (*) damage where both slots of the append's mark are torn, as no crash does that.
# An append's mark of an older boot says nothing: a power cut may have undone it.


def find_tail(text: LedgerText, page: HeadPage, boot: bytes) -> tuple[Mark, int]:
    start = verify_marks(text, page, boot)
    size = text.size()
    end = start or NOTHING_DURABLE
    for _, lines, has_end in split_lines(text.read, end.offset_bytes, size):
        # Threat: a line by hand that chains and is no entry, as with a key given twice, would
        # be gone on from, signed, and read by each reader in another way.
        leaves = fitting_leaves(lines, end.entries, end.leaf) if has_end else []
        if leaves:
            taken = sum(map(len, lines[: len(leaves)])) + len(leaves)
            entries, offset = end.entries + len(leaves), end.offset_bytes + taken
            end = Mark(end.generation, entries, offset, leaves[-1].hex(), end.boot)
        if len(leaves) < len(lines):
            break
    else:
        has_end = False
    if end.entries == 0 or (has_end and (start is None or page.newest is None)):
        # Threat: without the head file, any bad line could pass for a crash's. Only a last
        # line without an end can be one.
        raise LedgerDamagedError(
            "the ledger has a bad line",
            where=f"{text.path!a}, line {end.entries + 1}, byte {end.offset_bytes}",
            hint="paddock ledger verify says more",
        )
    known = [each.generation for each in (page.newest, page.durable) if each]
    # A mark of its own: nothing of an old commit's fate is carried over.
    generation = max(known, default=0) + 1
    return Mark(generation, end.entries, end.offset_bytes, end.leaf, boot), size


def verify_marks(text: LedgerText, page: HeadPage, boot: bytes) -> Mark | None:
    marks = believable_marks(page, boot)
    size = text.size()
    if marks and size < marks[-1].offset_bytes:
        raise LedgerDamagedError(
            f"the ledger was cut: {size} bytes are left of {marks[-1].offset_bytes}",
            where=ascii(text.path),
            hint="compare with a backup and with exported checkpoints",
        )
    for mark in marks:
        # Threat: a byte put in or taken out moves every later line; then the
        # end of an acknowledged entry would pass for a torn tail.
        line = line_before(text.read, mark.offset_bytes)
        if line is None or leaf_hash(line) != mark.leaf:
            raise LedgerDamagedError(
                "the ledger has another line than was written",
                where=f"{text.path!a}, line {mark.entries}, before byte {mark.offset_bytes}",
                hint="paddock ledger verify says more; compare with a backup",
            )
    return marks[-1] if marks else None


def quarantine(files: LedgerFiles, end: Mark, size: int) -> None:
    """Copy the torn tail aside, durably, then cut it off."""
    disk, paths, segment = files.disk, files.paths, files.active
    start, descriptor = end.offset_bytes - segment.base, segment.descriptor
    if start < 0:
        raise LedgerDamagedError(
            "the ledger has a bad line in a sealed segment",
            where=f"{paths.ledger!a}, line {end.entries + 1}, byte {end.offset_bytes}",
            hint="paddock ledger verify says more",
        )
    draft, chunk = f"{paths.torn}/draft", limits.ledger_scan_chunk_bytes
    with failing("the torn end of the ledger cannot be put aside", paths.ledger):
        _make_directory(disk, paths.torn)
        target = open_new(disk, draft)
        try:
            places = range(start, size - segment.base, chunk)
            digest = write_chunks(
                (disk.pread(descriptor, chunk, at) for at in places), disk, target
            )
            disk.sync(target)
        finally:
            disk.close(target)
        name = f"{end.offset_bytes}-{digest.removeprefix(DIGEST_PREFIX)}{_PENDING}"
        disk.replace(None, draft, None, f"{paths.torn}/{name}")
        sync_directory(disk, paths.torn)
        disk.ftruncate(descriptor, start)


def list_pending(disk: Disk, paths: LedgerPaths) -> list[tuple[str, Entry]]:
    """The quarantined pieces that still need their entry, in the order of their place."""
    with failing("quarantined bytes cannot be listed", paths.torn):
        try:
            names = disk.listdir(paths.torn)
        except FileNotFoundError:
            return []
        # Threat: a name is recorded, and whoever can write here may give any.
        named = sorted(
            (int(found[1]), found[2]) for found in map(_PENDING_NAME.fullmatch, names) if found
        )
        return [
            (f"{paths.torn}/{offset}-{digest}", _recovered(disk, paths, offset, digest))
            for offset, digest in named
        ]


def _recovered(disk: Disk, paths: LedgerPaths, offset: int, digest: str) -> Entry:
    return Entry(
        LEDGER_RECOVERED,
        reason="the file ended in the middle of an append",
        metadata={
            "bytes": disk.stat(f"{paths.torn}/{offset}-{digest}{_PENDING}").st_size,
            "offset": offset,
            "digest": DIGEST_PREFIX + digest,
            "file": f"torn/{offset}-{digest}",
        },
    )


def mark_reported(disk: Disk, paths: LedgerPaths, pieces: list[tuple[str, Entry]]) -> None:
    with failing("quarantined bytes cannot be renamed", paths.torn):
        for path, _ in pieces:
            disk.replace(None, f"{path}{_PENDING}", None, path)
        sync_directory(disk, paths.torn)


def _make_directory(disk: Disk, path: str) -> None:
    try:
        disk.make_directory(None, path, 0o700)
    except FileExistsError:
        return
    sync_directory(disk, os.path.dirname(path) or ".")


NETWORK_FILE_SYSTEMS: Final = frozenset(
    (
        "9p afs beegfs ceph cifs coda fuse.ceph fuse.davfs2 fuse.gcsfuse fuse.glusterfs "
        "fuse.juicefs fuse.rclone fuse.s3fs fuse.sshfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 "
        "ocfs2 orangefs panfs smb3 smbfs"
    ).split()
)


def find_file_system(mountinfo: str, major: int, minor: int) -> str | None:
    wanted = f"{major}:{minor}"
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 6 and fields[2] == wanted and "-" in fields[6:]:
            after = fields[fields.index("-", 6) + 1 :]
            return after[0] if after else None
    return None


def verify_local(mountinfo: str, major: int, minor: int, path: str) -> None:
    """Refuse a network file system. What is not listed counts as local: none hides so."""
    found = find_file_system(mountinfo, major, minor)
    if found in NETWORK_FILE_SYSTEMS:
        raise HostError(
            f"a ledger cannot live on a network file system ({found})",
            where=ascii(path),
            hint="put the plane on a local disk",
        )
