"""From the layer that a command wrote to the differences it made: one entry for each path.

A file that was only opened is no difference; a directory that is gone is one for each name in
it. Each entry says what it believes to stand in the workspace, so that the commit finds out if
it does not. What somebody else changed since the start is a conflict:

  * a lower entry whose change time is not older than the start;
  * any entry below a directory that is not the one of the start; see `Ancestry`;
  * the mode of a directory that both changed;
  * a copy of what the workspace has no more, where the directory that held it was changed.

Where another file system is mounted, nothing lands: see `is_mount_point`. O(changes).
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
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
from paddock.values.entries import DIGEST_PREFIX
from paddock.workspace.workspace import (
    PASS,
    PASS_DIRECTORY,
    READ_FILE,
    Resolution,
    detect_resolution,
)

# Entries below a directory that is renamed keep their own times: what came with another
# directory looks as if it had always been there. So each directory is compared with the
# survey of the start, from the root down.
#
# A directory that is removed and made anew may get the same number. What is in it was put
# there since, and each file of it says so by its own change time.

_NOBODY: Final = (0, 0)


class Ancestor(IntEnum):
    SAME = 0
    STRANGER = 1
    """Made or put there since; whether it brought anything with it, its entries tell."""
    EXCHANGED = 2
    """It took another one's place, or stands below one that did."""


class Ancestry(Struct):
    directories: Mapping[str, KnownDirectory]
    started_ns: int
    standing: dict[str, Look]
    """Those of now, as far as a command's changes lie in them; may grow meanwhile."""

    def above(self, path: str) -> Ancestor:
        parent = path.rpartition("/")[0]
        return self.at(parent) if parent else Ancestor.SAME

    def at(self, path: str) -> Ancestor:
        above = self.above(path)
        look = self.standing.get(path)
        if above is Ancestor.EXCHANGED or look is None:
            return above
        known = self._known(path)
        if known is not None:
            is_same = known.identity[:2] == look.identity
            return above if is_same else Ancestor.EXCHANGED
        return Ancestor.STRANGER if look.status.changed_ns >= self.started_ns else above

    def mode_before(self, path: str) -> int | None:
        """Return its mode at the start; None where no directory stood there."""
        known = self._known(path)
        return None if known is None else known.mode

    def _known(self, path: str) -> KnownDirectory | None:
        known = self.directories.get(path)
        return None if known is None or known.identity[:2] == _NOBODY else known


_ORIGIN: Final = "user.overlay.origin"
"""On what the overlay copied up: which file it was. What a command made has none."""
_CHUNK_BYTES: Final = 1 << 20
_NO_MARK: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOENT, errno.EPERM})


class OpenLayers(Struct, frozen=True):
    upper_fd: int
    lower_fd: int
    resolution: Resolution = field(default_factory=detect_resolution)
    """Of the workspace's: it knows where a git directory outside of it stands."""

    def common_version(self, path: str) -> str | None:
        """Return None where the contents differ, or one of them cannot be read."""
        try:
            with (
                held_open(self.resolution.open(self.upper_fd, path, READ_FILE)) as upper,
                held_open(self.resolution.open(self.lower_fd, path, READ_FILE)) as lower,
            ):
                return _common_version(upper, lower)
        except OSError:
            return None

    def link_text(self, path: str) -> str | None:
        parent, _, name = path.rpartition("/")
        try:
            with held_open(self.resolution.open(self.lower_fd, parent or ".", PASS)) as fd:
                return os.readlink(name, dir_fd=fd)
        except OSError:
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
        """Return 0 where no directory stands there."""
        try:
            with held_open(self.resolution.open(self.lower_fd, path or ".", PASS_DIRECTORY)) as fd:
                return os.fstat(fd).st_ctime_ns
        except OSError:
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
    "is in another file system, which is mounted in the workspace: commands see the directory"
    " that it covers, and change nothing there"
)
_PERMISSIONS: Final = 0o777
_STICKY: Final = "would come without the sticky bit that it was given, and so be more open"


class ChangeKind(Enum):
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"
    """One entry for each name that is gone: what stood below a removed directory too."""
    MODE = "mode"


class CommandChange(Struct, frozen=True):
    path: str
    """Workspace-relative, canonical but for its characters: the disk gave it."""
    kind: ChangeKind
    node: NodeKind
    mode: int = 0o644
    """Twelve bits, as it stands now; of no interest for a link or a deletion."""
    link_text: str = ""
    content: bytes | None = None
    """Only where `rules.wants_content` asks for it."""
    obstacle: str = ""
    """Why this user cannot do it, whatever policy says; found by whoever looked at the disk."""


