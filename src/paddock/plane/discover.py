"""Find the root, of a project or a bare plane, for the user's current directory."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, HostError, UsageError
from paddock.plane.environment import Environment, real_directory, real_path, require_utf8
from paddock.plane.json_files import load_file, names_in, parse_file, write_object, write_private
from paddock.plane.layout import PlaneLayout, path_id, plane_name
from paddock.storage import atomic
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind


def contains(outer: Path, inner: Path) -> bool:
    """Return True if `inner` is `outer` or is below it.

    Compare directory identities if both exist, so that another spelling (a link, a bind mount, a
    case-insensitive file system) does not hide it.
    """
    outer, inner = real_path(outer), real_path(inner)
    if inner.is_relative_to(outer):
        return True
    wanted = _identity(outer)
    return wanted is not None and wanted in map(_identity, (inner, *inner.parents))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        # Missing or unreadable: then only its name can be compared.
        return None
    return status.st_dev, status.st_ino


def require_outside(root: Path, environment: Environment) -> None:
    """Refuse a root that contains the user's Paddock files, or is among them. Raises: ConfigError.

    Threat: an agent can write to files of its workspace. State inside it would let the agent trust
    its own policy, edit its own ledger, or read the keys; a root inside the state directory has
    the same effect.
    """
    for what, name, directory in (
        ("state", "PADDOCK_HOME", environment.paddock_home),
        ("configuration", "XDG_CONFIG_HOME", environment.config_home),
    ):
        if contains(root, directory):
            raise ConfigError(
                f"Paddock's {what} directory {quote(str(directory))} is inside"
                f" {quote(str(root))}, where agents work",
                where=str(root),
                hint=f"work in a directory further down, or set {name} to one outside",
            )
        if contains(directory, root):
            raise ConfigError(
                f"{quote(str(root))} is inside Paddock's {what} directory {quote(str(directory))}",
                where=str(root),
                hint="work in another directory",
            )


FORMAT: Final = 1


class PlaneIdentity(Strict, frozen=True):
    format: int
    root: str
    id: str

    def to_bytes(self) -> bytes:
        return write_object(self)


def identity_of(root: Path) -> PlaneIdentity:
    return PlaneIdentity(FORMAT, str(root), path_id(root))


def parse_identity(content: bytes, file: str) -> PlaneIdentity:
    given = parse_file(content, file)
    read = given.convert(PlaneIdentity)
    if read.format != FORMAT:
        raise given.error(
            "format",
            f"the plane has format {quote(read.format)}, this Paddock knows {FORMAT}",
            "use the version of Paddock that created it",
        )
    if not read.root.startswith("/") or "\0" in read.root:
        raise given.error("root", f"{quote(read.root)} is not an absolute path", "restore the file")
    return read


def require_identity(found: PlaneIdentity, root: Path, record: Path) -> None:
    """Refuse a plane that is another project's. Raises: ConfigError.

    Threat: ids are shortened hashes and files can be copied: without this check, another project's
    agents and history could govern this one.
    """
    if found == identity_of(root):
        return
    raise ConfigError(
        f"the plane for {quote(str(root))} belongs to {quote(found.root)} (id {quote(found.id)})",
        where=str(record),
        hint="move that plane away, or set PADDOCK_HOME to another directory",
    )


# Threat: a clone, or an agent, can put `HOT/config/` with a generous policy anywhere. So looking
# like a plane is not enough: a bare plane that the user did not name counts fully only if it is
# registered here.


def register_bare_plane(root: Path, environment: Environment) -> bool:
    if is_registered_bare_plane(root, environment):
        return False
    write_private(_registration_path(root, environment), _Registration(FORMAT, str(root)))
    return True


def is_registered_bare_plane(root: Path, environment: Environment) -> bool:
    """Return True if `root` is registered. A registration that does not load does not count."""
    record = _registration_path(root, environment)
    try:
        atomic.require_private(record.parent)
        return _read_registration(record) == root
    except ConfigError:
        # Unknown is no: the plane then counts as unregistered.
        return False


def bare_planes_below(directory: Path, environment: Environment) -> tuple[str, ...]:
    """Return the registered planes below `directory`, relative to it, sorted. Raises: HostError.

    Include planes that are gone: whatever an agent puts in their place would count fully.
    """
    records = registry_directory(environment)
    found: list[str] = []
    for name in names_in(records):
        try:
            root = _read_registration(records / name) if name.endswith(".json") else None
        except ConfigError:
            continue  # Not a registration.
        if root is not None and directory in root.parents:
            found.append(root.relative_to(directory).as_posix())
    return tuple(sorted(found))


def registry_directory(environment: Environment) -> Path:
    return environment.paddock_home / "bare"


def _read_registration(record: Path) -> Path | None:
    given = load_file(record, limits.plane_record_bytes_max)
    read = None if given is None else given.convert(_Registration)
    return Path(read.path) if read is not None and read.format == FORMAT else None


class _Registration(Strict, frozen=True):
    format: int
    path: str


def _registration_path(root: Path, environment: Environment) -> Path:
    return registry_directory(environment) / f"{path_id(root)}.json"


POLICY_MARKERS: Final = ("paddock.toml", "paddock.json")
"""Policy keeps agents from creating these at any depth."""
PROJECT_MARKERS: Final = (*POLICY_MARKERS, ".git")


class ProjectRoot(Struct, frozen=True):
    path: Path
    kind: PlaneKind
    accepted: bool = False
    """A bare plane that the user named or registered: its policy counts fully, without trust."""


def find_root(start: Path, environment: Environment, override: Path | None = None) -> ProjectRoot:
    """Return the root for the current directory `start`.

    `override` (`--plane`), else `environment.plane`, replaces `start`. Then, in this order:
    the project whose plane contains `start`; `start` itself, if it was named so and is a bare
    plane; the nearest registered bare plane at or above `start`; the nearest directory with a
    policy file; the nearest one with `.git`; the nearest unregistered bare plane; `start` itself.

    Threat: an agent may run `mkdir sub/.git` or `git clone`. If that were a root, a session started
    in it would not have the policy above it.

    A home directory under git does not make everything in it one project: the search skips
    directories that contain both `$HOME` and the user's Paddock files, which could not be a root
    anyway. Above `start` it also skips a directory that others own or can write (`/tmp`), unless
    a marker in it belongs to the user or root.

    Raises: UsageError: `start` is not a directory. ConfigError.
    """
    named = override or environment.plane
    directory = real_directory(named or start)
    governed = _project_of_plane(directory, environment, real_directory)
    if governed is not None:
        return governed
    if named is not None and is_bare_plane(directory):
        return _named_bare_plane(directory, environment)
    if named is not None and (copied := root_of_copy(directory)) is not None:
        raise UsageError(
            f"{quote(str(directory))} is a copy of the plane of {quote(str(copied.path))}",
            hint="only paddock ledger and policy explain CALL read a copy; name the project",
        )
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
    """Return the root as the client's own path spells it: `start` may lead through a link."""
    given = Path(os.path.abspath(start))
    for directory in (given, *given.parents):
        try:
            if os.path.samefile(directory, root):
                return directory
        except OSError:
            continue  # A `..` after a link: the textual directory does not exist.
    return root


