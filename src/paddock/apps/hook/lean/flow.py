"""One event from its input to its answer: judge, record, then answer, in this order.

The record comes first: an answer that lets a call run is given only when the decision
is on disk. Who judges and who appends is handed in.
"""

from paddock.apps.hook.lean import answers, records
from paddock.apps.hook.lean.asked import PERMISSION_REQUEST, Asked
from paddock.apps.hook.lean.judging import DENY, Verdict, judge
from paddock.apps.hook.lean.places import Scene
from paddock.apps.hook.lean.wanted import Wanted, find_wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from paddock.apps.hook.lean.judging import Engine

    class Ports(Protocol):
        """What a flow works with besides the engine."""

        def append(self, record: records.Record) -> None:
            """Make a record durable, or raise."""
            ...

        def claim_warning(self, session_id: str, pattern: str) -> bool:
            """Note that a warning is given in this session; whether it is the first."""
            ...

        def randomness(self, size: int) -> bytes:
            """So many unpredictable bytes."""
            ...

        def wrap(self, asked: Asked) -> str:
            """JSON text of an input whose command runs in the sandbox; empty to leave it."""
            ...


class Judged:
    """A call with its verdict, before anything is on record."""

    __slots__ = ("asked", "verdict", "wanted")

    def __init__(self, asked: Asked, wanted: Wanted, verdict: Verdict) -> None:
        self.asked = asked
        self.wanted = wanted
        self.verdict = verdict


def judge_call(asked: Asked, scene: Scene, engine: "Engine", base: str) -> Judged:
    """Judge a call; nothing is recorded. Raises: ShapeError."""
    wanted = find_wanted(asked)
    return Judged(asked, wanted, judge(asked, wanted, scene, engine, base))


def answer_call(
    judged: Judged, scene: Scene, engine: "Engine", who: records.Identity, ports: "Ports"
) -> bytes:
    """Record a judged call and return the answer. Raises what `append` raises."""
    asked, verdict = judged.asked, judged.verdict
    word = answers.find_word(asked, verdict, engine)
    warnings = _due_warnings(asked, verdict, engine, ports)
    updated = ""
    if word == "allow" and engine.sandbox_shell and judged.wanted.line is not None:
        updated = ports.wrap(asked)
        if not updated:
            # What the sandbox does not hold is nothing to be waved through.
            word = answers.SILENT
    record = records.decision_record(asked, verdict, word, warnings, who, ports.randomness)
    if updated:
        record.metadata["sandboxed"] = True
    ports.append(record)
    if word == "deny" and verdict.outcome != DENY:
        # Codex runs what is asked about: there the question is a refusal.
        said = "this needs a person's approval, which this client cannot ask for"
        remedy = f"; {verdict.remedy}" if verdict.remedy else ""
        return answers.refusal(
            f"{verdict.reason} ({said}){remedy}", answers.scratch_hint(scene.today)
        )
    return answers.verdict_answer(word, verdict, warnings, scene.today, updated)


def answer_event(asked: Asked, scene: Scene, who: records.Identity, ports: "Ports") -> bytes:
    """Record an event that nothing is decided about, and return the answer.

    Raises what `append` raises.
    """
    ports.append(records.event_record(asked, who.agent, ports.randomness))
    if asked.event in ("SessionStart", "SubagentStart"):
        return answers.context_answer(asked.event, answers.scratch_hint(scene.today))
    return b""


def refusal_for(asked: "Asked | None", reason: str, today: str) -> bytes:
    """The answer where something went wrong: what can be refused is refused."""
    if asked is None or asked.is_judged:
        return answers.refusal(reason, answers.scratch_hint(today) if today else "")
    if asked.event == PERMISSION_REQUEST:
        return answers.permission_refusal(reason)
    return b""


def _due_warnings(asked: Asked, verdict: Verdict, engine: "Engine", ports: "Ports") -> "list[str]":
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
