"""Answer one event: judge it, record the decision, then answer, in this order.

A call may run only after its decision is on disk. The answer is one complete JSON object or
nothing, because clients run a call after malformed output. `allow` skips the client's own prompt,
so a warning is sent without it. Codex ignores `ask` and runs the call.

A confined command is rewritten: the client's shell starts Paddock, which runs it in the sandbox.

Threat: quotes in a command end the shell argument that holds it, and the rest runs outside the
sandbox. A property test has bash and zsh parse the rewritten lines.
"""

from _json import encode_basestring_ascii as text
from _json import make_encoder

from paddock.apps.hook.lean import records
from paddock.apps.hook.lean.image import CommandWrapper, HookContext
from paddock.apps.hook.lean.judge import LeanVerdict, find_places, judge, relative
from paddock.apps.hook.lean.request import (
    PERMISSION_REQUEST,
    PRE_TOOL_USE,
    SHELL_TOOL,
    HookEvent,
    LeanWanted,
    find_wanted,
)
from paddock.policy.compiled import ASK, CONFINE, DENY, OTHERWISE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class EventPorts(Protocol):
        def append(self, record: records.LeanRecord) -> None: ...

        def wrap(self, judged: "LeanJudged", is_asked: bool) -> str:
            """Return a tool input, as JSON, that runs in the sandbox; `is_asked`: if approved."""
            ...


WANTS_OUT = "the command asks to run outside any sandbox"
STILL_CONFINED = "if approved, it still runs in Paddock's sandbox"
CONFINED = (
    "Paddock: commands now run in its sandbox without a prompt (changes are judged and can be "
    "undone, secrets are hidden, network access needs a rule); to turn this off: "
    'shell = "read" in [hook] of paddock.toml, then paddock trust'
)
"""Shown once in a project, with the first wrapped command."""
TURNS_OFF = (
    "(Shown once a session. To turn these warnings off: warned = [] in [paths] of paddock.toml; "
    "to turn off the advice on scratch work: scratch = false in [hook].)"
)
"""Shown with the first warning of a session. Only the user can change these settings."""
SILENT = "none"
MESSAGE_CHARS_MAX = 4000
"""For one text of an answer. Clients cut at 10,000 characters."""
_ONCE = "paddock"
"""Used as the session of texts that a project is shown once."""


class LeanJudged:
    """A judged call, not yet recorded; `directory`: where a command runs in the sandbox."""

    verdict: LeanVerdict
    directory = ""
    is_outside = False
    """Policy leaves the command to the client as it is."""
    wants_out = False
    """The command asks to run without a sandbox."""

    def __init__(self, event: HookEvent, wanted: LeanWanted) -> None:
        self.event = event
        self.wanted = wanted


def answer(event: HookEvent, context: HookContext, base: str, ports: "EventPorts") -> bytes:
    """Answer an event; paths are relative to `base`. Raises: ShapeError; as `append`."""
    if event.is_judged:
        return _answer_call(judge_call(event, context, base), context, ports)
    ports.append(records.event_record(event, context.who[0]))
    if event.name == "PostToolUse":
        records.show_change(context.session, event)
    is_start = event.name in ("SessionStart", "SubagentStart")
    hint = scratch_hint(context.today) if is_start else ""
    return _output(event.name, [f'"additionalContext":{text(cut(hint))}']) if hint else b""


def judge_call(event: HookEvent, context: HookContext, base: str) -> LeanJudged:
    """Record nothing. Raises: ShapeError."""
    wanted = find_wanted(event)
    judged = LeanJudged(event, wanted)
    if event.tool == SHELL_TOOL:
        judged.wants_out = wants_out(event)
        if not judged.wants_out:
            judged.directory = find_directory(event, context, base)
        if judged.directory and wanted.line is not None and context.is_outside(wanted.line):
            judged.is_outside, judged.directory = True, ""
    judged.verdict = judge(event, wanted, context, base, judged.directory)
    return judged


