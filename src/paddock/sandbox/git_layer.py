"""Give a command a layer over a git directory outside its workspace, and show tracked files.

Before each command the git directory is located again, opened, and mounted where git expects it;
the command's changes to it are moved under `.git` of the one layer that is judged and committed
(see `workspace.beside`). Closed files that git tracks are located again as well.
"""

import hashlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import ProtectedPathError
from paddock.pattern import lazy_pattern
from paddock.sandbox.changes.differences import (
    ChangeKind,
    CommandChange,
    CommandDifferences,
    OpenLayers,
    is_only_touched,
)
from paddock.sandbox.git.index import (
    FILE_MODES,
    LINK_MODE,
    SPARSE_NAME,
    SUBMODULE_MODE,
    land_folder,
    show_folder,
    sparse_pattern,
)
from paddock.sandbox.git.layout import find_hash_bytes
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.git.tracked import (
    INDEX_BYTES_MAX,
    FileIdentity,
    IndexPlace,
    KnownIndex,
    Tracked,
    TrackedName,
    TrackedNames,
    identity_of_look,
)
from paddock.sandbox.hidden import KnownDirectory, NameIndex
from paddock.sandbox.host.git import GIT, HeldGit, open_git_outside
from paddock.sandbox.host.host_facts import (
    GitOutside,
    directories_above,
    find_content,
    stat_at,
)
from paddock.sandbox.launcher import Launcher, StageDirectories
from paddock.sandbox.plan import Closing, NameJudge, contained
from paddock.sandbox.values import CommandRequest, Ending, RefusedChange, SandboxPlan, ShownFile
from paddock.storage.atomic import held_open
from paddock.text.show import name_some
from paddock.workspace.workspace import Beside, detect_resolution

_LEADS_OUT: Final = "it leads to the workspace's repository, which is outside, and is not replaced"
_CHANGED: Final = "was changed by another process while the command ran"
_UNREADABLE: Final = "is not an index that can be merged with the files outside the workspace"
_OBJECT: Final = lazy_pattern(r"\.git/objects/[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})")
_REWRITTEN: Final = (ChangeKind.MODIFIED, ChangeKind.MODE)

_TWO: Final = (
    "a repository was created in the workspace: the same command's changes to the repository"
    " around it are not kept"
)


