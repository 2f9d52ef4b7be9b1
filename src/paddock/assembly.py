"""The composition root: the one place where ports meet their implementations.

Everything that a door needs is opened here: the project and its plane, the
policy in force, an agent's tools on its workspace, the ledgers. What the system
as a whole does (a policy comes into force, an agent is made) is recorded in the
governance ledger here too.
"""

import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from paddock.errors import ConfigError, HostError, UsageError
from paddock.ledger.format_events import POLICY_LOADED
from paddock.ledger.format_genesis import Genesis
from paddock.ledger.keys import create_key, load_key
from paddock.ledger.query import Filter, query
from paddock.ledger.store import LedgerFile
from paddock.plane import records
from paddock.plane.agent_files import AgentRecord
from paddock.plane.agents import AgentStore, NewAgent, RemovedAgent
from paddock.plane.creation import MAIN_AGENT, open_plane
from paddock.plane.discovery import ProjectRoot, find_root, plane_for
from paddock.plane.environment import Environment, process_environment
from paddock.plane.files import make_directories
from paddock.plane.grants import summarise
from paddock.plane.init import InitResult
from paddock.plane.init import init_project as make_project
from paddock.plane.keys import ledger_key_path
from paddock.plane.layout import PlaneLayout
from paddock.plane.policy_files import PolicyFile, PolicyFiles, read_policy_files
from paddock.plane.report import WhereReport, where_report
from paddock.plane.trust import TrustRecord, record_trust
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.permissions import compile_permissions
from paddock.runtime.approvals import (
    Approval,
    ApprovalRequest,
    Approver,
    CallbackApprover,
    NoApprover,
)
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.judge import PolicyJudge
from paddock.runtime.records import Caller, approval_answered, approval_asked
from paddock.runtime.registry import Registry
from paddock.runtime.runtime import Runtime
from paddock.text.show import quote
from paddock.tools.spec import Ports
from paddock.tools.toolsets import all_tools
from paddock.values.entries import Entry
from paddock.workspace import Workspace

ADMIN_AGENT: Final = "admin"
"""The agent that works on a bare plane."""
LEDGER_TIERS: Final = {"governance": "HOT", "packages": "HOT", "ho2m": "HO2", "ho1m": "HO1"}


@dataclass(frozen=True, slots=True)
class Project:
    """A root with the policy in force, its plane and its agents."""

    root: ProjectRoot
    layout: PlaneLayout
    files: PolicyFiles
    policy: Policy
    agents: AgentStore
    environment: Environment
    notices: tuple[str, ...] = ()
    """What a person should be told, once: what an untrusted policy did not get."""

    def report(self) -> WhereReport:
        """Where everything is."""
        return where_report(self.root, self.layout, self.files, self.environment)

    @property
    def default_agent(self) -> str:
        """The agent of a door that names none."""
        return MAIN_AGENT if self.layout.kind == "project" else ADMIN_AGENT


def find_project(start: Path, environment: Environment, override: Path | None) -> Project:
    """The project for someone who stands at `start`. Makes nothing.

    Raises:
        UsageError: `start` is no directory.
        ConfigError: a policy file does not load, or root and plane overlap.
    """
    root = find_root(start, environment, override)
    layout = plane_for(root, environment)
    files = read_policy_files(root, environment)
    policy = _load(files)
    return Project(root, layout, files, policy, AgentStore(layout, environment), environment)


def open_project(start: Path, environment: Environment, override: Path | None = None) -> Project:
    """As `find_project`, with the plane made on first use.

    Raises: also HostError where the plane or a ledger cannot be made.
    """
    found = find_project(start, environment, override)
    open_plane(found.root, environment)
    entries = _news(found)
    if not entries:
        return found
    with closing(open_ledger(found, "governance")) as ledger:
        ledger.append(entries)
    # A policy that has just come into force: this is the one time to say it.
    return replace(found, notices=_notices(found))


def _load(files: PolicyFiles) -> Policy:
    return load_policy(_source(files.project), _source(files.user), files.kind)


def _source(file: PolicyFile | None) -> PolicySource | None:
    # The name alone: a decision shows it to a model, which must see no host path.
    return None if file is None else PolicySource(file.path.name, file.content, file.trusted)


