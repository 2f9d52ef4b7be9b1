"""The loop of the shell: a message or a command is read, carried out, and shown.

Knows two ports and no terminal; every line of it also runs on a pipe.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final, TextIO

from msgspec import Struct

from paddock.agent.results import TurnOutcome
from paddock.agent.sessions import Session
from paddock.apps.admin.commands import find_command, parse_command, vocabulary
from paddock.apps.admin.desk import Desk, Setting
from paddock.apps.admin.history import HistoryFile
from paddock.apps.admin.plain import (
    InputEnded,
    Interrupted,
    JsonScreen,
    Keyboard,
    PlainKeyboard,
    PlainScreen,
    Screen,
    is_text,
)
from paddock.apps.admin.question import TerminalApprover, WorkspacePreviews
from paddock.apps.admin.show import Block, ShownText, TextLook, TextSpan, line, row
from paddock.errors import IntegrityError, PaddockError, UsageError
from paddock.providers.failures import CancelToken
from paddock.text.show import quote

_AGAIN: Final = "press Ctrl-C again to leave, or go on typing"


class AdminShell:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._failed = False
        self._learnt: Session | None = None
        """What the keyboard completes is of this session's agent."""

    def run(self) -> int:
        """0; 1 where the last turn had no answer. Raises: IntegrityError, PaddockError."""
        desk = self._desk
        self._greet()
        was_interrupted = False
        while not desk.is_leaving:
            said = desk.keyboard.read()
            if isinstance(said, InputEnded):
                break
            if isinstance(said, Interrupted):
                if was_interrupted:
                    break
                was_interrupted = True
                self._show(line(TextSpan(_AGAIN, TextLook.DIM)))
                continue
            was_interrupted = False
            if said.text.strip():
                self._carry_out(said.text)
        self._show(line(TextSpan(_farewell(desk), TextLook.DIM)))
        return 1 if self._failed else 0

    def _carry_out(self, text: str) -> None:
        command = parse_command(text)
        try:
            if not is_text(text):
                raise UsageError(
                    f"{quote(text)} is not UTF-8: it was not carried out",
                    hint="see which encoding the terminal sends, or paste it as text",
                )
            if command is None:
                self._turn(text.strip())
            else:
                find_command(command.name).run(command.rest, self._desk)
                self._learn()
        except IntegrityError:
            raise
        except PaddockError as error:
            self._failed = command is None
            self._desk.view.give_up()
            self._show(error_block(error))
        self._show(line(""))

    def _turn(self, message: str) -> None:
        desk = self._desk
        desk.begin_turn()
        token = CancelToken()
        try:
            with desk.interruptible(token):
                result = desk.session.handle_turn(message, token)
        finally:
            desk.end_turn()
        desk.view.end(result)
        desk.screen.answered(result)
        self._failed = result.outcome is not TurnOutcome.SUCCESS and not result.was_cancelled

    def _greet(self) -> None:
        desk = self._desk
        status = desk.status()
        desk.screen.status(status)
        self._learn()
        self._show(
            line(TextSpan("paddock admin", TextLook.STRONG), f" · {desk.session.session_id}")
        )
        self._show(line(f"agent {status.agent} works on {desk.project.root.path.name}"))
        keys = "/help lists the commands, /tools its tools; Ctrl-D leaves"
        self._show(line(TextSpan(keys, TextLook.DIM)))
        for notice in desk.session.notices:
            self._show(line(TextSpan("note: ", TextLook.WARN), notice))
        self._show(line(""))

    def _learn(self) -> None:
        desk = self._desk
        if desk.session is not self._learnt:
            desk.keyboard.learn(vocabulary(desk))
            self._learnt = desk.session

    def _show(self, block: Block) -> None:
        self._desk.screen.show(block)


def error_block(error: PaddockError) -> ShownText:
    first, *rest = error.render().split("\n")
    return ShownText((row(TextSpan(first, TextLook.BAD)), *(row(each) for each in rest)))


def _farewell(desk: Desk) -> str:
    supervisor = desk.session.supervisor
    turns = "1 turn" if supervisor.turns == 1 else f"{supervisor.turns} turns"
    return f"{desk.session.session_id}: {turns}, {supervisor.cost.total_tokens:,} tokens"


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
    return _run_lines(setting, JsonScreen(streams.out), streams.source)


def run_plain(setting: Setting, streams: ShellStreams) -> int:
    return _run_lines(setting, PlainScreen(streams.out), streams.source)


def _run_lines(setting: Setting, screen: PlainScreen | JsonScreen, source: TextIO) -> int:
    keyboard = PlainKeyboard(source, screen)
    with keyboard.ending():
        status = run_shell(setting, screen, keyboard)
    # As a shell reports it.
    return status if keyboard.ended_by is None else 128 + keyboard.ended_by


def run_admin(setting: Setting, streams: ShellStreams) -> int:
    """The shell, until it is left; its exit status. Raises: PaddockError, UsageError."""
    if not streams.is_terminal:
        return run_plain(setting, streams)
    from paddock.apps.admin.terminal import Terminal

    history = HistoryFile(setting.project.environment.paddock_home)
    terminal = Terminal(streams.source, streams.out, history, colours=streams.has_colours)
    return terminal.run(partial(run_shell, setting, terminal, terminal))


def run_shell(setting: Setting, screen: Screen, keyboard: Keyboard) -> int:
    agents = setting.project.agents
    previews = WorkspacePreviews(lambda agent: str(agents.read(agent).workspace))
    with Desk(setting, screen, keyboard, TerminalApprover(keyboard, previews)) as desk:
        return AdminShell(desk).run()
