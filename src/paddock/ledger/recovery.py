"""A ledger's open files: made, rotated, and recovered where they do not end at their mark.

A ledger appears whole: GENESIS is written and synced under another name, then linked to its
own, then the directory is synced. There is never an empty ledger, so an empty file is damage.

On a network file system locks are advisory between hosts at best, a page cache is not
shared, and a successful sync says little. Such file systems are refused by their type in
mountinfo (proc_pid_mountinfo(5)), found by device number, so that no name is resolved again.

A writer that was killed leaves whole lines that no mark covers yet, and perhaps
a torn one; a power cut may leave less than was written, or garbage. So, inside
the lock, go on from a mark M and compare the line before it:

    newest append's mark   durable mark      M
    of this boot           whole             the farther of the two; both compared
    of this boot           torn              the append's
    older boot, or torn    whole             the durable one
    older boot, or torn    torn              none

    file                                     with M                  without M
    shorter than M                           damage                  -
    other line before M, or no LF            damage                  -
    ends at M                                go on                   -
    longer: entries that chain               adopted                 adopted, from line 0
    then a line that is no such entry        torn tail (*)           damage
    then bytes without LF                    torn tail               torn tail
    no whole line at all                     -                       damage

(*) damage where both slots of the append's mark are torn, as no crash does that.
An append's mark of an older boot says nothing: a power cut may have undone it.
Where the disk failed since this boot, nothing is recovered.

A torn tail is copied to `torn/`, the copy synced, then it is cut off, and an entry records it.
Until that is durable the piece is named `.pending`: a crash in between reports it later, at
worst twice. Nothing is appended to a line that has no end.
"""

import os
import re
import stat
import threading
from contextlib import closing
from hashlib import sha256
from typing import Final

from msgspec import Struct, field

from paddock import limits
from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.line import PREV_OF_GENESIS, chain_line, chain_tail, leaf_hash
from paddock.ledger.format.lines import (
    Genesis,
    StoredEntry,
    inspect_line,
)
from paddock.ledger.head import Ballast, FileLock, Waiting, open_head, read_proc
from paddock.ledger.read import believable_marks
from paddock.ledger.segments import (
    APPENDING,
    Identity,
    LedgerPaths,
    LedgerText,
    Segment,
    failing,
    failure,
    find_identity,
    find_newest,
    list_starts,
    open_new,
    split_lines,
    sync_directory,
)
from paddock.ledger.tail import NOTHING_DURABLE, HeadFile, HeadPage, Mark, is_file, line_before
from paddock.pattern import lazy_pattern
from paddock.storage.disk import Disk
from paddock.values.entries import DIGEST_PREFIX, LEDGER_RECOVERED, Entry

_PENDING: Final = ".pending"
_PENDING_NAME: Final = lazy_pattern(r"(\d{1,16})-([0-9a-f]{64})\.pending", re.ASCII)


