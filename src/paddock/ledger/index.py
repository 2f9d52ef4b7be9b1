"""The runs of a ledger that are posted, and posting those that are not.

Posting is lazy: a search that has to read far does it, for whoever asks next. Runs are
whole files that appear by rename(2), `offsets` last, after their bytes were synced; so a
run is there or not, whenever a process is killed. One process posts at a time
(`index.lock`); another one searches the lines meanwhile.

A sealed segment gets one run. In the newest, a run takes in those right before it that
are no longer than what is new: each line is posted some few times, and there are few runs.
"""

import fcntl
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from paddock import limits
from paddock.ledger.disk import Disk, SystemDisk, open_new
from paddock.ledger.format.encoding import leaf_hash
from paddock.ledger.format.posting_files import FOLDERS, RUN_BYTES_MAX, Kind, RunBuilder
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.postings import Run, StaleRunError, parse_run_name, run_name, run_path
from paddock.ledger.reading import LedgerReader
from paddock.ledger.segments import READING

_PIECE_BYTES: Final = 1 << 20
_RUNS_OPEN_MAX: Final = 64
_DRAFT: Final = "draft"


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of lines within one segment: with the run that posts them, or without."""

    start: int
    end: int
    run: Run | None


class PostingIndex:
    def __init__(self, disk: Disk, paths: LedgerPaths) -> None:
        self._disk = disk
        self._paths = paths
        self._ranges: list[tuple[int, int]] = []
        self._seen = 0
        self._runs: dict[tuple[int, int], Run] = {}
        self._distrusted: set[tuple[int, int]] = set()

    def close(self) -> None:
        """Close every file."""
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    @property
    def ranges(self) -> Sequence[tuple[int, int]]:
        """Where each run begins and ends, by the names alone, as they were at `refresh`."""
        return tuple(self._ranges)

    def refresh(self) -> None:
        """Look which runs there are by now."""
        folder = self._folder(Kind.OFFSETS)
        try:
            seen = self._disk.stat(folder).st_mtime_ns
            if seen == self._seen:
                return
            names = self._disk.list(folder)
        except OSError:
            names, seen = [], 0
        self._seen = seen
        found = [parse_run_name(name) for name in names]
        # Of runs that begin together the longest comes first.
        self._ranges = sorted(
            (each for each in found if each is not None), key=lambda each: (each[0], -each[1])
        )
        for gone in [each for each in self._runs if each not in set(self._ranges)]:
            self._runs.pop(gone).close()

    def plan(self, start: int, end: int) -> list[Piece]:
        """Cut a range within one segment into posted pieces and others, in order."""
        pieces: list[Piece] = []
        at = start
        for low, high in self._ranges:
            if low < at or high > end or (low, high) in self._distrusted:
                continue
            if low > at:
                pieces.append(Piece(at, low, None))
            pieces.append(Piece(low, high, self._run(low, high)))
            at = high
        if at < end:
            pieces.append(Piece(at, end, None))
        return pieces

    def distrust(self, run: Run) -> None:
        """Do without a run that does not fit; whoever posts next replaces it."""
        run.close()
        self._seen = 0
        self._runs.pop((run.start, run.end), None)
        self._distrusted.add((run.start, run.end))

    def post(self, reader: LedgerReader, segment: tuple[int, int], piece: Piece) -> bool:
        """Post a piece of a segment, with what there is right before it; whether it is done.

        False where another process is at it, where it cannot be written, or where one
        of the lines is no entry's: then a search has to read the lines.
        """
        is_sealed = segment[1] <= reader.text.active.base
        start = segment[0] if is_sealed else self._first(segment[0], piece)
        end = segment[1] if is_sealed else piece.end
        try:
            lock = self._lock()
        except OSError:
            return False
        try:
            files = _build(reader, start, end)
            if files is None:
                return False
            self._publish(files, start, end)
            self._tidy(start, end)
        except OSError:
            return False
        finally:
            self._disk.close(lock)
        self._distrusted.discard((start, end))
        known = self._runs.pop((start, end), None)
        if known is not None:
            known.close()
        self._seen = 0
        self.refresh()
        return (start, end) in self._ranges

    def _first(self, segment_start: int, piece: Piece) -> int:
        """Where the new run begins, so that runs become longer and not many."""
        start = piece.start
        before = [each for each in self.plan(segment_start, piece.start) if each.run is not None]
        for each in reversed(before):
            if each.end != start or each.end - each.start > piece.end - start:
                break
            start = each.start
        return start

    def _run(self, start: int, end: int) -> Run:
        run = self._runs.get((start, end))
        if run is None:
            if len(self._runs) >= _RUNS_OPEN_MAX:
                for each in self._runs.values():
                    each.close()
            run = self._runs[start, end] = Run(self._disk, self._paths, start, end)
        return run

    def _folder(self, kind: Kind) -> str:
        return os.path.join(self._paths.folder, FOLDERS[kind])

    def _lock(self) -> int:
        """Raises: OSError where another process has it."""
        path = os.path.join(self._paths.folder, "index.lock")
        lock = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._disk.lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self._disk.close(lock)
            raise
        return lock

    def _publish(self, files: dict[Kind, bytes], start: int, end: int) -> None:
        """Give each file its name after its bytes were synced, `offsets` last. Raises: OSError."""
        disk = self._disk
        for kind in sorted(files, reverse=True):
            folder = self._folder(kind)
            _make_directory(disk, folder)
            draft = os.path.join(folder, _DRAFT)
            descriptor = open_new(disk, draft)
            try:
                content, written = files[kind], 0
                while written < len(content):
                    written += disk.write(descriptor, content[written:], written)
                disk.sync(descriptor)
            finally:
                disk.close(descriptor)
            disk.rename(draft, os.path.join(folder, run_name(start, end)))

    def _tidy(self, start: int, end: int) -> None:
        """Remove the runs that the new one takes in. Raises: OSError."""
        for kind in sorted(FOLDERS):
            folder = self._folder(kind)
            for name in self._disk.list(folder):
                found = parse_run_name(name)
                if found is None or found == (start, end):
                    continue
                if start < found[1] and found[0] < end:
                    self._disk.remove(os.path.join(folder, name))


def _make_directory(disk: Disk, path: str) -> None:
    try:
        disk.make_directory(path, 0o700)
    except FileExistsError:
        return


def _build(reader: LedgerReader, start: int, end: int) -> dict[Kind, bytes] | None:
    """The files of a run; None where a line is no entry's. Raises: HostError."""
    if not 0 < end - start <= RUN_BYTES_MAX:
        return None
    builder = RunBuilder(start)
    position, carry, last = start, b"", b""
    while position < end:
        piece = reader.read(min(_PIECE_BYTES, end - position), position)
        position += len(piece)
        whole = piece.rfind(b"\n") + 1
        if not piece or (not whole and len(carry) > limits.entry_bytes_max):
            return None
        if not whole:
            carry += piece
            continue
        lines = carry + piece[:whole]
        if not builder.take(lines):
            return None
        last = lines[lines.rfind(b"\n", 0, -1) + 1 : -1]
        carry = piece[whole:]
    return None if carry or not last else builder.finish(leaf_hash(last))


