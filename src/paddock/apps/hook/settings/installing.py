"""What is planned for a client's settings, and doing it: shown first, written then."""

import difflib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from paddock.apps.hook.settings import claude, codex
from paddock.apps.hook.settings.claude import Program
from paddock.apps.hook.settings.files import SettingsFile, read_settings, replace_settings
from paddock.apps.hook.settings.json_text import parse_text
from paddock.errors import ConfigError, HostError

Client = Literal["claude", "codex"]
Scope = Literal["project", "user"]
State = Literal["installed", "stale", "absent", "broken"]

CLIENTS: Final[tuple[Client, ...]] = ("claude", "codex")
SCOPES: Final[tuple[Scope, ...]] = ("project", "user")


@dataclass(frozen=True, slots=True)
class Plan:
    """An edit of one settings file. `content` is what will stand there, None for no file."""

    file: SettingsFile
    content: bytes | None

    @property
    def changes(self) -> bool:
        """Whether anything is different afterwards."""
        return self.content != self.file.content

    def shown(self) -> str:
        """The change as a person looks at it."""
        before = (self.file.content or b"").decode("utf-8", "replace").splitlines()
        after = (self.content or b"").decode("utf-8", "replace").splitlines()
        name = str(self.file.path)
        return "\n".join(difflib.unified_diff(before, after, name, name, lineterm=""))

    def apply(self) -> None:
        """Write it. Raises: ConfigError, HostError."""
        replace_settings(self.file, self.content)


def this_program() -> Program:
    """The interpreter and the launcher of this installation.

    Raises:
        HostError: the interpreter does not know where it is.
    """
    if not sys.executable:
        raise HostError("this interpreter does not say where it is", hint="install Paddock anew")
    return Program(sys.executable, str(Path(__file__).parents[1] / "launch.py"))


def settings_path(
    client: Client, scope: Scope, root: Path, home: Path, variables: Mapping[str, str]
) -> Path:
    """The file in which a client looks for hooks."""
    if client == "claude":
        if scope == "project":
            return root / ".claude" / "settings.json"
        return Path(variables.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "settings.json"
    if scope == "project":
        return root / ".codex" / "config.toml"
    return Path(variables.get("CODEX_HOME") or home / ".codex") / "config.toml"


def plan_install(path: Path, client: Client, scope: Scope, program: Program) -> Plan:
    """Plan our entries into a settings file. Raises: ConfigError."""
    file = read_settings(path, follows=scope == "user")
    if client == "claude":
        text = file.text if file.content is not None else "{}\n"
        content = claude.installed(text, str(path), program)
    else:
        content = codex.installed(file.text, str(path), program)
    return Plan(file, content.encode("utf-8"))


def plan_uninstall(path: Path, client: Client, scope: Scope) -> Plan:
    """Plan our entries out of a settings file; one that we made goes. Raises: ConfigError."""
    file = read_settings(path, follows=scope == "user")
    if file.content is None:
        return Plan(file, None)
    if client == "claude":
        content = claude.uninstalled(file.text, str(path))
        is_made = content == "{}\n" and content != file.text
    else:
        content = codex.uninstalled(file.text, str(path))
        is_made = not content and content != file.text
    return Plan(file, None if is_made else content.encode("utf-8"))


def state_of(path: Path, client: Client, scope: Scope, program: Program) -> tuple[State, str]:
    """Whether our entries stand in a settings file, and what is wrong if anything is."""
    try:
        file = read_settings(path, follows=scope == "user")
        if file.content is None:
            return "absent", ""
        if client == "claude":
            found = claude.find_ours(file.text, parse_text(file.text, str(path)))
            is_new = bool(found) and claude.is_installed(file.text, str(path), program)
        else:
            found = codex.has_ours(file.text)
            is_new = codex.is_installed(file.text, program)
    except (ConfigError, HostError) as error:
        return "broken", error.message
    if not found:
        return "absent", ""
    return ("installed", "") if is_new else ("stale", "it names another program or lacks events")
