"""The fence: file access under one root, by descriptor, atomic and durable.

    paths        the nouns: names, and what a directory holds
    resolve      opening without passing a link; where links lead; the root, held open
    workspace    the face: one root, and what paths in it lead to
    listing      walking directories    read      one open file, or some lines of it
    states       what stands at a path, with its version
    places       what is about to change: its locks, drafts, names that outlive nobody
    metadata     what survives a write
    changes      the nouns and the plan of a set that happens as a whole
    build        what is new, beside its place
    exchange     one step of a set, and directories as a whole
    single       a set of one: create, replace, edit, move, delete
    apply        a set of many, with the journal      recover   after a crash
    search       a folder of its own: contents and names, by ripgrep
    failures     OSError → paddock.errors, in one place

Whether a path may be touched is policy's business, not decided here. What is exported is for
who reads; what changes files is imported by who changes them.
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
from paddock.workspace.resolve import detect_resolution
from paddock.workspace.workspace import Workspace

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
