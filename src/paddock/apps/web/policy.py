"""The policy as it is edited: asked in every way before it holds, saved, and trusted.

What the questions answer changes nothing. What is saved is trusted by the digest of exactly
the text that was shown, and asked about twice.
"""

from itertools import islice

from paddock import limits
from paddock.apps.web.desk import Desk, HttpRefusal, error_json
from paddock.assembly.agents import apply_agents, plan_agents
from paddock.assembly.granting import RuleReview, save_rule
from paddock.assembly.project import Project, read_agents
from paddock.assembly.questions import (
    Candidate,
    PlanePolicies,
    compare,
    judged,
    past_decisions,
)
from paddock.errors import ConfigError, PaddockError
from paddock.ledger.query import Filter
from paddock.plane.agents import AgentStore
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PolicyFiles, own_policy_path, read_policy_files
from paddock.policy.engine import Policy
from paddock.policy.questions import explain as explained
from paddock.policy.questions.flip import Always
from paddock.policy.questions.lint import lint, run_examples
from paddock.policy.questions.replay import replay
from paddock.policy.rules import parse_action
from paddock.text.changes import unified_diff
from paddock.text.json import Strict
from paddock.values.calls import Json
from paddock.values.entries import digest_of

_DIFF_LINES_MAX = 2_000


class PolicyAsked(Strict, frozen=True):
    pass


class TextAsked(Strict, frozen=True):
    text: str


class ActionAsked(Strict, frozen=True):
    action: str
    agent: str | None = None
    text: str | None = None
    """None: the policy in force."""


class SaveAsked(Strict, frozen=True):
    text: str
    before: str
    """The digest of the file as it was read; empty where there was none."""
    confirm: str = ""
    """As the review gave it; empty: to be shown it."""


def show(desk: Desk, asked: PolicyAsked) -> dict[str, Json]:
    files = _files(desk)
    own, user = files.project, files.user
    found: dict[str, Json] = {
        "file": str(own_policy_path(desk.site.root)),
        "text": "" if own is None else own.content.decode("utf-8", "replace"),
        "digest": "" if own is None else own.digest,
        "exists": own is not None,
        "trusted": own is not None and own.trusted,
        "reason": "" if own is None else own.reason,
        "user_file": "" if user is None else str(user.path),
        "agents": [],
        "profiles": [],
    }
    try:
        project = desk.project()
        found["agents"] = sorted({*project.agents.names(), project.default_agent})
        found["profiles"] = sorted(project.policy.profiles)
    except PaddockError as error:
        # It is to be mended here.
        found["error"] = error_json(error)
    return found


def lint_text(desk: Desk, asked: TextAsked) -> dict[str, Json]:
    try:
        found = lint(_policy(_candidate(desk, asked.text)), ())
    except ConfigError as error:
        return {"error": error_json(error)}
    return {"findings": [each.as_json() for each in found]}


def test_text(desk: Desk, asked: TextAsked) -> dict[str, Json]:
    try:
        results = run_examples(_policy(_candidate(desk, asked.text)))
    except ConfigError as error:
        return {"error": error_json(error)}
    failed = sum(not each.holds for each in results)
    rows: list[Json] = [each.as_json() for each in results]
    return {"passed": len(results) - failed, "failed": failed, "examples": rows}


def explain_action(desk: Desk, asked: ActionAsked) -> dict[str, Json]:
    action = parse_action(asked.action)
    policy, chain = judged(desk.project(), asked.agent)
    if asked.text is not None:
        try:
            candidate = _candidate(desk, asked.text)
            policy = candidate.policy(policy.plane_kind, policy.planes_below)
        except ConfigError as error:
            return {"error": error_json(error)}
    told = explained.explain(policy, chain, action)
    return {**told.as_json(), "text": told.render()}


def diff_text(desk: Desk, asked: TextAsked) -> dict[str, Json]:
    try:
        return _compared(desk, _candidate(desk, asked.text))
    except ConfigError as error:
        return {"error": error_json(error)}


def replay_text(desk: Desk, asked: TextAsked) -> dict[str, Json]:
    try:
        return replayed(desk.project(), _candidate(desk, asked.text))
    except ConfigError as error:
        return {"error": error_json(error)}


def replayed(project: Project, candidate: Candidate) -> dict[str, Json]:
    """What the file would have decided otherwise, of the newest recorded decisions."""
    path = project.layout.ledger_paths()[LedgerName.HO1M]
    past = islice(past_decisions(path, Filter()), limits.web_replayed_max)
    report = replay(past, PlanePolicies(project, candidate))
    return {**report.as_json(), "text": report.render()}


def save(desk: Desk, asked: SaveAsked) -> dict[str, Json]:
    """Show what saving does; and, asked a second time, write and trust exactly that text.

    Threat: a file that changed between the two, or another text with the yes to the first one.
    """
    files = _files(desk)
    before = None if files.project is None else files.project.content
    candidate = _candidate(desk, asked.text)
    if asked.before != ("" if before is None else digest_of(before)):
        raise HttpRefusal(409, "web.changed", "the policy has changed since it was read")
    project, policy = desk.opened(), _policy(candidate)
    agents = plan_agents(
        policy, read_agents(project.root, project.environment), project.root.path, candidate.name
    )
    confirm = digest_of(asked.before.encode() + b"\n" + candidate.content)
    if not asked.confirm:
        diff = unified_diff(before or b"", candidate.content, candidate.name, _DIFF_LINES_MAX)
        return {
            "status": "review",
            "confirm": confirm,
            "diff": diff,
            "effect": _compared(desk, candidate)["text"],
            "agents": str(agents),
            "findings": [each.as_json() for each in lint(policy, ())],
            "replay": replayed(project, candidate),
        }
    if asked.confirm != confirm:
        raise HttpRefusal(409, "web.changed", "this is not the text that was shown")
    file = own_policy_path(project.root)
    save_rule(project, RuleReview(file, before, Always("", candidate.content)), desk.by)
    apply_agents(desk.opened(), agents)
    return {"status": "ok", "digest": digest_of(candidate.content)}


def _files(desk: Desk) -> PolicyFiles:
    return read_policy_files(desk.site.root, desk.site.environment)


def _candidate(desk: Desk, text: str) -> Candidate:
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > limits.policy_bytes_max:
        raise ConfigError(f"the policy has more than {limits.policy_bytes_max} bytes")
    return Candidate(own_policy_path(desk.site.root).name, content, _files(desk))


def _policy(candidate: Candidate) -> Policy:
    return candidate.policy(candidate.files.kind, candidate.files.planes_below)


def _compared(desk: Desk, candidate: Candidate) -> dict[str, Json]:
    own = candidate.files.project
    old = Candidate(candidate.name, b"" if own is None else own.content, candidate.files)

    def find() -> AgentStore:
        return read_agents(desk.site.root, desk.site.environment)

    report = compare(old, candidate, find, desk.ledgers()[LedgerName.HO1M])
    return {**report.as_json(), "text": report.render()}
