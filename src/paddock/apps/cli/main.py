"""`paddock`: find and load one command, run it, turn errors into exit codes.

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
    """A command: `module` or `module:NAME`; a dot in it names the folder of another app."""

    summary: str
    module: str


COMMANDS: Final = {
    "demo": Listed("take a guided tour on a copy of this project", "demo"),
    "init": Listed("set up this project for agents, or create a bare plane", "setup:INIT"),
    "where": Listed("show where root, plane, policy and ledgers are", "setup:WHERE"),
    "trust": Listed("review a project's policy and trust it", "setup:TRUST"),
    "call": Listed("run one tool call under the policy", "call:CALL"),
    "tools": Listed("list the tools that an agent has", "call:TOOLS"),
    "run": Listed("have an agent do a task, and print its answer", "run:RUN"),
    "admin": Listed("talk with an agent of a plane", "admin.command"),
    "session": Listed("list, show, resume and export sessions", "run:SESSION"),
    "agent": Listed("create, list, show and remove agents", "setup:AGENT"),
    "policy": Listed("check, explain, test, lint, replay and compare policy", "policy"),
    "approvals": Listed("answer requests that wait for an approval", "approvals"),
    "history": Listed("list the calls that changed files", "history:HISTORY"),
    "diff": Listed("show what a call changed", "history:DIFF"),
    "undo": Listed("undo the changes of a call", "history:UNDO"),
    "ledger": Listed("query, follow, verify and export ledgers", "ledger"),
    "collector": Listed(
        "collect the ledgers of many hosts in one PostgreSQL database", "collector"
    ),
    "package": Listed(
        "build, approve, install and remove packages of a bare plane", "package:PACKAGE"
    ),
    "gate": Listed("check a bare plane against its packages and approvals", "package:GATE"),
    "bootstrap": Listed("build the archive that creates bare planes, and use it", "bootstrap"),
    "mcp": Listed("serve an agent's tools to MCP clients", "mcp.command"),
    "web": Listed("open the console in the browser", "web.command"),
    "hook": Listed("judge a client's own tools", "hook.command"),
    "plane": Listed("list and remove planes of projects", "planes:PLANE"),
    "scratch": Listed("create and clean scratch folders", "hook.scratch_command"),
    "network": Listed("show and allow the hosts commands can reach", "network"),
    "sandbox": Listed("show the limits of commands", "host:SANDBOX"),
    "doctor": Listed("show what this host can enforce", "host:DOCTOR"),
    "completion": Listed("print a completion script for a shell", "setup:COMPLETION"),
}

_HELP: Final = """\
paddock - a fenced workspace for LLM agents: sandbox, policy and ledger

usage: paddock [--plane DIR] [--json] COMMAND [ARGUMENT ...]

commands:
{commands}

options:
  --plane DIR   the project or bare plane to work on (default: PADDOCK_PLANE,
                else found from the current directory)
  --json        print JSON; valid before or after the name of every command
  --version     print the version
  --help        print this; `paddock COMMAND --help` describes one command

terms:
  plane       where Paddock keeps the agents, ledgers and history of a project
  bare plane  a plane without a project: a directory built from packages
  ledger      the append-only record of all calls; changes to it are detected

examples:
  paddock demo
  paddock call view '{{"path": "README.md"}}'
  paddock policy explain 'tool:file:create .git/hooks/pre-commit'
  paddock ledger verify

exit status:
  0 done   1 the answer is no   2 wrong usage   3 configuration or policy invalid
  4 integrity check failed   5 error of the host   70 a defect of Paddock
  130 interrupted   141 the reader closed the output early
  129, 143   ended by SIGHUP or SIGTERM; a turn that ran is recorded
"""


def help_text() -> str:
    rows = (f"  {name:<12}{listed.summary}" for name, listed in COMMANDS.items())
    return _HELP.format(commands="\n".join(rows))


def main(arguments: list[str], console: terminal.Console) -> int:
    """Run one command; return its exit status. Raises only if the output cannot be written."""
    try:
        return _run(arguments, console)
    except errors.PaddockError as error:
        return _reported(error, console)
    except KeyboardInterrupt:
        console.warn("interrupted")
        return terminal.EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # A defect is reported with an id, without a traceback.
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
            raise errors.UsageError("--plane needs a directory", hint="paddock --plane DIR COMMAND")
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
    """Refuse a person's act if a client with the hook started us: its model would consent."""
    from paddock.plane.clients import descends_from_client
    from paddock.plane.environment import read_environment

    try:
        environment = read_environment(console.variables)
    except errors.ConfigError:
        return  # No plane can be found or changed: the command reports why.
    if not descends_from_client(environment):
        return
    from paddock.policy.commands.operator_commands import CLIENT_RUN, is_persons_act, place_of
    from paddock.text.show import quote

    place = place_of(arguments)
    if place in CLIENT_RUN or not is_persons_act(arguments):
        return
    raise errors.PermissionDeniedError(
        f"only a person may run {quote(' '.join(('paddock', *filter(None, place))))}: a client "
        "that has Paddock's hook started this process",
        hint="run it in a terminal of your own",
    )


def _allow_open_files() -> None:
    """Raise the soft limit, which is low for select(2): a change set opens each directory."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS: above what it allows
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def console(end: Callable[[int], NoReturn] = sys.exit) -> None:
    here = terminal.Console.of_process()
    # Threat: output that was cut short must not count as success where a script decides by
    # `paddock ledger verify | head -1`.
    status = terminal.EXIT_NOT_READ
    try:
        status = main(sys.argv[1:], here)
        here.flush()
    except BrokenPipeError:
        terminal.forget(here.stdout)  # The reader closed the pipe, as `paddock … | head` does.
    except errors.HostError as error:
        if status != terminal.EXIT_HOST:
            here.report(error)
            status = terminal.EXIT_HOST
        terminal.forget(here.stdout)
    end(status)


def report_defect(error: Exception, console: terminal.Console) -> None:
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
