"""One change of the installed set, as it is told on the disk while it is on its way.

    objects/packages/transaction.json     this record; there is at most one
    objects/packages/<id>/<number>        what was replaced, where it may have to come back

    begun     everything is prepared; the swap may have happened or not, as a whole
    decided   the swap happened and was accepted: it stands

The record holds all that is needed to go on from it: which paths change from what to what,
the ledger entry and the receipt. See `finishing` for what is made of it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from paddock.errors import IntegrityError
from paddock.packages.receipts import Receipt, parse_receipt
from paddock.plane.strict_json import Fields, parse_object, write_object
from paddock.values.calls import Json
from paddock.values.entries import Entry

FORMAT: Final = 1


class Phase(StrEnum):
    """How far it is."""

    BEGUN = "begun"
    DECIDED = "decided"


class Kind(StrEnum):
    """What can give way to a package's file."""

    FILE = "file"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Before:
    """What stood at a path."""

    kind: Kind
    version: str
    """The digest of a file's content, or of a link's text."""
    mode: int
    link_text: str | None = None
    backup: str | None = None
    """The name under which a file's content was put aside, where it may have to come back."""


@dataclass(frozen=True, slots=True)
class After:
    """What is to stand there: a file."""

    version: str
    mode: int


@dataclass(frozen=True, slots=True)
class PathChange:
    """One path of the swap; not both are None."""

    path: str
    before: Before | None
    after: After | None


@dataclass(frozen=True, slots=True)
class RemovedDirectory:
    """A directory that the swap leaves empty, and takes away."""

    path: str
    mode: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """See the module."""

    id: str
    package_id: str
    phase: Phase
    is_tested: bool
    """Whether acceptance commands stand between the swap and the decision."""
    manifest_before: str | None
    """Digest of the manifest that stood in the plane; None where the package was not there."""
    manifest_after: str | None
    """None for an uninstall."""
    changes: tuple[PathChange, ...]
    made: tuple[str, ...]
    """Directories that the swap makes, parents first."""
    removed: tuple[RemovedDirectory, ...]
    """Parents last."""
    entry: Entry
    receipt: Receipt | None
    """Without its ledger entry; None for an uninstall."""

    def to_bytes(self) -> bytes:
        """As it stands on the disk."""
        return write_object(
            {
                "format": FORMAT,
                "id": self.id,
                "package_id": self.package_id,
                "phase": self.phase,
                "is_tested": self.is_tested,
                "manifest_before": self.manifest_before,
                "manifest_after": self.manifest_after,
                "changes": [_change_json(change) for change in self.changes],
                "made": list(self.made),
                "removed": [{"path": each.path, "mode": each.mode} for each in self.removed],
                "entry": _entry_json(self.entry),
                "receipt": None if self.receipt is None else self.receipt.as_json(),
            }
        )


def parse_transaction(content: bytes, file: str) -> Transaction:
    """The record that `content` is.

    Raises:
        ConfigError, IntegrityError: no crash makes one like this: it was written whole.
    """
    fields = parse_object(content, file)
    if fields.number("format") != FORMAT:
        raise IntegrityError("a change of packages by another version of paddock", where=file)
    receipt = fields.members.get("receipt")
    try:
        phase = Phase(fields.text("phase"))
        changes = tuple(map(_change, fields.tables("changes")))
    except ValueError as error:
        raise IntegrityError("the record of a change of packages is damaged", where=file) from error
    return Transaction(
        id=fields.text("id"),
        package_id=fields.text("package_id"),
        phase=phase,
        is_tested=fields.members.get("is_tested") is True,
        manifest_before=fields.text_or_null("manifest_before"),
        manifest_after=fields.text_or_null("manifest_after"),
        changes=changes,
        made=fields.texts("made", ()),
        removed=tuple(
            RemovedDirectory(each.text("path"), each.number("mode"))
            for each in fields.tables("removed")
        ),
        entry=_entry(fields.table("entry")),
        receipt=None
        if receipt is None
        else parse_receipt(write_object(cast("dict[str, Json]", receipt)), file),
    )


def _change_json(change: PathChange) -> Json:
    before, after = change.before, change.after
    shown: dict[str, Json] = {"path": change.path}
    if before is not None:
        shown["before"] = {
            "kind": before.kind,
            "version": before.version,
            "mode": before.mode,
            "link_text": before.link_text,
            "backup": before.backup,
        }
    if after is not None:
        shown["after"] = {"version": after.version, "mode": after.mode}
    return shown


def _change(fields: Fields) -> PathChange:
    before = after = None
    if "before" in fields.members:
        row = fields.table("before")
        before = Before(
            Kind(row.text("kind")),
            row.text("version"),
            row.number("mode"),
            row.text_or_null("link_text"),
            row.text_or_null("backup"),
        )
    if "after" in fields.members:
        row = fields.table("after")
        after = After(row.text("version"), row.number("mode"))
    return PathChange(fields.text("path"), before, after)


def _entry_json(entry: Entry) -> Json:
    return {
        "event_type": entry.event_type,
        "submission_id": entry.submission_id,
        "decision": entry.decision,
        "reason": entry.reason,
        "call_id": entry.call_id,
        "metadata": dict(entry.metadata),
    }


def _entry(fields: Fields) -> Entry:
    return Entry(
        event_type=fields.text("event_type"),
        submission_id=fields.text("submission_id"),
        decision=fields.text("decision"),
        reason=fields.text("reason"),
        call_id=fields.text("call_id"),
        metadata=dict(fields.table("metadata").members),
    )
