"""What an act on the workspace came to, for the result and for the ledger."""

from dataclasses import dataclass

from paddock.workspace.entries import EntryKind
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


@dataclass(frozen=True, slots=True)
class MoveReceipt:
    """An entry has another name now."""

    path: WorkspacePath
    to: WorkspacePath
    kind: EntryKind
    """FILE, DIRECTORY or LINK."""
    version: str | None
    """Of a file's content, or of a link's text; None for a directory."""
    created_directories: tuple[WorkspacePath, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteReceipt:
    """An entry is gone."""

    path: WorkspacePath
    kind: EntryKind
    """FILE, DIRECTORY or LINK."""
    version_before: str | None
    """Of a file's content, or of a link's text; None for a directory."""
    bytes_before: int = 0
    mode_before: int | None = None
    """Permission bits; None for a link, which has none."""
    notes: tuple[str, ...] = ()
