"""Making a checkpoint of a ledger, and the copies that are kept beside it.

What is signed is what the disk has for certain: the newest commit. In order: the
lines since the tree's edge are hashed and must chain; the signer compares with
what it signed before, and signs; the note is stored; then the tree's edge moves.
A kill in between costs the hashing, done again.

The lock is that of the directory `checkpoints/`. It is never held while the
append lock is wanted, nor the other way round.

Also here:

- The tree beside the ledger: its hashes in files, made from the lines and never believed.
"""

import os
import re
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, HostError, LedgerDamagedError
from paddock.ledger.disk import SystemDisk, failure, open_new
from paddock.ledger.format.encoding import PREV_OF_GENESIS, chain_tail
from paddock.ledger.format.lines import BadLine, inspect_line
from paddock.ledger.format.merkle import HASH_BYTES, Growing, consistency_path, node_hash, root_of
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint
from paddock.ledger.head import Mark
from paddock.ledger.read import LINE_OPENING, LedgerReader, read_first, whole_lines
from paddock.ledger.segments import LedgerPaths
from paddock.ledger.signing import Signer, require_growth
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import make_directories, read_file, replace_file
from paddock.storage.locks import locked, try_locked

#     tree.0      the leaf hashes, 32 bytes each, in order
#     tree.1      the roots of whole subtrees of 256 leaves
#     tree.2      of 65,536; and so on
#     tree.edge   how far they are filled: `SIZE OFFSET LEAF`, one line of text
#
# Slices of 8,192 bytes are the tiles of C2SP tlog-tiles. The files grow by what
# became whole, `tree.edge` last, so that what a kill left half done is written
# over. They are not synced: whoever uses them compares with something that is
# signed, and makes them anew from the ledger where they do not fit.

_TILE_LEVELS: Final = 8
"""Levels of the tree between two files."""
_EDGE_BYTES_MAX: Final = 256
_EDGE: Final = lazy_pattern(r"(\d{1,16}) (\d{1,16}) ([0-9a-f]{64})\n?", re.ASCII)
"""Of more digits no place in a ledger has a number, and none that the system takes."""
_LEAF: Final = sha256(b"\0")


class Edge(Struct, frozen=True):
    """A place between two lines: how many stand before it, where, and the last one's hash."""

    size: int
    offset_bytes: int
    leaf: str


START: Final = Edge(0, 0, PREV_OF_GENESIS)


