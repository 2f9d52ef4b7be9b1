"""Options of a command: parsed by argparse, refused in our words."""

import argparse
import difflib
from collections.abc import Sequence
from typing import NoReturn, Protocol

from paddock.apps.cli.console import Console
from paddock.errors import UsageError

Options = argparse.Namespace


class Command(Protocol):
    """One command: its help, its options, what it does."""

    summary: str
    examples: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare options and arguments."""
        ...

    def run(self, options: Options, console: Console) -> int:
        """Do it; the exit status."""
        ...


class _HelpShownError(Exception):
    """argparse has printed a help text and would exit."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that neither prints errors nor exits by itself."""

    def error(self, message: str) -> NoReturn:
        """Raises: UsageError with argparse's message."""
        raise UsageError(message, where=self.prog, hint=f"{self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raises: what `parse` turns into a plain end."""
        raise _HelpShownError(status, message)


def make_parser(command: Command, name: str) -> Parser:
    """The parser of one command, with `--json` and `--plane` as every command has them."""
    parser = Parser(
        prog=f"paddock {name}",
        description=command.summary,
        epilog=f"examples:\n{command.examples}" if command.examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_common(parser)
    command.configure(parser)
    return parser


def add_common(parser: argparse.ArgumentParser) -> None:
    """`--json` and `--plane`, which may stand before or after a sub-command."""
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON value"
    )
    parser.add_argument(
        "--plane", metavar="DIR", default=argparse.SUPPRESS, help="the project or bare plane"
    )


def parse(
    command: Command, name: str, arguments: Sequence[str], plane: str | None
) -> Options | None:
    """The options, or None where a help text was asked for and printed.

    Raises: UsageError.
    """
    preset = argparse.Namespace(json=False, plane=plane)
    try:
        return make_parser(command, name).parse_args(list(arguments), preset)
    except _HelpShownError:
        return None


def nearest(given: str, known: Sequence[str]) -> str:
    """`did you mean …`, or an empty text."""
    found = difflib.get_close_matches(given, known, n=1)
    return f"did you mean {found[0]!r}" if found else ""
