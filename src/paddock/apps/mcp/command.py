"""`paddock mcp`. Nothing of the SDK is loaded before a server starts."""

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from paddock.assembly.opening import open_project
from paddock.assembly.project import Project, find_project
from paddock.errors import UsageError
from paddock.plane.clients import ClientFileEdit
from paddock.plane.environment import Environment, read_environment
from paddock.plane.tokens import make_token, token_path
from paddock.text.show import quote
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.apps.mcp.install import Scope
    from paddock.apps.mcp.served import Agents

Options = argparse.Namespace

_CLIENTS: Final = ("claude", "codex")
_SCOPES: Final = ("project", "user")


class McpConsole(Protocol):
    @property
    def variables(self) -> Mapping[str, str]: ...

    @property
    def stdin(self) -> TextIO: ...

    @property
    def stdout(self) -> TextIO: ...

    @property
    def directory(self) -> Path: ...

    @property
    def is_interactive(self) -> bool: ...

    def agrees(self, question: str) -> bool:
        """Whether a person says yes. Raises: UsageError where nobody can be asked."""
        ...

    def say(self, text: str = "") -> None: ...

    def warn(self, text: str) -> None: ...

    def write_json(self, value: Json) -> None: ...


class Mcp:
    summary = (
        "Serve an agent's tools to MCP clients, on standard streams or over HTTP.\n"
        "Over HTTP a bearer token says which agent is calling; it is made at the first start."
    )
    examples = (
        "  paddock mcp install --client claude\n"
        "  paddock mcp uninstall --client claude\n"
        "  paddock mcp --agent reviewer\n"
        "  paddock mcp --http 127.0.0.1:8765\n"
        "  paddock mcp token create --agent reviewer"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--agent", metavar="NAME", help="whose tools (default: main, or admin)")
        parser.add_argument("--http", metavar="HOST:PORT", help="serve over HTTP")
        parser.add_argument(
            "--allow-remote", action="store_true", help="HOST may be reachable from elsewhere"
        )
        parser.add_argument(
            "--name", action="append", default=[], metavar="HOST", help="a name in Host to accept"
        )
        parser.add_argument(
            "--structured", action="store_true", help="answer with structured content, too"
        )
        actions = parser.add_subparsers(dest="action", metavar="install|uninstall|token")
        install = actions.add_parser("install", help="configure a client", allow_abbrev=False)
        uninstall = actions.add_parser("uninstall", help="take that out", allow_abbrev=False)
        for parsed in (install, uninstall):
            parsed.add_argument(
                "--client", required=True, choices=_CLIENTS, help="whose configuration"
            )
            parsed.add_argument(
                "--scope",
                choices=_SCOPES,
                help="the project's or yours everywhere (default: project, of codex user)",
            )
            parsed.add_argument("--yes", action="store_true", help="do not ask")
        tokens = actions.add_parser("token", help="tokens of the HTTP server", allow_abbrev=False)
        verbs = tokens.add_subparsers(dest="verb", required=True, metavar="create")
        create = verbs.add_parser("create", help="make an agent's token anew", allow_abbrev=False)
        for parsed in (install, create):
            parsed.add_argument(
                "--agent",
                default=argparse.SUPPRESS,
                metavar="NAME",
                help="whose tools (default: main, or admin)",
            )
        for parsed in (install, uninstall, create):
            parsed.add_argument(
                "--json",
                action="store_true",
                default=argparse.SUPPRESS,
                help="print one JSON value",
            )
            parsed.add_argument(
                "--plane",
                metavar="DIR",
                default=argparse.SUPPRESS,
                help="the project or bare plane",
            )

    def run(self, options: Options, console: McpConsole) -> int:
        if options.action == "install":
            return self._install(options, console)
        if options.action == "uninstall":
            return self._uninstall(options, console)
        if options.action == "token":
            return self._token(options, console)
        return self._serve(options, console)

    def _serve(self, options: Options, console: McpConsole) -> int:
        if options.http is None and (options.allow_remote or options.name):
            raise UsageError("--allow-remote and --name are for --http")
        from paddock.apps.mcp.served import Agents

        agents = Agents(partial(_open, options, console), is_structured=options.structured)
        for notice in agents.project.notices:
            console.warn(f"note: {notice}")
        if options.http is not None:
            self._serve_http(agents, options, console)
            return 0
        from paddock.apps.mcp.stdio import serve_stdio

        serve_stdio(agents, options.agent, (console.stdin, console.stdout))
        return 0

    def _serve_http(self, agents: "Agents", options: Options, console: McpConsole) -> None:
        from paddock.apps.mcp.http import Address, ensure_token, serve_http

        address = Address.parse(options.http)
        if not address.is_loopback and not options.allow_remote:
            raise UsageError(
                f"{quote(address.host)} can be reached from other machines",
                where="--http",
                hint="add --allow-remote if that is meant; the token is all that protects it",
            )
        agent = agents.project.agents.read(agents.project.agent_named(options.agent)).agent.name
        console.warn(f"token of {agent}: {ensure_token(agents.project, agent)}")
        names = frozenset(name.lower() for name in options.name)
        serve_http(agents, options.agent, address, names, console.warn)

    def _install(self, options: Options, console: McpConsole) -> int:
        from paddock.apps.mcp.install import config_file, entry_for, plan_install

        if options.agent is None:
            project = _find(options, console)
        else:
            project = _open(options, console)
            project.agents.read(options.agent)
        client, scope = options.client, _scope(options)
        home = project.environment.home
        file = config_file(client, scope, project.root.path, home, console.variables)
        is_named = scope == "user" and options.plane is not None
        plane = project.name or project.root.path
        entry = entry_for(client, scope, options.agent, plane if is_named else None)
        edit = plan_install(file, scope, entry)
        is_wanted = not edit.changes or options.yes or _agrees(edit, console)
        is_new = edit.changes and is_wanted
        if is_new:
            edit.apply()
        if options.json:
            status = "ok" if is_wanted else "error"
            shown = {"status": status, "file": str(edit.file.path), "is_new": is_new}
            console.write_json({**shown, "entry": dict(entry)})
        elif is_wanted:
            console.say(f"{'wrote' if is_new else 'stands already in'} {edit.file.path}")
        else:
            console.say("nothing was changed")
        return 0 if is_wanted else 1

    def _uninstall(self, options: Options, console: McpConsole) -> int:
        from paddock.apps.mcp.install import config_file, find_elsewhere, plan_uninstall

        project = _find(options, console)
        client, scope = options.client, _scope(options)
        root, home = project.root.path, project.environment.home
        file = config_file(client, scope, root, home, console.variables)
        edit = plan_uninstall(file, scope)
        is_wanted = not edit.changes or options.yes or _agrees(edit, console)
        if edit.changes and is_wanted:
            edit.apply()
        elsewhere = find_elsewhere(client, scope, root, home, console.variables)
        for each in elsewhere if is_wanted else ():
            console.warn(f"note: {each.describe(client)}")
        # Whoever names no scope wants it gone, and it is not.
        is_done = is_wanted and (edit.changes or options.scope is not None or not elsewhere)
        if options.json:
            shown = {"status": "ok" if is_done else "error", "file": str(edit.file.path)}
            left: list[Json] = [each.as_json() for each in elsewhere]
            changed = edit.changes and is_wanted
            console.write_json({**shown, "changed": changed, "elsewhere": left})
        elif is_wanted:
            console.say(f"{'taken out of' if edit.changes else 'is not in'} {edit.file.path}")
        else:
            console.say("nothing was changed")
        return 0 if is_done else 1

    def _token(self, options: Options, console: McpConsole) -> int:
        project = _open(options, console)
        agent = project.agents.read(project.agent_named(options.agent)).agent.name
        token = make_token(project.layout, project.environment, agent)
        file = token_path(project.layout, project.environment, agent)
        if options.json:
            console.write_json({"status": "ok", "agent": agent, "token": token, "file": str(file)})
        else:
            console.say(token)
            console.warn(f"kept at {file}; an earlier token of {agent} counts no more")
        return 0


def _scope(options: Options) -> "Scope":
    return options.scope or ("project" if options.client == "claude" else "user")


def _agrees(edit: ClientFileEdit, console: McpConsole) -> bool:
    if not console.is_interactive:
        return True
    console.warn(edit.shown())
    return console.agrees("write this? [y/N] ")


def _open(options: Options, console: McpConsole) -> Project:
    return open_project(*_where(options, console))


def _find(options: Options, console: McpConsole) -> Project:
    return find_project(*_where(options, console))


def _where(options: Options, console: McpConsole) -> tuple[Path, Environment, Path | None]:
    override = None if options.plane is None else console.directory / options.plane
    return console.directory, read_environment(console.variables), override


COMMAND = Mcp()
