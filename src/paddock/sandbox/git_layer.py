"""A command's second layer: over the git directory of its workspace that stands outside.

It is looked for anew, held, and mounted where git looks for it; what the command wrote there is
put under `.git` of the one layer that is read, judged and landed (see `workspace.beside`).
"""

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ProtectedPathError
from paddock.pattern import lazy_pattern
from paddock.sandbox.area import NOTHING_SHOWN, Overlaid
from paddock.sandbox.changes.differences import (
    CommandDifferences,
    Comparing,
    Difference,
    is_only_touched,
)
from paddock.sandbox.changes.judging import ChangeKind
from paddock.sandbox.git.index import SPARSE_NAME, land_folder, show_folder, sparse_pattern
from paddock.sandbox.git.layout import find_hash_bytes
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.git.tracked import FileIdentity, IndexPlace
from paddock.sandbox.hidden import KnownDirectory, NameIndex
from paddock.sandbox.host.git_outside import GIT, HeldGit, open_git_outside
from paddock.sandbox.host.host_facts import GitOutside
from paddock.sandbox.launcher import GitLayer
from paddock.sandbox.plan import Closing, NameJudge
from paddock.sandbox.stage import StageDirectories
from paddock.sandbox.values import RefusedChange, SandboxPlan
from paddock.storage.atomic import held_open
from paddock.text.show import quote
from paddock.workspace.resolve import Beside, detect_resolution

_LEADS_OUT: Final = "it leads to the repository of the workspace, which stands outside, and stays"
_CHANGED: Final = "was changed while the command ran, by somebody else"
_UNREADABLE: Final = "is no index that can be put together with the files outside the workspace"
_OBJECT: Final = lazy_pattern(r"\.git/objects/[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62})")
_REWRITTEN: Final = (ChangeKind.MODIFIED, ChangeKind.MODE)
_INDEX_BYTES_MAX: Final = 256_000_000
_NAMED_MAX: Final = 5
_TWO: Final = (
    "a repository was made in the workspace: what the same command did to the repository"
    " around it is not kept"
)


