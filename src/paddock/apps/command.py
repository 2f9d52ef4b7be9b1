"""Define commands as table rows: options, reply, and the project they work on.

argparse parses the options; errors are reported as `UsageError`.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast

from msgspec import Struct

from paddock.apps.console import Console
from paddock.errors import UsageError
from paddock.text.show import quote
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.assembly.project import PlaneSite, Project
    from paddock.plane.environment import Environment

# argparse translates its messages through gettext: searching for catalogs that do not exist
# takes as long as parsing. All messages here are English.
argparse._ = str  # type: ignore[attr-defined] - private to argparse

Options = argparse.Namespace
AS_VALUE: Final = "print one JSON value"


class _HelpAskedError(Exception):
    """The user asked for a help text: argparse would print it and exit."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that neither prints nor exits.

    Options may appear anywhere on the line. argparse alone treats an optional positional
    argument as omitted once it meets an option, and rejects it when it comes later.
    """

    _is_again = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - merges its three overloads
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> Any:
        words = None if args is None else list(args)
        before = None if namespace is None else argparse.Namespace(**vars(namespace))
        known, left = super().parse_known_args(words, namespace)
        if not left or self._is_again or self._subparsers is not None:
            return known, left
        self._is_again = True
        try:
            return self.parse_known_intermixed_args(words, before)
        finally:
            self._is_again = False

    def error(self, message: str) -> NoReturn:
        hint = f"{self.prog} --help"
        for action in self._actions:
            if action.nargs == argparse.PARSER and message.endswith(f"required: {action.metavar}"):
                hint = f"{action.metavar} is one of: {', '.join(action.choices or ())}; {hint}"
        raise UsageError(message, where=self.prog, hint=hint)

    def next_words(self, before: Sequence[str], word: str) -> Iterable[str]:
        """Return the completions after these words; empty where any file name is valid."""
        for action in self._actions:
            parts = action.choices if action.nargs == argparse.PARSER else None
            if before and isinstance(parts, Mapping) and before[0] in parts:
                return cast("Parser", parts[before[0]]).next_words(before[1:], word)
            if before and before[-1] in action.option_strings and action.nargs != 0:
                return action.choices or ()
        if word.startswith("-"):
            return [name for action in self._actions for name in action.option_strings]
        named = (action for action in self._actions if not action.option_strings)
        return () if before else [each for action in named for each in action.choices or ()]

    def print_help(self, file: object = None) -> NoReturn:
        del file
        raise _HelpAskedError(self.format_help())


def make_parser(command: "Command", name: str) -> Parser:
    # argparse formats each option as it is added; a fixed width saves asking the terminal.
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


def add_common(parser: argparse.ArgumentParser, as_json: str = AS_VALUE) -> None:
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=as_json)
    parser.add_argument(
        "--plane", metavar="DIR", default=argparse.SUPPRESS, help="project or bare plane to use"
    )


def parse(
    command: "Command", name: str, arguments: Sequence[str], plane: str | None, console: Console
) -> Options | None:
    """Return the options, or None if a help text was printed instead. Raises: UsageError."""
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

    Threat: `--plane "$PLANE"` with the variable unset. Raises: UsageError.
    """
    if directory == "":
        raise UsageError(f"{what} is empty: expected a directory", hint="for here, write .")


def nearest(given: str, known: Sequence[str]) -> str:
    import difflib

    found = difflib.get_close_matches(given, known, n=1, cutoff=0.7)
    return f"did you mean {found[0]!r}" if found else ""


def seconds_of(text: str | None, option: str) -> float | None:
    """Parse RFC 3339 into seconds since 1970; UTC if it names no zone. Raises: UsageError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"invalid time {quote(text)}", where=option, hint="such as 2026-01-31T12:00:00Z"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def fields(thing: object, *names: str) -> dict[str, Json]:
    return {name: getattr(thing, name) for name in names}


class Reply(Struct, frozen=True):
    value: Json
    text: str | Iterable[str]
    """Its lines; an iterator is consumed only when the text is printed."""
    status: int = 0
    is_ours: bool = False
    """True if all of the text is Paddock's: commands in it get the `--plane` in use."""

    def show(self, options: Options, console: Console) -> int:
        if options.json:
            console.write_json(self.value)
        else:
            for row in (self.text,) if isinstance(self.text, str) else self.text:
                console.say(console.as_typed(row) if self.is_ours else row)
        return self.status


Work = Callable[[Options, Console], Reply | int]
"""Runs the command; returns a bare exit status if it has printed everything already."""


