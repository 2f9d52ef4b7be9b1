"""The inbox of a plane: opened on its directory and its governance ledger, and answered."""

import os
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from paddock.assembly.history import open_history
from paddock.assembly.ledgers import open_ledger
from paddock.assembly.project import Project
from paddock.ledger.format_events import APPROVAL_ANSWERED
from paddock.ledger.query import Filter, query_lines
from paddock.runtime.approval_records import (
    GRANTED,
    KEPT,
    USED,
    answered_later,
    approval_answered,
    approval_asked,
)
from paddock.runtime.approvals import Approval, ApprovalRequest
from paddock.runtime.inbox import Inbox
from paddock.runtime.parked import Parked
from paddock.values.calls import Json
from paddock.values.entries import Entry


def open_inbox(project: Project) -> Inbox:
    """The inbox of the project's plane; nothing is made before something is kept."""
    directory = project.layout.registries / "approvals" / "calls"
    contents = HistoryContents(project)
    return Inbox(directory, GovernanceBook(project), time.time, os.urandom, contents)


@dataclass(frozen=True, slots=True)
class HistoryContents:
    """The plane's history, as the inbox uses it."""

    project: Project

    def release(self, pin: str) -> None:
        """See `KeptContents`."""
        with closing(open_history(self.project)) as history:
            history.store.unpin(pin)


@dataclass(frozen=True, slots=True)
class GovernanceApprovals:
    """Questions and answers, in the governance ledger; it is opened when there are any."""

    project: Project
    session_id: str

    def asked(self, request: ApprovalRequest) -> None:
        """See `ApprovalLog`."""
        _append(self.project, approval_asked(request, self.session_id))

    def answered(self, request: ApprovalRequest, approval: Approval) -> None:
        """See `ApprovalLog`."""
        _append(self.project, approval_answered(request, approval, self.session_id))


@dataclass(frozen=True, slots=True)
class GovernanceBook:
    """The governance ledger, as the inbox uses it."""

    project: Project

    def answered(self, parked: Parked, answer: str) -> None:
        """See `ApprovalBook`."""
        _append(self.project, answered_later(parked, answer))

    def is_kept(self, parked: Parked) -> bool:
        """See `ApprovalBook`."""
        return any(
            answer.get("answer") == KEPT
            and answer.get("digest") == parked.request.digest
            and answer.get("changes", "") == parked.changes_digest
            for answer in self._answers(parked)
        )

    def is_granted(self, parked: Parked, now: float) -> bool:
        """See `ApprovalBook`."""
        answers = self._answers(parked)
        if any(answer.get("answer") == USED for answer in answers):
            return False
        return any(_counts(answer, parked, now) for answer in answers)

    def _answers(self, parked: Parked) -> list[Mapping[str, Json]]:
        path = self.project.layout.ledger_paths()["governance"]
        if not path.exists():
            return []
        wanted = Filter(APPROVAL_ANSWERED, agent=parked.request.agent)
        # Threat: a row that is taken out of a posting file would make a used grant a new one.
        return [
            stored.entry.metadata
            for stored in query_lines(str(path), wanted).entries
            if stored.entry.metadata.get("request") == parked.id
        ]


def _counts(answer: Mapping[str, Json], parked: Parked, now: float) -> bool:
    until = answer.get("expires_at")
    return (
        answer.get("answer") == GRANTED
        and answer.get("digest") == parked.request.digest
        and type(until) is int
        and now < until
    )


def _append(project: Project, entry: Entry) -> None:
    with closing(open_ledger(project, "governance")) as ledger:
        ledger.append([entry])
