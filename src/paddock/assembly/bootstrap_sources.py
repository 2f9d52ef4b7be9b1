"""What a new bare plane is made of: packages, and whose word stands for them."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, to_builtins

from paddock.assembly.ledgers import open_plane_ledger
from paddock.assembly.project import CORE, DEVELOPMENT
from paddock.errors import ConfigError
from paddock.ledger.signing import SigningKey
from paddock.packages.archive import Archive
from paddock.packages.bootstrap import Founding, found, load_packages
from paddock.packages.change import Depot
from paddock.packages.ledger import LEDGER, PackageLedger
from paddock.packages.manifest import INSTALLED, PLANE_MARKER, manifest_path
from paddock.plane.admin import AdminConfig, AdminTable, read_admin_config
from paddock.plane.create import Blueprint
from paddock.plane.discover import ProjectRoot
from paddock.plane.environment import RISKY_TOOLS_VARIABLE, Environment, ToolProfile
from paddock.plane.json_files import parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.policy.settings import HistorySettings
from paddock.storage.disk import Disk
from paddock.storage.history import History
from paddock.storage.journal import Journal
from paddock.text.show import quote
from paddock.tools.spec import Tool
from paddock.tools.toolsets import TOOLS
from paddock.values.calls import Json
from paddock.workspace import Workspace
from paddock.workspace.apply import recover

# Apart from `admin`, as it loads every tool: a project's plane has no such configuration.


def load_admin_config(root: ProjectRoot, layout: PlaneLayout) -> AdminConfig:
    config = read_admin_config(layout)
    require_registered(config)
    return config if root.accepted else config.tightened()


def declared_core_tools() -> list[dict[str, Json]]:
    return [_declaration(listed.load()) for listed in TOOLS if listed.toolset == CORE]


def require_registered(config: AdminConfig) -> None:
    """Refuse entries of `tools` that are no core tools. Raises: ConfigError.

    Threat: a development tool in the list would stand before the model whatever the gate says.
    """
    registered: Mapping[str, Tool[Any]] = {listed.name: listed.load() for listed in TOOLS}
    seen: set[str] = set()
    for position, entry in enumerate(config.tools or ()):
        way = ("tools", position, "tool_id")
        tool = registered.get(entry.tool_id)
        toolset = None if tool is None else tool.toolset
        if toolset == DEVELOPMENT:
            raise ConfigError(
                f"the development tool {quote(entry.tool_id)} stands in 'tools'",
                where=config.place(way),
                hint="take it out: tool_profile = development and"
                f" {RISKY_TOOLS_VARIABLE}=1 together give it",
            )
        if tool is None or toolset != CORE:
            known = ", ".join(name for name, each in registered.items() if each.toolset == CORE)
            raise ConfigError(
                f"{quote(entry.tool_id)} is no core tool",
                where=config.place(way),
                hint=f"the core tools are: {known}",
            )
        if entry.tool_id in seen:
            raise ConfigError(
                f"{quote(entry.tool_id)} stands there twice",
                where=config.place(way),
                hint="keep one of them",
            )
        seen.add(entry.tool_id)


def _declaration(tool: Tool[Any]) -> dict[str, Json]:
    return {
        "tool_id": tool.name,
        "description": tool.spec.description,
        "handler": f"paddock.tools.{tool.name}",
        "parameters": tool.binder.schema,
    }


_LEFTOVERS: Final = (
    "HOT/ledger/",
    "HO2/ledger/",
    "HO1/ledger/",
    f"{INSTALLED}/",
    "HOT/registries/approvals/",
    "HOT/registries/keys/",
    "objects/",
)
"""What a founding makes that another one would make otherwise; see `Blueprint`."""


def bare_plane_blueprint(
    tool_profile: ToolProfile,
    archives: tuple[Archive, ...] | None = None,
    beside: frozenset[str] = frozenset(),
) -> Blueprint:
    packages = load_packages() if archives is None else archives
    files = {file.path: file.content for each in packages for file in each.files}
    config = files.pop(PLANE_MARKER, None)
    if config is None:
        raise ConfigError(f"no package brings {PLANE_MARKER}, and without it there is no plane")
    for archive in packages:
        files[manifest_path(archive.manifest.package_id)] = archive.manifest.canonical
    return Blueprint(
        config=_with_profile(config, tool_profile), files=files, leftovers=_LEFTOVERS, beside=beside
    )


def _with_profile(content: bytes, tool_profile: ToolProfile) -> bytes:
    members = parse_file(content, PLANE_MARKER).members
    if members.get("tool_profile") == tool_profile:
        return content
    return write_object({**members, "tool_profile": tool_profile})


class Founder(Struct, frozen=True):
    archives: tuple[Archive, ...]
    key: SigningKey | None
    environment: Environment

    def build(self, layout: PlaneLayout, blueprint: Blueprint) -> tuple[Path, ...]:
        with ExitStack() as held:
            store = str(layout.objects)
            history = History(store, bytes_max=HistorySettings().bytes_max)
            held.callback(history.close)
            journal = held.enter_context(Journal(f"{store}/journal", Disk()))
            workspace = held.enter_context(Workspace.open(str(layout.root)))
            recover(journal, Disk(), workspace.resolution)
            depot = Depot(
                layout=layout,
                workspace=workspace,
                objects=history.store,
                journal=journal,
                ledger=PackageLedger(
                    layout.ledger_paths()[LEDGER],
                    partial(open_plane_ledger, layout, self.environment, LEDGER),
                ),
                clock=time.time,
            )
            return found(depot, Founding(self.archives, self.key, frozenset({PLANE_MARKER})))


def admin_config_bytes(tool_profile: ToolProfile) -> bytes:
    members = to_builtins(AdminTable(tool_profile=tool_profile))
    return write_object(members | {"tools": declared_core_tools()})
