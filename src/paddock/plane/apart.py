"""What agents may work on and what governs them must not lie in each other."""

import os
from pathlib import Path

from paddock.errors import ConfigError
from paddock.plane.environment import Environment
from paddock.plane.paths import real_path
from paddock.text.show import quote


def contains(outer: Path, inner: Path) -> bool:
    """Whether `inner` is `outer` or lies below it.

    Compared by directory identity where both exist, so that another spelling (a
    link, a bind mount, a case-insensitive file system) does not hide it.
    """
    return _contains_real(real_path(outer), real_path(inner))


def _contains_real(outer: Path, inner: Path) -> bool:
    if outer == inner or outer in inner.parents:
        return True
    wanted = _identity(outer)
    if wanted is None:
        return False
    return any(_identity(directory) == wanted for directory in (inner, *inner.parents))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        # Not there, or not ours to see: then only its name can be compared.
        return None
    return status.st_dev, status.st_ino


def require_outside(root: Path, environment: Environment) -> None:
    """Refuse a root that holds the user's Paddock files, or lies among them.

    Threat: what lies in a workspace can be written by an agent. State inside it
    would let the agent trust its own policy, edit its own ledger, or read the
    keys; a root inside the state directory is the same from the other side.

    Raises:
        ConfigError: they overlap.
    """
    real_root = real_path(root)
    for what, name, directory in (
        ("state", "PADDOCK_HOME", environment.paddock_home),
        ("configuration", "XDG_CONFIG_HOME", environment.config_home),
    ):
        real = real_path(directory)
        if _contains_real(real_root, real):
            raise ConfigError(
                f"Paddock's {what} directory {quote(str(directory))} lies inside"
                f" {quote(str(root))}, where agents work",
                where=str(root),
                hint=f"work in a directory further down, or set {name} to one outside",
            )
        if _contains_real(real, real_root):
            raise ConfigError(
                f"{quote(str(root))} lies inside Paddock's {what} directory"
                f" {quote(str(directory))}",
                where=str(root),
                hint="work in a directory of your own",
            )
