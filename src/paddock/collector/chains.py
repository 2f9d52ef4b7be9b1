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


class OfferRefusedError(Exception):
    """Raised while an offer is judged; `accept_offer` turns it into the refusal."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.refusal = OfferRefusal(code, message)


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


class ChainWalk:
    """A chain that grows line by line from an accepted head."""

    def __init__(self, chain: Chain, head: ChainHead) -> None:
        self._chain, self.size = chain, head.size
        self.leaf: str = head.leaf
        # An edge of the wrong size is damage: the root will not match.
        self._growing = Growing.from_hashes(head.size, head.edge) or Growing()

    def head(self, note: str = "") -> ChainHead:
        edge = tuple(self._growing.hashes())
        return ChainHead(self.size, self._growing.root(), self.leaf, edge, note)

    def follow(self, line: bytes) -> None:
        """Add the next line. Raises: OfferRefusedError: it is not the chain's next entry."""
        found, where = inspect_line(line), f"entry {self.size}"
        if isinstance(found, BadLine):
            said = f"{where}: {found.fault}: {found.detail}"
            raise OfferRefusedError(RefusalCode.LINE, said)
        if found.seq != self.size or found.prev != self.leaf:
            said = f"{where}: it does not follow the entry before it"
            raise OfferRefusedError(RefusalCode.CHAIN, said)
        self._require_genesis(found)
        self.leaf, self.size = found.leaf, self.size + 1
        self._growing.extend([bytes.fromhex(self.leaf)])

    def _require_genesis(self, found: StoredEntry) -> None:
        if found.seq:
            if found.entry.event_type == GENESIS:
                raise OfferRefusedError(RefusalCode.CHAIN, f"entry {found.seq}: it is GENESIS")
            return
        try:
            genesis = parse_genesis(found)
        except (LedgerDamagedError, HostError) as fault:
            raise OfferRefusedError(RefusalCode.GENESIS, f"entry 0: {fault.message}") from fault
        chain = self._chain
        wanted = (chain.key.name, chain.tier, str(chain.key))
        if (genesis.origin, genesis.tier, genesis.public_key) != wanted:
            raise OfferRefusedError(
                RefusalCode.GENESIS,
                f"entry 0: it is from {genesis.origin!a} ({genesis.tier!a}), but the key of "
                f"{chain.key.name!a} ({chain.tier}) is enrolled",
            )


def open_offer(chain: Chain, head: ChainHead, offer: Offer) -> Checkpoint:
    try:
        checkpoint = open_note(offer.note, chain.key).checkpoint
    except NoteError as fault:
        raise OfferRefusedError(RefusalCode.NOTE, fault.message) from fault
    if checkpoint.size != offer.stop or not 0 <= offer.start < offer.stop:
        said = f"lines {offer.start} to {offer.stop} are offered, but {checkpoint.size} were signed"
        raise OfferRefusedError(RefusalCode.SIZE, said)
    if offer.start > head.size:
        said = f"{head.size} lines are here, but line {offer.start} is offered next"
        raise OfferRefusedError(RefusalCode.GAP, said)
    if checkpoint.size != head.size:
        return checkpoint
    if checkpoint.root == head.root:
        raise _behind(head)
    said = f"a different root of the first {head.size} lines was accepted before"
    raise OfferRefusedError(RefusalCode.FORKED, said)


def _behind(head: ChainHead) -> OfferRefusedError:
    return OfferRefusedError(RefusalCode.BEHIND, f"{head.size} lines are already here")


