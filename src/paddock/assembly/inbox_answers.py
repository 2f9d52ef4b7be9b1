"""Answer a request that the inbox keeps, carry it out, or make a rule of it.

`find_outdated` decides no call: an approval counts only for its digest, which the dispatcher
compares. It stops an operator from an answer that would count for no call, or to a request whose
file was changed. Kept changes and rules are compared here, where they are written.
"""

import stat
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.assembly.history import (
    open_history,
    open_inbox,
    open_journal,
    open_workspace_of,
    read_answers,
    settle_sets,
    workspace_with_git,
)
from paddock.assembly.ledgers import open_ledger, record_in_governance
from paddock.assembly.project import DEVELOPMENT, Project, policy_of
from paddock.assembly.project_open import open_root
from paddock.assembly.runtimes import open_runtime, tools_of
from paddock.assembly.undo import OperatorDispatcher
from paddock.plane import records
from paddock.plane.agents import AgentRecord
from paddock.plane.layout import LedgerName
from paddock.plane.trust import PolicyFile, own_policy_path, plan_trust, write_trust
from paddock.policy.decide import decide, judge_for, shell_for
from paddock.policy.engine import Policy, PolicySource
from paddock.policy.positions import PatternError
from paddock.policy.questions.flip import Always, appended, plan_always
from paddock.policy.rules import compile_rule, parse_concrete
from paddock.runtime.approvals import Approval, ApprovalRequest, approval_digest
from paddock.runtime.inbox import Answers, Inbox, Parked
from paddock.runtime.prepared import FREE, Bounds, Caller, PolicyJudge
from paddock.runtime.records import ALWAYS, answered_later
from paddock.runtime.undo import commit_tool
from paddock.sandbox.changes.pending import unpark_set
from paddock.storage.atomic import create_file, read_file, replace_file
from paddock.storage.locks import locked
from paddock.text.show import quote, show_name
from paddock.tools.spec import Pinning, Ports, Staging, Tool
from paddock.tools.toolsets import TOOLS
from paddock.values.calls import ToolResult
from paddock.values.decisions import Action, AgentChain, Decision, Outcome
from paddock.values.entries import Entry

POLICY_CHANGED: Final = "the policy has changed since it was asked about"
AGENT_CHANGED: Final = (
    "the agent, its permissions, the tool or the kept request has changed since it was asked about"
)
ACTIONS_CHANGED: Final = "the actions of the call have changed since it was asked about"
TARGET_CHANGED: Final = "the target of the call has changed since it was asked about"
SANDBOX_CHANGED: Final = "the limits of its sandbox have changed since it was asked about"
KEPT_CHANGED: Final = "its file does not match the recorded request"
TOOL_GONE: Final = "the agent no longer has the tool"
_DECIDED_AGAIN: Final = "make the call again: it is then decided by the current state"
_ASKED_AGAIN: Final = "make the call again: it is then asked about again"


class ChangedSince(Struct, frozen=True):
    kept: ApprovalRequest

    def answer(self, request: ApprovalRequest) -> Approval:
        return Approval(
            False, "inbox", errors.ApprovalExpiredError.code, _change(self.kept, request)
        )


def _change(kept: ApprovalRequest, now: ApprovalRequest) -> str:
    if now.policy_digest != kept.policy_digest:
        return POLICY_CHANGED
    if now.actions != kept.actions:
        return ACTIONS_CHANGED
    if now.target_digest != kept.target_digest:
        is_command = any(action.startswith("tool:shell:") for action in kept.actions)
        return SANDBOX_CHANGED if is_command else TARGET_CHANGED
    if now.digest != kept.digest:
        return AGENT_CHANGED
    return "its grant was used, or withdrawn, meanwhile"


class Outdated(Struct, frozen=True):
    why: str
    hint: str
    bars_rule: bool = False
    """True if no rule can be made either: policy decides the call, or the request was changed."""


def grant(project: Project, wanted: str, by: str, seen: Parked | None = None) -> Parked:
    inbox = open_inbox(project)
    parked = seen or inbox.find(wanted)
    _require_current(project, parked)
    return inbox.grant(wanted, by, parked)


def _require_current(project: Project, parked: Parked) -> None:
    outdated = find_outdated(project, parked)
    if outdated is not None:
        raise _expired_by(parked, outdated)


