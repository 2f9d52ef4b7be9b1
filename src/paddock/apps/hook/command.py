"""`paddock hook`."""

import argparse
from typing import Final

from paddock import limits
from paddock.apps.hook import scratch
from paddock.apps.hook.console import Console, environment_of, project_of
from paddock.apps.hook.full import Given, answer
from paddock.apps.hook.settings import codex, installing
from paddock.apps.hook.settings.installing import CLIENTS, SCOPES, SCOPES_OF, Client, Scope
from paddock.apps.hook.settings.interpreters import find_programs
from paddock.apps.hook.wrapping import CommandPlace, command_program, run_wrapped
from paddock.assembly import Project
from paddock.ledger.query import Filter, query
from paddock.plane.client_files import Edit
from paddock.values.calls import Json

DENIALS_SHOWN: Final = 10
ONE_MACHINE: Final = (
    "note: it names the Python and the Paddock of this machine; where the file is committed, "
    "another machine needs its own (for one person: --scope local or user)"
)


class Hook:
    """Answer a client's hook; put the hook into a client's settings, and take it out."""

    summary = (
        "Answer one event of a client's hook: JSON in on stdin, JSON out. `install` puts it\n"
        "into the client's settings, and then every call of the client's own tools is judged\n"
        "by this project's policy. It asks first, and `uninstall` leaves the file as it was."
    )
    examples = (
        "  paddock hook install\n"
        "  paddock hook install --scope local\n"
        "  paddock hook install --client codex --scope user\n"
        "  paddock hook status\n"
        '  echo \'{"tool_name": "Write", "tool_input": {"file_path": "/etc/x"}}\' | paddock hook'
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The client of an event, and the sub-commands."""
        parser.add_argument("--client", choices=CLIENTS, help="who sends the event")
        actions = parser.add_subparsers(dest="action", metavar="install|uninstall|status")
        install = actions.add_parser("install", help="into a client's settings", allow_abbrev=False)
        uninstall = actions.add_parser("uninstall", help="out of them", allow_abbrev=False)
        status = actions.add_parser(
            "status", help="where it is, what it denied", allow_abbrev=False
        )
        execute = actions.add_parser("exec", allow_abbrev=False)
        execute.add_argument("--agent", required=True)
        execute.add_argument("--directory", default=".")
        execute.add_argument("--timeout", type=int, default=int(limits.shell_timeout_s))
        execute.add_argument("--plane", metavar="DIR", default=argparse.SUPPRESS)
        execute.add_argument("command")
        for parsed in (install, uninstall, status):
            parsed.add_argument("--client", choices=CLIENTS, default=argparse.SUPPRESS)
            parsed.add_argument("--scope", choices=SCOPES)
            parsed.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
            parsed.add_argument("--plane", metavar="DIR", default=argparse.SUPPRESS)
        for parsed in (install, uninstall):
            parsed.add_argument("--yes", action="store_true", help="do not ask")

    def run(self, options: argparse.Namespace, console: Console) -> int:
        """Do what was asked."""
        if options.action is None:
            return _answer(options, console)
        if options.action == "exec":
            return _execute(options, console)
        if options.action == "status":
            return _status(options, console)
        return _edit(options, console)


def _answer(options: argparse.Namespace, console: Console) -> int:
    """One event. An installed hook does not come through here: see `launch.py`."""
    data = console.stdin.buffer.read(limits.hook_input_bytes_max + 1)
    given = Given(
        data,
        options.client or "",
        console.variables,
        str(console.directory),
        command_program(),
        keeps_image=True,
    )
    console.print(answer(given).decode())
    console.stdout.flush()
    return 0


def _execute(options: argparse.Namespace, console: Console) -> int:
    """A command that the hook has wrapped; nobody types this."""
    project = project_of(console, options.plane)
    place = CommandPlace(str(project.root.path), options.agent, options.directory)
    ran = run_wrapped(project, place, options.command, options.timeout)
    console.print(ran.out)
    console.stderr.write(ran.err)
    return ran.status


def _edit(options: argparse.Namespace, console: Console) -> int:
    client: Client = options.client or "claude"
    scope: Scope = options.scope or "project"
    project = project_of(console, options.plane)
    home = environment_of(console).home
    path = installing.settings_path(client, scope, project.root.path, home, console.variables)
    is_install = options.action == "install"
    if is_install:
        edit = installing.plan_install(path, client, scope, find_programs())
    else:
        edit = installing.plan_uninstall(path, client, scope)
    if edit.changes and not options.yes and not _agrees(edit, console):
        return _end(options, console, edit, "nothing was changed", done=False)
    if edit.changes:
        edit.apply()
    if scope != "user":
        _keep_scratch(project, is_install=is_install)
    if is_install and scope == "project":
        console.warn(ONE_MACHINE)
    if is_install and client == "codex":
        for sentence in codex.CANNOT:
            console.warn(f"note: {sentence}")
    said = f"{'installed in' if is_install else 'taken out of'} {path}"
    if not edit.changes:
        said = f"{'stands already in' if is_install else 'is not in'} {path}"
    return _end(options, console, edit, said, done=True)


def _keep_scratch(project: Project, *, is_install: bool) -> None:
    if is_install:
        ignored = project.policy.settings.hook.sandbox_ignored
        scratch.make_folder(project.root.path, ignored=ignored)
    else:
        scratch.remove_empty_folder(project.root.path)


def _agrees(edit: Edit, console: Console) -> bool:
    console.warn(edit.shown())
    return console.agrees("write this? [y/N] ")


def _end(
    options: argparse.Namespace, console: Console, edit: Edit, said: str, *, done: bool
) -> int:
    if options.json:
        shown: dict[str, Json] = {
            "status": "ok" if done else "error",
            "file": str(edit.file.path),
            "changed": done and edit.changes,
        }
        console.write_json(shown)
    else:
        console.say(said)
    return 0 if done else 1


def _status(options: argparse.Namespace, console: Console) -> int:
    project = project_of(console, options.plane)
    home = environment_of(console).home
    programs = find_programs()
    rows: list[dict[str, Json]] = []
    for client in CLIENTS if options.client is None else (options.client,):
        for scope in SCOPES_OF[client] if options.scope is None else (options.scope,):
            root = project.root.path
            path = installing.settings_path(client, scope, root, home, console.variables)
            state, why = installing.state_of(path, client, scope, programs)
            row: dict[str, Json] = {"client": client, "scope": scope, "file": str(path)}
            rows.append({**row, "state": state, "why": why})
    denials = _denials(project)
    if options.json:
        console.write_json({"installed": rows, "denials": denials})
        return 0
    for row in rows:
        why = f" ({row['why']})" if row["why"] else ""
        console.say(f"{row['client']:<7}{row['scope']:<8} {row['state']}{why}  {row['file']}")
    console.say(f"latest denials ({len(denials)}):" if denials else "nothing was denied yet")
    for denial in denials:
        console.say(
            f"  {denial['timestamp']} {denial['agent']} {denial['tool']}: {denial['reason']}"
        )
    return 0


def _denials(project: Project) -> list[dict[str, Json]]:
    """The latest refusals, newest last."""
    path = project.layout.ledger_paths()["ho1m"]
    if not path.exists():
        return []
    wanted = Filter(event_type="HOOK_DECISION", decision="deny")
    rows = query(str(path), wanted, last=DENIALS_SHOWN).entries
    return [
        {
            "timestamp": row.timestamp,
            "agent": row.entry.agent,
            "tool": row.entry.metadata.get("tool", ""),
            "reason": row.entry.reason,
            "call_id": row.entry.call_id,
            "seq": row.seq,
        }
        for row in rows
    ]


COMMAND = Hook()
