"""Ledgers that are signed: a key of one's own, checkpoints kept elsewhere, the other verifier."""

import functools
import importlib.util
import os
import shutil
from pathlib import Path

from msgspec import Struct

from paddock.ledger.checkpoint import Checkpointer
from paddock.ledger.format.lines import Genesis
from paddock.ledger.signing import KeySigner, create_key
from tests.support.ledgers import note, open_ledger
from tests.support.repository import ROOT

ORIGIN = "paddock.test/sealed"
SEED = bytes(range(32))


@functools.cache
def load_verifier():
    """src/paddock_verify.py, which knows nothing of the package.

    It is slow with signatures, and most are asked about again and again: its answers are kept.
    """
    place = ROOT / "src" / "paddock_verify.py"
    spec = importlib.util.spec_from_file_location("verify_ledger", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.is_signed = functools.cache(module.is_signed)
    return module


class Sealed(Struct, dict=True):
    """A ledger with its key, in folders of their own."""

    folder: Path
    path: str
    key: Path

    @property
    def signer(self) -> KeySigner:
        return KeySigner(self.key)

    @property
    def checkpointer(self) -> Checkpointer:
        return Checkpointer(self.path, lambda: self.signer)

    def append(self, count: int) -> None:
        ledger = open_ledger(self.path, create=None)
        for number in range(count):
            ledger.append([note(f"note {number}")])
        ledger.close()

    def lines(self) -> list[bytes]:
        return Path(self.path).read_bytes().split(b"\n")[:-1]

    def write(self, lines: list[bytes]) -> None:
        Path(self.path).write_bytes(b"".join(line + b"\n" for line in lines))

    def forget_sidecars(self) -> None:
        """What stands beside the ledger is in reach of whoever changes the ledger."""
        shutil.rmtree(self.folder / "x.d")

    def kept(self, name: str, text: str) -> Path:
        """A checkpoint in a place of its own."""
        path = self.folder.parent / f"kept-{name}"
        path.write_text(text, encoding="utf-8")
        return path


def seal_ledger(tmp_path: Path, count: int) -> Sealed:
    """A ledger of so many entries, with GENESIS, and nothing signed yet."""
    folder = tmp_path / "plane"
    keys = tmp_path / "keys"
    folder.mkdir()
    keys.mkdir()
    key = keys / "x.key"
    verifier = create_key(str(key), ORIGIN, lambda size: SEED[:size]).verifier
    path = os.fspath(folder / "x.jsonl")
    open_ledger(path, create=Genesis(ORIGIN, "HOT", str(verifier))).close()
    sealed = Sealed(folder, path, key)
    sealed.append(count - 1)
    return sealed
