"""What a host offers: the new lines of a ledger, up to its newest checkpoint.

The ledger is only read. What is sent is not judged here: whoever sends it could say anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.collector.chains import Offer, Progress
from paddock.collector.store import Store
from paddock.errors import LedgerDamagedError
from paddock.ledger.checkpoint import checkpoints_folder, read_notes
from paddock.ledger.format.encoding import leaf_hash
from paddock.ledger.format.lines import VerifierKey
from paddock.ledger.format.merkle import Growing
from paddock.ledger.format.notes import SignedCheckpoint
from paddock.ledger.read import LedgerReader, read_first, whole_lines
from paddock.ledger.signing import open_note

PART_BYTES: Final = 4 << 20
"""Lines are sent in parts of so many bytes, and up to one line more."""

Told = Callable[[int, int], object]
"""Is told how many lines of how many were sent, after each part."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push came to: `sent` lines up to `size`, which the newest checkpoint covers."""

    ledger: str
    sent: int
    size: int
    progress: Progress
    """As it was before the push."""


def push_ledger(store: Store, path: Path, host: str, progress: Progress, told: Told) -> Pushed:
    """Send what neither was taken in nor waits.

    Raises:
        LedgerDamagedError: more was taken in than the newest checkpoint covers, or that
            is not signed by the ledger's key.
        HostError, ConfigError: the ledger cannot be read, or the store not reached.
    """
    signed = find_newest_checkpoint(path)
    size = 0 if signed is None else signed.checkpoint.size
    if size < progress.accepted:
        raise LedgerDamagedError(
            f"the collector took in {progress.accepted} entries of the ledger "
            f"{progress.ledger}, and {size} are signed here: it went back",
            where=ascii(str(path)),
            hint="look at paddock ledger verify; after a rollback that was accepted, have the "
            "collector enroll this host under another name",
        )
    start = max(progress.accepted, progress.waiting)
    if signed is None or start >= size:
        return Pushed(progress.ledger, 0, size, progress)
    offer = Offer(host, progress.ledger, start, size, signed.note, _read_edge(path, start))
    store.send(offer, _read_parts(path, start, size, told))
    return Pushed(progress.ledger, size - start, size, progress)


def find_newest_checkpoint(path: Path) -> SignedCheckpoint | None:
    """The newest checkpoint beside a ledger, which its own key signed.

    Raises: LedgerDamagedError, HostError, ConfigError.
    """
    notes = read_notes(checkpoints_folder(str(path)))
    return open_note(notes[-1][1], read_key(path)) if notes else None


def read_key(path: Path) -> VerifierKey:
    """The key that line 0 names. Raises: LedgerDamagedError, HostError."""
    with LedgerReader(str(path)) as reader:
        return VerifierKey.parse(read_first(reader).public_key)


def _read_edge(path: Path, stop: int) -> tuple[bytes, ...]:
    """The right edge of the tree of the lines before `stop`. Raises: LedgerDamagedError, HostError.

    Where this ledger went on from other lines than those that were taken in, the offer shows
    by itself that its lines were signed.
    """
    growing = Growing()
    with LedgerReader(str(path)) as reader:
        for _, lines in whole_lines(reader, 0, reader.whole_bytes(reader.size())):
            wanted = lines[: stop - growing.size]
            growing.extend([bytes.fromhex(leaf_hash(line)) for line in wanted])
            if growing.size == stop:
                break
    return tuple(growing.hashes())


def _read_parts(path: Path, start: int, stop: int, told: Told) -> Iterator[bytes]:
    """Lines `start` to `stop` in parts. Raises: LedgerDamagedError, HostError."""
    part, size, at, sent = list[bytes](), 0, 0, 0
    with LedgerReader(str(path)) as reader:
        for _, lines in whole_lines(reader, 0, reader.whole_bytes(reader.size())):
            wanted = lines[max(0, start - at) : max(0, stop - at)]
            at += len(lines)
            for line in wanted:
                part.append(line)
                size += len(line) + 1
                sent += 1
                if size >= PART_BYTES:
                    yield b"\n".join([*part, b""])
                    told(sent, stop - start)
                    part, size = [], 0
            if at >= stop:
                break
    if part:
        yield b"\n".join([*part, b""])
        told(sent, stop - start)
    if at < stop:
        raise LedgerDamagedError(
            f"{stop} entries were signed, and {at} are here",
            where=ascii(str(path)),
            hint="paddock ledger verify",
        )