class LedgerFiles(Struct):
    """The open files of one ledger in one process, and what it knows of its own syncs."""

    disk: Disk
    paths: LedgerPaths
    lock: FileLock
    commit_lock: FileLock
    head: HeadFile
    segment: Segment
    """The newest one; another file from rotation to rotation."""
    starts: list[int]
    genesis: Genesis
    ballast: Ballast
    beside: tuple[tuple[str, Identity], ...]
    syncing: threading.Lock = field(default_factory=threading.Lock)
    """Held while the newest segment is synced, and while it becomes another one."""
    written_bytes: int = 0
    synced_bytes: int = 0
    """All before it was synced through these files."""
    is_poisoned: bool = False

    def text(self) -> LedgerText:
        """The whole ledger, to be read under the lock; closed by the caller."""
        return LedgerText(self.disk, self.paths, self.starts, self.segment)

    def verify_in_place(self, segment: Segment) -> None:
        """Refuse if a segment, or what keeps writers apart, is not in its place any more.

        Threat: a ledger that was moved away or replaced while in use would take acknowledged
        entries with it.
        """
        ledger = self.paths.ledger
        try:
            if find_identity(self.disk, ledger) != segment.identity:
                self.verify_sealed(segment)
        except OSError as fault:
            raise LedgerDamagedError(
                f"the ledger is gone: {fault.strerror}", where=ascii(ledger)
            ) from fault
        self.verify_beside()

    def verify_sealed(self, segment: Segment) -> None:
        if not is_file(self.disk, self.paths.sealed(segment.base), segment.identity):
            raise LedgerDamagedError(
                "the ledger was replaced by another file while in use",
                where=ascii(self.paths.ledger),
            )

    def verify_beside(self) -> None:
        """Refuse if what keeps writers apart is not in its place any more.

        Threat: who removes the folder has the next writer make another lock and another head
        file, and two that do not see each other would put aside what the other one wrote.
        """
        for path, identity in self.beside:
            if not is_file(self.disk, path, identity):
                raise LedgerDamagedError(
                    "the folder beside the ledger was removed or replaced while in use",
                    where=ascii(path),
                    hint="end every process that has the ledger open, and start again",
                )

    def follow(self) -> None:
        """Open what is the newest segment by now. The append lock is held."""
        descriptor = self.disk.open(self.paths.ledger, APPENDING)
        try:
            found, starts = _settle(self.disk, self.paths, descriptor, self.head)
        except BaseException:
            self.disk.close(descriptor)
            raise
        before = self.segment
        if found.identity == before.identity:
            # A commit may be on its way through the descriptor that we have.
            found, before = found._replace(descriptor=before.descriptor), found
        with self.syncing:
            self.segment, self.starts = found, starts
            self.disk.close(before.descriptor)

    def rotate(self, end: int) -> None:
        """Seal the segment, all of it durable, and go on in a new one that begins at `end`.

        The append lock is held. After a failure `follow` finds out how far it came.
        """
        disk, paths, head, before = self.disk, self.paths, self.head, self.segment
        # Threat: a file that was put in our place would be sealed as ours.
        self.verify_in_place(before)
        descriptor = open_new(disk, paths.next, APPENDING)
        try:
            disk.sync(descriptor)
            identity = find_identity(disk, descriptor)
            head.store_base(None)
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
            head.store_base(end)
        except BaseException:
            disk.close(descriptor)
            raise
        with self.syncing:
            self.segment = Segment(descriptor, end, identity)
            self.starts = [*self.starts, before.base]
            # Nobody syncs through the old one any more: all in it is durable.
            disk.close(before.descriptor)

    def close(self) -> None:
        self.ballast.close()
        for each in (self.segment, self.head, self.commit_lock, self.lock):
            self.disk.close(each.descriptor)


def _settle(
    disk: Disk, paths: LedgerPaths, descriptor: int, head: HeadFile
) -> tuple[Segment, list[int]]:
    """Take over an open file; finish or take back a rotation that was killed. Under the lock."""
    segment, starts = find_newest(disk, paths, descriptor)
    if starts and is_file(disk, paths.sealed(starts[-1]), segment.identity):
        disk.unlink(None, paths.sealed(starts.pop()))
    if head.read().base != segment.base:
        # Whoever made the name may have been killed before it was durable.
        sync_directory(disk, paths.parent)
        head.store_base(segment.base)
    return segment, starts


def open_files(
    disk: Disk, paths: LedgerPaths, waiting: Waiting, first_body: bytes | None
) -> LedgerFiles:
    """Open everything; make the ledger from the body of its GENESIS where there is none.

    Raises:
        HostError: no ledger and nothing to make it from; a network file system;
            no regular file; a format that is not known; the disk failed.
        LedgerDamagedError: the file does not begin with GENESIS.
        LedgerBusyError: another process is making or repairing it.
    """
    _verify_place(disk, paths, may_create=first_body is not None)
    opened: list[int] = []
    try:
        lock = FileLock(disk, paths.lock, waiting)
        opened.append(lock.descriptor)
        with lock:
            descriptor = _open_ledger(disk, paths, first_body)
            opened.append(descriptor)
            if not stat.S_ISREG(disk.stat(descriptor).st_mode):
                raise HostError("a ledger is a regular file", where=ascii(paths.ledger))
            head = open_head(disk, paths.head)
            opened.append(head.descriptor)
            segment, starts = _settle(disk, paths, descriptor, head)
            with closing(LedgerText(disk, paths, starts, segment)) as text:
                genesis = text.genesis(paths.ledger)
        commit_lock = FileLock(disk, paths.commit_lock, waiting)
        opened.append(commit_lock.descriptor)
        beside = tuple(
            (path, find_identity(disk, each.descriptor))
            for path, each in (
                (paths.lock, lock),
                (paths.commit_lock, commit_lock),
                (paths.head, head),
            )
        )
        ballast = Ballast(disk, paths.folder)
        return LedgerFiles(
            disk, paths, lock, commit_lock, head, segment, starts, genesis, ballast, beside
        )
    except BaseException as fault:
        for each in opened:
            disk.close(each)
        if isinstance(fault, OSError):
            raise failure(fault, "the ledger cannot be opened", paths.ledger) from fault
        raise


