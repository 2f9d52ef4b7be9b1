"""Open one agent's tools on its workspace, behind the dispatcher; `paddock.open` and `check`.

The shell is created at the first command, and closed with the runtime.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from paddock import limits
from paddock.assembly.agents import note_agents
from paddock.assembly.history import (
    PlaneEarlier,
    open_blobs,
    open_history,
    open_inbox,
    open_workspace_of,
    settle_sets,
)
from paddock.assembly.ledgers import open_ledger, record_in_governance
from paddock.assembly.project import (
    ADMIN_AGENT,
    CORE,
    DEVELOPMENT,
    MCP,
    PACKAGE,
    SHELL,
    Project,
    chain_of,
    find_project,
    new_call_id,
    new_session_id,
    planned_lineage,
    with_given,
)
from paddock.assembly.project_open import (
    open_given,
    policy_notices,
    profile_notices,
    record_given,
    start_of,
)
from paddock.assembly.shells import STAGING, LazyShell, ShellSetup
from paddock.errors import PaddockError, SandboxUnavailableError, UsageError
from paddock.ledger.query import Ledgers
from paddock.plane import records
from paddock.plane.agents import AgentSpec
from paddock.plane.environment import process_environment
from paddock.plane.layout import LedgerName
from paddock.plane.scratch import ignore_new_folder
from paddock.policy.decide import decide, may_ever, names_line, shell_for, writer_of
from paddock.policy.engine import Policy
from paddock.policy.pathset import compile_permissions
from paddock.policy.rules import parse_action
from paddock.runtime.approvals import (
    ApprovalRequest,
    Approver,
    CallbackApprover,
    Limited,
    NoApprover,
)
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.prepared import Caller, PolicyJudge, Tools
from paddock.runtime.question import InboxApprover
from paddock.runtime.records import KeptContents
from paddock.runtime.runtime import Notices, Runtime
from paddock.storage.atomic import make_directories
from paddock.storage.locks import Late
from paddock.tools.spec import Ports, Tool
from paddock.tools.toolsets import TOOLS, ListedTool
from paddock.values.calls import ToolResult
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
    from paddock.packages.rows import PackageRow
    from paddock.sandbox.sessions.client_session import ClientSession
    from paddock.sandbox.values import Progress


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


def tools_of(project: Project, agent: str | None) -> Tools:
    _, policy, chain = project.acting(agent)
    return _tools(project, policy, chain, _not_opened)[0]


def _not_opened() -> "McpGateway":
    raise UsageError("these tools are only listed", hint="open the workspace to call them")


def _tools(
    project: Project, policy: Policy, chain: AgentChain, gateway: "Callable[[], McpGateway]"
) -> tuple[Tools, tuple[str, ...]]:
    """Return the tools of an agent, and notices of those that were not loaded or offered."""
    listed: Sequence[Tool[Any] | ListedTool] = TOOLS
    notices: tuple[str, ...] = ()
    if PACKAGE in chain[0].toolsets:
        from paddock.assembly.extensions import load_package_tools  # noqa: PLC0415 - few have one

        loaded = load_package_tools(project)
        listed, notices = (*TOOLS, *loaded.tools), loaded.notices
    kept = None
    if (
        project.admin is not None
        and chain[0].name == ADMIN_AGENT
        and isinstance(project.admin.tools, tuple)
    ):
        kept = {entry.tool_id for entry in project.admin.tools}
    no_shell = not may_ever(policy, chain, "shell", "run")
    toolsets = {*chain[0].toolsets} - ({SHELL} if no_shell else set())
    held = [
        tool
        for tool in listed
        if tool.toolset in toolsets and (kept is None or tool.toolset != CORE or tool.name in kept)
    ]
    gated = [tool.name for tool in held if tool.toolset == DEVELOPMENT]
    if policy.settings.mcp.servers and may_ever(policy, chain, "mcp", "call"):
        from paddock.assembly.extensions import server_tools  # noqa: PLC0415 - few have one

        served = server_tools(project, policy, gateway, {tool.name for tool in held})
        held, notices = [*held, *served.tools], (*notices, *served.notices)
    tools = Tools(held, partial(may_ever, policy, chain), gated, partial(_is_open, project))
    return tools, notices


def _is_open(project: Project) -> bool:
    """Return True if the configuration loads, and still opens its half of the dual gate.

    The environment's half is as it was when this process opened the plane.
    """
    from paddock.plane.admin import read_admin_config  # noqa: PLC0415 - bare planes only

    try:
        return read_admin_config(project.layout).tool_profile == "development"
    except PaddockError:
        return False


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
    command_notices: Callable[[], tuple[str, ...]] | None = None,
    client: "ClientSession | None" = None,
) -> Runtime:
    """Open one agent's tools on its workspace; `kind`, a client's kind of agent, never exceeds it.

    `session_id` is the session of the calls; without it they get a new one, and an open dual gate
    is recorded for it before the first. If `approver` cannot be asked, the request is kept in the
    inbox. `progress` observes commands while they run, `on_directory` gets the directory in which
    they ended, `command_notices` returns notices for the first one; `client`: see `ShellContext`.
    Raises: UsageError, ConfigError, HostError.
    """
    said = (*project.notices, *settle_sets(project))
    lineage = project.agents.lineage(project.agent_named(agent))
    note_agents(project, lineage)
    session = session_id or new_session_id()
    if session_id is None and project.gate.is_open:
        record_gate(project, session, lineage[0].agent.name)
    chain = chain_of(lineage, project.layout)
    for member in chain:
        compile_permissions(member)  # Fail now, and not at each call.
    chain = client_kind(chain, kind) if kind else chain
    policy = project.policy_for(lineage[0])
    record_given(project, policy.digest)
    tools, not_offered = _tools(project, policy, chain, lambda: servers.get())  # noqa: PLW0108 - it is made below
    notices = Notices((*said, *not_offered), command_notices)
    judge = PolicyJudge(policy, chain)
    with ExitStack() as held:
        # Last in, first out: commands end before their workspace is released.
        blobs = held.enter_context(closing(open_blobs(project)))
        history = held.enter_context(closing(open_history(project)))
        # Replaced contents of generated paths are not kept: commands can make them again.
        keeper = history.keeper(policy.guards.is_below_generated)
        workspace = held.enter_context(
            open_workspace_of(lineage[0], keeper, project.name_of(lineage[0].workspace))
        )
        ledger = held.enter_context(closing(open_ledger(project, LedgerName.HO1M)))
        watched = progress, on_directory, client, notices.log_command_notices
        ground = ShellSetup(
            project, lineage[0].agent.name, chain, policy, workspace, history, *watched
        )
        shell = held.enter_context(closing(LazyShell(ground)))
        late = held.enter_context(ExitStack())
        memory = Late(partial(_open_memory, project, ground.agent, late))
        servers = Late(partial(_open_servers, ground, lambda: context, late))
        asked, kept_by = _approvers(project, approver)
        context = Context(
            tools=tools,
            judge=judge,
            ports=_ports(ground, judge, shell, memory.get),
            ledger=ledger,
            approver=asked,
            keeper=kept_by,
            record_approval=partial(record_in_governance, project),
            caller=Caller(chain, session, is_programs=_is_programs(project)),
            randomness=os.urandom,
            history=history,
            contents=KeptContents(blobs),
            after_write=_after_write(project, policy, workspace.root, shell, servers),
        )
        close = held.pop_all().close
    parts = (tools, new_call_id, close, notices, shell.end, servers.get)
    runtime = Runtime(Dispatcher(context), *parts, partial(_undo, project, context.after_write))
    shell.on_end(runtime.call)
    return runtime


def _is_programs(project: Project) -> bool:
    return project.given is not None or project.agents.given is not None


def _approvers(project: Project, approver: Approver) -> tuple[Approver, Approver]:
    """Return the approver to ask, and the one that only keeps the changes of a command."""
    if _is_programs(project):
        # A later answer, in another process, cannot know a program's own policy or agent.
        return approver, NoApprover()
    inbox = partial(open_inbox, project)
    return InboxApprover(approver, inbox), InboxApprover(NoApprover(), inbox)


def _open_servers(
    ground: ShellSetup, context: Callable[[], Context], held: ExitStack
) -> "McpGateway":
    from paddock.assembly.extensions import open_gateway  # noqa: PLC0415 - few have one

    return open_gateway(ground, context, held)


def _open_memory(project: Project, agent: str, held: ExitStack) -> Workspace:
    """Open an agent's directory of memories in the plane, created at its first use."""
    directory = project.layout.agent_memories(agent)
    make_directories(directory)
    return held.enter_context(Workspace.open(str(directory)))


