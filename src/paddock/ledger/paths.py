"""Where the files of one ledger stand."""

import os
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
        """The directory of the ledger file."""
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

    def find_start(self, name: str) -> int | None:
        """Where a sealed segment of this name begins; None for a name that is none."""
        digits = name.removeprefix(f"{os.path.basename(self.stem)}.").removesuffix(_EXTENSION)
        if len(digits) != _START_DIGITS or not (digits.isascii() and digits.isdigit()):
            return None
        start = int(digits)
        return start if name == os.path.basename(self.sealed(start)) else None

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
        """Held by the leader of a group commit."""
        return os.path.join(self.folder, "slock")

    @property
    def head(self) -> str:
        """The head file."""
        return os.path.join(self.folder, "head")

    @property
    def new(self) -> str:
        """A ledger that is being made."""
        return os.path.join(self.folder, "new")

    @property
    def torn(self) -> str:
        """Quarantined bytes."""
        return os.path.join(self.folder, "torn")
