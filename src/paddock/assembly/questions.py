"""Answer "what if" and "why": candidate policies, agents that were removed, recorded decisions.

It puts nothing into force, and records nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from paddock import limits
from paddock.assembly.project import (
    PlaneSite,
    Project,
    chain_of_type,
    declared_for,
    is_bound,
    is_not_created_yet,
    planned_default_chain,
    read_agents,
    read_project,
)
from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.ledger.query import BadRow, Filter, find_decided, query, query_lines
from paddock.ledger.read import stands
from paddock.plane.agents import AgentStore
from paddock.plane.discover import find_root
from paddock.plane.environment import Environment
from paddock.plane.trust import PolicyFiles, read_policy_files
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.positions import BUILT_IN
from paddock.policy.questions import record
from paddock.policy.questions.explain import Now, explain_now
from paddock.storage.atomic import read_file_through_links
from paddock.text.show import quote
from paddock.values.decisions import AgentChain, PlaneKind
from paddock.values.entries import APPROVAL_ANSWERED, TOOL_STAGED, Entry

if TYPE_CHECKING:
    from paddock.policy.questions.compare import Diff

_TRIED_MAX: Final = 1000
"""Newest recorded calls that `compare` tries besides those that it makes."""

_Place = tuple[PlaneKind, tuple[str, ...]]
"""A workspace's kind, and the planes below it: for each, a file is a different policy."""


class Candidate(Struct, frozen=True):
    name: str
    content: bytes
    files: PolicyFiles

    def policy(self, kind: PlaneKind, planes_below: tuple[str, ...]) -> Policy:
        user = self.files.user
        below = None if user is None else PolicySource(user.path.name, user.content)
        own = PolicySource(self.name, self.content)
        return load_policy(own, below, kind, planes_below, self.files.packages)


class PlanePolicies(Struct, frozen=True):
    project: Project
    candidate: Candidate | None = None
    _made: dict[_Place, Policy] = field(default_factory=dict[_Place, Policy])
    _met: dict[str, Policy | None] = field(default_factory=dict[str, Policy | None])
    _declared: dict[str, bool] = field(default_factory=dict[str, bool])

    def policy_for(self, agent: str) -> Policy | None:
        if agent not in self._met:
            self._met[agent] = self._find(agent)
        return self._met[agent]

    def is_whole(self, past: record.PastDecision) -> bool:
        """Return True if an entry holds the whole chain: a client's kind of agent with its parent.

        Older entries lack the parent, so how they would be decided now is unknown.
        """
        if past.door is not record.RecordedDoor.HOOK:
            return True
        first, *ancestors = (agent.name for agent in past.chain)
        if self.project.default_agent in ancestors:
            return True
        if first not in self._declared:
            self._declared[first] = declared_for(self.project.agents, first) == first
        return self._declared[first]

    def _find(self, agent: str) -> Policy | None:
        project = self.project
        if project.layout.kind is PlaneKind.PROJECT:
            return self._in_place_of(project.policy)
        try:
            own = project.policy_for(project.agents.read(agent))
        except UsageError:
            return None
        return self._in_place_of(own)

    def _in_place_of(self, in_force: Policy) -> Policy:
        if self.candidate is None:
            return in_force
        place = (in_force.plane_kind, in_force.planes_below)
        if place not in self._made:
            self._made[place] = self.candidate.policy(*place)
        return self._made[place]


def read_candidate(path: Path, name: str, files: PolicyFiles) -> Candidate:
    content = read_file_through_links(path, limits.policy_bytes_max)
    if content is None:
        raise UsageError(f"policy file {quote(name)} not found", where=str(path))
    return Candidate(name, content, files)


def own_candidate(files: PolicyFiles) -> Candidate:
    own = files.project
    if own is None:
        raise UsageError(
            "the project has no policy file",
            hint="name a file; or write one with paddock init",
        )
    return Candidate(own.path.name, own.content, files)


def built_in_candidate(files: PolicyFiles) -> Candidate:
    # An empty file decides like no file.
    return Candidate(BUILT_IN, b"", files)


def find_policy_files(start: Path, environment: Environment, override: Path | None) -> PolicyFiles:
    return read_policy_files(find_root(start, environment, override), environment)


def find_agents(start: Path, environment: Environment, override: Path | None) -> AgentStore:
    return read_agents(find_root(start, environment, override), environment)


def require_past_agent(project: Project, agent: str, *others: Path) -> None:
    names = sorted({*project.agents.names(), project.default_agent})
    paths = (*project.layout.ledger_paths().values(), *others)
    if agent in names or _has_acted(agent, paths):
        return
    raise UsageError(
        f"no agent is or was named {quote(agent)}",
        where="--agent",
        hint=f"one of: {', '.join(names)}",
    )


def require_agent_of_site(site: PlaneSite, agent: str) -> None:
    try:
        project = read_project(site.root, site.environment)
    except ConfigError:
        if not _has_acted(agent, site.layout.ledger_paths().values()):
            raise
        return
    require_past_agent(project, agent)


