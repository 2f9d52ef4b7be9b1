"""Declare, change and remove agents, with a record of each, and record manual edits.

Agents that a policy file declares are planned, shown to the person who trusts it, then created.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project, default_agent_of
from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.ledger.query import Filter, LedgerSearch
from paddock.plane import records
from paddock.plane.agents import AgentRecord, AgentSpec, AgentStore, RemovedAgent
from paddock.plane.discover import contains
from paddock.plane.environment import real_path
from paddock.plane.layout import LedgerName
from paddock.policy.engine import Policy
from paddock.policy.settings import AgentBinding
from paddock.storage.atomic import host_errors
from paddock.text.show import quote, show_name
from paddock.values.entries import AGENT_CHANGED, AGENT_CREATED, AGENT_REMOVED

_DECLARATIONS: Final = (AGENT_CREATED, AGENT_CHANGED, AGENT_REMOVED)


def create_agent(project: Project, new: AgentSpec) -> AgentRecord:
    if new.profile not in project.policy.profiles:
        raise UsageError(
            f"no profile named {quote(new.profile)}",
            where="--profile",
            hint=f"one of: {', '.join(sorted(project.policy.profiles))}",
        )
    record = project.agents.create(new)
    record_in_governance(project, records.agent_created(record))
    return record


def remove_agent(project: Project, name: str) -> RemovedAgent:
    if name == project.default_agent:
        raise UsageError(
            f"{quote(name)} is the agent of every call without --agent",
            hint="it cannot be removed; give it a stricter profile instead",
        )
    removed = project.agents.remove(name)
    record_in_governance(project, records.agent_removed(removed.name, removed.kept))
    return removed


def note_agents(project: Project, lineage: Sequence[AgentRecord]) -> None:
    """Record each of these declarations that differs from the one recorded last.

    A manual edit is in force once it is loaded, so it is recorded before its agent acts. The
    admin agent's is recorded with the plane's configuration (`project_open`).
    """
    declared = [record for record in lineage if record.file != project.layout.admin_config]
    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not declared or not path.exists():
        return
    with closing(LedgerSearch(str(path))) as search:
        recorded = [_recorded_digest(search, record.agent.name) for record in declared]
    changed = [
        records.agent_changed(before, record)
        for before, record in zip(recorded, declared, strict=True)
        if before != record.digest
    ]
    record_in_governance(project, *changed)


def _recorded_digest(search: LedgerSearch, name: str) -> str:
    newest = [
        row
        for event_type in _DECLARATIONS
        for row in search.query(Filter(event_type, agent=name), last=1).entries
    ]
    if not newest:
        return ""
    digest = max(newest, key=lambda row: row.seq).entry.metadata.get("digest")
    return digest if isinstance(digest, str) else ""


class AgentStep(Struct, frozen=True):
    new: AgentSpec
    workspace: Path
    is_there: bool
    is_outside: bool
    """True if it would work outside of the project, which a person confirms by name."""

    def __str__(self) -> str:
        new = self.new
        parent = f" under {new.parent}" if new.parent else ""
        place = " OUTSIDE of the project" if self.is_outside else ""
        act = "change" if self.is_there else "create"
        profile, where = show_name(new.profile), show_name(str(self.workspace))
        return f"{act} {new.name}: profile {profile}{parent}, in {where}{place}"


class AgentPlan(Struct, frozen=True):
    steps: tuple[AgentStep, ...] = ()
    undeclared: tuple[str, ...] = ()
    """Agents that the file no longer declares: only a person removes them."""

    def __str__(self) -> str:
        rows = ["agents that it declares:"] if self.steps else []
        rows += [f"  - {step}" for step in self.steps]
        rows += [
            f"no longer declared, and still there: {name} (paddock agent remove {name})"
            for name in self.undeclared
        ]
        return "\n".join(rows)

    def without(self, refused: AbstractSet[str]) -> "AgentPlan":
        left, kept = set(refused), list[AgentStep]()
        for step in self.steps:
            if step.new.name in left or step.new.parent in left:
                left.add(step.new.name)
            else:
                kept.append(step)
        return AgentPlan(tuple(kept), self.undeclared)


def plan_agents(policy: Policy, agents: AgentStore, root: Path, file: str) -> AgentPlan:
    from graphlib import CycleError, TopologicalSorter  # noqa: PLC0415 - when a policy is trusted

    declared = {each.name: each for each in policy.settings.agents if each.is_declared}
    default = default_agent_of(agents.layout.kind)
    try:
        order = tuple(
            TopologicalSorter(
                {name: {each.parent} & declared.keys() for name, each in declared.items()}
            ).static_order()
        )
    except CycleError as error:
        raise _wrong(file, error.args[1][0], "it is its own ancestor") from None
    known = {name: found for name in agents.names() if (found := _read(agents, name)) is not None}
    places = {default: root, **{name: record.workspace for name, record in known.items()}}
    steps: list[AgentStep] = []
    for name in order:
        binding, before = declared[name], known.get(name)
        if name == default:
            raise _wrong(file, name, "it is the agent of the project; only set its profile")
        if binding.parent and binding.parent not in places:
            raise _wrong(file, name, f"its parent {quote(binding.parent)} does not exist")
        places[name] = workspace = _workspace(binding, agents, root, places)
        is_outside = not contains(root, workspace)
        if is_outside and not workspace.is_dir():
            raise _wrong(file, name, f"the directory {quote(str(workspace))} does not exist")
        toolsets = None if before is None else before.agent.toolsets
        permissions, parent = binding.permissions, binding.parent or None
        new = AgentSpec(name, binding.profile, workspace, parent, toolsets, permissions, file)
        if before is not None and _as_new(before) == new:
            continue
        steps.append(AgentStep(new, workspace, agents.is_known(name), is_outside))
        if workspace.is_dir() and (parent is None or parent in known):
            try:
                agents.draft(new)
            except (UsageError, ConfigError) as problem:
                raise _wrong(file, name, problem.message, problem.hint) from problem
    gone = (n for n, each in known.items() if each.declared_in == file and n not in declared)
    return AgentPlan(tuple(steps), tuple(gone))


def apply_agents(project: Project, plan: AgentPlan) -> None:
    for step in plan.steps:
        new, workspace = step.new, step.workspace
        try:
            if not step.is_outside:
                with host_errors("making", workspace):
                    workspace.mkdir(parents=True, exist_ok=True)
            # Threat: the directory was replaced by a symlink since it was shown.
            if real_path(workspace) != workspace:
                raise ConfigError(f"the workspace {quote(str(workspace))} has become a symlink")
            if not step.is_there:
                create_agent(project, new)
                continue
            before = _read(project.agents, new.name)
            record = project.agents.change(new)
        except (UsageError, ConfigError) as error:
            raise _wrong(new.declared_in, new.name, error.message, error.hint) from error
        digest = "" if before is None else before.digest
        record_in_governance(project, records.agent_changed(digest, record))


def _workspace(
    binding: AgentBinding, agents: AgentStore, root: Path, places: dict[str, Path]
) -> Path:
    text = binding.workspace
    if not text:
        return places[binding.parent]
    home = agents.environment.home
    return real_path(home / text[2:] if text.startswith("~/") else root / text)


def _read(agents: AgentStore, name: str) -> AgentRecord | None:
    try:
        return agents.read(name)
    except PaddockError:
        # Treat a file that does not load as missing: the plan replaces it.
        return None


def _as_new(record: AgentRecord) -> AgentSpec:
    agent = record.agent
    lists, where = agent.permissions, record.declared_in
    return AgentSpec(
        agent.name, agent.profile, record.workspace, agent.parent, agent.toolsets, lists, where
    )


def _wrong(file: str, name: str, message: str, hint: str = "") -> ConfigError:
    hint = hint or "correct it, or remove workspace and parent"
    return ConfigError(message, where=f"{file}, [agents.{name}]", hint=hint)
