"""The ledgers of a plane, each made with its own key on first use."""

import os
import time
from typing import Final

from paddock.assembly.project import Project
from paddock.errors import HostError
from paddock.ledger.format_genesis import Genesis
from paddock.ledger.keys import create_key, load_key
from paddock.ledger.store import LedgerFile
from paddock.plane.environment import Environment
from paddock.plane.files import make_directories
from paddock.plane.keys import ledger_key_path
from paddock.plane.layout import PlaneLayout

LEDGER_TIERS: Final = {"governance": "HOT", "packages": "HOT", "ho2m": "HO2", "ho1m": "HO1"}


def open_ledger(project: Project, name: str) -> LedgerFile:
    """The ledger `name` of the plane, made with its own key on first use.

    Raises: HostError, LedgerDamagedError, LedgerBusyError, LedgerFullError.
    """
    return open_plane_ledger(project.layout, project.environment, name)


def open_plane_ledger(layout: PlaneLayout, environment: Environment, name: str) -> LedgerFile:
    """As `open_ledger`, of a plane that may still be in the making."""
    path = layout.ledger_paths()[name]
    create = None if path.exists() else _genesis(layout, environment, name)
    return LedgerFile.open(str(path), create=create, clock=time.time, randomness=os.urandom)


def _genesis(layout: PlaneLayout, environment: Environment, name: str) -> Genesis:
    origin = f"paddock/{layout.root.name}/{name}"
    file = ledger_key_path(layout, environment, name)
    make_directories(file.parent)
    if not file.exists():
        try:
            create_key(str(file), origin, os.urandom)
        except HostError:
            # Another process made it just now, or it cannot be made: loading tells.
            if not file.exists():
                raise
    return Genesis(origin, LEDGER_TIERS[name], str(load_key(str(file)).verifier))
