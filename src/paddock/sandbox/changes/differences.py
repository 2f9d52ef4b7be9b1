"""Compare a command's upper layer with the workspace: one change for each path.

A file that was only opened is not a change; a removed directory is one for each name in it.
Each change records the expected workspace entry, which the commit checks. A change by another
process since the start is a conflict:

  * a workspace entry whose change time is not older than the start;
  * any entry below a directory that was replaced since the start; see `Ancestry`;
  * the mode of a directory that both changed;
  * a copied-up entry that is gone from the workspace, if its directory changed.

Where another file system is mounted, nothing lands: see `is_mount_point`. O(changes).
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, IntEnum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.sandbox.changes.upper import Look, RawChange, UpperLayer, names_below
from paddock.sandbox.git.index import FILE_MODES, LINK_MODE
from paddock.sandbox.git.rules import SPECIAL_KINDS, NodeKind
from paddock.sandbox.hidden import KnownDirectory
from paddock.sandbox.host.host_facts import directories_above, find_content
from paddock.sandbox.values import ShownFile
from paddock.storage.atomic import held_open, host_error
from paddock.storage.disk import digest_of_file
from paddock.values.entries import DIGEST_PREFIX
from paddock.workspace.workspace import (
    PASS,
    PASS_DIRECTORY,
    READ_FILE,
    Resolution,
    detect_resolution,
)

# Entries below a renamed directory keep their times: files that came with another directory
# look old. So each directory is compared with the survey of the start, from the root down.
#
# A directory that was removed and created again may get the same inode number. Its entries are
# new, which their change times show.

_UNREADABLE: Final = (0, 0)


class Ancestor(IntEnum):
    SAME = 0
    NEW = 1
    """Created or moved there since the start; its entries show whether it came with content."""
    REPLACED = 2
    """It replaced another directory, or is below one that did."""


class Ancestry(Struct):
    directories: Mapping[str, KnownDirectory]
    started_ns: int
    current: dict[str, Look]
    """The current directories that contain a command's changes; may grow meanwhile."""

    def above(self, path: str) -> Ancestor:
        parent = path.rpartition("/")[0]
        return self.at(parent) if parent else Ancestor.SAME

    def at(self, path: str) -> Ancestor:
        above = self.above(path)
        look = self.current.get(path)
        if above is Ancestor.REPLACED or look is None:
            return above
        known = self._known(path)
        if known is not None:
            is_same = known.identity[:2] == look.identity
            return above if is_same else Ancestor.REPLACED
        return Ancestor.NEW if look.status.changed_ns >= self.started_ns else above

    def mode_before(self, path: str) -> int | None:
        """Return the mode at the start; None if there was no directory."""
        known = self._known(path)
        return None if known is None else known.mode

    def _known(self, path: str) -> KnownDirectory | None:
        known = self.directories.get(path)
        return None if known is None or known.identity[:2] == _UNREADABLE else known


_ORIGIN: Final = "user.overlay.origin"
"""The overlay sets it on a copied-up file; a file that a command created has none."""
_CHUNK_BYTES: Final = 1 << 20
_NO_MARK: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT, errno.EPERM})


