"""Which directory is worked on: from where the user stands to a project or bare plane."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.errors import ConfigError, HostError
from paddock.plane.apart import contains, require_outside
from paddock.plane.environment import Environment
from paddock.plane.identity import read_identity
from paddock.plane.layout import PlaneLayout, plane_name
from paddock.plane.paths import real_directory, real_path, require_utf8
from paddock.plane.registry import is_registered_bare_plane
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind

POLICY_MARKERS: Final = ("paddock.toml", "paddock.json")
"""Policy keeps agents from making these at any depth."""
PROJECT_MARKERS: Final = (*POLICY_MARKERS, ".git")


@dataclass(frozen=True, slots=True)
class ProjectRoot:
    """The directory that is worked on, as a real absolute path."""

    path: Path
    kind: PlaneKind
    accepted: bool = False
    """Of a bare plane: the user named it, or it is registered. Its policy counts whole."""


def find_root(start: Path, environment: Environment, override: Path | None = None) -> ProjectRoot:
    """The root for someone who stands at `start`.

    `override` (`--plane`), else `environment.plane`, replaces `start`, and a bare
    plane named so is taken as one. Otherwise, in this order: the project whose
    plane `start` lies in; the nearest registered bare plane at or above `start`;
    the nearest directory with a policy file; the nearest one with `.git`; the nearest
    unregistered bare plane; `start` itself.

    Threat: an agent may run `mkdir sub/.git` or `git clone`. Were that a root, whoever
    starts in it would work without the policy that stands above.

    A home directory that is kept in git does not make everything in it one
    project: the climb passes over directories that hold both `$HOME` and the
    user's Paddock files, which could not be a root anyway. Markers that somebody
    else left in a directory where others can write (`/tmp/.git`), or that is theirs, are
    passed over.

    Raises:
        UsageError: `start` is no directory.
        ConfigError: it is project and unregistered bare plane at once, its path is
            not UTF-8, or a plane's record there does not load.
    """
    named = override or environment.plane
    directory = real_directory(named or start)
    governed = _project_of_plane(directory, environment)
    if governed is not None:
        return governed
    if named is not None and is_bare_plane(directory):
        return _named_bare_plane(directory, environment)
    candidates = _candidates(directory, environment)
    _require_no_swapped_marker(candidates, environment)
    planes = [candidate for candidate in candidates if is_bare_plane(candidate)]
    for plane in planes:
        if is_registered_bare_plane(plane, environment):
            return ProjectRoot(plane, PlaneKind.BARE, accepted=True)
    projects = [
        candidate
        for candidate in candidates
        if _is_project(candidate) and not (candidate != directory and _is_planted(candidate))
    ]
    if projects:
        governed = next((each for each in projects if _has_policy(each)), projects[0])
        return ProjectRoot(governed, PlaneKind.PROJECT)
    if planes:
        return ProjectRoot(planes[0], PlaneKind.BARE)
    return ProjectRoot(directory, PlaneKind.PROJECT)


def name_of_root(start: Path, root: Path) -> Path:
    """`root` by the name that `start` has for it: another than its own where a link leads there.

    A client names files by the path that it was started with.
    """
    given = Path(os.path.abspath(start))
    for directory in (given, *given.parents):
        try:
            if os.path.samefile(directory, root):
                return directory
        except OSError:
            continue  # A `..` behind a link: textually there is no such directory.
    return root


def plane_for(root: ProjectRoot, environment: Environment) -> PlaneLayout:
    """The layout of the plane that governs `root`; nothing is made.

    Raises:
        ConfigError: root and the user's Paddock files overlap, or the place of planes is
            not UTF-8.
    """
    require_outside(root.path, environment)
    if root.kind is PlaneKind.BARE:
        return PlaneLayout(root.path, PlaneKind.BARE)
    planes = real_path(environment.planes)
    require_utf8(planes, "PADDOCK_HOME")
    return PlaneLayout(planes / plane_name(root.path), PlaneKind.PROJECT)


def is_bare_plane(directory: Path) -> bool:
    """Whether `directory` looks like a bare plane: it has the admin's configuration."""
    marker = PlaneLayout(directory, PlaneKind.BARE).admin_config
    status = _lstat(marker)
    return status is not None and stat.S_ISREG(status.st_mode)


