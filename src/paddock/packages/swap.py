"""From what is to happen to a plane's files to one set of changes, and the record of it.

Every path is looked at once; what stands there decides whether the file is put, replaced,
left as it is, or refused. The set then expects exactly what was seen: whoever comes between
the look and the swap makes the swap fail as a whole.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from paddock import limits
from paddock.errors import InternalError, PathError, SpecialFileError
from paddock.packages.archive import PackedFile
from paddock.packages.installed import Act, InstallReceipt, Put
from paddock.packages.manifest import PLANE_MARKER, receipt_path
from paddock.packages.rows import Failure, GateRefusedError, OwnershipRefusedError
from paddock.packages.transaction import StagedFiles
from paddock.plane.create import BARE_DIRECTORIES
from paddock.storage.atomic import FILE_MODE as OWN_MODE
from paddock.text.show import quote
from paddock.values.entries import digest_of
from paddock.workspace import EntryPath, Workspace
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    EntryState,
    MakeDirectory,
    RemoveDirectory,
    RemoveFile,
    SetMetadata,
    StagedChange,
    WriteFile,
    entry_state,
)
from paddock.workspace.listing import list_directory
from paddock.workspace.paths import EntryKind

DIRECTORY_MODE: Final = 0o700
_ENTRIES_MAX: Final = limits.change_set_paths_max


class PathChange(Struct, frozen=True):
    """One path of the swap; not both are None."""

    path: str
    before: str | None
    """The version of what stood there."""
    after: PackedFile | None

    @property
    def word(self) -> str:
        if self.before is None:
            return "created"
        return "removed" if self.after is None else "replaced"


class Swap(Struct):
    workspace: Workspace
    changes: list[StagedChange] = field(default_factory=list[StagedChange])
    paths: list[PathChange] = field(default_factory=list[PathChange])
    notes: list[str] = field(default_factory=list[str])

    @property
    def staged(self) -> StagedFiles:
        return StagedFiles(
            tuple(change.after for change in self.paths if change.after is not None),
            tuple(change.path for change in self.paths if change.after is None),
        )

    def add(self, act: Act, files: Mapping[str, PackedFile]) -> None:
        """Take in one act. Raises: GateRefusedError, OwnershipRefusedError, HostError."""
        if isinstance(act, Put):
            self._put(act, files[act.path])
        else:
            self.remove(act.path, act.before.sha256)

    def write(self, path: str, content: bytes, mode: int) -> None:
        """A file of ours is to stand at `path`, whatever of ours stands there now."""
        entry, state = self._look(path)
        self._write(entry, state, content, mode)

    def write_receipt(self, receipt: InstallReceipt) -> None:
        self.write(receipt_path(receipt.package_id), receipt.to_bytes(), OWN_MODE)

    def remove(self, path: str, brought: str | None = None) -> None:
        """With a note where it is not what was `brought`.

        Raises: GateRefusedError for what makes this a plane.
        """
        if path == PLANE_MARKER:
            raise GateRefusedError(
                "G0B", [Failure(path, "without it this is no plane: it cannot be taken away")]
            )
        entry, state = self._look(path)
        if state is None:
            self.notes.append(f"{path} was missing")
            return
        old = _version(state)
        if brought is not None and old != brought:
            self._note_changed(path, state)
        self.changes.append(RemoveFile(entry.path, AtVersion(old), overrides_read_only=True))
        self.paths.append(PathChange(path, old, None))

    def finish(self) -> None:
        self._make_parents()
        self._remove_empty()

    # One file

    def _put(self, act: Put, packed: PackedFile) -> None:
        entry, state = self._look(act.path)
        if state is None:
            if act.before is not None:
                self.notes.append(f"{act.path} was missing, and is there again")
        elif self._stays(act, state):
            return
        self._write(entry, state, packed.content, packed.mode)

    def _stays(self, act: Put, state: EntryState) -> bool:
        """Whether what stands there is an operator's; refuses what is nobody's."""
        asset, version = act.asset, state.version
        shipped = None if act.before is None else act.before.sha256
        if asset.is_config and state.kind is EntryKind.FILE and version != shipped:
            if version != asset.sha256:
                self.notes.append(f"{act.path} is configuration and stays as it is")
            return True
        if shipped is None and (version != asset.sha256 or state.kind is not EntryKind.FILE):
            raise OwnershipRefusedError(
                [Failure(act.path, "something stands there that no package brought")]
            )
        if shipped is not None and version not in (shipped, asset.sha256):
            self._note_changed(act.path, state)
        return False

    def _note_changed(self, path: str, state: EntryState) -> None:
        if state.kind is EntryKind.LINK:
            target = quote(state.link_text or "")
            self.notes.append(f"{path} had been replaced by a link to {target}, which is gone")
            return
        self.notes.append(
            f"{path} had been changed; what stood there is kept in objects as {_version(state)},"
            " until the history needs the room"
        )

    def _write(self, entry: EntryPath, state: EntryState | None, content: bytes, mode: int) -> None:
        path, version = entry.path, digest_of(content)
        after = PackedFile(path.relative, content, mode)
        if state is None:
            self.changes.append(WriteFile(path, content, Absent(), mode))
            self.paths.append(PathChange(path.relative, None, after))
            return
        is_same = state.kind is EntryKind.FILE and state.version == version
        if is_same and state.mode == mode:
            return
        old = AtVersion(_version(state))
        self.paths.append(PathChange(path.relative, old.version, after))
        if is_same:
            self.changes.append(SetMetadata(path, old, mode))
        else:
            self.changes.append(WriteFile(path, content, old, mode, overrides_read_only=True))

    def _look(self, path: str) -> tuple[EntryPath, EntryState | None]:
        try:
            entry = self.workspace.resolve_entry(path)
            state = entry_state(self.workspace, entry)
        except SpecialFileError as error:
            raise OwnershipRefusedError([Failure(path, error.message)]) from error
        except PathError as error:
            # Threat: a directory of the plane that was replaced by a link leads our files
            # elsewhere.
            raise GateRefusedError("G0B", [Failure(path, error.message)]) from error
        if state is not None and state.kind is EntryKind.DIRECTORY:
            raise OwnershipRefusedError([Failure(path, "a directory stands there")])
        return entry, state

    # Directories

    def _make_parents(self) -> None:
        known: set[str] = set()
        gone = {change.path for change in self.paths if change.after is None}
        for change in self.paths:
            if change.after is None:
                continue
            above = change.path.rpartition("/")[0]
            while above and above not in known:
                known.add(above)
                entry = self.workspace.resolve_entry(above)
                if entry.exists and above not in gone:
                    break
                self.changes.append(MakeDirectory(entry.path, Absent(), DIRECTORY_MODE))
                above = above.rpartition("/")[0]

    def _remove_empty(self) -> None:
        gone = {change.path for change in self.paths if change.after is None}
        kept = {change.path for change in self.paths if change.after is not None}
        waiting = sorted({path.rpartition("/")[0] for path in gone}, key=_depth, reverse=True)
        while waiting:
            directory = waiting.pop(0)
            if directory in BARE_DIRECTORIES or not directory or directory in gone:
                continue
            if any(path.startswith(f"{directory}/") for path in kept):
                continue
            entry = self.workspace.resolve_entry(directory)
            listing = list_directory(self.workspace, entry.path, 1, _ENTRIES_MAX)
            if any(each.path.relative not in gone for each in listing.entries):
                continue
            self.changes.append(RemoveDirectory(entry.path))
            gone.add(directory)
            above = directory.rpartition("/")[0]
            if above not in waiting:
                waiting.append(above)
                waiting.sort(key=_depth, reverse=True)


def _depth(path: str) -> int:
    return path.count("/")


def _version(state: EntryState) -> str:
    if state.version is None:
        raise InternalError("a file without a version")
    return state.version