def _notices(project: Project) -> tuple[str, ...]:
    own = project.files.project
    if own is None or own.trusted:
        return ()
    first = f"{own.path.name} is not trusted ({own.reason}); it can only tighten: paddock trust"
    return (first, *project.policy.ignored)


def _news(project: Project) -> list[Entry]:
    """What governance does not know yet: a new plane, a policy that has come into force."""
    path = project.layout.ledger_paths()["governance"]
    known = query(str(path), Filter(POLICY_LOADED), last=1).entries if path.exists() else ()
    entries: list[Entry] = []
    # Not where this call made the plane: whoever made it may have been killed right after.
    # These entries and the first policy's are written together.
    if not known and project.layout.kind == "project":
        entries.append(records.plane_created(project.layout, project.root.path))
        entries.append(records.agent_created(project.agents.read(MAIN_AGENT)))
    digest = project.policy.digest
    if not known or known[-1].entry.metadata.get("policy_digest") != digest:
        entries.append(records.policy_loaded(project.files, digest))
    return entries


def open_ledger(project: Project, name: str) -> LedgerFile:
    """The ledger `name` of the plane, made with its own key on first use.

    Raises: HostError, LedgerDamagedError, LedgerBusyError, LedgerFullError.
    """
    path = project.layout.ledger_paths()[name]
    create = None if path.exists() else _genesis(project, name)
    return LedgerFile.open(str(path), create=create, clock=time.time, randomness=os.urandom)


def _genesis(project: Project, name: str) -> Genesis:
    origin = f"paddock/{project.layout.root.name}/{name}"
    file = ledger_key_path(project.layout, project.environment, name)
    make_directories(file.parent)
    if not file.exists():
        try:
            create_key(str(file), origin, os.urandom)
        except HostError:
            # Another process made it just now, or it cannot be made: loading tells.
            if not file.exists():
                raise
    return Genesis(origin, LEDGER_TIERS[name], str(load_key(str(file)).verifier))


# Policy and trust


@dataclass(frozen=True, slots=True)
class TrustReview:
    """What a person looks at before trusting: these very bytes."""

    root: ProjectRoot
    file: PolicyFile
    summary: str

    @property
    def is_trusted(self) -> bool:
        """Whether these bytes are trusted already."""
        return self.file.trusted


def review_trust(start: Path, environment: Environment) -> TrustReview:
    """What the policy of the project at `start` grants.

    Raises:
        ConfigError: there is no policy file, or it does not load.
    """
    root = find_root(start, environment)
    files = read_policy_files(root, environment)
    own = files.project
    if own is None:
        raise ConfigError(
            "there is no policy file to trust",
            where=str(root.path),
            hint="without one the defaults hold; paddock init writes one",
        )
    _load(files)
    return TrustReview(root, own, summarise(own))


def trust_policy(review: TrustReview, environment: Environment, *, by: str) -> TrustRecord:
    """Trust exactly what was reviewed, and record who said so."""
    now = datetime.now(UTC)
    record = record_trust(review.file.path, review.file.content, environment, now)
    project = open_project(review.root.path, environment)
    with closing(open_ledger(project, "governance")) as ledger:
        ledger.append([records.policy_trusted(record, by)])
    return record


def init_project(directory: Path, environment: Environment) -> InitResult:
    """Make `directory` a governed project; see `paddock.plane.init`."""
    result = make_project(directory, environment, datetime.now(UTC))
    project = find_project(result.root.path, environment, None)
    entries = _news(project)
    if result.trust is not None:
        entries.append(records.policy_trusted(result.trust, "init"))
    if entries:
        with closing(open_ledger(project, "governance")) as ledger:
            ledger.append(entries)
    return result


# Agents


def create_agent(project: Project, new: NewAgent) -> AgentRecord:
    """Declare an agent and record it. Raises: UsageError, ConfigError."""
    if new.profile not in project.policy.profiles:
        raise UsageError(
            f"there is no profile {quote(new.profile)}",
            where="--profile",
            hint=f"one of: {', '.join(sorted(project.policy.profiles))}",
        )
    record = project.agents.create(new)
    with closing(open_ledger(project, "governance")) as ledger:
        ledger.append([records.agent_created(record)])
    return record


