"""`paddock mcp`. The SDK is loaded only when a server starts."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import to_builtins

from paddock.apps import command
from paddock.apps.console import EXIT_NO, Console
from paddock.assembly.project import Project
from paddock.assembly.project_open import open_project
from paddock.errors import UsageError
from paddock.plane.clients import ClientFileEdit, ClientScope, servers_file
from paddock.plane.tokens import make_token, read_token, token_path
from paddock.text.show import quote, show_name
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.apps.mcp.agents import Agents
    from paddock.apps.mcp.install import Moving


def _serve(options: command.Options, console: Console) -> int:
    if options.http is None and (options.allow_remote or options.name):
        raise UsageError("--allow-remote and --name are for --http")
    from paddock.apps.mcp.agents import Agents

    opened = partial(open_project, *command.where(options, console))
    agents = Agents(opened, is_structured=options.structured)
    for notice in agents.project.notices:
        console.warn(f"note: {notice}")
    if options.http is not None:
        _serve_http(agents, options, console)
        return 0
    from paddock.apps.mcp.stdio import serve_stdio

    serve_stdio(agents, options.agent, (console.stdin, console.stdout))
    return 0


def _serve_http(agents: "Agents", options: command.Options, console: Console) -> None:
    from paddock.apps.mcp.http import Address, serve_http

    address = Address.parse(options.http)
    if not address.is_loopback and not options.allow_remote:
        raise UsageError(
            f"{quote(address.host)} can be reached from other machines",
            where="--http",
            hint="add --allow-remote if this is intended; only the token protects the server",
        )
    agent = _agent_of(agents.project, options)
    mine = agents.project.layout, agents.project.environment, agent
    if read_token(*mine) is None:
        make_token(*mine)
    console.warn(f"token of {agent}: {token_path(*mine)}")
    names = frozenset(name.lower() for name in options.name)
    serve_http(agents, options.agent, address, names, console.warn)


def _install(options: command.Options, console: Console) -> command.Reply:
    from paddock.apps.mcp.install import entry_for, plan_install

    if options.agent is None:
        project = command.find_project(options, console)
    else:
        project = open_project(*command.where(options, console))
        project.agents.read(options.agent)
    client, scope = options.client, _scope(options)
    home = project.environment.home
    file = servers_file(client, scope, project.root.path, home, console.variables)
    is_named = scope == "user" and options.plane is not None
    plane = project.name or project.root.path
    entry = entry_for(client, scope, options.agent, plane if is_named else None)
    edit = plan_install(file, scope, entry)
    is_wanted = _apply(edit, options, console)
    is_new = edit.changes and is_wanted
    said = f"{'wrote' if is_new else 'already installed in'} {edit.file.path}"
    value: Json = {"file": str(edit.file.path), "is_new": is_new, "entry": entry}
    return _replied(value, said, is_wanted=is_wanted)


def _uninstall(options: command.Options, console: Console) -> command.Reply:
    from paddock.apps.mcp.install import find_elsewhere, plan_uninstall

    project = command.find_project(options, console)
    client, scope = options.client, _scope(options)
    root, home = project.root.path, project.environment.home
    edit = plan_uninstall(servers_file(client, scope, root, home, console.variables), scope)
    is_wanted = _apply(edit, options, console)
    elsewhere = find_elsewhere(client, scope, root, home, console.variables)
    for each in elsewhere if is_wanted else ():
        console.advise(f"note: {each.describe(client)}")
    # Without --scope the user wants the entry gone; one left in another scope is a failure.
    is_done = is_wanted and (edit.changes or options.scope is not None or not elsewhere)
    value: Json = {"file": str(edit.file.path), "changed": edit.changes and is_wanted}
    value["elsewhere"] = to_builtins(elsewhere)
    said = f"{'removed from' if edit.changes else 'not installed in'} {edit.file.path}"
    return _replied(value, said, is_wanted=is_wanted, is_done=is_done)


def _import(options: command.Options, console: Console) -> command.Reply:
    moving = _moving(options, console)
    plan = moving.plan_import()
    for name, why in plan.left.items():
        console.warn(f"note: {show_name(name)} stays with the client: {show_name(why)}")
    is_wanted = _agrees((plan.policy, plan.client), options, console)
    if is_wanted and plan.move.names:
        moving.apply(plan)
    names = plan.move.names if is_wanted else {}
    said = f"moved {', '.join(names.values()) or 'nothing'} into {moving.policy}"
    if names:
        said += "; check what they may reach, then: paddock trust, and paddock mcp review"
    return _replied({"moved": names, "left": plan.left}, said, is_wanted=is_wanted)


def _export(options: command.Options, console: Console) -> command.Reply:
    moving = _moving(options, console)
    edit = moving.plan_export()
    names = [name for move in moving.moves() for name in move.names]
    is_wanted = _agrees((edit,), options, console)
    if is_wanted and names:
        moving.apply_export(edit)
    said = f"moved {', '.join(map(show_name, names)) or 'nothing'} back into {moving.file}"
    return _replied({"moved": names if is_wanted else []}, said, is_wanted=is_wanted)


def _replied(value: Json, said: str, *, is_wanted: bool, is_done: bool = True) -> command.Reply:
    is_ok = is_wanted and is_done
    status = "ok" if is_ok else "error"
    shown = said if is_wanted else "nothing was changed"
    return command.Reply({"status": status, **value}, shown, 0 if is_ok else EXIT_NO, is_ours=True)


def _moving(options: command.Options, console: Console) -> "Moving":
    from paddock.apps.mcp.install import Moving

    project = command.find_project(options, console)
    return Moving(project, options.client, _scope(options), console.variables)


def _token(options: command.Options, console: Console) -> command.Reply:
    project = open_project(*command.where(options, console))
    agent = _agent_of(project, options)
    mine = project.layout, project.environment, agent
    token, file = make_token(*mine), token_path(*mine)
    if not options.json:
        console.warn(f"saved to {file}; an earlier token of {agent} is no longer valid")
    return command.Reply({"status": "ok", "agent": agent, "token": token, "file": str(file)}, token)


def _agent_of(project: Project, options: command.Options) -> str:
    return project.agents.read(project.agent_named(options.agent)).agent.name


def _scope(options: command.Options) -> ClientScope:
    return options.scope or ("project" if options.client == "claude" else "user")


def _apply(edit: ClientFileEdit, options: command.Options, console: Console) -> bool:
    is_wanted = _agrees((edit,), options, console)
    if edit.changes and is_wanted:
        edit.apply()
    return is_wanted


def _agrees(edits: Sequence[ClientFileEdit], options: command.Options, console: Console) -> bool:
    changing = [each for each in edits if each.changes]
    if not changing or options.yes or not console.is_interactive:
        return True
    for each in changing:
        console.warn(each.shown())
    return console.agrees("write this? [y/N] ")


_WHOSE = "the agent to serve (default: main, or admin)"
_AGENT = command.opt("--agent", "NAME", _WHOSE)
# The option may also come before the subcommand: `paddock mcp --agent`.
_AGENT_HERE = command.opt("--agent", "NAME", _WHOSE, default=argparse.SUPPRESS)
_EDITS = (
    command.opt(
        "--client", None, "whose configuration", required=True, choices=("claude", "codex")
    ),
    command.opt(
        "--scope",
        None,
        "the project's, or yours everywhere (default: project; for codex: user)",
        choices=("project", "user"),
    ),
    command.flag("--yes", "do not ask"),
)

_REVIEWS = (_AGENT_HERE, command.flag("--yes", "do not ask"))

COMMAND = command.Command(
    "Serve an agent's tools to MCP clients, on standard streams or over HTTP.\n"
    "Over HTTP a bearer token identifies the calling agent; it is created at the first start.",
    "  paddock mcp install --client claude\n"
    "  paddock mcp uninstall --client claude\n"
    "  paddock mcp import --client claude\n"
    "  paddock mcp --agent reviewer\n"
    "  paddock mcp --http 127.0.0.1:8765\n"
    "  paddock mcp token create --agent reviewer\n"
    "  paddock mcp add issues --network api.example.org:443 -- npx -y some-server\n"
    "  paddock mcp review issues",
    _AGENT,
    command.opt("--http", "HOST:PORT", "serve over HTTP"),
    command.flag("--allow-remote", "HOST may be reachable from other machines"),
    command.opt("--name", "HOST", "a host name to accept", action="append", default=[]),
    command.flag("--structured", "also answer with structured content"),
    command.Part("install", "configure a client", _install, *_EDITS, _AGENT_HERE),
    command.Part("uninstall", "remove that", _uninstall, *_EDITS),
    command.Part("import", "move a client's servers behind the gateway", _import, *_EDITS),
    command.Part("export", "move them back, byte for byte", _export, *_EDITS),
    command.Part(
        "token",
        "create a new token of an agent for the HTTP server",
        _token,
        command.opt("verb", "create", choices=("create",)),
        _AGENT_HERE,
    ),
    command.Part(
        "add",
        "add another MCP server behind the gateway",
        command.loaded("mcp.review:add_server"),
        *_REVIEWS,
        command.opt("--url", "URL", "the server's address"),
        command.opt("--network", "HOST:PORT", "a host it may reach", action="append", default=[]),
        command.flag("--packages", "it may also reach the hosts of your package clients"),
        command.opt(
            "--addresses", "CIDR", "the hosts' addresses, if private", action="append", default=[]
        ),
        command.opt("--env", "NAME=VALUE", "or NAME=credential:NAME", action="append", default=[]),
        command.opt(
            "--header",
            "NAME=VALUE",
            'sent to the URL: a text, credential:NAME or "Bearer credential:NAME"',
            action="append",
            default=[],
        ),
        command.opt(
            "--files", None, "its access to the workspace", choices=("none", "read", "write")
        ),
        command.opt("server", "NAME", "its name in the policy"),
        command.opt("command", "COMMAND", "the command to run, after --", nargs="*"),
    ),
    command.Part(
        "review",
        "review the definitions of other servers, and offer exactly those",
        command.loaded("mcp.review:review"),
        *_REVIEWS,
        command.opt("server", "NAME", "one of them (default: all)", nargs="*"),
    ),
    metavar="install|uninstall|import|export|token|add|review",
    alone=_serve,
)
