"""The server in a client's own configuration file: our entry, and nothing else."""

import json
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from msgspec import Struct

from paddock.errors import ConfigError, UsageError
from paddock.plane.clients import (
    OWN_SERVER,
    Client,
    ClientFile,
    ClientFileEdit,
    ClientScope,
    read_client_file,
    read_servers,
    servers_file,
)
from paddock.plane.json_files import parse_file
from paddock.text.json import remove_member, set_member
from paddock.values.calls import Json

NAME: Final = OWN_SERVER
_CALL_TIMEOUT_S: Final = 180
"""Longer than a person may take to answer, and than a command may run."""
_STARTS_IT: Final = frozenset({"command", "args"})
_HEADER: Final = f"[mcp_servers.{NAME}]"
_MADE: Final = (b"", b'{\n  "mcpServers": {}\n}\n')
"""What an installation leaves of a file that it makes, without its entry."""


def entry_for(
    client: Client, scope: ClientScope, agent: str | None, plane: Path | None
) -> dict[str, Json]:
    """How the client starts the server: by its bare name in a file that others share.

    `plane` is the absolute path of the one that is meant wherever the client is started;
    None for whichever it is started in, as with every file that lies in the project itself.
    """
    entry: dict[str, Json] = {
        "command": NAME if scope == "project" else _program(),
        "args": [
            "mcp",
            *([] if agent is None else ["--agent", agent]),
            *([] if plane is None else ["--plane", str(plane)]),
        ],
    }
    if client == "codex":
        # Without `required` a first request may go out before the tools are known.
        entry |= {"required": True, "tool_timeout_sec": _CALL_TIMEOUT_S}
    return entry


def our_entry(known: object) -> dict[str, Json] | None:
    if not isinstance(known, dict):
        return None
    entry = cast("dict[str, Json]", known)
    command, arguments = entry.get("command"), entry.get("args")
    if not isinstance(command, str) or not isinstance(arguments, list):
        return None
    words = cast("list[Json]", arguments)
    return entry if Path(command).name == NAME and words[:1] == ["mcp"] else None


def plan_install(file: Path, scope: ClientScope, entry: Mapping[str, Json]) -> ClientFileEdit:
    """Plan the entry into the file, which is made if it is missing.

    Of an entry of ours that stands there, what starts the server is set, what is missing is added,
    and the rest stays: an environment, a time limit. Raises: ConfigError, UsageError.
    """
    found = read_client_file(file, follows=scope == "user")
    return ClientFileEdit(found, with_ours(found.content, str(file), entry))


def with_ours(content: bytes | None, file: str, entry: Mapping[str, Json]) -> bytes | None:
    known = _servers_in(content or b"", file)
    if NAME not in known:
        return with_server(content or b"", file, NAME, dict(entry))
    rows = _rows_to_set(known[NAME], entry, file)
    if not rows:
        return content
    if file.endswith(".toml"):
        text, values = _read_toml(content or b"", file)
        wanted = {**cast("dict[str, Json]", known[NAME]), **rows}
        return _required(_with_rows(text, rows), values, {**known, NAME: wanted}, file, NAME)
    text = parse_file(content or b"", file).source.decode()
    for name, value in rows.items():
        text = set_member(text, ("mcpServers", NAME, name), value)
    return text.encode()


def with_server(content: bytes, file: str, name: str, entry: Json) -> bytes:
    """Put a server, of a name that is not there, behind what stands there."""
    if not file.endswith(".toml"):
        text = parse_file(content or b"{}\n", file).source.decode()
        return set_member(text, ("mcpServers", name), entry).encode()
    text, values = _read_toml(content, file)
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    header = f"[mcp_servers.{toml_key(name)}]\n"
    changed = text + gap + header + toml_lines(cast("dict[str, Json]", entry))
    return _required(changed, values, {**_toml_servers(values), name: entry}, file, name)


def without_server(content: bytes, file: str, name: str) -> bytes:
    """Raises: UsageError: its entry is written so that it cannot be taken out here."""
    if not file.endswith(".toml"):
        source = parse_file(content, file).source.decode()
        return remove_member(source, ("mcpServers", name)).encode()
    text, values = _read_toml(content, file)
    rest = without_table(text, f"mcp_servers.{toml_key(name)}")
    others = {each: value for each, value in _toml_servers(values).items() if each != name}
    return _required(rest, values, others, file, name)


def _rows_to_set(known: object, entry: Mapping[str, Json], file: str) -> dict[str, Json]:
    """What of `entry` has to be written over what stands there. Raises: UsageError.

    Threat: a server of somebody else's by the same name would be gone for good.
    """
    ours = our_entry(known)
    if ours is None:
        raise UsageError(
            f"another server {NAME!r} is configured",
            where=file,
            hint="remove its entry first, if that is meant",
        )
    return {
        name: value
        for name, value in entry.items()
        if name not in ours or (name in _STARTS_IT and ours[name] != value)
    }


def _servers_in(content: bytes, file: str) -> dict[str, Json]:
    if file.endswith(".toml"):
        return _toml_servers(_read_toml(content, file)[1])
    return read_servers(ClientFile(Path(file), content, 0))


