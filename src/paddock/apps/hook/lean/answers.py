"""What a client is told: one JSON object, built whole, or nothing.

Output that is not one whole object lets the call run; an `allow` skips the user's own prompt, so
a warning comes without one; Codex ignores `ask` and runs the call.
"""

from _json import encode_basestring_ascii as text

from paddock.policy.compiled import ASK, CONFINE, DENY, OTHERWISE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.apps.hook.lean.engine import Engine
    from paddock.apps.hook.lean.flow import LeanJudged

WANTS_OUT = "the command wants to run outside the fence, as the client itself would run it"
STILL_HELD = "approved, it still runs in Paddock's sandbox"
CONFINED = (
    "Paddock: commands now run in its sandbox (changes are judged and can be undone, secrets are "
    "closed, there is no network but by rule) and are not prompted for; to go back: "
    'shell = "read" in [hook] of paddock.toml, then paddock trust'
)
"""Said once in a project, with the first command that is wrapped."""
TURNS_OFF = (
    "(Said once a session: warned = [] in [paths] of paddock.toml turns these warnings off, "
    "scratch = false in [hook] the advice on scratch work.)"
)
"""With the first warning of a session. Threat: it is a person who decides; an agent cannot."""
SILENT = "none"
MESSAGE_CHARS_MAX = 4000
"""One text of an answer; clients cut at 10,000 characters themselves."""


def find_word(judged: "LeanJudged", engine: "Engine") -> str:
    verdict = judged.verdict
    asks = "deny" if judged.asked.client == "codex" else "ask"
    if verdict.outcome == DENY:
        return "deny"
    if judged.wants_out:
        return asks
    if verdict.outcome == ASK:
        return SILENT if verdict.rank >= OTHERWISE else asks
    if judged.directory:
        return "allow"
    if verdict.outcome == CONFINE or (judged.wanted.line is not None and engine.shell != "read"):
        # What no sandbox holds is nothing to be waved through.
        return SILENT
    if engine.on_allow == "approve" and verdict.is_granted and not verdict.warned:
        return "allow"
    return SILENT


def scratch_day(today: str, engine: "Engine") -> str:
    name = f"agent_sandbox/{today}/notes"
    found = (*engine.denials(name, True, False), *engine.profile("file", "create", name))
    return "" if any(each.outcome == DENY for each in found) else today


def scratch_hint(today: str) -> str:
    if not today:
        return ""
    return f"Scratch work goes to agent_sandbox/{today}/<topic>/, which is safe to write."


def warning_text(path: str) -> str:
    return f"Writing to production path: {path}. Ensure this is intentional implementation work."


def refusal(reason: str, hint: str = "") -> bytes:
    return decision_answer("deny", reason, hint, reason)


def decision_answer(
    word: str, reason: str, context: str, message: str, updated_input: str = ""
) -> bytes:
    """Answer a PreToolUse; leave out empty texts; `updated_input` is JSON text."""
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
    return (
        f'{{"hookSpecificOutput":{{"hookEventName":{text(event)},'
        f'"additionalContext":{text(cut(context))}}}}}\n'
    ).encode()


def permission_refusal(reason: str) -> bytes:
    return (
        '{"hookSpecificOutput":{"hookEventName":"PermissionRequest",'
        f'"decision":{{"behavior":"deny","message":{text(cut(reason))}}}}}}}\n'
    ).encode()


def cut(said: str) -> str:
    missing = len(said) - MESSAGE_CHARS_MAX
    if missing <= 0:
        return said
    return f"{said[:MESSAGE_CHARS_MAX]} ({missing} more characters)"


def verdict_answer(
    word: str,
    reason: str,
    warnings: "list[str]",
    today: str,
    updated_input: str = "",
    notice: str = "",
) -> bytes:
    if word == "deny":
        return refusal(reason, scratch_hint(today))
    warned = "\n".join(warnings)
    context = "\n".join(filter(None, (warned, scratch_hint(today)))) if warned else ""
    reason = f"{reason}\n{warned}" if warned else reason
    context, message = ("\n".join(filter(None, (notice, each))) for each in (context, warned))
    return decision_answer(word, reason, context, message, updated_input)