def plane_for(root: ProjectRoot, environment: Environment) -> PlaneLayout:
    require_outside(root.path, environment)
    if root.kind is PlaneKind.BARE:
        return PlaneLayout(root.path, PlaneKind.BARE)
    planes = real_path(environment.planes)
    require_utf8(planes, "PADDOCK_HOME")
    return PlaneLayout(planes / plane_name(root.path), PlaneKind.PROJECT)


def is_bare_plane(directory: Path) -> bool:
    marker = PlaneLayout(directory, PlaneKind.BARE).admin_config
    status = _lstat(marker)
    return status is not None and stat.S_ISREG(status.st_mode)


def root_on_record(start: Path, environment: Environment) -> ProjectRoot | None:
    """Return the project whose plane contains `start`, even if the project is gone."""
    return _project_of_plane(real_directory(start), environment, Path)


def root_of_copy(directory: Path) -> ProjectRoot | None:
    """Return the project whose plane was copied to `directory`; None: it is not such a copy.

    Threat: an agent could make its workspace look like one; a project is never taken for a copy.
    """
    record = directory / "plane.json"
    if _is_project(directory) or not (directory / "HOT" / "ledger").is_dir():
        return None
    content = atomic.read_file(record, limits.plane_record_bytes_max)
    if content is None:
        return None
    return ProjectRoot(Path(parse_identity(content, str(record)).root), PlaneKind.PROJECT)


def _project_of_plane(
    directory: Path, environment: Environment, find: Callable[[Path], Path]
) -> ProjectRoot | None:
    planes = real_path(environment.planes)
    if planes not in directory.parents:
        return None
    plane = planes / directory.relative_to(planes).parts[0]
    content = atomic.read_file(plane / "plane.json", limits.plane_record_bytes_max)
    if content is None:
        return None
    root = find(Path(parse_identity(content, str(plane / "plane.json")).root))
    if plane_name(root) != plane.name:
        raise ConfigError(
            f"the plane {quote(str(plane))} says that it governs {quote(str(root))},"
            " and its name does not",
            where=str(plane / "plane.json"),
            hint="work from the project's own directory",
        )
    return ProjectRoot(root, PlaneKind.PROJECT)


def _named_bare_plane(directory: Path, environment: Environment) -> ProjectRoot:
    # Threat: a project that a client's configuration names pulls a commit with HOT/config, and
    # becomes a plane with its own policy.
    if _is_project(directory) and not is_registered_bare_plane(directory, environment):
        raise ConfigError(
            f"{quote(str(directory))} is a project and looks like a bare plane as well",
            where=str(directory),
            hint="if it is your plane: paddock trust DIR; otherwise remove HOT/config",
        )
    return ProjectRoot(directory, PlaneKind.BARE, accepted=True)


def _require_no_swapped_marker(candidates: tuple[Path, ...], environment: Environment) -> None:
    """Refuse a plane of this user whose configuration is no longer a regular file.

    Threat: a link in place of the configuration would make the plane look like an ordinary
    directory, whose files agents may change.
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
                hint="restore the plane's own configuration",
            )


def _candidates(directory: Path, environment: Environment) -> tuple[Path, ...]:
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
    # A paddock.toml of any type counts: the reader then reports what is wrong with it.
    # Worktrees and submodules have a .git file.
    return any(_lstat(directory / marker) is not None for marker in PROJECT_MARKERS)


def _is_planted(directory: Path) -> bool:
    status = _lstat(directory)
    ours = (os.geteuid(), 0)
    if status is None:
        return False
    if status.st_uid in ours and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    markers = [_lstat(directory / marker) for marker in PROJECT_MARKERS]
    return all(marker is None or marker.st_uid not in ours for marker in markers)


def _lstat(path: Path) -> os.stat_result | None:
    """Return None if nothing exists there, or a parent may not be searched."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise HostError(f"cannot inspect {quote(str(path))}: {error.strerror}") from error
