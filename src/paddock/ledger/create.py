"""Opening the files of a ledger, and making them where there are none.

A ledger appears whole: GENESIS is written and synced under another name, then
linked to its own, then the directory is synced. There is never an empty ledger,
so an empty file is damage.
"""

import os
import stat
from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.commit import GroupCommit
from paddock.ledger.disk import Disk, Waiting, failure, open_new
from paddock.ledger.format.encoding import PREV_OF_GENESIS, chain_line
from paddock.ledger.format.genesis import Genesis, parse_genesis
from paddock.ledger.format.lines import parse_line
from paddock.ledger.head import HeadFile
from paddock.ledger.lock import FileLock
from paddock.ledger.mounts import verify_local
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.place import LedgerPlace
from paddock.ledger.reserve import Ballast
from paddock.ledger.segments import (
    APPENDING,
    ActiveSegment,
    LedgerText,
    list_starts,
    sync_directory,
)

_GENESIS_BYTES_USUAL: Final = 4096


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """The open files of one ledger in one process."""

    disk: Disk
    paths: LedgerPaths
    active: ActiveSegment
    lock: FileLock
    commit_lock: FileLock
    head: HeadFile
    commit: GroupCommit
    ballast: Ballast
    genesis: Genesis
    place: LedgerPlace

    def close(self) -> None:
        """Close every descriptor; locks that only they hold are released."""
        self.ballast.close()
        for descriptor in (
            self.active.current.descriptor,
            self.head.descriptor,
            self.commit_lock.descriptor,
            self.lock.descriptor,
        ):
            self.disk.close(descriptor)


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
        lock.acquire()
        try:
            descriptor = _open_ledger(disk, paths, first_body)
            opened.append(descriptor)
            _verify_regular(disk, descriptor, paths)
            head = HeadFile(disk, paths.head, create=True)
            opened.append(head.descriptor)
            active = ActiveSegment(disk, paths, descriptor)
            active.settle(head)
            genesis = read_genesis(active.text(), paths.ledger)
        finally:
            lock.release()
        commit_lock = FileLock(disk, paths.commit_lock, waiting)
        opened.append(commit_lock.descriptor)
        apart = (lock, commit_lock, head)
        beside = tuple((each.path, each.descriptor) for each in apart)
        place = LedgerPlace(disk, paths.ledger, active, beside)
        commit = GroupCommit(disk, head, commit_lock, active=active, place=place, waiting=waiting)
        ballast = Ballast(disk, paths.folder)
        return LedgerFiles(
            disk, paths, active, lock, commit_lock, head, commit, ballast, genesis, place
        )
    except BaseException as fault:
        for each in opened:
            disk.close(each)
        if isinstance(fault, OSError):
            raise failure(fault, "the ledger cannot be opened", paths.ledger) from fault
        raise


def read_genesis(text: LedgerText, path: str) -> Genesis:
    """Return what line 0 says; closes the text.

    Raises:
        LedgerDamagedError: it is not GENESIS.
        HostError: a format that is not known; the disk failed.
    """
    try:
        start = text.read(_GENESIS_BYTES_USUAL, 0)
        if b"\n" not in start:
            start = text.read(limits.entry_bytes_max + 1, 0)
    except OSError as fault:
        raise failure(fault, "the ledger cannot be read", path) from fault
    finally:
        text.close()
    line, end, _ = start.partition(b"\n")
    if not end:
        raise LedgerDamagedError(
            "the ledger has no first line", where=ascii(path), hint="was it emptied?"
        )
    return parse_genesis(parse_line(line))


def _verify_place(disk: Disk, paths: LedgerPaths, *, may_create: bool) -> None:
    try:
        device = disk.stat(paths.parent).st_dev
        verify_local(_read_mountinfo(), os.major(device), os.minor(device), paths.parent)
        if not may_create:
            disk.stat(paths.ledger)
        try:
            disk.make_directory(paths.folder, 0o700)
        except FileExistsError:
            return
        sync_directory(disk, paths.parent)
    except FileNotFoundError as fault:
        raise HostError("there is no ledger here", where=ascii(paths.ledger)) from fault
    except OSError as fault:
        raise failure(fault, "the ledger's folder cannot be used", paths.folder) from fault


def _open_ledger(disk: Disk, paths: LedgerPaths, first_body: bytes | None) -> int:
    try:
        try:
            return disk.open(paths.ledger, APPENDING)
        except FileNotFoundError:
            if first_body is None:
                raise
            _verify_never_made(disk, paths)
            _make_ledger(disk, paths, first_body)
            return disk.open(paths.ledger, APPENDING)
    except OSError as fault:
        raise failure(fault, "the ledger cannot be opened", paths.ledger) from fault


def _verify_never_made(disk: Disk, paths: LedgerPaths) -> None:
    """Refuse to begin anew where a ledger was: its head file is made after it, and synced.

    Threat: whoever removes the ledger alone would have it replaced by an empty one.

    Raises:
        LedgerDamagedError: there is a head file, or a sealed segment.
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


def _verify_regular(disk: Disk, descriptor: int, paths: LedgerPaths) -> None:
    if not stat.S_ISREG(disk.stat(descriptor).st_mode):
        raise HostError("a ledger is a regular file", where=ascii(paths.ledger))


def _make_ledger(disk: Disk, paths: LedgerPaths, first_body: bytes) -> None:
    """Write, sync, link, sync the directory: the name appears with its content or not at all."""
    line = chain_line(first_body, 0, PREV_OF_GENESIS) + b"\n"
    descriptor = open_new(disk, paths.new)
    try:
        written = 0
        while written < len(line):
            written += disk.write(descriptor, line[written:], written)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    disk.link(paths.new, paths.ledger)
    disk.remove(paths.new)
    sync_directory(disk, paths.parent)


def _read_mountinfo() -> str:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
