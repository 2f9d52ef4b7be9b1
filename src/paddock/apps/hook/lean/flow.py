"""One event from its input to its answer: judge, record, then answer, in this order.

An answer that lets a call run is given only when the decision is on disk. A client is told one
JSON object, built whole, or nothing: output that is not one whole object lets the call run; an
`allow` skips the user's own prompt, so a warning comes without one; Codex ignores `ask` and runs
the call.

A command that is confined is changed so that the client's shell has Paddock run it in the sandbox.

Threat: quotes in a command that end the argument in which it stands: what follows them would run
outside. A property test has both shells read what is made here.
"""

from _json import encode_basestring_ascii as text
from _json import make_encoder

from paddock.apps.hook.lean import records
from paddock.apps.hook.lean.engine import CommandWrapper, HookContext
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
            """Return JSON of an input that runs in the sandbox; `is_asked`: after a question."""
            ...


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
_ONCE = "paddock"
"""In a session's place: for what a project is told once."""


class LeanJudged:
    """A judged call, not yet on record; `directory`: where a command runs in the sandbox."""

    verdict: LeanVerdict
    directory = ""
    is_outside = False
    """A command that policy leaves to the client as it is."""
    wants_out = False
    """A command that asks for no sandbox at all."""

    def __init__(self, event: HookEvent, wanted: LeanWanted) -> None:
        self.event = event
        self.wanted = wanted


def answer(event: HookEvent, context: HookContext, base: str, ports: "EventPorts") -> bytes:
    """Answer an event of somebody in `base`. Raises: ShapeError; what `append` raises."""
    if event.is_judged:
        return _answer_call(judge_call(event, context, base), context, ports)
    ports.append(records.event_record(event, context.who[0]))
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
    word = _find_word(judged, context)
    warnings = _due_warnings(judged, context)
    updated = ""
    if judged.directory and word in ("allow", "ask"):
        updated = ports.wrap(judged, word == "ask")
        if not updated and word == "allow":
            # What the sandbox does not hold is nothing to be waved through.
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
            # Codex runs what is asked about: there the question is a refusal.
            said = "this needs a person's approval, which this client cannot ask for"
            remedy = f"; {verdict.remedy}" if verdict.remedy and not judged.wants_out else ""
            reason = f"{reason} ({said}){remedy}"
        return _decision_answer("deny", reason, hint, reason)
    if updated and word == "ask":
        reason = f"{reason}; {STILL_HELD}"
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
    told: set[str] = set()
    for path, pattern in judged.verdict.warned if mode != "off" else ():
        is_told = pattern in told or records.was_shown(context.warned, session, pattern)
        if mode == "once" and is_told:
            continue
        told.add(pattern)
        said = f"Writing to production path: {path}."
        due[f"{said} Ensure this is intentional implementation work."] = None
    return list(due)


def _find_word(judged: LeanJudged, context: HookContext) -> str:
    verdict = judged.verdict
    asks = "deny" if judged.event.client == "codex" else "ask"
    if verdict.outcome == DENY:
        return "deny"
    if judged.wants_out:
        return asks
    if verdict.outcome == ASK:
        return SILENT if verdict.rank >= OTHERWISE else asks
    if judged.directory:
        return "allow"
    if verdict.outcome == CONFINE or (judged.wanted.line is not None and context.shell != "read"):
        # What no sandbox holds is nothing to be waved through.
        return SILENT
    if context.on_allow == "approve" and verdict.is_granted and not verdict.warned:
        return "allow"
    return SILENT


def scratch_hint(today: str) -> str:
    if not today:
        return ""
    return f"Scratch work goes to agent_sandbox/{today}/<topic>/, which is safe to write."


def scratch_hint_on(context: HookContext) -> str:
    """Return the hint where policy lets scratch work be written; else nothing."""
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
    """Answer a PreToolUse; leave out empty texts; `updated_input` is JSON text."""
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
    """Return where it would run; empty for none, or in the background. Raises: ShapeError."""
    wrapper = context.wrapper
    if wrapper is None or event.input.get("run_in_background"):
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


def changed_input(
    event: HookEvent, wrapper: CommandWrapper, directory: str, ticket: str = ""
) -> str:
    command = event.input.get("command")
    if type(command) is not str or "\0" in command:
        return ""
    words = [*wrapper.program, "--plane", wrapper.root, "--agent", wrapper.agent]
    words += ["--directory", directory]
    limit_ms = event.input.get("timeout")
    for name, value in (
        ("--limit-ms", str(limit_ms) if type(limit_ms) is int and limit_ms > 0 else ""),
        ("--kind", wrapper.kind),
        ("--call", event.call_id),
        ("--ticket", ticket),
    ):
        if value:
            words.append(f"{name}={value}")
    start = " ".join(quote(word) for word in words)
    changed = dict(event.input)
    changed["command"] = changed_line(f'{start} "--shell=$$" -- {quote(command)}')
    return "".join(_encode(changed, 0))


def changed_line(start: str) -> str:
    return (
        f"{{ __paddock=$({start} 3>&1 >&4 4>&-); }} 4>&1; __paddock_status=$?; "
        '[ -z "$__paddock" ] || builtin cd -- "$__paddock"; (exit "$__paddock_status")'
    )


def quote(word: str) -> str:
    """Quote for bash or zsh: in single quotes nothing but their end means anything."""
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _refuse(value: object) -> str:
    raise TypeError(f"a {type(value).__name__} in an input")


_encode = make_encoder(None, _refuse, text, None, ":", ",", False, False, False)
