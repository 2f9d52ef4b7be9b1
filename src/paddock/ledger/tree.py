"""Cache the Merkle tree's hashes in files beside a ledger, and prove lines with them.

`tree.0` has the leaf hashes, `tree.1` the roots of whole subtrees of 256 leaves, and so on
(docs/formats/ledger.md); `tree.edge`, written last, records how far they reach. They are neither
trusted nor synced: their users compare with a signed root, or recompute them from the lines.
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, HostError, LedgerDamagedError, UsageError
from paddock.ledger.format import notes
from paddock.ledger.format.lines import BadLine, VerifierKey, fitting_leaves, inspect_line
from paddock.ledger.format.notes import HASH_BYTES, Checkpoint, Growing, Nodes, SignedCheckpoint
from paddock.ledger.read import LedgerReader, damage, failing, find_genesis, read_regular
from paddock.ledger.tail import NOTHING_DURABLE, LedgerPaths, Mark
from paddock.pattern import lazy_pattern

_TILE_LEVELS: Final = 8  # levels of the tree between two files
_EDGE_BYTES_MAX: Final = 256
_EDGE: Final = lazy_pattern(r"(\d{1,16}) (\d{1,16}) ([0-9a-f]{64})\n?", re.ASCII)
"""16 digits suffice for any place in a ledger, and are valid offsets for pread(2)."""

T = TypeVar("T")


class TreeFiles:
    # Only one process at a time may write them.
    def __init__(self, folder: str, *, create: bool) -> None:
        self._folder = folder
        self._descriptors: list[int] = []
        try:
            while os.path.lexists(self._path(len(self._descriptors))):
                self._open(len(self._descriptors), create=create)
            self.edge = self._read_edge()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def node(self, level: int, index: int) -> bytes:
        file, above = divmod(level, _TILE_LEVELS)
        row = self._row(file, index << above, 1 << above)
        while len(row) > 1:
            row = [notes.node_hash(row[at], row[at + 1]) for at in range(0, len(row), 2)]
        return row[0]

    def leaves(self, begin: int, count: int) -> list[bytes]:
        return self._row(0, begin, count)

    def grow(self, reader: LedgerReader, end: Mark, signed: int) -> Growing:
        """Hash the lines from the edge to the mark; from `signed` on they must hold entries."""
        growing = Growing.resume(self.node, self.edge.entries)
        leaf, offset = self.edge.leaf, self.edge.offset_bytes
        for at, lines in reader.lines(offset, end.offset_bytes):
            before = growing.size
            leaves = fitting_leaves(lines, before, leaf, signed)
            self._write_rows(before, growing.extend(leaves))
            if len(leaves) < len(lines):
                found = inspect_line(lines[len(leaves)])
                wrong = "that does not follow the one before"
                if isinstance(found, BadLine):
                    wrong = f"that holds no entry: {found.detail}"
                where = f"{reader.path!a}, line {growing.size + 1}"
                raise damage(f"the ledger has a line {wrong}", where)
            leaf, offset = leaves[-1].hex(), at + sum(map(len, lines)) + len(lines)
        if (growing.size, offset, leaf) != (end.entries, end.offset_bytes, end.leaf):
            where = f"{reader.path!a}, line {growing.size + 1}"
            raise damage("the ledger does not reach as far as was recorded", where)
        return growing

    def keep(self, edge: Mark) -> None:
        text = f"{edge.entries} {edge.offset_bytes} {edge.leaf}\n"
        path = os.path.join(self._folder, "tree.edge")
        draft = f"{path}.new"
        with failing("the ledger's tree cannot be written", path):
            with suppress(FileNotFoundError):
                os.unlink(draft)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(draft, flags, 0o600), "w") as file:
                file.write(text)
            os.rename(draft, path)
        self.edge = edge

    def _write_rows(self, size: int, rows: Sequence[Sequence[bytes]]) -> None:
        for file, row in enumerate(rows[::_TILE_LEVELS]):
            if file == len(self._descriptors):
                self._open(file, create=True)
            data = b"".join(row)
            at = (size >> file * _TILE_LEVELS) * HASH_BYTES
            with failing("the ledger's tree cannot be written", self._folder):
                while data:
                    written = os.pwrite(self._descriptors[file], data, at)
                    data, at = data[written:], at + written

    def _row(self, file: int, begin: int, count: int) -> list[bytes]:
        data = b""
        if file < len(self._descriptors):
            with failing("the ledger's tree cannot be read", self._folder):
                data = os.pread(self._descriptors[file], count * HASH_BYTES, begin * HASH_BYTES)
        if len(data) < count * HASH_BYTES:
            raise damage("the ledger's tree is incomplete", ascii(self._folder), "remove tree.*")
        return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]

    def _open(self, file: int, *, create: bool) -> None:
        # Threat: opening a pipe in its place would block.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        path = self._path(file)
        with failing("the ledger's tree cannot be opened", self._folder):
            mode = os.lstat(path).st_mode if create and os.path.lexists(path) else stat.S_IFREG
            if stat.S_ISDIR(mode):
                os.rmdir(path)
            elif not stat.S_ISREG(mode):
                os.unlink(path)
            self._descriptors.append(os.open(path, flags, 0o600))

    def _path(self, file: int) -> str:
        return os.path.join(self._folder, f"tree.{file}")

    def _read_edge(self) -> Mark:
        with suppress(OSError, LedgerDamagedError):
            text = read_regular(os.path.join(self._folder, "tree.edge"), _EDGE_BYTES_MAX)
            found = _EDGE.fullmatch(text.decode("ascii", "replace"))
            if found is not None and int(found[1]):
                edge = Mark(0, int(found[1]), int(found[2]), found[3], b"")
                if self._row(0, edge.entries - 1, 1)[0].hex() == edge.leaf:
                    return edge
        return NOTHING_DURABLE


def find_departure(reader: LedgerReader, checkpoint: Checkpoint) -> tuple[int, int] | None:
    """Return the first entry that differs from the signed one, and its offset, if known."""
    with (
        suppress(LedgerDamagedError, HostError),
        closing(TreeFiles(LedgerPaths(reader.path).folder, create=False)) as tree,
    ):
        if notes.root_of(tree.node, checkpoint.size) == checkpoint.root:
            seq = 0
            for offset, lines in reader.lines():
                known = tree.leaves(seq, min(len(lines), checkpoint.size - seq))
                for line, leaf in zip(lines, known, strict=False):
                    if sha256(b"\0" + line).digest() != leaf:
                        return seq, offset
                    seq, offset = seq + 1, offset + len(line) + 1
                if seq >= checkpoint.size:
                    break
    return None


def checkpoints_folder(ledger: str) -> Path:
    return Path(LedgerPaths(ledger).folder) / "checkpoints"


def read_notes(folder: Path) -> list[tuple[str, str]]:
    """Return each note's name, which is its size, and text; the newest last."""
    found: list[tuple[str, str]] = []
    for size in sorted(note_sizes(folder)):
        path = str(folder / str(size))
        try:
            content = read_regular(path, limits.checkpoint_note_bytes_max + 1)
        except OSError as fault:
            said, hint = "a checkpoint cannot be read", "put a regular file there, or remove it"
            raise ConfigError(f"{said}: {fault.strerror}", where=ascii(path), hint=hint) from fault
        found.append((str(size), content.decode(errors="replace")))
    return found