def _expired_by(parked: Parked, outdated: Outdated) -> errors.ApprovalExpiredError:
    return errors.ApprovalExpiredError(
        f"an answer to {quote(parked.id)} would count for no call: {outdated.why}",
        hint=outdated.hint,
    )


def find_outdated(
    project: Project, parked: Parked, answers: Answers | None = None
) -> Outdated | None:
    """Return what has changed since the question, so that no answer to it counts, or None.

    None promises nothing: a command's sandbox is known only where the command runs, and tools of
    packages and MCP servers are not run for this. A caller with many requests reads the `answers`
    to all of them once.

    Threat: the diff or a warning was changed in the request's file, so that a person approves
    what was never asked: no digest of the call covers them. Raises: IntegrityError.
    """
    request = parked.request
    try:
        if answers is None:
            answers = read_answers(project, [parked.id])
        if not answers.is_kept(parked):
            return Outdated(KEPT_CHANGED, _ASKED_AGAIN, bars_rule=True)
        record, policy, chain = project.acting(request.agent)
        judge = PolicyJudge(policy, chain)
        if judge.policy_digest != request.policy_digest:
            return _other_policy(judge, request)
        # Only Paddock's own tools: package code is not run for this.
        listed = next((each for each in TOOLS if each.name == request.tool), None)
        has_it = listed is not None and listed.toolset in chain[0].toolsets
        if listed is not None and not has_it and _is_taken_away(project, listed.toolset):
            return Outdated(TOOL_GONE, _tool_hint(project, listed.toolset))
        tool = listed.load() if listed is not None and has_it else None
        if _digest_now(tool, request, judge) != request.digest:
            return Outdated(AGENT_CHANGED, _DECIDED_AGAIN)
        if parked.changes is not None:
            # Check only that they load: the commit compares each file that it changes.
            unpark_set(parked.changes)
        elif tool is not None:
            return _changed_now(tool, request, judge, record)
    except errors.IntegrityError:
        raise
    except errors.PaddockError as error:
        why = f"the call cannot be made any more: {error.message}"
        return Outdated(why, error.hint or "once it can, make the call again")
    return None


def _other_policy(judge: PolicyJudge, request: ApprovalRequest) -> Outdated:
    decision = _decided_now(judge, request.actions)
    if decision is None or decision.outcome in (Outcome.CONFINE, Outcome.ASK):
        return Outdated(POLICY_CHANGED, _ASKED_AGAIN)
    if decision.outcome is Outcome.ALLOW:
        why = f"{POLICY_CHANGED}, and now allows the call"
        return Outdated(why, "make the call again: it needs no grant", bars_rule=True)
    # Threat: a cloned policy may deny, and its reason is text that an attacker wrote.
    why = f"{POLICY_CHANGED}, and now denies the call: {show_name(decision.reason)}"
    hint = "no answer lifts a denial: change the policy and make the call again"
    return Outdated(why, hint, bars_rule=True)


def _decided_now(judge: PolicyJudge, texts: Sequence[str]) -> Decision | None:
    actions: list[Action] = []
    for text in texts:
        try:
            action = parse_concrete(text)
        except PatternError:
            return None
        if str(action) != text:
            return None
        actions.append(action)
    return judge.decide(actions) if actions else None


def _is_taken_away(project: Project, toolset: str) -> bool:
    """Return True if no process on this plane has such a tool for an agent that lacks it here.

    The environment's half of the dual gate is per process: the operator's shell may lack it.
    """
    return toolset != DEVELOPMENT or not replace(project.gate, variable=True).is_open


def _tool_hint(project: Project, toolset: str) -> str:
    if toolset == DEVELOPMENT:
        return f"the dual gate is {project.gate}; once it is open, make the call again"
    return "once the agent has it again, make the call again"


def _digest_now(tool: Tool[Any] | None, request: ApprovalRequest, judge: PolicyJudge) -> str:
    shown = {**request.arguments, **request.filled}
    return approval_digest(
        tool=request.tool,
        # Without the tool its defaults are unknown: take the arguments as the request shows them.
        arguments=shown if tool is None else tool.binder.values(request.arguments),
        agents=Caller(judge.chain, "").chain_json(),
        policy_digest=judge.policy_digest,
        target_digest=request.target_digest,
        actions=request.actions,
    )


