"""The shell's loop: read a message or a command, run it, show the result.

It knows only the ports Screen and Keyboard; every line of it also runs on a pipe.
"""

from functools import partial
from typing import Final, TextIO

from paddock.agent.events import TurnOutcome
from paddock.agent.sessions import Session
from paddock.apps.admin import plain
from paddock.apps.admin.commands import find_command, parse_command, vocabulary
from paddock.apps.admin.history import HistoryFile
from paddock.apps.admin.question import TerminalApprover, preview_of
from paddock.apps.admin.session import AdminContext, Setting
from paddock.apps.admin.show import ShownText, TextLook, TextSpan, dim, line, note, row
from paddock.apps.command import Options
from paddock.apps.console import EXIT_SIGNAL, Console
from paddock.errors import IntegrityError, PaddockError, UsageError
from paddock.text.json import has_half_character
from paddock.text.show import quote


class AdminShell:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._failed = False
        self._completed_for: Session | None = None
        """The session whose agent's tools the keyboard completes."""

    def run(self) -> int:
        context = self._context
        self._greet()
        was_interrupted = False
        while not context.is_leaving:
            said = context.keyboard.read()
            is_interrupt = isinstance(said, plain.Interrupted)
            if isinstance(said, plain.InputEnded) or (is_interrupt and was_interrupted):
                break
            if isinstance(said, plain.Interrupted):
                context.show(dim("press Ctrl-C again to leave, or continue typing"))
            elif said.text.strip():
                self._run_line(said.text)
            was_interrupted = is_interrupt
        supervisor = context.session.supervisor
        turns = "1 turn" if supervisor.turns == 1 else f"{supervisor.turns} turns"
        spent = f"{supervisor.cost.total_tokens:,} tokens"
        context.show(dim(f"{context.session.session_id}: {turns}, {spent}"))
        return 1 if self._failed else 0

    def _run_line(self, text: str) -> None:
        context, command = self._context, parse_command(text)
        try:
            if has_half_character(text):
                raise UsageError(
                    f"{quote(text)} is not UTF-8: it was not run",
                    hint="set the terminal to UTF-8, or paste the line as text",
                )
            if command is None:
                result = context.turn(text.strip())
                is_answered = result.outcome is TurnOutcome.SUCCESS or result.was_cancelled
                self._failed = not is_answered
            else:
                find_command(command.name).run(command.rest, context)
                self._learn()
        except IntegrityError:
            raise
        except PaddockError as error:
            self._failed = command is None
            context.view.stop()
            first, *rest = error.render().split("\n")
            context.show(ShownText((row(TextSpan(first, TextLook.BAD)), *map(row, rest))))
        context.show(line(""))

    def _greet(self) -> None:
        context = self._context
        status = context.status()
        context.screen.status(status)
        self._learn()
        context.show(
            line(TextSpan("paddock admin", TextLook.STRONG), f" · {context.session.session_id}")
        )
        context.show(line(f"agent {status.agent} works on {context.project.root.path.name}"))
        context.show(dim("/help lists the commands, /tools its tools; Ctrl-D leaves"))
        for notice in context.session.notices:
            context.show(note(notice))
        context.show(line(""))

    def _learn(self) -> None:
        context = self._context
        if context.session is not self._completed_for:
            context.keyboard.learn(vocabulary(context))
            self._completed_for = context.session


_DUMB: Final = frozenset({"dumb", "unknown", ""})


def run_admin(setting: Setting, options: Options, console: Console) -> int:
    if options.json:
        return run_lines(setting, plain.JsonScreen(console.stdout), console.stdin)
    is_able = console.variables.get("TERM", "") not in _DUMB
    if options.plain or not (is_able and console.stdin.isatty() and console.stdout.isatty()):
        return run_lines(setting, plain.PlainScreen(console.stdout), console.stdin)
    from paddock.apps.admin.terminal import Terminal

    history = HistoryFile(setting.project.environment.paddock_home)
    # An empty NO_COLOR does not count (no-color.org).
    colours = not console.variables.get("NO_COLOR")
    terminal = Terminal(console.stdin, console.stdout, history, colours=colours)
    return terminal.run(partial(run_shell, setting, terminal, terminal))


def run_lines(setting: Setting, screen: plain.LineScreen, source: TextIO) -> int:
    keyboard = plain.PlainKeyboard(source, screen)
    with keyboard.ending():
        status = run_shell(setting, screen, keyboard)
    # A shell reports a signal as 128 + its number.
    return status if keyboard.ended_by is None else EXIT_SIGNAL + keyboard.ended_by


def run_shell(setting: Setting, screen: plain.Screen, keyboard: plain.Keyboard) -> int:
    agents = setting.project.agents
    previews = partial(preview_of, lambda agent: str(agents.read(agent).workspace))
    with AdminContext(setting, screen, keyboard, TerminalApprover(keyboard, previews)) as context:
        return AdminShell(context).run()
