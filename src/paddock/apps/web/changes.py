"""List and undo the changes of calls; list, show and resume sessions."""

import os
from collections.abc import Iterable
from typing import Final

from paddock.agent.session_log import list_sessions, tokens_charged
from paddock.apps.web.view import WEB, Number, ServedPlane, row_json
from paddock.assembly.questions import require_past_agent
from paddock.assembly.sessions import SessionWish, open_session, require_session, sessions_of
from paddock.assembly.undo import Past, open_past
from paddock.ledger.query import Filter
from paddock.plane.layout import LedgerName
from paddock.runtime.changes import PastCall, undos_in_effect
from paddock.values.calls import Json

_CALLS_MAX: Final = 200
_FILES_MAX: Final = 2_000
_SESSIONS_MAX: Final = 500


def list_files(
    plane: ServedPlane, *, agent: str | None = None, path: str | None = None, newest: Number = 0
) -> dict[str, Json]:
    """List the changes of all calls, or of those of the `newest` entries."""
    project = plane.project()
    rows = sessions_of(project).query(LedgerName.HO1M, Filter(), newest).entries
    is_part = bool(rows and rows[0].seq)
    with open_past(project, rows if is_part else None) as past:
        calls = list(past.calls) if path is None else past.of_path(path)
        if agent is not None:
            past.require_agent(agent)
            calls = [call for call in calls if call.workspace_of == agent]
        undone, shown = undos_in_effect(past.calls), calls[: -_CALLS_MAX - 1 : -1]
        return {
            "calls": [past.call_json(call, undone) for call in shown],
            "omitted": len(calls) - len(shown),
            "is_part": is_part,
            "files": _files(past, calls),
            "bad": len(past.bad),
        }


def _files(past: Past, calls: Iterable[PastCall]) -> list[Json]:
    changed: dict[tuple[str, str], list[PastCall]] = {}
    for call in calls:
        for change in call.changes:
            if past.is_shown(call, change):
                key = (call.workspace_of, change.to or change.path)
                changed.setdefault(key, []).append(call)
    rows = sorted(changed.items(), key=lambda each: each[1][-1].timestamp, reverse=True)
    return [
        {"path": path, "agent": agent, "changes": len(made), "last": made[-1].timestamp}
        | {"by": made[-1].call_id, "entry": made[-1].entry_id}
        for (agent, path), made in rows[:_FILES_MAX]
    ]


def show_diff(plane: ServedPlane, *, call: str, session: str | None = None) -> dict[str, Json]:
    """Compare a call's files before and after; `session` finds it without reading all entries."""
    project, of_it = plane.project(), Filter(session_id=session)
    rows = session and sessions_of(project).query(LedgerName.HO1M, of_it, None).entries
    with open_past(project, rows or None) as past:
        found = past.find(call)
        return {"call": found.call_id, "tool": found.tool, **past.diff(found).as_json()}


def undo(plane: ServedPlane, *, call: str) -> dict[str, Json]:
    with open_past(plane.opened()) as past:
        answer = past.undo(past.find(call), WEB)
    since = {} if answer.since is None else {"since": answer.since.as_json()}
    return {"call": answer.result.call_id, **answer.result.as_json(), **since}


def list_recorded(plane: ServedPlane, *, agent: str | None = None) -> dict[str, Json]:
    project = plane.project()
    if agent is not None:
        require_past_agent(project, agent)
    found = list_sessions(sessions_of(project), agent, _SESSIONS_MAX)[::-1]
    return {"sessions": [each.as_json() for each in found]}


def show_session(plane: ServedPlane, *, id_: str) -> dict[str, Json]:
    project = plane.project()
    session, ledgers = require_session(project, id_), sessions_of(project)
    calls = ledgers.query(LedgerName.HO1M, Filter(session_id=id_), _FILES_MAX).entries
    return {
        **session.as_json(),
        "turns": [turn.as_json() for turn in (*session.turns, *session.unfinished)],
        "calls": [row_json(LedgerName.HO1M, row) for row in calls],
        "tokens": tokens_charged(ledgers, id_),
    }


def resume(plane: ServedPlane, *, id_: str, task: str) -> dict[str, Json]:
    """Run one more turn. Calls that need an approval go to the inbox."""
    wish = SessionWish(resume=id_, variables=os.environ)
    with open_session(plane.opened(), wish) as session:
        return session.handle_turn(task).as_json()
