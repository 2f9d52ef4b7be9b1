"""`paddock run` and `paddock session`: run a task, list, show, resume and export sessions."""

import json
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from paddock.agent.events import CallFinished, Event, Noticed, TurnOutcome
from paddock.agent.session_log import RecordedSession, RecordedTurn, export_session, list_sessions
from paddock.apps import command
from paddock.apps.console import EXIT_DONE, EXIT_HOST, EXIT_NO, EXIT_SIGNAL, Console
from paddock.assembly import sessions
from paddock.assembly.questions import require_past_agent
from paddock.providers.failures import CancelToken
from paddock.text.show import show_name

_MESSAGE_SHOWN_MAX: Final = 60
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Stopping:
    def __init__(self) -> None:
        self.token = CancelToken()
        self.ended_by: int | None = None
        """The signal (SIGTERM or SIGHUP) that sets the exit status."""
        self._is_first = True

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._is_first:
            raise KeyboardInterrupt
        self._is_first = False
        self._cancel()

    def end(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or number
        self._cancel()

    def _cancel(self) -> None:
        # In a thread: the interrupted thread may hold the token's lock right now.
        threading.Thread(target=self.token.cancel, name="paddock-cancel").start()


@contextmanager
def cancelled_by_signals() -> Generator[Stopping]:
    """Cancel on SIGINT, SIGTERM and SIGHUP (unless ignored); only in the main thread."""
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


def _run(options: command.Options, console: Console) -> int:
    return _answer(options.task, None, options, console)


def _answer(message: str, resume: str | None, options: command.Options, console: Console) -> int:
    project, provider, prepared = command.use_project(options, console), None, None
    asked = (project, options.model, console.variables)
    if options.play is not None:
        prepared = sessions.open_played(*asked, console.directory / options.play)
    elif options.record is not None:
        provider = sessions.open_recorded(*asked, console.directory / options.record)
    else:
        prepared = sessions.find_script(*asked)
    wish = sessions.SessionWish(
        agent=options.agent,
        model=options.model,
        listener=_Progress(console),
        variables=console.variables,
        resume=resume,
        provider=prepared.provider if prepared else provider,
    )
    # Around the session too, so that its end is recorded whenever the signal comes.
    with cancelled_by_signals() as stopping, sessions.open_session(project, wish) as session:
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
        # Unused answers mean nothing after a failed turn; an unmet request may be its cause.
        prepared.answers.require_met()
        if result.outcome is TurnOutcome.SUCCESS:
            prepared.answers.require_finished()
    if result.outcome is TurnOutcome.SUCCESS:
        return EXIT_DONE
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


_MODEL = command.opt(
    "--model",
    "PROVIDER[:NAME]",
    "the model; scripted:FILE replays the answers in FILE, see docs/guides/embed.md",
)

RUN = command.Command(
    "Have an agent do a task, and print its answer.\n"
    "No question is asked: a call that needs an approval is refused. Without --model the\n"
    "plane's configuration decides, else your [providers.default], else the built-in model.\n"
    "--record saves all exchanges with the model, without keys; --play answers from that\n"
    "file if the same task meets the same files again.",
    '  paddock run "what files are in src?"\n'
    '  paddock run --model anthropic:MODEL "write a summary of README.md"\n'
    '  paddock run --model scripted:steps.json --json "go"\n'
    '  paddock run --model anthropic:MODEL --record tape.jsonl "go"\n'
    '  paddock run --model anthropic:MODEL --play tape.jsonl "go"',
    command.opt("task", "TASK", "the message to the agent"),
    command.opt("--agent", "NAME", "the agent (default: main; admin in a bare plane)"),
    _MODEL,
    (
        command.opt("--record", "FILE", "save every exchange in a new FILE"),
        command.opt("--play", "FILE", "answer from FILE, without a model"),
    ),
    do=_run,
)


def _resume(options: command.Options, console: Console) -> int:
    options.agent = options.record = options.play = None
    return _answer(options.task, options.session, options, console)


def _list(options: command.Options, console: Console) -> command.Reply:
    project = command.find_project(options, console)
    if options.agent is not None:
        require_past_agent(project, options.agent)
    found = list_sessions(sessions.sessions_of(project), options.agent)
    if not found and not options.json:
        console.warn("no sessions yet")
    return command.Reply([session.as_json() for session in found], map(_row, found))


def _show(options: command.Options, console: Console) -> command.Reply:
    session = sessions.require_session(command.find_project(options, console), options.session)
    turns = (*session.turns, *session.unfinished)
    value = {**session.as_json(), "turns": [turn.as_json() for turn in turns]}
    return command.Reply(
        value, (_row(session), *(row for turn in turns for row in _turn_rows(turn)))
    )


def _turn_rows(turn: RecordedTurn) -> Iterator[str]:
    yield f"\n[{turn.number}] {turn.timestamp}  {turn.outcome}"
    response = turn.response or f"({turn.reason or 'no answer is recorded'})"
    # Threat: a response that imitates the heading of another turn.
    yield from (f"> {each}" for each in turn.user_message.split("\n"))
    yield from (f"  {each}" for each in response.split("\n"))


def _export(options: command.Options, console: Console) -> command.Reply:
    project = command.find_project(options, console)
    session = sessions.require_session(project, options.session)
    value = export_session(sessions.sessions_of(project), session)
    if options.out is None:
        return command.Reply(value, json.dumps(value, ensure_ascii=True))
    file = Path(console.directory / options.out)
    command.write_new_file(file, [json.dumps(value, ensure_ascii=True).encode() + b"\n"])
    shown = {"status": "ok", "file": str(file)}
    return command.Reply(shown, f"exported {session.session_id} to {file}")


def _row(session: RecordedSession) -> str:
    state = "ended" if session.ended else "open"
    first = session.first_message or ""
    cut = "…" if len(first) > _MESSAGE_SHOWN_MAX else ""
    unfinished = f", {len(session.unfinished)} unfinished" if session.unfinished else ""
    return (
        f"{session.session_id}  {session.started}  {state:<5}  {session.agent:<10}"
        f"{len(session.turns):>4} turns{unfinished}  {show_name(first[:_MESSAGE_SHOWN_MAX])}{cut}"
    ).rstrip()


_ID = command.opt("session", "ID", "id of a session")
_TASK = command.opt("task", "TASK", "the message to the agent")

SESSION = command.Command(
    "List sessions, show their turns, continue one, or export everything recorded of it.",
    "  paddock session list\n"
    "  paddock session show SES-0123456789abcdef\n"
    '  paddock session resume SES-0123456789abcdef "and now the tests"\n'
    "  paddock session export SES-0123456789abcdef --out session.json",
    command.Part(
        "list", "list all sessions", _list, command.opt("--agent", "NAME", "only of this agent")
    ),
    command.Part("show", "show the turns of a session", _show, _ID),
    command.Part("resume", "continue a session with a message", _resume, _ID, _TASK, _MODEL),
    command.Part(
        "export",
        "export a session as JSON",
        _export,
        _ID,
        command.opt("--out", "FILE", "write to a new file (default: print)"),
    ),
)