class OpenedGit(Struct, frozen=True):
    outside: GitOutside
    beside: Beside
    hidden: tuple[str, ...]
    directories: Mapping[str, KnownDirectory]
    shown: tuple[ShownFile, ...] = ()
    identity: FileIdentity | None = None
    """That of the index that was shown, if the workspace is a folder of the work tree."""

    @property
    def closed(self) -> frozenset[str]:
        return frozenset(map(_below, self.hidden))

    @property
    def pointer(self) -> tuple[str, ...]:
        """Return a `.git` file that points to the directory, and its target."""
        outside = self.outside
        real = f"{outside.common}/{outside.own}".rstrip("/")
        return (outside.pointer, real) if outside.pointer else ()

    @property
    def index(self) -> IndexPlace:
        folder = self.outside.folder
        above = f"{folder}/" if folder else ""
        return IndexPlace(".", self.beside.fd, self.outside.beside_index(""), above)

    def known_index(self) -> dict[str, KnownIndex]:
        name, path = self.outside.index, f"{GIT}/{self.outside.index}"
        shown = next((each.content for each in self.shown if each.path == name), b"")
        return {path: KnownIndex(self.beside.fd, name, path, shown)}

    def close(self) -> None:
        os.close(self.beside.fd)

    def join(
        self, stage: StageDirectories, upper_fd: int, lower_fd: int
    ) -> tuple[bool, tuple[RefusedChange, ...]]:
        """Move the command's git changes under the layer's `.git`. Raises: OSError, HostError."""
        with held_open(stage.open_git()) as git_fd:
            if not _mode_of(upper_fd):
                stage.take_git(upper_fd, GIT)
                return True, ()
            if self.outside.folder or not _mode_of(lower_fd):
                # A separate repository by now, which the next command will find.
                return False, _refused(_TWO if os.listdir(git_fd) else "")
            is_file = stat.S_ISREG(_mode_of(upper_fd))
            is_copy = is_file and OpenLayers(upper_fd, lower_fd).common_version(GIT)
            stage.put_aside(upper_fd, GIT)
            stage.take_git(upper_fd, GIT)
            return True, _refused("" if is_copy else _LEADS_OUT)

    def land_index(self, upper_fd: int, indexes: Mapping[str, KnownIndex]) -> str:
        """Merge a folder's index with the rest; return why it may not land. Raises: OSError."""
        if self.identity is None:
            return ""
        path = f"{GIT}/{self.outside.index}"
        try:
            fd = detect_resolution().open(upper_fd, path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # It was not written, or the entry there now is refused for its type.
            return ""
        with open(fd, "r+b") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return ""
            now = self.index.identity()
            before = self.index.read("index") or b""
            known = indexes[path]
            # Another process may only have refreshed it: it still names what the command was shown.
            is_refreshed = known.identity == self.identity and known.is_known(before, is_last=True)
            if now != self.identity and not is_refreshed:
                return _CHANGED
            try:
                landing = land_folder(
                    file.read(INDEX_BYTES_MAX),
                    before,
                    find_hash_bytes(self.beside.fd, "."),
                    self.outside.folder,
                    _modified_ns(now),
                )
            except ValueError:
                return _UNREADABLE
            if landing.changed:
                return f"changes files outside the workspace: {name_some(landing.changed)}"
            file.seek(0)
            file.truncate()
            file.write(landing.content)
            file.flush()
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
        return ""

    def settle(
        self, differences: CommandDifferences, started_ns: int, why: str
    ) -> CommandDifferences:
        """Handle the special cases of a git directory that several work trees share.

        An object that exists is kept, as is a file rewritten with the same content. If references
        were packed meanwhile, one that seems unchanged may have changed too: a conflict.
        `why` prevents the index from landing.
        """
        index = f"{GIT}/{self.outside.index}"
        conflicts = dict.fromkeys(differences.conflicts)
        packed = stat_at(self.beside.fd, "packed-refs")
        is_packed = packed is not None and packed.st_ctime_ns >= started_ns
        found: list[CommandChange] = []
        for change in differences.found:
            is_object = _OBJECT.fullmatch(change.path) and change.kind in _REWRITTEN
            is_file = change.path.startswith(f"{GIT}/") and change.node is NodeKind.FILE
            if is_object or (is_file and change.path != index and is_only_touched(change)):
                conflicts.pop(change.path, None)
                continue
            if is_packed and change.path.startswith(f"{GIT}/refs/"):
                conflicts[change.path] = None
            is_index = why and change.path == index
            found.append(replace(change, obstacle=why) if is_index else change)
        return replace(differences, found=tuple(found), conflicts=tuple(conflicts))


class GitDirectoryOpener:
    def __init__(self, judge: NameJudge) -> None:
        self._judge = judge
        self._index = NameIndex(_Below(judge))
        self._last: tuple[FileIdentity, tuple[ShownFile, ...]] | None = None

    def open(self, plan: SandboxPlan) -> OpenedGit | None:
        """Open the plan's git directory if unchanged. Raises: SandboxUnavailableError, OSError."""
        outside = plan.git_outside
        if outside is None or self._judge.judge(GIT, is_directory=True) is not Closing.OPEN:
            return None
        held = open_git_outside(plan.workspace)
        if held is None:
            return None
        with ExitStack() as undo:
            undo.callback(held.close)
            if held.outside == outside:
                with suppress(FileNotFoundError, ValueError):
                    opened = self._opened(held)
                    undo.pop_all()
                    return opened
        return None

    def _opened(self, held: HeldGit) -> OpenedGit:
        outside, fd = held.outside, held.beside.fd
        survey = self._index.survey(fd)
        directories = {_below(path): known for path, known in survey.directories.items()}
        opened = OpenedGit(outside, held.beside, survey.closed, directories)
        if not outside.folder:
            return opened
        identity, shown = self._show(opened)
        return replace(opened, shown=shown, identity=identity)

    def _show(self, git: OpenedGit) -> tuple[FileIdentity, tuple[ShownFile, ...]]:
        """Return the index reduced to the folder. Raises: ValueError: git cannot do that."""
        last, identity, outside = self._last, git.index.identity(), git.outside
        if last is not None and last[0] == identity:
            return last
        files = {outside.beside_index(SPARSE_NAME): sparse_pattern(outside.folder)}
        if identity:
            content, size = git.index.read("index") or b"", find_hash_bytes(git.beside.fd, ".")
            files[outside.index] = show_folder(content, size, outside.folder)
        shown = (
            ShownFile(path, 0o100644, content, _modified_ns(identity), is_faithful=True)
            for path, content in files.items()
        )
        self._last = identity, tuple(shown)
        return self._last


class _Below(Struct, frozen=True):
    above: NameJudge

    def judge(self, path: str, is_directory: bool) -> Closing:
        return self.above.judge(_below(path), is_directory)


def _below(path: str) -> str:
    return GIT if path == "." else f"{GIT}/{path}"


def _modified_ns(identity: FileIdentity) -> int:
    return identity[3] if identity else 0


def _refused(why: str) -> tuple[RefusedChange, ...]:
    return (RefusedChange(GIT, ProtectedPathError.code, why),) if why else ()


def _mode_of(fd: int) -> int:
    look = stat_at(fd, GIT)
    return 0 if look is None else look.st_mode


# A missing file looks deleted to git, and the next `git add -A` would record the deletion. So a
# hidden tracked file is shown with the index's version, as git itself checks it out in a sandbox
# over the same workspace.
#
# Threat: a repository names programs that git runs: fsmonitor, filters, a transport, an alias. In
# the sandbox they reach what a command of this agent reaches; those that can be disabled, are.
#
# A path with a filter driver is shown with the object's raw content; a missing or large object as
# an empty file. No recorded change of such a path may land.

_FILE_BYTES_MAX: Final = 4_000_000
_ALL_BYTES_MAX: Final = 16_000_000
_NAMES_MAX: Final = 2_000
"""A file over one of these limits is shown empty."""
_OUTPUT_BYTES_MAX: Final = 4 * _ALL_BYTES_MAX
_TIMEOUT_S: Final = 30.0
_CONTENTS_KEPT: Final = 4 * _NAMES_MAX

_TIMES_FROM_S: Final = 946_684_800
_TIMES_S: Final = 20 * 365 * 86_400
"""Between 2000 and 2020: in the past for every program, and not the time of a current file."""

_UNSET: Final = frozenset({"unspecified", "unset"})
_PREAMBLE: Final = """\
export GIT_NO_LAZY_FETCH=1 GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0
git() { command git -c core.fsmonitor=false -c core.hooksPath=/dev/null -c protocol.allow=never \\
  --no-pager "$@"; }
mark=$1 names=$TMPDIR/names
cat >"$names"
"""
"""Each name comes as `OBJECT PATH`, with a leading `+` if git has to convert the object."""
_LOOK: Final = (
    _PREAMBLE
    + """\
cut -d' ' -f1 "$names" | git cat-file --batch-check='%(objecttype) %(objectsize)'
printf '%s\\n' "$mark"
cut -d' ' -f2- "$names" | tr '\\n' '\\0' | git check-attr -z --stdin filter working-tree-encoding
"""
)
_READ: Final = (
    _PREAMBLE
    + """\
sed 's/^+//' "$names" | cut -d' ' -f1 | git cat-file --batch="$mark %(objectsize)"
sed -n 's/^+//p' "$names" | git cat-file --filters --batch="$mark %(objectsize)"
"""
)


class ShownNames(Struct, frozen=True):
    names: tuple[str, ...]
    differing: tuple[str, ...]


NOTHING_SHOWN: Final = ShownNames((), ())


class TrackedFiles(Struct, frozen=True):
    files: Mapping[str, ShownFile]
    tracked: Tracked


class _Content(Struct, frozen=True):
    content: bytes
    is_faithful: bool


_EMPTY: Final = _Content(b"", is_faithful=False)


class TrackedView:
    def __init__(self) -> None:
        self._names = TrackedNames()
        self._known: dict[tuple[object, ...], _Content] = {}
        self._lock = threading.Lock()

    def look(
        self, launcher: Launcher, plan: SandboxPlan, root_fd: int, git: OpenedGit | None = None
    ) -> TrackedFiles:
        """Raises: SandboxUnavailableError, HostError: git could not be run."""
        with self._lock:
            outside = None if git is None else git.index
            tracked = self._names.find(root_fd, plan.workspace, plan.hidden, outside)
            if not tracked.names:
                return TrackedFiles({}, tracked)
            place = launcher, replace(contained(plan), network="none"), root_fd, git
            shown = self._show(tracked.names, place)
        return TrackedFiles({each.path: each for each in shown}, tracked)

    def _show(
        self,
        names: Sequence[TrackedName],
        place: tuple[Launcher, SandboxPlan, int, OpenedGit | None],
    ) -> list[ShownFile]:
        found: dict[str, _Content] = {}
        by_repository: dict[str, list[TrackedName]] = {}
        for each in names[:_NAMES_MAX]:
            if each.mode != SUBMODULE_MODE:
                by_repository.setdefault(each.repository, []).append(each)
        for repository, tracked in by_repository.items():
            query = _GitQuery(*place, repository)
            keys = {
                each.path: (each.object_id, each.size_bytes, *query.stamps(each.path))
                for each in tracked
            }
            unknown = [each for each in tracked if keys[each.path] not in self._known]
            if unknown:
                contents = query.read(unknown)
                if len(self._known) > _CONTENTS_KEPT:
                    self._known.clear()
                self._known |= {
                    keys[each.path]: contents.get(each.path, _EMPTY) for each in unknown
                }
            found |= {path: self._known.get(key, _EMPTY) for path, key in keys.items()}
        return [_shown(each, found.get(each.path, _EMPTY)) for each in names]


class _GitQuery(Struct, frozen=True):
    launcher: Launcher
    plan: SandboxPlan
    root_fd: int
    git: OpenedGit | None
    repository: str
    _stamps: dict[str, FileIdentity] = field(default_factory=dict[str, FileIdentity])

    def _run(self, script: str, mark: str, lines: Iterable[str]) -> bytes:
        """Return the script's output; empty where it failed or was too long."""
        argv, names = ("/bin/sh", "-c", script, "sh", mark), "".join(f"{line}\n" for line in lines)
        terms = argv, self.repository, _TIMEOUT_S, _OUTPUT_BYTES_MAX, os.fsencode(names)
        request = CommandRequest(self.plan, *terms)
        with self.launcher.open_stage(self.plan, self.root_fd, git=self.git) as stage:
            end = self.launcher.run(request, stage)
        if end.ending is not Ending.EXITED or end.stdout.missing_bytes:
            return b""
        return end.stdout.head + end.stdout.tail

    def stamps(self, path: str) -> tuple[object, ...]:
        """Stat the files that decide how git converts a path."""
        prefix = "" if self.repository == "." else f"{self.repository}/"
        folders = ("", *(f"{each}/" for each in directories_above(path[len(prefix) :])))
        names = [f"{folder}.gitattributes" for folder in folders]
        names += [".git", ".git/config", ".git/info/attributes"]
        return (path, *(self._stamp(f"{prefix}{name}") for name in names))

    def _stamp(self, name: str) -> FileIdentity:
        if name not in self._stamps:
            is_outside = self.git is not None and name.startswith(".git/")
            fd = self.git.beside.fd if self.git is not None and is_outside else self.root_fd
            inner = name.removeprefix(".git/") if is_outside else name
            look = stat_at(fd, inner)
            self._stamps[name] = () if look is None else identity_of_look(look)
        return self._stamps[name]

    def read(self, names: Sequence[TrackedName]) -> dict[str, _Content]:
        left_bytes = _ALL_BYTES_MAX
        wanted: list[tuple[TrackedName, _Look]] = []
        for each, look in self._look(names):
            if look.size_bytes <= min(_FILE_BYTES_MAX, left_bytes):
                left_bytes -= look.size_bytes
                wanted.append((each, look))
        return self._read(wanted) if wanted else {}

    def _look(self, names: Sequence[TrackedName]) -> "Iterator[tuple[TrackedName, _Look]]":
        mark = secrets.token_hex(16)
        lines = (f"{each.object_id} {self._inner(each)}" for each in names)
        output = self._run(_LOOK, mark, lines)
        objects, is_whole, attributes = output.partition(f"{mark}\n".encode())
        if not is_whole:
            return
        named = _attributes(attributes)
        for each, row in zip(names, objects.splitlines(), strict=False):
            kind, _, size = row.partition(b" ")
            if kind == b"blob" and size.isdigit():
                is_set = (
                    named.get((self._inner(each), name), "unset") not in _UNSET
                    for name in ("filter", "working-tree-encoding")
                )
                filtered, encoded = is_set
                yield each, _Look(int(size), encoded, filtered and each.mode != LINK_MODE)

    def _read(self, wanted: "Sequence[tuple[TrackedName, _Look]]") -> dict[str, _Content]:
        # The prefix of this work tree's paths in git.
        above = self.git.index.above if self.git is not None and self.repository == "." else ""
        converted: list[str] = []
        lines: list[str] = []
        for each, look in wanted:
            is_converted = not look.has_filter and each.mode != LINK_MODE
            converted += [each.path] if is_converted else []
            sign = "+" if is_converted else ""
            lines.append(f"{sign}{each.object_id} {above}{self._inner(each)}")
        mark = secrets.token_hex(16)
        output = self._run(_READ, mark, lines)
        # The mark is random: no existing content contains it.
        rows = [row.removesuffix(b"\n") for row in re.split(rf"{mark} \d+\n".encode(), output)[1:]]
        made = dict(zip(converted, rows[len(wanted) :], strict=False))
        found: dict[str, _Content] = {}
        for (each, look), row in zip(wanted, rows, strict=False):
            content = made.get(each.path, row)
            # To git, a file whose size differs from the index is modified (`ie_modified`).
            if each.size_bytes == len(row) != len(content) and not look.is_encoded:
                content = row
            is_faithful = not (look.has_filter or each.is_intended)
            found[each.path] = _Content(content, is_faithful=is_faithful)
        return found

    def _inner(self, name: TrackedName) -> str:
        return name.path if self.repository == "." else name.path[len(self.repository) + 1 :]


class _Look(Struct, frozen=True):
    size_bytes: int
    is_encoded: bool
    has_filter: bool


def _attributes(output: bytes) -> dict[tuple[str, str], str]:
    fields = [os.fsdecode(field) for field in output.split(b"\0")]
    rows = zip(fields[0::3], fields[1::3], fields[2::3], strict=False)
    return {(path, name): value for path, name, value in rows}


def _shown(name: TrackedName, content: _Content) -> ShownFile:
    is_submodule = name.mode == SUBMODULE_MODE
    digest = hashlib.sha256(content.content)
    digest.update(name.object_id.encode())
    # The time depends on the content: with `core.checkStat` = `minimal`, git takes two files of
    # the same size and time for the same.
    seconds = _TIMES_FROM_S + int.from_bytes(digest.digest()[:8], "big") % _TIMES_S
    if seconds == name.modified_ns // 1_000_000_000:
        seconds += 1
    return ShownFile(
        name.path,
        name.mode,
        content.content,
        seconds * 1_000_000_000,
        is_faithful=is_submodule or content.is_faithful,
    )


def differing(shown: Mapping[str, ShownFile], root_fd: int) -> ShownNames:
    found = (
        path
        for path, file in sorted(shown.items())
        if file.mode in FILE_MODES
        and find_content(root_fd, path, len(file.content)) != file.content
    )
    return ShownNames(tuple(sorted(shown)), tuple(found))