def find_wrong_runs(path: str) -> list[str]:
    """Return the names of runs that a search might believe, and that say what is not so.

    Reads every line that is posted. Runs that fit the ledger in no way are not named:
    they count as none anyway.

    Raises: HostError: the ledger cannot be read. LedgerDamagedError: a segment is missing.
    """
    disk, paths = SystemDisk(), LedgerPaths(path)
    index = PostingIndex(disk, paths)
    with LedgerReader(path) as reader, closing(index):
        index.refresh()
        # Threat: a name that hides another. A search that finds a run not to fit takes the next
        # one of that place, so each is looked at, and not only those that are taken first.
        wrong = [each for each in index.ranges if _is_wrong(disk, paths, reader, *each)]
    return sorted(run_name(*each) for each in wrong)


def _is_wrong(disk: Disk, paths: LedgerPaths, reader: LedgerReader, start: int, end: int) -> bool:
    with closing(Run(disk, paths, start, end)) as run:
        try:
            run.verify(reader)
        except StaleRunError:
            return False
    files = _build(reader, start, end)
    return files is None or any(
        _says_otherwise(disk, run_path(paths, kind, start, end), content)
        for kind, content in files.items()
    )


def _says_otherwise(disk: Disk, path: str, content: bytes) -> bool:
    """Whether a file of a run holds something else. One that cannot be read says nothing."""
    try:
        descriptor = disk.open(path, READING)
    except OSError:
        # Threat: a search that needs it does without this run; others believe what is left.
        return False
    try:
        return disk.read(descriptor, len(content) + 1, 0) != content
    except OSError:
        return False
    finally:
        disk.close(descriptor)


def segment_ranges(reader: LedgerReader, end: int) -> Sequence[tuple[int, int]]:
    """Where each segment begins and ends, up to `end`, the newest first."""
    starts = [*reader.text.starts(), end]
    found = [(low, high) for low, high in pairwise(starts) if low < high]
    found.reverse()
    return found
