"""The server in a client's own configuration file: our entry, and nothing else."""

import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, cast

from paddock.errors import ConfigError, UsageError
from paddock.plane.client_files import Edit, read_client_file
from paddock.plane.client_homes import CLAUDE, CODEX
from paddock.plane.strict_json import parse_object
from paddock.text.json_edit import set_member
from paddock.text.show import quote
from paddock.values.calls import Json

Client = Literal["claude", "codex"]
Scope = Literal["project", "user"]

NAME: Final = "paddock"
_CALL_TIMEOUT_S: Final = 180
"""Longer than a person may take to answer, and than a command may run."""


def config_file(
    client: Client, scope: Scope, root: Path, home: Path, variables: Mapping[str, str]
) -> Path:
    """The file in which a client looks for servers."""
    if client == "claude":
        if scope == "project":
            return root / ".mcp.json"
        return Path(variables.get(CLAUDE.variable) or home) / ".claude.json"
    if scope == "project":
        return root / CODEX.folder / "config.toml"
    return Path(CODEX.of_user(str(home), variables)) / "config.toml"


def entry_for(client: Client, scope: Scope, agent: str | None) -> dict[str, Json]:
    """How the client starts the server: by its bare name in a file that others share."""
    entry: dict[str, Json] = {
        "command": NAME if scope == "project" else _program(),
        "args": ["mcp", *([] if agent is None else ["--agent", agent])],
    }
    if client == "codex":
        # Without `required` a first request may go out before the tools are known.
        entry |= {"required": True, "tool_timeout_sec": _CALL_TIMEOUT_S}
    return entry


def plan_install(file: Path, scope: Scope, entry: Mapping[str, Json]) -> Edit:
    """Plan the entry into the file, which is made if it is missing.

    Raises: ConfigError: the file does not load. UsageError: another entry stands there in
        a form that only a person can change.
    """
    found = read_client_file(file, follows=scope == "user")
    write = _toml if file.suffix == ".toml" else _json
    changed = write(found.content or b"", str(file), entry)
    return Edit(found, found.content if changed is None else changed)


def _json(content: bytes, file: str, entry: Mapping[str, Json]) -> bytes | None:
    found = parse_object(content or b"{}\n", file)
    servers = found.table("mcpServers").members
    if servers.get(NAME) == dict(entry):
        return None
    text = found.source.decode("utf-8")
    return set_member(text, ("mcpServers", NAME), dict(entry)).encode("utf-8")


def _toml(content: bytes, file: str, entry: Mapping[str, Json]) -> bytes | None:
    try:
        values = tomllib.loads(content.decode("utf-8"))
    except ValueError as error:
        raise ConfigError(f"the file is not TOML: {error}", where=file) from None
    servers = cast("object", values.get("mcp_servers", {}))
    known = cast("dict[str, object]", servers).get(NAME) if isinstance(servers, dict) else servers
    if known == dict(entry):
        return None
    if known is not None and isinstance(servers, dict):
        raise UsageError(
            f"another server {NAME!r} is configured", where=file, hint="remove its entry first"
        )
    rows = [
        f"[mcp_servers.{NAME}]",
        *(f"{name} = {_value(value)}" for name, value in entry.items()),
    ]
    gap = "" if not content else "\n" if content.endswith(b"\n") else "\n\n"
    changed = content + f"{gap}{chr(10).join(rows)}\n".encode()
    if not _adds(changed, values, entry):
        raise UsageError(
            "'mcp_servers' is written so that no table can be added to it",
            where=file,
            hint=f"write it as tables, [mcp_servers.NAME], or add by hand: {'; '.join(rows)}",
        )
    return changed


def _adds(changed: bytes, values: Mapping[str, object], entry: Mapping[str, Json]) -> bool:
    """Whether the file says what it said, and our entry."""
    try:
        found = tomllib.loads(changed.decode("utf-8"))
    except ValueError:
        return False
    servers = found.get("mcp_servers")
    if not isinstance(servers, dict):
        return False
    others = {**cast("dict[str, object]", servers)}
    is_there = others.pop(NAME, None) == dict(entry)
    return is_there and {**found, "mcp_servers": others} == {"mcp_servers": {}, **values}


def _value(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in cast('list[Json]', value))}]"
    return str(value) if isinstance(value, int) else _toml_text(str(value))


def _toml_text(text: str) -> str:
    if not text.isprintable():
        raise UsageError(f"{quote(text)} cannot stand in the file")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _program() -> str:
    """The absolute path of this installation's program."""
    beside = Path(sys.executable).with_name(NAME)
    return str(beside) if beside.is_file() else shutil.which(NAME) or NAME
