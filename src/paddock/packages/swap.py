"""From what is to happen to a plane's files to one set of changes, and the record of it.

Every path is looked at once; what stands there decides whether the file is put, replaced,
left as it is, or refused. The set then expects exactly what was seen: whoever comes between
the look and the swap makes the swap fail as a whole.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from paddock import limits
from paddock.errors import InternalError, PathError, SpecialFileError, ToolError
from paddock.packages.archive import PackedFile
from paddock.packages.installed import Act, Put
from paddock.packages.manifest import PLANE_MARKER
from paddock.packages.rows import Failure, GateRefusedError, OwnershipRefusedError
from paddock.packages.transaction import (
    After,
    Attic,
    Before,
    PathChange,
    RemovedDirectory,
    TransactionKind,
)
from paddock.plane.create import BARE_DIRECTORIES
from paddock.text.show import quote
from paddock.values.entries import digest_of
from paddock.workspace import EntryPath, Workspace, WorkspacePath
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    BytesContent,
    MakeDirectory,
    RemoveDirectory,
    RemoveFile,
    SetMetadata,
    StagedChange,
    WriteFile,
)
from paddock.workspace.listing import list_directory
from paddock.workspace.paths import EntryKind
from paddock.workspace.states import EntryState, entry_state

DIRECTORY_MODE: Final = 0o700
_ENTRIES_MAX: Final = limits.change_set_paths_max


class Swap(Struct):
    workspace: Workspace
    attic: Attic
    transaction_id: str
    is_tested: bool = False
    """Whether what is replaced has to be put aside, because it may come back."""
    is_dry: bool = False
    """Nothing is put aside and nothing kept: it is only looked at."""
    changes: list[StagedChange] = field(default_factory=list[StagedChange])
    paths: list[PathChange] = field(default_factory=list[PathChange])
    made: list[str] = field(default_factory=list[str])
    removed: list[RemovedDirectory] = field(default_factory=list[RemovedDirectory])
    notes: list[str] = field(default_factory=list[str])

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
        self.paths.append(PathChange(path, self._before(path, state), None))

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
        after = After(version, mode)
        if state is None:
            self.changes.append(WriteFile(path, BytesContent(content), Absent(), mode))
            self.paths.append(PathChange(path.relative, None, after))
            return
        is_same = state.kind is EntryKind.FILE and state.version == version
        if is_same and state.mode == mode:
            return
        old = AtVersion(_version(state))
        before = self._before(path.relative, state)
        self.paths.append(PathChange(path.relative, before, after))
        if is_same:
            self.changes.append(SetMetadata(path, old, mode))
        else:
            self.changes.append(
                WriteFile(path, BytesContent(content), old, mode, overrides_read_only=True)
            )

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

    def _before(self, path: str, state: EntryState) -> Before:
        if state.kind is EntryKind.LINK:
            return Before(TransactionKind.LINK, _version(state), state.mode, state.link_text)
        backup = None
        if self.is_tested and self.is_dry:
            backup = self.attic.name_aside(self.transaction_id, len(self.paths))
        elif self.is_tested:
            content = self._content(self.workspace.resolve_entry(path).path)
            backup = self.attic.put_aside(self.transaction_id, len(self.paths), content)
        return Before(TransactionKind.FILE, _version(state), state.mode, backup=backup)

    def _content(self, path: WorkspacePath) -> bytes:
        try:
            return self.workspace.read_all(path, limits.package_bytes_max).content
        except ToolError as error:
            raise GateRefusedError("G0B", [Failure(path.relative, error.message)]) from error

    # Directories

    def _make_parents(self) -> None:
        known: set[str] = set()
        gone = {change.path for change in self.paths if change.after is None}
        for change in self.paths:
            if change.after is None:
                continue
            missing: list[str] = []
            above = change.path.rpartition("/")[0]
            while above and above not in known:
                known.add(above)
                entry = self.workspace.resolve_entry(above)
                if entry.exists and above not in gone:
                    break
                missing.append(above)
                self.changes.append(MakeDirectory(entry.path, Absent(), DIRECTORY_MODE))
                above = above.rpartition("/")[0]
            self.made += missing
        self.made.sort()

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
            state = entry_state(self.workspace, entry)
            mode = DIRECTORY_MODE if state is None else state.mode
            self.changes.append(RemoveDirectory(entry.path))
            self.removed.append(RemovedDirectory(directory, mode))
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