def remove_agent(project: Project, name: str) -> RemovedAgent:
    """Undeclare an agent and record it. Raises: UsageError."""
    if name == project.default_agent:
        raise UsageError(
            f"{quote(name)} is the agent of every call without --agent",
            hint="it cannot be removed; give it a stricter profile instead",
        )
    removed = project.agents.remove(name)
    with closing(open_ledger(project, "governance")) as ledger:
        ledger.append([records.agent_removed(removed.name, removed.kept)])
    return removed


# Runtime


def tools_of(project: Project, agent: str | None) -> Registry:
    """The tools of one agent. Raises: UsageError where there is no such agent."""
    record = project.agents.read(agent or project.default_agent)
    return Registry(all_tools()).only(record.agent.toolsets)


def open_runtime(project: Project, *, agent: str | None, approver: Approver) -> Runtime:
    """One agent's tools on its workspace, behind the one door.

    Raises:
        UsageError: no such agent.
        ConfigError: the agent does not load.
        HostError: workspace or ledger cannot be opened.
    """
    lineage = project.agents.lineage(agent or project.default_agent)
    # The place alone: a decision shows it to a model, which must see no host path.
    chain = tuple(
        replace(agent, source=f"agents/{agent.name}/agent.json")
        for agent in (record.agent for record in lineage)
    )
    for member in chain:
        compile_permissions(member)  # What cannot be used is said now, and not at each call.
    workspace = Workspace.open(str(lineage[0].workspace))
    try:
        ledger = open_ledger(project, "ho1m")
    except BaseException:
        workspace.close()
        raise
    judge = PolicyJudge(project.policy, chain)
    caller = Caller(chain, f"SES-{os.urandom(8).hex()}")
    registry = Registry(all_tools()).only(chain[0].toolsets)
    context = Context(
        registry=registry,
        judge=judge,
        ports=Ports(workspace, judge),
        ledger=ledger,
        approver=approver,
        approvals=_GovernanceApprovals(project, caller.session_id),
        caller=caller,
        randomness=os.urandom,
    )
    closing = _Closing(workspace, ledger)
    return Runtime(Dispatcher(context), registry, new_call_id, closing.close, project.notices)


def open_workspace(
    path: str | os.PathLike[str] = ".",
    *,
    agent: str | None = None,
    approver: Approver | Callable[[ApprovalRequest], bool] | None = None,
) -> Runtime:
    """Open the project at `path` for one agent; the plane is made on first use.

    `approver` answers where policy asks: a function (`True` is yes), an Approver,
    or None, and then every ask is refused.

    Raises:
        UsageError: no such directory or agent.
        ConfigError: a policy or agent file does not load.
        HostError: something of the host is missing.
    """
    project = open_project(Path(path).absolute(), process_environment())
    return open_runtime(project, agent=agent, approver=_approver_of(approver))


def _approver_of(
    approver: Approver | Callable[[ApprovalRequest], bool] | None,
) -> Approver:
    if approver is None:
        return NoApprover()
    if hasattr(approver, "answer"):
        return cast("Approver", approver)
    return CallbackApprover(cast("Callable[[ApprovalRequest], bool]", approver))


def new_call_id() -> str:
    """An id for a call whose door brings none."""
    return f"CALL-{os.urandom(8).hex()}"


@dataclass(frozen=True, slots=True)
class _GovernanceApprovals:
    """Questions and answers, in the governance ledger; it is opened when there are any."""

    project: Project
    session_id: str

    def asked(self, request: ApprovalRequest) -> None:
        self._append(approval_asked(request, self.session_id))

    def answered(self, request: ApprovalRequest, approval: Approval) -> None:
        self._append(approval_answered(request, approval, self.session_id))

    def _append(self, entry: Entry) -> None:
        with closing(open_ledger(self.project, "governance")) as ledger:
            ledger.append([entry])


@dataclass(frozen=True, slots=True)
class _Closing:
    workspace: Workspace
    ledger: LedgerFile

    def close(self) -> None:
        try:
            self.ledger.close()
        finally:
            self.workspace.close()