def _verify_place(disk: Disk, paths: LedgerPaths, *, may_create: bool) -> None:
    try:
        device = disk.stat(paths.parent).st_dev
        verify_local(
            read_proc("/proc/self/mountinfo"), os.major(device), os.minor(device), paths.parent
        )
        if not may_create:
            disk.stat(paths.ledger)
        _make_directory(disk, paths.folder)
    except FileNotFoundError as fault:
        raise HostError("there is no ledger here", where=ascii(paths.ledger)) from fault
    except OSError as fault:
        raise failure(fault, "the ledger's folder cannot be used", paths.folder) from fault


def _open_ledger(disk: Disk, paths: LedgerPaths, first_body: bytes | None) -> int:
    with failing("the ledger cannot be opened", paths.ledger):
        try:
            return disk.open(paths.ledger, APPENDING)
        except FileNotFoundError:
            if first_body is None:
                raise
            _verify_never_made(disk, paths)
            _make_ledger(disk, paths, first_body)
            return disk.open(paths.ledger, APPENDING)


def _verify_never_made(disk: Disk, paths: LedgerPaths) -> None:
    """Refuse to begin anew where a ledger was: its head file is made after it, and synced.

    Threat: whoever removes the ledger alone would have it replaced by an empty one.
    """
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
    line = chain_line(first_body, 0, PREV_OF_GENESIS) + b"\n"
    descriptor = open_new(disk, paths.new)
    try:
        disk.write(descriptor, line)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.link(None, paths.new, None, paths.ledger)
    disk.unlink(None, paths.new)
    sync_directory(disk, paths.parent)


def find_tail(text: LedgerText, page: HeadPage, boot: bytes, path: str) -> tuple[Mark, int]:
    """Return the mark after the last good line, and where the bytes end. Under the append lock.

    Raises: LedgerDamagedError.
    """
    start = verify_marks(text, page, boot, path)
    with failing("the ledger cannot be read", path):
        size = text.size()
        mark, has_end = _adopt(text, start or NOTHING_DURABLE, size)
    if mark.entries == 0 or (has_end and (start is None or page.newest is None)):
        # Threat: without the head file, any bad line could pass for a crash's.
        # Only a last line without an end can be one. No crash tears both slots of
        # the append's mark, so without it the head file is not what we wrote either.
        raise LedgerDamagedError(
            "the ledger has a bad line",
            where=f"{path!a}, line {mark.entries + 1}, byte {mark.offset_bytes}",
            hint="paddock ledger verify says more",
        )
    generation = max(
        (known.generation for known in (page.newest, page.durable) if known), default=0
    )
    # A mark of its own: nothing of an old commit's fate is carried over.
    return Mark(generation + 1, mark.entries, mark.offset_bytes, mark.leaf, boot), size


def verify_marks(text: LedgerText, page: HeadPage, boot: bytes, path: str) -> Mark | None:
    """Return the mark to go on from; None where there is none. The append lock is held.

    Reads one line a mark, however long the ledger is.

    Raises:
        LedgerDamagedError: the file is shorter than a mark, or the line before
            a mark is not the one that was written there.
        HostError: the disk failed.
    """
    marks = believable_marks(page, boot)
    with failing("the ledger cannot be read", path):
        size = text.size()
        if marks and size < marks[-1].offset_bytes:
            raise LedgerDamagedError(
                f"the ledger was cut: {size} bytes are left of {marks[-1].offset_bytes}",
                where=ascii(path),
                hint="compare with a backup and with exported checkpoints",
            )
        for mark in marks:
            # Threat: a byte put in or taken out moves every later line; then the
            # end of an acknowledged entry would pass for a torn tail.
            line = line_before(text.read, mark.offset_bytes)
            if line is None or leaf_hash(line) != mark.leaf:
                raise LedgerDamagedError(
                    "the ledger has another line than was written",
                    where=f"{path!a}, line {mark.entries}, before byte {mark.offset_bytes}",
                    hint="paddock ledger verify says more; compare with a backup",
                )
    return marks[-1] if marks else None