def _read_toml(content: bytes, file: str) -> tuple[str, dict[str, Json]]:
    try:
        text = content.decode()
        return text, tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"the file is not TOML: {error}", where=file) from None


def _toml_servers(values: Mapping[str, Json]) -> dict[str, Json]:
    servers = values.get("mcp_servers")
    return cast("dict[str, Json]", servers) if isinstance(servers, dict) else {}


def _with_rows(text: str, rows: Mapping[str, Json]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    written = toml_lines(rows).replace("\n", newline)
    kept: list[str] = []
    is_ours = False
    for line in text.splitlines(keepends=True):
        said = line.strip()
        if said.startswith("["):
            is_ours = said.startswith(_HEADER)
            kept += [line, written] if is_ours else [line]
        elif not is_ours or said.partition("=")[0].rstrip() not in rows:
            kept.append(line)
    return "".join(kept)


def _required(
    text: str, values: Mapping[str, Json], servers: Mapping[str, Json], file: str, name: str
) -> bytes:
    """Return what is to be written, if it says what the file says with just these servers."""
    wanted = {**values, "mcp_servers": dict(servers)}
    try:
        is_said = {"mcp_servers": {}, **tomllib.loads(text)} == wanted
    except ValueError:
        is_said = False
    if not is_said:
        by_hand = toml_lines({name: servers[name]}).rstrip() if name in servers else f"no {name}"
        raise UsageError(
            f"'mcp_servers' is written so that {name!r} cannot be set or taken out in it",
            where=file,
            hint=f"write it as tables, [mcp_servers.NAME], or by hand: {by_hand}",
        )
    return text.encode()


def toml_lines(rows: Mapping[str, Json]) -> str:
    return "".join(f"{toml_key(name)} = {toml_value(value)}\n" for name, value in rows.items())


def toml_key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else _toml_text(name)


def toml_value(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(item) for item in cast('list[Json]', value))}]"
    if isinstance(value, dict):
        rows = cast("dict[str, Json]", value).items()
        return f"{{ {', '.join(f'{toml_key(key)} = {toml_value(each)}' for key, each in rows)} }}"
    return str(value) if isinstance(value, int | float) else _toml_text(str(value))


def _toml_text(text: str) -> str:
    # TOML's basic strings are JSON's, but for what is written by pairs of surrogates.
    written = json.dumps(text, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in written)


def _program() -> str:
    beside = Path(sys.executable).with_name(NAME)
    return str(beside) if beside.is_file() else shutil.which(NAME) or NAME


class Elsewhere(Struct, frozen=True):
    scope: ClientScope
    file: Path
    why: str = ""
    """Why nobody can tell; empty where it stands there."""

    def describe(self, client: Client) -> str:
        if self.why:
            return f"nobody can tell whether it stands in {self.file}: {self.why}"
        line = f"paddock mcp uninstall --client {client} --scope {self.scope}"
        return f"it stands in {self.file} (scope {self.scope}): {line}"

    def as_json(self) -> dict[str, Json]:
        return {"scope": self.scope, "file": str(self.file), "why": self.why}


def plan_uninstall(file: Path, scope: ClientScope) -> ClientFileEdit:
    found = read_client_file(file, follows=scope == "user")
    known = _find_entry(found)
    if found.content is None or known is None:
        return ClientFileEdit(found, found.content)
    if our_entry(known) is None:
        raise UsageError(
            f"the server {NAME!r} that is configured is another program",
            where=str(file),
            hint="take its entry out by hand, if that is meant",
        )
    rest = without_server(found.content, str(file), NAME)
    return ClientFileEdit(found, None if rest in _MADE else rest)


def find_elsewhere(
    client: Client, scope: ClientScope, root: Path, home: Path, variables: Mapping[str, str]
) -> Sequence[Elsewhere]:
    other: ClientScope = "user" if scope == "project" else "project"
    file = servers_file(client, other, root, home, variables)
    try:
        known = _find_entry(read_client_file(file, follows=other == "user"))
    except ConfigError as error:
        return (Elsewhere(other, file, error.message),)
    return () if our_entry(known) is None else (Elsewhere(other, file),)


def _find_entry(found: ClientFile) -> Json:
    return read_servers(found).get(NAME)


def without_table(text: str, table: str) -> str:
    """Return TOML without a table and those below it, where they stand under their headers."""
    headers = f"[{table}]", f"[{table}."
    kept: list[str] = []
    is_ours = False
    behind: list[str] = []
    for line in text.splitlines(keepends=True):
        said = line.strip()
        if said.startswith("["):
            was_ours, is_ours = is_ours, said.startswith(headers)
            if is_ours and not was_ours and kept and not kept[-1].strip():
                kept.pop()
            # What stands between our last line and the next table is not ours.
            kept += [] if is_ours else behind
            behind = []
        if not is_ours:
            kept.append(line)
        elif said.startswith("#") or not said:
            behind.append(line)
        else:
            behind = []
    return "".join((*kept, *behind))