def root_on_record(start: Path, environment: Environment) -> ProjectRoot | None:
    """Inside a project's plane: that project, whether it is still there or not.

    Raises:
        UsageError: `start` is no directory.
        ConfigError: the plane's record does not load, or is another plane's.
    """
    plane = _plane_around(real_directory(start), environment)
    identity = None if plane is None else read_identity(plane / "plane.json")
    if plane is None or identity is None:
        return None
    _require_own_record(plane, identity.root)
    return ProjectRoot(identity.root, PlaneKind.PROJECT)


def _project_of_plane(directory: Path, environment: Environment) -> ProjectRoot | None:
    plane = _plane_around(directory, environment)
    identity = None if plane is None else read_identity(plane / "plane.json")
    if plane is None or identity is None:
        return None
    root = real_directory(identity.root)
    _require_own_record(plane, root)
    return ProjectRoot(root, PlaneKind.PROJECT)


def _plane_around(directory: Path, environment: Environment) -> Path | None:
    planes = real_path(environment.planes)
    if planes not in directory.parents:
        return None
    return planes / directory.relative_to(planes).parts[0]


def _require_own_record(plane: Path, root: Path) -> None:
    if plane_name(root) != plane.name:
        raise ConfigError(
            f"the plane {quote(str(plane))} says that it governs {quote(str(root))},"
            " and its name does not",
            where=str(plane / "plane.json"),
            hint="work from the project's own directory",
        )


def _named_bare_plane(directory: Path, environment: Environment) -> ProjectRoot:
    # Threat: a project that is named for good (in a client's configuration, say)
    # pulls a commit with HOT/config in it and becomes a plane with its own policy.
    if _is_project(directory) and not is_registered_bare_plane(directory, environment):
        raise ConfigError(
            f"{quote(str(directory))} is a project and looks like a bare plane as well",
            where=str(directory),
            hint="if it is your plane: paddock trust DIR; otherwise remove HOT/config",
        )
    return ProjectRoot(directory, PlaneKind.BARE, accepted=True)


def _require_no_swapped_marker(candidates: tuple[Path, ...], environment: Environment) -> None:
    """Refuse a plane of this user whose configuration is no regular file any more.

    Threat: a link in the place of the configuration would make the plane look like
    an ordinary directory, and its files anybody's.
    """
    for candidate in candidates:
        marker = PlaneLayout(candidate, PlaneKind.BARE).admin_config
        status = _lstat(marker)
        if status is None or stat.S_ISREG(status.st_mode):
            continue
        if is_registered_bare_plane(candidate, environment):
            raise ConfigError(
                f"{quote(str(marker))} is not a regular file",
                where=str(marker),
                hint="put the plane's own configuration back",
            )


def _candidates(directory: Path, environment: Environment) -> tuple[Path, ...]:
    """`directory`, and those of its parents that could be a root: see `find_root`."""
    home = real_path(environment.home)
    around_home = {home, *home.parents}
    parents = [
        parent
        for parent in directory.parents
        if not (parent in around_home and _holds_paddocks_files(parent, environment))
    ]
    return (directory, *parents)


def _holds_paddocks_files(directory: Path, environment: Environment) -> bool:
    return contains(directory, environment.paddock_home) or contains(
        directory, environment.config_home
    )


def _has_policy(directory: Path) -> bool:
    return any(_lstat(directory / marker) is not None for marker in POLICY_MARKERS)


def _is_project(directory: Path) -> bool:
    # A paddock.toml of any type counts: reading it then says what is wrong with it.
    # A .git file is a worktree's or a submodule's.
    return any(_lstat(directory / marker) is not None for marker in PROJECT_MARKERS)


def _is_planted(directory: Path) -> bool:
    """Whether somebody else may have made `directory` a project: see `find_root`."""
    status = _lstat(directory)
    ours = (os.geteuid(), 0)
    if status is None:
        return False
    if status.st_uid in ours and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    markers = [_lstat(directory / marker) for marker in PROJECT_MARKERS]
    return all(marker is None or marker.st_uid not in ours for marker in markers)


def _lstat(path: Path) -> os.stat_result | None:
    """None where nothing stands; also where a parent may not be searched.

    Nothing could be read from such a parent either.
    """
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise HostError(f"looking at {quote(str(path))} failed: {error.strerror}") from error