class Judging:
    def __init__(
        self,
        chain: Chain,
        head: ChainHead,
        offer: Offer,
        stored: Callable[[int, int], Iterable[bytes]],
    ) -> None:
        """`stored` returns accepted lines by number: first, and one past the last.

        Raises: OfferRefusedError, as do the methods.
        """
        self._head, self._offer, self._stored = head, offer, stored
        self._checkpoint = open_offer(chain, head, offer)
        self._walk = ChainWalk(chain, head)
        self._seq = offer.start
        self._departed = ""
        self._theirs: Growing | None = None
        """The tree of differing lines, from the sender's edge; None if that is invalid."""

    def take(self, lines: Sequence[bytes]) -> list[bytes]:
        if self._seq + len(lines) > self._checkpoint.size:
            said = f"more lines than the {self._checkpoint.size} that were signed"
            raise OfferRefusedError(RefusalCode.SIZE, said)
        known = max(0, min(len(lines), self._head.size - self._seq))
        if not self._departed:
            self._find_departure(lines, known)
        self._seq += len(lines)
        if self._departed:
            if self._theirs is not None:
                self._theirs.extend([bytes.fromhex(leaf_hash(line)) for line in lines])
            return []
        new = list(lines[known:])
        for line in new:
            self._walk.follow(line)
        return new

    def end(self) -> ChainHead:
        wanted = self._checkpoint
        if self._seq != wanted.size:
            said = f"the lines end at {self._seq}, but {wanted.size} were signed"
            raise OfferRefusedError(RefusalCode.SIZE, said)
        if self._departed:
            raise self._departure()
        if wanted.size <= self._head.size:
            raise _behind(self._head)
        found = self._walk.head(self._offer.note)
        if found.root != wanted.root:
            said = f"the root of the first {wanted.size} lines is not the signed one"
            raise OfferRefusedError(RefusalCode.ROOT, said)
        return found

    def _find_departure(self, lines: Sequence[bytes], known: int) -> None:
        different = self._find_different(lines[:known]) if known else None
        if different is not None:
            self._departed = f"line {self._seq + different} differs from the accepted one"
        elif known < len(lines) and self._seq + known == self._head.size > 0:
            # Threat: a restored or recreated host continues from another last line.
            found = inspect_line(lines[known])
            if (
                isinstance(found, StoredEntry)
                and found.seq == self._head.size
                and found.prev != self._walk.leaf
            ):
                self._departed = f"line {found.seq} does not follow the line before it"
        if self._departed:
            # Start the sender's tree with the lines so far, which match the accepted ones.
            self._theirs = Growing.from_hashes(self._offer.start, self._offer.edge)
            if self._theirs is not None:
                before = self._stored(self._offer.start, self._seq)
                self._theirs.extend([bytes.fromhex(leaf_hash(line)) for line in before])

    def _find_different(self, lines: Sequence[bytes]) -> int | None:
        here = list(self._stored(self._seq, self._seq + len(lines)))
        pairs = zip(lines, here, strict=False)
        found = (number for number, (each, other) in enumerate(pairs) if each != other)
        return next(found, None if len(here) == len(lines) else len(here))

    def _departure(self) -> OfferRefusedError:
        if self._theirs is not None and self._theirs.root() == self._checkpoint.root:
            return OfferRefusedError(RefusalCode.FORKED, self._departed)
        said = f"{self._departed}, and the lines do not produce the signed root"
        return OfferRefusedError(RefusalCode.ROOT, said)


# The store port, which `PostgresStore` implements.

OFFERS_MAX: Final = 1_000
"""The number of offers processed in one batch, however many a sender sends."""


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

    # Lock only this chain until the block ends, which commits everything, or nothing on an error.
    # False if another process has handled the offer meanwhile. Raises: HostError.
    def taking(self, chain: Chain, offer: Offer) -> AbstractContextManager[bool]: ...

    # In a `taking` block: the offer's lines in order, each with LF, many per part.
    def parts(self, offer: Offer) -> Iterator[bytes]: ...

    # In a `taking` block: accepted lines.
    def stored(self, chain: Chain, start: int, stop: int) -> Iterable[bytes]: ...

    def add(self, chain: Chain, start: int, lines: Sequence[bytes]) -> None: ...

    # Store the accepted checkpoint and remove the offer.
    def keep(self, chain: Chain, offer: Offer, head: ChainHead) -> None: ...

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
