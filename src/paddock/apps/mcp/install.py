"""Edit a client's configuration: Paddock's server entry, and servers moved behind the gateway."""

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from msgspec import Struct

from paddock.assembly.project import Project
from paddock.errors import ConfigError, UsageError
from paddock.plane.clients import (
    CLIENT_FILE_BYTES_MAX,
    OWN_SERVER,
    Client,
    ClientFile,
    ClientFileEdit,
    ClientScope,
    read_client_file,
    read_servers,
    servers_file,
)
from paddock.plane.json_files import parse_file, write_object
from paddock.plane.layout import path_id
from paddock.plane.trust import own_policy_path
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.load import may_be_secret
from paddock.storage import atomic
from paddock.text.json import Strict, remove_member, set_member
from paddock.text.show import quote
from paddock.values.calls import Json

NAME: Final = OWN_SERVER
_CALL_TIMEOUT_S: Final = 180
"""Longer than the time limits for an approval and for a command."""
_STARTS_IT: Final = frozenset({"command", "args"})
_HEADER: Final = f"[mcp_servers.{NAME}]"
_MADE: Final = (b"", b'{\n  "mcpServers": {}\n}\n')
"""A file that `install` created, after its entry is removed."""


def entry_for(
    client: Client, scope: ClientScope, agent: str | None, plane: Path | None
) -> dict[str, Json]:
    """Build the entry that starts the server: by its bare name in a project's shared file.

    `plane`: the plane to use wherever the client starts. None: that of the directory in which the
    client starts.
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
    """Plan to add the entry to the file, which is created if it is missing.

    In an existing entry of ours the command is set and missing members are added; other members,
    such as an environment, are kept. Raises: ConfigError, UsageError.
    """
    found = read_client_file(file, follows=scope == "user")
    return ClientFileEdit(found, with_ours(found.content, str(file), entry))


def with_ours(content: bytes | None, file: str, entry: Mapping[str, Json]) -> bytes | None:
    known = _servers_in(content, file)
    if NAME not in known:
        return with_server(content or b"", file, NAME, dict(entry))
    rows = _rows_to_set(known[NAME], entry, file)
    if not content or not rows:
        return content
    if file.endswith(".toml"):
        text = content.decode()
        ours = {**cast("dict[str, Json]", known[NAME]), **rows}
        return _required(text, _with_rows(text, rows), {**known, NAME: ours}, file, NAME)
    text = parse_file(content, file).source.decode()
    for name, value in rows.items():
        text = set_member(text, ("mcpServers", NAME, name), value)
    return text.encode()


def with_server(content: bytes, file: str, name: str, entry: Json) -> bytes:
    """Append a server whose name the file does not have yet."""
    if not file.endswith(".toml"):
        text = parse_file(content or b"{}\n", file).source.decode()
        return set_member(text, ("mcpServers", name), entry).encode()
    servers, text = _servers_in(content, file), content.decode()
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    header = f"[mcp_servers.{toml_key(name)}]\n"
    changed = text + gap + header + toml_lines(cast("dict[str, Json]", entry))
    return _required(text, changed, {**servers, name: entry}, file, name)


def without_server(content: bytes, file: str, name: str) -> bytes:
    """Raises: UsageError: the entry is written in a form that cannot be removed here."""
    if not file.endswith(".toml"):
        source = parse_file(content, file).source.decode()
        return remove_member(source, ("mcpServers", name)).encode()
    servers, text = _servers_in(content, file), content.decode()
    rest = without_table(text, f"mcp_servers.{toml_key(name)}")
    others = {each: value for each, value in servers.items() if each != name}
    return _required(text, rest, others, file, name)


def _rows_to_set(known: object, entry: Mapping[str, Json], file: str) -> dict[str, Json]:
    """Return the members of `entry` to write over the existing ones. Raises: UsageError.

    Threat: an unrelated server of the same name would be overwritten.
    """
    ours = our_entry(known)
    if ours is None:
        raise UsageError(
            f"another program is configured as the server {NAME!r}",
            where=file,
            hint="remove its entry first, if this is intended",
        )
    return {
        name: value
        for name, value in entry.items()
        if name not in ours or (name in _STARTS_IT and ours[name] != value)
    }


def _servers_in(content: bytes | None, file: str) -> dict[str, Json]:
    return read_servers(ClientFile(Path(file), content, 0))


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


def _required(before: str, text: str, servers: Mapping[str, Json], file: str, name: str) -> bytes:
    """Return the text to write. Raises: UsageError: it changes more than these servers."""
    wanted = {**tomllib.loads(before), "mcp_servers": dict(servers)}
    try:
        is_said = {"mcp_servers": {}, **tomllib.loads(text)} == wanted
    except ValueError:
        is_said = False
    if not is_said:
        by_hand = toml_lines({name: servers[name]}).rstrip() if name in servers else f"no {name}"
        raise UsageError(
            f"cannot edit {name!r} in the form in which 'mcp_servers' is written",
            where=file,
            hint=f"write it as tables, [mcp_servers.NAME], or by hand: {by_hand}",
        )
    return text.encode()


def toml_lines(rows: Mapping[str, Json]) -> str:
    return "".join(f"{toml_key(name)} = {toml_value(value)}\n" for name, value in rows.items())


def toml_key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else toml_value(name)


def toml_value(value: Json) -> str:
    if isinstance(value, list):
        return f"[{', '.join(toml_value(item) for item in cast('list[Json]', value))}]"
    if isinstance(value, dict):
        rows = cast("dict[str, Json]", value).items()
        return f"{{ {', '.join(f'{toml_key(key)} = {toml_value(each)}' for key, each in rows)} }}"
    # TOML's other values are JSON's, except for surrogate pairs.
    written = json.dumps(value, ensure_ascii=False, default=str)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in written)


def _program() -> str:
    beside = Path(sys.executable).with_name(NAME)
    return str(beside) if beside.is_file() else shutil.which(NAME) or NAME


class Elsewhere(Struct, frozen=True):
    scope: ClientScope
    file: str
    why: str = ""
    """Why the file could not be checked; empty if it has the entry."""

    def describe(self, client: Client) -> str:
        if self.why:
            return f"cannot determine whether the server is in {self.file}: {self.why}"
        line = f"paddock mcp uninstall --client {client} --scope {self.scope}"
        return f"the server is still in {self.file} (scope {self.scope}): {line}"


def plan_uninstall(file: Path, scope: ClientScope) -> ClientFileEdit:
    found = read_client_file(file, follows=scope == "user")
    known = read_servers(found).get(NAME)
    if found.content is None or known is None:
        return ClientFileEdit(found, found.content)
    if our_entry(known) is None:
        raise UsageError(
            f"another program is configured as the server {NAME!r}",
            where=str(file),
            hint="remove its entry by hand, if this is intended",
        )
    rest = without_server(found.content, str(file), NAME)
    return ClientFileEdit(found, None if rest in _MADE else rest)


def find_elsewhere(
    client: Client, scope: ClientScope, root: Path, home: Path, variables: Mapping[str, str]
) -> Sequence[Elsewhere]:
    other: ClientScope = "user" if scope == "project" else "project"
    file = servers_file(client, other, root, home, variables)
    try:
        known = read_servers(read_client_file(file, follows=other == "user")).get(NAME)
    except ConfigError as error:
        return (Elsewhere(other, str(file), error.message),)
    return () if our_entry(known) is None else (Elsewhere(other, str(file)),)


def without_table(text: str, table: str) -> str:
    """Return TOML without a table and its subtables, if they are written under headers."""
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
            # Comments and blank lines between our last line and the next table are kept.
            kept += [] if is_ours else behind
            behind = []
        if not is_ours:
            kept.append(line)
        elif said.startswith("#") or not said:
            behind.append(line)
        else:
            behind = []
    return "".join((*kept, *behind))


# Move servers behind the gateway, and back, byte for byte.
#
# Import: record both files → add the servers to the policy → remove them from the client's file.
# Export: add them to the client's file → remove them from the policy → remove the record. So each
# server is always in at least one of the files, and the next run undoes an interrupted import.

_IGNORED: Final = frozenset({"type", "required", "startup_timeout_sec", "tool_timeout_sec"})
_MOVED: Final = ("command", "url", "env", "headers")
_RUNNERS: Final = frozenset({"bunx", "npx", "pipx", "pnpx", "uv", "uvx"})
"""They download the server, so it needs the user's package registries."""
_HINT: Final = '# network = ["HOST:443"]  # hosts it may reach\n# files = "read"  # or "write"\n'


