"""Plan changes to a client's settings, which are shown first and then written."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from paddock.apps.hook.confinement import why_switched
from paddock.apps.hook.settings import claude, codex
from paddock.apps.hook.settings.claude import Program
from paddock.errors import ConfigError, HostError, UsageError
from paddock.plane.clients import CODEX, ClientFile, ClientFileEdit, read_client_file
from paddock.values.calls import Json

Client = Literal["claude", "codex"]
Scope = Literal["project", "local", "user"]
"""The project's settings, which are committed; the user's in this project; the user's global."""
State = Literal["installed", "stale", "absent", "broken"]

CLIENTS: Final[tuple[Client, ...]] = ("claude", "codex")
SCOPES: Final[tuple[Scope, ...]] = ("project", "local", "user")
SCOPES_OF: Final[Mapping[Client, tuple[Scope, ...]]] = {
    "claude": SCOPES,
    "codex": ("project", "user"),
}
_FORMS: Final = {"claude": claude, "codex": codex}


class Places(Struct, frozen=True):
    root: Path
    home: Path
    variables: Mapping[str, str]

    def path(self, client: Client, scope: Scope) -> Path:
        """Raises: UsageError: the client has no such scope."""
        if scope not in SCOPES_OF[client]:
            raise UsageError(
                f"{client} has no settings of the scope {scope}",
                where="--scope",
                hint=f"one of: {', '.join(SCOPES_OF[client])}",
            )
        if client == "claude":
            files = claude.settings_files(self.root, self.home, self.variables)
            return files[claude.NEAREST_FIRST.index(scope)]
        if scope == "project":
            return self.root / CODEX.folder / "config.toml"
        return Path(CODEX.of_user(str(self.home), self.variables)) / "config.toml"


class InstallState(Struct, frozen=True):
    client: Client
    scope: Scope
    path: Path
    state: State
    why: str
    is_there: bool

    def as_json(self) -> dict[str, Json]:
        return {
            "client": self.client,
            "scope": self.scope,
            "file": str(self.path),
            "state": self.state,
            "why": self.why,
        }


def own_program() -> Program:
    """Raises: HostError: the path of the interpreter is unknown."""
    if not sys.executable:
        raise HostError("the path of this Python is unknown", hint="install Paddock again")
    return Program(sys.executable, str(Path(__file__).parents[1] / "launch.py"))


def check_install(places: Places, client: Client, scope: Scope) -> InstallState:
    """Check one settings file. Raises: UsageError: the client has no such scope; HostError."""
    path, program, form = places.path(client, scope), own_program(), _FORMS[client]
    try:
        file = _read(path, scope)
        is_there = file.content is not None and form.has_ours(file.text, str(path))
        is_new = is_there and form.is_installed(file.text, str(path), program)
    except (ConfigError, HostError) as error:
        return InstallState(client, scope, path, "broken", error.message, is_there=False)
    off = _why_off(places) if is_there and client == "claude" else ""
    state: State = (
        "absent" if not is_there else "broken" if off else "installed" if is_new else "stale"
    )
    why = "it differs from the entries of this version" if state == "stale" else off
    return InstallState(client, scope, path, state, why, is_there)


def plan_install(path: Path, client: Client, scope: Scope) -> ClientFileEdit:
    """Plan to add the entries. Raises: ConfigError, HostError."""
    file, program, form = _read(path, scope), own_program(), _FORMS[client]
    text = None if file.content is None else file.text
    if text is not None and form.is_installed(text, str(path), program):
        return ClientFileEdit(file, file.content)
    return ClientFileEdit(file, form.installed(text, str(path), program).encode("utf-8"))


def plan_uninstall(path: Path, client: Client, scope: Scope) -> ClientFileEdit:
    """Plan to remove the entries, and a file that Paddock created. Raises: ConfigError."""
    file, form = _read(path, scope), _FORMS[client]
    if file.content is None:
        return ClientFileEdit(file, None)
    left = form.uninstalled(file.text, str(path))
    return ClientFileEdit(file, None if form.is_made(file.text, left) else left.encode("utf-8"))


def _read(path: Path, scope: Scope) -> ClientFile:
    return read_client_file(path, follows=scope == "user")


def _why_off(places: Places) -> str:
    """Threat: one line in an uncommitted file disables the hook for one user."""
    files = claude.settings_files(places.root, places.home, places.variables)
    on = "disableAllHooks is true in {}: this client runs no hooks"
    return why_switched(files, ("disableAllHooks",), "disables hooks", on, follows=False)
