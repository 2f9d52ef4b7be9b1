"""`paddock`: find the command, load it alone, run it, turn errors into exit codes.

The table of commands is plain data, so that `paddock --help` loads nothing else.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors
from paddock.apps import console as terminal

if TYPE_CHECKING:
    from paddock.apps.command import Command


class Listed(Struct, frozen=True):
    """One command: its `module`, or `module:NAME`; with a folder it is another app's own."""

    summary: str
    module: str
    parts: tuple[str, ...] = ()
    """Its sub-commands, for the reference."""


COMMANDS: Final = {
    "demo": Listed("take the tour on a governed copy of this project", "demo"),
    "init": Listed("make a governed project, or a bare plane", "setup:INIT"),
    "where": Listed("show where root, plane, policy and ledgers are", "setup:WHERE"),
    "trust": Listed("look at a project's policy and trust it", "setup:TRUST"),
    "call": Listed("run one governed tool call", "call:CALL"),
    "tools": Listed("list the tools that an agent has", "call:TOOLS"),
    "run": Listed("have an agent do a task, and print its answer", "run:RUN"),
    "admin": Listed("talk with an agent of a plane", "admin.command"),
    "session": Listed(
        "list, show, resume and export sessions",
        "run:SESSION",
        ("list", "show", "resume", "export"),
    ),
    "agent": Listed(
        "create, list, show and remove agents", "setup:AGENT", ("create", "list", "show", "remove")
    ),
    "policy": Listed(
        "check, explain, test, lint, replay and compare policy",
        "policy",
        ("check", "explain", "test", "lint", "replay", "diff"),
    ),
    "approvals": Listed(
        "answer what was asked while nobody was there",
        "approvals",
        ("list", "show", "grant", "refuse"),
    ),
    "history": Listed("list what calls changed", "history:HISTORY"),
    "diff": Listed("show what a call changed", "history:DIFF"),
    "undo": Listed("bring back what a call replaced", "history:UNDO"),
    "ledger": Listed(
        "query, follow, verify and export ledgers",
        "ledger",
        (
            *("query", "tail", "verify", "checkpoint", "proof", "accept-rollback", "set-aside"),
            *("export", "content", "erase"),
        ),
    ),
    "collector": Listed(
        "keep the ledgers of many hosts in one PostgreSQL",
        "collector",
        ("init", "keys", "enroll", "push", "accept", "status", "verify"),
    ),
    "package": Listed(
        "make, approve, install and remove packages of a plane",
        "package:PACKAGE",
        ("hash", "pack", "verify", "sign", "approve", "install", "uninstall", "list", "why"),
    ),
    "gate": Listed("look whether a plane is what it should be", "package:GATE"),
    "bootstrap": Listed(
        "make the archive that planes are made of, and planes of it",
        "bootstrap",
        ("build", "verify", "install"),
    ),
    "mcp": Listed(
        "serve an agent's tools to MCP clients",
        "mcp.command",
        ("install", "uninstall", "import", "export", "token", "add", "review"),
    ),
    "web": Listed("open the console in the browser", "web.command", ("token",)),
    "hook": Listed(
        "judge a client's own tools", "hook.command", ("install", "uninstall", "status")
    ),
    "plane": Listed("list and remove planes of projects", "planes:PLANE", ("list", "remove")),
    "scratch": Listed("make and clean scratch folders", "hook.scratch_command", ("new", "clean")),
    "network": Listed("show and allow what commands reach", "network", ("show", "allow")),
    "sandbox": Listed("show what commands may read, write and reach", "host:SANDBOX", ("plan",)),
    "doctor": Listed("show what this host can enforce", "host:DOCTOR"),
    "completion": Listed("print a completion script for a shell", "setup:COMPLETION"),
}

_HELP: Final = """\
paddock - a workspace with a fence for LLM agents

usage: paddock [--plane DIR] [--json] COMMAND [ARGUMENT ...]

commands:
{commands}

options:
  --plane DIR   the project or bare plane to work on (default: found from the
                current directory; PADDOCK_PLANE names it as well)
  --json        print JSON; every command takes it, before its name or after
  --version     print the version
  --help        print this; `paddock COMMAND --help` tells more of one command

examples:
  paddock demo
  paddock call view '{{"path": "README.md"}}'
  paddock policy explain 'tool:file:create .git/hooks/pre-commit'
  paddock ledger verify

exit status:
  0 done   1 the answer is no   2 usage   3 configuration or policy invalid
  4 integrity broken   5 the host could not do it   70 a defect of Paddock
  130 interrupted      141 nobody read the output to its end
  129, 143   ended by SIGHUP or SIGTERM; a turn that ran is on record
"""


def help_text() -> str:
    rows = (f"  {name:<12}{listed.summary}" for name, listed in COMMANDS.items())
    return _HELP.format(commands="\n".join(rows))


