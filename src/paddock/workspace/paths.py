"""Canonical paths inside one workspace, as policy judges them, and the checks of path texts."""

from enum import Enum
from typing import Final, Literal, NoReturn, TypeAlias

from msgspec import Struct, StructMeta

from paddock import limits
from paddock.errors import InvalidPathError, PathTraversalError
from paddock.pattern import lazy_pattern
from paddock.text.show import quote


class _Closed(StructMeta):
    def __call__(self, *_: object) -> NoReturn:
        raise TypeError("only a workspace creates a WorkspacePath: use its resolve methods")


class WorkspacePath(Struct, frozen=True, metaclass=_Closed):
    """A canonical path, created only by its workspace; `.` is the root.

    A name read from disk may hold lone surrogates.
    """

    relative: str

    @property
    def parts(self) -> tuple[str, ...]:
        return () if self.relative == "." else tuple(self.relative.split("/"))

    @property
    def name(self) -> str:
        return self.relative.rpartition("/")[2]

    @property
    def parent(self) -> "WorkspacePath":
        return unchecked_path(self.relative.rpartition("/")[0] or ".")

    @property
    def ancestors(self) -> "tuple[WorkspacePath, ...]":
        parts = self.parts
        return tuple(join_parts(parts[:depth]) for depth in range(1, len(parts)))

    @property
    def is_root(self) -> bool:
        return self.relative == "."

    @property
    def in_bytes(self) -> bytes:
        return self.relative.encode("utf-8", "surrogateescape")

    @property
    def shown(self) -> str:
        return quote(self.relative)

    def __str__(self) -> str:
        return self.relative


def unchecked_path(relative: str) -> WorkspacePath:
    # The caller has proved that the text is canonical.
    return StructMeta.__call__(WorkspacePath, relative)


ROOT: Final = unchecked_path(".")


def join_parts(parts: tuple[str, ...] | list[str]) -> WorkspacePath:
    return unchecked_path("/".join(parts) or ".")


def child_of(directory: WorkspacePath, name: str) -> WorkspacePath:
    return unchecked_path(name if directory.is_root else f"{directory.relative}/{name}")


class ReadPath(Struct, frozen=True):
    """A path to read, perhaps missing: as asked, and with links resolved. Policy judges both."""

    asked: WorkspacePath
    real: WorkspacePath


class WritePath(Struct, frozen=True):
    """A path to write: as asked, and with a final link resolved. Policy judges both."""

    asked: WorkspacePath
    real: WorkspacePath
    exists: bool


class EntryPath(Struct, frozen=True):
    """A directory entry to move or delete: a link itself, not its target."""

    path: WorkspacePath
    exists: bool


TEMPORARY_PREFIX: Final = ".paddock-"
OF_SET: Final = ".set"
_TEMPORARY: Final = lazy_pattern(r"\.paddock-[0-9a-f]{32}\.(?:tmp|at|set)")
TEMPORARY_GLOBS: Final = tuple(
    f"{TEMPORARY_PREFIX}{'[0-9a-f]' * 32}{end}" for end in (".tmp", ".at", OF_SET)
)


def is_temporary_name(name: str) -> bool:
    # Case-insensitive, for file systems that fold case. Hidden from tools, refused as a path.
    return name[:9].lower() == TEMPORARY_PREFIX and _TEMPORARY.fullmatch(name.lower()) is not None


def set_name(token: str, number: int) -> str:
    return f"{TEMPORARY_PREFIX}{token}{number:08x}{OF_SET}"


# A path's text is relative to the root, or absolute inside it by either of the root's names. `..`
# is kept, because after a link it cannot be resolved as text. Nothing is percent-decoded,
# case-folded or normalised: `%2e%2e` is a file name.

_UNUSABLE: Final = lazy_pattern("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN_CHARS_MAX: Final = 250  # below all limits: of a name, of a path, of depth


class AskedPath(Struct, frozen=True):
    text: str
    parts: tuple[str, ...]
    as_directory: bool


def is_plain(text: str) -> bool:
    # May return False for a canonical text, but never True for another.
    return (
        text.isprintable()
        and 0 < len(text) <= _PLAIN_CHARS_MAX
        and text.isascii()
        and text[0] not in "./"
        and text[-1] != "/"
        and "/." not in text
        and "//" not in text
    )


def parse_asked(text: str, root_names: tuple[str, ...]) -> AskedPath:
    if not text:
        raise InvalidPathError("the path is empty", hint="use . for the workspace root")
    if _UNUSABLE.search(text):
        raise InvalidPathError(
            f"path {quote(text)} has a control character or a lone surrogate",
            hint="use a path of whole characters without line breaks, tabs and the like",
        )
    if len(text.encode()) >= limits.path_bytes_max:
        raise InvalidPathError(
            f"path {quote(text)} has {limits.path_bytes_max} bytes or more",
            hint="use a shorter path",
        )
    parts = components(text)
    if text.startswith("/"):
        parts = inside_root(text, parts, root_names)
    check_names(text, parts)
    return AskedPath(
        text, parts, as_directory=text.endswith(("/", "/.", "/..")) or text in (".", "..")
    )


def components(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split("/") if part not in ("", "."))


def inside_root(text: str, parts: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    # Threat: a sibling whose name begins like the root (/root-evil beside /root) would pass a
    # prefix comparison. Whole components are compared, and nothing is resolved before.
    for root in roots:
        base = components(root)
        if parts[: len(base)] == base:
            return parts[len(base) :]
    raise escapes_root(text)


def check_names(text: str, parts: tuple[str, ...]) -> None:
    if len(parts) > limits.path_depth_max:
        raise InvalidPathError(
            f"path {quote(text)} is {len(parts)} components deep, over {limits.path_depth_max}",
            hint="use a path with fewer directories",
        )
    for part in parts:
        if len(part.encode()) > limits.name_bytes_max:
            raise InvalidPathError(
                f"name {quote(part)} is over {limits.name_bytes_max} bytes",
                hint="use a shorter name",
            )
        if is_temporary_name(part):
            raise InvalidPathError(
                f"name {quote(part)} is reserved for Paddock's temporary files",
                hint="use another name",
            )


def check_link_text(asked: str, target: str) -> None:
    if _UNUSABLE.search(target):
        raise InvalidPathError(
            f"path {quote(asked)} passes a link to {quote(target)}",
            hint="that is not a valid path; use one that does not pass the link",
        )


def escapes_root(text: str) -> PathTraversalError:
    return PathTraversalError(
        f"path escapes root: {quote(text)}", hint="use a path inside the workspace"
    )


class EntryKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    DANGLING_LINK = "dangling link"
    LINK_OUT = "link out"
    SPECIAL = "special"


ChangeableKind: TypeAlias = Literal[EntryKind.FILE, EntryKind.DIRECTORY, EntryKind.LINK]


class EntryVersion(Struct, frozen=True):
    """An entry's kind and the version of its content or link text (a word for a directory).

    Threat: a file and a link with the same bytes have the same version but are different.
    """

    kind: ChangeableKind
    version: str

    def __str__(self) -> str:
        return f"link {self.version}" if self.kind is EntryKind.LINK else self.version
