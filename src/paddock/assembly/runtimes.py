"""One agent's tools on its workspace, behind the one door.

Its shell is made when its first command comes, and let go with it.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct, convert
from msgspec.structs import replace

from paddock import limits
from paddock.assembly.agents import note_agents
from paddock.assembly.approvals import open_inbox
from paddock.assembly.history import (
    PlaneEarlier,
    open_blobs,
    open_history,
    open_journal,
    open_workspace_of,
    settle_sets,
)
from paddock.assembly.ledgers import open_ledger, record_in_governance
from paddock.assembly.opening import open_given, policy_notices, record_given, start_of
from paddock.assembly.project import (
    ADMIN_AGENT,
    CORE,
    MCP,
    PACKAGE,
    SHELL,
    Project,
    find_project,
    new_call_id,
    new_session_id,
    planned_lineage,
    read_project,
    with_given,
)
from paddock.errors import IntegrityError, PaddockError, SandboxUnavailableError, UsageError
from paddock.ledger.query import Ledgers
from paddock.plane import records
from paddock.plane.agents import AgentRecord, AgentSpec
from paddock.plane.environment import Environment, process_environment
from paddock.plane.layout import LedgerName
from paddock.plane.scratch import ignore_new_folder
from paddock.plane.trust import read_packages, read_policy_files
from paddock.policy.decide import decide, may_ever, names_line, shell_for, writer_of
from paddock.policy.engine import Policy
from paddock.policy.pathset import compile_permissions
from paddock.policy.rules import parse_action
from paddock.policy.settings import McpServer
from paddock.runtime.approvals import (
    ApprovalRequest,
    Approver,
    CallbackApprover,
    Limited,
    NoApprover,
)
from paddock.runtime.asking import AskedQuestion, CallNetwork, InboxApprover
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.judge import PolicyJudge
from paddock.runtime.own_tools import OwnPlan, registered_tool
from paddock.runtime.prepared import FREE, Registry
from paddock.runtime.records import Caller, KeptContents, Recorder
from paddock.runtime.runtime import Notices, Runtime
from paddock.storage.atomic import make_directories
from paddock.storage.history import History
from paddock.storage.locks import Late
from paddock.tools.arguments import ArgumentType
from paddock.tools.spec import Effects, Ports, Tool, ToolSpec
from paddock.tools.toolsets import TOOLS, ListedTool
from paddock.values.calls import Json, ToolCall
from paddock.values.decisions import (
    HELD_WHOLE,
    Action,
    AgentChain,
    Decision,
    Held,
    Outcome,
    PlaneKind,
    client_kind,
    confined,
)
from paddock.workspace import Workspace

if TYPE_CHECKING:
    from paddock.gates.results import GateResult
    from paddock.gateway.gateway import McpGateway
    from paddock.network.egress import Egress
    from paddock.packages.rows import PackageRow
    from paddock.sandbox.conversation import NetworkSecrets
    from paddock.sandbox.host.host_facts import HostFacts
    from paddock.sandbox.shell import SandboxShell
    from paddock.sandbox.values import Progress
    from paddock.storage.journal import Journal


# Nothing of the sandbox is loaded before: most calls are no commands, and a cold start
# shows it.

STAGING: Final = "staging"


class ShellGround(Struct, frozen=True):
    project: Project
    agent: str
    chain: AgentChain
    policy: Policy
    workspace: Workspace
    history: History
    progress: "Progress | None" = None
    on_directory: Callable[[str], None] | None = None
    on_shell: Callable[[], None] = lambda: None
    """Called before the first command."""
    server: McpServer | None = None
    """Whose process is all that runs in it, if it is no agent's shell."""

    def governed_by(self, policy: Policy) -> Policy:
        """Return what of a policy holds in it."""
        if self.server is None:
            return policy
        from paddock.gateway.confine import server_policy  # noqa: PLC0415 - few have one

        return server_policy(policy, self.server)


