"""The bare planes that this user made or accepted: kept in the user's state directory.

Threat: a clone, or an agent, can put `HOT/config/` with a generous policy
anywhere. Looking like a plane is therefore not enough to be one: a bare plane
that was not named by the user counts fully only when it is registered here.
"""

import os
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.environment import Environment
from paddock.plane.layout import path_id
from paddock.plane.strict_json import parse_object, write_object
from paddock.storage.atomic import (
    host_errors,
    make_directories,
    read_file,
    replace_file,
    require_private,
)

_FORMAT: Final = 1


def register_bare_plane(root: Path, environment: Environment) -> bool:
    """Remember the bare plane at the real path `root`; whether that was new."""
    if is_registered_bare_plane(root, environment):
        return False
    record = _record_path(root, environment)
    make_directories(record.parent)
    require_private(record.parent)
    replace_file(record, write_object({"format": _FORMAT, "path": str(root)}))
    return True


def is_registered_bare_plane(root: Path, environment: Environment) -> bool:
    """Whether `root` was registered. A record that does not load counts as none."""
    record = _record_path(root, environment)
    try:
        require_private(record.parent)
        return _read_record(record) == root
    except ConfigError:
        # Unknown is no: the plane then counts as one that was never registered.
        return False


def bare_planes_below(directory: Path, environment: Environment) -> tuple[str, ...]:
    """Every bare plane registered below the real path `directory`, relative to it, sorted.

    Also one that is not there any more: what came to stand in its place would count whole.

    Raises: HostError where the records cannot be listed.
    """
    records = registry_directory(environment)
    with host_errors("listing", records):
        try:
            names = os.listdir(records)
        except (FileNotFoundError, NotADirectoryError):
            return ()
    found: list[str] = []
    for name in names:
        try:
            root = _read_record(records / name) if name.endswith(".json") else None
        except ConfigError:
            continue  # It registers nothing.
        if root is not None and directory in root.parents:
            found.append(root.relative_to(directory).as_posix())
    return tuple(sorted(found))


def registry_directory(environment: Environment) -> Path:
    """Where the records are: it changes whenever one is added."""
    return environment.paddock_home / "bare"


def _read_record(record: Path) -> Path | None:
    """The plane that a record is about; raises ConfigError where it does not load."""
    content = read_file(record, limits.plane_record_bytes_max)
    if content is None:
        return None
    fields = parse_object(content, str(record))
    fields.require_only(frozenset({"format", "path"}))
    root = Path(fields.text("path"))
    return root if fields.number("format") == _FORMAT else None


def _record_path(root: Path, environment: Environment) -> Path:
    return registry_directory(environment) / f"{path_id(root)}.json"