def find_signed(path: str) -> SignedCheckpoint | None:
    """Return the newest checkpoint beside the ledger, verified. Raises: NoteError."""
    genesis = find_genesis(path)
    signed = read_notes(checkpoints_folder(path))
    if not signed or genesis is None:
        return None
    return notes.open_note(signed[-1][1], VerifierKey.parse(genesis.public_key))


def note_sizes(folder: Path) -> list[int]:
    with failing("the checkpoints cannot be listed", str(folder)):
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [int(name) for name in names if name.isdecimal() and name.isascii()]


class InclusionProof(Struct, frozen=True):
    seq: int
    size: int
    leaf: bytes
    hashes: tuple[bytes, ...]
    note: str

    @property
    def text(self) -> str:
        return notes.format_inclusion(self.seq, self.hashes, self.note)


class ConsistencyProof(Struct, frozen=True):
    old: int
    old_root: bytes
    size: int
    hashes: tuple[bytes, ...]
    note: str


def prove_inclusion(path: str, seq: int, signed: SignedCheckpoint) -> InclusionProof:
    """Raises: UsageError: not covered; LedgerDamagedError: differs from the signed; HostError."""
    size, root = signed.checkpoint.size, signed.checkpoint.root

    def make(nodes: Nodes) -> InclusionProof | None:
        leaf, hashes = nodes(0, seq), notes.inclusion_path(nodes, seq, size)
        if not notes.verify_inclusion(leaf, seq, size, hashes, root):
            return None
        return InclusionProof(seq, size, leaf, tuple(hashes), signed.note)

    return _prove(path, signed, seq, seq + 1, make)


def prove_consistency(path: str, old: int, signed: SignedCheckpoint) -> ConsistencyProof:
    size, root = signed.checkpoint.size, signed.checkpoint.root

    def make(nodes: Nodes) -> ConsistencyProof | None:
        old_root, hashes = notes.root_of(nodes, old), notes.consistency_path(nodes, old, size)
        if not notes.verify_consistency(old, size, old_root, root, hashes):
            return None
        return ConsistencyProof(old, old_root, size, tuple(hashes), signed.note)

    return _prove(path, signed, old, old, make)


def _prove(
    path: str, signed: SignedCheckpoint, asked: int, needed: int, make: Callable[[Nodes], T | None]
) -> T:
    """Build a proof with `make`, which returns None if it does not lead to the signed root."""
    size = signed.checkpoint.size
    if asked < 0 or needed > size:
        raise UsageError(
            f"the checkpoint covers entries 0 to {size - 1}, not {asked}",
            hint="create a newer one: paddock ledger checkpoint",
        )
    found = None
    with (
        suppress(LedgerDamagedError, HostError),  # the tree files are damaged: use the lines
        closing(TreeFiles(LedgerPaths(path).folder, create=False)) as tree,
    ):
        found = make(tree.node)
    leaves: list[bytes] = []
    if found is None:
        with LedgerReader(path) as reader:
            for _, lines in reader.lines():
                leaves += [sha256(b"\0" + line).digest() for line in lines[: size - len(leaves)]]
                if len(leaves) == size:
                    found = make(notes.leaf_nodes(leaves))
                    break
    if found is None:
        said = f"the first {size} entries are not those that were signed"
        if len(leaves) < size:
            said = f"{size} entries were signed, {len(leaves)} are here"
        raise damage(said, ascii(path))
    return found
