"""What a collector keeps of each host, as values, and the port that keeps it. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.line import PREV_OF_GENESIS, leaf_hash
from paddock.ledger.format.lines import (
    BadLine,
    StoredEntry,
    VerifierKey,
    inspect_line,
    parse_genesis,
)
from paddock.ledger.format.notes import EMPTY_ROOT, Checkpoint, Growing, NoteError, open_note
from paddock.values.entries import GENESIS


class Chain(Struct, frozen=True):
    host: str
    ledger: str
    tier: str
    key: VerifierKey


class ChainHead(Struct, frozen=True):
    """How far a chain was taken in: an accepted checkpoint, and what the next lines go on from.

    `edge` is the tree's right edge, the smallest subtree first. It is not signed, and need
    not be: from a wrong one no later root comes out right.
    """

    size: int
    root: bytes
    leaf: str
    edge: tuple[bytes, ...]
    note: str


NOTHING_YET: Final = ChainHead(0, EMPTY_ROOT, PREV_OF_GENESIS, (), "")
"""Of a chain that was enrolled and not pushed."""


class Accepted(Struct, frozen=True):
    """`at` is by the store's clock (RFC 3339, UTC)."""

    head: ChainHead
    at: str


class Offer(Struct, frozen=True):
    """Lines `start` to `stop` of a host's ledger, and the checkpoint that covers them.

    All of it is a claim. `edge` is the right edge of the tree of the lines before `start`, as the
    sender has them: from there the lines make the signed root, whatever is here. `number` is the
    store's, in the order of arrival; `sender` is whom the store knows the connection by.
    """

    host: str
    ledger: str
    start: int
    stop: int
    note: str
    edge: tuple[bytes, ...] = ()
    number: int = 0
    sender: str = ""


class RefusalCode(StrEnum):
    NOT_ENROLLED = "collector.not_enrolled"
    NOTE = "collector.note"
    """No checkpoint that the enrolled key signed."""
    SIZE = "collector.size"
    """Not as many lines as the checkpoint says."""
    GAP = "collector.gap"
    """Lines between what is here and what is offered are missing."""
    BEHIND = "collector.behind"
    """All of it is here already: an offer that was sent twice, or an older one. Dropped, and
    not kept: nothing is wrong with who sent it."""
    LINE = "collector.line"
    """Bytes that are no entry."""
    GENESIS = "collector.genesis"
    """Line 0 is not that of the enrolled ledger."""
    CHAIN = "collector.chain"
    """A line does not follow the one before it."""
    FORKED = "collector.forked"
    """Other lines than those that were taken in before, which the key signed: two histories
    of one ledger."""
    ROOT = "collector.root"
    """The lines do not make the root that was signed."""


class OfferRefusal(Struct, frozen=True):
    code: RefusalCode
    message: str


class Refused(Struct, frozen=True):
    offer: Offer
    refusal: OfferRefusal
    at: str
    times: int


class Progress(Struct, frozen=True):
    """What a pushing host may know of one of its chains.

    `waiting` is how far this sender's offers reach that nobody has looked at yet, 0 for none;
    `refused` the code of its last offer that was refused since something was taken in.
    """

    ledger: str
    accepted: int
    waiting: int
    refused: str


# Signature first: whoever does not have the key costs one verification, and no reading of
# lines. Then each line: an entry byte for byte as a writer writes it, its number and its link.
# At the end the tree's root, which is computed here and has to be the one that was signed.
#
# Threat: a checkpoint is public, and anybody who may push can send one with lines of his own
# under it. So lines that depart from what is here are a second history only where they are those
# that were signed.
#
# Pure: what was taken in before comes as arguments.


def open_offer(chain: Chain, head: ChainHead, offer: Offer) -> Checkpoint | OfferRefusal:
    try:
        checkpoint = open_note(offer.note, chain.key).checkpoint
    except NoteError as fault:
        return OfferRefusal(RefusalCode.NOTE, fault.message)
    if checkpoint.size != offer.stop or not 0 <= offer.start < offer.stop:
        return OfferRefusal(
            RefusalCode.SIZE,
            f"lines {offer.start} to {offer.stop} are offered, and {checkpoint.size} were signed",
        )
    if offer.start > head.size:
        return OfferRefusal(
            RefusalCode.GAP, f"{head.size} lines are here, and line {offer.start} is offered next"
        )
    if checkpoint.size != head.size:
        return checkpoint
    if checkpoint.root == head.root:
        return _behind(head)
    return OfferRefusal(
        RefusalCode.FORKED, f"another root of the first {head.size} lines was signed before"
    )


