"""What waits for an answer, and answering it: by the door that the record names."""

from paddock.apps.web.desk import Desk, HttpRefusal
from paddock.apps.web.policy import Candidate, replayed
from paddock.assembly import granting
from paddock.assembly.approvals import open_inbox, read_answers
from paddock.assembly.project import Project
from paddock.errors import ApprovalExpiredError
from paddock.runtime.inbox import Inbox
from paddock.runtime.parked import Parked
from paddock.text.json import Strict
from paddock.values.calls import Json
from paddock.values.entries import digest_of


class InboxAsked(Strict, frozen=True):
    pass


class AnswerAsked(Strict, frozen=True):
    id: str
    digest: str
    """Of the request as it was shown; empty for one that does not load."""


class GrantAsked(AnswerAsked, frozen=True):
    resume: bool = False


class RefusalAsked(AnswerAsked, frozen=True):
    note: str = ""


class AlwaysAsked(AnswerAsked, frozen=True):
    confirm: str = ""
    """Of the policy as the review showed it; empty: to be shown it."""


def open_requests(project: Project) -> list[dict[str, Json]]:
    found = open_inbox(project).list_all()
    answers = read_answers(project, [each.id for each in found]) if found else None
    return [
        _summary(each, granting.find_outdated(project, each, answers), is_whole=False)
        for each in found
    ]


def show(desk: Desk, asked: InboxAsked) -> dict[str, Json]:
    project = desk.project()
    inbox = open_inbox(project)
    found = inbox.list_all()
    answers = read_answers(project, [each.id for each in found]) if found else None
    rows = [_summary(each, granting.find_outdated(project, each, answers)) for each in found]
    broken: list[Json] = [each.summary() for each in inbox.list_broken()]
    return {"requests": list[Json](rows), "broken": broken}


def _summary(
    parked: Parked, outdated: granting.Outdated | None = None, *, is_whole: bool = True
) -> dict[str, Json]:
    row = {**parked.summary(), "outdated": "" if outdated is None else outdated.why}
    if not is_whole:
        return row
    request = parked.request
    arguments = {"arguments": dict(request.arguments), "filled": dict(request.filled)}
    return {**row, **arguments, "diff": request.diff}


def grant(desk: Desk, asked: GrantAsked) -> dict[str, Json]:
    project = desk.opened()
    parked = _require_waiting(open_inbox(project), asked)
    # What a command left is committed at once: it does not run again.
    if not asked.resume and parked.changes is None:
        granted = granting.grant(project, asked.id, desk.by)
        return {"status": "ok", "request": _summary(granted), "result": None}
    granted = granting.grant_here(project, asked.id, desk.by)
    result = granting.resume(project, granted)
    return {"status": "ok", "request": _summary(granted), "result": result.as_json()}


def refuse(desk: Desk, asked: RefusalAsked) -> dict[str, Json]:
    project = desk.opened()
    inbox = open_inbox(project)
    if not asked.digest:
        moved_to = inbox.set_aside(asked.id)
        if moved_to is None:
            raise HttpRefusal(400, "args.invalid", "it loads: name the digest that was shown")
        return {"status": "ok", "request": None, "moved_to": str(moved_to)}
    seen = _require_waiting(inbox, asked)
    refused = inbox.refuse(asked.id, desk.by, asked.note, seen)
    return {"status": "ok", "request": _summary(refused)}


def allow_always(desk: Desk, asked: AlwaysAsked) -> dict[str, Json]:
    """Show the rule and what it would have changed; and, asked a second time, save and trust it.

    Threat: a policy that has changed between the two, so that another rule comes of the yes: it is
    bound to a digest of the whole file as it was shown.
    """
    project = desk.opened()
    parked = _require_waiting(open_inbox(project), asked)
    outdated = granting.find_outdated(project, parked)
    if outdated is not None and (outdated.bars_rule or parked.changes is not None):
        raise granting.expired_by(parked, outdated)
    review = granting.review_always(project, parked)
    confirm = digest_of(review.always.content)
    if not asked.confirm:
        candidate = Candidate(review.file.name, review.always.content, project.files)
        return {
            "status": "review",
            "file": str(review.file),
            "addition": review.always.addition,
            "confirm": confirm,
            "replay": replayed(project, candidate),
        }
    if asked.confirm != confirm:
        raise HttpRefusal(409, "web.changed", "the policy has changed since the rule was shown")
    if parked.changes is None:
        granting.save_always(project, review, desk.by)
        return {"status": "ok", "saved": True, "result": None}
    result = granting.commit_and_save(project, review, desk.by)
    return {"status": "ok", "saved": result.refusal is None, "result": result.as_json()}


def _require_waiting(inbox: Inbox, asked: AnswerAsked) -> Parked:
    """The request as it was shown. Of two answers at once one counts: see `Inbox.grant`."""
    parked = inbox.find(asked.id)
    if parked.state != "waiting" or parked.request.digest != asked.digest:
        who = f" by {parked.answered_by}" if parked.answered_by else ""
        said = f"the request was answered meanwhile: {parked.state}{who}"
        raise ApprovalExpiredError(said, hint="what stands there now counts")
    return parked
