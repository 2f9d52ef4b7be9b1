"""Verifying a ledger: every line, every link, every checkpoint, and where it stops being true.

The chain shows, without any key: an edit, a deletion, an insertion, a swap, another
encoding of the same values, a key given twice, bytes that are no entry. Checkpoints
that are held elsewhere show what it cannot: a ledger that was cut, restored, or
chained anew. What they do not cover is stated.

Two passes: one hashes (`verify_hashes`), at some three times the price of reading
each byte once, and parses what no checkpoint covers, or all where it is asked to (whoever
signs parses first); where it finds anything, the other (`verify_lines`) parses all, to say
what and where.
"""

import os
from collections.abc import Sequence
from typing import Final

from paddock.errors import LedgerDamagedError
from paddock.ledger.disk import failure
from paddock.ledger.format.lines import BadLine, Genesis, VerifierKey, inspect_line
from paddock.ledger.head import Mark
from paddock.ledger.ports import Head
from paddock.ledger.read import LedgerReader, read_first, whole_lines
from paddock.ledger.verify.passes import HashPass, check_lines
from paddock.ledger.verify.results import (
    Agreement,
    ChainFault,
    CheckpointComparison,
    Held,
    LedgerProblem,
    Opened,
    Remembered,
    Unanswered,
    Verification,
    kept_beside,
    open_all,
)

__all__: Final = [
    "Agreement",
    "ChainFault",
    "Held",
    "LedgerProblem",
    "Remembered",
    "Unanswered",
    "Verification",
    "verify",
]


def verify(
    path: str,
    *,
    held: Sequence[Held] = (),
    since: Remembered | None = None,
    parse_all: bool = False,
) -> Verification:
    """Say what is wrong with the ledger, and where.

    `held` are checkpoints from elsewhere; those beside the ledger are compared too.
    `since` is what a verification before remembered: files that are as they were then
    are not read again. With `parse_all` each line that is read is parsed, also those that
    a checkpoint covers: some ten times the price.

    What the head file says is compared only where the lines by themselves are
    whole; a ledger without its head file is judged by its lines alone.

    Raises:
        HostError: there is no ledger, it cannot be read, or its format is not
            known. Nothing that stands in the file raises anything else.
        ConfigError: a checkpoint beside it cannot be read.
    """
    with LedgerReader(path) as reader:
        page = reader.marks()
        reader.keep_up()  # they may stand in a segment that was made since
        marks = [] if page is None else page.believable(reader.boot())
        notes = [*kept_beside(path), *held]
        if since is not None and since.files != _touched(reader, len(since.files)):
            since = None
        return _Verifying(reader, marks, notes, since, parse_all=parse_all).run()


