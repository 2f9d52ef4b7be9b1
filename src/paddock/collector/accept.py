"""Accept offers, each completely or not at all; push a ledger; verify the store.

Threat: a pusher could send an offer that can be neither accepted nor refused, or hold a lock on it,
to block all later offers. Such an offer is left, and the next one is processed.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from paddock.collector.chains import (
    Accepted,
    Chain,
    ChainHead,
    Judging,
    Offer,
    OfferRefusal,
    Progress,
    RefusalCode,
    Store,
    Taking,
    open_offer,
)
from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.line import PREV_OF_GENESIS, leaf_hash
from paddock.ledger.format.lines import BadLine, VerifierKey, inspect_line, parse_genesis
from paddock.ledger.format.notes import Growing, NoteError, SignedCheckpoint, open_note
from paddock.ledger.read import LedgerReader
from paddock.ledger.tree import checkpoints_folder, read_notes

_Found = TypeVar("_Found")


class Left(Struct, frozen=True):
    message: str


class OfferAnswer(Struct, frozen=True):
    offer: Offer
    result: ChainHead | OfferRefusal | Left


class _NotAcceptedError(Exception):
    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.refusal = OfferRefusal(code, message)


def accept_offers(store: Store, after: int = 0) -> Iterator[OfferAnswer]:
    for offer in store.offers(after):
        yield OfferAnswer(offer, _accept_or_leave(store, offer))


def _accept_or_leave(store: Store, offer: Offer) -> ChainHead | OfferRefusal | Left:
    try:
        return accept_offer(store, offer)
    except HostError as fault:
        # If the fault does not depend on this offer, this raises it again.
        store.chains()
        return Left(fault.message)


def accept_offer(store: Store, offer: Offer) -> ChainHead | OfferRefusal:
    """Accept one offer, or drop it and store the refusal (unless it is BEHIND)."""
    chain = find_chain(store, offer.host, offer.ledger)
    try:
        if chain is None:
            why = "no key is enrolled for this host and ledger"
            raise _NotAcceptedError(RefusalCode.NOT_ENROLLED, why)
        with store.taking(chain, offer) as taking:
            return _judge(chain, offer, taking)
    except _NotAcceptedError as signal:
        if signal.refusal.code is RefusalCode.BEHIND:
            store.drop(offer)
        else:
            store.refuse(offer, signal.refusal)
        return signal.refusal


def find_chain(store: Store, host: str, ledger: str) -> Chain | None:
    named = (each for each in store.chains() if (each.host, each.ledger) == (host, ledger))
    return next(named, None)


def _judge(chain: Chain, offer: Offer, taking: Taking) -> ChainHead:
    head = taking.head
    if not taking.is_waiting:
        raise _NotAcceptedError(RefusalCode.BEHIND, "another process has just processed it")
    checkpoint = _or_refused(open_offer(chain, head, offer))
    judging = Judging(chain, head, offer, checkpoint, taking.stored)
    at = max(head.size, offer.start)
    for part in taking.parts():
        lines = part.split(b"\n")
        if lines.pop():
            raise _NotAcceptedError(RefusalCode.LINE, f"a line after {at} has no end")
        new = _or_refused(judging.take(lines))
        taking.add(at, new)
        at += len(new)
    grown = _or_refused(judging.end())
    taking.keep(grown)
    return grown


def _or_refused(found: _Found | OfferRefusal) -> _Found:
    if isinstance(found, OfferRefusal):
        raise _NotAcceptedError(found.code, found.message)
    return found


# Pushing only reads the ledger. It checks nothing here, because a pusher could send anything.

PART_BYTES: Final = 4 << 20
"""Lines are sent in parts of this size, plus up to one line."""

OnProgress = Callable[[int, int], object]


class Pushed(Struct, frozen=True):
    """The result of a push: `sent` lines up to `size`, which the newest checkpoint covers."""

    ledger: str
    sent: int
    size: int
    progress: Progress
    """The progress before the push."""


def push_ledger(
    store: Store, path: Path, host: str, progress: Progress, on_progress: OnProgress
) -> Pushed:
    signed = find_newest_checkpoint(path)
    size = 0 if signed is None else signed.checkpoint.size
    if size < progress.accepted:
        raise LedgerDamagedError(
            f"the collector accepted {progress.accepted} entries of the ledger "
            f"{progress.ledger}, but only {size} are signed here: it was rolled back",
            where=ascii(str(path)),
            hint="run paddock ledger verify; after an accepted rollback, have the "
            "collector enroll this host under another name",
        )
    start = max(progress.accepted, progress.waiting)
    if signed is None or start >= size:
        return Pushed(progress.ledger, 0, size, progress)
    offer = Offer(host, progress.ledger, start, size, signed.note, _read_edge(path, start))
    store.send(offer, _read_parts(path, start, size, on_progress))
    return Pushed(progress.ledger, size - start, size, progress)


def find_newest_checkpoint(path: Path) -> SignedCheckpoint | None:
    notes = read_notes(checkpoints_folder(str(path)))
    return open_note(notes[-1][1], read_key(path)) if notes else None


def read_key(path: Path) -> VerifierKey:
    with LedgerReader(str(path)) as reader:
        return VerifierKey.parse(reader.genesis().public_key)


def _read_edge(path: Path, stop: int) -> tuple[bytes, ...]:
    """Return the tree's edge at `stop`. Raises: LedgerDamagedError, HostError.

    If this ledger continued from other lines than the accepted ones, the edge lets the offer prove
    that its lines were signed.
    """
    growing = Growing()
    with LedgerReader(str(path)) as reader:
        for _, lines in reader.lines():
            wanted = lines[: stop - growing.size]
            growing.extend([bytes.fromhex(leaf_hash(line)) for line in wanted])
            if growing.size == stop:
                break
    return tuple(growing.hashes())


def _read_parts(path: Path, start: int, stop: int, on_progress: OnProgress) -> Iterator[bytes]:
    part, size, at, sent = list[bytes](), 0, 0, 0
    with LedgerReader(str(path)) as reader:
        for _, lines in reader.lines():
            wanted = lines[max(0, start - at) : max(0, stop - at)]
            at += len(lines)
            for line in wanted:
                part.append(line)
                size += len(line) + 1
                sent += 1
                if size >= PART_BYTES:
                    yield b"\n".join([*part, b""])
                    on_progress(sent, stop - start)
                    part, size = [], 0
            if at >= stop:
                break
    if part:
        yield b"\n".join([*part, b""])
        on_progress(sent, stop - start)
    if at < stop:
        raise LedgerDamagedError(
            f"{stop} entries were signed, and {at} are here",
            where=ascii(str(path)),
            hint="paddock ledger verify",
        )


# Threat: the owner of the database can change a row, truncate a chain and its checkpoints, or
# restore an old copy. A changed row does not match the signed roots. A truncated or restored chain
# is consistent, but does not match `RecordedCheckpoint`: the checkpoints accepted according to the
# collector's own ledger, which is stored elsewhere.


class RecordedCheckpoint(Struct, frozen=True):
    host: str
    ledger: str
    size: int
    root: str
    """In hex."""
    seq: int


class ChainReport(Struct, frozen=True):
    host: str
    ledger: str
    entries: int
    checkpoints: int
    compared: int
    problems: tuple[str, ...]


def verify_store(store: Store, recorded: Sequence[RecordedCheckpoint]) -> Iterator[ChainReport]:
    with store.steady():
        chains = store.chains()
        for chain in chains:
            name = (chain.host, chain.ledger)
            yield _verify_chain(
                store, chain, [each for each in recorded if (each.host, each.ledger) == name]
            )
        known = {(chain.host, chain.ledger) for chain in chains}
        for host, ledger in sorted({(each.host, each.ledger) for each in recorded} - known):
            gone = "the chain is missing, but checkpoints of it were recorded as accepted"
            yield ChainReport(host, ledger, 0, 0, 0, (gone,))


def _verify_chain(
    store: Store, chain: Chain, recorded: Sequence[RecordedCheckpoint]
) -> ChainReport:
    kept = store.accepted(chain)
    sizes = {each.head.size for each in kept} | {each.size for each in recorded}
    walk = _Walk(chain, sizes)
    for seq, line in store.lines(chain):
        if not walk.follow(seq, line):
            break
    problems = [*walk.problems, *_compare_kept(chain, kept, walk)]
    agreeing = 0
    for each in recorded:
        found = walk.heads.get(each.size)
        if found is not None and found.root.hex() == each.root:
            agreeing += 1
            continue
        what = "is missing" if found is None else "has a different root here"
        problems.append(
            f"the checkpoint of {each.size} entries that entry {each.seq} of the collector's "
            f"own ledger recorded {what}"
        )
    return ChainReport(chain.host, chain.ledger, walk.size, len(kept), agreeing, tuple(problems))


def _compare_kept(chain: Chain, kept: Sequence[Accepted], walk: "_Walk") -> Iterator[str]:
    for each in kept:
        head = each.head
        try:
            signed = open_note(head.note, chain.key).checkpoint
        except NoteError as fault:
            yield f"the checkpoint of {head.size} entries: {fault.message}"
            continue
        found = walk.heads.get(head.size)
        if (signed.size, signed.root) != (head.size, head.root):
            yield f"the checkpoint of {head.size} entries differs from its signed note"
        elif found is None:
            # After a bad line, which is already reported, nothing was read.
            if not walk.problems:
                yield f"{head.size} entries were signed, and {walk.size} are here"
        elif (found.root, found.leaf, found.edge) != (head.root, head.leaf, head.edge):
            yield f"the first {head.size} entries are not those that were signed"
    covered = max((each.head.size for each in kept), default=0)
    if walk.size > covered and not walk.problems:
        yield f"no accepted checkpoint covers the entries from {covered} on"


class _Walk:
    def __init__(self, chain: Chain, wanted: set[int]) -> None:
        self._chain = chain
        self._wanted = wanted
        self._leaf = PREV_OF_GENESIS
        self._growing = Growing()
        self.size = 0
        self.problems: list[str] = []
        self.heads: dict[int, ChainHead] = {}
        """Heads computed from the lines, at the wanted sizes."""

    def follow(self, seq: int, line: bytes) -> bool:
        problem = self._judge(seq, line)
        if problem:
            self.problems.append(f"entry {self.size}: {problem}")
            return False
        self.size += 1
        if self.size in self._wanted:
            edge = tuple(self._growing.hashes())
            self.heads[self.size] = ChainHead(self.size, self._growing.root(), self._leaf, edge, "")
        return True

    def _judge(self, seq: int, line: bytes) -> str:
        found = inspect_line(line)
        if seq != self.size:
            return f"it is missing; the next one is entry {seq}"
        if isinstance(found, BadLine):
            return f"{found.fault}: {found.detail}"
        if found.seq != seq or found.prev != self._leaf:
            return "it does not follow the entry before it"
        if seq == 0:
            try:
                genesis = parse_genesis(found)
            except (LedgerDamagedError, HostError) as fault:
                return fault.message
            if genesis.public_key != str(self._chain.key):
                return "it names a key other than the enrolled one"
        self._leaf = found.leaf
        self._growing.extend([bytes.fromhex(self._leaf)])
        return ""
