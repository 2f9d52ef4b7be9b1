"""Where the files of one ledger stand."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_EXTENSION: Final = ".jsonl"
_START_DIGITS: Final = 16
"""So the order of the names is the order of the segments, and all stand before the newest."""


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """`governance.jsonl` and its folder `governance.d/`."""

    ledger: str

    @property
    def parent(self) -> str:
        return os.path.dirname(self.ledger) or "."

    @property
    def stem(self) -> str:
        """The ledger file without its extension."""
        stem, extension = os.path.splitext(self.ledger)
        return stem if extension == _EXTENSION else self.ledger

    @property
    def folder(self) -> str:
        """What stands beside the ledger file and can be made again from it."""
        return f"{self.stem}.d"

    def sealed(self, start: int) -> str:
        """A segment that is full, by the place of its first byte in the whole ledger."""
        return f"{self.stem}.{start:0{_START_DIGITS}}{_EXTENSION}"

    def find_starts(self, names: Iterable[str]) -> list[int]:
        """Where the sealed segments among these names begin, in order; others count for nothing."""
        before = f"{os.path.basename(self.stem)}."
        first, end = len(before), len(before) + _START_DIGITS
        length = end + len(_EXTENSION)
        digits = [
            name[first:end]
            for name in names
            if name.startswith(before) and len(name) == length and name.endswith(_EXTENSION)
        ]
        return sorted(int(each) for each in digits if each.isdigit() and each.isascii())

    @property
    def next(self) -> str:
        """A segment that is being made."""
        return os.path.join(self.folder, "next")

    @property
    def lock(self) -> str:
        """Held while a line is appended."""
        return os.path.join(self.folder, "lock")

    @property
    def commit_lock(self) -> str:
        """Held while the durable mark is written."""
        return os.path.join(self.folder, "slock")

    @property
    def head(self) -> str:
        return os.path.join(self.folder, "head")

    @property
    def index(self) -> str:
        return os.path.join(self.folder, "index.sqlite")

    @property
    def new(self) -> str:
        return os.path.join(self.folder, "new")

    @property
    def torn(self) -> str:
        """Quarantined bytes."""
        return os.path.join(self.folder, "torn")
