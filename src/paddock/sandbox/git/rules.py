"""What of a git directory a command may change, under `git = "safe"` or `"read-only"`. Pure.

A repository is configuration: it names programs that git runs. So a command commits
what an ordinary operation writes (`git_names`) and nothing by which a repository can
make a later git command run code. The rules hold for `.git` directories at any depth,
for submodules and worktrees that a repository had before, and for bare repositories.

Configuration is never committed. So a repository that a command makes comes without
any (`git init` works, a clone forgets its origin), and a submodule or worktree that a
command adds does not come at all: those belong to the user, outside.

For the same reason a directory that holds configuration, hooks or the like does not
become a repository: neither HEAD nor `refs` lands in it (`GitDirectory.armed_by`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from paddock.policy.settings import Git
from paddock.sandbox.git.entries import SHA1_BYTES
from paddock.sandbox.git.names import Ordinary, Phase, find_ordinary, is_ordinary_directory
from paddock.text.show import quote

CONTENT_BYTES_MAX: Final = 16_000_000
"""A checked file (a log, packed refs) of more bytes is refused: it is not read whole."""

_GIT: Final = ".git"
_INSIDE: Final = ("modules", "worktrees")
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_CODE: Final = (
    (re.compile(r"hooks(?:/.*)?"), "a hook is a program that git runs"),
    (re.compile(r"config(?:\..*)?"), "configuration names programs that git runs"),
    (re.compile(r"commondir|gitdir"), "it leads git to another repository's configuration"),
    (re.compile(r"info/attributes"), "attributes choose filters, which are programs"),
    (re.compile(r"objects/info/(?:http-)?alternates"), "it leads git to objects elsewhere"),
    (re.compile(r"(?:remotes|branches)(?:/.*)?"), "it names what fetch runs"),
)
ARMING_NAMES: Final = (
    *("config", "config.worktree", "hooks", "commondir", "gitdir", "info/attributes"),
    *("objects/info/alternates", "objects/info/http-alternates", "remotes", "branches"),
    *("modules", "worktrees", "index", "rebase-merge", "rebase-apply", "sequencer"),
    *("BISECT_NAMES",),
)
"""What is refused or looked into in a repository, and lands anywhere else."""
BARE_NAMES: Final = ("HEAD", "objects", "refs", "commondir")
"""What `looks_bare` goes by."""

_TEMPLATE: Final = re.compile(r"config|description|branches|hooks(?:/[\w-]+\.sample)?|info/exclude")
"""What git puts into a repository that it makes, and does not miss."""
_LITTER: Final = re.compile(
    r"objects/(?:.+/)?\.?tmp[-_].+|gc\.pid|fsmonitor--daemon(?:\.ipc|/.*)?"
    r"|lfs/(?:tmp|cache|incomplete)(?:/.*)?"
)
"""What a git that was ended leaves behind, and nothing in the repository leads to."""

_OF_ALL: Final = re.compile(
    r"\.|objects(?:/.*)?|packed-refs|shallow|gc\.log|rr-cache(?:/.*)?|reftable(?:/.*)?"
    r"|info(?:/(?:refs|packs))?|logs|logs/refs(?:/.*)?|refs(?:/.*)?|worktrees"
)
"""What the worktrees of a repository share, as gitrepository-layout(5) has it."""
_OF_ONE: Final = re.compile(r"(?:logs/)?refs/(?:bisect|worktree|rewritten)(?:/.*)?")
_LOCKED: Final = "a lock of git that is left over, or another's"
_NOT_ORDINARY: Final = "no ordinary git operation writes it"


class NodeKind(Enum):
    """What stands under a name."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class GitDirectory:
    """One git directory of the workspace.

    `nested` are the git directories of submodules and worktrees inside it that stood
    there *before* the command, relative to it (`modules/lib`, `worktrees/fix`).
    """

    path: str
    """Workspace-relative; `.` where the workspace itself is one."""
    nested: frozenset[str] = frozenset()
    armed_by: str = ""
    """Workspace-relative: what stood there, by which git could run code, in what was no
    repository yet and would become one."""
    hash_bytes: int = SHA1_BYTES
    """The size of an object's name in it."""
    is_new: bool = False
    """Whether the command made it."""
    own: str | None = None
    """Of one that stands outside of the workspace: what of it is this work tree's alone
    (`worktrees/NAME`), empty for the main work tree."""
    folder: str = ""
    """What the workspace is of its work tree; empty for all of it."""


