"""Commands about sessions: this one, and those before."""

from typing import Final

from paddock.agent.recorded import RecordedSession, list_sessions
from paddock.apps.admin.blocks import Look, Row, Span, Table, line, lines, pairs, row, spoken
from paddock.apps.admin.desk import Desk
from paddock.assembly.sessions import require_session, sessions_of
from paddock.errors import UsageError

_LISTED_MAX: Final = 20
_MESSAGE_CHARS_MAX: Final = 60
_TIME_CHARS: Final = 19
_TURNS_REPEATED: Final = 3


class SessionsCommand:
    """What was said before."""

    usage = "/sessions"
    summary = "the sessions of this agent, the newest last"

    def run(self, rest: str, desk: Desk) -> None:
        """List them."""
        agent = desk.session.charter.agent
        found = list_sessions(sessions_of(desk.project), agent)
        missing = len(found) - _LISTED_MAX
        if missing > 0:
            said = f"{missing} older sessions are not listed: paddock session list"
            desk.screen.show(line(Span(said, Look.DIM)))
        rows = tuple(_row(each, desk) for each in found[-_LISTED_MAX:])
        desk.screen.show(Table(rows, ("session", "started", "state", "turns", "first message")))


def _row(session: RecordedSession, desk: Desk) -> Row:
    state = "ended" if session.ended else "open"
    if session.session_id == desk.session.session_id:
        state = "this"
    first = session.turns[0].user_message if session.turns else ""
    cut = "…" if len(first) > _MESSAGE_CHARS_MAX else ""
    return row(
        session.session_id,
        session.started[:_TIME_CHARS],
        state,
        str(len(session.turns)),
        f"{first[:_MESSAGE_CHARS_MAX]}{cut}",
    )


class ResumeCommand:
    """Going on with an earlier session."""

    usage = "/resume SESSION"
    summary = "go on with an earlier one; this one ends"

    def run(self, rest: str, desk: Desk) -> None:
        """Open it and show where it stopped. Raises: UsageError; then this one stays."""
        session_id = rest.strip()
        if not session_id:
            raise UsageError("no session was named", where="/resume", hint="/sessions lists them")
        if session_id == desk.session.session_id:
            raise UsageError("that is this very session", where="/resume")
        before = require_session(desk.project, session_id)
        desk.resume(session_id)
        left_out = len(before.turns) - _TURNS_REPEATED
        if left_out > 0:
            desk.screen.show(
                line(Span(f"{left_out} earlier turns: paddock session show", Look.DIM))
            )
        for turn in before.turns[-_TURNS_REPEATED:]:
            desk.screen.show(lines(turn.user_message, gutter="> "))
            desk.screen.show(spoken(turn.response or f"({turn.reason})", Look.DIM))
        count = "1 turn" if len(before.turns) == 1 else f"{len(before.turns)} turns"
        desk.screen.show(line(f"resumed {session_id} after {count}"))
        for notice in desk.session.notices[len(desk.project.notices) :]:
            desk.screen.show(line(Span("note: ", Look.WARN), notice))


class CostCommand:
    """What was spent."""

    usage = "/cost"
    summary = "what this session has spent, and what is left"

    def run(self, rest: str, desk: Desk) -> None:
        """Show the sums."""
        session, status = desk.session, desk.status()
        cost = session.supervisor.cost
        account = session.budget.account
        limit = "no limit" if account.limit is None else f"{account.limit:,}"
        left = "no limit" if status.tokens_left is None else f"{status.tokens_left:,}"
        money = {"none": "none: this model costs nothing"}.get(
            status.cost, "unknown: no prices are known"
        )
        desk.screen.show(
            pairs(
                [
                    ("tokens", f"{cost.total_tokens:,}"),
                    ("  input", f"{cost.usage.input:,}"),
                    ("  output", f"{cost.usage.output:,}"),
                    ("  cache read", f"{cost.usage.cache_read:,}"),
                    ("  cache write", f"{cost.usage.cache_write:,}"),
                    ("budget", f"{limit} ({session.budget.mode.value})"),
                    ("left", left),
                    ("model calls", str(cost.llm_calls)),
                    ("tool calls", str(cost.tool_calls)),
                    ("tools used", ", ".join(cost.tool_ids_used) or "none"),
                    ("money", money),
                ]
            )
        )


class StatusCommand:
    usage = "/status"
    summary = "how things stand: agent, gate, sandbox, tokens"

    def run(self, rest: str, desk: Desk) -> None:
        """Show all of the status line, in words."""
        status, project = desk.status(), desk.project
        gate = (
            str(project.gate) if project.admin is not None else "closed: only a bare plane has it"
        )
        left = "no limit" if status.tokens_left is None else f"{status.tokens_left:,} left"
        backend = status.sandbox.backend or ("none" if status.sandbox.refused else "")
        said = "commands are refused" if status.sandbox.refused else f"backend {backend}"
        desk.screen.show(
            pairs(
                [
                    ("session", desk.session.session_id),
                    ("agent", status.agent),
                    ("profile", status.profile),
                    ("workspace", str(project.agents.read(status.agent).workspace)),
                    ("plane", str(project.layout.root)),
                    ("model", f"{status.provider}:{status.model}"),
                    ("dual gate", gate),
                    ("sandbox", f"{status.sandbox} ({said})"),
                    ("turns", str(desk.session.supervisor.turns)),
                    ("tokens", f"{status.tokens:,} ({left})"),
                    ("cost", status.cost),
                ]
            )
        )
        for badge in status.badges:
            desk.screen.show(line("  ", Span(f" {badge} ", Look.LOUD)))