class _Verifying:
    """One verification of an open ledger."""

    def __init__(
        self,
        reader: LedgerReader,
        marks: list[Mark],
        notes: Sequence[Held],
        since: Remembered | None,
        *,
        parse_all: bool,
    ) -> None:
        self._reader = reader
        self._marks = marks
        self._notes = notes
        self._since = since
        self._parse_all = parse_all
        self._size = reader.size()
        self._opened: list[Opened] = []

    def run(self) -> Verification:
        end = self._end()
        genesis = self._genesis()
        if genesis is None or end is None:
            return self._by_lines(genesis)
        self._opened = open_all(self._notes, VerifierKey.parse(genesis.public_key))
        sizes = [each.checkpoint.size for each in self._opened if each.checkpoint is not None]
        outside = [
            each.checkpoint.size
            for each in self._opened
            if each.checkpoint is not None and each.held.is_outside
        ]
        if self._since is not None and max(outside, default=0) < self._since.size:
            # What covers the ledger ends in what would not be read.
            self._since = None
        sealed_end = self._reader.text.active.base
        hashes = HashPass([*sizes, *(mark.entries for mark in self._marks)], self._since)
        if hashes.size == 0:
            self._since = None
        if hashes.offset < sealed_end:
            hashes.run(self._reader, sealed_end)
        memory = self._remember(hashes)
        if hashes.is_sound:
            hashes.run(self._reader, end)
        if not hashes.is_sound or not self._marks_agree(hashes):
            return self._by_lines(genesis)
        comparison = self._compare(hashes.size, end, hashes)
        if not self._parses(hashes, comparison):
            return self._by_lines(genesis)
        comparison.locate(self._reader)
        return Verification(
            path=self._reader.path,
            entries=hashes.size,
            head=Head(hashes.size - 1, hashes.leaf),
            genesis=genesis,
            problems=tuple(comparison.problems),
            problems_omitted=0,
            unanswered=hashes.unanswered(),
            torn_bytes=self._size - end,
            covered_entries=_covered(comparison),
            agreements=tuple(comparison.agreements),
            unread_entries=0 if self._since is None else self._since.size,
            memory=None if comparison.problems else memory,
        )

    def _by_lines(self, genesis: Genesis | None) -> Verification:
        """Something does not fit: look at every line."""
        check = check_lines(self._reader, list(self._marks))
        problems = list(check.problems)
        if not problems:
            # The two passes must agree; what one of them doubts is not whole.
            doubt = "the line's place does not fit, by its hash"
            problems.append(LedgerProblem(ChainFault.CHANGED, check.lines, check.entries, 0, doubt))
        if genesis is not None:
            comparison = CheckpointComparison(check.lines, self._size)
            for each in self._opened:
                comparison.take(each, _unknown)
            problems += comparison.problems
        return Verification(
            path=self._reader.path,
            entries=check.entries,
            head=check.head,
            genesis=check.genesis,
            problems=tuple(problems),
            problems_omitted=check.problems_omitted,
            unanswered=check.unanswered(),
            torn_bytes=check.torn_bytes,
        )

    def _end(self) -> int | None:
        """Where the last whole line ends; None where the files do not join."""
        end = 0
        for segment in self._reader.segments():
            if segment.start != end:
                return None
            end = segment.end
            if segment.is_newest:
                break
            if not segment.size_bytes or self._reader.read(1, end - 1) != b"\n":
                return None
        return self._reader.whole_bytes(self._size)

    def _genesis(self) -> Genesis | None:
        """What line 0 says; None where it says nothing. Raises: HostError."""
        try:
            return read_first(self._reader)
        except LedgerDamagedError:
            return None

    def _marks_agree(self, hashes: HashPass) -> bool:
        known = 0 if self._since is None else self._since.size
        return all(mark.entries <= known or hashes.agrees_with(mark) for mark in self._marks)

    def _compare(self, entries: int, end: int, hashes: HashPass) -> CheckpointComparison:
        comparison = CheckpointComparison(entries, end)
        for each in self._opened:
            comparison.take(each, hashes.roots.get)
        return comparison

    def _parses(self, hashes: HashPass, comparison: CheckpointComparison) -> bool:
        """Whether every line that no checkpoint covers, or every one, is as a writer writes it."""
        known = 0 if self._since is None else self._since.size
        covered = max((each.size for each in comparison.agreements), default=known)
        start = 0
        if covered > known and not self._parse_all:
            start, _ = hashes.places[covered]
        elif self._since is not None:
            start = self._since.offset_bytes
        return not any(
            isinstance(inspect_line(line), BadLine)
            for _, lines in whole_lines(self._reader, start, hashes.offset)
            for line in lines
        )

    def _remember(self, hashes: HashPass) -> Remembered | None:
        """What the next verification may build on: the sealed files, found whole."""
        sealed = self._reader.text.sealed
        if not hashes.is_sound or not sealed:
            return None
        return Remembered(
            files=_touched(self._reader, len(sealed)),
            size=hashes.size,
            offset_bytes=hashes.offset,
            leaf=hashes.leaf,
            edge=tuple(each.hex() for each in hashes.growing.hashes()),
            intents=hashes.unanswered(),
        )


def _touched(reader: LedgerReader, count: int) -> tuple[tuple[int, ...], ...]:
    """The first so many sealed files, and when each was last changed, as the system says.

    Raises: HostError.
    """
    found: list[tuple[int, ...]] = []
    for each in reader.text.sealed[:count]:
        try:
            status = os.stat(each.path, follow_symlinks=False)
        except OSError as fault:
            raise failure(
                fault, "a segment of the ledger cannot be looked at", each.path
            ) from fault
        found.append(
            (each.start, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        )
    return tuple(found)


def _covered(comparison: CheckpointComparison) -> int:
    return max((each.size for each in comparison.agreements if each.is_outside), default=0)


def _unknown(size: int) -> bytes | None:
    del size
    return None
