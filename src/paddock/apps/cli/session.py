"""`paddock session`."""

import argparse
import json
from pathlib import Path

from paddock.agent.recorded import RecordedSession, export_session, list_sessions
from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import find_project
from paddock.apps.cli.run import add_model, answer
from paddock.assembly.past_agents import require_past_agent
from paddock.assembly.project import Project
from paddock.assembly.sessions import require_session, sessions_of
from paddock.errors import HostError, UsageError
from paddock.text.show import quote, show_name

_MESSAGE_SHOWN_MAX = 60


class Sessions:
    """Sessions of a plane, from its ledgers."""

    summary = (
        "List sessions, show their turns, go on with one, or export all that is recorded of it."
    )
    examples = (
        "  paddock session list\n"
        "  paddock session show SES-0123456789abcdef\n"
        '  paddock session resume SES-0123456789abcdef "and now the tests"\n'
        "  paddock session export SES-0123456789abcdef --out session.json"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The sub-commands."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        listing = actions.add_parser("list", help="all sessions", allow_abbrev=False)
        listing.add_argument("--agent", metavar="NAME", help="only those of this agent")
        show = actions.add_parser("show", help="the turns of one", allow_abbrev=False)
        resume = actions.add_parser("resume", help="one more turn in one", allow_abbrev=False)
        export = actions.add_parser("export", help="all of one as JSON", allow_abbrev=False)
        for parsed in (show, resume, export):
            parsed.add_argument("session", metavar="ID")
        resume.add_argument("task", metavar="TASK")
        resume.set_defaults(agent=None, record=None, play=None)
        add_model(resume)
        export.add_argument("--out", metavar="FILE", help="a new file (default: print it)")
        for parsed in (listing, show, resume, export):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        """Do what was asked."""
        if options.action == "resume":
            return answer(options.task, options.session, options, console)
        project = find_project(options, console)
        actions = {"list": self._list, "show": self._show, "export": self._export}
        return actions[options.action](project, options, console)

    def _list(self, project: Project, options: Options, console: Console) -> int:
        if options.agent is not None:
            require_past_agent(project, options.agent)
        found = list_sessions(sessions_of(project), options.agent)
        if options.json:
            console.write_json([session.as_json() for session in found])
            return 0
        for session in found:
            console.say(_row(session))
        if not found:
            console.warn("there are no sessions yet")
        return 0

    def _show(self, project: Project, options: Options, console: Console) -> int:
        session = require_session(project, options.session)
        turns = (*session.turns, *session.unfinished)
        if options.json:
            shown = session.as_json() | {"turns": [turn.as_json() for turn in turns]}
            console.write_json(shown)
            return 0
        console.say(_row(session))
        for turn in turns:
            console.say(f"\n[{turn.number}] {turn.timestamp}  {turn.outcome}")
            response = turn.response or f"({turn.reason or 'no answer is on record'})"
            # Threat: a response that writes the head of a turn which never was.
            console.say("\n".join(f"> {each}" for each in turn.user_message.split("\n")))
            console.say("\n".join(f"  {each}" for each in response.split("\n")))
        return 0

    def _export(self, project: Project, options: Options, console: Console) -> int:
        session = require_session(project, options.session)
        value = export_session(sessions_of(project), session)
        if options.out is None:
            console.write_json(value)
            return 0
        file = Path(console.directory / options.out)
        try:
            with file.open("x", encoding="ascii") as out:
                json.dump(value, out, ensure_ascii=True)
                out.write("\n")
        except FileExistsError:
            raise UsageError(
                f"{quote(str(file))} is there already", where="--out", hint="name a new file"
            ) from None
        except OSError as error:
            raise HostError(f"{quote(str(file))} cannot be written: {error.strerror}") from None
        if options.json:
            console.write_json({"status": "ok", "file": str(file)})
        else:
            console.say(f"exported {session.session_id} to {file}")
        return 0


def _row(session: RecordedSession) -> str:
    state = "ended" if session.ended else "open"
    first = session.first_message or ""
    cut = "…" if len(first) > _MESSAGE_SHOWN_MAX else ""
    unfinished = f", {len(session.unfinished)} unfinished" if session.unfinished else ""
    return (
        f"{session.session_id}  {session.started}  {state:<5}  {session.agent:<10}"
        f"{len(session.turns):>4} turns{unfinished}  {show_name(first[:_MESSAGE_SHOWN_MAX])}{cut}"
    ).rstrip()


COMMAND = Sessions()
