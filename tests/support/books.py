"""The governance ledger in memory: what operators answered, and what was used."""

from msgspec import Struct, field

from paddock.runtime.inbox import Answers, Parked
from paddock.values.entries import Entry


class Told(Answers, frozen=True):
    def is_kept(self, parked: Parked) -> bool:
        # Whoever asks records it, and this book is told of answers alone.
        return True


class Book(Struct, dict=True):
    rows: list = field(default_factory=list)
    """Newest first."""

    def record(self, entry: Entry) -> None:
        self.rows.insert(0, entry.metadata)

    def answers(self, request: str) -> Told:
        return Told([row for row in self.rows if row.get("request") == request])
