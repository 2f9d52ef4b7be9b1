"""Edit the configuration files of coding agents' clients, and recognise their processes."""

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, HostError
from paddock.pattern import lazy_pattern
from paddock.plane.environment import Environment, real_path
from paddock.plane.json_files import parse_file
from paddock.storage import atomic
from paddock.text.show import quote
from paddock.values.calls import Json

CLIENT_FILE_BYTES_MAX: Final = 16_000_000
_SHARED_MODE: Final = 0o644
"""A project's settings contain no secrets."""
_PRIVATE_MODE: Final = 0o600
"""A client keeps secrets in its user's own files."""


class ClientFile(Struct, frozen=True):
    path: Path
    content: bytes | None
    mode_if_new: int

    @property
    def text(self) -> str:
        try:
            return (self.content or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the settings are not UTF-8 at byte {error.start}", where=str(self.path)
            ) from None


class ClientFileEdit(Struct, frozen=True):
    file: ClientFile
    content: bytes | None

    @property
    def changes(self) -> bool:
        return self.content != self.file.content

    def shown(self) -> str:
        import difflib  # noqa: PLC0415 - only to show the edit

        before = (self.file.content or b"").decode("utf-8", "replace").splitlines()
        after = (self.content or b"").decode("utf-8", "replace").splitlines()
        name = str(self.file.path)
        return "\n".join(difflib.unified_diff(before, after, name, name, lineterm=""))

    def apply(self) -> None:
        """Put the new content in place, or remove the file, unless it changed since it was read.

        Sequence: temporary file beside it, with its mode → fsync → check that the file is still the
        one that was read → rename → fsync of the directory.

        Raises: ConfigError: another process changed the file meanwhile. HostError.
        """
        path = self.file.path
        atomic.make_directories(path.parent)
        with atomic.host_errors("writing", path):
            if self.content is not None:
                mode = self.file.mode_if_new
                if self.file.content is not None:
                    mode = stat.S_IMODE(os.stat(path).st_mode)
                atomic.replace_file(path, self.content, mode=mode, look=self._require_unchanged)
                return
            self._require_unchanged()
            os.unlink(path)
            atomic.sync_directory(path.parent)
        # The installer may have created the client's folder, but not a project's root or a home.
        if path.parent.name in (CLAUDE.folder, CODEX.folder):
            with suppress(OSError):
                os.rmdir(path.parent)

    def _require_unchanged(self) -> None:
        file = self.file
        if atomic.read_file(file.path, CLIENT_FILE_BYTES_MAX) != file.content:
            raise ConfigError(
                "another process changed the settings meanwhile",
                where=str(file.path),
                hint="nothing was written; run it again",
            )


def read_client_file(path: Path, *, follows: bool) -> ClientFile:
    """Raises: ConfigError: a link that must not be followed, not a regular file, too large.

    Threat: a cloned project's settings file is a link, and we write to its target. In the user's
    own directory a link is the user's, and its target is edited.
    """
    if not follows:
        parent = path.parent
        if parent.is_symlink():
            raise ConfigError(
                f"{quote(str(parent))} is a link, and links are not followed here",
                where=str(parent),
                hint="replace the link with a real directory",
            )
        return ClientFile(path, atomic.read_file(path, CLIENT_FILE_BYTES_MAX), _SHARED_MODE)
    real = real_path(path)
    content = atomic.read_file_through_links(real, CLIENT_FILE_BYTES_MAX)
    return ClientFile(real, content, _PRIVATE_MODE)


# Sources: Claude Code's documentation of its settings, Codex's of its configuration. The hook's
# lean path imports nothing of the plane, and names the variables again in `image.py`.


class ClientHome(Struct, frozen=True):
    """One client's folder: `folder` in a project and in a home, unless `variable` is set."""

    folder: str
    variable: str

    def of_user(self, home: str, variables: Mapping[str, str]) -> str:
        """Return the user's own folder: the variable's value as it is, even a relative one."""
        return variables.get(self.variable) or f"{home.rstrip('/')}/{self.folder}"


