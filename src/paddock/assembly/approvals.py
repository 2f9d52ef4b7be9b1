"""The inbox of a plane: opened on its directory and its governance ledger, and answered."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock.assembly.history import open_history
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project
from paddock.errors import LedgerDamagedError
from paddock.ledger.query import BadRow, Filter, find_decided
from paddock.plane.layout import LedgerName
from paddock.runtime.approvals import Approval, ApprovalRequest, shown_digest
from paddock.runtime.records import (
    GRANTED,
    KEPT,
    REFUSED,
    USED,
    answered_later,
    approval_answered,
    approval_asked,
)
from paddock.values.calls import Json
from paddock.values.entries import APPROVAL_ANSWERED, ROLLBACK_ACCEPTED

if TYPE_CHECKING:
    from paddock.runtime.inbox import Inbox
    from paddock.runtime.parked import Parked

_ANSWERS: Final = (APPROVAL_ANSWERED, ROLLBACK_ACCEPTED)


def open_inbox(project: Project) -> "Inbox":
    from paddock.runtime.inbox import Inbox  # noqa: PLC0415 - for a question alone

    directory = project.layout.registries / "approvals" / "calls"
    contents = HistoryContents(project)
    return Inbox(directory, GovernanceBook(project), time.time, os.urandom, contents)


class HistoryContents(Struct, frozen=True):
    project: Project

    def release(self, pin: str) -> None:
        with closing(open_history(self.project)) as history:
            history.store.unpin(pin)


class GovernanceApprovals(Struct, frozen=True):
    project: Project
    session_id: str

    def asked(self, request: ApprovalRequest) -> None:
        record_in_governance(self.project, approval_asked(request, self.session_id))

    def answered(self, request: ApprovalRequest, approval: Approval) -> None:
        """See `ApprovalLog`; that a kept request's answer was used the inbox has put on record."""
        if not (approval.is_granted and approval.request_id):
            record_in_governance(
                self.project, approval_answered(request, approval, self.session_id)
            )


class GovernanceBook(Struct, frozen=True):
    """The governance ledger, as the inbox uses it.

    Threat: a use that was edited, cut off or restored away makes a used grant a new one. So
    each answer comes from the lines themselves, never from the index; only where the
    whole ledger is what was signed, by the key's last checkpoint and the anchor, which stand
    outside the plane; and only since somebody accepted that the ledger went back.
    """

    project: Project

    def answered(self, parked: "Parked", answer: str) -> None:
        record_in_governance(self.project, answered_later(parked, answer))

    def record_use(self, request: ApprovalRequest, approval: Approval) -> None:
        record_in_governance(self.project, approval_answered(request, approval, request.session_id))

    def is_kept(self, parked: "Parked") -> bool:
        return read_answers(self.project, [parked.id]).is_kept(parked)

    def is_granted(self, parked: "Parked", now: float) -> bool:
        return read_answers(self.project, [parked.id]).is_granted(parked, now)

    def is_used(self, parked: "Parked") -> bool:
        return read_answers(self.project, [parked.id]).is_used(parked)


class Answers(Struct, frozen=True):
    rows: Sequence[Mapping[str, Json]]

    def is_kept(self, parked: "Parked") -> bool:
        return any(_keeps(answer, parked) for answer in self._to(parked))

    def is_granted(self, parked: "Parked", now: float) -> bool:
        # Threat: the file of a grant that was taken back is put in its place again.
        said = [row for row in self._to(parked) if row.get("answer") in (GRANTED, REFUSED)]
        return bool(said) and _counts(said[0], parked, now) and not self.is_used(parked)

    def is_used(self, parked: "Parked") -> bool:
        return any(answer.get("answer") == USED for answer in self._to(parked))

    def _to(self, parked: "Parked") -> Sequence[Mapping[str, Json]]:
        return [row for row in self.rows if row.get("request") == parked.id]


def read_answers(project: Project, requests: Collection[str]) -> Answers:
    """What was answered to these. Raises: LedgerDamagedError; HostError, ConfigError."""
    from paddock.assembly.auditing import audit_ledger  # noqa: PLC0415 - for a question alone

    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not path.exists():
        return Answers(())
    if not audit_ledger(project.layout, project.environment, LedgerName.GOVERNANCE).is_whole:
        raise _unknown(path)
    found: list[Mapping[str, Json]] = []
    for row in find_decided(str(path), _ANSWERS, Filter()):
        if isinstance(row, BadRow):
            raise _unknown(path)
        metadata = row.entry.metadata
        if row.entry.event_type == APPROVAL_ANSWERED:
            found += [metadata] if metadata.get("request") in requests else []
        elif metadata.get("ledger") == LedgerName.GOVERNANCE:
            break
    return Answers(found)


def _unknown(path: Path) -> LedgerDamagedError:
    return LedgerDamagedError(
        "the governance ledger does not verify: nobody can tell which grants were used",
        where=str(path),
        hint="paddock ledger verify --ledger governance",
    )


def _keeps(answer: Mapping[str, Json], parked: "Parked") -> bool:
    shown = shown_digest(parked.request)
    return (
        answer.get("answer") == KEPT
        and answer.get("digest") == parked.request.digest
        and answer.get("changes", "") == parked.changes_digest
        # An earlier version recorded no digest of what is shown; such a request ends in a day.
        and answer.get("shown", shown) == shown
    )


def _counts(answer: Mapping[str, Json], parked: "Parked", now: float) -> bool:
    until = answer.get("expires_at")
    return (
        answer.get("answer") == GRANTED
        and answer.get("digest") == parked.request.digest
        and type(until) is int
        and now < until
    )