def _answer_call(judged: LeanJudged, context: HookContext, ports: "EventPorts") -> bytes:
    event, verdict = judged.event, judged.verdict
    word = _choose_answer(judged, context)
    warnings = _due_warnings(judged, context)
    updated = ""
    if judged.directory and word in ("allow", "ask"):
        updated = ports.wrap(judged, word == "ask")
        if not updated and word == "allow":
            # Not confined after all, so leave the command to the client's own prompt.
            word = SILENT
    record = records.decision_record(event, verdict, word, warnings, context.who)
    note_enforcement(record, judged, is_confined=bool(updated))
    ports.append(record)
    reason = verdict.reason
    hint = scratch_hint_on(context)
    if judged.wants_out and verdict.outcome != DENY:
        reason = WANTS_OUT
    if word == "deny":
        if verdict.outcome != DENY:
            # Codex runs a call after `ask`, so a question becomes a refusal.
            said = "this needs the user's approval, which this client cannot request"
            remedy = f"; {verdict.remedy}" if verdict.remedy and not judged.wants_out else ""
            reason = f"{reason} ({said}){remedy}"
        return _decision_answer("deny", reason, hint, reason)
    if updated and word == "ask":
        reason = f"{reason}; {STILL_CONFINED}"
    for _, pattern in verdict.warned if warnings else ():
        records.note_shown(context.warned, event.session_id, pattern)
    if warnings and records.note_shown(context.warned, event.session_id, TURNS_OFF):
        warnings = [*warnings, TURNS_OFF]
    notice = ""
    if updated and word == "allow" and records.note_shown(context.warned, _ONCE, CONFINED):
        notice = CONFINED
    warned = "\n".join(warnings)
    reason = "\n".join(filter(None, (reason, warned)))
    added = "\n".join(filter(None, (notice, warned, hint if warned else "")))
    message = "\n".join(filter(None, (notice, warned)))
    return _decision_answer(word, reason, added, message, updated)


def note_enforcement(record: records.LeanRecord, judged: LeanJudged, *, is_confined: bool) -> None:
    ways = {"sandboxed": is_confined, "outside": judged.is_outside, "wants_out": judged.wants_out}
    record.metadata.update((name, True) for name, holds in ways.items() if holds)
    if judged.verdict.outcome == CONFINE:
        record.metadata["enforcement"] = "full" if is_confined else "none"


def _due_warnings(judged: LeanJudged, context: HookContext) -> "list[str]":
    mode, session = context.warnings, judged.event.session_id
    due: dict[str, None] = {}
    shown: set[str] = set()
    for path, pattern in judged.verdict.warned if mode != "off" else ():
        is_shown = pattern in shown or records.was_shown(context.warned, session, pattern)
        if mode == "once" and is_shown:
            continue
        shown.add(pattern)
        said = f"Writing to production path: {path}."
        due[f"{said} Ensure this is intentional implementation work."] = None
    return list(due)


def _choose_answer(judged: LeanJudged, context: HookContext) -> str:
    verdict = judged.verdict
    asks = "deny" if judged.event.client == "codex" else "ask"
    if verdict.outcome == DENY:
        return "deny"
    if judged.wants_out:
        return asks
    if verdict.outcome == ASK:
        if verdict.rank < OTHERWISE:
            return asks
        # Threat: the client's own prompt would run the command outside the sandbox, although the
        # answer is stricter than `confine`. Codex keeps its own sandbox and approvals.
        return asks if judged.directory and asks == "ask" else SILENT
    if judged.directory:
        return "allow"
    if verdict.outcome == CONFINE or (judged.wanted.line is not None and context.shell != "read"):
        # Outside the sandbox a command is left to the client's own prompt.
        return SILENT
    if context.on_allow == "approve" and verdict.is_granted and not verdict.warned:
        return "allow"
    return SILENT


def scratch_hint(today: str) -> str:
    if not today:
        return ""
    return f"Scratch work goes to agent_sandbox/{today}/<topic>/, which is safe to write."