def _after_write(
    project: Project, policy: Policy, root: str, shell: LazyShell, servers: "Late[McpGateway]"
) -> Callable[[Sequence[str], str], None]:
    """Notify commands and servers of changes; in a project, make git ignore `agent_sandbox/`."""
    is_wanted = project.layout.kind is PlaneKind.PROJECT and policy.settings.hook.sandbox_ignored
    ignore_scratch = ignore_new_folder(Path(root)) if is_wanted else None

    def after_write(paths: Sequence[str], toolset: str) -> None:
        if ignore_scratch is not None:
            ignore_scratch()
        # Shell and gateway already know their own changes.
        if paths and toolset != SHELL:
            shell.changed(paths)
        if paths and toolset != MCP and servers.made is not None:
            servers.made.changed(paths)

    return after_write


def _undo(
    project: Project, after_write: Callable[[Sequence[str], str], None], call_id: str
) -> ToolResult:
    from paddock.assembly.undo import open_past  # noqa: PLC0415 - few programs undo

    with open_past(project) as past:
        result = past.undo(past.find(call_id)).result
    named = [row.get(each) for row in result.details.get("changes", ()) for each in ("path", "to")]
    # Commands in the background are notified, as of a tool's change.
    after_write([path for path in named if path], "operator")
    return result