class TreeFiles:
    """The tree files of one ledger, open. One process at a time writes them."""

    __slots__ = ("_descriptors", "_folder", "edge")

    def __init__(self, folder: str, *, create: bool) -> None:
        """Open what is there; `create` to write. Raises: HostError."""
        self._folder = folder
        self._descriptors: list[int] = []
        try:
            self._open_all(create=create)
            self.edge = self._read_edge()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def forget(self) -> None:
        """Take nothing of it for true: it is made anew."""
        self.edge = START

    def node(self, level: int, index: int) -> bytes:
        """See `format_merkle.Nodes`. Raises: LedgerDamagedError where the files are shorter."""
        file, above = divmod(level, _TILE_LEVELS)
        row = self._row(file, index << above, 1 << above)
        while len(row) > 1:
            row = [node_hash(row[at], row[at + 1]) for at in range(0, len(row), 2)]
        return row[0]

    def leaves(self, begin: int, count: int) -> list[bytes]:
        """So many leaf hashes. Raises: LedgerDamagedError where the file is shorter."""
        return self._row(0, begin, count)

    def grow(self, reader: LedgerReader, end: Mark, signed: int) -> Growing:
        """Hash the lines from the edge up to the mark; the edge itself stays for now.

        Those that are not among the `signed` first have to hold entries, too.

        Raises:
            LedgerDamagedError: they do not chain, or do not end at the mark; one is no entry.
            HostError: the disk failed.
        """
        edge = self.edge
        growing = Growing.resume(self, edge.size)
        prev, seq, offset = edge.leaf, edge.size, edge.offset_bytes
        for at, lines in whole_lines(reader, edge.offset_bytes, end.offset_bytes):
            leaves: list[bytes] = []
            for line in lines:
                if not line.endswith(chain_tail(seq, prev)) or not line.startswith(LINE_OPENING):
                    raise LedgerDamagedError(
                        "the ledger has a line that does not follow the one before",
                        where=f"{reader.path!a}, line {seq + 1}",
                        hint="paddock ledger verify says more",
                    )
                if seq >= signed:
                    _require_entry(reader, seq, line)
                digest = _LEAF.copy()
                digest.update(line)
                leaves.append(digest.digest())
                prev, seq = digest.hexdigest(), seq + 1
            before = growing.size
            self._write_rows(before, growing.extend(leaves))
            offset = at + sum(map(len, lines)) + len(lines)
        if (seq, offset, prev) != (end.entries, end.offset_bytes, end.leaf):
            raise LedgerDamagedError(
                "the ledger does not reach as far as was recorded",
                where=f"{reader.path!a}, line {seq + 1}",
                hint="paddock ledger verify says more",
            )
        return growing

    def keep(self, edge: Edge) -> None:
        """Take what `grow` wrote as the tree from now on. Raises: HostError."""
        text = f"{edge.size} {edge.offset_bytes} {edge.leaf}\n"
        path = os.path.join(self._folder, "tree.edge")
        draft = f"{path}.new"
        try:
            descriptor = open_new(SystemDisk(), draft)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
            os.rename(draft, path)
        except OSError as fault:
            raise failure(fault, "the ledger's tree cannot be written", path) from fault
        self.edge = edge

    def _write_rows(self, size: int, rows: Sequence[Sequence[bytes]]) -> None:
        """Put what became whole, level by level, behind what `size` leaves had made whole."""
        for file, row in enumerate(rows[::_TILE_LEVELS]):
            if file == len(self._descriptors):
                self._open(file, create=True)
            data = b"".join(row)
            at = (size >> file * _TILE_LEVELS) * HASH_BYTES
            try:
                while data:
                    written = os.pwrite(self._descriptors[file], data, at)
                    data, at = data[written:], at + written
            except OSError as fault:
                raise failure(fault, "the ledger's tree cannot be written", self._folder) from fault

    def _row(self, file: int, begin: int, count: int) -> list[bytes]:
        data = b""
        if file < len(self._descriptors):
            try:
                data = os.pread(self._descriptors[file], count * HASH_BYTES, begin * HASH_BYTES)
            except OSError as fault:
                raise failure(fault, "the ledger's tree cannot be read", self._folder) from fault
        if len(data) < count * HASH_BYTES:
            raise LedgerDamagedError(
                "the ledger's tree is incomplete", where=ascii(self._folder), hint="remove tree.*"
            )
        return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]

    def _open_all(self, *, create: bool) -> None:
        while os.path.lexists(self._path(len(self._descriptors))):
            self._open(len(self._descriptors), create=create)

    def _open(self, file: int, *, create: bool) -> None:
        # Threat: a pipe in its place would hold up whoever opens it.
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        flags |= os.O_RDWR | os.O_CREAT if create else os.O_RDONLY
        try:
            if create:
                _clear(self._path(file))
            self._descriptors.append(os.open(self._path(file), flags, 0o600))
        except OSError as fault:
            raise failure(fault, "the ledger's tree cannot be opened", self._folder) from fault

    def _path(self, file: int) -> str:
        return os.path.join(self._folder, f"tree.{file}")

    def _read_edge(self) -> Edge:
        """What `tree.edge` says, if the leaves end as it says; else the beginning."""
        path = os.path.join(self._folder, "tree.edge")
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                text = os.read(descriptor, _EDGE_BYTES_MAX).decode("ascii", "replace")
            finally:
                os.close(descriptor)
        except OSError:
            return START
        found = _EDGE.fullmatch(text)
        if found is None:
            return START
        edge = Edge(int(found[1]), int(found[2]), found[3])
        return edge if edge.size and self._ends_with(edge) else START

    def _ends_with(self, edge: Edge) -> bool:
        try:
            return self._row(0, edge.size - 1, 1)[0].hex() == edge.leaf
        except LedgerDamagedError:
            return False


