"""Read environment variables, for the user's directories and keys, and for the dual gate."""

import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import asdict

from paddock.errors import ConfigError, HostError, UsageError
from paddock.plane.layout import LedgerName, PlaneLayout, plane_name
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind

# The dual gate: development tools exist only if two independent halves agree: `tool_profile` in the
# plane's configuration, which no agent can write, and a variable in the operator's own shell. The
# first counts only on a plane that the user named or registered. Pure: all inputs are arguments.

RISKY_TOOLS_VARIABLE: Final = "CP_ADMIN_ENABLE_RISKY_TOOLS"
RISKY_TOOLS_VALUE: Final = "1"

ToolProfile = Literal["production", "development"]


def allows_risky_tools(variables: Mapping[str, str]) -> bool:
    """Return True if the variable is exactly `1`.

    Threat: accepting "true", " 1" or "01" would open the gate for a value that was never meant so.
    """
    return variables.get(RISKY_TOOLS_VARIABLE) == RISKY_TOOLS_VALUE


class DualGate(Struct, frozen=True):
    """The gate when the plane was opened: a later check may close it, never open it."""

    tool_profile: ToolProfile = "production"
    variable: bool = False
    accepted: bool = False
    """Its user named or registered this bare plane; else its profile does not count."""

    @property
    def is_open(self) -> bool:
        return self.tool_profile == "development" and self.variable and self.accepted

    @property
    def missing(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.tool_profile != "development":
            found.append(f"tool_profile is {self.tool_profile}")
        if not self.variable:
            found.append(f"{RISKY_TOOLS_VARIABLE} is not {RISKY_TOOLS_VALUE}")
        if not self.accepted:
            found.append("this is not a bare plane that you named or registered")
        return tuple(found)

    def __str__(self) -> str:
        if self.is_open:
            return "open: development tools are on"
        return f"closed: {', '.join(self.missing)}"

    def as_json(self) -> dict[str, Json]:
        return {"open": self.is_open, **asdict(self), "missing": list(self.missing)}


# Only for the user's own paths: paths that agents name are resolved in `workspace/`.


def real_path(path: Path) -> Path:
    # No agent can swap these: the user's own directories, and roots before they are opened.
    return Path(os.path.realpath(path))  # noqa: TID251 - no agent's name, see above


def real_directory(path: Path) -> Path:
    try:
        real = Path(os.path.realpath(path, strict=True))  # noqa: TID251 - no agent's name
        is_directory = stat.S_ISDIR(os.stat(real).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"directory {quote(str(path))} does not exist", hint="name an existing directory"
        ) from None
    except (OSError, ValueError) as error:
        raise HostError(f"{quote(str(path))} cannot be reached: {error}") from error
    if not is_directory:
        raise UsageError(f"{quote(str(path))} is not a directory", hint="name a directory")
    require_utf8(real)
    return real


def require_utf8(path: Path, variable: str = "") -> None:
    """Refuse a path that records cannot store as text. The hint says to set `variable`."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            f"the path {quote(str(path))} is not UTF-8",
            where=variable,
            hint=f"set {variable} to another one" if variable else "rename the directory",
        ) from None


class Environment(Struct, frozen=True):
    home: Path
    paddock_home: Path
    """State: planes, trust, registrations. Never in a project."""
    config_home: Path
    """`config.toml` and keys. Never in a plane or a project."""
    plane: Path | None = None
    risky_tools: bool = False
    variables: tuple[tuple[str, str], ...] = ()
    """All variables of the process. A command gets only those of an allow list."""

    def __repr__(self) -> str:
        # Threat: API keys among the variables would get into messages and logs.
        return f"Environment(home={self.home!r}, paddock_home={self.paddock_home!r})"

    @property
    def planes(self) -> Path:
        return self.paddock_home / "planes"

    @property
    def trust(self) -> Path:
        return self.paddock_home / "trust"

    @property
    def user_config(self) -> Path:
        return self.config_home / "config.toml"


def process_environment() -> Environment:
    return read_environment(os.environ)


def process_variables() -> Mapping[str, str]:
    return dict(os.environ)


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Find the user's directories. Raises: ConfigError.

    A relative `XDG_STATE_HOME` or `XDG_CONFIG_HOME` counts as not set, as the XDG
    Base Directory Specification 0.8 says. `PADDOCK_PLANE` may be relative to the
    current directory, as `--plane` may.
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
            f"PADDOCK_HOME is a relative path: {quote(value)}",
            where="PADDOCK_HOME",
            hint="give an absolute path: planes and trust must not depend on the current directory",
        )
    return Path(os.path.normpath(value))


def ledger_key_path(layout: PlaneLayout, environment: Environment, ledger: LedgerName) -> Path:
    """Return only the path: the creator of the key sets mode 0600, and 0700 for the directory."""
    return environment.config_home / "keys" / f"{plane_title(layout)}.{ledger}.key"


def missing_key_hint(layout: PlaneLayout, environment: Environment) -> str:
    """Return the hint for a missing ledger key: usually the plane was moved."""
    return (
        "keys are stored by the plane's path: move the plane back, or if it was moved on purpose, "
        f"rename its files in {quote(str(environment.config_home / 'keys'))}, .key and "
        f".signed, to {quote(plane_title(layout) + '.*')}"
    )


def plane_title(layout: PlaneLayout) -> str:
    return plane_name(layout.root) if layout.kind is PlaneKind.BARE else layout.root.name


def operator_key_path(environment: Environment) -> Path:
    return environment.config_home / "keys" / "operator.key"


def anchor_directory(layout: PlaneLayout, environment: Environment) -> Path:
    """Return where the plane's checkpoints go unless the user's configuration says otherwise."""
    return environment.paddock_home / "anchors" / plane_title(layout)