@dataclass(frozen=True, slots=True)
class GitChange:
    """One change in a git directory. `name` is relative to it; `.` is itself."""

    name: str
    kind: NodeKind
    mode: int = 0o644
    """Permission bits with setuid, setgid and sticky, as it is to stand."""
    content: bytes | None = None
    """Needed where `wants_content`; None where it is larger than `CONTENT_BYTES_MAX`."""
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class GitRuling:
    """Whether one change lands, and if not, why.

    `is_aside` says of what is refused that the repository is whole without it: the rest
    of its unit may land.
    """

    is_allowed: bool
    reason: str = ""
    is_aside: bool = False
    phase: Phase = Phase.STATE


@dataclass(frozen=True, slots=True)
class GitPlace:
    """Where a workspace path lies in a git directory."""

    directory: str
    """Workspace-relative."""
    name: str
    """In it; `.` for itself."""


def find_git_place(path: str, bare: Iterable[str] = ()) -> GitPlace | None:
    """The outermost git directory that `path` is, or lies in; None for the work tree.

    Without regard to case: a file system may not know the difference. `bare` are the
    bare repositories of the workspace, workspace-relative.
    """
    parts = path.split("/")
    for position, part in enumerate(parts):
        if part.casefold() == _GIT:
            return _place(parts, position + 1)
    for directory in sorted(bare):
        if directory == ".":
            # The workspace is a work tree as well: all else in it is the user's.
            if _is_gits(parts[0]):
                return GitPlace(".", path)
            continue
        depth = directory.count("/") + 1
        if parts[:depth] == directory.split("/"):
            return _place(parts, depth)
    return None


def bare_paths(directories: Iterable[GitDirectory]) -> list[str]:
    """Those of git directories that have no `.git` in their name."""
    paths = (each.path for each in directories)
    return [path for path in paths if path.rpartition("/")[2].casefold() != _GIT]


def looks_bare(names: Iterable[str]) -> bool:
    """Whether a directory with these entries is taken for a repository by git(1).

    Where `commondir` leads is not asked: objects and refs may stand there.
    """
    found = frozenset(names)
    return "HEAD" in found and ("commondir" in found or found >= {"objects", "refs"})


def wants_content(name: str, nested: Iterable[str] = ()) -> bool:
    """Whether `judge_git` has to see what stands in the file."""
    kind = find_ordinary(_inner(name, nested))
    return kind is not None and kind.check is not None


def judge_git(change: GitChange, directory: GitDirectory, preset: Git) -> GitRuling:
    """Judge one change; `none` has no opinion and is not asked."""
    ruling = _judge_by_name(change, directory, preset)
    owner = "" if directory.own is None else _find_owner(change.name, directory.own)
    # What was done to another work tree's part is half of something, and not this agent's.
    return GitRuling(False, f"it is {owner}") if owner and ruling.is_allowed else ruling


def _find_owner(name: str, own: str) -> str:
    """Whose a name in a shared git directory is; empty for one that this work tree may change."""
    if own and (name == own or name.startswith(own + "/")):
        return ""
    if name.startswith("worktrees/"):
        return "another worktree's"
    if own and (_OF_ALL.fullmatch(name) is None or _OF_ONE.fullmatch(name) is not None):
        return "the main work tree's"
    return ""


def _judge_by_name(change: GitChange, directory: GitDirectory, preset: Git) -> GitRuling:
    if preset != "safe":
        return GitRuling(False, f'git = "{preset}": nothing in .git is written by commands')
    if directory.armed_by:
        why = f"with {quote(directory.armed_by)}, which stood there, it would become a repository"
        return GitRuling(False, why)
    own = directory.path.rpartition("/")[2]
    is_misspelt = own != _GIT and own.casefold() == _GIT
    if change.name == "." and _is_plain_directory(change) and not is_misspelt:
        return GitRuling(True, phase=Phase.OBJECTS)
    if change.name == "." or is_misspelt:
        return GitRuling(False, "the git directory itself, or a link to another")
    inner = _inner(change.name, directory.nested)
    if not inner:
        return GitRuling(False, "a submodule's or worktree's git directory, or a new one")
    if _CONTROLS.search(change.name):
        return GitRuling(False, "a name with control characters")
    if change.kind is NodeKind.DIRECTORY:
        return _judge_directory(inner, change, directory)
    kind = find_ordinary(inner)
    if kind is None:
        return _judge_other(inner, directory)
    return _judge_file(change, kind, directory.hash_bytes)


