"""What a question needs to be asked: a policy that is not in force, an agent that is no more.

Nothing is put in force, and nothing is recorded.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct, field

from paddock import limits
from paddock.assembly.project import PlaneSite, Project, declared_for, read_agents, read_project
from paddock.errors import ConfigError, UsageError
from paddock.ledger.query import Filter, query_lines
from paddock.ledger.read import stands
from paddock.plane.agents import AgentStore
from paddock.plane.discover import find_root, plane_for
from paddock.plane.environment import Environment
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PolicyFiles, read_policy_files
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.places import BUILT_IN
from paddock.policy.questions.record import PastDecision, RecordedDoor
from paddock.storage.atomic import read_file_through_links
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind

_Place = tuple[PlaneKind, tuple[str, ...]]
"""What a workspace is, and the planes below it: by that one file makes several policies."""


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

    def is_whole(self, past: PastDecision) -> bool:
        """Whether a client's kind of agent is on record with the default agent, its parent.

        Of older entries, what would be decided now cannot be told.
        """
        if past.door is not RecordedDoor.HOOK:
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
        raise UsageError(f"there is no policy file {quote(name)}", where=str(path))
    return Candidate(name, content, files)


def own_candidate(files: PolicyFiles) -> Candidate:
    own = files.project
    if own is None:
        raise UsageError(
            "the project has no policy file of its own",
            hint="name the file that is meant; or paddock init writes one",
        )
    return Candidate(own.path.name, own.content, files)


def built_in_candidate(files: PolicyFiles) -> Candidate:
    # A file that says nothing is no file, for all that decides.
    return Candidate(BUILT_IN, b"", files)


def find_policy_files(start: Path, environment: Environment, override: Path | None) -> PolicyFiles:
    return read_policy_files(find_root(start, environment, override), environment)


def find_agents(start: Path, environment: Environment, override: Path | None) -> AgentStore:
    return read_agents(find_root(start, environment, override), environment)


def find_ledger_paths(
    start: Path, environment: Environment, override: Path | None
) -> Mapping[LedgerName, Path]:
    return plane_for(find_root(start, environment, override), environment).ledger_paths()


def require_past_agent(project: Project, agent: str, *others: Path) -> None:
    names = sorted({*project.agents.names(), project.default_agent})
    paths = (*project.layout.ledger_paths().values(), *others)
    if agent in names or _has_acted(agent, paths):
        return
    raise UsageError(
        f"there is no agent {quote(agent)}, and there was none",
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
