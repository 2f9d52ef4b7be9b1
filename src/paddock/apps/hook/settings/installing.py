"""What is planned for a client's settings; it is shown first, and written then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from paddock.apps.hook.settings import claude, codex
from paddock.apps.hook.settings.claude import Program
from paddock.apps.hook.settings.interpreters import choose_program
from paddock.apps.hook.settings.json_text import parse_text
from paddock.errors import ConfigError, HostError, UsageError
from paddock.plane.client_files import ClientFile, Edit, read_client_file
from paddock.values.calls import Json

Client = Literal["claude", "codex"]
Scope = Literal["project", "local", "user"]
"""Whose settings: the project's, which is committed; one person's in this project; one person's."""
State = Literal["installed", "stale", "absent", "broken"]

CLIENTS: Final[tuple[Client, ...]] = ("claude", "codex")
SCOPES: Final[tuple[Scope, ...]] = ("project", "local", "user")
SCOPES_OF: Final[Mapping[Client, tuple[Scope, ...]]] = {
    "claude": SCOPES,
    "codex": ("project", "user"),
}


@dataclass(frozen=True, slots=True)
class Places:
    """What says where a client looks for its settings."""

    root: Path
    home: Path
    variables: Mapping[str, str]

    def path(self, client: Client, scope: Scope) -> Path:
        """The file in which a client looks for hooks. Raises: UsageError: none of that scope."""
        if scope not in SCOPES_OF[client]:
            raise UsageError(
                f"{client} has no settings of the scope {scope}",
                where="--scope",
                hint=f"one of: {', '.join(SCOPES_OF[client])}",
            )
        if client == "claude":
            if scope == "project":
                return self.root / ".claude" / "settings.json"
            if scope == "local":
                return self.root / ".claude" / "settings.local.json"
            own = self.variables.get("CLAUDE_CONFIG_DIR") or self.home / ".claude"
            return Path(own) / "settings.json"
        if scope == "project":
            return self.root / ".codex" / "config.toml"
        return Path(self.variables.get("CODEX_HOME") or self.home / ".codex") / "config.toml"


@dataclass(frozen=True, slots=True)
class Standing:
    """What is to be said of our entries in one settings file."""

    client: Client
    scope: Scope
    path: Path
    state: State
    why: str
    """What is wrong, if anything is."""

    def as_json(self) -> dict[str, Json]:
        """As `--json` prints it."""
        return {
            "client": self.client,
            "scope": self.scope,
            "file": str(self.path),
            "state": self.state,
            "why": self.why,
        }


def standing_in(
    places: Places, client: Client, scope: Scope, programs: Sequence[Program]
) -> Standing:
    """Look into one file. Raises: UsageError: the client has none of that scope."""
    path = places.path(client, scope)
    state, why = _state_of(path, client, scope, programs)
    return Standing(client, scope, path, state, why)


def plan_install(path: Path, client: Client, scope: Scope, programs: Sequence[Program]) -> Edit:
    """Plan our entries into a settings file; those that start one of the programs stay.

    Raises: ConfigError.
    """
    file = read_client_file(path, follows=scope == "user")
    if _is_installed(file, client, programs):
        return Edit(file, file.content)
    program = choose_program(programs)
    if client == "claude":
        text = file.text if file.content is not None else claude.MADE
        content = claude.installed(text, str(path), program)
    else:
        content = codex.installed(
            file.text if file.content is not None else None, str(path), program
        )
    return Edit(file, content.encode("utf-8"))


def plan_uninstall(path: Path, client: Client, scope: Scope) -> Edit:
    """Plan our entries out of a settings file; one that we made goes. Raises: ConfigError."""
    file = read_client_file(path, follows=scope == "user")
    if file.content is None:
        return Edit(file, None)
    if client == "claude":
        content = claude.uninstalled(file.text, str(path))
        is_made = content == claude.MADE and content != file.text
    else:
        content = codex.uninstalled(file.text, str(path))
        is_made = not content and codex.is_made(file.text)
    return Edit(file, None if is_made else content.encode("utf-8"))


def _state_of(
    path: Path, client: Client, scope: Scope, programs: Sequence[Program]
) -> tuple[State, str]:
    """Whether our entries stand in a settings file, and what is wrong if anything is."""
    try:
        file = read_client_file(path, follows=scope == "user")
        if file.content is None:
            return "absent", ""
        if client == "claude":
            found = bool(claude.find_ours(file.text, parse_text(file.text, str(path))))
            if found and claude.is_switched_off(file.text, str(path)):
                return "broken", "disableAllHooks is true: no hook of this client runs"
        else:
            found = codex.has_ours(file.text)
        is_new = found and _is_installed(file, client, programs)
    except (ConfigError, HostError) as error:
        return "broken", error.message
    if not found:
        return "absent", ""
    return ("installed", "") if is_new else ("stale", "it differs from what would be put in now")


def _is_installed(file: ClientFile, client: Client, programs: Sequence[Program]) -> bool:
    """Whether our entries stand there as one of the programs has them. Raises: ConfigError."""
    if file.content is None:
        return False
    if client == "claude":
        return any(claude.is_installed(file.text, str(file.path), each) for each in programs)
    return any(codex.is_installed(file.text, each) for each in programs)
