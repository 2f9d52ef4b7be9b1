"""`[mcp.servers.NAME]`: other people's MCP servers behind the gateway, as a policy names them."""

import shlex
from collections.abc import Callable, Iterator
from typing import Final, get_args

from paddock.pattern import lazy_pattern
from paddock.policy.compiled import matches_text
from paddock.policy.places import PatternError, Table, Text, quote_toml
from paddock.policy.settings import McpFiles, McpRecord, McpServer
from paddock.values.decisions import Outcome

CREDENTIAL: Final = "credential:"
"""Before the name of a credential, in a value of `env`: the server has what stands for it."""
_SEES: Final = {
    "none": "sees no file of the workspace",
    "read": "reads the workspace",
    "write": "reads and writes the workspace",
}
_NAME: Final = lazy_pattern(r"[a-z][a-z0-9-]{0,19}")
_VARIABLE: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_URL: Final = lazy_pattern(
    r"(?:https://|http://(?=(?:localhost|127\.0\.0\.1|\[::1\])(?:[:/]|$)))"
    r"([^\s/?#@\\:\[\]]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?(?:/[!-\[\]-~]*)?"
)


def offers(server: McpServer, tool: str) -> bool:
    is_denied = any(matches_text(_parts(each.casefold()), tool.casefold()) for each in server.deny)
    return not is_denied and any(matches_text(_parts(each), tool) for each in server.allow)


def describe_server(server: McpServer) -> str:
    """Return all that it is given, for a person who is asked about it."""
    what = f"runs {shlex.join(server.command)}"
    kept = [f"{each} of arguments is not recorded" for each in server.redact]
    if server.record == "digest":
        kept = ["of arguments a digest is recorded"]
    if server.url:
        return "; ".join((f"is reached at {server.url}", *kept))
    network = f"reaches {', '.join(server.network) or 'nothing'}"
    variables = (f"has {name}={value}" for name, value in server.env)
    return "; ".join((what, network, *variables, _SEES[server.files], *kept))


def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("*"))


def net_action(text: str) -> str:
    """Return an entry of `network` as the action of a rule."""
    return f"tool:net:{'request' if ' ' in text.strip() else 'connect'} {text}"


def read_servers(table: Table, base: tuple[McpServer, ...]) -> tuple[McpServer, ...]:
    """Read `[mcp.servers]`: one that is given replaces the one of its name whole."""
    found = {each.name: each for each in base}
    for name in table.names():
        entry = table.table(name)
        if entry is None:
            continue
        if _NAME.fullmatch(name) is None:
            said = f"{quote_toml(name)} is no name of a server"
            table.problem(name, said, "write 1 to 20 of a-z, 0-9 and -, a letter first")
        found[name] = _read_server(name, entry)
    return tuple(found.values())


def _read_server(name: str, entry: Table) -> McpServer:
    tools = entry.table("tools") or Table(entry.report, (*entry.key, "tools"), {})
    allow, deny = tools.strings("allow"), tools.strings("deny") or ()
    tools.finish()
    server = McpServer(
        name,
        command=entry.strings("command") or (),
        url=_read_url(entry),
        env=tuple(_read_env(entry)),
        network=tuple(_read_texts(entry, "network", _require_rule)),
        files=entry.word("files", get_args(McpFiles)),
        allow=("*",) if allow is None else allow,
        deny=deny,
        record=entry.word("record", get_args(McpRecord)),
        redact=tuple(_read_texts(entry, "redact", _require_pointer)),
    )
    entry.finish()
    if entry.has("command") is entry.has("url"):
        said = f"{entry.title} names not exactly one of command and url"
        entry.problem("command", said, 'as command = ["npx", "-y", "some-server"]')
    for given in ("env", "network", "files"):
        if entry.has("url") and entry.has(given):
            said = f"{given} stands in {entry.title} beside a url: no process is started"
            entry.problem(given, said, "leave it out; the url is all that is reached")
    return server


def _read_url(entry: Table) -> str:
    url = entry.string("url")
    found = _URL.fullmatch(url)
    if url and (found is None or int(found[2] or 443) not in range(1, 65_536)):
        # Threat: a name and a password in it would stand in every message.
        said = f"url in {entry.title} is no https address without a user, a ? or a #"
        entry.problem("url", said, "write https://HOST[:PORT]/PATH; http only to localhost")
    return url


def _read_env(entry: Table) -> Iterator[tuple[str, str]]:
    variables = entry.table("env")
    for name in () if variables is None else variables.names():
        value = variables.string(name) if variables is not None else ""
        if _VARIABLE.fullmatch(name) is None or "\0" in value or value == CREDENTIAL:
            said = f"env in {entry.title} gives {quote_toml(name)} no value that it can have"
            entry.problem("env", said, f'as ISSUES_TOKEN = "{CREDENTIAL}issues"')
        yield name, value


def _read_texts(entry: Table, name: str, require: Callable[[Text], object]) -> Iterator[str]:
    for text in entry.texts(name) or ():
        try:
            require(text)
        except PatternError as problem:
            entry.report.add_at(text.place, problem)
        yield text.text


def _require_rule(text: Text) -> None:
    # Rules stand above settings, which name these servers.
    from paddock.policy.rules import compile_rule  # noqa: PLC0415 - late on purpose

    compile_rule(net_action(text.text), Outcome.ALLOW, "network", text.place)


def _require_pointer(text: Text) -> None:
    from paddock.policy.arguments import parse_pointer  # noqa: PLC0415 - as above

    parse_pointer(text.text)
