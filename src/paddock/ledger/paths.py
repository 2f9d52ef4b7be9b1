"""Where the files of one ledger stand."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """`governance.jsonl` and its folder `governance.d/`."""

    ledger: str

    @property
    def parent(self) -> str:
        """The directory of the ledger file."""
        return os.path.dirname(self.ledger) or "."

    @property
    def folder(self) -> str:
        """What stands beside the ledger file and can be made again from it."""
        stem, extension = os.path.splitext(self.ledger)
        return f"{stem if extension == '.jsonl' else self.ledger}.d"

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
