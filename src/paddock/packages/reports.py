"""What an install or an uninstall came to."""

from dataclasses import dataclass

from paddock.packages.acceptance import AcceptanceResult
from paddock.packages.transaction import PathChange
from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class Report:
    """What an install or an uninstall came to, or would come to."""

    status: str
    """`installed`, `upgraded`, `uninstalled`, `unchanged` or `planned`."""
    package_id: str
    version: str
    digest: str
    previous: str | None = None
    """The version that gave way."""
    wo_id: str | None = None
    changes: tuple[PathChange, ...] = ()
    notes: tuple[str, ...] = ()
    acceptance: tuple[AcceptanceResult, ...] = ()
    ledger_entry: str | None = None

    def as_json(self) -> dict[str, Json]:
        """For programs."""
        return {
            "status": self.status,
            "package_id": self.package_id,
            "version": self.version,
            "digest": self.digest,
            "previous": self.previous,
            "wo_id": self.wo_id,
            "changes": [
                {"path": change.path, "change": word_of(change)} for change in self.changes
            ],
            "handed_over": [],
            "notes": list(self.notes),
            "acceptance": [result.as_json() for result in self.acceptance],
            "ledger_entry": self.ledger_entry,
        }


def word_of(change: PathChange) -> str:
    """`created`, `replaced` or `removed`."""
    if change.before is None:
        return "created"
    return "removed" if change.after is None else "replaced"
