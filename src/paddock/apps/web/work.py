"""What calls changed, and taking it back; sessions, and going on with one."""

import os
from collections import Counter
from collections.abc import Iterable

from paddock.agent.recorded import list_sessions, tokens_charged
from paddock.apps.web.desk import Desk, row_json
from paddock.assembly.past import Past, open_past
from paddock.assembly.questions import require_past_agent
from paddock.assembly.sessions import SessionWish, open_session, require_session, sessions_of
from paddock.ledger.query import Filter
from paddock.plane.layout import LedgerName
from paddock.runtime.past import PastCall, undos_that_stand
from paddock.runtime.prepared import Bounds
from paddock.text.json import Strict
from paddock.values.calls import Json

_CALLS_MAX = 200
_FILES_MAX = 2_000
_SESSIONS_MAX = 500
_ROWS_MAX = 2_000


class FilesAsked(Strict, frozen=True):
    agent: str | None = None
    path: str | None = None


class CallAsked(Strict, frozen=True):
    call: str


class SessionsAsked(Strict, frozen=True):
    agent: str | None = None


class SessionAsked(Strict, frozen=True):
    id: str


class ResumeAsked(Strict, frozen=True):
    id: str
    task: str


def list_files(desk: Desk, asked: FilesAsked) -> dict[str, Json]:
    with open_past(desk.project()) as past:
        calls = list(past.calls) if asked.path is None else past.of_path(asked.path)
        if asked.agent is not None:
            past.require_agent(asked.agent)
            calls = [call for call in calls if call.workspace_of == asked.agent]
        undone = undos_that_stand(past.calls)
        shown = calls[: -_CALLS_MAX - 1 : -1]
        return {
            "calls": [past.call_json(call, undone) for call in shown],
            "omitted": len(calls) - len(shown),
            "files": _files(past, calls),
            "bad": len(past.bad),
        }


def _files(past: Past, calls: Iterable[PastCall]) -> list[Json]:
    newest: dict[tuple[str, str], PastCall] = {}
    changes: Counter[tuple[str, str]] = Counter()
    for call in calls:
        for change in call.changes:
            if past.is_shown(call, change):
                key = (call.workspace_of, change.to or change.path)
                newest[key] = call
                changes[key] += 1
    rows = sorted(newest.items(), key=lambda each: each[1].timestamp, reverse=True)
    return [
        {
            "path": path,
            "agent": agent,
            "changes": changes[agent, path],
            "last": call.timestamp,
            "by": call.call_id,
            "entry": call.entry_id,
        }
        for (agent, path), call in rows[:_FILES_MAX]
    ]


def show_diff(desk: Desk, asked: CallAsked) -> dict[str, Json]:
    with open_past(desk.project()) as past:
        call = past.find(asked.call)
        return {"call": call.call_id, "tool": call.tool, **past.diff(call).as_json()}


def undo(desk: Desk, asked: CallAsked) -> dict[str, Json]:
    with open_past(desk.opened()) as past:
        answer = past.undo(past.find(asked.call), Bounds(door="web"))
    found: dict[str, Json] = {"call": answer.result.call_id, **answer.result.as_json()}
    if answer.since is not None:
        found["since"] = answer.since.as_json()
    return found


def list_sessions_of(desk: Desk, asked: SessionsAsked) -> dict[str, Json]:
    project = desk.project()
    if asked.agent is not None:
        require_past_agent(project, asked.agent)
    found = list_sessions(sessions_of(project), asked.agent)[: -_SESSIONS_MAX - 1 : -1]
    return {"sessions": [each.as_json() for each in found]}


def show_session(desk: Desk, asked: SessionAsked) -> dict[str, Json]:
    project = desk.project()
    session, ledgers = require_session(project, asked.id), sessions_of(project)
    calls = ledgers.query(LedgerName.HO1M, Filter(session_id=asked.id), _ROWS_MAX).entries
    return {
        **session.as_json(),
        "turns": [turn.as_json() for turn in (*session.turns, *session.unfinished)],
        "calls": [row_json(LedgerName.HO1M, row) for row in calls],
        "tokens": tokens_charged(ledgers, asked.id),
    }


def resume(desk: Desk, asked: ResumeAsked) -> dict[str, Json]:
    """One more turn. Nobody is asked: what policy asks about goes to the inbox."""
    wish = SessionWish(resume=asked.id, variables=os.environ)
    with open_session(desk.opened(), wish) as session:
        return session.handle_turn(asked.task).as_json()
