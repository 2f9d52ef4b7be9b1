"""What stands at a path, whatever it is: looked at, and not followed."""

import os

from paddock.workspace.change_looks import state_of
from paddock.workspace.changes import EntryState, Seen
from paddock.workspace.drafts import changed
from paddock.workspace.failures import converting, special_file
from paddock.workspace.metadata import FileStatus, status_at, status_of
from paddock.workspace.names import EntryPath, WorkspacePath
from paddock.workspace.reading import require_versionable, version_of, version_of_file
from paddock.workspace.resolution import PASS_DIRECTORY, READ_FILE
from paddock.workspace.writing import Site


def entry_state(site: Site, entry: EntryPath) -> EntryState | None:
    with converting(entry.path, "look at"):
        fd = _parent(site, entry.path)
        if fd is None:
            return None
        try:
            status = status_at(fd, entry.path.name)
            return None if status is None else _state(entry.path, fd, status)
        finally:
            os.close(fd)


def entry_seen(site: Site, entry: EntryPath) -> Seen | None:
    with converting(entry.path, "look at"):
        fd = _parent(site, entry.path)
        if fd is None:
            return None
        try:
            status = status_at(fd, entry.path.name)
        finally:
            os.close(fd)
    return None if status is None else Seen(status)


def _parent(site: Site, path: WorkspacePath) -> int | None:
    try:
        return site.resolution.open(site.root_fd, path.parent.relative, PASS_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _state(path: WorkspacePath, dir_fd: int, status: FileStatus) -> EntryState:
    if status.is_directory:
        return state_of(status, None)
    if status.is_link:
        text = os.readlink(path.name, dir_fd=dir_fd)
        return state_of(status, version_of(os.fsencode(text)), text)
    if not status.is_regular:
        raise special_file(path)
    require_versionable(path, status)
    fd = os.open(path.name, READ_FILE | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        if status_of(fd) != status:
            raise changed(path)
        return state_of(status, version_of_file(fd, status.size_bytes))
    finally:
        os.close(fd)
