"""What a door answers: an outcome as a result, and every refusal in its words. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ApprovalExpiredError,
    ApprovalRefusedError,
    ApprovalUnavailableError,
    InternalError,
    PaddockError,
    StorageFullError,
    ToolError,
    UnknownToolError,
)
from paddock.runtime.approvals import Approval
from paddock.runtime.prepared import Bounds, Failed, Prepared, Ran
from paddock.runtime.records import kept_name
from paddock.text.show import quote, show_name
from paddock.tools.spec import StoppedCallError, Tool
from paddock.values.calls import LeftEffect, Refusal, ToolCall, ToolResult
from paddock.values.decisions import Decision, rule_in_brief

WARNING_TURNED_OFF: Final = (
    "[said once a session: warned = [] in [paths] of paddock.toml turns these warnings off]"
)


def result_of(ready: Prepared, outcome: Ran) -> ToolResult:
    if isinstance(outcome, Failed):
        return refused(ready.call, ready.tool, outcome.refusal)
    content = outcome.content
    warnings = ready.judged.decision.warnings
    if not ready.clamped and not warnings:
        call = ready.call
        return ToolResult(call.id, call.tool, content, outcome.details)
    details = dict(outcome.details)
    if ready.clamped:
        details["clamped"] = dict(ready.clamped)
        used = ", ".join(f"{name}={value}" for name, value in ready.clamped.items())
        content = f"{content}\n[clamped: {used}]"
    if warnings:
        details["warnings"] = list(warnings)
        content = _with_warnings(content, warnings)
    return ToolResult(ready.call.id, ready.call.tool, content, details)


def _with_warnings(content: str, warnings: Sequence[str]) -> str:
    return "\n".join([content, *(f"[warning: {show_name(warning)}]" for warning in warnings)])


def refused(call: ToolCall, tool: Tool[Any] | None, refusal: Refusal) -> ToolResult:
    details = {} if tool is None else dict(tool.spec.failure_details)
    return ToolResult(call.id, call.tool, refusal.as_text(), details, refusal)


def refusal_of(error: ToolError) -> Refusal:
    return Refusal(error.code, error.message, error.hint)


STOPPED: Final = refusal_of(StoppedCallError(LeftEffect.NONE))
"""Of a call that was cancelled before anything of it stood."""


def refusal_by_host(error: PaddockError) -> Refusal:
    return Refusal(
        StorageFullError.code,
        f"this host could not do it ({type(error).__name__})",
        "what was wrong stands in the ledger's entry of this call; look at the target before "
        "doing anything else, and ask a person to see to the host",
    )


def refusal_by(decision: Decision, call: ToolCall, agent: str) -> Refusal:
    rule = decision.rule
    if rule is None:
        said = f"{quote(decision.action)} is denied: {decision.reason}"
        return Refusal(decision.code, said, _unmatched_hint(decision.action, call, agent))
    # Threat: a cloned policy may deny, and its reason is text of its own making.
    reason = show_name(decision.reason)
    hint = f"choose another way, or ask a person to change the rule {rule.said}"
    if rule.source == "paths.own":
        hint = "no rule opens Paddock's own files; only a person changes them"
    says_all = rule.source.endswith(".permissions.forbidden")
    return Refusal(
        decision.code,
        reason if says_all else f"{quote(decision.action)} is denied: {reason}",
        show_name(hint),
        rule_in_brief(rule),
    )


def _unmatched_hint(action: str, call: ToolCall, agent: str) -> str:
    import shlex  # noqa: PLC0415 - for a refusal alone

    is_whole = action == show_name(action).strip() and len(action) <= limits.message_value_chars_max
    if action and is_whole:
        asked = f"{shlex.quote(action)} --agent {agent}"
    else:
        # What does not stand on one line, or is long, is on record with the call.
        asked = show_name(shlex.quote(kept_name(call.id)))
    return (
        "no rule allows it; choose another way, or ask a person to look: "
        f"paddock policy explain {asked}"
    )


def refusal_for(approval: Approval, decision: Decision) -> Refusal:
    refusal = refusal_without(approval, decision.action)
    return replace(refusal, rule=rule_in_brief(decision.rule))


def refusal_without(approval: Approval, action: str) -> Refusal:
    """As `refusal_for`, where what decided is not known any more, but what it was about."""
    said = f": {show_name(approval.note)}" if approval.note else ""
    usual = _APPROVAL_HINTS.get(approval.code, "do not repeat it unchanged; ask what is wanted")
    hint = approval.hint or usual
    if approval.request_id and approval.code != ApprovalRefusedError.code:
        kept = _CHANGES_KEPT_HINT if approval.changes_digest else _KEPT_HINT
        hint = kept.format(id=approval.request_id)
    message = f"{quote(action)} needs an approval, and was not approved{said}"
    return Refusal(approval.code, message, hint)


def with_question(
    result: ToolResult, approval: Approval, warnings: Sequence[str] = ()
) -> ToolResult:
    details, content = dict(result.details), result.content
    if warnings:
        details["warnings"] = list(warnings)
        content = _with_warnings(content, warnings)
    if approval.request_id:
        details["approval"] = approval.request_id
    return result._replace(content=content, details=details)


_KEPT_HINT: Final = (
    "ask a person to look at it and answer: paddock approvals show {id}, then grant or refuse; "
    "after a grant, make the very same call again"
)
_CHANGES_KEPT_HINT: Final = (
    "it has run, and what it changed waits: ask a person to look at it and answer: paddock "
    "approvals show {id}, then grant or refuse; a grant brings in just what is shown there, so "
    "do not make the call again"
)
_APPROVAL_HINTS: Final = {
    ApprovalUnavailableError.code: "a person has to be there to ask (at a terminal, or --yes), "
    "or a rule has to allow it",
    ApprovalExpiredError.code: "ask again",
}


def not_recorded(error: PaddockError) -> Refusal:
    # An entry that no line can hold is a defect of ours: nobody needs to look for space.
    code = error.code if isinstance(error, ToolError | InternalError) else StorageFullError.code
    hint = f"nothing came of this call; {error.hint}" if error.hint else ""
    return Refusal(code, f"the ledger cannot commit: {error.message}", hint)


def unless_allowed(tool: str, bounds: Bounds) -> Refusal | None:
    if bounds.tools is None or tool in bounds.tools:
        return None
    listed = ", ".join(sorted(bounds.tools)) or "none"
    return Refusal(
        UnknownToolError.code,
        f"the tool {quote(tool)} is not allowed here",
        f"the tools that are allowed: {listed}",
    )