def _clear(path: str) -> None:
    """Take away what is no file: the tree is made anew from the lines. Raises: OSError."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        os.rmdir(path)
    elif not stat.S_ISREG(mode):
        os.unlink(path)


def _require_entry(reader: LedgerReader, seq: int, line: bytes) -> None:
    """Refuse to have a line signed that readers would take for different things."""
    found = inspect_line(line)
    if isinstance(found, BadLine):
        raise LedgerDamagedError(
            f"the ledger has a line that holds no entry: {found.detail}",
            where=f"{reader.path!a}, line {seq + 1}",
            hint="paddock ledger verify says more",
        )


_FOLDER: Final = "checkpoints"


class Checkpointer:
    __slots__ = ("_folder", "_is_ours", "_paths", "_signer")

    def __init__(self, ledger: str, signer: Signer) -> None:
        self._paths = LedgerPaths(ledger)
        self._folder = checkpoints_folder(ledger)
        self._signer = signer
        self._is_ours = False

    @property
    def ledger(self) -> str:
        """The JSONL file."""
        return self._paths.ledger

    def make(self) -> SignedCheckpoint:
        """Sign what is durable now. Without new entries it is the last checkpoint again.

        Raises:
            LedgerDamagedError: the ledger does not chain, or does not go on from what
                was signed before.
            ConfigError: the key cannot be used.
            HostError: the disk failed.
        """
        make_directories(self._folder)
        with locked(self._folder):
            return self._make()

    def try_make(self) -> SignedCheckpoint | None:
        """As `make`; None where another process or thread is making one right now."""
        make_directories(self._folder)
        with try_locked(self._folder) as is_ours:
            return self._make() if is_ours else None

    def signed_entries(self) -> int:
        """How many entries the newest checkpoint beside the ledger covers."""
        return max(_sizes(self._folder), default=0)

    def stored_s(self) -> float:
        """When the newest checkpoint was put beside the ledger; 0 where nobody can tell.

        Raises: HostError.
        """
        try:
            return os.stat(self._folder / str(self.signed_entries())).st_mtime
        except OSError:
            # Then one is made, and where that fails it says why.
            return 0.0

    def _make(self) -> SignedCheckpoint:
        last = self._signer.last()
        with LedgerReader(self._paths.ledger) as reader, opened_tree(self._paths.folder) as tree:
            self._require_ours(reader)
            end = _durable_end(reader)
            growing = self._grown(tree, reader, end, last)
            wanted = Checkpoint(self._signer.verifier.name, end.entries, growing.root())
            if last is not None and wanted == last.checkpoint:
                signed = last
            else:
                old = 0 if last is None else min(last.checkpoint.size, end.entries)
                signed = self._signer.sign(wanted, consistency_path(tree, old, end.entries))
            if not (self._folder / str(end.entries)).exists():
                store_note(self._folder, signed)
            tree.keep(Edge(end.entries, end.offset_bytes, end.leaf))
        return signed

    def _require_ours(self, reader: LedgerReader) -> None:
        """Refuse to sign with a key that line 0 does not name: nobody could verify it."""
        if not self._is_ours and read_first(reader).public_key != str(self._signer.verifier):
            raise ConfigError(
                "the key is not the one that the ledger names",
                where=ascii(reader.path),
                hint="put the ledger's own key back, or verify: paddock ledger verify",
            )
        self._is_ours = True

    def _grown(
        self, tree: TreeFiles, reader: LedgerReader, end: Mark, last: SignedCheckpoint | None
    ) -> Growing:
        """The tree up to the mark. One that does not fit what was signed is made anew, once."""
        signed = 0 if last is None else last.checkpoint.size
        if tree.edge.size > end.entries or not _is_line_end(reader, tree.edge):
            tree.forget()
        if tree.edge.size:
            try:
                growing = tree.grow(reader, end, signed)
                if last is not None:
                    before = last.checkpoint
                    old = min(before.size, end.entries)
                    proof = consistency_path(tree, old, end.entries)
                    wanted = Checkpoint(before.origin, end.entries, growing.root())
                    require_growth(before, wanted, proof)
            except LedgerDamagedError:
                # The ledger itself may be in order, and only what stands beside it not.
                tree.forget()
            else:
                return growing
        return tree.grow(reader, end, signed)


@contextmanager
def opened_tree(folder: str, *, create: bool = True) -> Generator[TreeFiles]:
    """The tree files, closed when the block is left. Raises: HostError."""
    tree = TreeFiles(folder, create=create)
    try:
        yield tree
    finally:
        tree.close()


def checkpoints_folder(ledger: str) -> Path:
    return Path(LedgerPaths(ledger).folder) / _FOLDER


def read_notes(folder: Path) -> list[tuple[str, str]]:
    """The notes that are kept in a directory, each with its name, the newest last.

    Raises: ConfigError, HostError.
    """
    found: list[tuple[str, str]] = []
    for size in sorted(_sizes(folder)):
        content = read_file(folder / str(size), limits.checkpoint_note_bytes_max)
        if content is not None:
            found.append((str(size), content.decode(errors="replace")))
    return found


def store_note(folder: Path, signed: SignedCheckpoint) -> None:
    """Keep a note under its size, durably; of many the newest stay.

    A newer one says all that an older one does: the signer made sure of that.

    Raises: HostError.
    """
    replace_file(folder / str(signed.checkpoint.size), signed.note.encode())
    try:
        for size in sorted(_sizes(folder))[: -limits.checkpoints_kept_max]:
            os.unlink(folder / str(size))
    except FileNotFoundError:
        # Another process thinned them out as we did.
        return
    except OSError as fault:
        raise HostError(
            f"old checkpoints cannot be removed: {fault.strerror}", where=ascii(str(folder))
        ) from fault


def set_aside_notes(folder: Path, size: int) -> None:
    """Rename the notes of more than `size` entries: they are of a history that is no more.

    Raises: HostError.
    """
    try:
        for each in _sizes(folder):
            if each > size:
                os.rename(folder / str(each), folder / f"{each}.before-rollback")
    except OSError as fault:
        raise HostError(
            f"a checkpoint cannot be renamed: {fault.strerror}", where=ascii(str(folder))
        ) from fault


def tree_root(tree: TreeFiles, size: int) -> bytes | None:
    """The root that the files give for so many entries; None where they do not reach."""
    try:
        return root_of(tree, size)
    except LedgerDamagedError:
        return None


def _sizes(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as fault:
        raise HostError(
            f"the checkpoints cannot be listed: {fault.strerror}", where=ascii(str(folder))
        ) from fault
    return [int(name) for name in names if name.isdecimal() and name.isascii()]


def _durable_end(reader: LedgerReader) -> Mark:
    """The newest commit. Raises: HostError where none is known, or the disk failed."""
    page = reader.marks()
    end = None if page is None else page.durable
    if end is None or not end.entries or end.is_poisoned:
        raise HostError(
            "it is not known how much of the ledger is on the disk",
            where=ascii(reader.path),
            hint="any append makes it known",
        )
    return end


def _is_line_end(reader: LedgerReader, edge: Edge) -> bool:
    return edge.offset_bytes == 0 or reader.read(1, edge.offset_bytes - 1) == b"\n"
