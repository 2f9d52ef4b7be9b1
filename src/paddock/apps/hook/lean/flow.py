"""One event from its input to its answer: judge, record, then answer, in this order.

An answer that lets a call run is given only when the decision is on disk.
"""

from paddock.apps.hook.lean import answers, records
from paddock.apps.hook.lean.asked import (
    PERMISSION_REQUEST,
    SHELL_TOOL,
    Asked,
    LeanWanted,
    find_wanted,
)
from paddock.apps.hook.lean.judging import LeanVerdict, judge
from paddock.apps.hook.lean.places import Scene
from paddock.apps.hook.lean.wrap import find_directory, wants_out
from paddock.policy.compiled import CONFINE, DENY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from paddock.apps.hook.lean.engine import Engine

    class EventPorts(Protocol):
        def append(self, record: records.LeanRecord) -> None: ...

        def claim_warning(self, session_id: str, pattern: str) -> bool: ...

        def wrap(self, judged: "LeanJudged", is_asked: bool) -> str:
            """Return JSON of an input that runs in the sandbox; `is_asked`: after a question."""
            ...


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

    def __init__(self, asked: Asked, wanted: LeanWanted) -> None:
        self.asked = asked
        self.wanted = wanted


def judge_call(asked: Asked, scene: Scene, engine: "Engine", base: str) -> LeanJudged:
    """Record nothing. Raises: ShapeError."""
    wanted = find_wanted(asked)
    judged = LeanJudged(asked, wanted)
    if asked.tool == SHELL_TOOL:
        judged.wants_out = wants_out(asked)
        if not judged.wants_out:
            judged.directory = find_directory(asked, scene, engine.holding, base)
        if judged.directory and wanted.line is not None and engine.is_outside(wanted.line):
            judged.is_outside, judged.directory = True, ""
    judged.verdict = judge(asked, wanted, scene, engine, base, judged.directory)
    return judged


def answer_call(
    judged: LeanJudged, scene: Scene, engine: "Engine", who: records.Identity, ports: "EventPorts"
) -> bytes:
    """Record a judged call and return the answer. Raises what `append` raises."""
    asked, verdict = judged.asked, judged.verdict
    word = answers.find_word(judged, engine)
    warnings = _due_warnings(asked, verdict, engine, ports)
    updated = ""
    if judged.directory and word in ("allow", "ask"):
        updated = ports.wrap(judged, word == "ask")
        if not updated and word == "allow":
            # What the sandbox does not hold is nothing to be waved through.
            word = answers.SILENT
    record = records.decision_record(asked, verdict, word, warnings, who)
    note_way(record, judged, is_held=bool(updated))
    ports.append(record)
    reason = verdict.reason
    today = answers.scratch_day(scene.today, engine)
    if judged.wants_out and verdict.outcome != DENY:
        reason = answers.WANTS_OUT
    if word == "deny" and verdict.outcome != DENY:
        # Codex runs what is asked about: there the question is a refusal.
        said = "this needs a person's approval, which this client cannot ask for"
        remedy = f"; {verdict.remedy}" if verdict.remedy and not judged.wants_out else ""
        return answers.refusal(f"{reason} ({said}){remedy}", answers.scratch_hint(today))
    if updated and word == "ask":
        reason = f"{reason}; {answers.STILL_HELD}"
    if warnings and ports.claim_warning(asked.session_id, answers.TURNS_OFF):
        warnings = [*warnings, answers.TURNS_OFF]
    notice = ""
    if updated and word == "allow" and ports.claim_warning(_ONCE, answers.CONFINED):
        notice = answers.CONFINED
    return answers.verdict_answer(word, reason, warnings, today, updated, notice)


def note_way(record: records.LeanRecord, judged: LeanJudged, *, is_held: bool) -> None:
    for name, holds in (
        ("sandboxed", is_held),
        ("outside", judged.is_outside),
        ("wants_out", judged.wants_out),
    ):
        if holds:
            record.metadata[name] = True
    if judged.verdict.outcome == CONFINE:
        record.metadata["enforcement"] = "full" if is_held else "none"


def answer_event(asked: Asked, scene: Scene, who: records.Identity, ports: "EventPorts") -> bytes:
    ports.append(records.event_record(asked, who.agent))
    if asked.event in ("SessionStart", "SubagentStart"):
        hint = answers.scratch_hint(scene.today)
        return answers.context_answer(asked.event, hint) if hint else b""
    return b""


def refusal_for(asked: "Asked | None", reason: str, today: str) -> bytes:
    if asked is None or asked.is_judged:
        return answers.refusal(reason, answers.scratch_hint(today))
    if asked.event == PERMISSION_REQUEST:
        return answers.permission_refusal(reason)
    return b""


def _due_warnings(
    asked: Asked, verdict: LeanVerdict, engine: "Engine", ports: "EventPorts"
) -> "list[str]":
    if engine.warnings == "off":
        return []
    due: list[str] = []
    for path, pattern in verdict.warned:
        if engine.warnings == "once" and not ports.claim_warning(asked.session_id, pattern):
            continue
        said = answers.warning_text(path)
        if said not in due:
            due.append(said)
    return due