def _place(parts: list[str], depth: int) -> GitPlace:
    return GitPlace("/".join(parts[:depth]), "/".join(parts[depth:]) or ".")


def _is_gits(name: str) -> bool:
    """Whether an entry of a git directory with that name, in any case, means something to git."""
    own = name.removesuffix(".lock")
    return any(
        find_ordinary(each) is not None
        or is_ordinary_directory(each)
        or each in _INSIDE
        or any(code.fullmatch(each) for code, _ in _CODE)
        for each in (own, own.lower(), own.upper())
    )


def _inner(name: str, nested: Iterable[str]) -> str:
    """The name in the innermost git directory; empty where that one is not known.

    Threat: where a submodule's name ends cannot be seen (`modules/a/refs/config` is
    a ref of `a`, or the configuration of `a/refs`). Only those that stood there count.
    """
    if name.partition("/")[0] not in _INSIDE:
        return name
    holding = [each for each in nested if name == each or name.startswith(each + "/")]
    if not holding:
        return ""
    return name[len(max(holding, key=len)) + 1 :]


def _is_plain_directory(change: GitChange) -> bool:
    """A directory that only its owner writes, as git makes it."""
    is_private = change.mode & 0o722 == 0o700
    return change.kind is NodeKind.DIRECTORY and is_private and not change.is_removed


def _judge_other(inner: str, directory: GitDirectory) -> GitRuling:
    is_aside = _LITTER.fullmatch(inner) is not None
    if directory.is_new:
        is_aside |= _TEMPLATE.fullmatch(inner) is not None
    return GitRuling(False, _why_not(inner), is_aside)


def _judge_directory(inner: str, change: GitChange, directory: GitDirectory) -> GitRuling:
    if not is_ordinary_directory(inner):
        return _judge_other(inner, directory)
    if change.is_removed and inner in ("refs", "objects"):
        return GitRuling(False, "without it the directory is no repository")
    phase = Phase.OBJECTS if inner.startswith("objects") else Phase.STATE
    return GitRuling(True, phase=_gone(phase) if change.is_removed else phase)


def _judge_file(change: GitChange, kind: Ordinary, hash_bytes: int) -> GitRuling:
    if change.is_removed:
        if change.name == "HEAD":
            return GitRuling(False, "without it the directory is no repository")
        if change.kind is NodeKind.OTHER:
            why = "a FIFO, socket or device, which no command takes away"
            return GitRuling(False, why)
        return GitRuling(True, phase=_gone(kind.phase))
    if change.kind is not NodeKind.FILE:
        # Threat: a link writes elsewhere whatever git writes here.
        return GitRuling(False, f"a {change.kind.value} where git has a file")
    if change.mode & 0o7111:
        return GitRuling(False, "git makes no executable file here")
    if kind.check is None:
        return GitRuling(True, phase=kind.phase)
    if change.content is None or len(change.content) > CONTENT_BYTES_MAX:
        return GitRuling(False, f"more than {CONTENT_BYTES_MAX} bytes")
    if not kind.check(change.content, hash_bytes):
        return GitRuling(False, "its content is not what git writes there")
    return GitRuling(True, phase=kind.phase)


def _gone(phase: Phase) -> Phase:
    if phase is Phase.OBJECTS:
        return Phase.GONE_OBJECTS
    return Phase.GONE_STATE if phase is Phase.STATE else Phase.GONE_REFS


def _why_not(inner: str) -> str:
    for name, why in _CODE:
        if name.fullmatch(inner) is not None:
            return why
    return _LOCKED if inner.endswith(".lock") else f"{_NOT_ORDINARY}: {quote(inner)}"
