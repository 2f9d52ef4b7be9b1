"""The fence: file access under one root, by descriptor, atomic and durable.

    names        the paths that policy judges          paths       the text rules
    resolution   opening without passing a link        links       where links lead
    workspace    the face that tools use               roots       the root, held open
    listing      walking directories    entries        what one holds; states: what a path is
    reading      one open file          window         some lines of it
    known        what was found out about large files before
    writing      create, replace, edit  moving         move, delete
    search       a folder of its own: contents and names, by ripgrep
    drafts       new content on its way to a name      temporary   names that outlive nobody
    receipts     what an act came to    noting         a set noted before it happens
    changes      the nouns of a set     changeset      many changes, all or none
    beside       a directory elsewhere that a set of changes takes in
    change_*     its plan, first look, drafts, steps, taking, trees and recovery
    locks        one writer at a time   parents        directories made on the way
    metadata     what survives a write
    failures     OSError → paddock.errors, in one place

Whether a path may be touched is policy's business, not decided here.
"""

from paddock.workspace.entries import (
    DirectoryEntry,
    EntryFilter,
    EntryKind,
    EveryEntry,
    Listing,
    Page,
)
from paddock.workspace.listing import first_entries
from paddock.workspace.names import (
    ROOT,
    EntryPath,
    ReadPath,
    WorkspacePath,
    WritePath,
)
from paddock.workspace.reading import FileContent, OpenFile, version_of
from paddock.workspace.receipts import DeleteReceipt, EntryVersion, MoveReceipt, WriteReceipt
from paddock.workspace.resolution import (
    Openat2Resolution,
    Resolution,
    WalkResolution,
    detect_resolution,
)
from paddock.workspace.temporary import is_temporary_name
from paddock.workspace.window import Window, WindowLimits, WindowLine
from paddock.workspace.workspace import Workspace
from paddock.workspace.writing import Edit, Expected, Pieces

__all__ = [
    "ROOT",
    "DeleteReceipt",
    "DirectoryEntry",
    "Edit",
    "EntryFilter",
    "EntryKind",
    "EntryPath",
    "EntryVersion",
    "EveryEntry",
    "Expected",
    "FileContent",
    "Listing",
    "MoveReceipt",
    "OpenFile",
    "Openat2Resolution",
    "Page",
    "Pieces",
    "ReadPath",
    "Resolution",
    "WalkResolution",
    "Window",
    "WindowLimits",
    "WindowLine",
    "Workspace",
    "WorkspacePath",
    "WritePath",
    "WriteReceipt",
    "detect_resolution",
    "first_entries",
    "is_temporary_name",
    "version_of",
]
