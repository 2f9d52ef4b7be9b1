"""`paddock run`."""

import argparse
from typing import TYPE_CHECKING

from paddock.agent.events import CallFinished, Event, Noticed
from paddock.agent.results import TurnOutcome, TurnResult
from paddock.apps.cli.console import Console
from paddock.apps.cli.exits import EXIT_HOST, EXIT_NO, EXIT_SIGNAL
from paddock.apps.cli.interrupts import cancelled_by_signals
from paddock.apps.cli.options import Options
from paddock.apps.cli.project import use_project
from paddock.assembly.project import Project
from paddock.assembly.sessions import SessionWish, open_session
from paddock.text.show import show_name

if TYPE_CHECKING:
    from paddock.assembly.cassettes import PreparedCassette
    from paddock.providers.ports import Provider


class RunCommand:
    """One headless session of one turn."""

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
        """TASK, --agent and --model."""
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
    """One turn, in a new session or in one that is resumed; the exit status.

    Where SIGTERM or SIGHUP ends it the turn is cancelled, and turn and session are on record.
    """
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
    """On stderr: what a person should know, and calls while they happen where it is a terminal."""

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


COMMAND = RunCommand()
