"""Accept offers, each completely or not at all; push a ledger; verify the store.

Threat: a pusher could send an offer that can be neither accepted nor refused, or hold a lock on it,
to block all later offers. Such an offer is left, and the next one is processed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.collector.chains import (
    NOTHING_YET,
    Accepted,
    Chain,
    ChainHead,
    ChainWalk,
    Judging,
    Offer,
    OfferRefusal,
    OfferRefusedError,
    Progress,
    RefusalCode,
    Store,
)
from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.lines import VerifierKey
from paddock.ledger.format.notes import Growing, NoteError, SignedCheckpoint, open_note
from paddock.ledger.read import LedgerReader
from paddock.ledger.tree import checkpoints_folder, read_notes


class Left(Struct, frozen=True):
    message: str


class OfferAnswer(Struct, frozen=True):
    offer: Offer
    result: ChainHead | OfferRefusal | Left


def accept_offers(store: Store, after: int = 0) -> Iterator[OfferAnswer]:
    for offer in store.offers(after):
        try:
            result = accept_offer(store, offer)
        except HostError as fault:
            # If the fault does not depend on this offer, this raises it again.
            store.chains()
            result = Left(fault.message)
        yield OfferAnswer(offer, result)


def accept_offer(store: Store, offer: Offer) -> ChainHead | OfferRefusal:
    """Accept one offer, or drop it and store the refusal (unless it is BEHIND)."""
    name = (offer.host, offer.ledger)
    chain = next((each for each in store.chains() if (each.host, each.ledger) == name), None)
    try:
        if chain is None:
            why = "no key is enrolled for this host and ledger"
            raise OfferRefusedError(RefusalCode.NOT_ENROLLED, why)
        with store.taking(chain, offer) as is_waiting:
            if not is_waiting:
                why = "another process has just processed it"
                raise OfferRefusedError(RefusalCode.BEHIND, why)
            return _take(store, chain, offer)
    except OfferRefusedError as signal:
        if signal.refusal.code is RefusalCode.BEHIND:
            store.drop(offer)
        else:
            store.refuse(offer, signal.refusal)
        return signal.refusal


def _take(store: Store, chain: Chain, offer: Offer) -> ChainHead:
    newest = store.newest(chain)
    head = NOTHING_YET if newest is None else newest.head
    judging = Judging(chain, head, offer, partial(store.stored, chain))
    at = max(head.size, offer.start)
    for part in store.parts(offer):
        lines = part.split(b"\n")
        if lines.pop():
            raise OfferRefusedError(RefusalCode.LINE, f"a line after {at} has no end")
        new = judging.take(lines)
        store.add(chain, at, new)
        at += len(new)
    grown = judging.end()
    store.keep(chain, offer, grown)
    return grown


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
            f"{progress.ledger}, but only {size} are signed here: it was rolled back, or is "
            "another project's",
            where=ascii(str(path)),
            hint="run paddock ledger verify; after an accepted rollback, and for another project "
            "of this machine, have the collector enroll it under another name",
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
    walk, problems = ChainWalk(chain, NOTHING_YET), list[str]()
    heads: dict[int, ChainHead] = {}
    for seq, line in store.lines(chain):
        if seq != walk.size:
            problems.append(f"entry {walk.size}: it is missing; the next one is entry {seq}")
            break
        try:
            walk.follow(line)
        except OfferRefusedError as fault:
            problems.append(fault.refusal.message)
            break
        if walk.size in sizes:
            heads[walk.size] = walk.head()
    problems += _compare_kept(chain, kept, heads, None if problems else walk.size)
    agreeing = 0
    for each in recorded:
        found = heads.get(each.size)
        if found is not None and found.root.hex() == each.root:
            agreeing += 1
            continue
        what = "is missing" if found is None else "has a different root here"
        problems.append(
            f"the checkpoint of {each.size} entries that entry {each.seq} of the collector's "
            f"own ledger recorded {what}"
        )
    return ChainReport(chain.host, chain.ledger, walk.size, len(kept), agreeing, tuple(problems))


def _compare_kept(
    chain: Chain, kept: Sequence[Accepted], heads: Mapping[int, ChainHead], size: int | None
) -> Iterator[str]:
    """`size` is None after a bad line, which is already reported: then not all lines were read."""
    for each in kept:
        head = each.head
        try:
            signed = open_note(head.note, chain.key).checkpoint
        except NoteError as fault:
            yield f"the checkpoint of {head.size} entries: {fault.message}"
            continue
        found = heads.get(head.size)
        if (signed.size, signed.root) != (head.size, head.root):
            yield f"the checkpoint of {head.size} entries differs from its signed note"
        elif found is None:
            if size is not None:
                yield f"{head.size} entries were signed, and {size} are here"
        elif (found.root, found.leaf, found.edge) != (head.root, head.leaf, head.edge):
            yield f"the first {head.size} entries are not those that were signed"
    covered = max((each.head.size for each in kept), default=0)
    if size is not None and size > covered:
        yield f"no accepted checkpoint covers the entries from {covered} on"