CLAUDE: Final = ClientHome(".claude", "CLAUDE_CONFIG_DIR")
CODEX: Final = ClientHome(".codex", "CODEX_HOME")
HOMES: Final = (CLAUDE, CODEX)


# The MCP servers that a client starts.

Client = Literal["claude", "codex"]
ClientScope = Literal["project", "user"]
OWN_SERVER: Final = "paddock"
_SERVERS_KEY: Final = {".json": "mcpServers", ".toml": "mcp_servers"}
_SETS_NOTHING: Final = frozenset({"type", "command", "args"})
_WATCHED_BYTES_MAX: Final = 1_000_000
"""Limit of a project's file: the hook's cached image does not watch much larger ones."""
_OF_CODEX: Final = frozenset({"required", "enabled", "tool_timeout_sec", "startup_timeout_sec"})


def servers_file(
    client: str, scope: ClientScope, root: Path, home: Path, variables: Mapping[str, str]
) -> Path:
    if client == "claude":
        if scope == "project":
            return root / ".mcp.json"
        return Path(variables.get(CLAUDE.variable) or home) / ".claude.json"
    if scope == "project":
        return root / CODEX.folder / "config.toml"
    return Path(CODEX.of_user(str(home), variables)) / "config.toml"


def read_servers(found: ClientFile) -> dict[str, Json]:
    if not found.content:
        return {}
    name = _SERVERS_KEY[found.path.suffix]
    if found.path.suffix == ".json":
        values = parse_file(found.content, str(found.path)).members
    else:
        import tomllib  # noqa: PLC0415 - for one client only

        try:
            values = tomllib.loads(found.text)
        except ValueError as error:
            said = f"the file is not TOML: {error}"
            raise ConfigError(said, where=str(found.path)) from None
    servers = values.get(name, {})
    if not isinstance(servers, dict):
        raise ConfigError(f"{quote(name)} is not a table of servers by name", where=str(found.path))
    return cast("dict[str, Json]", servers)


def find_served(
    client: str, scope: ClientScope, root: Path, home: Path, variables: Mapping[str, str]
) -> bool | None:
    """Return True if a client's server `paddock` is ours; None: it has no server of that name."""
    file = servers_file(client, scope, root, home, variables)
    try:
        found = read_client_file(file, follows=scope == "user")
        if scope == "project" and len(found.content or b"") > _WATCHED_BYTES_MAX:
            return False
        entry = read_servers(found).get(OWN_SERVER)
    except (ConfigError, HostError):
        return False
    return None if entry is None else _starts_ours(entry, scope)


def _starts_ours(entry: Json, scope: ClientScope) -> bool:
    """Threat: a clone's entry `paddock` starts `./paddock`, or sets its own `PATH` or plane."""
    if not isinstance(entry, dict):
        return False
    rows = cast("dict[str, Json]", entry)
    command, given = rows.get("command"), rows.get("args")
    words = cast("list[Json]", given) if isinstance(given, list) else []
    if not isinstance(command, str) or words[:1] != ["mcp"]:
        return False
    if scope == "user":
        return Path(command).name == OWN_SERVER and "env" not in rows
    is_plain = len(words) == 1 or (len(words) == 3 and words[1] == "--agent")
    return command == OWN_SERVER and is_plain and rows.keys() <= _SETS_NOTHING | _OF_CODEX


# Processes of clients that have the hook, and whether this process descends from one.
#
# The hook leaves a mark, an empty file named after its client's process, so that the command
# line does not take a client that runs its model's commands for a person at a terminal.
#
# A net, not a wall. A process that has left its parent (`setsid -f`) is recognised only by its
# environment, and not at all if that was cleared as well.
#
# Source: proc_pid_stat(5); the start time distinguishes a process from a later one with its pid.

