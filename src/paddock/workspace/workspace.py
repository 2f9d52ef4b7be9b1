"""The workspace: what tools act through. One root, held by its descriptor."""

import os
from typing import Final, Self

from msgspec.structs import replace

from paddock.errors import (
    PathNotADirectoryError,
    PathNotAFileError,
    PathThroughLinkError,
)
from paddock.storage.disk import Disk
from paddock.storage.history import Keeper
from paddock.storage.journal import Journal
from paddock.storage.objects import ObjectStore
from paddock.text.show import quote, show_name
from paddock.workspace.apply import SetName, commit
from paddock.workspace.changes import (
    UNWITNESSED,
    ChangeReceipt,
    Condition,
    EntryState,
    Phases,
    Seen,
    Witness,
)
from paddock.workspace.failures import converting
from paddock.workspace.listing import Tree, list_directory
from paddock.workspace.paths import (
    ROOT,
    AskedPath,
    DeleteReceipt,
    EntryFilter,
    EntryPath,
    EntryVersion,
    EveryEntry,
    Listing,
    MoveReceipt,
    ReadPath,
    WorkspacePath,
    WritePath,
    WriteReceipt,
    is_plain,
    parse_asked,
    unchecked_path,
)
from paddock.workspace.places import Site, sweep
from paddock.workspace.preflight import entry_seen, entry_state
from paddock.workspace.read import FileContent, KnownFiles, OpenFile, open_file
from paddock.workspace.resolve import (
    PASS,
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
from paddock.workspace.single import (
    Edit,
    Expected,
    delete,
    edit_file,
    entry_version,
    move,
    write_file,
)

_EVERY_ENTRY: Final = EveryEntry()


class Workspace:
    """File access under one root, safe against path and link tricks.

    Rules kept here:
      * every open starts at the root's descriptor and cannot leave it;
      * a path is resolved once, policy judges what came out, and exactly that is used:
        a swap in between makes the act fail;
      * a write becomes visible whole or not at all, and survives a crash;
      * every failure is one of paddock.errors.
    Deciding *whether* a path may be touched is policy's business, not ours.
    One object serves any number of threads; a forked child may go on using its copy.
    """

    __slots__ = ("_disk", "_fd", "_known", "_names", "_resolution", "_root", "_site", "_tree")

    def __init__(self, root: Root, resolution: Resolution, disk: Disk, keeper: Keeper) -> None:
        self._root = root.name
        self._fd = root.fd
        self._names = (root.name, root.real_name)
        self._resolution = resolution
        self._disk = disk
        self._known = KnownFiles()
        self._site = Site(root.fd, resolution, disk, keeper)
        self._tree = Tree(root.fd, resolution, self._names)

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

        Absolute paths by `root`, by `name` (as long as it is the same directory) and by the
        name without links are inside. `resolution` is probed for if it is not given; `disk`
        is for tests of failure; `keeper` gets what is replaced, and without one it is gone.

        Raises:
            ConfigError: `root` is no directory, or cannot be opened.
            HostError: file names are not UTF-8 in this process.
        """
        chosen = resolution or detect_resolution()
        place = open_root(root, chosen, name)
        try:
            workspace = cls(place, chosen, disk or Disk(), keeper or Keeper())
            workspace.sweep()
        except BaseException:
            os.close(place.fd)
            raise
        return workspace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the root go. Nothing works afterwards; a second time does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._site = replace(self._site, root_fd=-1)
            self._tree = Tree(-1, self._resolution, self._names)
            os.close(fd)

    @property
    def root(self) -> str:
        """The root's absolute name, as it was given. For the host; models see relative paths."""
        return self._root

    @property
    def real_root(self) -> str:
        return self._names[1]

    @property
    def resolution(self) -> Resolution:
        return self._resolution

    @property
    def tree(self) -> Tree:
        """Where the searches of `workspace.search` take place."""
        return self._tree

    def with_beside(self, beside: Beside) -> "Workspace":
        """The same workspace with what lies `beside` it, which stays the caller's; closed alone."""
        root = Root(*self._names, os.dup(self._fd))
        resolution = BesideResolution(self._resolution, root.fd, beside)
        return Workspace(root, resolution, self._disk, self._site.keeper)

    def sweep(self) -> int:
        """Remove what killed processes left; return how many. `open` does it."""
        with converting(ROOT, "list"):
            return sweep(self._fd, self._resolution, self._disk)

    # Resolving: text → paths to be judged. Nothing is changed, nothing stays open.

    def resolve_read(self, path: str) -> ReadPath:
        """Where `path` leads, links inside the root followed. It need not exist.

        Raises:
            PathTraversalError: it leads out of the root.
            InvalidPathError: no path in any workspace; see `parse_asked`.
            PathNotADirectoryError: it ends in a slash and is no directory.
        """
        here = self._find_plain(path)
        if here is not None:
            return ReadPath(here, here)
        asked = parse_asked(path, self._names)
        found = self._find(asked, last=True)
        _require_directory_form(asked, found)
        return ReadPath(found.asked, found.real)

    def resolve_write(self, path: str) -> WritePath:
        """The file that a write to `path` would write; a link in the last place is followed.

        Missing parents are fine: they are taken as text. What stands there is looked
        at by the write.

        Raises:
            PathTraversalError: it leads out of the root.
            PathThroughLinkError: a directory on the way is a link.
            PathNotAFileError: it ends in a slash.
            InvalidPathError: no path in any workspace; see `parse_asked`.
        """
        here = self._find_plain(path)
        if here is not None:
            return WritePath(here, here, exists=True)
        asked = parse_asked(path, self._names)
        found = self._find(asked, last=True)
        self._refuse_link_on_way(asked, found)
        if asked.as_directory:
            raise PathNotAFileError(
                f"path {quote(path)} names a directory, not a file",
                hint="use the path of a file, without a slash at its end",
            )
        return WritePath(found.asked, found.real, found.exists)

    def resolve_entry(self, path: str) -> EntryPath:
        """The entry that `path` names, to move or delete it; a link is the link itself.

        Raises:
            PathTraversalError: it leads out of the root.
            PathThroughLinkError: a directory on the way is a link.
            PathNotADirectoryError: it ends in a slash and is no directory.
            InvalidPathError: no path in any workspace; see `parse_asked`.
        """
        here = self._find_plain(path)
        if here is not None:
            return EntryPath(here, exists=True)
        asked = parse_asked(path, self._names)
        found = self._find(asked, last=False)
        self._refuse_link_on_way(asked, found)
        _require_directory_form(asked, found)
        return EntryPath(found.real, found.exists)

    def _find_plain(self, path: str) -> WorkspacePath | None:
        """The short way: a canonical name that opens without passing a link is where it is."""
        if not is_plain(path):
            return None
        try:
            fd = self._resolution.open(self._fd, path, PASS)
        except OSError:
            return None  # missing, a link, or a failure: the long way says which
        os.close(fd)
        return unchecked_path(path)

    def _find(self, asked: AskedPath, *, last: bool) -> Found:
        beside = beside_of(self._resolution)
        with converting(unchecked_path("/".join(asked.parts) or "."), "resolve"):
            if beside is not None and asked.parts[:1] == (beside.name,):
                return find_beside(beside, asked, last=last)
            return find_real(self._fd, asked, self._names, last=last)

    @staticmethod
    def _refuse_link_on_way(asked: AskedPath, found: Found) -> None:
        # Threat: a link to a directory makes one file reachable under a name that policy
        # judges differently. Only the real name is written to.
        if found.through_link:
            raise PathThroughLinkError(
                f"path {quote(asked.text)} passes a link",
                hint=f"use the real path: {show_name(found.real.relative)}",
            )

    # Reading

    def open_file(self, path: ReadPath | WorkspacePath) -> OpenFile:
        """Open a regular file for reading; of a ReadPath, the real path that was judged.

        Never waits. See `read` for what happens if the file changes meanwhile.

        Raises:
            PathNotFoundError, PathNotAFileError (a directory), SpecialFileError.
            FileChangedError: a link took its place since it was resolved.
            PathError: this user may not read it.
        """
        return open_file(self._fd, self._resolution, _real(path), self._known)

    def read_all(self, path: ReadPath | WorkspacePath, bytes_max: int) -> FileContent:
        """Every byte of a file; TextTooLargeError over `bytes_max`, else as `open_file`."""
        with self.open_file(path) as file:
            return file.read_all(bytes_max)

    def version(self, path: ReadPath | WorkspacePath) -> str:
        """`sha256:` and the digest of a file's bytes, streamed; else as `open_file`."""
        with self.open_file(path) as file:
            return file.version()

    def list_directory(
        self,
        path: ReadPath | WorkspacePath,
        depth: int,
        entries_max: int,
        about: EntryFilter = _EVERY_ENTRY,
        *,
        skipped: int = 0,
    ) -> Listing:
        """What a directory holds, `depth` levels down, in byte order; at most `entries_max` shown.

        `about` chooses entries before they are counted and cut; so many of the first are
        `skipped`.

        Raises:
            PathNotFoundError, PathNotADirectoryError; PathError: not readable.
        """
        real = _real(path)
        with converting(real, "list"):
            return list_directory(self._tree, real, depth, entries_max, about, skipped=skipped)

    # Changing. Each call is whole and on the device when it returns, or it did nothing.

    def write_file(
        self,
        path: WritePath,
        content: bytes,
        *,
        if_version: str | None = None,
        expected: Expected = Expected.AS_RESOLVED,
        create_parents: bool = True,
    ) -> WriteReceipt:
        """Create or replace a file.

        Raises:
            FileChangedError: not at `if_version`, or not what was resolved or read.
            PathExistsError: expected absent, and is there.
            PathNotFoundError: a parent is missing and `create_parents` is false.
            PathNotAFileError, SpecialFileError, PathNotADirectoryError (a parent).
            ReadOnlyPathError: its permissions, owner or attributes forbid it.
            StorageFullError: no space; the old content stands.
            PathError: the directory stays locked for limits.path_lock_timeout_s.
        """
        return write_file(
            self._site, path, content, if_version, expected, create_parents=create_parents
        )

    def edit_file(
        self, path: WritePath, change: Edit, *, if_version: str | None = None
    ) -> WriteReceipt:
        """Replace a file by `change` of its content, read and written under one lock.

        Raises:
            PathNotFoundError: it does not exist.
            TextTooLargeError: over limits.edited_file_bytes_max.
            TextError: what `change` raises; nothing was written.
            As `write_file` otherwise.
        """
        return edit_file(self._site, path, change, if_version)

    def entry_version(self, entry: EntryPath) -> EntryVersion:
        """Kind and version of what would be moved or deleted: a file's content, a link's text.

        Raises: as `delete` does.
        """
        return entry_version(self._site, entry)

    def entry_state(self, entry: EntryPath) -> EntryState | None:
        """What stands there, with its version; None where nothing does. No link is followed.

        Raises: SpecialFileError; PathError (not readable); FileChangedError (meanwhile).
        """
        return entry_state(self._site, entry)

    def entry_seen(self, entry: EntryPath) -> Seen | None:
        """The same for a set of changes that is about this very entry."""
        return entry_seen(self._site, entry)

    def move(
        self, entry: EntryPath, to: WritePath, *, if_version: str | EntryVersion | None = None
    ) -> MoveReceipt:
        """Give an entry another name; files, empty directories, links themselves.

        `if_version` with a kind is no other kind's, whatever that holds.

        Raises:
            PathNotFoundError; PathExistsError: a move never overwrites.
            DirectoryNotEmptyError, SpecialFileError, ReadOnlyPathError (a file's own bits).
            InvalidPathError: the root, or a directory into itself.
            FileChangedError: not at `if_version`, or not what was looked at; it stands
                where it stood.
        """
        return move(self._site, entry, to, if_version)

    def delete(
        self, entry: EntryPath, *, if_version: str | EntryVersion | None = None
    ) -> DeleteReceipt:
        """Remove an entry; raises as `move` does."""
        return delete(self._site, entry, if_version)

    def commit(
        self,
        phases: Phases,
        objects: ObjectStore,
        journal: Journal,
        *,
        label: str = "",
        witness: Witness = UNWITNESSED,
        condition: Condition | None = None,
    ) -> ChangeReceipt:
        """Make many changes, all of them or none; see `changes` and, for the rest, `apply`.

        `label` is what the recovery calls the set if we are killed: the id of the call.
        `witness` hears of every path before any of them changes; `condition` has to hold then.

        Raises: as `write_file` (FileChangedError: not what the set believes);
            InternalError: the changes contradict each other; HostError.
        """
        about = SetName(self.real_root, label)
        return commit(self._site, phases, objects, journal, about, witness, condition)


def _real(path: ReadPath | WorkspacePath) -> WorkspacePath:
    return path.real if isinstance(path, ReadPath) else path


def _require_directory_form(asked: AskedPath, found: Found) -> None:
    if asked.as_directory and found.exists and not found.is_directory:
        raise PathNotADirectoryError(
            f"{quote(asked.text)} is not a directory", hint="leave the slash at its end out"
        )