def main(arguments: list[str], console: terminal.Console) -> int:
    """Run one command and return its exit status. Never raises but for a broken console."""
    try:
        return _run(arguments, console)
    except errors.PaddockError as error:
        return _reported(error, console)
    except KeyboardInterrupt:
        console.warn("interrupted")
        return terminal.EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # The door: a defect has an id, not a traceback.
        report_defect(error, console)
        return terminal.EXIT_DEFECT


def _run(arguments: list[str], console: terminal.Console) -> int:
    plane: str | None = None
    as_json: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("--help", "-h"):
            console.print(help_text())
            return terminal.EXIT_DONE
        if option == "--version":
            from paddock import __version__

            console.say(f"paddock {__version__}")
            return terminal.EXIT_DONE
        if option == "--json":
            as_json = [option]
        elif option == "--plane" and rest:
            plane = rest.pop(0)
        elif option.startswith("--plane="):
            plane = option.removeprefix("--plane=")
        elif option == "--plane":
            raise errors.UsageError(
                "--plane names no directory", hint="paddock --plane DIR COMMAND"
            )
        else:
            from paddock.text.show import quote

            raise errors.UsageError(
                f"unknown option {quote(option)}", hint="paddock --help lists them"
            )
    if rest[:1] == ["help"]:
        console.print(help_text())
        return terminal.EXIT_DONE
    if not rest:
        console.print(help_text())
        return terminal.EXIT_USAGE
    return _run_command(rest[0], [*as_json, *rest[1:]], plane, console)


def _run_command(
    name: str, arguments: list[str], plane: str | None, console: terminal.Console
) -> int:
    if name not in COMMANDS:
        from paddock.apps.command import nearest
        from paddock.text.show import quote

        raise errors.UsageError(
            f"unknown command {quote(name)}",
            hint=nearest(name, list(COMMANDS)) or "paddock --help lists them",
        )
    from paddock.apps.command import parse

    _allow_open_files()
    command = load_command(name)
    options = parse(command, name, arguments, plane, console)
    if options is None:
        return terminal.EXIT_DONE
    console = replace(console, named=options.plane)
    try:
        _require_person([name, *arguments], console)
        return command.run(options, console)
    except errors.PaddockError as error:
        return _reported(error, console)


def _reported(error: errors.PaddockError, console: terminal.Console) -> int:
    console.report(error)
    return terminal.exit_of_error(type(error))


def load_command(name: str) -> "Command":
    from importlib import import_module

    place = COMMANDS[name].module
    module, _, constant = place.partition(":")
    folder = "" if "." in module else "cli."
    return getattr(import_module(f"paddock.apps.{folder}{module}"), constant or "COMMAND")


def _require_person(arguments: list[str], console: terminal.Console) -> None:
    """Refuse a person's act where a client of the hook started us: its model would consent."""
    from paddock.plane.clients import descends_from_client
    from paddock.plane.environment import read_environment

    try:
        environment = read_environment(console.variables)
    except errors.ConfigError:
        return  # No plane can be found, nor anything changed: the command says why.
    if not descends_from_client(environment):
        return
    from paddock.policy.commands.operator_commands import CLIENT_RUN, is_persons_act, place_of
    from paddock.text.show import quote

    place = place_of(arguments)
    if place in CLIENT_RUN or not is_persons_act(arguments):
        return
    raise errors.PermissionDeniedError(
        f"{quote(' '.join(('paddock', *filter(None, place))))} is a person's act, and a client "
        "that has Paddock's hook started this process",
        hint="run it in a terminal of your own",
    )


def _allow_open_files() -> None:
    """Raise the soft limit, low for select(2) (setrlimit(2)): a change set opens each directory."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS: more than it counts
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def console(end: Callable[[int], NoReturn] = sys.exit) -> None:
    here = terminal.Console.of_process()
    # Threat: what was cut short must not pass for done where `paddock ledger verify | head -1`
    # decides what comes next.
    status = terminal.EXIT_NOT_READ
    try:
        status = main(sys.argv[1:], here)
        here.flush()
    except BrokenPipeError:
        terminal.forget(here.stdout)  # The reader went away, as `paddock … | head` does.
    except errors.HostError as error:
        if status != terminal.EXIT_HOST:
            here.report(error)
            status = terminal.EXIT_HOST
        terminal.forget(here.stdout)
    end(status)


def report_defect(error: Exception, console: terminal.Console) -> None:
    """Say that it is our fault, with an id, and keep the traceback for a report."""
    identity = os.urandom(6).hex()
    from paddock.plane.environment import read_environment

    try:
        kept = terminal.keep_defect(
            read_environment(console.variables).paddock_home, error, identity
        )
    except errors.ConfigError:
        kept = ""
    hint = f"please report it with {kept}" if kept else "please report it"
    console.report(
        errors.InternalError(
            f"a defect of Paddock, {type(error).__name__} (id {identity})", hint=hint
        )
    )
