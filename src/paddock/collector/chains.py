"""Values that a collector stores for each host, judging offers, and the store port. Pure."""

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
    """The newest accepted checkpoint of a chain, and the state that later lines continue from.

    `edge` is the tree's right edge, the smallest subtree first. It need not be signed: with a wrong
    edge no later root would match.
    """

    size: int
    root: bytes
    leaf: str
    edge: tuple[bytes, ...]
    note: str


NOTHING_YET: Final = ChainHead(0, EMPTY_ROOT, PREV_OF_GENESIS, (), "")
"""The head of a chain that is enrolled but was never pushed."""


class Accepted(Struct, frozen=True):
    """An accepted checkpoint; `at` is from the store's clock (RFC 3339, UTC)."""

    head: ChainHead
    at: str


class Offer(Struct, frozen=True):
    """Lines `start` to `stop` of a host's ledger, and the checkpoint that covers them.

    All fields are unverified. `edge` is the right edge of the sender's tree before `start`; from it
    the lines should produce the signed root, whatever the store has. The store sets `number`, in
    the order of arrival, and `sender`, from the connection.
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
    """The note is not a checkpoint signed by the enrolled key."""
    SIZE = "collector.size"
    """The number of lines does not match the checkpoint."""
    GAP = "collector.gap"
    """Lines between the accepted and the offered ones are missing."""
    BEHIND = "collector.behind"
    """All lines are already here: a repeated or older offer. It is dropped without a record,
    because the sender did nothing wrong."""
    LINE = "collector.line"
    """A line is not a valid entry."""
    GENESIS = "collector.genesis"
    """Line 0 is not from the enrolled ledger."""
    CHAIN = "collector.chain"
    """A line does not follow the one before it."""
    FORKED = "collector.forked"
    """The key signed lines that differ from the accepted ones: two histories of one ledger."""
    ROOT = "collector.root"
    """The lines do not produce the signed root."""


class OfferRefusal(Struct, frozen=True):
    code: RefusalCode
    message: str


class Refused(Struct, frozen=True):
    offer: Offer
    refusal: OfferRefusal
    at: str
    times: int


class Progress(Struct, frozen=True):
    """The state of a chain as far as a pushing host may see it.

    `waiting` is how far this sender's pending offers reach, 0 for none; `refused` is the code of
    its last offer refused since one was accepted.
    """

    ledger: str
    accepted: int
    waiting: int
    refused: str


# Check the signature first: a sender without the key costs one verification, and no lines are read.
# Then check each line's canonical bytes, number and link. At the end, the root computed here must
# be the signed one.
#
# Threat: checkpoints are public, and anyone who may push can send one with forged lines. So lines
# that differ from the accepted ones are a second history only if they match the signed root.


def open_offer(chain: Chain, head: ChainHead, offer: Offer) -> Checkpoint | OfferRefusal:
    try:
        checkpoint = open_note(offer.note, chain.key).checkpoint
    except NoteError as fault:
        return OfferRefusal(RefusalCode.NOTE, fault.message)
    if checkpoint.size != offer.stop or not 0 <= offer.start < offer.stop:
        return OfferRefusal(
            RefusalCode.SIZE,
            f"lines {offer.start} to {offer.stop} are offered, but {checkpoint.size} were signed",
        )
    if offer.start > head.size:
        return OfferRefusal(
            RefusalCode.GAP, f"{head.size} lines are here, but line {offer.start} is offered next"
        )
    if checkpoint.size != head.size:
        return checkpoint
    if checkpoint.root == head.root:
        return _behind(head)
    return OfferRefusal(
        RefusalCode.FORKED, f"a different root of the first {head.size} lines was accepted before"
    )


def _behind(head: ChainHead) -> OfferRefusal:
    return OfferRefusal(RefusalCode.BEHIND, f"{head.size} lines are already here")


class Judging:
    def __init__(
        self,
        chain: Chain,
        head: ChainHead,
        offer: Offer,
        checkpoint: Checkpoint,
        stored: Callable[[int, int], Iterable[bytes]],
    ) -> None:
        """`stored` returns accepted lines by number: first, and one past the last."""
        self._chain = chain
        self._head = head
        self._offer = offer
        self._checkpoint = checkpoint
        self._stored = stored
        self._seq = offer.start
        self._leaf: str = head.leaf
        # An edge of the wrong size is damage: the root will not match, which `end` reports.
        self._growing = Growing.from_hashes(head.size, head.edge) or Growing()
        self._departed = ""
        self._theirs: Growing | None = None
        """The tree of differing lines, from the sender's edge; None if that is invalid."""

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
                RefusalCode.SIZE, f"the lines end at {self._seq}, but {wanted.size} were signed"
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
            self._departed = f"line {self._seq + different} differs from the accepted one"
            self._begin_theirs()
        elif known < len(lines) and self._seq + known == self._head.size > 0:
            # Threat: a restored or recreated host continues from another last line.
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
        """Start the sender's tree with the lines so far, which match the accepted ones."""
        theirs = Growing.from_hashes(self._offer.start, self._offer.edge)
        if theirs is not None:
            for line in self._stored(self._offer.start, self._seq):
                theirs.extend([bytes.fromhex(leaf_hash(line))])
        self._theirs = theirs

    def _refuse_departed(self) -> OfferRefusal:
        if self._theirs is not None and self._theirs.root() == self._checkpoint.root:
            return OfferRefusal(RefusalCode.FORKED, self._departed)
        return OfferRefusal(
            RefusalCode.ROOT, f"{self._departed}, and the lines do not produce the signed root"
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
            f"line 0 is from {genesis.origin!a} ({genesis.tier!a}), but the key of "
            f"{chain.key.name!a} ({chain.tier}) is enrolled",
        )


