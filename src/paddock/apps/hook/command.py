"""`paddock hook`."""

import argparse
import os
import subprocess
from contextlib import suppress
from itertools import islice
from typing import Final

from paddock import limits
from paddock.apps.command import (
    Command,
    CommandOption,
    Options,
    Part,
    Reply,
    environment_of,
    find_project,
    flag,
    opt,
)
from paddock.apps.console import EXIT_NO, Console
from paddock.apps.hook.confinement import save_trial, try_in_codex
from paddock.apps.hook.context import command_program, why_unconfined
from paddock.apps.hook.settings import codex, install
from paddock.apps.hook.settings.install import (
    CLIENTS,
    SCOPES,
    SCOPES_OF,
    Client,
    InstallState,
    Places,
    Scope,
    check_install,
)
from paddock.assembly.project import Project
from paddock.assembly.project_open import policy_notices
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, find_decided
from paddock.ledger.read import stands
from paddock.plane import scratch
from paddock.plane.clients import ClientFileEdit
from paddock.plane.layout import LedgerName
from paddock.policy.questions.record import DENIED_UNASKED
from paddock.sandbox.backends import find_rarely_confined, offered_outside
from paddock.values.calls import Json
from paddock.values.entries import HOOK_DECISION

DENIALS_SHOWN: Final = 10
_REFUSED: Final = 2
"""The only exit status that a client treats as a refusal."""
ONE_MACHINE: Final = (
    "note: the file names the Python and the Paddock of this machine; if it is committed, each "
    "other machine must install its own (for one user: --scope {})"
)
ONE_PERSON: Final = (
    "note: keep .claude/settings.local.json out of version control: it names this machine's Python"
)
NO_HOOK: Final = (
    "no hook in its settings: its built-in tools are not judged, unless a plugin installs a hook"
)


def _answer(options: Options, console: Console) -> int:
    """Answer as the installed program does, which keeps its time limit and fails closed."""
    variables = dict(console.variables)
    if options.plane is not None:
        variables["PADDOCK_PLANE"] = str(console.directory / options.plane)
    try:
        program = install.own_program()
        done = subprocess.run(
            (program.python, *program.arguments(options.client or "")),
            input=console.stdin.buffer.read(limits.hook_input_bytes_max + 1),
            env=variables,
            cwd=console.directory,
            stdout=subprocess.PIPE,
            check=True,
        )
        console.print(done.stdout.decode())
        console.stdout.flush()
    except BaseException as error:  # noqa: BLE001 - no error may let a call run undecided
        said = f"paddock hook cannot answer ({error!r}): the call is refused\n"
        with suppress(OSError):
            os.write(console.stderr.fileno(), said.encode("ascii", "replace"))
        # A normal exit would flush again, and fail with another status.
        os._exit(_REFUSED)
    return 0


def _install(options: Options, console: Console) -> Reply:
    target = _Target(options, console)
    client, scope, project = target.client, target.scope, target.project
    edit = install.plan_install(target.path, client, scope)
    if not _apply(edit, options, console):
        return _ended(edit, "nothing was changed", done=False)
    hook = project.policy.settings.hook
    if scope != "user" and hook.scratch:
        scratch.make_folder(project.root.path, ignored=hook.sandbox_ignored)
    if scope == "project":
        persons = (each for each in SCOPES_OF[client] if each != scope)
        console.warn(ONE_MACHINE.format(" or ".join(persons)))
    elif scope == "local":
        console.warn(ONE_PERSON)
    found = check_install(target.places, client, scope)
    if found.state != "installed":
        console.warn(f"note: the client will not run the hook: {found.why}")
    if client == "codex":
        for sentence in codex.CANNOT:
            console.warn(f"note: {sentence}")
        why = try_in_codex(project.root.path, command_program(), console.variables)
        save_trial(project.environment, why)
    _say_how_commands_run(project, client, console)
    said = f"{'installed' if edit.changes else 'already installed'} in {target.path}"
    return _ended(edit, said, done=True)


def _uninstall(options: Options, console: Console) -> Reply:
    target = _Target(options, console)
    client, scope, places = target.client, target.scope, target.places
    edit = install.plan_uninstall(target.path, client, scope)
    if not _apply(edit, options, console):
        return _ended(edit, "nothing was changed", done=False, elsewhere=[])
    found = [check_install(places, client, each) for each in SCOPES_OF[client] if each != scope]
    elsewhere = [each for each in found if each.state != "absent"]
    if scope != "user" and all(each.scope == "user" for each in elsewhere):
        scratch.remove_empty_folder(places.root)
    for each in elsewhere:
        console.advise(f"note: {_still_there(each)}")
    # Without --scope the user wants the hook gone; a hook left in another scope is a failure.
    done = edit.changes or options.scope is not None or not elsewhere
    said = f"{'removed from' if edit.changes else 'not installed in'} {target.path}"
    return _ended(edit, said, done=done, elsewhere=[each.as_json() for each in elsewhere])


class _Target:
    """Raises: UsageError: the client has no settings of that scope."""

    def __init__(self, options: Options, console: Console) -> None:
        self.client: Client = options.client or "claude"
        self.scope: Scope = options.scope or "project"
        self.project = find_project(options, console)
        self.places = _places(self.project, console)
        self.path = self.places.path(self.client, self.scope)


def _places(project: Project, console: Console) -> Places:
    return Places(project.root.path, environment_of(console).home, console.variables)


def _apply(edit: ClientFileEdit, options: Options, console: Console) -> bool:
    if edit.changes and not options.yes:
        console.warn(edit.shown())
        if not console.agrees("write this? [y/N] "):
            return False
    if edit.changes:
        edit.apply()
    return True


