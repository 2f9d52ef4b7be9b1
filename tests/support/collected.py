"""Hosts with ledgers and keys of their own, for collectors."""

from collections.abc import Sequence

from msgspec.structs import replace

from paddock.collector.accept import accept_offer
from paddock.collector.chains import Chain, ChainHead, Offer, OfferRefusal
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.lines import Genesis
from paddock.ledger.format.notes import Checkpoint, Growing, format_note
from paddock.ledger.signing import SigningKey, make_key
from paddock.testing.memory_ledger import MemoryLedger
from paddock.values.entries import Entry
from tests.support.ledgers import note


def tree_of(lines: Sequence[bytes]) -> Growing:
    growing = Growing()
    growing.extend([bytes.fromhex(leaf_hash(line)) for line in lines])
    return growing


def root_of(lines: Sequence[bytes]) -> bytes:
    return tree_of(lines).root()


class Host:
    """One ledger of one host, in memory."""

    def __init__(self, name: str = "web1", ledger: str = "ho1m", seed: int = 1) -> None:
        self.key: SigningKey = make_key(f"paddock/{name}/{ledger}", bytes([seed]) * 32)
        self.chain = Chain(name, ledger, "HO1", self.key.verifier)
        genesis = Genesis(self.key.verifier.name, "HO1", str(self.key.verifier))
        self._ledger = MemoryLedger(genesis=genesis)

    def append(self, count: int, word: str = "note") -> "Host":
        for number in range(count):
            self._ledger.append([note(f"{word} {number}")])
        return self

    def append_entry(self, entry: Entry) -> None:
        self._ledger.append([entry])

    @property
    def lines(self) -> list[bytes]:
        return self._ledger.text.split(b"\n")[:-1]

    def note(self, lines: Sequence[bytes] | None = None, key: SigningKey | None = None) -> str:
        """A checkpoint of these lines; without them, of all."""
        signed = self.lines if lines is None else lines
        key = key or self.key
        text = Checkpoint(self.key.verifier.name, len(signed), root_of(signed)).text
        name = key.verifier.name
        return format_note(text, name, key.verifier.key_id, key.sign(text.encode()))

    def offer(self, start: int = 0, stop: int | None = None) -> Offer:
        """Its lines from `start`, with the checkpoint of those before `stop`."""
        signed = self.lines[:stop]
        edge = tuple(tree_of(self.lines[:start]).hashes())
        name = (self.chain.host, self.chain.ledger)
        return Offer(*name, start, len(signed), self.note(signed), edge)

    def push(self, store, start: int = 0, stop: int | None = None) -> ChainHead | OfferRefusal:
        """Send these lines, and have them looked at."""
        return give(store, self.offer(start, stop), self.lines[start:stop])


def give(
    store, offer: Offer, lines: Sequence[bytes], part_lines: int = 3
) -> ChainHead | OfferRefusal:
    """Send an offer in parts of few lines, and have it looked at."""
    parts = [lines[at : at + part_lines] for at in range(0, len(lines), part_lines)]
    store.send(offer, [b"".join(line + b"\n" for line in part) for part in parts])
    return accept_offer(store, store.offers()[-1])


def head_of(lines: Sequence[bytes], note_text: str) -> ChainHead:
    """What a chain's head is after these lines."""
    tree = tree_of(lines)
    return ChainHead(len(lines), tree.root(), leaf_hash(lines[-1]), tuple(tree.hashes()), note_text)


def renamed(offer: Offer, **fields: object) -> Offer:
    return replace(offer, **fields)