class OpenLayers(Struct, frozen=True):
    upper_fd: int
    lower_fd: int
    resolution: Resolution = field(default_factory=detect_resolution)
    """Resolves workspace paths, including a git directory outside."""

    def common_version(self, path: str) -> str | None:
        """Return the content's version if both are equal; None if not, or if one is unreadable."""
        with (
            suppress(OSError),
            held_open(self.resolution.open(self.upper_fd, path, READ_FILE)) as upper,
            held_open(self.resolution.open(self.lower_fd, path, READ_FILE)) as lower,
        ):
            return _common_version(upper, lower)
        return None

    def find_version(self, root_fd: int, path: str) -> str | None:
        with suppress(OSError), held_open(self.resolution.open(root_fd, path, READ_FILE)) as fd:
            return digest_of_file(fd, os.fstat(fd).st_size)
        return None

    def link_text(self, path: str) -> str | None:
        parent, _, name = path.rpartition("/")
        above = parent or "."
        with suppress(OSError), held_open(self.resolution.open(self.lower_fd, above, PASS)) as fd:
            return os.readlink(name, dir_fd=fd)
        return None

    def is_copy(self, path: str) -> bool:
        try:
            os.getxattr(f"/proc/self/fd/{self.upper_fd}/{path}", _ORIGIN, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_MARK:
                return False
            raise
        return True

    def directory_changed_ns(self, path: str) -> int:
        """Return the directory's change time; 0 for none."""
        opened = self.resolution.open
        with suppress(OSError), held_open(opened(self.lower_fd, path or ".", PASS_DIRECTORY)) as fd:
            return os.fstat(fd).st_ctime_ns
        return 0


def _common_version(one: int, other: int) -> str | None:
    digest = hashlib.sha256()
    offset = 0
    while True:
        chunk = os.pread(one, _CHUNK_BYTES, offset)
        if chunk != os.pread(other, _CHUNK_BYTES, offset):
            return None
        if not chunk:
            return DIGEST_PREFIX + digest.hexdigest()
        digest.update(chunk)
        offset += len(chunk)


_MOUNTED: Final = (
    "is on another file system, which is mounted in the workspace: commands see the directory"
    " underneath, and their changes there are not kept"
)
_PERMISSIONS: Final = 0o777
_STICKY: Final = "would lose the sticky bit that the command set, and so be more open"


class ChangeKind(Enum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    """One entry for each removed name, including those below a removed directory."""
    MODE = "mode"


class CommandChange(Struct, frozen=True):
    path: str
    """Workspace-relative, canonical except for its characters, as read from disk."""
    kind: ChangeKind
    node: NodeKind
    lower: Look | None = None
    upper: Look | None = None
    mode: int = 0o644
    """Twelve bits, as in the upper layer; unused for a link or a deletion."""
    link_text: str = ""
    content: bytes | None = None
    """Set only where `rules.wants_content` needs it."""
    obstacle: str = ""
    """Why the change cannot be made, regardless of policy; found by inspecting the disk."""
    version: str | None = None
    """The version of the unchanged content, for a file with only a new mode or time."""
    is_replaced: bool = False
    """An entry of another kind replaces this one: its deletion, or the following creation."""


class CommandBaseline(Struct, frozen=True):
    started_ns: int
    """A moment; see `hidden.Moments`."""
    hidden: frozenset[str]
    directories: Mapping[str, KnownDirectory]
    shown: Mapping[str, ShownFile] = field(default_factory=dict[str, ShownFile])
    """By path: the files that the command saw in place of hidden ones."""
    bases: Mapping[str, tuple[int, ...] | None] = field(
        default_factory=dict[str, tuple[int, ...] | None]
    )
    """The marks of entries that changed since the start but are known: other changes that the
    command was shown, and its own that have landed. None for no entry."""


class CommandDifferences(Struct, frozen=True):
    found: tuple[CommandChange, ...]
    conflicts: tuple[str, ...]
    too_deep: tuple[str, ...]
    is_whole: bool
    root_mode: int | None = None
    """The mode that the command gave the workspace's root; None if unchanged."""


def find_differences(
    layer: UpperLayer, layers: OpenLayers, baseline: CommandBaseline
) -> CommandDifferences:
    """Find a command's changes. Raises: HostError: a part of the layer cannot be read."""
    finding = _Finding(
        layers,
        baseline,
        Ancestry(baseline.directories, baseline.started_ns, dict(layer.lower_directories)),
        tuple(f"{path}/" for path in layer.mounted),
    )
    too_deep = frozenset(layer.too_deep)
    with host_error("the changes of a command cannot be read"):
        for raw in layer.changes:
            if raw.path not in too_deep:
                finding.take(raw)
    found = tuple(sorted(finding.found, key=_parents_first))
    return CommandDifferences(
        found, tuple(dict.fromkeys(finding.conflicts)), tuple(layer.too_deep), layer.is_whole
    )


def is_only_touched(change: CommandChange) -> bool:
    if change.kind is not ChangeKind.MODE or change.lower is None:
        return False
    return (change.mode ^ change.lower.mode) & _PERMISSIONS == 0


class _Finding(Struct):
    layers: OpenLayers
    baseline: CommandBaseline
    ancestry: Ancestry
    mounted: tuple[str, ...]
    found: list[CommandChange] = field(default_factory=list[CommandChange])
    conflicts: list[str] = field(default_factory=list[str])
    _opaque: list[str] = field(default_factory=list[str])
    """Directories whose whole content was processed already, with a slash."""

    def take(self, raw: RawChange) -> None:
        lower, upper = raw.lower, raw.upper
        if self._is_as_shown(raw):
            return
        if upper is None:
            if lower is not None:
                self._delete(raw.path, lower)
        elif lower is None:
            above = raw.path.rpartition("/")[0]
            # Check the attribute last: it cannot be read on a file that is closed to its owner.
            is_changed = self.layers.directory_changed_ns(above) >= self.baseline.started_ns
            is_orphan = is_changed and self.layers.is_copy(raw.path)
            self._create(raw, upper, None, is_orphan=is_orphan)
        elif lower.kind is not upper.kind:
            self._replace(raw, lower, upper)
        elif upper.kind is NodeKind.DIRECTORY:
            self._merge(raw, lower, upper)
        elif upper.kind is NodeKind.FILE:
            self._compare(raw, lower, upper)
        elif upper.kind is NodeKind.LINK:
            is_other = self.layers.link_text(raw.path) != raw.link_text
            if is_other or self._is_hidden(raw.path):
                self._create(raw, upper, lower)
        else:
            # A special file of the same kind on both sides: report it as created.
            self._create(raw, upper, lower)

    def _replace(self, raw: RawChange, lower: Look, upper: Look) -> None:
        # The removal of a special file is separate too: it is refused, and so is the replacement.
        if NodeKind.DIRECTORY in (lower.kind, upper.kind) or lower.kind in SPECIAL_KINDS:
            self._delete(raw.path, lower, is_replaced=True)
            self._create(raw, upper, None, is_replaced=True)
        else:
            self._create(raw, upper, lower)

    def _create(
        self,
        raw: RawChange,
        upper: Look,
        lower: Look | None,
        *,
        is_replaced: bool = False,
        is_orphan: bool = False,
    ) -> None:
        kind, text = ChangeKind.CREATED, raw.link_text or ""
        change = CommandChange(raw.path, kind, upper.kind, lower, upper, upper.mode, text)
        self._add(replace(change, is_replaced=is_replaced), is_late=is_orphan)

    def _merge(self, raw: RawChange, lower: Look, upper: Look) -> None:
        if upper.mode != lower.mode:
            self._merge_mode(raw.path, lower, upper)
        if raw.is_opaque and not raw.path.startswith(tuple(self._opaque)):
            self._opaque.append(f"{raw.path}/")
            held = dict(names_below(self.layers.upper_fd, raw.path))
            # A name that is not a directory now is processed separately, with the names below it.
            taken = {name for name, look in held.items() if look.kind is not NodeKind.DIRECTORY}
            self._delete_all(
                (name, look)
                for name, look in self._names_below(raw.path)
                if name not in held and taken.isdisjoint(directories_above(name))
            )

    def _merge_mode(self, path: str, lower: Look, upper: Look) -> None:
        """Find a mode change by the mode at the start: the directory's time proves nothing."""
        before = self.ancestry.mode_before(path)
        is_changed_since = lower.status.changed_ns >= self.baseline.started_ns
        if upper.mode == before or (before is None and is_changed_since):
            return
        kind, node = ChangeKind.MODE, NodeKind.DIRECTORY
        change = CommandChange(path, kind, node, lower, upper, upper.mode)
        self._add(change, is_late=before is not None and lower.mode != before, is_old=True)

    def _compare(self, raw: RawChange, lower: Look, upper: Look) -> None:
        version = None
        kind = ChangeKind.MODIFIED
        # Threat: a command guesses a secret's content; a right guess would show as no change.
        if upper.status.size_bytes == lower.status.size_bytes and not self._is_hidden(raw.path):
            version = self.layers.common_version(raw.path)
        if version is not None:
            if upper.mode == lower.mode and upper.status.modified_ns == lower.status.modified_ns:
                return
            kind = ChangeKind.MODE
        node, mode = NodeKind.FILE, upper.mode
        self._add(CommandChange(raw.path, kind, node, lower, upper, mode, version=version))

    def _is_as_shown(self, raw: RawChange) -> bool:
        """Compare with the file that the command was shown (`git stash`), not with the real one."""
        shown = self.baseline.shown.get(raw.path)
        if shown is None or raw.upper is None:
            return False
        if raw.upper.kind is NodeKind.LINK:
            is_link = shown.mode == LINK_MODE
            return is_link and os.fsencode(raw.link_text or "") == shown.content
        if raw.upper.kind is not NodeKind.FILE or shown.mode not in FILE_MODES:
            return False
        is_same_mode = (raw.upper.mode ^ shown.mode) & stat.S_IXUSR == 0
        size, resolution = len(shown.content), self.layers.resolution
        content = find_content(self.layers.upper_fd, raw.path, size, resolution)
        return is_same_mode and content == shown.content

    def _is_hidden(self, path: str) -> bool:
        return not self.baseline.hidden.isdisjoint((*directories_above(path), path))

    def _delete(self, path: str, lower: Look, *, is_replaced: bool = False) -> None:
        kind = ChangeKind.DELETED
        self._add(CommandChange(path, kind, lower.kind, lower, is_replaced=is_replaced))
        if lower.kind is NodeKind.DIRECTORY and not lower.is_mounted:
            self._delete_all(self._names_below(path))

    def _names_below(self, path: str) -> Iterable[tuple[str, Look]]:
        return names_below(self.layers.lower_fd, path, self.layers.resolution)

    def _delete_all(self, names: Iterable[tuple[str, Look]]) -> None:
        for path, look in names:
            if look.kind is NodeKind.DIRECTORY:
                self.ancestry.current[path] = look
            self._add(CommandChange(path, ChangeKind.DELETED, look.kind, look))

    def _add(self, change: CommandChange, *, is_late: bool = False, is_old: bool = False) -> None:
        """Add it. `is_late`: another process was first; `is_old`: its time proves nothing."""
        lower = change.lower
        is_mounted = lower is not None and lower.is_mounted
        if is_mounted or f"{change.path}/".startswith(self.mounted):
            change = replace(change, obstacle=_MOUNTED)
        elif _loses_sticky_bit(change):
            change = replace(change, obstacle=_STICKY)
        if change.path in self.baseline.bases:
            mark = None if lower is None else lower.mark
            is_new, is_late = mark != self.baseline.bases[change.path], False
        else:
            changed_ns = 0 if lower is None else lower.status.changed_ns
            is_new = changed_ns >= self.baseline.started_ns and not is_old
        if is_late or is_new or self._is_elsewhere(change.path, lower):
            self.conflicts.append(change.path)
        self.found.append(change)

    def _is_elsewhere(self, path: str, lower: Look | None) -> bool:
        # In a new directory only entries that exist outside the layer can be a conflict.
        above = self.ancestry.above(path)
        if lower is not None and lower.kind is NodeKind.DIRECTORY:
            above = max(above, self.ancestry.at(path))
        if above is Ancestor.NEW:
            return lower is not None or self.layers.is_copy(path)
        return above is Ancestor.REPLACED


def _loses_sticky_bit(change: CommandChange) -> bool:
    # Of special bits, only those that the directory had are kept.
    lower, upper = change.lower, change.upper
    if upper is None or upper.kind is not NodeKind.DIRECTORY:
        return False
    had = 0 if lower is None else lower.mode
    return upper.mode & ~had & stat.S_ISVTX != 0


def _parents_first(change: CommandChange) -> tuple[list[str], bool]:
    return change.path.split("/"), change.kind is not ChangeKind.DELETED


def paths_of(changes: Sequence[CommandChange], *kinds: ChangeKind) -> frozenset[str]:
    return frozenset(each.path for each in changes if each.kind in kinds)
