"""The paths of a plane. Names only: nothing here reads the disk."""

import hashlib
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.values.decisions import PlaneKind

TIERS: Final = ("HOT", "HO2", "HO1")
"""Governance, sessions, execution."""


BARE_DIRECTORIES: Final = (
    "HOT",
    "HOT/config",
    "HOT/installed",
    "HOT/kernel",
    "HOT/ledger",
    "HOT/registries",
    "HOT/registries/approvals",
    "HOT/registries/keys",
    "HOT/schemas",
    "HOT/scripts",
    "HOT/tests",
    "HO2",
    "HO2/kernel",
    "HO2/ledger",
    "HO2/scratch",
    "HO2/tests",
    "HO1",
    "HO1/contracts",
    "HO1/kernel",
    "HO1/ledger",
    "HO1/tests",
    "agents",
    "objects",
)
"""The directories of every bare plane, parents first."""
_FILLED_BY_OTHERS: Final = ("kernel", "scripts", "tests", "scratch")
"""Names of directories for packages or work, without the plane's configuration or records."""


class LedgerName(StrEnum):
    GOVERNANCE = "governance"
    PACKAGES = "packages"
    HO2M = "ho2m"
    HO1M = "ho1m"


_NAME_CHARS_MAX: Final = 40
_ID_CHARS: Final = 16


class PlaneLayout(Struct, frozen=True):
    root: Path
    kind: PlaneKind

    @property
    def hot(self) -> Path:
        return self.root / "HOT"

    @property
    def ho2(self) -> Path:
        return self.root / "HO2"

    @property
    def ho1(self) -> Path:
        return self.root / "HO1"

    @property
    def config(self) -> Path:
        return self.hot / "config"

    @property
    def admin_config(self) -> Path:
        return self.config / "admin_config.json"

    @property
    def registries(self) -> Path:
        return self.hot / "registries"

    @property
    def installed(self) -> Path:
        return self.hot / "installed"

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def package_changes(self) -> Path:
        return self.objects / "packages"

    @property
    def package_transaction(self) -> Path:
        """Exists from when a change of packages is in place until its follow-up is complete."""
        return self.package_changes / "transaction.json"

    @property
    def record(self) -> Path:
        return self.root / "plane.json"

    def agent_directory(self, name: str) -> Path:
        return self.agents / name

    def agent_file(self, name: str) -> Path:
        return self.agent_directory(name) / "agent.json"

    def agent_workspace(self, name: str) -> Path:
        return self.agent_directory(name) / "workspace"

    def agent_memories(self, name: str) -> Path:
        return self.agent_directory(name) / "memories"

    def ledger_paths(self) -> Mapping[LedgerName, Path]:
        return {
            LedgerName.GOVERNANCE: self.hot / "ledger" / "governance.jsonl",
            LedgerName.PACKAGES: self.hot / "ledger" / "packages.jsonl",
            LedgerName.HO2M: self.ho2 / "ledger" / "ho2m.jsonl",
            LedgerName.HO1M: self.ho1 / "ledger" / "ho1m.jsonl",
        }

    def own_directories(self) -> tuple[Path, ...]:
        """Return the directories of a bare plane's own files, parents first; not all exist."""
        names = (name for name in BARE_DIRECTORIES if not name.endswith(_FILLED_BY_OTHERS))
        return tuple(self.root / name for name in names)

    def directories(self) -> tuple[Path, ...]:
        return (
            *(self.root / tier for tier in TIERS),
            self.config,
            *(self.root / tier / "ledger" for tier in TIERS),
            self.ho2 / "scratch",
            self.agents,
            self.objects,
        )


def path_id(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:_ID_CHARS]


def plane_name(root: Path) -> str:
    """Return `<name>-<id>`: the name is for people, the id distinguishes roots of one name.

    The id is a shortened hash: `require_identity` keeps two projects from sharing a plane.
    """
    name = re.sub(r"[^a-z0-9._-]+", "-", root.name.lower())[:_NAME_CHARS_MAX].strip("._-")
    return f"{name or 'root'}-{path_id(root)}"
