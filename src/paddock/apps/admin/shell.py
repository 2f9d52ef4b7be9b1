"""The loop of the shell: a message or a command is read, carried out, and shown.

Knows two ports and no terminal; every line of it also runs on a pipe.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, TextIO

from msgspec import Struct

from paddock.agent.events import TurnOutcome
from paddock.agent.sessions import Session
from paddock.apps.admin import plain
from paddock.apps.admin.commands import find_command, parse_command, vocabulary
from paddock.apps.admin.history import HistoryFile
from paddock.apps.admin.question import TerminalApprover, preview_of
from paddock.apps.admin.session import Desk, Setting
from paddock.apps.admin.show import ShownText, TextLook, TextSpan, dim, line, note, row
from paddock.errors import IntegrityError, PaddockError, UsageError
from paddock.text.show import quote


class AdminShell:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._failed = False
        self._learnt: Session | None = None
        """What the keyboard completes is of this session's agent."""

    def run(self) -> int:
        desk = self._desk
        self._greet()
        was_interrupted = False
        while not desk.is_leaving:
            said = desk.keyboard.read()
            is_interrupt = isinstance(said, plain.Interrupted)
            if isinstance(said, plain.InputEnded) or (is_interrupt and was_interrupted):
                break
            if isinstance(said, plain.Interrupted):
                desk.show(dim("press Ctrl-C again to leave, or go on typing"))
            elif said.text.strip():
                self._carry_out(said.text)
            was_interrupted = is_interrupt
        supervisor = desk.session.supervisor
        turns = "1 turn" if supervisor.turns == 1 else f"{supervisor.turns} turns"
        spent = f"{supervisor.cost.total_tokens:,} tokens"
        desk.show(dim(f"{desk.session.session_id}: {turns}, {spent}"))
        return 1 if self._failed else 0

    def _carry_out(self, text: str) -> None:
        desk, command = self._desk, parse_command(text)
        try:
            if not plain.is_text(text):
                raise UsageError(
                    f"{quote(text)} is not UTF-8: it was not carried out",
                    hint="see which encoding the terminal sends, or paste it as text",
                )
            if command is None:
                result = desk.turn(text.strip())
                is_answered = result.outcome is TurnOutcome.SUCCESS or result.was_cancelled
                self._failed = not is_answered
            else:
                find_command(command.name).run(command.rest, desk)
                self._learn()
        except IntegrityError:
            raise
        except PaddockError as error:
            self._failed = command is None
            desk.view.give_up()
            first, *rest = error.render().split("\n")
            desk.show(ShownText((row(TextSpan(first, TextLook.BAD)), *map(row, rest))))
        desk.show(line(""))

    def _greet(self) -> None:
        desk = self._desk
        status = desk.status()
        desk.screen.status(status)
        self._learn()
        desk.show(line(TextSpan("paddock admin", TextLook.STRONG), f" · {desk.session.session_id}"))
        desk.show(line(f"agent {status.agent} works on {desk.project.root.path.name}"))
        desk.show(dim("/help lists the commands, /tools its tools; Ctrl-D leaves"))
        for notice in desk.session.notices:
            desk.show(note(notice))
        desk.show(line(""))

    def _learn(self) -> None:
        desk = self._desk
        if desk.session is not self._learnt:
            desk.keyboard.learn(vocabulary(desk))
            self._learnt = desk.session


_DUMB: Final = frozenset({"dumb", "unknown", ""})


class ShellStreams(Struct, frozen=True):
    source: TextIO
    out: TextIO
    variables: Mapping[str, str]

    @property
    def is_terminal(self) -> bool:
        is_able = self.variables.get("TERM", "") not in _DUMB
        return is_able and self.source.isatty() and self.out.isatty()

    @property
    def has_colours(self) -> bool:
        """NO_COLOR set to anything means no colour (no-color.org)."""
        return not self.variables.get("NO_COLOR")


def run_json(setting: Setting, streams: ShellStreams) -> int:
    return _run_lines(setting, plain.JsonScreen(streams.out), streams.source)


def run_plain(setting: Setting, streams: ShellStreams) -> int:
    return _run_lines(setting, plain.PlainScreen(streams.out), streams.source)


def _run_lines(
    setting: Setting, screen: plain.PlainScreen | plain.JsonScreen, source: TextIO
) -> int:
    keyboard = plain.PlainKeyboard(source, screen)
    with keyboard.ending():
        status = run_shell(setting, screen, keyboard)
    # As a shell reports it.
    return status if keyboard.ended_by is None else 128 + keyboard.ended_by


def run_admin(setting: Setting, streams: ShellStreams) -> int:
    if not streams.is_terminal:
        return run_plain(setting, streams)
    from paddock.apps.admin.terminal import Terminal

    history = HistoryFile(setting.project.environment.paddock_home)
    terminal = Terminal(streams.source, streams.out, history, colours=streams.has_colours)
    return terminal.run(partial(run_shell, setting, terminal, terminal))


def run_shell(setting: Setting, screen: plain.Screen, keyboard: plain.Keyboard) -> int:
    agents = setting.project.agents
    previews = partial(preview_of, lambda agent: str(agents.read(agent).workspace))
    with Desk(setting, screen, keyboard, TerminalApprover(keyboard, previews)) as desk:
        return AdminShell(desk).run()
