"""Verifying what a collector keeps: all of it computed again from the lines.

Threat: whoever owns the database can change a row, cut a chain off with its checkpoints, or
put an old copy back. A changed row shows against the signed roots. What was cut or put back
is whole in itself, and shows against `Recorded`: what the collector's own ledger says was
accepted, which lies elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddock.collector.chains import Accepted, Chain, Head
from paddock.collector.store import Store
from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.format.encoding import PREV_OF_GENESIS
from paddock.ledger.format.lines import BadLine, inspect_line, parse_genesis
from paddock.ledger.format.merkle import Growing
from paddock.ledger.format.notes import NoteError
from paddock.ledger.signing import open_note


@dataclass(frozen=True, slots=True)
class Recorded:
    """A checkpoint that the collector's own ledger says was accepted; `seq` is its entry."""

    host: str
    ledger: str
    size: int
    root: str
    """In hex."""
    seq: int


@dataclass(frozen=True, slots=True)
class Report:
    """What verifying one chain found. `compared`: how many recorded checkpoints agree."""

    host: str
    ledger: str
    entries: int
    checkpoints: int
    compared: int
    problems: tuple[str, ...]


def verify_store(store: Store, recorded: Sequence[Recorded]) -> Iterator[Report]:
    """Verify every chain, and those that were recorded and are gone. Raises: HostError."""
    with store.steady():
        chains = store.chains()
        for chain in chains:
            name = (chain.host, chain.ledger)
            yield _verify_chain(
                store, chain, [each for each in recorded if (each.host, each.ledger) == name]
            )
        known = {(chain.host, chain.ledger) for chain in chains}
        for host, ledger in sorted({(each.host, each.ledger) for each in recorded} - known):
            gone = "the chain is gone, and checkpoints of it were recorded as accepted"
            yield Report(host, ledger, 0, 0, 0, (gone,))


def _verify_chain(store: Store, chain: Chain, recorded: Sequence[Recorded]) -> Report:
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
        what = "is not here" if found is None else "has another root here"
        problems.append(
            f"the checkpoint of {each.size} entries that entry {each.seq} of the collector's "
            f"own ledger recorded {what}"
        )
    return Report(chain.host, chain.ledger, walk.size, len(kept), agreeing, tuple(problems))


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
            yield f"the checkpoint of {head.size} entries says something else than its note"
        elif found is None:
            # Where a line was wrong nothing after it was read, and that was said.
            if not walk.problems:
                yield f"{head.size} entries were signed, and {walk.size} are here"
        elif (found.root, found.leaf, found.edge) != (head.root, head.leaf, head.edge):
            yield f"the first {head.size} entries are not those that were signed"
    covered = max((each.head.size for each in kept), default=0)
    if walk.size > covered and not walk.problems:
        yield f"entries from {covered} on are here, and no accepted checkpoint covers them"


class _Walk:
    """One pass over a chain's lines, in order, up to the first that does not fit."""

    def __init__(self, chain: Chain, wanted: set[int]) -> None:
        self._chain = chain
        self._wanted = wanted
        self._leaf = PREV_OF_GENESIS
        self._growing = Growing()
        self.size = 0
        self.problems: list[str] = []
        self.heads: dict[int, Head] = {}
        """What the lines make, at the sizes wanted."""

    def follow(self, seq: int, line: bytes) -> bool:
        """Go on by one line; False where it does not fit."""
        problem = self._judge(seq, line)
        if problem:
            self.problems.append(f"entry {self.size}: {problem}")
            return False
        self.size += 1
        if self.size in self._wanted:
            edge = tuple(self._growing.hashes())
            self.heads[self.size] = Head(self.size, self._growing.root(), self._leaf, edge, "")
        return True

    def _judge(self, seq: int, line: bytes) -> str:
        found = inspect_line(line)
        if seq != self.size:
            return f"it is missing; entry {seq} comes next"
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
                return "it names another key than the one that is enrolled"
        self._leaf = found.leaf
        self._growing.extend([bytes.fromhex(self._leaf)])
        return ""
