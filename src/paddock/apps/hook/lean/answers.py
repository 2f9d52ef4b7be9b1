"""What a client is told: one JSON object, built whole, or nothing.

Seen in the clients themselves: output that does not look like one whole object lets
the call run; an `allow` skips the user's own prompt, so a warning comes without one;
Codex ignores `ask` and runs the call.
"""

from _json import encode_basestring_ascii as text

from paddock.apps.hook.lean.asked import Asked
from paddock.apps.hook.lean.judging import ASK, CONFINE, DENY, OTHERWISE, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.apps.hook.lean.judging import Engine

SILENT = "none"
"""The client's own settings and prompts decide."""
MESSAGE_CHARS_MAX = 4000
"""One text of an answer; clients cut at 10,000 characters themselves."""


def find_word(asked: Asked, verdict: Verdict, engine: "Engine") -> str:
    """Return `deny`, `ask`, `allow` or `none`: what the client is told about the call."""
    if verdict.outcome == DENY:
        return "deny"
    if verdict.outcome == CONFINE:
        return SILENT
    if verdict.outcome == ASK:
        if verdict.rank >= OTHERWISE:
            return SILENT
        return "deny" if asked.client == "codex" else "ask"
    if engine.on_allow == "approve" and verdict.is_granted and not verdict.warned:
        return "allow"
    return SILENT


def scratch_hint(today: str) -> str:
    """Where scratch work goes."""
    return f"Scratch work goes to agent_sandbox/{today}/<topic>/, which is safe to write."


def warning_text(path: str) -> str:
    """The warning about one path that was written to."""
    return f"Writing to production path: {path}. Ensure this is intentional implementation work."


def refusal(reason: str, hint: str = "") -> bytes:
    """The answer that stops a call."""
    return decision_answer("deny", reason, hint, reason)


def decision_answer(
    word: str, reason: str, context: str, message: str, updated_input: str = ""
) -> bytes:
    """The answer to a PreToolUse; empty texts are left out, and `none` says no decision.

    `updated_input` is JSON text.
    """
    parts = ['"hookEventName":"PreToolUse"']
    if word != SILENT:
        parts.append(f'"permissionDecision":"{word}"')
    if reason and word != SILENT:
        parts.append(f'"permissionDecisionReason":{text(cut(reason))}')
    if updated_input:
        parts.append(f'"updatedInput":{updated_input}')
    if context:
        parts.append(f'"additionalContext":{text(cut(context))}')
    if len(parts) == 1:
        return b""
    shown = f',"systemMessage":{text(cut(message))}' if message else ""
    return f'{{"hookSpecificOutput":{{{",".join(parts)}}}{shown}}}\n'.encode()


def context_answer(event: str, context: str) -> bytes:
    """The answer to an event that takes nothing but context."""
    return (
        f'{{"hookSpecificOutput":{{"hookEventName":{text(event)},'
        f'"additionalContext":{text(cut(context))}}}}}\n'
    ).encode()


def permission_refusal(reason: str) -> bytes:
    """The answer that refuses a PermissionRequest."""
    return (
        '{"hookSpecificOutput":{"hookEventName":"PermissionRequest",'
        f'"decision":{{"behavior":"deny","message":{text(cut(reason))}}}}}}}\n'
    ).encode()


def cut(said: str) -> str:
    """Return a text that is no longer than any client shows, and says what is missing."""
    missing = len(said) - MESSAGE_CHARS_MAX
    if missing <= 0:
        return said
    return f"{said[:MESSAGE_CHARS_MAX]} ({missing} more characters)"


def verdict_answer(
    word: str, verdict: Verdict, warnings: "list[str]", today: str, updated_input: str = ""
) -> bytes:
    """The answer to a judged call. `warnings` are those that are to be shown now."""
    warned = "\n".join(warnings)
    if word == "deny":
        return decision_answer("deny", verdict.reason, scratch_hint(today), verdict.reason)
    context = f"{warned}\n{scratch_hint(today)}" if warned else ""
    reason = f"{verdict.reason}\n{warned}" if warned else verdict.reason
    return decision_answer(word, reason, context, warned, updated_input)
