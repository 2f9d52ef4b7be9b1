"""The fence: file access under one root, by descriptor, atomic and durable.

    paths, workspace, read      names; one root, and opening without passing a link; one open file
    listing, metadata           walking directories; what stands there, and what survives a write
    targets                     what is about to change: its locks, and names that outlive nobody
    single_change               a set of one: create, replace, edit, move, delete
    changes, draft, exchange    a set that happens as a whole: its nouns and plan, drafts, steps
    apply                       commit it with the journal, and settle it after a crash
    search, failures            contents and names, by ripgrep; OSError → paddock.errors

Whether a path may be touched is policy's business, not decided here.
"""

from paddock.workspace.paths import (
    EntryKind,
    EntryPath,
    EntryVersion,
    ReadPath,
    WorkspacePath,
    WritePath,
)
from paddock.workspace.read import OpenFile, Window, WindowLimits, version_of
from paddock.workspace.workspace import Workspace, detect_resolution

__all__ = [
    "EntryKind",
    "EntryPath",
    "EntryVersion",
    "OpenFile",
    "ReadPath",
    "Window",
    "WindowLimits",
    "Workspace",
    "WorkspacePath",
    "WritePath",
    "detect_resolution",
    "version_of",
]