class Move(Strict, frozen=True):
    """One import: the client's file before and after, and the text added to the policy."""

    before: str
    after: str
    names: dict[str, str]
    """Each server's name in the client's file → its name in the policy."""
    added: str
    is_new: bool
    """True if the import created the policy file."""


class _Moves(Strict, frozen=True):
    moves: tuple[Move, ...] = ()


class ImportPlan(Struct, frozen=True):
    move: Move
    left: dict[str, str]
    """Servers that stay with the client, and why."""
    client: ClientFileEdit
    policy: ClientFileEdit


class Moving:
    """Moves servers between one client's file and the policy."""

    def __init__(
        self, project: Project, client: Client, scope: ClientScope, variables: Mapping[str, str]
    ) -> None:
        environment, root = project.environment, project.root
        self._client: Client = client
        self._scope: ClientScope = scope
        self._user = project.files.user
        self.file = servers_file(client, scope, root.path, environment.home, variables)
        is_users = scope == "user"
        self.policy = environment.user_config if is_users else own_policy_path(root)
        if self.policy.suffix != ".toml":
            raise ConfigError("servers can be moved only into TOML", where=str(self.policy))
        self._record = environment.paddock_home / "mcp" / f"{path_id(self.file)}.json"

    def plan_import(self) -> ImportPlan:
        """Raises: ConfigError, UsageError: a file is malformed, or has another `paddock` server."""
        self._undo_interrupted()
        found, policy = self._read(self.file), self._read(self.policy)
        names: dict[str, str] = {}
        left: dict[str, str] = {}
        after, text = found.content or b"", policy.text
        if text and not text.endswith("\n"):
            text += "\n"
        for name, entry in read_servers(found).items():
            if name == OWN_SERVER and our_entry(entry) is not None:
                continue
            try:
                names[name], table = _table_of(name, entry)
                longer = f"{text}\n{table}" if text else table
                self._require_loads(longer)
                after = without_server(after, str(self.file), name)
                text = longer
            except (ConfigError, UsageError) as problem:
                names.pop(name, None)
                left[name] = problem.message
        if not names:
            same = ClientFileEdit(found, found.content), ClientFileEdit(policy, policy.content)
            return ImportPlan(Move("", "", {}, "", is_new=False), left, *same)
        ours = entry_for(self._client, self._scope, None, None)
        after = with_ours(after, str(self.file), ours) or b""
        added = text[len(policy.text) :]
        move = Move(found.text, after.decode(), names, added, policy.content is None)
        edits = ClientFileEdit(found, after), ClientFileEdit(policy, text.encode())
        return ImportPlan(move, left, *edits)

    def _require_loads(self, text: str) -> None:
        own = PolicySource(str(self.policy), text.encode())
        user = self._user and PolicySource(str(self._user.path), self._user.content)
        load_policy(*((None, own) if self._scope == "user" else (own, user)))

    def apply(self, plan: ImportPlan) -> None:
        self._keep((*self.moves(), plan.move))
        plan.policy.apply()
        plan.client.apply()

    def plan_export(self) -> ClientFileEdit:
        """Plan to return all moved servers: the old content, if the file is unchanged since."""
        self._undo_interrupted()
        found = self._read(self.file)
        content = found.content or b""
        for move in reversed(self.moves()):
            is_same = content == move.after.encode()
            content = move.before.encode() if is_same else self._with_moved(content, move)
        return ClientFileEdit(found, content if self.moves() else found.content)

    def apply_export(self, edit: ClientFileEdit) -> None:
        edit.apply()
        while moves := self.moves():
            self._undo(moves)

    def moves(self) -> tuple[Move, ...]:
        content = atomic.read_file(self._record, CLIENT_FILE_BYTES_MAX)
        return () if content is None else parse_file(content, "").convert(_Moves).moves

    def _with_moved(self, content: bytes, move: Move) -> bytes:
        """Append each server: the file has changed since the import."""
        before = _servers_in(move.before.encode(), str(self.file))
        known = _servers_in(content, str(self.file))
        for name in move.names.keys() - known.keys():
            content = with_server(content, str(self.file), name, before[name])
        return content

    def _undo_interrupted(self) -> None:
        moves = self.moves()
        if moves and self._read(self.file).content == moves[-1].before.encode():
            self._undo(moves)

    def _undo(self, moves: tuple[Move, ...]) -> None:
        move, policy = moves[-1], self._read(self.policy)
        rest = policy.text.replace(move.added, "", 1)
        if move.added not in policy.text:
            # A table was changed since: it is removed with those changes.
            for name in move.names.values():
                rest = without_table(rest, f"mcp.servers.{name}")
        is_gone = policy.content is None or (move.is_new and not rest)
        edit = ClientFileEdit(policy, None if is_gone else rest.encode())
        if edit.changes:
            edit.apply()
        self._keep(moves[:-1])

    def _keep(self, moves: tuple[Move, ...]) -> None:
        atomic.make_directories(self._record.parent)
        atomic.require_private(self._record.parent)
        atomic.replace_file(self._record, write_object(_Moves(moves)))

    def _read(self, path: Path) -> ClientFile:
        return read_client_file(path, follows=self._scope == "user")