def loaded(place: str) -> Work:
    """Return work that loads `module:function` of an app only when it runs."""

    def work(options: Options, console: Console) -> Reply | int:
        module, _, name = place.partition(":")
        return getattr(import_module(f"paddock.apps.{module}"), name)(options, console)

    return work


class CommandOption(NamedTuple):
    names: tuple[str, ...]
    settings: Mapping[str, Any]


def opt(
    name: str, metavar: str | None = None, about: str | None = None, **settings: Any
) -> CommandOption:
    return CommandOption((name,), {"metavar": metavar, "help": about, **settings})


def flag(name: str, about: str, *short: str) -> CommandOption:
    return CommandOption((*short, name), {"action": "store_true", "help": about})


Argument = CommandOption | tuple[CommandOption, ...]
"""A tuple: mutually exclusive options."""


class Part:
    """A subcommand. An empty `as_json`: it has no `--json`."""

    def __init__(
        self,
        name: str,
        about: str,
        do: Work,
        *options: Argument,
        as_json: str = AS_VALUE,
        description: str | None = None,
    ) -> None:
        self.name, self.about, self.do, self.options = name, about, do, options
        self.as_json, self.description = as_json, description


class Command:
    """A command. Without `do`, its parts run; `alone` runs when no part is named."""

    def __init__(
        self,
        summary: str,
        examples: str,
        *rows: Argument | Part,
        do: Work | None = None,
        metavar: str = "ACTION",
        alone: Work | None = None,
    ) -> None:
        self.summary, self.examples, self.do = summary, examples, do
        self.options = [row for row in rows if not isinstance(row, Part)]
        self.parts = [row for row in rows if isinstance(row, Part)]
        self.metavar, self.alone = metavar, alone

    def configure(self, parser: argparse.ArgumentParser) -> None:
        _add(parser, self.options)
        if not self.parts:
            return
        actions = parser.add_subparsers(required=self.alone is None, metavar=self.metavar)
        parser.set_defaults(do=self.alone)
        for part in self.parts:
            text = part.description or f"{part.about[0].upper()}{part.about[1:]}."
            made = actions.add_parser(
                part.name, help=part.about, description=text, allow_abbrev=False
            )
            _add(made, part.options)
            if part.as_json:
                add_common(made, part.as_json)
            made.set_defaults(do=part.do)

    def run(self, options: Options, console: Console) -> int:
        reply: Reply | int = (self.do or options.do)(options, console)
        return reply if isinstance(reply, int) else reply.show(options, console)


def _add(parser: argparse.ArgumentParser, options: Iterable[Argument]) -> None:
    for option in options:
        rows = (option,) if isinstance(option, CommandOption) else option
        target = parser if len(rows) == 1 else parser.add_mutually_exclusive_group()
        for each in rows:
            target.add_argument(*each.names, **each.settings)


def environment_of(console: Console) -> "Environment":
    from paddock.plane.environment import read_environment

    return read_environment(console.variables)


def find_project(options: Options, console: Console) -> "Project":
    from paddock.assembly.project import find_project as find

    return find(*where(options, console))


def find_site(options: Options, console: Console) -> "PlaneSite":
    """Find the root and plane without loading their policy."""
    from paddock.assembly.project import find_site as find

    return find(*where(options, console))


def use_project(options: Options, console: Console) -> "Project":
    """Open the project, creating its plane on first use; print its notices."""
    from paddock.assembly.project_open import open_project

    project = open_project(*where(options, console))
    for notice in project.notices:
        console.advise(f"note: {notice}")
    return project


def where(options: Options, console: Console) -> "tuple[Path, Environment, Path | None]":
    override = None if options.plane is None else console.directory / options.plane
    return console.directory, environment_of(console), override


def operator() -> str:
    """Return the name under which the ledger records this user."""
    import os
    import pwd

    try:
        return f"operator {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"operator {os.geteuid()}"


def write_new_file(path: Path, parts: Iterable[bytes]) -> int:
    """Write parts to a new file, all or nothing; return how many. Raises: UsageError, HostError."""
    from paddock.storage.atomic import host_error

    count = 0
    with host_error(f"cannot write {quote(str(path))}"):
        try:
            file = path.open("xb")
        except FileExistsError:
            raise UsageError(
                f"{quote(str(path))} exists already", where="--out", hint="name a new file"
            ) from None
        try:
            with file:
                for part in parts:
                    file.write(part)
                    count += 1
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return count
