"""What an act on the workspace came to, for the result and for the ledger."""

from dataclasses import dataclass
from typing import NamedTuple

from paddock.workspace.entries import ChangeableKind, EntryKind
from paddock.workspace.names import WorkspacePath


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """A file was created, replaced or edited, and is on the device."""

    path: WorkspacePath
    """The file that was written, links resolved."""
    created: bool
    bytes_before: int
    bytes_written: int
    version: str
    version_before: str | None
    """None exactly when `created`."""
    created_directories: tuple[WorkspacePath, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know besides, one sentence each."""


class EntryVersion(NamedTuple):
    """What stood under a name, with its kind.

    Threat: a file and a link have versions of one form. One that is exchanged for the
    other, with the same bytes, is another thing at the same version.
    """

    kind: ChangeableKind
    """FILE, DIRECTORY or LINK."""
    version: str
    """Of a file's content, or of a link's text; a word for a directory."""

    def __str__(self) -> str:
        """A file's version alone; that of a link says that it is one's."""
        return f"link {self.version}" if self.kind is EntryKind.LINK else self.version


@dataclass(frozen=True, slots=True)
class MoveReceipt:
    """An entry has another name now."""

    path: WorkspacePath
    to: WorkspacePath
    kind: ChangeableKind
    """FILE, DIRECTORY or LINK."""
    version: str | None
    """Of a file's content, or of a link's text; None for a directory."""
    created_directories: tuple[WorkspacePath, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteReceipt:
    """An entry is gone."""

    path: WorkspacePath
    kind: ChangeableKind
    """FILE, DIRECTORY or LINK."""
    version_before: str | None
    """Of a file's content, or of a link's text; None for a directory."""
    bytes_before: int = 0
    mode_before: int | None = None
    """Permission bits; None for a link, which has none."""
    notes: tuple[str, ...] = ()