def _say_how_commands_run(project: Project, client: Client, console: Console) -> None:
    why = why_unconfined(project, client, console.variables)
    console.warn(f"note: commands of {client} {_ways_of(why)}")
    outside = project.policy.settings.hook.outside
    names = () if why else find_rarely_confined(console.variables.get("PATH", ""), outside)
    if names:
        console.warn(
            f"note: {', '.join(names)} rarely work in it; to leave them to the client's prompt: "
            f"{offered_outside(names)} in [hook] of paddock.toml"
        )


def _ways_of(why: str) -> str:
    return f"are judged as text, not confined ({why})" if why else "run in the sandbox (confine)"


def _still_there(found: InstallState) -> str:
    if not found.is_there:
        return f"cannot determine whether the hook is in {found.path}: {found.why}"
    named = "" if found.client == "claude" else f" --client {found.client}"
    line = f"paddock hook uninstall{named} --scope {found.scope}"
    return f"the hook is still in {found.path} (scope {found.scope}): {line}"


def _ended(edit: ClientFileEdit, said: str, *, done: bool, **more: Json) -> Reply:
    status, path = "ok" if done else "error", str(edit.file.path)
    value = {"status": status, "file": path, "changed": done and edit.changes, **more}
    return Reply(value, said, 0 if done else EXIT_NO)


def _status(options: Options, console: Console) -> Reply:
    project = find_project(options, console)
    places = _places(project, console)
    found = _install_states(options, places)
    denials = _denials(project)
    clients: tuple[Client, ...] = CLIENTS if options.client is None else (options.client,)
    ways = {name: why_unconfined(project, name, console.variables) for name in clients}
    notices = policy_notices(project)
    value: dict[str, Json] = {
        "installed": [each.as_json() for each in found],
        "commands": {name: why or "confine" for name, why in ways.items()},
        "notices": list(notices),
        "denials": list[Json](denials),
    }
    text = [
        f"{each.client:<7}{each.scope:<8} {each.state}{f' ({each.why})' if each.why else ''}  "
        f"{each.path}"
        for each in found
    ]
    for client in clients:
        states = {check_install(places, client, scope).state for scope in SCOPES_OF[client]}
        if states == {"absent"}:
            text.append(f"{client:<7}{NO_HOOK}")
        elif states & {"installed", "stale"}:
            # The row of a broken one gives the reason.
            text.append(f"{client:<7}commands {_ways_of(ways[client])}")
    text += [f"note: {notice}" for notice in notices]
    text.append(f"latest denials ({len(denials)}):" if denials else "no denials yet")
    for denial in denials:
        is_unasked = denial["outcome"] != denial["answer"]
        note = f" ({denial['outcome']}: {DENIED_UNASKED})" if is_unasked else ""
        text.append(
            f"  {denial['timestamp']} {denial['agent'] or '-'} {denial['tool']}: "
            f"{denial['reason']}{note}"
        )
    return Reply(value, text)


def _install_states(options: Options, places: Places) -> list[InstallState]:
    """Read each client's settings. Raises: UsageError: the named client has no such scope."""
    clients: tuple[Client, ...] = CLIENTS if options.client is None else (options.client,)
    scopes: tuple[Scope, ...] = SCOPES if options.scope is None else (options.scope,)
    is_asked = options.client is not None and options.scope is not None
    return [
        check_install(places, client, scope)
        for client in clients
        for scope in scopes
        if is_asked or scope in SCOPES_OF[client]
    ]


def _denials(project: Project) -> list[dict[str, Json]]:
    path = project.layout.ledger_paths()[LedgerName.HO1M]
    if not stands(path):
        return []
    decided = find_decided(str(path), (HOOK_DECISION,), Filter(), b'"answer":"deny"')
    denied = (
        row
        for row in decided
        if isinstance(row, StoredEntry) and row.entry.metadata.get("answer") == "deny"
    )
    return [_denial(row) for row in reversed(list(islice(denied, DENIALS_SHOWN)))]


def _denial(row: StoredEntry) -> dict[str, Json]:
    entry = row.entry
    return {
        "timestamp": row.timestamp,
        "agent": entry.agent,
        "tool": entry.metadata.get("tool", ""),
        "reason": entry.reason,
        "outcome": entry.decision,
        "answer": "deny",
        "call_id": entry.call_id,
        "seq": row.seq,
    }


def _client(whose: str) -> CommandOption:
    return opt(
        "--client",
        None,
        f"whose settings (default: {whose})",
        choices=CLIENTS,
        # The option may also come before the subcommand: `paddock hook --client`.
        default=argparse.SUPPRESS,
    )


def _scope(usual: str) -> CommandOption:
    return opt(
        "--scope",
        None,
        "the project's settings, yours in this project (local, claude only), or yours"
        f" everywhere (default: {usual})",
        choices=SCOPES,
    )


_EDITS = (_client("claude"), _scope("project"), flag("--yes", "do not ask"))

COMMAND = Command(
    "Answer one event of a client's hook: JSON in on stdin, JSON out. `install` adds the hook\n"
    "to the client's settings: every call of the client's built-in tools is then judged by\n"
    "this project's policy. It asks first, and `uninstall` restores the file as it was.",
    "  paddock hook install\n"
    "  paddock hook install --scope local\n"
    "  paddock hook install --client codex --scope user\n"
    "  paddock hook status\n"
    '  echo \'{"tool_name": "Write", "tool_input": {"file_path": "/etc/x"}}\' | paddock hook',
    opt("--client", None, "who sends the event", choices=CLIENTS),
    Part("install", "add the hook to a client's settings", _install, *_EDITS),
    Part("uninstall", "remove it from them", _uninstall, *_EDITS),
    Part("status", "show its state, and denials", _status, _client("all"), _scope("all")),
    metavar="install|uninstall|status",
    alone=_answer,
)