class LazyShell:
    def __init__(self, ground: ShellGround) -> None:
        self._ground = ground
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._shell: SandboxShell | None = None
        self._journal: Journal | None = None
        self._is_closed = False
        self._call: Callable[[str, Mapping[str, Json]], object] = _nobody

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._shell = None
        self._held.close()

    def changed(self, paths: Iterable[str]) -> None:
        """Tell running commands what a tool has changed; nothing is made for it."""
        if self._shell is not None:
            self._shell.sessions.changed(paths)

    def end(self, call: Callable[[str, Mapping[str, Json]], object]) -> None:
        """End what runs in the background, each by a call of its own."""
        if self._shell is not None:
            for process in self._shell.sessions.all():
                if process.is_running:
                    call("shell_stop", {"process": process.name})
                process.join()

    def on_end(self, call: Callable[[str, Mapping[str, Json]], object]) -> None:
        """Have what ends by itself concluded by a call."""
        self._call = call

    def open(self) -> "SandboxShell":
        with self._lock:
            if self._is_closed:
                raise UsageError("the runtime was closed", hint="open the workspace anew")
            if self._shell is None:
                self._shell = self._make()
            return self._shell

    def _make(self) -> "SandboxShell":
        from paddock.sandbox.changes.commit import CommitPlace  # noqa: PLC0415 - late on purpose
        from paddock.sandbox.conversation import NetworkGround  # noqa: PLC0415 - late on purpose
        from paddock.sandbox.host.known_hosts import (  # noqa: PLC0415 - late on purpose
            read_known_hosts,
        )
        from paddock.sandbox.shell import (  # noqa: PLC0415 - late on purpose
            SandboxGround,
            SandboxShell,
        )

        ground = self._ground
        ground.on_shell()
        place = CommitPlace(ground.workspace, ground.history, self._open_journal, ground.policy)
        environment = ground.project.environment
        staging = environment.paddock_home / STAGING
        shell = SandboxShell(
            SandboxGround(
                ground.chain,
                place,
                self._look_at_host,
                staging,
                ground.progress,
                ground.on_directory,
                network=NetworkGround(
                    lambda: _egress(environment),
                    PolicyNow(ground).read,
                    lambda: read_known_hosts(environment.home),
                    lambda: _indexes(ground.project),
                    Late(lambda: _network_secrets(ground.policy, environment)).get,
                ),
            )
        )
        self._held.callback(shell.close)
        shell.sessions.on_end = self._conclude
        return shell

    def _conclude(self, process: str) -> None:
        shell = self._shell
        if shell is None or shell.sessions.process(process).outcome is not None:
            return
        with suppress(UsageError, IntegrityError):
            # The runtime was closed, or its ledger is damaged: the next call says so.
            self._call("shell_stop", {"process": process})

    def _look_at_host(self) -> "HostFacts":
        from paddock.sandbox.facts import FactsWanted, collect_facts  # noqa: PLC0415 - late on purpose

        ground = self._ground
        variables = dict(ground.project.environment.variables)
        facts = collect_facts(
            FactsWanted(ground.policy, ground.project.agents, ground.agent, variables)
        )
        if ground.server is None:
            return facts
        from paddock.gateway.confine import server_facts  # noqa: PLC0415 - few have one

        return server_facts(facts, ground.server, ground.workspace.root)

    def _open_journal(self) -> "Journal":
        with self._lock:
            if self._journal is None:
                self._journal = self._held.enter_context(open_journal(self._ground.project))
            return self._journal


class LazyMemory:
    """What an agent remembers, in the plane: a directory of its own, made at its first use."""

    def __init__(self, project: Project, agent: str) -> None:
        directory = project.layout.agent_memories(agent)

        def open_it() -> Workspace:
            make_directories(directory)
            return Workspace.open(str(directory))

        self.opened = Late(open_it)

    def close(self) -> None:
        if self.opened.made is not None:
            self.opened.made.close()


def _add_others(
    registry: Registry,
    project: Project,
    policy: Policy,
    chain: AgentChain,
    gateway: "Callable[[], McpGateway]",
) -> tuple[str, ...]:
    """Add what other people's servers offer; return what a person is to be told of them."""
    servers = policy.settings.mcp.servers
    if not servers or not may_ever(policy, chain, "mcp", "call"):
        return ()
    from paddock.gateway.definitions import Pins, reviewed  # noqa: PLC0415 - few have one
    from paddock.gateway.tools import offered_tools  # noqa: PLC0415 - the same

    pins = Pins(project.root, project.environment).read()
    for tool in offered_tools(servers, pins, gateway, registry.has):
        registry.add(tool)
    names = reviewed(servers, pins)
    return tuple(
        f"nothing of the MCP server {each.name} is offered before somebody has looked at it: "
        f"paddock mcp review {each.name}"
        for each in servers
        if each.name not in names
    )


