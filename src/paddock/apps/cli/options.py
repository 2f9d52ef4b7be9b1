"""Options of a command: parsed by argparse, refused in our words."""

import argparse
from collections.abc import Iterable, Sequence
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn, Protocol, TypeVar, overload

from paddock.apps.cli.console import Console
from paddock.errors import UsageError
from paddock.text.show import quote

# argparse asks for translations of its own words: looking for the files of which there are none
# takes as long as parsing. All words here are English.
argparse._ = str  # type: ignore[attr-defined] - a private name of its module

Options = argparse.Namespace
_N = TypeVar("_N")


class Command(Protocol):
    summary: str
    examples: str

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: Options, console: Console) -> int: ...


class _HelpAskedError(Exception):
    """Somebody asked for a help text: argparse would print it and exit."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that neither prints nor exits by itself.

    An option may stand anywhere among the words: argparse takes an argument that may be left
    out for left out as soon as an option comes, and then does not know what to do with it.
    """

    _is_again = False

    @overload
    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: None = None
    ) -> tuple[Options, list[str]]: ...
    @overload
    def parse_known_args(
        self, args: Iterable[str] | None, namespace: _N
    ) -> tuple[_N, list[str]]: ...
    @overload
    def parse_known_args(
        self, args: Iterable[str] | None = None, *, namespace: _N
    ) -> tuple[_N, list[str]]: ...
    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: object = None
    ) -> tuple[object, list[str]]:
        words = None if args is None else list(args)
        before = copy(namespace)
        known, left = super().parse_known_args(words, namespace)
        if not left or self._is_again or self._subparsers is not None:
            return known, left
        self._is_again = True
        try:
            return self.parse_known_intermixed_args(words, before)
        finally:
            self._is_again = False

    def error(self, message: str) -> NoReturn:
        """Raises: UsageError with argparse's message; where a sub-command is missing, with all."""
        hint = f"{self.prog} --help"
        for action in self._actions:
            if action.nargs == argparse.PARSER and message.endswith(f"required: {action.metavar}"):
                hint = f"{action.metavar} is one of: {', '.join(action.choices or ())}; {hint}"
        raise UsageError(message, where=self.prog, hint=hint)

    def print_help(self, file: object = None) -> NoReturn:
        """Raises: the help text, for `parse` to print."""
        del file
        raise _HelpAskedError(self.format_help())


def make_parser(command: Command, name: str) -> Parser:
    # argparse formats each option that it is given, to no end: not in the terminal's width.
    parser = Parser(
        prog=f"paddock {name}",
        description=command.summary,
        epilog=f"examples:\n{command.examples}" if command.examples else None,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=80),
        allow_abbrev=False,
    )
    add_common(parser)
    command.configure(parser)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser


def add_common(parser: argparse.ArgumentParser, as_json: str = "print one JSON value") -> None:
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=as_json)
    parser.add_argument(
        "--plane", metavar="DIR", default=argparse.SUPPRESS, help="the project or bare plane"
    )


def parse(
    command: Command, name: str, arguments: Sequence[str], plane: str | None, console: Console
) -> Options | None:
    """The options, or None where a help text was asked for and printed. Raises: UsageError."""
    preset = argparse.Namespace(json=False, plane=plane)
    try:
        options = make_parser(command, name).parse_args(list(arguments), preset)
    except _HelpAskedError as asked:
        console.print(str(asked))
        return None
    require_named("--plane", options.plane)
    return options


def require_named(what: str, directory: str | None) -> None:
    """Refuse an empty name, which the system would take for the current directory.

    Threat: `--plane "$PLANE"` where the variable is not set. Raises: UsageError.
    """
    if directory == "":
        raise UsageError(f"{what} is empty, and names no directory", hint="for here, write .")


def nearest(given: str, known: Sequence[str]) -> str:
    import difflib

    found = difflib.get_close_matches(given, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]!r}" if found else ""


def seconds_of(text: str | None, option: str) -> float | None:
    """RFC 3339 as seconds since 1970; UTC where it names no zone. Raises: UsageError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{quote(text)} is no time", where=option, hint="such as 2026-01-31T12:00:00Z"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
