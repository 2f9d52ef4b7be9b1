"""Where keys lie: with the user's configuration, never in a plane or a project."""

from pathlib import Path

from paddock.plane.environment import Environment
from paddock.plane.layout import LedgerName, PlaneLayout, plane_name
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind


def ledger_key_path(layout: PlaneLayout, environment: Environment, ledger: LedgerName) -> Path:
    """The file of the key that signs the checkpoints of this plane's ledger `ledger`.

    Only the name: whoever makes the key gives it mode 0600 and its directory 0700.
    """
    return environment.config_home / "keys" / f"{plane_title(layout)}.{ledger}.key"


def missing_key_hint(layout: PlaneLayout, environment: Environment) -> str:
    """What to do where the key of a ledger is not there: most often, its plane was moved."""
    return (
        "keys are kept by the plane's path: put the plane back where it was, or if it was moved, "
        f"rename what is kept of it in {quote(str(environment.config_home / 'keys'))}, .key and "
        f".signed, to {quote(plane_title(layout) + '.*')}"
    )


def plane_title(layout: PlaneLayout) -> str:
    """The name of a plane among all of this user's."""
    return plane_name(layout.root) if layout.kind is PlaneKind.BARE else layout.root.name


def operator_key_path(environment: Environment) -> Path:
    """The file of the key with which this user signs packages and approves changes of planes."""
    return environment.config_home / "keys" / "operator.key"


def anchor_directory(layout: PlaneLayout, environment: Environment) -> Path:
    """Where this plane's checkpoints go unless the user says otherwise: beside the planes."""
    return environment.paddock_home / "anchors" / plane_title(layout)