def _not_opened() -> "McpGateway":
    raise UsageError("these tools are only listed", hint="open the workspace to call them")


def _open_gateway(
    ground: ShellGround, context: Callable[[], Context], held: ExitStack
) -> "McpGateway":
    """Return other people's servers, of which none is started before it is asked something."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - few have one

    from paddock.gateway.confine import ServerSandbox  # noqa: PLC0415 - the same
    from paddock.gateway.definitions import Pins  # noqa: PLC0415 - the same
    from paddock.gateway.gateway import McpGateway  # noqa: PLC0415 - the same

    sandboxes: dict[str, ServerSandbox] = {}
    for server in ground.policy.settings.mcp.servers:
        own = replace(ground, server=server)
        if server.files == "none":
            directory = held.enter_context(TemporaryDirectory(prefix="paddock-mcp-"))
            own = replace(own, workspace=held.enter_context(Workspace.open(directory)))
        own = replace(own, policy=own.governed_by(ground.policy))
        shell = held.enter_context(closing(LazyShell(own)))
        sandboxes[server.name] = ServerSandbox(
            server, shell.open, partial(_server_network, context, server)
        )
    pins = Pins(ground.project.root, ground.project.environment).read()
    gateway = McpGateway(sandboxes, pins, ground.history.keep_for_ledger)
    return held.enter_context(closing(gateway))


def _server_network(context_now: Callable[[], Context], server: McpServer) -> CallNetwork:
    """Return who answers for what a server connects to, whichever call it is at work for."""
    context = context_now()
    spec = ToolSpec(
        f"mcp-{server.name}", server.name, "", MCP, ArgumentType, Effects(reads_only=False)
    )
    tool = registered_tool(spec, str)
    action = Action("mcp", "call", f"{server.name}/*")
    decision = Decision(Outcome.ALLOW, str(action), "", None, "", context.judge.policy_digest)
    plan, call = OwnPlan({}, (action,)), ToolCall(new_call_id(), tool.name, {})
    question = AskedQuestion(call, tool, plan, (str(action),), decision, FREE)
    return CallNetwork(context, Recorder(context.caller), question)


def _nobody(tool: str, arguments: Mapping[str, Json]) -> None:
    """Until a runtime is there that could be called."""


def _indexes(project: Project) -> dict[str, str]:
    if not project.policy.settings.network.packages:
        return {}
    from paddock.network.packages import FoundPackages, index_variables  # noqa: PLC0415 - few have

    kept = read_packages(project.root, project.environment)
    return {} if kept is None else index_variables(convert(kept.found, FoundPackages))


def _network_secrets(policy: Policy, environment: Environment) -> "NetworkSecrets":
    from paddock.network.credentials import read_all  # noqa: PLC0415 - few commands need it
    from paddock.network.requests import Authority  # noqa: PLC0415 - the same
    from paddock.sandbox.conversation import NetworkSecrets  # noqa: PLC0415 - the same

    authority = Authority(datetime.now(UTC))
    settings, variables = policy.settings.credentials, dict(environment.variables)
    return NetworkSecrets(
        authority,
        authority.bundle(),
        lambda: read_all(settings, variables, environment.home, os.urandom),
    )


class PolicyNow:
    def __init__(self, ground: ShellGround) -> None:
        self._ground = ground
        self._files = ground.project.files
        self._policy: Policy | None = ground.policy

    def read(self) -> Policy | None:
        """Return the very policy that was read before where no file has changed.

        None where it cannot be read: nobody knows what it allows.
        """
        project = self._ground.project
        try:
            files = read_policy_files(project.root, project.environment)
            if files != self._files:
                now = replace(read_project(project.root, project.environment), given=project.given)
                agents = replace(now.agents, given=project.agents.given)
                (record, *_) = agents.lineage(self._ground.agent)
                self._files, self._policy = files, self._ground.governed_by(now.policy_for(record))
        except PaddockError:
            return None
        return self._policy


def _egress(environment: Environment) -> "Egress":
    from paddock.network.egress import Egress  # noqa: PLC0415 - few commands go out

    return Egress(dict(environment.variables))


# Nothing of it is run.


def held_here(project: Project, policy: Policy, chain: AgentChain, action: Action) -> Held:
    from paddock.sandbox.backends import choose_backend, examine_host  # noqa: PLC0415 - few ask

    shell = shell_for(policy, chain, action)
    verdicts = examine_host(project.environment.paddock_home / STAGING)
    try:
        word = choose_backend(verdicts, shell.enforcement).enforcement.value
    except SandboxUnavailableError:
        return "none"
    is_open = shell.network == "host" and not names_line(policy, chain, action)
    return "partial" if word == "full" and is_open else word


def record_gate(project: Project, session_id: str, agent: str) -> None:
    record_in_governance(project, records.dual_gate(project.gate, session_id, agent))


def _list_packages(project: Project) -> "tuple[PackageRow, ...]":
    from paddock.assembly.packages import plane_packages  # noqa: PLC0415 - few calls ask

    return plane_packages(project).list_all()


def _check_gates(project: Project, agent: str, names: Sequence[str]) -> "tuple[GateResult, ...]":
    from paddock.assembly.packages import check_gates_for_model  # noqa: PLC0415 - few calls ask

    return check_gates_for_model(project, names, agent).results


def tools_of(project: Project, agent: str | None) -> Registry:
    lineage = project.agents.lineage(project.agent_named(agent))
    chain = tuple(record.agent for record in lineage)
    policy = project.policy_for(lineage[0])
    registry = _registry(project, policy, chain)[0]
    _add_others(registry, project, policy, chain, _not_opened)
    return registry


def _registry(
    project: Project, policy: Policy, chain: AgentChain
) -> tuple[Registry, tuple[str, ...]]:
    tools, not_loaded = _existing(project, chain[0].toolsets)
    kept = None
    if (
        project.admin is not None
        and chain[0].name == ADMIN_AGENT
        and isinstance(project.admin.tools, tuple)
    ):
        kept = {entry.tool_id for entry in project.admin.tools}
    toolsets = _toolsets_of(policy, chain)
    held = [
        tool
        for tool in tools
        if tool.toolset in toolsets and (kept is None or tool.toolset != CORE or tool.name in kept)
    ]
    return Registry(held, partial(may_ever, policy, chain)), not_loaded


def _toolsets_of(policy: Policy, chain: AgentChain) -> tuple[str, ...]:
    return tuple(
        name
        for name in chain[0].toolsets
        if name != SHELL or may_ever(policy, chain, "shell", "run")
    )


def _existing(
    project: Project, toolsets: tuple[str, ...]
) -> tuple[Sequence[Tool[Any] | ListedTool], tuple[str, ...]]:
    if PACKAGE not in toolsets:
        return TOOLS, ()
    from paddock.assembly.extensions import load_package_tools  # noqa: PLC0415 - few have one

    loaded = load_package_tools(project)
    return (*TOOLS, *loaded.tools), loaded.notices


def tools_allowed(project: Project, agent: str | None) -> tuple[str, ...]:
    return tuple(tool.name for tool in tools_of(project, agent).list_all())


def open_runtime(
    project: Project,
    *,
    agent: str | None,
    approver: Approver,
    session_id: str | None = None,
    progress: "Progress | None" = None,
    on_directory: Callable[[str], None] | None = None,
    kind: str = "",
    of_commands: Callable[[], tuple[str, ...]] | None = None,
) -> Runtime:
    """One agent's tools on its workspace; `kind`, a client's kind of agent, never exceeds it.

    `session_id` is that of the session whose calls these are; else they get one of their own,
    and that the dual gate is open for it is on record before the first. Where `approver` cannot
    be asked, what was asked is kept in the inbox. `progress` hears of commands while they run,
    `on_directory` where their shell ended, `of_commands` looks what to say of them besides.
    Raises: UsageError, ConfigError, HostError.
    """
    said = (*project.notices, *settle_sets(project))
    lineage = project.agents.lineage(project.agent_named(agent))
    note_agents(project, lineage)
    session = session_id or new_session_id()
    if session_id is None and project.gate.is_open:
        record_gate(project, session, lineage[0].agent.name)
    chain = _chain_of(project, lineage)
    chain = client_kind(chain, kind) if kind else chain
    policy = project.policy_for(lineage[0])
    record_given(project, policy.digest)
    registry, not_loaded = _registry(project, policy, chain)
    not_reviewed = _add_others(registry, project, policy, chain, lambda: servers.get())  # noqa: PLW0108 - it is made below
    notices = Notices((*said, *not_loaded, *not_reviewed), of_commands)
    judge = PolicyJudge(policy, chain)
    with ExitStack() as held:
        # Last in, first out: commands end before what they work on is let go.
        blobs = held.enter_context(closing(open_blobs(project)))
        history = held.enter_context(closing(open_history(project)))
        # What commands fill by the thousand and can make again: replaced contents are not kept.
        keeper = history.keeper(policy.guards.is_below_generated)
        workspace = held.enter_context(
            open_workspace_of(lineage[0], keeper, project.name_of(lineage[0].workspace))
        )
        ledger = held.enter_context(closing(open_ledger(project, LedgerName.HO1M)))
        name = lineage[0].agent.name
        ground = ShellGround(
            project,
            name,
            chain,
            policy,
            workspace,
            history,
            progress,
            on_directory,
            notices.log_of_commands,
        )
        shell = held.enter_context(closing(LazyShell(ground)))
        memory = held.enter_context(closing(LazyMemory(project, ground.agent)))
        own = held.enter_context(ExitStack())
        servers = Late(partial(_open_gateway, ground, lambda: context, own))
        inbox = partial(open_inbox, project)
        # What a program says itself is known to nobody who would answer later.
        is_kept = project.given is None and project.agents.given is None
        context = Context(
            registry=registry,
            judge=judge,
            ports=_ports(ground, judge, shell, memory),
            ledger=ledger,
            approver=InboxApprover(approver, inbox) if is_kept else approver,
            keeper=InboxApprover(NoApprover(), inbox) if is_kept else NoApprover(),
            record_approval=partial(record_in_governance, project),
            caller=Caller(chain, session),
            randomness=os.urandom,
            history=history,
            contents=KeptContents(blobs),
            after_write=_after_write(project, policy, workspace.root, shell, servers),
        )
        close = held.pop_all().close
    runtime = Runtime(
        Dispatcher(context), registry, new_call_id, close, notices, shell.end, servers.get
    )
    shell.on_end(runtime.call)
    return runtime


def _chain_of(project: Project, lineage: Sequence[AgentRecord]) -> AgentChain:
    # The place alone: a decision shows it to a model, which must see no host path.
    root = project.layout.root
    chain = tuple(
        replace(record.agent, source=record.file.relative_to(root).as_posix()) for record in lineage
    )
    for member in chain:
        compile_permissions(member)  # What cannot be used is said now, and not at each call.
    return chain


def _after_write(
    project: Project, policy: Policy, root: str, shell: LazyShell, servers: "Late[McpGateway]"
) -> Callable[[Sequence[str], str], None]:
    """In a bare plane nothing is made: its files belong to packages."""
    is_wanted = project.layout.kind is PlaneKind.PROJECT and policy.settings.hook.sandbox_ignored
    ignore_scratch = ignore_new_folder(Path(root)) if is_wanted else None

    def after_write(paths: Sequence[str], toolset: str) -> None:
        if ignore_scratch is not None:
            ignore_scratch()
        # Shell and gateway know what their own have changed.
        if paths and toolset != SHELL:
            shell.changed(paths)
        if paths and toolset != MCP and servers.made is not None:
            servers.made.changed(paths)

    return after_write


def _ports(
    ground: ShellGround, judge: PolicyJudge, shell: LazyShell, memory: "LazyMemory"
) -> Ports:
    project = ground.project
    is_bare = project.layout.kind is PlaneKind.BARE
    return Ports(
        workspace=ground.workspace,
        shown=judge,
        ledgers=Ledgers(project.layout.ledger_paths()),
        shell=shell.open,
        packages=partial(_list_packages, project) if is_bare else None,
        gates=partial(_check_gates, project, ground.agent) if is_bare else None,
        limits=ground.policy.settings.limits,
        earlier=PlaneEarlier(project, ground.agent),
        agent=ground.agent,
        memory=memory.opened.get,
    )


# What a program opens and asks, by a policy and an agent of its own.

AnyPath = str | os.PathLike[str]
Asked = Approver | Callable[[ApprovalRequest], bool] | None


def open_workspace(
    path: AnyPath | None = None,
    *,
    agent: str | AgentSpec | None = None,
    policy: AnyPath | Policy | None = None,
    approver: Asked = None,
) -> Runtime:
    """Open the project at `path` for one agent; the plane is made on first use.

        with paddock.open("path/to/project", policy="policy.toml", approver=ask_me) as runtime:
            runtime.view("README.md")

    Args:
        path: A directory of the project. Without it, the one that `PADDOCK_PLANE` names, else the
            current one.
        agent: The name of a declared agent, or an AgentSpec: an agent of the program alone.
            Without it, the project's own.
        policy: A policy file, or a Policy. It is trusted, and stands beside the project's: of
            both answers the stricter counts. Where the project and the user have none, it
            holds over what is built in.
        approver: Answers where policy asks: a function (`True` is yes) or an Approver. Without
            it, what is asked about is refused, and kept for an operator where the project's own
            policy and agents asked.

    Raises:
        UsageError: no such directory, file or agent, or what cannot be asked as an approver.
        ConfigError: a policy or agent file does not load.
        HostError: something of the host is missing.
    """
    asked = approver_of(approver)
    project, name = with_given(open_given(path, process_environment()), policy, agent)
    said = tuple(dict.fromkeys((*policy_notices(project), *project.notices)))
    return open_runtime(
        replace(project, notices=said),
        agent=name,
        approver=asked,
        of_commands=lambda: _of_commands(project, name),
    )


def _of_commands(project: Project, name: str | None) -> tuple[str, ...]:
    from paddock.policy.questions.lint import describe_tracked, find_tracked_secrets  # noqa: PLC0415 - for few
    from paddock.sandbox.git.tracked import list_tracked  # noqa: PLC0415 - loads the sandbox

    lineage = project.agents.lineage(project.agent_named(name))
    policy, chain = project.policy_for(lineage[0]), tuple(record.agent for record in lineage)
    if not may_ever(policy, chain, "shell", "run"):
        return ()
    said: list[str] = []
    tracked = find_tracked_secrets(policy, list_tracked(lineage[0].workspace))
    if tracked:
        said.append(f"{describe_tracked(tracked)}; paddock policy lint")
    held = held_here(project, policy, chain, Action("shell", "run", "true"))
    if held != HELD_WHOLE:
        how = "nothing holds commands" if held == "none" else "commands are not held whole"
        said.append(f"{how} here, so each that would be confined is asked about; paddock doctor")
    return tuple(said)


# Python's own errors name a function so: by what was called, `paddock.open`.
open_workspace.__qualname__ = "open"


def check(
    action: str | Action,
    path: AnyPath | None = None,
    *,
    agent: str | AgentSpec | None = None,
    policy: AnyPath | Policy | None = None,
) -> Decision:
    """Decide one action as it would be decided now; nothing runs, and nothing is recorded.

        paddock.check("tool:file:create docs/a.md", agent="writer").outcome is Outcome.ALLOW

    `action` is as in rules: `format_action` makes it. `path`, `agent` and `policy` are as of
    `open`. What is to be confined is so only where this host holds a command whole: `comes_to`
    says what it is here.

    Raises: UsageError: no such action, directory, file or agent. ConfigError.
    """
    asked = parse_action(action) if isinstance(action, str) else action
    found = find_project(*start_of(path, process_environment()), None)
    project, name = with_given(found, policy, agent)
    lineage = planned_lineage(project, name)
    chain = tuple(record.agent for record in lineage)
    judged = project.policy_for(lineage[0])
    decision = decide(judged, chain, [asked], writer_of([asked]))
    if decision.outcome is not Outcome.CONFINE:
        return decision
    return confined(decision, held_here(project, judged, chain, asked))


def approver_of(approver: Asked) -> Approver:
    if approver is None:
        return NoApprover()
    from paddock.runtime.own_tools import has_to_be_awaited  # noqa: PLC0415 - for programs alone

    answer = getattr(approver, "answer", approver)
    if not callable(answer) or has_to_be_awaited(answer):
        why = "has to be awaited" if callable(answer) else f"is {type(answer).__name__}"
        raise UsageError(
            f"the approver {why}, and is to be called",
            hint="give a plain function that returns True or False; it has a thread of its own",
        )
    if hasattr(approver, "answer"):
        return Limited(cast("Approver", approver), limits.approval_timeout_s)
    return CallbackApprover(cast("Callable[[ApprovalRequest], bool]", approver))