def _behind(head: ChainHead) -> OfferRefusal:
    return OfferRefusal(RefusalCode.BEHIND, f"{head.size} lines are here already")


class Judging:
    def __init__(
        self,
        chain: Chain,
        head: ChainHead,
        offer: Offer,
        checkpoint: Checkpoint,
        stored: Callable[[int, int], Iterable[bytes]],
    ) -> None:
        """`stored` gives lines that were taken in before, by number: first, and one past last."""
        self._chain = chain
        self._head = head
        self._offer = offer
        self._checkpoint = checkpoint
        self._stored = stored
        self._seq = offer.start
        self._leaf: str = head.leaf
        # An edge of the wrong size is damage: no root comes out right, which `end` says.
        self._growing = Growing.from_hashes(head.size, head.edge) or Growing()
        self._departed = ""
        self._theirs: Growing | None = None
        """The tree of lines that departed, from the sender's edge; None where that is none."""

    def take(self, lines: Sequence[bytes]) -> list[bytes] | OfferRefusal:
        if self._seq + len(lines) > self._checkpoint.size:
            return OfferRefusal(
                RefusalCode.SIZE, f"more lines than the {self._checkpoint.size} that were signed"
            )
        if not self._departed:
            self._find_departure(lines)
        if self._departed:
            self._seq += len(lines)
            if self._theirs is not None:
                self._theirs.extend([bytes.fromhex(leaf_hash(line)) for line in lines])
            return []
        known = max(0, min(len(lines), self._head.size - self._seq))
        self._seq += known
        new = list(lines[known:])
        for line in new:
            refusal = self._follow(line)
            if refusal is not None:
                return refusal
        return new

    def end(self) -> ChainHead | OfferRefusal:
        wanted = self._checkpoint
        if self._seq != wanted.size:
            return OfferRefusal(
                RefusalCode.SIZE, f"the lines end at {self._seq}, and {wanted.size} were signed"
            )
        if self._departed:
            return self._refuse_departed()
        if wanted.size <= self._head.size:
            return _behind(self._head)
        root = self._growing.root()
        if root != wanted.root:
            return OfferRefusal(
                RefusalCode.ROOT, f"the root of the first {wanted.size} lines is not the signed one"
            )
        return ChainHead(
            wanted.size, root, self._leaf, tuple(self._growing.hashes()), self._offer.note
        )

    def _find_departure(self, lines: Sequence[bytes]) -> None:
        known = max(0, min(len(lines), self._head.size - self._seq))
        different = self._find_different(lines[:known]) if known else None
        if different is not None:
            self._departed = f"line {self._seq + different} is here with other bytes"
            self._begin_theirs()
        elif known < len(lines) and self._seq + known == self._head.size > 0:
            # Threat: a host that was put back, or made anew, goes on from another last line.
            found = inspect_line(lines[known])
            if (
                isinstance(found, StoredEntry)
                and found.seq == self._head.size
                and found.prev != self._leaf
            ):
                self._departed = f"line {found.seq} does not follow the line before it"
                self._begin_theirs()

    def _find_different(self, lines: Sequence[bytes]) -> int | None:
        here = list(self._stored(self._seq, self._seq + len(lines)))
        pairs = zip(lines, here, strict=False)
        found = (number for number, (each, other) in enumerate(pairs) if each != other)
        return next(found, None if len(here) == len(lines) else len(here))

    def _begin_theirs(self) -> None:
        """The tree of the sender's lines, up to those that come now: so far they are as here."""
        theirs = Growing.from_hashes(self._offer.start, self._offer.edge)
        if theirs is not None:
            for line in self._stored(self._offer.start, self._seq):
                theirs.extend([bytes.fromhex(leaf_hash(line))])
        self._theirs = theirs

    def _refuse_departed(self) -> OfferRefusal:
        if self._theirs is not None and self._theirs.root() == self._checkpoint.root:
            return OfferRefusal(RefusalCode.FORKED, self._departed)
        return OfferRefusal(
            RefusalCode.ROOT, f"{self._departed}, and what is offered does not make the signed root"
        )

    def _follow(self, line: bytes) -> OfferRefusal | None:
        seq = self._seq
        found = inspect_line(line)
        if isinstance(found, BadLine):
            return OfferRefusal(RefusalCode.LINE, f"line {seq}: {found.fault}: {found.detail}")
        if found.seq != seq or found.prev != self._leaf:
            return OfferRefusal(RefusalCode.CHAIN, f"line {seq} does not follow the line before it")
        refusal = self._refuse_genesis(found)
        if refusal is not None:
            return refusal
        leaf = found.leaf
        self._growing.extend([bytes.fromhex(leaf)])
        self._seq, self._leaf = seq + 1, leaf
        return None

    def _refuse_genesis(self, found: StoredEntry) -> OfferRefusal | None:
        if found.seq:
            is_second = found.entry.event_type == GENESIS
            return (
                OfferRefusal(RefusalCode.CHAIN, f"line {found.seq} is GENESIS")
                if is_second
                else None
            )
        try:
            genesis = parse_genesis(found)
        except (LedgerDamagedError, HostError) as fault:
            return OfferRefusal(RefusalCode.GENESIS, fault.message)
        chain = self._chain
        wanted = (chain.key.name, chain.tier, str(chain.key))
        if (genesis.origin, genesis.tier, genesis.public_key) == wanted:
            return None
        return OfferRefusal(
            RefusalCode.GENESIS,
            f"line 0 is of {genesis.origin!a} ({genesis.tier!a}), and the key of "
            f"{chain.key.name!a} ({chain.tier}) is enrolled",
        )