def _adopt(text: LedgerText, start: Mark, size: int) -> tuple[Mark, bool]:
    """Return where the lines end that go on from a mark, and whether a whole other one follows."""
    entries, offset, leaf = start.entries, start.offset_bytes, start.leaf
    has_end = False
    for _, lines, has_end in split_lines(text.read, offset, size):
        for line in lines:
            if not has_end or not _follows(line, entries, leaf):
                found = start.changed(entries=entries, offset_bytes=offset, leaf=leaf)
                return found, has_end
            entries, offset, leaf = entries + 1, offset + len(line) + 1, leaf_hash(line)
    return start.changed(entries=entries, offset_bytes=offset, leaf=leaf), False


def _follows(line: bytes, seq: int, prev: str) -> bool:
    # Threat: a line by hand that chains and is no entry, as with a key given twice, would be
    # gone on from, signed, and read by each reader in another way.
    return line.endswith(chain_tail(seq, prev)) and isinstance(inspect_line(line), StoredEntry)


def quarantine(disk: Disk, segment: Segment, paths: LedgerPaths, end: Mark, size: int) -> None:
    """Copy the torn tail aside, durably, then cut it off. The append lock is held.

    Only the newest segment can have one: all before it was durable when it was sealed.
    """
    start = end.offset_bytes
    if start < segment.base:
        raise LedgerDamagedError(
            "the ledger has a bad line in a sealed segment",
            where=f"{paths.ledger!a}, line {end.entries + 1}, byte {start}",
            hint="paddock ledger verify says more",
        )
    draft = os.path.join(paths.torn, "draft")
    with failing("the torn end of the ledger cannot be put aside", paths.ledger):
        _make_directory(disk, paths.torn)
        at = start - segment.base
        digest = _copy(disk, segment.descriptor, at, size - segment.base, draft)
        disk.replace(None, draft, None, os.path.join(paths.torn, f"{start}-{digest}{_PENDING}"))
        sync_directory(disk, paths.torn)
        disk.ftruncate(segment.descriptor, at)


def _copy(disk: Disk, source: int, start: int, end: int, path: str) -> str:
    digest = sha256()
    target = open_new(disk, path)
    try:
        at = start
        while at < end:
            chunk = disk.pread(source, min(limits.ledger_scan_chunk_bytes, end - at), at)
            if not chunk:
                raise OSError("the ledger became shorter")
            digest.update(chunk)
            disk.write(target, chunk)
            at += len(chunk)
        disk.sync(target)
    finally:
        disk.close(target)
    return digest.hexdigest()


class Quarantined(Struct, frozen=True):
    """A torn piece that no entry reports yet."""

    path: str
    offset: int
    digest: str
    size_bytes: int

    def entry(self) -> Entry:
        return Entry(
            LEDGER_RECOVERED,
            reason="the file ended in the middle of an append",
            metadata={
                "bytes": self.size_bytes,
                "offset": self.offset,
                "digest": DIGEST_PREFIX + self.digest,
                "file": f"torn/{self.offset}-{self.digest}",
            },
        )


def list_pending(disk: Disk, paths: LedgerPaths) -> list[Quarantined]:
    """Return the quarantined pieces that still need their entry, in the order of their place."""
    try:
        names = disk.listdir(paths.torn)
    except FileNotFoundError:
        return []
    except OSError as fault:
        raise failure(fault, "quarantined bytes cannot be listed", paths.torn) from fault
    found: list[Quarantined] = []
    for name in names:
        # Threat: a name is recorded, and whoever can write here may give any.
        named = _PENDING_NAME.fullmatch(name)
        if named is not None:
            path = os.path.join(paths.torn, name)
            found.append(Quarantined(path, int(named[1]), named[2], disk.stat(path).st_size))
    return sorted(found, key=lambda piece: piece.offset)


def mark_reported(disk: Disk, paths: LedgerPaths, pieces: list[Quarantined]) -> None:
    with failing("quarantined bytes cannot be renamed", paths.torn):
        for piece in pieces:
            disk.replace(None, piece.path, None, piece.path.removesuffix(_PENDING))
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
