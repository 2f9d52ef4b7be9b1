"""What a command's changes stand on besides the entries that they name, asked as they land.

A set is judged on the tree of one moment and comes into that of another: after a wait for
the locks of another set, or, where somebody was asked first, up to a day later. Each change
says what it believes of its own path, and that is not all.

The directories above have to be those that the command saw: what is to come into one does
not belong into another that has its name by now.

What the git preset allowed lies in other paths, too: a directory is a repository by its
names, and by others it is armed (`repositories`).

Threat: two commands, at once or both waiting for an answer. One writes `config` and `hooks/`
into a directory, the other makes it a repository. Each is harmless on the tree before both.

Most of these names stand in the directory itself, which whoever makes one locks. For those
that stand deeper it is locked besides.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from paddock.errors import FileChangedError
from paddock.policy.settings import Git
from paddock.sandbox.git.layout import Touched, find_repositories
from paddock.sandbox.git.rules import (
    ARMING_NAMES,
    CONTENT_BYTES_MAX,
    GitChange,
    GitDirectory,
    GitRuling,
    NodeKind,
    find_git_place,
    judge_git,
    wants_content,
)
from paddock.sandbox.host.standing import find_content
from paddock.storage.locks import Identity, identity_of
from paddock.storage.objects import ObjectStore
from paddock.text.show import quote
from paddock.workspace.changes import (
    GivenContent,
    MakeDirectory,
    MakeLink,
    Phases,
    RemoveDirectory,
    RemoveFile,
    Seen,
    SetMetadata,
    StagedChange,
    StoredContent,
    WriteFile,
)
from paddock.workspace.paths import WorkspacePath, unchecked_path
from paddock.workspace.preflight import conflict
from paddock.workspace.resolve import PASS_DIRECTORY, Resolution, detect_resolution, held_open

_DEEP_NAMES: Final = tuple(name for name in ARMING_NAMES if "/" in name)
_MODE: Final = 0o644
_CREATIONS: Final = (WriteFile, MakeDirectory, MakeLink)
_REMOVALS: Final = (RemoveFile, RemoveDirectory)


@dataclass(frozen=True, slots=True)
class Footing:
    """What has to hold for a set as it lands; see `changes.Condition`."""

    root_fd: int
    phases: Phases
    store: ObjectStore
    git: Git
    above: Mapping[str, Identity]
    """The directories that hold what the set changes and stood there already, the root as `.`."""
    resolution: Resolution = field(default_factory=detect_resolution)

    def directories(self) -> Sequence[WorkspacePath]:
        """See `Condition`: those that something deep in them arms."""
        if self.git == "none":
            return ()
        made = {each.path for each in self._changes() if isinstance(each, _CREATIONS)}
        armed = {
            unchecked_path(path.relative[: -len(name) - 1] or ".")
            for path in made
            for name in _DEEP_NAMES
            if f"/{path.relative}".endswith(f"/{name}")
        }
        # One that the set makes is nobody else's yet.
        return tuple(armed - made)

    def verify(self) -> None:
        """See `Condition`.

        Raises: FileChangedError: a directory is another one, or the git preset refuses some of
            it by now.
        """
        others = [path for path, known in self.above.items() if not self._is_same(path, known)]
        if others:
            raise conflict([unchecked_path(path) for path in others])
        if self.git != "none":
            self._verify_git()

    def _is_same(self, path: str, known: Identity) -> bool:
        try:
            fd = self.resolution.open(self.root_fd, path, PASS_DIRECTORY)
        except OSError:
            return False
        with held_open(fd):
            return identity_of(fd) == known

    def _changes(self) -> Iterable[StagedChange]:
        return (change for phase in self.phases for change in phase)

    def _verify_git(self) -> None:
        gone = {each.path.relative for each in self._changes() if isinstance(each, _REMOVALS)}
        present = {
            each.path.relative for each in self._changes() if not isinstance(each, _REMOVALS)
        }
        touched = Touched(frozenset(present), frozenset(gone))
        known = {
            each.path: each for each in find_repositories(self.root_fd, touched, self.resolution)
        }
        for change in self._changes():
            ruling = self._judge(change, known)
            if ruling is not None and not ruling.is_allowed:
                raise FileChangedError(
                    f"{quote(change.path.relative)} is not committed by the git preset as the"
                    f" workspace is now: {ruling.reason}",
                    hint="nothing was changed; look at what stands there, then repeat the call",
                )

    def _judge(self, change: StagedChange, known: Mapping[str, GitDirectory]) -> GitRuling | None:
        """None for what lies in no git directory."""
        place = find_git_place(change.path.relative, known)
        if place is None:
            return None
        directory = known[place.directory]
        is_removed = isinstance(change, _REMOVALS)
        content = None
        if not is_removed and wants_content(place.name, directory.nested):
            content = self._content(change)
        mode = _MODE
        if isinstance(change, WriteFile | MakeDirectory | SetMetadata) and change.mode is not None:
            mode = change.mode
        return judge_git(
            GitChange(place.name, _node(change), mode, content, is_removed), directory, self.git
        )

    def _content(self, change: StagedChange) -> bytes | None:
        if isinstance(change, SetMetadata):
            path = change.path.relative
            return find_content(self.root_fd, path, CONTENT_BYTES_MAX, self.resolution)
        if not isinstance(change, WriteFile):
            return None
        content = change.content
        if isinstance(content, GivenContent):
            return find_content(content.dir_fd, content.path, CONTENT_BYTES_MAX)
        if not isinstance(content, StoredContent):
            raise TypeError(f"content of the kind {type(content).__name__} is no command's")
        # No larger than `approval_staged_bytes_max`: `parking` kept it.
        return self.store.read(content.digest)


def _node(change: StagedChange) -> NodeKind:
    if isinstance(change, MakeLink):
        return NodeKind.LINK
    if isinstance(change, SetMetadata):
        is_directory = isinstance(change.old, Seen) and change.old.status.is_directory
        return NodeKind.DIRECTORY if is_directory else NodeKind.FILE
    is_directory = isinstance(change, MakeDirectory | RemoveDirectory)
    return NodeKind.DIRECTORY if is_directory else NodeKind.FILE
