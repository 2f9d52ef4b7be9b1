"""What waits for an answer, and answering it: by the door that the record names."""

from collections.abc import Iterator
from contextlib import suppress

from paddock.apps.web.policy import reach, replayed
from paddock.apps.web.view import WEB, HttpRefusal, PlaneDesk
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
        told = {**each.as_json(), "outdated": "" if outdated is None else outdated.why}
        if any(action.startswith("tool:shell:") for action in each.request.actions):
            with suppress(PaddockError):  # its agent is none any more, and the request outdated
                told["reach"] = reach(project, each.request.agent)
        yield told


def show(desk: PlaneDesk) -> dict[str, Json]:
    project = desk.project()
    broken: list[Json] = [each.summary() for each in open_inbox(project).list_broken()]
    return {"requests": list[Json](requests_json(project)), "broken": broken}


# `digest` is of the request as it was shown: an answer is to that one and no other.


def grant(desk: PlaneDesk, *, id_: str, digest: str, resume: bool = False) -> dict[str, Json]:
    project = desk.opened()
    parked = _require_waiting(open_inbox(project), id_, digest)
    # What a command left is committed at once: it does not run again.
    if not resume and parked.changes is None:
        granted = inbox_answers.grant(project, id_, desk.by, parked)
        return {"status": "ok", "request": granted.as_json(), "result": None}
    granted = inbox_answers.grant_here(project, id_, desk.by, parked)
    result = inbox_answers.resume(project, granted, WEB)
    return {"status": "ok", "request": granted.as_json(), "result": result.as_json()}


def refuse(desk: PlaneDesk, *, id_: str, digest: str, note: str = "") -> dict[str, Json]:
    """An empty digest is of a request that does not load: it is moved away."""
    inbox = open_inbox(desk.opened())
    if not digest:
        moved_to = inbox.set_aside(id_)
        if moved_to is None:
            raise HttpRefusal(400, "args.invalid", "it loads: name the digest that was shown")
        return {"status": "ok", "request": None, "moved_to": str(moved_to)}
    seen = _require_waiting(inbox, id_, digest)
    return {"status": "ok", "request": inbox.refuse(id_, desk.by, note, seen).as_json()}


def allow_always(desk: PlaneDesk, *, id_: str, digest: str, confirm: str = "") -> dict[str, Json]:
    """Show the rule and what it would have changed; and, asked a second time, save and trust it.

    Threat: a policy that has changed between the two, so that another rule comes of the yes: it is
    bound to a digest of the whole file as it was shown.
    """
    project = desk.opened()
    parked = _require_waiting(open_inbox(project), id_, digest)
    outdated = inbox_answers.find_outdated(project, parked)
    if outdated is not None and (outdated.bars_rule or parked.changes is not None):
        raise inbox_answers.expired_by(parked, outdated)
    review = inbox_answers.review_always(project, parked)
    content, shown = review.always.content, digest_of(review.always.content)
    if not confirm:
        replay = replayed(project, Candidate(review.file.name, content, project.files))
        said: dict[str, Json] = {"file": str(review.file), "addition": review.always.addition}
        return {"status": "review", **said, "confirm": shown, "replay": replay}
    if confirm != shown:
        raise HttpRefusal(409, "web.changed", "the policy has changed since the rule was shown")
    if parked.changes is None:
        inbox_answers.save_always(project, review, desk.by)
        return {"status": "ok", "saved": True, "result": None}
    result = inbox_answers.commit_and_save(project, review, desk.by, WEB)
    return {"status": "ok", "saved": result.refusal is None, "result": result.as_json()}


def _require_waiting(inbox: Inbox, id_: str, digest: str) -> Parked:
    """Find the request as it was shown. Of two answers at once one counts: see `Inbox.grant`."""
    parked = inbox.find(id_)
    if parked.state != "waiting" or parked.request.digest != digest:
        who = f" by {parked.answered_by}" if parked.answered_by else ""
        said = f"the request was answered meanwhile: {parked.state}{who}"
        raise ApprovalExpiredError(said, hint="what stands there now counts")
    return parked
