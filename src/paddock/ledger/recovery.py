"""What to do where the file does not end at the head's mark, and whether it may be used at all.

A writer that was killed leaves whole lines that no mark covers yet, and perhaps
a torn one; a power cut may leave less than was written, or garbage. So, inside
the lock, go on from a mark M and compare the line before it:

    newest append's mark   newest commit's   M
    of this boot           whole             the farther of the two; both compared
    of this boot           torn              the append's
    older boot, or torn    whole             the commit's
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
"Older boot" is also a boot that is not known; "torn", both slots of the record.
An append's mark of an older boot says nothing: a power cut may have undone it.
Where the disk failed since this boot, nothing is recovered (commit.py).

A torn tail is copied to `torn/`, the copy synced, then it is cut off, and that is
recorded in an entry. Nothing is thrown away, and nothing is appended to a line
that has no end. Damage is refused and left as it is.

A quarantined piece is `OFFSET-SHA256.pending` until its entry is durable, so
that a crash in between reports it later (at worst twice, never not at all).
"""

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.disk import Disk, failure, open_new
from paddock.ledger.format.encoding import chain_tail, leaf_hash
from paddock.ledger.format.lines import StoredEntry, inspect_line
from paddock.ledger.head import NOTHING_DURABLE, HeadPage, Mark
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.segments import LedgerText, Segment, sync_directory
from paddock.values.entries import DIGEST_PREFIX, LEDGER_RECOVERED, Entry