# The store port, which `PostgresStore` implements.

OFFERS_MAX: Final = 1_000
"""The number of offers processed in one batch, however many a sender sends."""


class Taking(Protocol):
    """One chain, locked until the block ends, which commits everything, or nothing on an error."""

    # The newest accepted head of the chain.
    @property
    def head(self) -> ChainHead: ...

    # False if another process has handled the offer meanwhile.
    @property
    def is_waiting(self) -> bool: ...

    # The offer's lines in order, each with LF, many per part.
    def parts(self) -> Iterator[bytes]: ...

    # Accepted lines.
    def stored(self, start: int, stop: int) -> Iterable[bytes]: ...

    def add(self, start: int, lines: Sequence[bytes]) -> None: ...

    # Store the accepted checkpoint and remove the offer.
    def keep(self, head: ChainHead) -> None: ...


class Store(Protocol):
    """Stores the chains of many hosts; rows are only added. Every method may raise HostError."""

    # Allow a host to push a ledger; False if already enrolled. Raises: ConfigError: another key.
    def enroll(self, chain: Chain) -> bool: ...

    # All enrolled chains, by host and ledger.
    def chains(self) -> Sequence[Chain]: ...

    # The accepted checkpoints of a chain, the newest last.
    def accepted(self, chain: Chain) -> Sequence[Accepted]: ...

    def newest(self, chain: Chain) -> Accepted | None: ...

    # Every accepted line with its number, in order. Call it in a `steady` block.
    def lines(self, chain: Chain) -> Iterator[tuple[int, bytes]]: ...

    # The progress of a host's chains, by ledger.
    def progress(self, host: str) -> Sequence[Progress]: ...

    # Store an offer, completely or not at all. It is pending until a process handles it.
    def send(self, offer: Offer, parts: Iterable[bytes]) -> None: ...

    # Return the first `OFFERS_MAX` pending offers with a number greater than `after`.
    def offers(self, after: int = 0) -> Sequence[Offer]: ...

    # How far the pending offers of a chain reach, from any sender; 0 for none.
    def waiting(self, chain: Chain) -> int: ...

    # Lock only this chain, to accept an offer. Raises: HostError.
    def taking(self, chain: Chain, offer: Offer) -> AbstractContextManager[Taking]: ...

    # Drop a pending offer. Raises: HostError: also if another session locks it.
    def drop(self, offer: Offer) -> None: ...

    # Drop a pending offer and store the refusal. Raises: HostError: as `drop`.
    def refuse(self, offer: Offer, refusal: OfferRefusal) -> None: ...

    # The newest refusal of a chain, enrolled or not, for each code, by code.
    # Threat: a sender of many bad offers must not push important refusals out of sight.
    def refused(self, host: str, ledger: str) -> Sequence[Refused]: ...

    # A block in which all reads see one snapshot.
    def steady(self) -> AbstractContextManager[None]: ...

    def close(self) -> None: ...