def _changed_now(
    tool: Tool[Any], request: ApprovalRequest, judge: PolicyJudge, record: AgentRecord
) -> Outdated | None:
    handler = tool.handler
    arguments, _ = tool.binder.bind(request.arguments)
    with open_workspace_of(record) as workspace:
        ports = Ports(workspace, judge)
        plan = handler.resolve(arguments, ports)
        # Threat: a symlink now leads elsewhere, and the person is shown its earlier target.
        if tuple(map(str, plan.actions)) != request.actions:
            return Outdated(ACTIONS_CHANGED, _DECIDED_AGAIN)
        # A command's target digest is of its sandbox, known only in the process that runs it.
        if isinstance(handler, Pinning) and not isinstance(handler, Staging):
            _, found = handler.pin(plan, ports)
            is_same = found == request.target_digest
            return None if is_same else Outdated(TARGET_CHANGED, _DECIDED_AGAIN)
    return None


# A granted call is dispatched again: bound, resolved and decided again. A command's kept changes,
# shown as a difference, are committed as they were shown; nothing runs again.


def grant_here(project: Project, wanted: str, by: str, seen: Parked | None = None) -> Parked:
    """Grant a kept request that this process carries out at once; see `resume`.

    Raises: ApprovalExpiredError, as `grant`; UsageError if the request is not found, or its agent
    does not have the tool here: then nothing is granted, since the grant would be wasted.
    """
    inbox = open_inbox(project)
    parked = seen or inbox.find(wanted)
    _require_current(project, parked)
    request = parked.request
    try:
        tools_of(project, request.agent).get(request.tool)
    except errors.UnknownToolError as error:
        raise errors.UsageError(
            f"agent {quote(request.agent)} does not have the tool {quote(request.tool)} here",
            hint=f"nothing was granted; the dual gate is {project.gate}: answer where it is open"
            if project.admin is not None
            else "nothing was granted",
        ) from error
    return inbox.grant(wanted, by, parked)


def resume(project: Project, granted: Parked, bounds: Bounds = FREE) -> ToolResult:
    """Carry out a request that was granted just now, within these bounds.

    A later change (of content, policy or agent) voids the grant, and the call is refused with
    `approval.expired`; so is a command whose sandbox has changed. Raises: ApprovalExpiredError.
    """
    inbox = open_inbox(project)
    if granted.changes is not None:
        return _commit_kept(project, inbox, granted, bounds)
    request = granted.request
    try:
        with open_runtime(project, agent=request.agent, approver=ChangedSince(request)) as runtime:
            return runtime.call(request.tool, request.arguments, bounds=bounds)
    finally:
        # If policy now allows or denies the call, the grant is unused.
        inbox.withdraw(granted)


def _commit_kept(project: Project, inbox: Inbox, granted: Parked, bounds: Bounds) -> ToolResult:
    if not inbox.take_changes(granted):
        raise errors.ApprovalExpiredError(
            "the kept changes are not those that were asked about", hint="run the command again"
        )
    try:
        return _commit(project, granted, bounds)
    finally:
        # In every case the grant is used up and the kept changes are removed.
        inbox.withdraw(granted)


def _commit(project: Project, granted: Parked, bounds: Bounds) -> ToolResult:
    settle_sets(project)
    request = granted.request
    record, policy, chain = project.acting(request.agent)
    shown = PolicyJudge(policy, chain)
    tool = tools_of(project, request.agent).get(request.tool)
    # Nothing is resolved again: exactly the changes that were shown are committed.
    if _digest_now(tool, request, shown) != request.digest:
        raise errors.ApprovalExpiredError(
            "policy or agent have changed since the command ran", hint="run the command again"
        )
    with (
        closing(open_history(project)) as history,
        workspace_with_git(record, history.keeper()) as workspace,
        closing(open_ledger(project, LedgerName.HO1M)) as ledger,
        open_journal(project) as journal,
    ):
        parked = unpark_set(granted.changes)
        return OperatorDispatcher(shown, workspace, ledger, history).call(
            commit_tool(parked, history, journal, shell_for(policy, chain).git),
            {"request": granted.id, "agent": request.agent},
            bounds,
        )


_NEW_FILE_MODE = 0o644


class RuleReview(Struct, frozen=True):
    file: Path
    before: bytes | None
    always: Always


class AlwaysReview(RuleReview, frozen=True):
    parked: Parked