class OpenedGit(Struct, frozen=True):
    outside: GitOutside
    beside: Beside
    layer: GitLayer
    directories: Mapping[str, KnownDirectory]
    shown: FileIdentity | None = None
    """Of a workspace that is a folder of the work tree: the index that it was shown from."""

    @property
    def closed(self) -> frozenset[str]:
        return frozenset(map(_below, self.layer.hidden))

    @property
    def index(self) -> IndexPlace:
        folder = self.outside.folder
        above = f"{folder}/" if folder else ""
        return IndexPlace(".", self.beside.fd, self.outside.beside_index(""), above)

    def close(self) -> None:
        os.close(self.beside.fd)

    def join(
        self, stage: StageDirectories, upper_fd: int, lower_fd: int
    ) -> tuple[bool, tuple[RefusedChange, ...]]:
        """Put what the command did to it under `.git` of the layer. Raises: OSError, HostError."""
        with held_open(stage.open_git()) as git_fd:
            if not _mode_of(upper_fd):
                stage.take_git(upper_fd, GIT)
                return True, ()
            if self.outside.folder or not _mode_of(lower_fd):
                # A repository of its own by now, which the next command will find.
                return False, _refused(_TWO if os.listdir(git_fd) else "")
            is_file = stat.S_ISREG(_mode_of(upper_fd))
            is_copy = is_file and Comparing(upper_fd, lower_fd).common_version(GIT)
            stage.put_aside(upper_fd, GIT)
            stage.take_git(upper_fd, GIT)
            return True, _refused("" if is_copy else _LEADS_OUT)

    def land_index(self, upper_fd: int) -> str:
        """Put a folder's index together again; say why it may not land. Raises: OSError."""
        if self.shown is None:
            return ""
        path = f"{GIT}/{self.outside.index}"
        try:
            fd = detect_resolution().open(upper_fd, path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # It was not written, or what stands there now is refused for what it is.
            return ""
        with open(fd, "r+b") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return ""
            identity = self.index.identity()
            before = self.index.read("index") or b""
            if identity != self.shown:
                return _CHANGED
            try:
                landing = land_folder(
                    file.read(_INDEX_BYTES_MAX),
                    before,
                    find_hash_bytes(self.beside.fd, "."),
                    self.outside.folder,
                    _modified_ns(identity),
                )
            except ValueError:
                return _UNREADABLE
            if landing.changed:
                return _changes_outside(landing.changed)
            file.seek(0)
            file.truncate()
            file.write(landing.content)
            file.flush()
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
        return ""

    def settle(
        self, differences: CommandDifferences, started_ns: int, why: str
    ) -> CommandDifferences:
        """Settle what is special about a directory that several work trees share.

        An object that stands there stays, as does a file that was written anew as it was.
        Where references were packed meanwhile, one that seems unchanged may have been changed, too.
        `why` keeps the index from landing.
        """
        index = f"{GIT}/{self.outside.index}"
        conflicts = dict.fromkeys(differences.conflicts)
        is_packed = self._is_packed_since(started_ns)
        found: list[Difference] = []
        for each in differences.found:
            change = each.change
            is_object = _OBJECT.fullmatch(change.path) and change.kind in _REWRITTEN
            if is_object or (change.path != index and _is_same_file(each)):
                conflicts.pop(change.path, None)
                continue
            if is_packed and change.path.startswith(f"{GIT}/refs/"):
                conflicts[change.path] = None
            is_index = why and change.path == index
            found.append(replace(each, change=replace(change, obstacle=why)) if is_index else each)
        return replace(differences, found=tuple(found), conflicts=tuple(conflicts))

    def _is_packed_since(self, started_ns: int) -> bool:
        try:
            found = os.stat("packed-refs", dir_fd=self.beside.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return found.st_ctime_ns >= started_ns


class GitRoom:
    __slots__ = ("_index", "_judge", "_last")

    def __init__(self, judge: NameJudge) -> None:
        self._judge = judge
        self._index = NameIndex(_Below(judge))
        self._last: tuple[FileIdentity, Overlaid] | None = None

    def open(self, plan: SandboxPlan) -> OpenedGit | None:
        """Hold it if it is still so; None without one. Raises: SandboxUnavailableError, OSError."""
        outside = plan.git_outside
        if outside is None or self._judge.judge(GIT, is_directory=True) is not Closing.OPEN:
            return None
        held = open_git_outside(plan.workspace)
        if held is None:
            return None
        try:
            opened = self._opened(held) if held.outside == outside else None
        except (FileNotFoundError, ValueError):
            opened = None
        except BaseException:
            held.close()
            raise
        if opened is None:
            held.close()
        return opened

    def _opened(self, held: HeldGit) -> OpenedGit:
        outside, fd = held.outside, held.beside.fd
        survey = self._index.survey(fd)
        pointer = None
        if outside.pointer:
            pointer = outside.pointer, f"{outside.common}/{outside.own}".rstrip("/")
        layer = GitLayer(fd, outside.common, survey.closed, NOTHING_SHOWN, pointer)
        directories = {_below(path): known for path, known in survey.directories.items()}
        opened = OpenedGit(outside, held.beside, layer, directories)
        if not outside.folder:
            return opened
        identity, shown = self._show(opened)
        return replace(opened, layer=replace(layer, shown=shown), shown=identity)

    def _show(self, git: OpenedGit) -> tuple[FileIdentity, Overlaid]:
        """Show a folder its index. Raises: ValueError: git cannot do that."""
        last, identity, outside = self._last, git.index.identity(), git.outside
        if last is not None and last[0] == identity:
            return last
        pattern = sparse_pattern(outside.folder)
        files = {outside.beside_index(SPARSE_NAME): pattern}
        if identity:
            content, size = git.index.read("index") or b"", find_hash_bytes(git.beside.fd, ".")
            files[outside.index] = show_folder(content, size, outside.folder)
        digest = sha256(repr(identity).encode() + pattern).hexdigest()
        self._last = identity, Overlaid(files, digest, _modified_ns(identity))
        return self._last


class _Below:
    __slots__ = ("_judge",)

    def __init__(self, judge: NameJudge) -> None:
        self._judge = judge

    def judge(self, path: str, is_directory: bool) -> Closing:
        return self._judge.judge(_below(path), is_directory)


def _below(path: str) -> str:
    return GIT if path == "." else f"{GIT}/{path}"


def _modified_ns(identity: FileIdentity) -> int:
    return identity[3] if identity else 0


def _changes_outside(changed: tuple[str, ...]) -> str:
    shown = ", ".join(quote(path) for path in changed[:_NAMED_MAX])
    more = f" and {len(changed) - _NAMED_MAX} more" if len(changed) > _NAMED_MAX else ""
    return f"changes files outside the workspace: {shown}{more}"


def _is_same_file(difference: Difference) -> bool:
    change = difference.change
    is_here = change.path.startswith(f"{GIT}/") and change.node is NodeKind.FILE
    return is_here and is_only_touched(difference)


def _refused(why: str) -> tuple[RefusedChange, ...]:
    return (RefusedChange(GIT, ProtectedPathError.code, why),) if why else ()


def _mode_of(fd: int) -> int:
    try:
        return os.stat(GIT, dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0
