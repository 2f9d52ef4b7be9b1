"""The commands of the shell: what begins with a slash."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from paddock.apps.admin.blocks import Span, Table, row
from paddock.apps.admin.commands_plane import (
    LEDGERS,
    SHOWN,
    DoctorCommand,
    LedgerCommand,
    PolicyCommand,
    ShowCommand,
)
from paddock.apps.admin.commands_session import (
    CostCommand,
    ResumeCommand,
    SessionsCommand,
    StatusCommand,
)
from paddock.apps.admin.commands_tools import CallCommand, ExpandCommand, ToolsCommand
from paddock.apps.admin.completion import Vocabulary
from paddock.apps.admin.desk import Desk
from paddock.errors import UsageError
from paddock.providers.wire import as_map
from paddock.text.show import quote

_COMMAND: Final = re.compile(r"/(\S+)\s*(.*)", re.DOTALL)


class Command(Protocol):
    usage: str
    summary: str

    def run(self, rest: str, desk: Desk) -> None:
        """Do it; `rest` is what was typed behind its name. Raises: PaddockError."""
        ...


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    name: str
    rest: str


class HelpCommand:
    usage = "/help"
    summary = "list these commands"

    def run(self, rest: str, desk: Desk) -> None:
        rows = tuple(row(Span(each.usage), each.summary) for each in COMMANDS.values())
        keys = (
            row("Tab", "complete a command, a tool or an argument"),
            row("Ctrl-R", "search in what was typed before"),
            row("Alt-Enter", "a new line; so does a line that ends in \\"),
            row("Ctrl-C", "cancel what runs; twice on an empty line leaves"),
            row("a space in front", "not a command, and not kept in the history"),
        )
        desk.screen.show(Table((*rows, row("", ""), *keys)))


class ExitCommand:
    """The end."""

    usage = "/exit"
    summary = "end the session and leave"

    def run(self, rest: str, desk: Desk) -> None:
        desk.is_leaving = True


COMMANDS: Final[Mapping[str, Command]] = {
    "help": HelpCommand(),
    "tools": ToolsCommand(),
    "call": CallCommand(),
    "expand": ExpandCommand(),
    "show": ShowCommand(),
    "policy": PolicyCommand(),
    "ledger": LedgerCommand(),
    "sessions": SessionsCommand(),
    "resume": ResumeCommand(),
    "cost": CostCommand(),
    "status": StatusCommand(),
    "doctor": DoctorCommand(),
    "exit": ExitCommand(),
}


def parse_command(text: str) -> ParsedCommand | None:
    """The command that was typed; None for what is said to the model."""
    found = _COMMAND.fullmatch(text.rstrip())
    return None if found is None else ParsedCommand(found[1], found[2])


def find_command(name: str) -> Command:
    """The command of that name. Raises: UsageError naming the nearest."""
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.6)
        said = f"did you mean /{near[0]}; " if near else "/help lists them; "
        raise UsageError(
            f"unknown command {quote(f'/{name}')}",
            hint=f"{said}with a space in front it is said to the model",
        )
    return command


def vocabulary(desk: Desk) -> Vocabulary:
    tools = desk.runtime.tools.list_all()
    return Vocabulary(
        commands={name: command.summary for name, command in COMMANDS.items()},
        parameters={
            tool.name: tuple(as_map(tool.binder.schema.get("properties"))) for tool in tools
        },
        words={"show": SHOWN, "ledger": (*LEDGERS, "verify")},
    )