# `PostgresStore` keeps this port, and so does `MemoryCollector`.

OFFERS_MAX: Final = 1_000
"""As many are looked at in one go, however many a sender lays down."""


class Taking(Protocol):
    """One chain, locked until the block is left; then all of it is kept, or after an error none."""

    # How far the chain was taken in.
    @property
    def head(self) -> ChainHead: ...

    # Whether the offer still waits: another process may have been first.
    @property
    def is_waiting(self) -> bool: ...

    # The offer's lines in order, each with its LF, many in a part.
    def parts(self) -> Iterator[bytes]: ...

    # Lines that were taken in before.
    def stored(self, start: int, stop: int) -> Iterable[bytes]: ...

    def add(self, start: int, lines: Sequence[bytes]) -> None: ...

    # Keep the accepted checkpoint; the offer is done with.
    def keep(self, head: ChainHead) -> None: ...


class Store(Protocol):
    """Keeps the chains of many hosts, never changed or removed. Raises, each method: HostError."""

    # Let a host push a ledger; False if so already. Raises: ConfigError: another key.
    def enroll(self, chain: Chain) -> bool: ...

    # All that are enrolled, by host and ledger.
    def chains(self) -> Sequence[Chain]: ...

    # The checkpoints of a chain that were accepted, the newest last.
    def accepted(self, chain: Chain) -> Sequence[Accepted]: ...

    def newest(self, chain: Chain) -> Accepted | None: ...

    # Every line that was taken in, with its number, in order. In a `steady` block.
    def lines(self, chain: Chain) -> Iterator[tuple[int, bytes]]: ...

    # What a pushing host may know of its chains, by ledger.
    def progress(self, host: str) -> Sequence[Progress]: ...

    # Lay an offer down, all of it or nothing. Nobody looked at it yet.
    def send(self, offer: Offer, parts: Iterable[bytes]) -> None: ...

    # Return the first `OFFERS_MAX` that wait, of those after the number `after`.
    def offers(self, after: int = 0) -> Sequence[Offer]: ...

    # How far the offers that wait for a chain reach, by whomever; 0 for none.
    def waiting(self, chain: Chain) -> int: ...

    # Lock this chain alone, to take an offer in. Raises: HostError.
    def taking(self, chain: Chain, offer: Offer) -> AbstractContextManager[Taking]: ...

    # Drop an offer that waits. Raises: HostError: also where another holds it.
    def drop(self, offer: Offer) -> None: ...

    # Drop an offer that waits, and keep why. Raises: HostError: as `drop`.
    def refuse(self, offer: Offer, refusal: OfferRefusal) -> None: ...

    # What was refused of a chain, enrolled or not: one for each code, by code.
    # Threat: who refuses to be quiet must not push what matters out of sight.
    def refused(self, host: str, ledger: str) -> Sequence[Refused]: ...

    # A block in which every answer is of one moment.
    def steady(self) -> AbstractContextManager[None]: ...

    def close(self) -> None: ...
