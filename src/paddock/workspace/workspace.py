"""The workspace: one root, held by its descriptor, and what its paths lead to.

Every open starts at the root's descriptor and cannot leave it. A path is resolved once, policy
judges what came out, and exactly that is used: a swap in between makes the act fail.
"""

import os
from contextlib import AbstractContextManager
from typing import Self

from paddock.errors import PathNotADirectoryError, PathNotAFileError, PathThroughLinkError
from paddock.storage.atomic import held_open
from paddock.storage.disk import Disk
from paddock.storage.history import Keeper
from paddock.text.show import quote, show_name
from paddock.workspace.failures import converting
from paddock.workspace.paths import (
    ROOT,
    AskedPath,
    EntryPath,
    ReadPath,
    WorkspacePath,
    WritePath,
    is_plain,
    is_temporary_name,
    parse_asked,
    unchecked_path,
)
from paddock.workspace.read import KnownFiles, OpenFile
from paddock.workspace.resolve import (
    PASS,
    PASS_DIRECTORY,
    READ_DIRECTORY,
    READ_FILE,
    Beside,
    BesideResolution,
    Found,
    Resolution,
    Root,
    beside_of,
    detect_resolution,
    find_beside,
    find_real,
    open_root,
)


class Workspace:
    """File access under one root. It serves any number of threads, and forked children."""

    def __init__(self, root: Root, resolution: Resolution, disk: Disk, keeper: Keeper) -> None:
        self.root, self.real_root, self.root_fd = root  # its names are for the host alone
        self.root_names = self.root, self.real_root
        self.resolution = resolution
        self.disk = disk
        self.keeper = keeper
        self._known = KnownFiles()

    @classmethod
    def open(
        cls,
        root: str,
        resolution: Resolution | None = None,
        disk: Disk | None = None,
        keeper: Keeper | None = None,
        name: str | None = None,
    ) -> Self:
        """Open the workspace at `root`, a directory that exists, and clean up after killed writers.

        `name` is another one of that directory. `disk` is for tests of failure; `keeper` gets
        what is replaced, and without one it is gone. Raises: ConfigError: of `root`; HostError.
        """
        chosen = resolution or detect_resolution()
        workspace = cls(open_root(root, chosen, name), chosen, disk or Disk(), keeper or Keeper())
        try:
            workspace._clean_up()
        except BaseException:
            workspace.close()
            raise
        return workspace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.root_fd >= 0:
            fd, self.root_fd = self.root_fd, -1
            os.close(fd)

    def with_beside(self, beside: Beside) -> "Workspace":
        """The same workspace with what lies `beside` it, which stays the caller's."""
        root = Root(self.root, self.real_root, os.dup(self.root_fd))
        resolution = BesideResolution(self.resolution, root.fd, beside)
        return Workspace(root, resolution, self.disk, self.keeper)

    def _clean_up(self) -> None:
        with converting(ROOT, "list"):
            try:
                # The root's descriptor is O_PATH, which cannot be read: open it once more.
                with held_open(os.open(".", READ_DIRECTORY, dir_fd=self.root_fd)) as fd:
                    left = [name for name in os.listdir(fd) if is_temporary_name(name)]
            except PermissionError:
                return
            if left:
                from paddock.workspace.places import sweep  # noqa: PLC0415 - a writer was killed

                sweep(self, left)

    def open_at(self, path: WorkspacePath, flags: int) -> int:
        return self.resolution.open(self.root_fd, path.relative, flags)

    def hold_parent(self, path: WorkspacePath) -> AbstractContextManager[int]:
        return held_open(self.open_at(path.parent, PASS_DIRECTORY))

    # Resolving: text → paths to be judged. Nothing is changed, nothing stays open. Each raises
    # PathTraversalError: it leads out of the root; InvalidPathError: no path in any workspace;
    # PathNotADirectoryError: it ends in a slash and is no directory.

    def resolve_read(self, path: str) -> ReadPath:
        """Where `path` leads, links inside the root followed. It need not exist."""
        here = self._find_plain(path)
        if here is not None:
            return ReadPath(here, here)
        asked, found = self._find(path, follow_last=True)
        _require_directory_form(asked, found)
        return ReadPath(found.asked, found.real)

    def resolve_write(self, path: str) -> WritePath:
        """The file that a write to `path` would write; a link in the last place is followed.

        Raises: PathThroughLinkError: a directory on the way is a link, of which missing ones are
            taken as text; PathNotAFileError: it ends in a slash.
        """
        here = self._find_plain(path)
        if here is not None:
            return WritePath(here, here, exists=True)
        asked, found = self._find(path, follow_last=True)
        _refuse_link_on_way(asked, found)
        if asked.as_directory:
            raise PathNotAFileError(
                f"path {quote(path)} names a directory, not a file",
                hint="use the path of a file, without a slash at its end",
            )
        return WritePath(found.asked, found.real, found.exists)

    def resolve_entry(self, path: str) -> EntryPath:
        """The entry that `path` names, to move or delete it; raises as the two above."""
        here = self._find_plain(path)
        if here is not None:
            return EntryPath(here, exists=True)
        asked, found = self._find(path, follow_last=False)
        _refuse_link_on_way(asked, found)
        _require_directory_form(asked, found)
        return EntryPath(found.real, found.exists)

    def _find_plain(self, path: str) -> WorkspacePath | None:
        # A canonical name that opens without passing a link is where it is.
        if not is_plain(path):
            return None
        try:
            fd = self.resolution.open(self.root_fd, path, PASS)
        except OSError:
            return None  # missing, a link, or a failure: the long way says which
        os.close(fd)
        return unchecked_path(path)

    def _find(self, path: str, *, follow_last: bool) -> tuple[AskedPath, Found]:
        asked, beside = parse_asked(path, self.root_names), beside_of(self.resolution)
        with converting(unchecked_path("/".join(asked.parts) or "."), "resolve"):
            if beside is not None and asked.parts[:1] == (beside.name,):
                return asked, find_beside(beside, asked, follow_last=follow_last)
            return asked, find_real(self.root_fd, asked, self.root_names, follow_last=follow_last)

    def open_file(self, path: ReadPath | WorkspacePath) -> OpenFile:
        """Open a regular file for reading; of a ReadPath, the real path that was judged.

        Raises: PathError: not found, not readable, not a regular file, or (FileChangedError) a
            link took its place since it was resolved.
        """
        real = path.real if isinstance(path, ReadPath) else path
        with converting(real, "read"):
            fd = self.open_at(real, READ_FILE)
        return OpenFile(real, fd, self._known)

    def read_all(self, path: ReadPath | WorkspacePath, bytes_max: int) -> bytes:
        """Raises: TextTooLargeError: over `bytes_max`; else as `open_file`."""
        with self.open_file(path) as file:
            return file.read_all(bytes_max)

    def version(self, path: ReadPath | WorkspacePath) -> str:
        with self.open_file(path) as file:
            return file.version()


def _refuse_link_on_way(asked: AskedPath, found: Found) -> None:
    # Threat: a link to a directory makes one file reachable under a name that policy
    # judges differently. Only the real name is written to.
    if found.through_link:
        raise PathThroughLinkError(
            f"path {quote(asked.text)} passes a link",
            hint=f"use the real path: {show_name(found.real.relative)}",
        )


def _require_directory_form(asked: AskedPath, found: Found) -> None:
    if asked.as_directory and found.exists and not found.is_directory:
        raise PathNotADirectoryError(
            f"{quote(asked.text)} is not a directory", hint="leave the slash at its end out"
        )