ANCESTORS_MAX: Final = 64
_CLIENT: Final = lazy_pattern(rb"claude|codex")
_BY_CLAUDE: Final = frozenset({"CLAUDECODE", "CLAUDE_PID", "CLAUDE_CODE_SESSION_ID"})
_BY_CODEX: Final = ("CODEX_SANDBOX", "CODEX_THREAD", "CODEX_MANAGED")
"""Variables that clients set for their child processes; `CODEX_HOME` is the user's own."""


class ClientProcess(Struct, frozen=True):
    pid: int
    started: int

    @property
    def mark(self) -> str:
        return f"{self.pid}-{self.started}"


def note_client(environment: Environment, name: str) -> None:
    """Leave a mark of the client that started this hook, if one did.

    For Claude Code only if its variables say so: a person may try the hook by hand. No answer of
    the hook depends on the mark, so a failure to write it is ignored.
    """
    variables = dict(environment.variables)
    is_client = name == "codex" or _has_client_variable(variables)
    client = _find_client_above(variables) if is_client else None
    if client is None:
        return
    folder = _marks_folder(environment)
    with suppress(OSError, HostError):
        atomic.make_directories(folder)
        if not (folder / client.mark).exists():
            for mark in os.listdir(folder):
                if not _is_alive(mark):
                    (folder / mark).unlink(missing_ok=True)
            (folder / client.mark).touch(mode=0o600)


def descends_from_client(environment: Environment) -> bool:
    """Return True if a client that has the hook is known to have started this process.

    Threat: `HOME=/elsewhere paddock …` hides the marks, so search the account's home as well.
    """
    usual = replace(
        environment, paddock_home=_account_home(environment) / ".local" / "state" / "paddock"
    )
    marks = {name for each in (environment, usual) for name in _marks(each)}
    if not marks:
        return False
    if any(process.mark in marks for process in _ancestors()):
        return True
    return _has_client_variable(dict(environment.variables)) and any(map(_is_alive, marks))


def _has_client_variable(variables: Mapping[str, str]) -> bool:
    return any(name in _BY_CLAUDE or name.startswith(_BY_CODEX) for name in variables)


def _find_client_above(variables: Mapping[str, str]) -> ClientProcess | None:
    named = variables.get("CLAUDE_PID", "")
    for process in _ancestors():
        if str(process.pid) == named or _CLIENT.search(_name(process.pid)):
            return process
    return None


def _ancestors() -> Iterator[ClientProcess]:
    pid = os.getppid()
    for _ in range(ANCESTORS_MAX):
        found = _read(pid)
        if found is None:
            return
        process, parent = found
        yield process
        pid = parent


def _read(pid: int) -> tuple[ClientProcess, int] | None:
    if pid <= 1:
        return None
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The second field is a name in brackets, which may contain brackets and spaces.
    fields = content[content.rfind(b")") + 2 :].split()
    return ClientProcess(pid, int(fields[19])), int(fields[1])


def _name(pid: int) -> bytes:
    told = b""
    with suppress(OSError):
        told = Path(f"/proc/{pid}/comm").read_bytes()
    with suppress(OSError):
        # `node …/claude-code/cli.js`: the program, and the script that it runs. Not the whole
        # path, which may contain the user's own name.
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:2]
        told += b"\n".join(b"/".join(word.split(b"/")[-2:]) for word in words if word[:1] != b"-")
    return told


def _account_home(environment: Environment) -> Path:
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return environment.home


def _marks(environment: Environment) -> list[str]:
    try:
        return os.listdir(_marks_folder(environment))
    except OSError:
        return []


def _is_alive(mark: str) -> bool:
    pid, _, _ = mark.partition("-")
    found = _read(int(pid)) if pid.isascii() and pid.isdigit() else None
    return found is not None and found[0].mark == mark


def _marks_folder(environment: Environment) -> Path:
    return environment.paddock_home / "hook" / "clients"
