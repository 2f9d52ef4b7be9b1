"""`[mcp.servers.NAME]`: other people's MCP servers behind the gateway, as a policy names them."""

import shlex
from typing import Final

from paddock.pattern import lazy_pattern
from paddock.policy.compiled import matches_text
from paddock.policy.places import NonEmpty, Reader, Table, Text, quote_toml
from paddock.policy.settings import McpServer
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
    is_denied = any(
        matches_text(_parts(each.casefold()), tool.casefold()) for each in server.tools.deny
    )
    return not is_denied and any(matches_text(_parts(each), tool) for each in server.tools.allow)


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
    for name, entry in table.each():
        if _NAME.fullmatch(name) is None:
            said = f"{quote_toml(name)} is no name of a server"
            table.problem(name, said, "write 1 to 20 of a-z, 0-9 and -, a letter first")
        found[name] = entry.fill(McpServer(name), _READERS)
        if entry.has("command") is entry.has("url"):
            said = f"{entry.title} names not exactly one of command and url"
            entry.problem("command", said, 'as command = ["npx", "-y", "some-server"]')
        for given in ("env", "network", "files"):
            if entry.has("url") and entry.has(given):
                said = f"{given} stands in {entry.title} beside a url: no process is started"
                entry.problem(given, said, "leave it out; the url is all that is reached")
    return tuple(found.values())


def _read_url(entry: Table, name: str) -> str:
    url: str = entry.read(name, NonEmpty, "")
    found = _URL.fullmatch(url)
    if url and (found is None or int(found[2] or 443) not in range(1, 65_536)):
        # Threat: a name and a password in it would stand in every message.
        said = f"url in {entry.title} is no https address without a user, a ? or a #"
        entry.problem("url", said, "write https://HOST[:PORT]/PATH; http only to localhost")
    return url


def _read_env(entry: Table, name: str) -> tuple[tuple[str, str], ...]:
    variables = entry.table(name)
    if variables is None:
        return ()
    found = tuple((each, variables.read(each, NonEmpty, "")) for each in variables.names())
    for each, value in found:
        if _VARIABLE.fullmatch(each) is None or value == CREDENTIAL:
            said = f"env in {entry.title} gives {quote_toml(each)} no value that it can have"
            entry.problem("env", said, f'as ISSUES_TOKEN = "{CREDENTIAL}issues"')
    return found


def _parse_network(given: Text) -> str:
    # Rules stand above settings, which name these servers.
    from paddock.policy.rules import compile_rule  # noqa: PLC0415 - late on purpose

    compile_rule(net_action(given.text), Outcome.ALLOW, "network", given.place)
    return given.text


def _parse_redacted(given: Text) -> str:
    from paddock.policy.arguments import parse_pointer  # noqa: PLC0415 - as above

    parse_pointer(given.text)
    return given.text


_READERS: Final[dict[str, Reader]] = {
    "url": _read_url,
    "env": _read_env,
    "network": lambda table, name: table.parsed(name, _parse_network),
    "redact": lambda table, name: table.parsed(name, _parse_redacted),
}
