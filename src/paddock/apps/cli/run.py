"""`paddock run`."""

import argparse
import json
import signal
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from paddock.agent.events import CallFinished, Event, Noticed
from paddock.agent.recorded import RecordedSession, export_session, list_sessions
from paddock.agent.results import TurnOutcome, TurnResult
from paddock.apps.cli.console import EXIT_HOST, EXIT_NO, EXIT_SIGNAL, Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import find_project, use_project
from paddock.assembly.past import require_past_agent
from paddock.assembly.project import Project
from paddock.assembly.sessions import SessionWish, open_session, require_session, sessions_of
from paddock.errors import HostError, UsageError
from paddock.providers.failures import CancelToken
from paddock.text.show import quote, show_name

if TYPE_CHECKING:
    from paddock.assembly.cassettes import PreparedCassette
    from paddock.providers.gateway import Provider


_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Stopping:
    def __init__(self) -> None:
        self.token = CancelToken()
        self.ended_by: int | None = None
        """The signal, SIGTERM or SIGHUP, by whose status the command ends."""
        self._is_first = True

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C: once it cancels what runs, a second time it interrupts."""
        if not self._is_first:
            raise KeyboardInterrupt
        self._is_first = False
        self._cancel()

    def end(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or number
        self._cancel()

    def _cancel(self) -> None:
        # In a thread: the one that was interrupted may hold the token's lock right now.
        threading.Thread(target=self.token.cancel, name="paddock-cancel").start()


@contextmanager
def cancelled_by_signals() -> Generator[Stopping]:
    """Cancel on SIGINT, SIGTERM and SIGHUP (unless ignored); in the main thread alone."""
    stopping = Stopping()
    with ExitStack() as held:
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGINT, stopping.interrupt)
            held.callback(signal.signal, signal.SIGINT, before)
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before = signal.signal(number, stopping.end)
                    held.callback(signal.signal, number, before)
        yield stopping


class RunCommand:
    summary = (
        "Have an agent do a task, and print its answer.\n"
        "Nobody is asked: what policy would ask about is refused. Without --model the plane's\n"
        "configuration chooses, else [providers.default] of your own, else the built-in model.\n"
        "A cassette that --record made holds all that was said, and no key; --play answers from\n"
        "it where the same task meets the same files again."
    )
    examples = (
        '  paddock run "what files are in src?"\n'
        '  paddock run --model anthropic:MODEL "write a summary of README.md"\n'
        '  paddock run --model scripted:steps.json --json "go"\n'
        '  paddock run --model anthropic:MODEL --record tape.jsonl "go"\n'
        '  paddock run --model anthropic:MODEL --play tape.jsonl "go"'
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("task", metavar="TASK")
        parser.add_argument("--agent", metavar="NAME", help="who works (default: main, or admin)")
        add_model(parser)
        tape = parser.add_mutually_exclusive_group()
        tape.add_argument("--record", metavar="FILE", help="keep every exchange in a new FILE")
        tape.add_argument("--play", metavar="FILE", help="answer from FILE; nothing is sent")

    def run(self, options: Options, console: Console) -> int:
        """0 success, 1 degraded or error, 5 the provider can't be reached, 128+n by signal n."""
        return answer(options.task, None, options, console)


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="PROVIDER[:NAME]",
        help="which model answers; scripted:FILE says what FILE says: docs/guides/embed.md",
    )


def answer(message: str, resume: str | None, options: Options, console: Console) -> int:
    """Have one turn, in a new or a resumed session; SIGTERM and SIGHUP cancel it, on record."""
    project = use_project(options, console)
    prepared = _prepared(project, options, console)
    wish = SessionWish(
        agent=options.agent,
        model=options.model,
        listener=_Progress(console),
        variables=console.variables,
        resume=resume,
        provider=prepared.provider if prepared else _recorded(project, options, console),
    )
    # Around the session too: its end is on record whenever the signal comes.
    with cancelled_by_signals() as stopping, open_session(project, wish) as session:
        for notice in session.notices[len(project.notices) :]:
            console.warn(f"note: {notice}")
        result = session.handle_turn(message, stopping.token)
    if options.json:
        console.write_json(result.as_json())
    else:
        console.say(result.response)
        if result.note and result.outcome is TurnOutcome.SUCCESS:
            console.warn(f"note: {result.note}")
    if stopping.ended_by is not None:
        return EXIT_SIGNAL + stopping.ended_by
    if prepared:
        # What a turn that failed left over says nothing; what it did not meet may be why.
        prepared.answers.require_met()
        if result.outcome is TurnOutcome.SUCCESS:
            prepared.answers.require_finished()
    return _exit_of(result)


def _prepared(project: Project, options: Options, console: Console) -> "PreparedCassette | None":
    from paddock.assembly.cassettes import find_script, open_played

    if options.play is None:
        is_recorded = options.record is not None
        return None if is_recorded else find_script(project, options.model, console.variables)
    file = console.directory / options.play
    return open_played(project, options.model, console.variables, file)


def _recorded(project: Project, options: Options, console: Console) -> "Provider | None":
    if options.record is None:
        return None
    from paddock.assembly.cassettes import open_recorded

    file = console.directory / options.record
    return open_recorded(project, options.model, console.variables, file)


def _exit_of(result: TurnResult) -> int:
    if result.outcome is TurnOutcome.SUCCESS:
        return 0
    return EXIT_HOST if result.is_unreachable else EXIT_NO


class _Progress:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_shown = console.stderr.isatty()

    def heard(self, event: Event) -> None:
        if isinstance(event, Noticed):
            self._console.warn(f"note: {event.text}")
        elif isinstance(event, CallFinished) and self._is_shown:
            refusal = event.result.refusal
            came = "ok" if refusal is None else refusal.code
            duration = f"{event.duration_us / 1000:.0f} ms" if event.ran else "not run"
            self._console.warn(f"  {show_name(event.tool)}  {came}  {duration}")


RUN = RunCommand()

_MESSAGE_SHOWN_MAX = 60


class Sessions:
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


SESSION = Sessions()
