"""Making a bare plane: a directory that governs itself, whole or not a plane at all.

What it is made of comes in as a `Blueprint`, and how it gets there as a `Builder`.
Everything is put in place first and the admin's configuration last: that file marks
a bare plane, so a crash before it leaves a directory that is no plane yet, and the
next `init` goes on from there. Nothing that stands there is ever removed or written
over.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final, Protocol

from paddock import limits
from paddock.errors import ConfigError, UsageError
from paddock.plane.apart import require_outside
from paddock.plane.discovery import is_bare_plane
from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout
from paddock.plane.paths import real_directory, real_path
from paddock.plane.registry import is_registered_bare_plane, register_bare_plane
from paddock.storage.atomic import (
    DIRECTORY_MODE,
    FILE_MODE,
    create_file,
    host_errors,
    is_temporary_name,
    make_directories,
    read_file,
    require_private,
    sync_directory,
)
from paddock.storage.locks import locked
from paddock.text.show import quote
from paddock.values.planes import PlaneKind

_DRAFT: Final = re.compile(r"\.paddock-[0-9a-f]{32}\.[a-z]{1,8}", re.ASCII)
"""A file or directory on its way, of the plane's own or of a set of changes."""

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
"""What every bare plane has, parents first."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What a bare plane is made of. Paths are relative to its root, with `/`."""

    config: bytes
    """`HOT/config/admin_config.json`, put there last."""
    files: Mapping[str, bytes]
    """All others that are the same whenever the plane is made. The directories that they
    stand in are in `directories`, or are made by the builder."""
    directories: tuple[str, ...] = BARE_DIRECTORIES
    leftovers: tuple[str, ...] = ()
    """Beginnings of the names of what a builder makes besides, each time another: records,
    receipts, approvals. A stopped `init` may have left them, which the builder looks at."""
    beside: frozenset[str] = frozenset()
    """Files that may stand there and are no part of the plane."""


class Builder(Protocol):
    def build(self, layout: PlaneLayout, blueprint: Blueprint) -> Iterable[Path]:
        """Make everything but the configuration, durably; the files that were made.

        What a stopped `init` left is there already. The root's lock is held.
        """
        ...


class PlainBuilder:
    """Makes the blueprint's files, and nothing else."""

    def build(self, layout: PlaneLayout, blueprint: Blueprint) -> Iterable[Path]:
        for name, content in blueprint.files.items():
            if create_file(layout.root / name, content, FILE_MODE):
                yield layout.root / name


@dataclass(frozen=True, slots=True)
class MadePlane:
    layout: PlaneLayout
    made: tuple[Path, ...]
    """The files that this call made; none where the plane was there."""
    registered: bool
    """Whether it counts whole without being named."""


def make_bare_plane(
    directory: Path,
    blueprint: Blueprint,
    environment: Environment,
    builder: Builder | None = None,
) -> MadePlane:
    """Make `directory` (made itself where it is missing) a bare plane.

    Of several processes one makes it and all find it. A plane that is there already
    is left as it is; it is not registered either, since whoever brought it may be
    somebody else.

    Raises:
        UsageError: it holds something else, or is no directory.
        ConfigError: it overlaps Paddock's own files or lies in another bare plane or in a
            project, or others can write to it.
        HostError: something could not be written.
    """
    require_outside(directory, environment)
    wanted = real_path(directory)
    _require_no_plane_above(wanted)
    _make_root(directory)
    root = real_directory(directory)
    layout = PlaneLayout(root, PlaneKind.BARE)
    with locked(root):
        if is_bare_plane(root):
            return MadePlane(layout, (), is_registered_bare_plane(root, environment))
        require_private(root)
        # Threat: what came from elsewhere with keys and approvals in it passes for what we
        # left. We registered the place before we left anything there.
        is_ours = is_registered_bare_plane(root, environment)
        _require_free(root, blueprint, blueprint.leftovers if is_ours else ())
        # Registered first: the plane is never there without it. A registered path
        # at which no plane comes to stand harms nobody.
        register_bare_plane(root, environment)
        made = tuple(_build(layout, blueprint, builder or PlainBuilder()))
    return MadePlane(layout, made, registered=True)


def _make_root(directory: Path) -> None:
    if os.path.lexists(directory):
        return
    make_directories(directory)


def _require_no_plane_above(root: Path) -> None:
    # Threat: the outer plane's admin works on everything below its root, and so on
    # the inner plane's configuration.
    for parent in root.parents:
        if is_bare_plane(parent):
            raise ConfigError(
                f"{quote(str(root))} lies in the bare plane {quote(str(parent))}",
                where=str(root),
                hint="make it somewhere else: agents of the outer plane could change it",
            )


def _require_free(root: Path, blueprint: Blueprint, leftovers: tuple[str, ...]) -> None:
    """Refuse a directory with anything but what a stopped `init` left, and what may be there."""
    above = _above(blueprint.beside)
    known = _above(blueprint.files) | set(blueprint.directories)
    for path in _entries(root):
        relative = path.relative_to(root).as_posix()
        is_beside = relative in blueprint.beside or relative in above
        if is_beside or _is_bytecode(relative, above):
            continue
        if not _is_ours(path, relative, blueprint, known, leftovers):
            raise UsageError(
                f"{quote(str(root))} is neither empty nor a bare plane: it holds {quote(relative)}",
                where=str(root),
                hint="name an empty directory or a new one; nothing was changed",
            )


def _is_bytecode(relative: str, above: set[str]) -> bool:
    """Whether an interpreter left it beside a source that may stand there."""
    folder, found, _ = relative.partition("/__pycache__")
    return bool(found) and folder in above


def _entries(directory: Path) -> Iterator[Path]:
    with host_errors("looking at", directory):
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    for entry in entries:
        path = directory / entry.name
        yield path
        # A directory that is not ours has ended the walk by now.
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(path)


def _above(names: Iterable[str]) -> set[str]:
    """Every directory on the way to these files."""
    return {parent.as_posix() for name in names for parent in PurePath(name).parents}


def _is_ours(
    path: Path,
    relative: str,
    blueprint: Blueprint,
    known: set[str],
    leftovers: tuple[str, ...],
) -> bool:
    with host_errors("looking at", path):
        mode = os.lstat(path).st_mode
    is_draft = any(map(_DRAFT.fullmatch, relative.split("/")))
    is_left = relative.startswith(leftovers) or (bool(leftovers) and is_draft)
    if stat.S_ISDIR(mode):
        return relative in known or is_left
    if not stat.S_ISREG(mode):
        return False
    if is_left:
        return True
    if is_temporary_name(path.name):
        return True
    wanted = blueprint.files.get(relative)
    return wanted is not None and read_file(path, limits.admin_config_bytes_max) == wanted


def _build(layout: PlaneLayout, blueprint: Blueprint, builder: Builder) -> Iterator[Path]:
    """Put everything in its place; what is there already stays.

    Sequence: directories, each fsynced in its parent → everything else, durable →
    the configuration, by which it is a plane.
    """
    root = layout.root
    for name in blueprint.directories:
        with host_errors("making", root / name):
            try:
                os.mkdir(root / name, DIRECTORY_MODE)
            except FileExistsError:
                continue
            sync_directory((root / name).parent)
    yield from builder.build(layout, blueprint)
    # Beside it, what a killed writer leaves would be a file in the plane that nobody owns.
    drafts = layout.objects if layout.objects.is_dir() else None
    if create_file(layout.admin_config, blueprint.config, FILE_MODE, drafts):
        yield layout.admin_config
