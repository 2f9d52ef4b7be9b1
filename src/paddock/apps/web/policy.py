"""The policy editor: questions about a text before it is in force; save and trust it.

The questions change nothing. Saving takes two requests: the second must carry the digest of
exactly the text that the first one showed, and that text is trusted.
"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from paddock import limits
from paddock.apps.command import fields
from paddock.apps.web.view import HttpRefusal, ServedPlane, error_json
from paddock.assembly.agents import apply_agents, plan_agents
from paddock.assembly.inbox_answers import RuleReview, save_rule
from paddock.assembly.project import Project, read_agents
from paddock.assembly.questions import Candidate, PlanePolicies, compare, judged, past_decisions
from paddock.errors import ConfigError, PaddockError
from paddock.ledger.query import Filter
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PolicyFiles, own_policy_path, read_policy_files
from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy
from paddock.policy.questions.compare import replay
from paddock.policy.questions.differences import Item, list_items
from paddock.policy.questions.explain import explain, run_examples
from paddock.policy.questions.flip import Always
from paddock.policy.questions.lint import lint
from paddock.policy.rules import parse_action
from paddock.text.changes import unified_diff
from paddock.values.calls import Json
from paddock.values.entries import digest_of

_DIFF_LINES_MAX: Final = 2_000


def show(plane: ServedPlane) -> dict[str, Json]:
    own = _files(plane).project
    found: dict[str, Json] = {"file": str(own_policy_path(plane.site.root)), "agents": []}
    found |= {"profiles": [], "exists": own is not None, "trusted": False}
    found |= {"text": "", "digest": "", "reason": ""}
    if own is not None:
        found["text"] = own.content.decode("utf-8", "replace")
        found |= fields(own, "digest", "trusted", "reason")
    try:
        project = plane.project()
        found |= {"agents": [*_agents(project)], "profiles": sorted(project.policy.profiles)}
    except PaddockError as error:
        # The editor opens all the same, so that the user can fix it.
        found["error"] = error_json(error)
    return found


def _of_text(
    answer: Callable[[ServedPlane, Candidate], dict[str, Json]],
) -> Callable[..., dict[str, Json]]:
    """Wrap a question about an edited text: a text that does not load is a valid response."""

    def answered(plane: ServedPlane, *, text: str) -> dict[str, Json]:
        try:
            return answer(plane, _candidate(plane, text))
        except ConfigError as error:
            return {"error": error_json(error)}

    return answered


lint_text = _of_text(
    lambda _, text: {"findings": [each.as_json() for each in lint(_policy(text), ())]}
)


@_of_text
def list_rules(plane: ServedPlane, candidate: Candidate) -> dict[str, Json]:
    """List each rule with its place and its agents; `agents` is empty if it applies to all."""
    policy, project = _policy(candidate), plane.project()
    agents: dict[str, list[Json]] = {"": []}
    for name in _agents(project):
        for profile in judge_for(policy, judged(project, name)[1]).profiles():
            agents.setdefault(profile.name, []).append(name)
    held = (item for item in list_items(policy) if item.profile in agents)
    return {"rules": [{"agents": agents[item.profile], **_rule_json(item)} for item in held]}


_REACHES: Final = {
    "none": "commands have no network",
    "loopback": "commands reach only servers that they start themselves",
    "host": "commands reach everything that this machine reaches",
}


def reach(project: Project, *names: str) -> str:
    """Describe the hosts that rules let commands of these agents, or of any agent, reach."""
    hosts = dict[str, None]()
    for policy, chain in (judged(project, name) for name in names or _agents(project)):
        network = policy.settings.shell.network
        if network != "policy":
            return _REACHES[network]
        if policy.settings.network.packages:
            hosts["the indexes of package clients"] = None
        profiles = {each.name for each in judge_for(policy, chain).profiles()}
        for item in list_items(policy):
            if item.profile in profiles and item.text.startswith("tool:net:"):
                target, outcome = item.text.partition(" ")[2], _rule_json(item)["outcome"]
                target = "any host" if target in ("", "*", "**") else target
                if outcome in ("allow", "ask"):
                    hosts[target + (" (after approval)" if outcome == "ask" else "")] = None
    said = f"rules let commands reach {', '.join(hosts)}"
    return said if hosts else "no rule lets commands reach a host"


def _rule_json(item: Item) -> dict[str, Json]:
    outcome, _, only = item.says.removeprefix("otherwise ").partition("+")
    said = {"outcome": outcome, "only": only, "is_rest": item.says.startswith("otherwise")}
    return {"text": item.text, **said, **fields(item.place, "file", "line")}


@_of_text
def test_text(plane: ServedPlane, candidate: Candidate) -> dict[str, Json]:
    results = run_examples(_policy(candidate))
    failed, rows = sum(not each.holds for each in results), [each.as_json() for each in results]
    return {"passed": len(results) - failed, "failed": failed, "examples": list[Json](rows)}


@_of_text
def diff_text(plane: ServedPlane, candidate: Candidate) -> dict[str, Json]:
    own = candidate.files.project
    old = Candidate(candidate.name, b"" if own is None else own.content, candidate.files)
    find = partial(read_agents, plane.site.root, plane.site.environment)
    report = compare(old, candidate, find, plane.ledgers()[LedgerName.HO1M])
    return {**report.as_json(), "text": report.render()}


def replayed(project: Project, candidate: Candidate) -> dict[str, Json]:
    path = project.layout.ledger_paths()[LedgerName.HO1M]
    past = islice(past_decisions(path, Filter()), limits.web_replayed_max)
    report = replay(past, PlanePolicies(project, candidate))
    return {**report.as_json(), "text": report.render()}


replay_text = _of_text(lambda plane, candidate: replayed(plane.project(), candidate))


def explain_action(
    plane: ServedPlane, *, action: str, agent: str | None = None, text: str | None = None
) -> dict[str, Json]:
    """Explain an action under `text`, or if it is None under the policy in force."""
    policy, chain = judged(plane.project(), agent)
    if text is not None:
        try:
            candidate = _candidate(plane, text)
            policy = candidate.policy(policy.plane_kind, policy.planes_below)
        except ConfigError as error:
            return {"error": error_json(error)}
    explanation = explain(policy, chain, parse_action(action))
    return {**explanation.as_json(), "text": explanation.render()}


def save(plane: ServedPlane, *, text: str, before: str, confirm: str = "") -> dict[str, Json]:
    """Show the effect of saving; with `confirm`, write and trust exactly that text.

    `before` is the digest of the file as it was read, or empty; `confirm` is the review's.

    Threat: the file changes between the two requests, or the yes comes with another text.
    """
    candidate = _candidate(plane, text)
    own = candidate.files.project
    if before != ("" if own is None else own.digest):
        raise HttpRefusal(409, "web.changed", "the policy has changed since it was read")
    project, policy = plane.opened(), _policy(candidate)
    there = None if own is None else own.content
    agents = plan_agents(policy, project.agents, project.root.path, candidate.name)
    shown = digest_of(before.encode() + b"\n" + candidate.content)
    if not confirm:
        diff = unified_diff(there or b"", candidate.content, candidate.name, _DIFF_LINES_MAX)
        asked = {"confirm": shown, "diff": diff, "agents": str(agents)}
        effect, found = diff_text(plane, text=text)["text"], lint_text(plane, text=text)["findings"]
        replay = replayed(project, candidate)
        return {"status": "review", **asked, "effect": effect, "findings": found, "replay": replay}
    if confirm != shown:
        raise HttpRefusal(409, "web.changed", "this is not the text that was shown")
    always = Always("", candidate.content)
    save_rule(project, RuleReview(own_policy_path(project.root), there, always), plane.by)
    apply_agents(plane.opened(), agents)
    return {"status": "ok", "digest": digest_of(candidate.content)}


def _agents(project: Project) -> list[str]:
    return sorted({*project.agents.names(), project.default_agent})


def _files(plane: ServedPlane) -> PolicyFiles:
    return read_policy_files(plane.site.root, plane.site.environment)


def _candidate(plane: ServedPlane, text: str) -> Candidate:
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > limits.policy_bytes_max:
        raise ConfigError(f"the policy has more than {limits.policy_bytes_max} bytes")
    return Candidate(own_policy_path(plane.site.root).name, content, _files(plane))


def _policy(candidate: Candidate) -> Policy:
    return candidate.policy(candidate.files.kind, candidate.files.planes_below)
