"""The nouns of a set of changes: what is to change, from what, and what came of it.

A set is a sequence of phases, a phase a sequence of changes. All of them happen or none
does; the phases say in which order the names change, for whoever looks on meanwhile
(of a repository: objects first, references last).

Each change says what it believes to stand at its path. For one path a removal may be
given together with a creation: then the removal's belief counts, and the creation says
`Absent`. A new directory is given before what it is to hold; a directory that is removed
comes with a removal for everything in it, because each was judged by its own name.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from paddock.workspace.entries import ChangeableKind
from paddock.workspace.metadata import FileStatus
from paddock.workspace.names import WorkspacePath

# What stood there


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing stands there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The very entry that had this status: nobody replaced, rewrote or chmod-ed it since.

    Of a directory the identity and the permissions count; what it holds is another matter.
    """

    status: FileStatus
    version: str | None = None
    """Of a file whose content counts as well: its status says nothing to who sets it back."""


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A file with this content, or a link with this text; see `version_of`."""

    version: str


Old = Absent | Seen | AtVersion


# What is to stand there


class Opener(Protocol):
    """Opens new content when it is needed: thousands of files are not held open at once."""

    def open(self) -> int:
        """A descriptor to read from, ours to close."""
        ...


@dataclass(frozen=True, slots=True)
class OpenContent:
    """Content of an open file, from its first byte; it stays open and stays the caller's."""

    fd: int


@dataclass(frozen=True, slots=True)
class LazyContent:
    opener: Opener


@dataclass(frozen=True, slots=True)
class StoredContent:
    digest: str


@dataclass(frozen=True, slots=True)
class GivenContent:
    """A whole file that is given away: it becomes the new entry itself where it can.

    `path` lies below `dir_fd`, in a tree that nobody else uses any more and without a link on
    the way. Where the file cannot be moved (another file system, a second name, another
    owner, a default ACL at its new place) it is copied. It brings no attributes along.
    """

    dir_fd: int
    path: str


Content = OpenContent | LazyContent | StoredContent | GivenContent


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file is created, or replaces a file or a link.

    `mode`: nine bits; None for those of the replaced file, or of any new file. Owner,
    group and attributes of a replaced file survive; setuid, setgid and sticky do not.
    """

    path: WorkspacePath
    content: Content
    old: Old
    mode: int | None = None
    modified_ns: int | None = None
    keeps_old: bool = True
    """Whether what is replaced goes into the store; the text of a link always does."""
    overrides_read_only: bool = False
    """Whether a file that its permissions protect is replaced all the same: the kernel
    let a command do it, by the permissions of the directory."""


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """A directory is created, or replaces a file or a link. `mode`: nine bits, or None."""

    path: WorkspacePath
    old: Old
    mode: int | None = None
    modified_ns: int | None = None
    keeps_old: bool = True
    overrides_read_only: bool = False
    given: GivenContent | None = None
    """A directory that is given away whole: what it holds are the set's own changes below
    `path`, each given from in there, with the mode and time that it has."""


@dataclass(frozen=True, slots=True)
class MakeLink:
    """A symbolic link is created, or replaces a file or a link."""

    path: WorkspacePath
    text: str
    old: Old
    modified_ns: int | None = None
    keeps_old: bool = True
    overrides_read_only: bool = False


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A file or a link goes away."""

    path: WorkspacePath
    old: Seen | AtVersion
    keeps_old: bool = True
    overrides_read_only: bool = False


@dataclass(frozen=True, slots=True)
class RemoveDirectory:
    """A directory goes away, after everything in it. `old` None: whatever directory it is."""

    path: WorkspacePath
    old: Seen | None = None


@dataclass(frozen=True, slots=True)
class SetMetadata:
    """The nine permission bits, and of a file the modification time, change in place.

    setuid, setgid and sticky bits stay as they are.
    """

    path: WorkspacePath
    old: Seen | AtVersion
    mode: int | None = None
    modified_ns: int | None = None


Creation = WriteFile | MakeDirectory | MakeLink
Removal = RemoveFile | RemoveDirectory
StagedChange = Creation | Removal | SetMetadata
Phases = Sequence[Sequence[StagedChange]]


# What came of it


@dataclass(frozen=True, slots=True)
class EntryState:
    """What stood, or stands now, at a path."""

    kind: ChangeableKind
    mode: int
    """Nine bits."""
    size_bytes: int
    modified_ns: int
    version: str | None
    """Of a file's content or a link's text; None of a directory, and of a file that was
    neither kept nor expected at a version."""
    link_text: str | None = None


@dataclass(frozen=True, slots=True)
class ChangedPath:
    """One path of the set."""

    path: WorkspacePath
    before: EntryState | None
    after: EntryState | None
    kept: bool
    """Whether the file that stood there is in the store, under `before.version`."""


@dataclass(frozen=True, slots=True)
class ChangeReceipt:
    """The whole set happened, and is on the device."""

    changes: tuple[ChangedPath, ...]
    """By path, in byte order."""
    notes: tuple[str, ...] = ()


class Witness(Protocol):
    """Told of a set when everything is known and nothing has happened yet."""

    def will_change(self, rows: Sequence[ChangedPath]) -> None:
        """What is about to happen; where this raises, it does not."""
        ...


class Unwitnessed:
    """Nobody is told."""

    def will_change(self, rows: Sequence[ChangedPath]) -> None:
        """See `Witness`."""


UNWITNESSED: Witness = Unwitnessed()


class Condition(Protocol):
    """What has to hold for a set besides what its changes believe."""

    def directories(self) -> Sequence[WorkspacePath]:
        """Directories that are locked with those of the set: what it asks about changes there."""
        ...

    def verify(self) -> None:
        """Asked under the locks, before anything is built; where this raises, nothing happens.

        Raises: FileChangedError: it does not hold any more.
        """
        ...


class Unconditional:
    """Nothing else has to hold."""

    def directories(self) -> Sequence[WorkspacePath]:
        return ()

    def verify(self) -> None:
        """See `Condition`."""


UNCONDITIONAL: Condition = Unconditional()


class Objects(Protocol):
    """What a set of changes needs of the object store."""

    def put_file(self, fd: int, *, digest: str | None = None) -> str:
        """Keep an open file's content; its digest."""
        ...

    def put_bytes(self, content: bytes) -> str: ...

    def copy_to(self, digest: str, fd: int) -> None:
        """Write an object's content to an open file."""
        ...

    def sync(self) -> None:
        """Wait until everything that was put is on the device."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """While it lasts nothing is pruned."""
        ...
