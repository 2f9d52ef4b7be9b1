"""Where keys lie: with the user's configuration, never in a plane or a project."""

from pathlib import Path

from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout, plane_name


def ledger_key_path(layout: PlaneLayout, environment: Environment, ledger: str) -> Path:
    """The file of the key that signs the checkpoints of this plane's ledger `ledger`.

    Only the name: whoever makes the key gives it mode 0600 and its directory 0700.
    """
    name = plane_name(layout.root) if layout.kind == "bare" else layout.root.name
    return environment.config_home / "keys" / f"{name}.{ledger}.key"


def operator_key_path(environment: Environment) -> Path:
    """The file of the key with which this user signs packages and approves changes of planes."""
    return environment.config_home / "keys" / "operator.key"
