"""File access under one root: by descriptor, atomic and durable.

    paths, workspace, read      names; one root, opened without following links; one open file
    listing, metadata           directory walks; file status, and the metadata a write keeps
    targets                     locks of directories, and temporary names that are cleaned up
    single_change               one change: create, replace, edit, move, delete
    changes, draft, exchange    an atomic set of changes: its plan, drafts and steps
    apply                       commit a set with the journal, and recover it after a crash
    search, failures            search contents and names; OSError → paddock.errors

Policy decides elsewhere whether a path may be accessed.
"""

from paddock.workspace.paths import (
    EntryKind,
    EntryPath,
    EntryVersion,
    ReadPath,
    WorkspacePath,
    WritePath,
)
from paddock.workspace.read import OpenFile, Window, version_of
from paddock.workspace.workspace import Workspace, detect_resolution

__all__ = [
    "EntryKind",
    "EntryPath",
    "EntryVersion",
    "OpenFile",
    "ReadPath",
    "Window",
    "Workspace",
    "WorkspacePath",
    "WritePath",
    "detect_resolution",
    "version_of",
]
