"""Servers of a client's configuration moved behind the gateway, and back, byte for byte.

Sequence: what both files were on record → servers in the policy → out of the client's file. Back:
into the client's file → out of the policy → off the record. So a server stands in one of the two at
every moment, and whoever comes next finds a move that was stopped and takes it back.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from msgspec import Struct

from paddock.apps.mcp.install import (
    entry_for,
    our_entry,
    toml_lines,
    with_ours,
    with_server,
    without_server,
    without_table,
)
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
from paddock.storage import atomic
from paddock.text.json import Strict
from paddock.values.calls import Json

_IGNORED: Final = frozenset({"type", "required", "startup_timeout_sec", "tool_timeout_sec"})
_HINT: Final = '# network = ["HOST:443"]  # what it may reach\n# files = "read"  # or "write"\n'


class Move(Strict, frozen=True):
    """One import: both files before it, the client's after it, and what the policy got."""

    before: str
    after: str
    names: dict[str, str]
    """Of each server: the client's name for it, and the policy's."""
    added: str
    is_new: bool
    """Whether the policy's file was made for it."""


class _Moves(Strict, frozen=True):
    moves: tuple[Move, ...] = ()


class ImportPlan(Struct, frozen=True):
    move: Move
    left: dict[str, str]
    """Servers that stay with the client, and why."""
    client: ClientFileEdit
    policy: ClientFileEdit


class Moving:
    """One client's file, and the policy that its servers move into."""

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
            raise ConfigError("servers are moved into TOML alone", where=str(self.policy))
        self._record = environment.paddock_home / "mcp" / f"{path_id(self.file)}.json"

    def plan_import(self) -> ImportPlan:
        """Raises: ConfigError, UsageError: a file is not understood, or names a server as ours."""
        self._take_back_stopped()
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
        """Plan the client's file with all that was moved; as it was, if nobody changed it since."""
        self._take_back_stopped()
        found = self._read(self.file)
        content = found.content or b""
        for move in reversed(self.moves()):
            is_same = content == move.after.encode()
            content = move.before.encode() if is_same else self._with_moved(content, move)
        return ClientFileEdit(found, content if self.moves() else found.content)

    def apply_export(self, edit: ClientFileEdit) -> None:
        edit.apply()
        while moves := self.moves():
            self._take_back(moves)

    def moves(self) -> tuple[Move, ...]:
        content = atomic.read_file(self._record, CLIENT_FILE_BYTES_MAX)
        return () if content is None else parse_file(content, "").convert(_Moves).moves

    def _with_moved(self, content: bytes, move: Move) -> bytes:
        """Put each server behind what stands there: somebody changed the file since."""
        before = read_servers(ClientFile(self.file, move.before.encode(), 0))
        known = read_servers(ClientFile(self.file, content, 0))
        for name in move.names.keys() - known.keys():
            content = with_server(content, str(self.file), name, before[name])
        return content

    def _take_back_stopped(self) -> None:
        moves = self.moves()
        if moves and self._read(self.file).content == moves[-1].before.encode():
            self._take_back(moves)

    def _take_back(self, moves: tuple[Move, ...]) -> None:
        move, policy = moves[-1], self._read(self.policy)
        rest = policy.text.replace(move.added, "", 1)
        if move.added not in policy.text:
            # Somebody has changed a table since: it goes with what they wrote into it.
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
    """Return a server's name and table. Raises: UsageError: it has what ours has not."""
    short = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:20].rstrip("-")
    rows = dict(cast("dict[str, Json]", entry)) if isinstance(entry, dict) else {}
    if rows.get("type", "stdio") == "sse" or not rows.pop("enabled", True):
        raise UsageError("it is reached by SSE, or turned off")
    given = {key: value for key, value in rows.items() if key not in _IGNORED}
    if more := sorted(given.keys() - {"command", "args", "env", "url"}):
        raise UsageError(f"{more[0]} has no counterpart")
    if "command" not in given and "url" not in given:
        raise UsageError("it has neither a command nor a url")
    if "${" in str(given):
        raise UsageError("the client fills in ${…}")
    if "command" in given:
        given["command"] = [given["command"], *given.pop("args", [])]
    wanted = {name: given[name] for name in ("command", "url", "env") if given.get(name)}
    return short, f"[mcp.servers.{short}]\n{toml_lines(wanted)}{_HINT}"