def review_always(project: Project, parked: Parked, outdated: Outdated | None) -> AlwaysReview:
    # A rule comes from the policy in force: also for an outdated request, if policy still asks.
    # Not if changes wait: an outdated request's changes can no longer be committed.
    if outdated is not None and (outdated.bars_rule or parked.changes is not None):
        raise _expired_by(parked, outdated)
    _, policy, chain = project.acting(parked.request.agent)
    reason = f"always, since {parked.id} was approved"
    return AlwaysReview(
        *_rules(project, policy, chain, parked.request.actions, reason), parked=parked
    )


def review_rule(project: Project, agent: str, actions: Sequence[str]) -> RuleReview:
    """Return rules that allow an agent those of the actions that policy does not allow yet.

    Raises: ConfigError, UsageError.
    """
    _, policy, chain = project.acting(agent)
    decided = [decide(policy, chain, [parse_concrete(each)]) for each in actions]
    denied = next((d.rule for d in decided if d.rule and d.outcome is Outcome.DENY), None)
    if denied is not None:
        said = f"no allow rule can lift {denied.text} ({denied.source}, {denied.place})"
        raise errors.ConfigError(said, hint="change that rule by hand, and trust the policy")
    missing = [a for a, d in zip(actions, decided, strict=True) if d.outcome is not Outcome.ALLOW]
    if not missing:
        raise errors.UsageError("policy allows it already", hint="paddock network show says why")
    # As if policy asked about these: `plan_always` makes rules only for those.
    for each in judge_for(policy, chain).profiles():
        profile = policy.find_profile(each.name) or each.profile
        asked = tuple(compile_rule(action, Outcome.ASK, "") for action in missing)
        policy = policy.with_profile(replace(profile, rules=profile.rules + asked))
    return RuleReview(*_rules(project, policy, chain, missing, "allowed by a person"))


def review_table(project: Project, table: str) -> RuleReview:
    """Return the project's policy with a TOML table appended. Raises: ConfigError."""
    own, file = project.files.project, own_policy_path(project.root)
    if own is not None and not own.trusted:
        hint = "review and accept it first: paddock trust"
        raise errors.ConfigError("the project's policy is not trusted", where=str(file), hint=hint)
    if file.suffix == ".json":
        raise errors.ConfigError("tables are written only to TOML files", where=str(file))
    before = b"" if own is None else own.content
    content = appended(before, table)
    changed = PolicyFile(file, content, trusted=True)
    policy_of(replace(project.files, project=changed))
    return RuleReview(file, None if own is None else own.content, Always(table, content))


def _rules(
    project: Project, policy: Policy, chain: AgentChain, actions: Sequence[str], reason: str
) -> tuple[Path, bytes | None, Always]:
    files = project.files
    file = own_policy_path(project.root)
    own, user = files.project, files.user
    source = PolicySource(
        file.name, b"" if own is None else own.content, own is None or own.trusted
    )
    users = None if user is None else PolicySource(user.path.name, user.content)
    always = plan_always(policy, chain, actions, source, users, reason)
    return file, None if own is None else own.content, always


def save_always(project: Project, review: AlwaysReview, by: str) -> None:
    answered = answered_later(replace(review.parked, answered_by=by), ALWAYS)
    save_rule(project, review, by, answered)
    open_inbox(project).withdraw(review.parked)


def commit_and_save(
    project: Project, review: AlwaysReview, by: str, bounds: Bounds = FREE
) -> ToolResult:
    """Commit the changes, then save the rule: they are bound to the policy that asked."""
    result = resume(project, grant_here(project, review.parked.id, by, review.parked), bounds)
    if result.refusal is None:
        save_always(project, review, by)
    return result


def save_rule(project: Project, review: RuleReview, by: str, *answers: Entry) -> None:
    """Write and trust exactly what was reviewed.

    Sequence: recorded → written → trusted. If the entries cannot be written, the policy is
    unchanged. Raises: ConfigError if the file has changed since it was reviewed.
    """
    file, content = review.file, review.always.content
    with locked(file.parent):
        if read_file(file, limits.policy_bytes_max) != review.before:
            raise errors.ConfigError(
                "the policy has changed since the rule was shown", where=str(file), hint="try again"
            )
        # A bare plane's file is trusted by its path already; trusting it here does no harm.
        record = plan_trust(file, content, datetime.now(UTC))
        record_in_governance(project, *answers, records.policy_trusted(record, by))
        if review.before is None:
            create_file(file, content, _NEW_FILE_MODE)
        else:
            replace_file(file, content, mode=stat.S_IMODE(file.lstat().st_mode))
        write_trust(record, project.environment)
    open_root(project.root, project.environment)