def _table_of(name: str, entry: Json) -> tuple[str, str]:
    """Return a server's name and table. Raises: UsageError: it has unsupported settings."""
    short = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:20].rstrip("-")
    rows = _members(entry)
    if rows.get("type", "stdio") == "sse" or not rows.pop("enabled", True):
        raise UsageError("it uses SSE, or is disabled")
    given = {key: value for key, value in rows.items() if key not in _IGNORED}
    # Codex has another name for them, and two settings that name variables.
    if headers := {**_members(given.get("headers")), **_members(given.get("http_headers"))}:
        given["headers"] = headers
        given.pop("http_headers", None)
    named = [*_members(given.get("env_http_headers"))]
    named += ["Authorization"] if given.get("bearer_token_env_var") else []
    for header, value in {**headers, **dict.fromkeys(named, "${")}.items():
        if "${" in str(value) or may_be_secret(header, str(value)):
            scheme = "Bearer " if header.lower() == "authorization" else ""
            raise UsageError(
                f"its header {quote(header)} may be a secret: give the value a name and its host "
                f"under [credentials.{short}] in your own configuration, and then: paddock mcp add "
                f'{short} --url URL --header "{header}={scheme}credential:{short}"'
            )
    if more := sorted(given.keys() - {*_MOVED, "args"}):
        raise UsageError(f"the policy has no counterpart of {more[0]}")
    if "command" not in given and "url" not in given:
        raise UsageError("it has neither a command nor a url")
    if "${" in str(given):
        raise UsageError("it contains ${…}, which only the client expands")
    if "command" in given:
        arguments = given.pop("args", [])
        if not isinstance(arguments, list):
            raise UsageError("args: expected a list")
        given["packages"] = Path(str(given["command"])).name in _RUNNERS
        given["command"] = [given["command"], *arguments]
    wanted = {name: given[name] for name in (*_MOVED, "packages") if given.get(name)}
    hint = _HINT if "command" in given else ""
    return short, f"[mcp.servers.{short}]\n{toml_lines(wanted)}{hint}"


def _members(value: Json) -> dict[str, Json]:
    return dict(cast("dict[str, Json]", value)) if isinstance(value, dict) else {}
