"""List the requests that wait for an answer, and answer them; recorded as done on the web."""

from collections.abc import Iterator
from contextlib import suppress

from paddock.apps.web.policy import reach, replayed
from paddock.apps.web.view import WEB, HttpRefusal, ServedPlane
from paddock.assembly import inbox_answers
from paddock.assembly.history import open_inbox, read_answers
from paddock.assembly.project import Project
from paddock.assembly.questions import Candidate
from paddock.errors import ApprovalExpiredError, PaddockError
from paddock.runtime.inbox import Inbox, Parked
from paddock.values.calls import Json
from paddock.values.entries import digest_of


def requests_json(project: Project) -> Iterator[dict[str, Json]]:
    found = open_inbox(project).list_all()
    answers = read_answers(project, [each.id for each in found]) if found else None
    for each in found:
        outdated = inbox_answers.find_outdated(project, each, answers)
        row = {**each.as_json(), "outdated": "" if outdated is None else outdated.why}
        if any(action.startswith("tool:shell:") for action in each.request.actions):
            with suppress(PaddockError):  # the agent was removed: the request is outdated
                row["reach"] = reach(project, each.request.agent)
        yield row


def show(plane: ServedPlane) -> dict[str, Json]:
    project = plane.project()
    broken: list[Json] = [each.summary() for each in open_inbox(project).list_broken()]
    return {"requests": list[Json](requests_json(project)), "broken": broken}


# `digest` identifies the request as it was shown: the answer applies to no other.


def grant(plane: ServedPlane, *, id_: str, digest: str, resume: bool = False) -> dict[str, Json]:
    project = plane.opened()
    parked = _require_waiting(open_inbox(project), id_, digest)
    # The waiting changes of a command are committed at once: it does not run again.
    if not resume and parked.changes is None:
        granted = inbox_answers.grant(project, id_, plane.by, parked)
        return {"status": "ok", "request": granted.as_json(), "result": None}
    granted = inbox_answers.grant_here(project, id_, plane.by, parked)
    result = inbox_answers.resume(project, granted, WEB)
    return {"status": "ok", "request": granted.as_json(), "result": result.as_json()}


def refuse(plane: ServedPlane, *, id_: str, digest: str, note: str = "") -> dict[str, Json]:
    """Refuse a request. An empty digest names one that does not load: it is moved away."""
    inbox = open_inbox(plane.opened())
    if not digest:
        moved_to = inbox.set_aside(id_)
        if moved_to is None:
            raise HttpRefusal(400, "args.invalid", "the request loads: give the digest as shown")
        return {"status": "ok", "request": None, "moved_to": str(moved_to)}
    seen = _require_waiting(inbox, id_, digest)
    return {"status": "ok", "request": inbox.refuse(id_, plane.by, note, seen).as_json()}


def allow_always(
    plane: ServedPlane, *, id_: str, digest: str, confirm: str = ""
) -> dict[str, Json]:
    """Show the rule and its effect on past calls; with `confirm`, save and trust it.

    Threat: the policy changes between review and yes, so that another rule is saved: `confirm`
    is the digest of the whole file as it was shown.
    """
    project = plane.opened()
    parked = _require_waiting(open_inbox(project), id_, digest)
    outdated = inbox_answers.find_outdated(project, parked)
    review = inbox_answers.review_always(project, parked, outdated)
    content, shown = review.always.content, digest_of(review.always.content)
    if not confirm:
        replay = replayed(project, Candidate(review.file.name, content, project.files))
        rule: dict[str, Json] = {"file": str(review.file), "addition": review.always.addition}
        return {"status": "review", **rule, "confirm": shown, "replay": replay}
    if confirm != shown:
        raise HttpRefusal(409, "web.changed", "the policy has changed since the rule was shown")
    if parked.changes is None:
        inbox_answers.save_always(project, review, plane.by)
        return {"status": "ok", "saved": True, "result": None}
    result = inbox_answers.commit_and_save(project, review, plane.by, WEB)
    return {"status": "ok", "saved": result.refusal is None, "result": result.as_json()}


def _require_waiting(inbox: Inbox, id_: str, digest: str) -> Parked:
    """Find the request as it was shown. `Inbox.grant` ensures that only one answer wins."""
    parked = inbox.find(id_)
    if parked.state != "waiting" or parked.request.digest != digest:
        who = f" by {parked.answered_by}" if parked.answered_by else ""
        said = f"the request was answered meanwhile: {parked.state}{who}"
        raise ApprovalExpiredError(said, hint="the first answer counts")
    return parked