class CommandBaseline(Struct, frozen=True):
    started_ns: int
    """A moment; see `moments`."""
    hidden: frozenset[str]
    directories: Mapping[str, KnownDirectory]
    shown: Mapping[str, ShownFile] = field(default_factory=dict[str, ShownFile])
    """Of the hidden names, and of what is below them: what it saw instead, by path."""
    bases: Mapping[str, tuple[int, ...] | None] = field(
        default_factory=dict[str, tuple[int, ...] | None]
    )
    """What of others' changes since the start it was shown, and what of its own has landed: the
    mark of what stood there then, None for nothing."""


class Difference(Struct, frozen=True):
    change: CommandChange
    lower: Look | None
    upper: Look | None
    version: str | None = None
    """Of a file whose mode or time alone differs: its content's, before and after."""
    is_replaced: bool = False
    """Another kind of entry takes the place: this is what has to go first, or comes then."""


class CommandDifferences(Struct, frozen=True):
    found: tuple[Difference, ...]
    conflicts: tuple[str, ...]
    too_deep: tuple[str, ...]
    is_whole: bool
    root_mode: int | None = None
    """The mode that the command gave the workspace's root; None where it gave it no other."""


def find_differences(
    layer: UpperLayer, layers: OpenLayers, baseline: CommandBaseline
) -> CommandDifferences:
    """Find what a command changed. Raises: HostError: something of the layer cannot be read."""
    finding = _Finding(
        layers,
        baseline,
        Ancestry(baseline.directories, baseline.started_ns, dict(layer.standing)),
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


def is_only_touched(difference: Difference) -> bool:
    change, lower = difference.change, difference.lower
    if change.kind is not ChangeKind.MODE or lower is None:
        return False
    return (change.mode ^ lower.mode) & _PERMISSIONS == 0


class _Finding(Struct):
    layers: OpenLayers
    baseline: CommandBaseline
    ancestry: Ancestry
    mounted: tuple[str, ...]
    found: list[Difference] = field(default_factory=list[Difference])
    conflicts: list[str] = field(default_factory=list[str])
    _opaque: list[str] = field(default_factory=list[str])
    """Directories whose whole content was looked through already, with a slash."""

    def take(self, raw: RawChange) -> None:
        lower, upper = raw.lower, raw.upper
        if self._is_as_shown(raw):
            return
        if upper is None:
            if lower is not None:
                self._delete(raw.path, lower, is_replaced=False)
        elif lower is None:
            above = raw.path.rpartition("/")[0]
            # The attribute last: of a file that is closed to its owner it cannot be read.
            is_changed = self.layers.directory_changed_ns(above) >= self.baseline.started_ns
            is_orphan = is_changed and self.layers.is_copy(raw.path)
            self._create(raw, upper, None, is_replaced=False, is_orphan=is_orphan)
        elif lower.kind is not upper.kind:
            self._replace(raw, lower, upper)
        elif upper.kind is NodeKind.DIRECTORY:
            self._merge(raw, lower, upper)
        elif upper.kind is NodeKind.FILE:
            self._compare(raw, lower, upper)
        elif upper.kind is NodeKind.LINK:
            is_other = self.layers.link_text(raw.path) != raw.link_text
            if is_other or self._is_hidden(raw.path):
                self._create(raw, upper, lower, is_replaced=False)
        else:
            # A FIFO that stood there already is neither made nor changed by looking at it.
            self._create(raw, upper, lower, is_replaced=False)

    def _replace(self, raw: RawChange, lower: Look, upper: Look) -> None:
        # A special file goes by itself as well: that is refused, and so is what takes its place.
        if NodeKind.DIRECTORY in (lower.kind, upper.kind) or lower.kind in SPECIAL_KINDS:
            self._delete(raw.path, lower, is_replaced=True)
            self._create(raw, upper, None, is_replaced=True)
        else:
            self._create(raw, upper, lower, is_replaced=False)

    def _create(
        self,
        raw: RawChange,
        upper: Look,
        lower: Look | None,
        *,
        is_replaced: bool,
        is_orphan: bool = False,
    ) -> None:
        change = CommandChange(
            raw.path,
            ChangeKind.CREATED,
            upper.kind,
            upper.mode,
            raw.link_text or "",
        )
        self._add(Difference(change, lower, upper, is_replaced=is_replaced), is_late=is_orphan)

    def _merge(self, raw: RawChange, lower: Look, upper: Look) -> None:
        if upper.mode != lower.mode:
            self._merge_mode(raw.path, lower, upper)
        if raw.is_opaque and not raw.path.startswith(tuple(self._opaque)):
            self._opaque.append(f"{raw.path}/")
            held = dict(names_below(self.layers.upper_fd, raw.path))
            # A name that is no directory now comes by itself, with what was below it.
            taken = {name for name, look in held.items() if look.kind is not NodeKind.DIRECTORY}
            self._delete_all(
                (name, look)
                for name, look in self._names_below(raw.path)
                if name not in held and taken.isdisjoint(directories_above(name))
            )

    def _merge_mode(self, path: str, lower: Look, upper: Look) -> None:
        """Merge a mode: who changed it tells that of the start; the directory's time does not."""
        before = self.ancestry.mode_before(path)
        is_changed_since = lower.status.changed_ns >= self.baseline.started_ns
        if upper.mode == before or (before is None and is_changed_since):
            return
        change = CommandChange(path, ChangeKind.MODE, NodeKind.DIRECTORY, upper.mode)
        is_late = before is not None and lower.mode != before
        self._add(Difference(change, lower, upper), is_late=is_late, is_old=True)

    def _compare(self, raw: RawChange, lower: Look, upper: Look) -> None:
        version = None
        kind = ChangeKind.MODIFIED
        # Threat: a guess at a secret's content, that is no change where it is right.
        if upper.status.size_bytes == lower.status.size_bytes and not self._is_hidden(raw.path):
            version = self.layers.common_version(raw.path)
        if version is not None:
            if upper.mode == lower.mode and upper.status.modified_ns == lower.status.modified_ns:
                return
            kind = ChangeKind.MODE
        change = CommandChange(raw.path, kind, NodeKind.FILE, upper.mode)
        self._add(Difference(change, lower, upper, version))

    def _is_as_shown(self, raw: RawChange) -> bool:
        """Compare with what the command was shown (`git stash`), not with what stands there."""
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

    def _delete(self, path: str, lower: Look, *, is_replaced: bool) -> None:
        self._delete_one(path, lower, is_replaced=is_replaced)
        if lower.kind is NodeKind.DIRECTORY and not lower.is_mounted:
            self._delete_all(self._names_below(path))

    def _names_below(self, path: str) -> Iterable[tuple[str, Look]]:
        return names_below(self.layers.lower_fd, path, self.layers.resolution)

    def _delete_all(self, names: Iterable[tuple[str, Look]]) -> None:
        for path, look in names:
            if look.kind is NodeKind.DIRECTORY:
                self.ancestry.standing[path] = look
            self._delete_one(path, look, is_replaced=False)

    def _delete_one(self, path: str, lower: Look, *, is_replaced: bool) -> None:
        node = lower.kind
        change = CommandChange(path, ChangeKind.DELETED, node)
        self._add(Difference(change, lower, None, is_replaced=is_replaced))

    def _add(self, difference: Difference, *, is_late: bool = False, is_old: bool = False) -> None:
        """Take it in. `is_late`: somebody else was there first; `is_old`: its time is no sign."""
        change, lower = difference.change, difference.lower
        is_mounted = lower is not None and lower.is_mounted
        if is_mounted or f"{change.path}/".startswith(self.mounted):
            difference = replace(difference, change=replace(change, obstacle=_MOUNTED))
        elif _loses_sticky_bit(difference):
            difference = replace(difference, change=replace(change, obstacle=_STICKY))
        if change.path in self.baseline.bases:
            mark = None if lower is None else lower.mark
            is_new, is_late = mark != self.baseline.bases[change.path], False
        else:
            changed_ns = 0 if lower is None else lower.status.changed_ns
            is_new = changed_ns >= self.baseline.started_ns and not is_old
        if is_late or is_new or self._is_elsewhere(change.path, lower):
            self.conflicts.append(change.path)
        self.found.append(difference)

    def _is_elsewhere(self, path: str, lower: Look | None) -> bool:
        """In one that nobody had seen only what stood in it already can be a stranger's."""
        above = self.ancestry.above(path)
        if lower is not None and lower.kind is NodeKind.DIRECTORY:
            above = max(above, self.ancestry.at(path))
        if above is Ancestor.STRANGER:
            return lower is not None or self.layers.is_copy(path)
        return above is Ancestor.EXCHANGED


def _loses_sticky_bit(difference: Difference) -> bool:
    """Only permissions are kept, and a bit that it had."""
    lower, upper = difference.lower, difference.upper
    if upper is None or upper.kind is not NodeKind.DIRECTORY:
        return False
    had = 0 if lower is None else lower.mode
    return upper.mode & ~had & stat.S_ISVTX != 0


def _parents_first(difference: Difference) -> tuple[list[str], bool]:
    change = difference.change
    return change.path.split("/"), change.kind is not ChangeKind.DELETED


def paths_of(differences: Sequence[Difference], *kinds: ChangeKind) -> frozenset[str]:
    return frozenset(each.change.path for each in differences if each.change.kind in kinds)
