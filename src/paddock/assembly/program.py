"""What a program opens, and asks, by its own policy and agent beside the project's."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from paddock import limits
from paddock.assembly.opening import open_given, policy_notices, start_of
from paddock.assembly.project import Project, find_project, planned_lineage
from paddock.assembly.runtimes import held_here, open_runtime
from paddock.errors import UsageError
from paddock.plane.agents import AgentSpec
from paddock.plane.environment import process_environment
from paddock.plane.trust import PolicyFile
from paddock.policy.decide import decide, may_ever, writer_of
from paddock.policy.engine import Policy
from paddock.policy.rules import parse_action
from paddock.runtime.approvals import (
    ApprovalRequest,
    Approver,
    CallbackApprover,
    Limited,
    NoApprover,
)
from paddock.runtime.runtime import Runtime
from paddock.storage.atomic import read_file_through_links
from paddock.text.show import quote
from paddock.values.decisions import (
    HELD_WHOLE,
    Action,
    Decision,
    Outcome,
    PlaneKind,
    confined,
)

AnyPath = str | os.PathLike[str]


def open_workspace(
    path: AnyPath | None = None,
    *,
    agent: str | AgentSpec | None = None,
    policy: AnyPath | Policy | None = None,
    approver: Approver | Callable[[ApprovalRequest], bool] | None = None,
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
    project = _with_given(open_given(path, process_environment()), policy, agent)
    name = agent.name if isinstance(agent, AgentSpec) else agent
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
    project = _with_given(find_project(*start_of(path, process_environment()), None), policy, agent)
    name = agent.name if isinstance(agent, AgentSpec) else agent
    lineage = planned_lineage(project, name)
    chain = tuple(record.agent for record in lineage)
    judged = project.policy_for(lineage[0])
    decision = decide(judged, chain, [asked], writer_of([asked]))
    if decision.outcome is not Outcome.CONFINE:
        return decision
    return confined(decision, held_here(project, judged, chain, asked))


def _with_given(
    project: Project, policy: AnyPath | Policy | None, agent: str | AgentSpec | None
) -> Project:
    if policy is not None:
        project = replace(project, given=_given_policy(policy))
    if not isinstance(agent, AgentSpec):
        return project
    if agent.workspace is None and project.layout.kind is PlaneKind.PROJECT:
        agent = replace(agent, workspace=project.root.path)
    return replace(project, agents=project.agents.with_given(agent))


def _given_policy(policy: AnyPath | Policy) -> PolicyFile:
    if isinstance(policy, Policy):
        source = policy.sources[1]
        if source is None:
            raise UsageError("the policy has no text", hint="make it by Policy.parse")
        return PolicyFile(Path(source.name), source.text, trusted=True)
    path = Path(policy).absolute()
    content = read_file_through_links(path, limits.policy_bytes_max)
    if content is None:
        raise UsageError(f"there is no policy file {quote(str(policy))}", where=str(path))
    return PolicyFile(path, content, trusted=True)


def approver_of(approver: Approver | Callable[[ApprovalRequest], bool] | None) -> Approver:
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
