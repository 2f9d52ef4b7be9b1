"""The fence: file access under one root, by descriptor, atomic and durable.

    paths        the nouns: names, what a directory holds, what an act came to
    resolve      opening without passing a link; where links lead; the root, held open
    workspace    the face that tools use
    listing      walking directories    read      one open file, or some lines of it
    places       what is about to change: its locks, and temporary names that outlive nobody
    metadata     what survives a write; directories made on the way
    changes      the nouns and the plan of a set that happens as a whole
    preflight    its first look         build     what is new, beside its place
    exchange     one step of it, and directories as a whole
    single       a set of one: create, replace, edit, move, delete
    apply        a set of many, with the journal      recover   after a crash
    search       a folder of its own: contents and names, by ripgrep
    failures     OSError → paddock.errors, in one place

Whether a path may be touched is policy's business, not decided here.
"""

from paddock.workspace.build import Pieces
from paddock.workspace.listing import first_entries
from paddock.workspace.paths import (
    ROOT,
    DeleteReceipt,
    DirectoryEntry,
    EntryFilter,
    EntryKind,
    EntryPath,
    EntryVersion,
    EveryEntry,
    Listing,
    MoveReceipt,
    Page,
    ReadPath,
    WorkspacePath,
    WritePath,
    WriteReceipt,
    is_temporary_name,
)
from paddock.workspace.read import (
    FileContent,
    OpenFile,
    Window,
    WindowLimits,
    WindowLine,
    version_of,
)
from paddock.workspace.resolve import (
    Openat2Resolution,
    Resolution,
    WalkResolution,
    detect_resolution,
)
from paddock.workspace.single import Edit, Expected
from paddock.workspace.workspace import Workspace

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
