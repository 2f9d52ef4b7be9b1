"""The part of the tour in which a model works: one session, from its start to its record."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from paddock.agent.events import CallFinished, Event
from paddock.agent.sessions import Session
from paddock.apps.cli.demo_copy import TOUR
from paddock.apps.cli.demo_scene import Scene
from paddock.assembly.project import Project
from paddock.assembly.sessions import SessionWish, open_session, sessions_of
from paddock.errors import ApprovalUnavailableError, ProtectedPathError
from paddock.ledger.query import Filter
from paddock.ledger.verify.verifying import verify
from paddock.plane.layout import LedgerName
from paddock.text.show import show_name
from paddock.values.entries import TURN_RECORDED

_NOTE: Final = f"{TOUR}-session.md"
_ROWS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Line:
    """What is said, and the code that its last call ends with; "" where that is allowed."""

    title: str
    message: str
    code: str = ""


_LINES: Final = (
    Line("Now a model works: the built-in one, without a key", "what files are there?"),
    Line("It writes", f'write a file at {_NOTE} with the content "a model was here"'),
    Line("It searches", f'search for "a model was here" in {_NOTE}'),
    Line("It may not delete unasked", f"delete {_NOTE}", ApprovalUnavailableError.code),
    Line(
        "It is asked for something that is protected",
        'write a file at .git/hooks/post-merge with the content "boom"',
        ProtectedPathError.code,
    ),
)


class SessionTour:
    """Says the lines in one session and shows what came of each."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._calls: list[CallFinished] = []
        self.surprises: list[str] = []

    def heard(self, event: Event) -> None:
        if isinstance(event, CallFinished):
            self._calls.append(event)

    def scenes(self) -> Iterator[Scene]:
        """One for each line, and one for the record of the session."""
        with open_session(self._project, SessionWish(model="builtin", listener=self)) as session:
            for line in _LINES:
                yield self._say(line, session)
        yield self._recorded(session.session_id)

    def _say(self, line: Line, session: Session) -> Scene:
        self._calls.clear()
        result = session.handle_turn(line.message)
        calls = self._calls
        refusal = calls[-1].result.refusal if calls else None
        code = "" if refusal is None else refusal.code
        if not calls or code != line.code:
            self.surprises.append(f"{line.message!r} ended as {code or 'allowed'}")
        outcome = "refused" if code else "allowed"
        if code.startswith("approval."):
            outcome = "asked"
        rows = [f"  {show_name(call.tool)} {_what(call)}" for call in calls]
        return Scene(
            line.title, f"> {line.message}", outcome, "\n".join([*rows, _cut(result.response)])
        )

    def _recorded(self, session_id: str) -> Scene:
        wanted = Filter(TURN_RECORDED, session_id=session_id)
        turns = sessions_of(self._project).query(LedgerName.HO2M, wanted, None).entries
        report = verify(str(self._project.layout.ledger_paths()[LedgerName.HO2M]))
        if report.problems or len(turns) != len(_LINES):
            self.surprises.append("the session is not on record")
        rows = [
            f"turn {row.entry.metadata.get('turn')}  {row.entry.metadata.get('outcome')}  "
            f"{row.entry.metadata.get('user_message')}"
            for row in turns
        ]
        said = f"{report.entries} entries, chain whole"
        command = f"paddock session show {session_id}; paddock ledger verify --ledger ho2m"
        return Scene(
            "The whole session is on record", command, "verified", "\n".join([*rows, said])
        )


def _what(call: CallFinished) -> str:
    refusal = call.result.refusal
    arguments = json.dumps(dict(call.arguments))
    return f"{arguments} ran" if refusal is None else f"{arguments} did not run: {refusal.code}"


def _cut(text: str) -> str:
    rows = text.split("\n")
    missing = len(rows) - _ROWS_MAX
    return text if missing <= 0 else "\n".join([*rows[:_ROWS_MAX], f"[{missing} more lines]"])