def _ports(
    ground: ShellSetup, judge: PolicyJudge, shell: LazyShell, memory: Callable[[], Workspace]
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
        memory=memory,
    )


# The public functions, for programs that may have their own policy and agent.

AnyPath = str | os.PathLike[str]
Asked = Approver | Callable[[ApprovalRequest], bool] | None


def open_workspace(
    path: AnyPath | None = None,
    *,
    agent: str | AgentSpec | None = None,
    policy: AnyPath | Policy | None = None,
    approver: Asked = None,
) -> Runtime:
    """Open the project at `path` for one agent; the plane is created on first use.

        with paddock.open("path/to/project", policy="policy.toml", approver=ask_me) as runtime:
            runtime.view("README.md")

    Args:
        path: A directory of the project. Its root, below which the agent works, is the nearest one,
            there or above, with a policy file, else with `.git`. Without a path, the one that
            `PADDOCK_PLANE` names, else the current one.
        agent: The name of a declared agent, or an AgentSpec: an agent of this program only.
            Without it, the project's agent.
        policy: A policy file, or a Policy. It is trusted, and combined with the project's: of
            both answers the stricter counts. If neither the project nor the user has one, it
            applies over the built-in policy.
        approver: Answers if policy asks: a function (`True` is yes) or an Approver. Without it,
            a call that needs an approval is refused, and its request is kept for an operator,
            unless the program gives a policy or an AgentSpec.

    Raises:
        UsageError: no such directory, file or agent, or an invalid approver.
        ConfigError: a policy or agent file does not load.
        HostError: the host lacks something that is needed.
    """
    asked = approver_of(approver)
    project, name = with_given(open_given(path, process_environment()), policy, agent)
    notices = (*policy_notices(project), *project.notices, *profile_notices(project, name))
    said = tuple(dict.fromkeys(notices))
    return open_runtime(
        replace(project, notices=said),
        agent=name,
        approver=asked,
        command_notices=lambda: _command_notices(project, name),
    )


def _command_notices(project: Project, name: str | None) -> tuple[str, ...]:
    from paddock.policy.questions.lint import describe_tracked, find_tracked_secrets  # noqa: PLC0415 - for few
    from paddock.sandbox.git.tracked import list_tracked  # noqa: PLC0415 - loads the sandbox

    record, policy, chain = project.acting(name)
    if not may_ever(policy, chain, "shell", "run"):
        return ()
    said: list[str] = []
    tracked = find_tracked_secrets(policy, list_tracked(record.workspace))
    if tracked:
        said.append(f"{describe_tracked(tracked)}; paddock policy lint")
    held = held_here(project, policy, chain, Action("shell", "run", "true"))
    if held != HELD_WHOLE:
        how = "no sandbox holds commands" if held == "none" else "the sandbox is incomplete"
        said.append(f"{how} here, so each that would be confined is asked about; paddock doctor")
    return tuple(said)


# Python's errors then show the name that was called: `paddock.open`.
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

    `action` is written as in rules: `format_action` makes it. `path`, `agent` and `policy` are as
    in `open`. A command is confined only if this host's sandbox is complete: `comes_to` is the
    outcome on this host.

    Raises: ConfigError; UsageError if the action is invalid, or a directory, file or agent missing.
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
    from paddock.runtime.own_tools import has_to_be_awaited  # noqa: PLC0415 - only for programs

    answer = getattr(approver, "answer", approver)
    if not callable(answer) or has_to_be_awaited(answer):
        why = "has to be awaited" if callable(answer) else f"is {type(answer).__name__}"
        raise UsageError(
            f"the approver {why}, and has to be a plain function",
            hint="give a plain function that returns True or False; it runs in a separate thread",
        )
    if hasattr(approver, "answer"):
        return Limited(cast("Approver", approver), limits.approval_timeout_s)
    return CallbackApprover(cast("Callable[[ApprovalRequest], bool]", approver))
