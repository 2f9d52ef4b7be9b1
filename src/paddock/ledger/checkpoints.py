"""Making a checkpoint of a ledger, and the copies that are kept beside it.

What is signed is what the disk has for certain: the newest commit. In order: the
lines since the tree's edge are hashed and must chain; the signer compares with
what it signed before, and signs; the note is stored; then the tree's edge moves.
A kill in between costs the hashing, done again.

The lock is that of the directory `checkpoints/`. It is never held while the
append lock is wanted, nor the other way round.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError, HostError, LedgerDamagedError
from paddock.ledger.format.merkle import Growing, consistency_path, root_of
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint
from paddock.ledger.head import Mark
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.reading import LedgerReader
from paddock.ledger.scan import read_first
from paddock.ledger.signing import Signer, require_growth
from paddock.ledger.tree import Edge, TreeFiles
from paddock.storage.atomic import make_directories, read_file, replace_file
from paddock.storage.locks import locked, try_locked

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
    """Where the checkpoints of a ledger are kept beside it."""
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
