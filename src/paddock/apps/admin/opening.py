"""Putting the shell together, on a terminal or without one."""

from collections.abc import Mapping
from functools import partial
from typing import Final, TextIO

from msgspec import Struct

from paddock.apps.admin.desk import Desk, Setting
from paddock.apps.admin.history import HistoryFile
from paddock.apps.admin.plain import JsonScreen, Keyboard, PlainKeyboard, PlainScreen, Screen
from paddock.apps.admin.question import TerminalApprover, WorkspacePreviews
from paddock.apps.admin.shell import AdminShell
from paddock.assembly.project import Project

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
    """The shell for programs: lines in, JSON lines out. Raises: as `run_admin`."""
    screen = JsonScreen(streams.out)
    return _run_lines(setting, screen, PlainKeyboard(streams.source, screen))


def run_plain(setting: Setting, streams: ShellStreams) -> int:
    """The shell without a terminal's arts. Raises: as `run_admin`."""
    screen = PlainScreen(streams.out)
    return _run_lines(setting, screen, PlainKeyboard(streams.source, screen))


def _run_lines(setting: Setting, screen: Screen, keyboard: PlainKeyboard) -> int:
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
    """The shell on any two ports. Raises: as `run_admin`."""
    previews = WorkspacePreviews(_Workspaces(setting.project))
    with Desk(setting, screen, keyboard, TerminalApprover(keyboard, previews)) as desk:
        return AdminShell(desk).run()


class _Workspaces(Struct, frozen=True):
    project: Project

    def __call__(self, agent: str) -> str:
        return str(self.project.agents.read(agent).workspace)