def scratch_hint_on(context: HookContext) -> str:
    """Return the hint if policy lets the agent write there, or an empty text."""
    name = f"agent_sandbox/{context.today}/notes"
    found = (*context.denials(name, True, False), *context.profile("file", "create", name))
    return "" if any(each.outcome == DENY for each in found) else scratch_hint(context.today)


def refusal_for(event: "HookEvent | None", reason: str, today: str) -> bytes:
    if event is None or event.is_judged:
        return _decision_answer("deny", reason, scratch_hint(today), reason)
    if event.name == PERMISSION_REQUEST:
        denied = f'"decision":{{"behavior":"deny","message":{text(cut(reason))}}}'
        return _output(PERMISSION_REQUEST, [denied])
    return b""


def _decision_answer(
    word: str, reason: str, context: str, message: str, updated_input: str = ""
) -> bytes:
    """Answer a PreToolUse without empty texts; `updated_input` is JSON text."""
    parts: list[str] = []
    if word != SILENT:
        parts.append(f'"permissionDecision":"{word}"')
    if reason and word != SILENT:
        parts.append(f'"permissionDecisionReason":{text(cut(reason))}')
    if updated_input:
        parts.append(f'"updatedInput":{updated_input}')
    if context:
        parts.append(f'"additionalContext":{text(cut(context))}')
    return _output(PRE_TOOL_USE, parts, message) if parts else b""


def _output(event: str, parts: "list[str]", message: str = "") -> bytes:
    inside = ",".join((f'"hookEventName":{text(event)}', *parts))
    shown = f',"systemMessage":{text(cut(message))}' if message else ""
    return f'{{"hookSpecificOutput":{{{inside}}}{shown}}}\n'.encode()


def cut(said: str) -> str:
    return records.clean(said, MESSAGE_CHARS_MAX)


def find_directory(event: HookEvent, context: HookContext, base: str) -> str:
    """Return the directory for the sandbox; empty if not confined. Raises: ShapeError."""
    wrapper = context.wrapper
    if wrapper is None:
        return ""
    real, _ = find_places(base, base, context)[0]
    return relative(real, wrapper.workspace)


def wants_out(event: HookEvent) -> bool:
    given = event.input
    return (
        given.get("dangerouslyDisableSandbox") not in (None, False)
        or given.get("with_escalated_permissions") not in (None, False)
        or given.get("sandbox_permissions") not in (None, "use_default")
    )


def wrap_input(
    event: HookEvent, wrapper: CommandWrapper, directory: str, session: str, ticket: str = ""
) -> str:
    command = event.input.get("command")
    if type(command) is not str or "\0" in command:
        return ""
    words = [*wrapper.program, "--plane", wrapper.root, "--agent", wrapper.agent]
    words += ["--directory", directory]
    limit_ms = event.input.get("timeout")
    in_background = bool(event.input.get("run_in_background"))
    if in_background:
        words.append("--background")
    for name, value in (
        ("--limit-ms", str(limit_ms) if type(limit_ms) is int and limit_ms > 0 else ""),
        ("--kind", wrapper.kind),
        ("--call", event.call_id),
        ("--ticket", ticket),
        ("--session", session),
    ):
        if value:
            words.append(f"{name}={value}")
    start = " ".join(quote(word) for word in words)
    changed = dict(event.input)
    watched = '"--shell=$$" "--client=$PPID"' if in_background else '"--shell=$$"'
    changed["command"] = wrap_line(f"{start} {watched} -- {quote(command)}")
    return "".join(_encode(changed, 0))


def wrap_line(start: str) -> str:
    return (
        f"{{ __paddock=$({start} 3>&1 >&4 4>&-); }} 4>&1; __paddock_status=$?; "
        '[ -z "$__paddock" ] || builtin cd -- "$__paddock"; (exit "$__paddock_status")'
    )


def quote(word: str) -> str:
    """Quote for bash and zsh: in single quotes only the closing quote is special."""
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _refuse(value: object) -> str:
    raise TypeError(f"a {type(value).__name__} in an input")


_encode = make_encoder(None, _refuse, text, None, ":", ",", False, False, False)