def _has_acted(agent: str, ledgers: Iterable[Path]) -> bool:
    wanted = Filter(agent=agent)
    return any(stands(path) and query_lines(str(path), wanted, last=1).entries for path in ledgers)


def judged(project: Project, name: str | None) -> tuple[Policy, AgentChain]:
    """Return an agent's policy and chain; for a client's kind of agent, as the hook judges it."""
    wanted, agents = project.agent_named(name), project.agents
    if wanted != project.default_agent:
        if is_bound(project, wanted) and declared_for(agents, wanted) != wanted:
            usual = planned_default_chain(agents)
            return project.policy, chain_of_type(agents, usual, wanted)
    elif is_not_created_yet(agents):
        return project.policy, planned_default_chain(agents)
    return project.policy_for(agents.read(wanted)), agents.chain(wanted)


def compare(old: Candidate, new: Candidate, find: Callable[[], AgentStore], ledger: Path) -> "Diff":
    """Find calls that two policy files decide differently, recorded ones among them."""
    from paddock.policy.questions.compare import diff  # noqa: PLC0415 - one question's

    def chain_of(name: str) -> AgentChain:
        # Read late: an agent file that does not load must not stop questions without it.
        agents = find()
        return chain_of_type(agents, planned_default_chain(agents), name)

    place = (old.files.kind, old.files.planes_below)
    past = (
        each for each in past_decisions(ledger, Filter()) if isinstance(each, record.PastDecision)
    )
    actions = [action for each in islice(past, _TRIED_MAX) for action in each.actions]
    return diff(old.policy(*place), new.policy(*place), chain_of, actions)


def past_decisions(path: Path, wanted: Filter) -> Iterator[record.PastDecision | record.Lost]:
    if not stands(path):
        return
    answered: set[tuple[str, str]] = set()
    for row in find_decided(str(path), record.DECIDED_EVENTS, wanted):
        if isinstance(row, BadRow):
            place = record.Recorded(-1, "", "", "", "?", f"byte {row.offset_bytes}")
            yield record.Lost(place, record.Why.UNREADABLE, row.fault.value)
            continue
        entry = row.entry
        # Rows come newest first: skip a staged call whose decision after the answer was seen.
        if entry.event_type == TOOL_STAGED and (entry.session_id, entry.call_id) in answered:
            continue
        if entry.metadata.get("outcome") in ("confine", "ask"):
            answered.add((entry.session_id, entry.call_id))
        found = record.read_recorded(row.seq, row.timestamp, entry)
        if found is not None:
            yield found


def recorded_calls(
    path: Path, call_id: str, governance: Path | None, session_id: str | None = None
) -> tuple[tuple[record.RecordedCall, ...], int]:
    """Return the calls with this id, newest first, and the number of lines without an entry.

    `governance` is the ledger with the questions about them; None: without these.
    """
    if not stands(path):
        return (), 0
    rows = query(str(path), Filter(call_id=call_id, session_id=session_id))
    of_calls = (row for row in rows.entries if row.entry.event_type in record.CALL_EVENTS)
    kept = [record.KeptCall(row.seq, row.timestamp, row.entry) for row in of_calls]
    calls = record.find_recorded_calls(kept, call_id)
    asked = (record.with_question(call, _asked(call, governance)) for call in calls)
    return tuple(_with_waited(call, path, governance) for call in asked), len(rows.bad)


def _with_waited(
    call: record.RecordedCall, path: Path, governance: Path | None
) -> record.RecordedCall:
    if governance is None or not stands(governance):
        return call
    entry = call.decided.entry
    is_landing = bool(record.landed_request(entry))
    answered = Filter(event_type=APPROVAL_ANSWERED, call_id=None if is_landing else entry.call_id)
    answers = [row.entry for row in query(str(governance), answered).entries]
    if not answers:
        return call
    landed = query(str(path), Filter(tool=record.LANDING_TOOL)).entries
    return record.with_waited(call, answers, (row.entry for row in landed))


def _asked(call: record.RecordedCall, governance: Path | None) -> Iterator[Entry]:
    entry = call.decided.entry
    if governance is None or entry.metadata.get("outcome") not in ("confine", "ask"):
        return
    if stands(governance):
        wanted = Filter(call_id=entry.call_id)
        yield from (row.entry for row in query(str(governance), wanted).entries)


def decided_now(find: Callable[[], Project], call: record.RecordedCall) -> Now:
    decided = call.decided
    past = record.read_recorded(decided.seq, decided.time, decided.entry)
    try:
        policies = PlanePolicies(find())
        policy = policies.policy_for(decided.entry.agent)
        if isinstance(past, record.PastDecision) and not policies.is_whole(past):
            past = record.Lost(past.where, record.Why.INCOMPLETE)
    except PaddockError as error:
        # Show the record even if the project no longer loads.
        return Now(f"no policy is in force now: {error.message}")
    now = explain_now(past, policy)
    if call.has_refused_changes:
        return now.with_refused_changes()
    return now.unasked() if call.is_denied_unasked else now
