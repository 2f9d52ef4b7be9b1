"""The bare planes that this user made or accepted: kept in the user's state directory.

Threat: a clone, or an agent, can put `HOT/config/` with a generous policy
# anywhere. Looking like a plane is therefore not enough to be one: a bare plane
# that was not named by the user counts fully only when it is registered here.
"""

from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.environment import Environment
from paddock.plane.files import make_directories, read_file, replace_file, require_private
from paddock.plane.layout import path_id
from paddock.plane.strict_json import parse_object, write_object

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
        content = read_file(record, limits.plane_record_bytes_max)
        if content is None:
            return False
        fields = parse_object(content, str(record))
        fields.require_only(frozenset({"format", "path"}))
        return fields.number("format") == _FORMAT and fields.text("path") == str(root)
    except ConfigError:
        # Unknown is no: the plane then counts as one that was never registered.
        return False


def _record_path(root: Path, environment: Environment) -> Path:
    return environment.paddock_home / "bare" / f"{path_id(root)}.json"
