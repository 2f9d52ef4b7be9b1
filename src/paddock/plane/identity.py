"""What a project's plane says about itself: `plane.json`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.layout import path_id
from paddock.plane.strict_json import parse_object, write_object
from paddock.storage.atomic import read_file
from paddock.text.show import quote

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class PlaneIdentity:
    """Which project a plane governs."""

    root: Path
    """Real absolute path of the project."""
    id: str
    """`layout.path_id` of the root."""

    def to_bytes(self) -> bytes:
        """The content of `plane.json`."""
        return write_object({"format": FORMAT, "root": str(self.root), "id": self.id})


def identity_of(root: Path) -> PlaneIdentity:
    """The identity of the plane of the project at the real path `root`."""
    return PlaneIdentity(root, path_id(root))


def read_identity(record: Path) -> PlaneIdentity | None:
    """The identity in `record`, or None where there is no such file.

    Raises:
        ConfigError: it does not load, or is of another format.
    """
    content = read_file(record, limits.plane_record_bytes_max)
    return None if content is None else parse_identity(content, str(record))


def parse_identity(content: bytes, file: str) -> PlaneIdentity:
    """The identity that `content` states; `file` is for messages.

    Raises:
        ConfigError: as `read_identity`.
    """
    fields = parse_object(content, file)
    fields.require_only(frozenset({"format", "root", "id"}))
    if fields.number("format") != FORMAT:
        raise fields.error(
            "format",
            f"the plane has format {quote(fields.number('format'))}, this Paddock knows {FORMAT}",
            "use the Paddock that made it",
        )
    root = fields.text("root")
    if not root.startswith("/") or "\0" in root:
        raise fields.error("root", f"{quote(root)} is not an absolute path", "restore the file")
    return PlaneIdentity(Path(root), fields.text("id"))


def require_identity(found: PlaneIdentity, root: Path, record: Path) -> None:
    """Refuse a plane that is another project's.

    Threat: ids are cut hashes and files can be copied: without this, a project
    could come to be governed by another one's agents and history.

    Raises:
        ConfigError: root or id differ.
    """
    if found == identity_of(root):
        return
    raise ConfigError(
        f"the plane for {quote(str(root))} belongs to {quote(str(found.root))}"
        f" (id {quote(found.id)})",
        where=str(record),
        hint="move that plane away, or set PADDOCK_HOME to another directory",
    )
