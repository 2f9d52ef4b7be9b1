"""Making a project's plane on first use, once, whole and durably."""

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError, HostError
from paddock.plane.agent_files import write_agent
from paddock.plane.discovery import ProjectRoot, plane_for
from paddock.plane.environment import Environment
from paddock.plane.identity import identity_of, parse_identity, require_identity
from paddock.plane.layout import PlaneLayout
from paddock.storage.atomic import (
    DIRECTORY_MODE,
    FILE_MODE,
    create_file,
    host_errors,
    make_directories,
    read_file,
    require_private,
    sync_directory,
)
from paddock.storage.locks import locked
from paddock.text.show import quote
from paddock.values.agents import Agent
from paddock.values.planes import PlaneKind

MAIN_AGENT: Final = "main"
"""The agent that every project's plane is made with."""

_BUILDING_PREFIX: Final = ".new-"


@dataclass(frozen=True, slots=True)
class OpenedPlane:
    layout: PlaneLayout
    created: bool
    """This call made it: `PLANE_CREATED` and `AGENT_CREATED` are yet to be recorded."""


def open_plane(root: ProjectRoot, environment: Environment) -> OpenedPlane:
    """The plane that governs `root`; a project's is made where there is none.

    Safe by many processes at once: one makes it, all get it.

    Raises:
        ConfigError: root and Paddock's own files overlap, the plane is another
            project's, damaged, or writable by others.
        HostError: it could not be made.
    """
    layout = plane_for(root, environment)
    if layout.kind is PlaneKind.BARE:
        return OpenedPlane(layout, created=False)
    if _is_whole(layout, root.path):
        return OpenedPlane(layout, created=False)
    make_directories(layout.root.parent)
    require_private(layout.root.parent)
    with locked(layout.root.parent):
        if _is_whole(layout, root.path):
            return OpenedPlane(layout, created=False)
        _sweep(layout.root.parent)
        _build(layout, root.path)
    return OpenedPlane(layout, created=True)


def _is_whole(layout: PlaneLayout, root: Path) -> bool:
    require_private(layout.root)
    content = read_file(layout.record, limits.plane_record_bytes_max)
    if content is None:
        return False
    require_identity(parse_identity(content, str(layout.record)), root, layout.record)
    return True


def _build(layout: PlaneLayout, root: Path) -> None:
    """Sequence: everything in a directory beside it, fsynced → rename → fsync.

    A crash leaves either nothing that counts (swept by the next builder) or the
    whole plane.
    """
    building = layout.root.parent / f"{_BUILDING_PREFIX}{secrets.token_hex(8)}"
    draft = PlaneLayout(building, layout.kind)
    with host_errors("making the plane", layout.root):
        os.mkdir(building, DIRECTORY_MODE)
        try:
            _fill(draft, root)
            os.rename(building, layout.root)
        except (OSError, HostError) as error:
            shutil.rmtree(building, ignore_errors=True)
            if layout.root.exists():
                raise _damaged(layout) from error
            raise
        sync_directory(layout.root.parent)


def _fill(draft: PlaneLayout, root: Path) -> None:
    main = draft.agent_directory(MAIN_AGENT)
    directories = (*draft.directories(), main)
    for directory in directories:
        os.mkdir(directory, DIRECTORY_MODE)
    agent = Agent(MAIN_AGENT, "standard")
    create_file(draft.agent_file(MAIN_AGENT), write_agent(agent, root), FILE_MODE)
    create_file(draft.record, identity_of(root).to_bytes(), FILE_MODE)
    for directory in reversed(directories):
        sync_directory(directory)
    sync_directory(draft.root)


def _sweep(planes: Path) -> None:
    """Remove what killed builders left. Only the lock's holder builds, so none is alive."""
    for name in os.listdir(planes):
        if name.startswith(_BUILDING_PREFIX):
            shutil.rmtree(planes / name, ignore_errors=True)


def _damaged(layout: PlaneLayout) -> ConfigError:
    return ConfigError(
        f"the plane {quote(str(layout.root))} has no {layout.record.name}",
        where=str(layout.root),
        hint="restore that file from a backup, or move the directory away",
    )
