"""What the process was started with, read once."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddock.errors import ConfigError
from paddock.plane.dual_gate import allows_risky_tools
from paddock.plane.paths import require_utf8
from paddock.text.show import quote


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the user's own files are, and what the user's shell allows. Every path is absolute."""

    home: Path
    paddock_home: Path
    """State: planes, trust, registrations. Never in a project."""
    config_home: Path
    """`config.toml` and keys. Never in a plane or a project."""
    plane: Path | None = None
    """The project or bare plane that `PADDOCK_PLANE` names."""
    risky_tools: bool = False
    """The environment's half of the dual gate holds."""
    variables: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    """All of them: what of it a command gets is decided by an allow-list."""

    @property
    def planes(self) -> Path:
        """The directory of all projects' planes."""
        return self.paddock_home / "planes"

    @property
    def trust(self) -> Path:
        return self.paddock_home / "trust"

    @property
    def user_config(self) -> Path:
        """The user's own policy and settings, whether the file exists or not."""
        return self.config_home / "config.toml"


def process_environment() -> Environment:
    """The environment of this process; raises as `read_environment`."""
    return read_environment(os.environ)


def process_variables() -> Mapping[str, str]:
    """The variables of this process as they are now: keys and addresses of models."""
    return dict(os.environ)


def read_environment(variables: Mapping[str, str]) -> Environment:
    """The environment that `variables` (normally `os.environ`) describes.

    A relative `XDG_STATE_HOME` or `XDG_CONFIG_HOME` counts as not set, as the XDG
    Base Directory Specification 0.8 says. `PADDOCK_PLANE` may be relative to the
    current directory, as `--plane` may.

    Raises:
        ConfigError: no home directory is known, `PADDOCK_HOME` is relative, or the places
            that follow are not UTF-8.
    """
    home = _home(variables)
    state = _xdg(variables, "XDG_STATE_HOME", home / ".local" / "state")
    config = _xdg(variables, "XDG_CONFIG_HOME", home / ".config")
    plane = variables.get("PADDOCK_PLANE", "")
    paddock_home = _paddock_home(variables) or state / "paddock"
    config_home = config / "paddock"
    require_utf8(paddock_home, "PADDOCK_HOME")
    require_utf8(config_home, "XDG_CONFIG_HOME")
    return Environment(
        home=home,
        paddock_home=paddock_home,
        config_home=config_home,
        plane=Path(os.path.abspath(plane)) if plane else None,
        risky_tools=allows_risky_tools(variables),
        variables=tuple(variables.items()),
    )


def _home(variables: Mapping[str, str]) -> Path:
    home = variables.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            home = ""
    if not os.path.isabs(home):
        raise ConfigError(
            f"no home directory is known for user {os.geteuid()}",
            where="HOME",
            hint="set HOME to an absolute path",
        )
    return Path(os.path.normpath(home))


def _xdg(variables: Mapping[str, str], name: str, default: Path) -> Path:
    value = variables.get(name, "")
    return Path(os.path.normpath(value)) if os.path.isabs(value) else default


def _paddock_home(variables: Mapping[str, str]) -> Path | None:
    value = variables.get("PADDOCK_HOME", "")
    if not value:
        return None
    if not os.path.isabs(value):
        raise ConfigError(
            f"PADDOCK_HOME is {quote(value)}, which is relative",
            where="PADDOCK_HOME",
            hint="give an absolute path: planes and trust must not depend on the current directory",
        )
    return Path(os.path.normpath(value))