_PENDING: Final = ".pending"
_PENDING_NAME: Final = re.compile(r"(\d{1,16})-([0-9a-f]{64})\.pending", re.ASCII)
_LINE_BYTES_USUAL: Final = 4096


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a ledger file: the mark after its last good line, and the bytes that follow."""

    mark: Mark
    size_bytes: int

    @property
    def torn_bytes(self) -> int:
        """How much follows the last good line."""
        return self.size_bytes - self.mark.offset_bytes


def find_tail(text: LedgerText, page: HeadPage, boot: bytes, path: str) -> Tail:
    """Return where the good lines end. The append lock is held.

    Raises:
        LedgerDamagedError: what is there is no crash's work.
    """
    start = verify_marks(text, page, boot, path)
    try:
        size = text.size()
        mark, has_end = _adopt(text, start or NOTHING_DURABLE, size)
    except OSError as fault:
        raise failure(fault, "the ledger cannot be read", path) from fault
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
    return Tail(Mark(generation + 1, mark.entries, mark.offset_bytes, mark.leaf, boot), size)


def verify_marks(text: LedgerText, page: HeadPage, boot: bytes, path: str) -> Mark | None:
    """Return the mark to go on from; None where there is none. The append lock is held.

    Reads one line a mark, however long the ledger is.

    Raises:
        LedgerDamagedError: the file is shorter than a mark, or the line before
            a mark is not the one that was written there.
        HostError: the disk failed.
    """
    marks = page.believable(boot)
    try:
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
            if leaf_hash(_line_before(text, mark.offset_bytes)) != mark.leaf:
                raise LedgerDamagedError(
                    "the ledger has another line than was written",
                    where=f"{path!a}, line {mark.entries}, before byte {mark.offset_bytes}",
                    hint="paddock ledger verify says more; compare with a backup",
                )
    except OSError as fault:
        raise failure(fault, "the ledger cannot be read", path) from fault
    return marks[-1] if marks else None


def _line_before(text: LedgerText, end: int) -> bytes:
    """The line whose LF is the byte before `end`; what no line can be, where there is none."""
    size = _LINE_BYTES_USUAL
    while True:
        start = max(0, end - size)
        piece = text.read(end - start, start)
        if not piece.endswith(b"\n") or len(piece) < end - start:
            return b""
        before = piece.rfind(b"\n", 0, -1)
        if before >= 0 or start == 0 or len(piece) > limits.entry_bytes_max + 1:
            return piece[before + 1 : -1]
        size *= 16


def _adopt(text: LedgerText, start: Mark, size: int) -> tuple[Mark, bool]:
    """Follow the chain from `start`; also say whether an LF follows what stopped it."""
    entries, offset, leaf = start.entries, start.offset_bytes, start.leaf
    buffered, at = b"", offset
    while True:
        end = buffered.find(b"\n")
        if end < 0:
            chunk = b""
            if len(buffered) <= limits.entry_bytes_max and at < size:
                chunk = text.read(min(limits.ledger_scan_chunk_bytes, size - at), at)
            if not chunk:
                end_follows = _holds_end(text, at, size)
                return start._replace(entries=entries, offset_bytes=offset, leaf=leaf), end_follows
            at += len(chunk)
            buffered += chunk
            continue
        line, buffered = buffered[:end], buffered[end + 1 :]
        if not _follows(line, entries, leaf):
            return start._replace(entries=entries, offset_bytes=offset, leaf=leaf), True
        entries, offset, leaf = entries + 1, offset + len(line) + 1, leaf_hash(line)


def _holds_end(text: LedgerText, at: int, size: int) -> bool:
    """Whether an LF stands anywhere from `at` on: a line may be longer than any can be."""
    while at < size:
        chunk = text.read(min(limits.ledger_scan_chunk_bytes, size - at), at)
        if b"\n" in chunk or not chunk:
            return bool(chunk)
        at += len(chunk)
    return False


def _follows(line: bytes, seq: int, prev: str) -> bool:
    """Whether a line is what a writer put here: a torn one cannot have the fixed end."""
    # Threat: a line by hand that chains and is no entry, as with a key given twice, would be
    # gone on from, signed, and read by each reader in another way.
    return line.endswith(chain_tail(seq, prev)) and isinstance(inspect_line(line), StoredEntry)


def quarantine(disk: Disk, segment: Segment, paths: LedgerPaths, tail: Tail) -> None:
    """Copy the torn tail aside, durably, then cut it off. The append lock is held.

    Only the newest segment can have one: all before it was durable when it was sealed.

    Raises:
        LedgerDamagedError: the bad bytes stand in a sealed segment.
        LedgerFullError: no space for the copy; nothing was cut.
        HostError: the copy or the cut failed.
    """
    start, size = tail.mark.offset_bytes, tail.size_bytes
    if start < segment.base:
        raise LedgerDamagedError(
            "the ledger has a bad line in a sealed segment",
            where=f"{paths.ledger!a}, line {tail.mark.entries + 1}, byte {start}",
            hint="paddock ledger verify says more",
        )
    draft = os.path.join(paths.torn, "draft")
    try:
        _make_directory(disk, paths.torn)
        at = start - segment.base
        digest = _copy(disk, segment.descriptor, at, size - segment.base, draft)
        disk.rename(draft, os.path.join(paths.torn, f"{start}-{digest}{_PENDING}"))
        sync_directory(disk, paths.torn)
        disk.truncate(segment.descriptor, at)
    except OSError as fault:
        raise failure(
            fault, "the torn end of the ledger cannot be put aside", paths.ledger
        ) from fault


def _copy(disk: Disk, source: int, start: int, end: int, path: str) -> str:
    """Copy bytes of the ledger into a file of their own; return their SHA-256."""
    digest = sha256()
    target = open_new(disk, path)
    try:
        at = start
        while at < end:
            chunk = disk.read(source, min(limits.ledger_scan_chunk_bytes, end - at), at)
            if not chunk:
                raise OSError("the ledger became shorter")
            digest.update(chunk)
            written = 0
            while written < len(chunk):
                written += disk.write(target, chunk[written:], at - start + written)
            at += len(chunk)
        disk.sync(target)
    finally:
        disk.close(target)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Quarantined:
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
        names = disk.list(paths.torn)
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


def settle(disk: Disk, paths: LedgerPaths, pieces: list[Quarantined]) -> None:
    """Mark pieces as reported, now that their entries are durable."""
    try:
        for piece in pieces:
            disk.rename(piece.path, piece.path.removesuffix(_PENDING))
        sync_directory(disk, paths.torn)
    except OSError as fault:
        raise failure(fault, "quarantined bytes cannot be renamed", paths.torn) from fault


def _make_directory(disk: Disk, path: str) -> None:
    try:
        disk.make_directory(path, 0o700)
    except FileExistsError:
        return
    sync_directory(disk, os.path.dirname(path))
