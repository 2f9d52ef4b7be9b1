"""A command's second layer: over the git directory of its workspace that stands outside.

    looked for anew, with its proof, held → survey → mounted where git looks for it
    → the command → what it wrote there is put under `.git` of the one layer that is read

From there on it is a git directory like any: its names are judged as `.git/…`, it lands in
the same set of changes (see `workspace.beside`), and is undone from the same notes.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from paddock.errors import ProtectedPathError
from paddock.sandbox.area import NOTHING_SHOWN, Overlaid
from paddock.sandbox.changes.comparing import Comparing
from paddock.sandbox.changes.differences import Difference, Differences
from paddock.sandbox.changes.judging import ChangeKind
from paddock.sandbox.closing import Closing, NameJudge
from paddock.sandbox.git.folders import SPARSE_NAME, land_folder, show_folder, sparse_pattern
from paddock.sandbox.git.repositories import find_hash_bytes
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.hidden import KnownDirectory, NameIndex
from paddock.sandbox.host.git_outside import open_git_outside
from paddock.sandbox.host.host_facts import GitOutside
from paddock.sandbox.launcher import GitLayer
from paddock.sandbox.outcome import RefusedChange
from paddock.sandbox.stage import StageDirectories
from paddock.sandbox.values import SandboxPlan
from paddock.text.show import quote
from paddock.workspace.beside import Beside
from paddock.workspace.resolution import READ_FILE, detect_resolution

_GIT: Final = ".git"
_LEADS_OUT: Final = "it leads to the repository of the workspace, which stands outside, and stays"
_CHANGED: Final = "was changed while the command ran, by somebody else"
_UNREADABLE: Final = "is no index that can be put together with the files outside the workspace"
_OBJECT: Final = re.compile(
    rf"{re.escape(_GIT)}/objects/[0-9a-f]{{2}}/(?:[0-9a-f]{{38}}|[0-9a-f]{{62}})"
)
_PERMISSIONS: Final = 0o777
_REWRITTEN: Final = (ChangeKind.MODIFIED, ChangeKind.MODE)
_REFS: Final = f"{_GIT}/refs/"
_INDEX_BYTES_MAX: Final = 256_000_000
_NAMED_MAX: Final = 5
_TWO: Final = (
    "a repository was made in the workspace: what the same command did to the repository"
    " around it is not kept"
)


@dataclass(frozen=True, slots=True)
class OpenedGit:
    """The git directory for one command. To be closed."""

    outside: GitOutside
    beside: Beside
    layer: GitLayer
    closed: frozenset[str]
    """What of it the command does not see, by workspace paths."""
    directories: Mapping[str, KnownDirectory]
    """Those that stood in it, likewise."""
    index: "ReadIndex | None" = None
    """Of a workspace that is a folder of the work tree: the index that it was shown from."""

    def close(self) -> None:
        """Let it go."""
        os.close(self.beside.fd)

    def join(self, stage: StageDirectories, upper_fd: int, lower_fd: int) -> "Joined":
        """Put what the command did to it under `.git` of the layer. The command has ended.

        Raises: OSError, HostError.
        """
        git_fd = stage.open_git()
        try:
            if not _stands(upper_fd):
                stage.take_git(upper_fd, _GIT)
                return Joined(is_joined=True)
            if not self._is_own_pointer(lower_fd):
                # A repository of its own by now, which the next command will find.
                touched = _TWO if os.listdir(git_fd) else ""
                return Joined(is_joined=False, refused=_refused(touched))
            is_copy = _is_file(upper_fd) and Comparing(upper_fd, lower_fd).common_version(_GIT)
            stage.put_aside(upper_fd, _GIT)
            stage.take_git(upper_fd, _GIT)
            return Joined(is_joined=True, refused=_refused("" if is_copy else _LEADS_OUT))
        finally:
            os.close(git_fd)

    def land_index(self, upper_fd: int) -> str:
        """Put the index together again that a command left of a folder; why it may not land.

        Raises: OSError.
        """
        if self.index is None:
            return ""
        name = self.outside.index
        resolution = detect_resolution()
        try:
            fd = resolution.open(upper_fd, f"{_GIT}/{name}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # It was not written, or what stands there now is refused for what it is.
            return ""
        with open(fd, "r+b") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return ""
            now = _read_index(self.beside.fd, name)
            if now.identity != self.index.identity:
                return _CHANGED
            try:
                landing = land_folder(
                    file.read(_INDEX_BYTES_MAX),
                    now.content,
                    now.hash_bytes,
                    self.outside.folder,
                    now.modified_ns,
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

    def settle(self, differences: Differences, started_ns: int, why: str) -> Differences:
        """What is special about a directory that several work trees share.

        An object that stands there stays: its name says its content, whoever wrote it. A file
        that was written anew as it was (`git gc` does it to every log) stays as well. Where
        references were packed meanwhile, one that seems to be unchanged may have been, too.
        `why` is what keeps the index from landing.
        """
        index = f"{_GIT}/{self.outside.index}"
        conflicts = dict.fromkeys(differences.conflicts)
        is_packed = self._is_packed_since(started_ns)
        found: list[Difference] = []
        for each in differences.found:
            change = each.change
            is_object = _OBJECT.fullmatch(change.path) and change.kind in _REWRITTEN
            if is_object or (change.path != index and _is_time_alone(each)):
                conflicts.pop(change.path, None)
                continue
            if is_packed and change.path.startswith(_REFS):
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

    def _is_own_pointer(self, lower_fd: int) -> bool:
        return not self.outside.folder and _stands(lower_fd)


@dataclass(frozen=True, slots=True)
class Joined:
    """One layer out of two."""

    is_joined: bool
    refused: tuple[RefusedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """The index of a repository as it stood."""

    identity: tuple[int, ...]
    content: bytes
    """Empty where there is none yet."""
    hash_bytes: int
    modified_ns: int


class GitRoom:
    """Of the commands of one agent. Safe for threads."""

    __slots__ = ("_index", "_judge", "_last")

    def __init__(self, judge: NameJudge) -> None:
        """`judge` says what is closed to reading, by workspace paths."""
        self._judge = judge
        self._index = NameIndex(_Below(judge))
        self._last: tuple[ReadIndex, Overlaid] | None = None

    def open(self, plan: SandboxPlan) -> OpenedGit | None:
        """What the plan has, if it is still so; None for no git directory outside.

        Raises: SandboxUnavailableError: it has more directories than are looked at. OSError.
        """
        outside = plan.git_outside
        if outside is None or self._judge.judge(_GIT, is_directory=True) is not Closing.OPEN:
            return None
        held = open_git_outside(plan.workspace)
        if held is None:
            return None
        try:
            if held.outside != outside:
                raise FileNotFoundError
            survey = self._index.survey(held.fd)
            index, shown = self._show(held.fd, outside)
        except (FileNotFoundError, ValueError):
            os.close(held.fd)
            return None
        except BaseException:
            os.close(held.fd)
            raise
        return OpenedGit(
            outside,
            Beside(_GIT, outside.common, held.fd),
            GitLayer(held.fd, outside.common, survey.closed, shown, _pointer(outside)),
            frozenset(f"{_GIT}/{name}" for name in survey.closed),
            {_below(path): known for path, known in survey.directories.items()},
            index,
        )

    def _show(self, fd: int, outside: GitOutside) -> tuple[ReadIndex | None, Overlaid]:
        """What a folder is shown in place of the index. Raises: ValueError: git cannot do that."""
        if not outside.folder:
            return None, NOTHING_SHOWN
        last, identity = self._last, _identity(fd, outside.index)
        if last is not None and last[0].identity == identity:
            return last
        index = _read_index(fd, outside.index)
        pattern = sparse_pattern(outside.folder)
        files = {outside.beside_index(SPARSE_NAME): pattern}
        if index.content:
            files[outside.index] = show_folder(index.content, index.hash_bytes, outside.folder)
        digest = sha256(repr(index.identity).encode() + pattern).hexdigest()
        self._last = index, Overlaid(files, digest, index.modified_ns)
        return self._last


class _Below:
    """Judges names of the git directory as what they are in the workspace."""

    __slots__ = ("_judge",)

    def __init__(self, judge: NameJudge) -> None:
        self._judge = judge

    def judge(self, path: str, is_directory: bool) -> Closing:
        """See `NameJudge`."""
        return self._judge.judge(_below(path), is_directory)


def _below(path: str) -> str:
    return _GIT if path == "." else f"{_GIT}/{path}"


def _pointer(outside: GitOutside) -> tuple[str, str] | None:
    if not outside.pointer:
        return None
    return outside.pointer, f"{outside.common}/{outside.own}".rstrip("/")


def _identity(fd: int, name: str) -> tuple[int, ...]:
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read_index(fd: int, name: str) -> ReadIndex:
    hash_bytes = find_hash_bytes(fd, ".")
    try:
        opened = detect_resolution().open(fd, name, READ_FILE)
    except FileNotFoundError:
        return ReadIndex((), b"", hash_bytes, 0)
    with open(opened, "rb") as file:
        found = os.fstat(opened)
        content = file.read(_INDEX_BYTES_MAX)
    identity = (
        *(found.st_dev, found.st_ino, found.st_size),
        *(found.st_mtime_ns, found.st_ctime_ns),
    )
    return ReadIndex(identity, content, hash_bytes, found.st_mtime_ns)


def _changes_outside(changed: tuple[str, ...]) -> str:
    shown = ", ".join(quote(path) for path in changed[:_NAMED_MAX])
    more = f" and {len(changed) - _NAMED_MAX} more" if len(changed) > _NAMED_MAX else ""
    return f"changes files outside the workspace: {shown}{more}"


def _is_time_alone(difference: Difference) -> bool:
    change, lower = difference.change, difference.lower
    if change.kind is not ChangeKind.MODE or lower is None:
        return False
    is_here = change.path.startswith(f"{_GIT}/") and change.node is NodeKind.FILE
    return is_here and (change.mode ^ lower.mode) & _PERMISSIONS == 0


def _refused(why: str) -> tuple[RefusedChange, ...]:
    return (RefusedChange(_GIT, ProtectedPathError.code, why),) if why else ()


def _stands(fd: int) -> bool:
    return _mode_of(fd) != 0


def _is_file(fd: int) -> bool:
    return stat.S_ISREG(_mode_of(fd))


def _mode_of(fd: int) -> int:
    try:
        return os.stat(_GIT, dir_fd=fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0
