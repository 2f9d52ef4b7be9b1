"""Judge changes in a git directory, under `git = "safe"` or `"read-only"`. Pure.

A repository is configuration: it names programs that git runs. So only files that an ordinary
operation writes are committed, by an allow-list, at any depth, in submodules, worktrees and bare
repositories. Configuration is never committed: a new repository lands without it, a new submodule
or worktree not at all, and a directory with configuration or hooks does not become a repository
(`GitDirectory.armed_by`). Files that later commands read as instructions pass only in git's format,
which also prevents confusion with another kind of file.

Sources: gitrepository-layout(5), git-rebase(1), git-bisect(1), and observed operations
(tests/unit/sandbox/git/test_git_operations.py).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.policy.settings import Git
from paddock.sandbox.git.index import is_harmless_index
from paddock.sandbox.git.objects import SHA1_BYTES
from paddock.text.show import quote

_OID: Final = r"(?:[0-9a-f]{40}|[0-9a-f]{64})"
_HEX: Final = r"[0-9a-f]"
_REF_NAME: Final = r"refs/[^\x00-\x20~^:?*\[\\\x7f]+"
_OPTION: Final = r"'?-[\w=:.-]*'?"
_OPTIONS: Final = rf"(?:{_OPTION})?(?:[ \n]+{_OPTION})*[ \n]*"
_QUOTED: Final = r"'(?:[^'\n]|'\\['!]')*'"

_UPSTREAM: Final = lazy_pattern(
    rb"(?m)^\[branch \"[^\"\\\n]+\"\]\n"
    rb"(?:\t(?:remote|merge|vscode-merge-base) = [^\"\\#;\n]+\n)*(?=\[|\Z)"
)

Check = Callable[[bytes, int], bool]


class Phase(IntEnum):
    """Order the changes of one git directory: targets are added first and removed last."""

    OBJECTS = 0
    STATE = 1
    REFS = 2
    HEADS = 3
    GONE_REFS = 4
    GONE_STATE = 5
    GONE_OBJECTS = 6


class Ordinary(Struct, frozen=True):
    name: re.Pattern[str]
    phase: Phase
    check: Check | None = None
    """Checks that git would write the content there; None where all bytes are harmless."""


def find_ordinary(name: str) -> Ordinary | None:
    # Threat: a new lock blocks the user's git, and a removed one lets two processes write at once.
    if name.endswith(".lock"):
        return None
    for kind in _FILES:
        if kind.name.fullmatch(name) is not None:
            return kind
    return None


def is_ordinary_directory(name: str) -> bool:
    return _DIRECTORIES.fullmatch(name) is not None


def differ_in_upstreams(before: bytes, after: bytes) -> bool:
    """Return True if the config files differ only in upstreams (`git switch`, `branch -d`)."""
    return _UPSTREAM.sub(b"", before) == _UPSTREAM.sub(b"", after)


def _lines(pattern: str) -> Check:
    compiled = lazy_pattern(pattern)

    def check(content: bytes, _hash_bytes: int) -> bool:
        lines = _text(content).removesuffix("\n").split("\n")
        return all(compiled.fullmatch(line) for line in lines if line)

    return check


def _whole(pattern: str) -> Check:
    compiled = lazy_pattern(pattern)

    def check(content: bytes, _hash_bytes: int) -> bool:
        return compiled.fullmatch(_text(content)) is not None

    return check


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


_TODO: Final = _lines(
    r"\s*(?:#.*"
    r"|(?:p|pick|r|reword|e|edit|s|squash|f|fixup|d|drop|l|label|t|reset|m|merge|u|update-ref)\b.*"
    r"|b|break|noop|revert\b.*)"
)
"""No `exec`: `git rebase --continue` would run it."""
_STRATEGIES: Final = r"(?:ort|recursive|resolve|octopus|ours|subtree)"
"""For any other name git runs a program `git-merge-NAME`."""
_KNOWN_STRATEGY: Final = _whole(rf"{_STRATEGIES}\n?")
_AUTHOR: Final = _lines(rf"GIT_AUTHOR_(?:NAME|EMAIL|DATE)={_QUOTED}")
"""Old versions of git evaluate it in a shell."""
_SEQUENCER_OPTIONS: Final = _lines(
    r"\[options\]|\s*(?:no-commit|edit|allow-empty|allow-empty-message|drop-redundant-commits"
    r"|keep-redundant-commits|signoff|record-origin|allow-ff|mainline|allow-rerere-auto"
    r"|default-msg-cleanup)\s*=\s*\w+"
    rf"|\s*strategy\s*=\s*{_STRATEGIES}|\s*strategy-option\s*=\s*[\w=:.-]+"
)

_MERGE_STATE: Final = (
    "allow_rerere_autoupdate amend autostash cdate_is_adate current-fixups done "
    "drop_redundant_commits end head-name ignore_date interactive keep_redundant_commits "
    "message message-fixup message-squash msgnum no-reschedule-failed-exec onto orig-head patch "
    "quiet refs-to-delete reschedule-failed-exec rewritten-list rewritten-pending signoff "
    "squash-onto stopped-sha update-refs verbose"
).split()
_APPLY_STATE: Final = (
    "abort-safety applying autostash dirtyindex final final-commit head-name info keep last "
    "messageid msg msg-clean next no_inbody_headers onto orig-head original-commit patch "
    "quiet quoted-cr rebasing rewritten scissors sign signoff threeway utf8 verbose "
    "allow_rerere_autoupdate committer-date-is-author-date"
).split()


def _kind(name: str, phase: Phase, check: Check | None = None) -> Ordinary:
    return Ordinary(lazy_pattern(name), phase, check)


def _one_of(names: Sequence[str]) -> str:
    return "(?:" + "|".join(re.escape(name) for name in names) + ")"


_PACK: Final = rf"pack-{_OID}\.(?:pack|idx|rev|bitmap|keep|mtimes|promisor)"

_FILES: Final = (
    _kind(rf"objects/{_HEX}{{2}}/(?:{_HEX}{{38}}|{_HEX}{{62}})", Phase.OBJECTS),
    _kind(rf"objects/pack/(?:{_PACK}|multi-pack-index(?:-{_OID}\.(?:bitmap|rev))?)", Phase.OBJECTS),
    # The content of git-lfs pointers, named by its digest.
    _kind(rf"lfs/objects/(?:{_HEX}{{2}}/){{2}}{_HEX}{{64}}", Phase.OBJECTS),
    _kind(rf"objects/info/commit-graphs?(?:/graph-{_OID}\.graph)?", Phase.OBJECTS),
    _kind(r"objects/info/commit-graphs/commit-graph-chain", Phase.OBJECTS, _lines(rf"{_OID}")),
    _kind(r"objects/info/packs", Phase.STATE, _lines(r"P pack-\w+\.pack")),
    _kind(r"info/refs", Phase.STATE, _lines(rf"{_OID}\t{_REF_NAME}(?:\^\{{\}})?")),
    _kind(
        r"index|sharedindex\.[0-9a-f]+|rebase-apply/patch-merge-index",
        Phase.STATE,
        is_harmless_index,
    ),
    _kind(
        r"logs/(?:HEAD|refs/.+)",
        Phase.STATE,
        _lines(rf"{_OID} {_OID} [^<\n]*<[^>\n]*> \d+ [+-]\d{{4}}(?:\t.*)?"),
    ),
    _kind(r"refs/.+", Phase.REFS, _whole(rf"(?:{_OID}|ref: {_REF_NAME})\n?")),
    _kind(r"packed-refs", Phase.REFS, _lines(rf"#.*|{_OID} {_REF_NAME}|\^{_OID}")),
    _kind(r"reftable/(?:tables\.list|0x\w{12}-0x\w{12}-\w{8}\.(?:ref|log))", Phase.REFS),
    _kind(r"shallow", Phase.REFS, _lines(_OID)),
    _kind(r"FETCH_HEAD", Phase.HEADS, _lines(rf"{_OID}\t(?:not-for-merge)?\t.*")),
    _kind(
        r"HEAD|[A-Z][A-Z_]*_HEAD|AUTO_MERGE|MERGE_AUTOSTASH|NOTES_MERGE_(?:REF|PARTIAL)",
        Phase.HEADS,
        _lines(rf"{_OID}|ref: {_REF_NAME}"),
    ),
    # Text that is displayed, or becomes a commit's message.
    _kind(r"(?:COMMIT|TAG|NOTES|MERGE)_EDITMSG|(?:MERGE|SQUASH)_MSG|gc\.log", Phase.STATE),
    _kind(r"MERGE_MODE", Phase.STATE, _whole(r"(?:no-ff)?\n?")),
    _kind(r"MERGE_RR", Phase.STATE),
    _kind(r"rr-cache/[0-9a-f]+/(?:pre|post|this)image(?:\.\d+)?", Phase.STATE),
    _kind(rf"NOTES_MERGE_WORKTREE/{_OID}", Phase.STATE),
    # A bisection. Old versions evaluate the quoted names in a shell.
    _kind(r"BISECT_NAMES", Phase.STATE, _whole(rf"(?:\s*{_QUOTED})*\s*")),
    _kind(r"BISECT_(?:START|TERMS|EXPECTED_REV)", Phase.STATE, _lines(r"\w[\w./-]*")),
    _kind(r"BISECT_(?:LOG|ANCESTORS_OK|FIRST_PARENT)", Phase.STATE),
    # Rebase, am, cherry-pick, revert.
    _kind(r"rebase-merge/git-rebase-todo(?:\.backup)?|sequencer/(?:todo|done)", Phase.STATE, _TODO),
    _kind(r"rebase-merge/strategy", Phase.STATE, _KNOWN_STRATEGY),
    _kind(r"rebase-merge/strategy_opts|rebase-apply/apply-opt", Phase.STATE, _whole(_OPTIONS)),
    _kind(r"rebase-(?:merge|apply)/author-script", Phase.STATE, _AUTHOR),
    _kind(rf"rebase-merge/{_one_of(_MERGE_STATE)}", Phase.STATE),
    _kind(rf"rebase-merge/rewritten/{_OID}", Phase.STATE),
    _kind(rf"rebase-apply/(?:{_one_of(_APPLY_STATE)}|\d{{4,}})", Phase.STATE),
    _kind(r"sequencer/opts", Phase.STATE, _SEQUENCER_OPTIONS),
    _kind(r"sequencer/(?:head|abort-safety)", Phase.STATE),
)

_DIRECTORIES: Final = lazy_pattern(
    rf"objects(?:/(?:{_HEX}{{2}}|pack|info|info/commit-graphs))?"
    r"|(?:logs|logs/refs|refs)(?:/.+)?|reftable|info"
    rf"|lfs(?:/(?:tmp|objects(?:/{_HEX}{{2}}){{0,2}}))?"
    r"|rebase-merge(?:/rewritten)?|rebase-apply|sequencer"
    r"|rr-cache(?:/[0-9a-f]+)?|NOTES_MERGE_WORKTREE"
)


CONTENT_BYTES_MAX: Final = 16_000_000
"""A checked file (a log, packed refs) with more bytes is refused without reading it."""

_GIT: Final = ".git"
_INSIDE: Final = ("modules", "worktrees")
_CONTROLS: Final = lazy_pattern("[\x00-\x1f\x7f\ud800-\udfff]")
_CODE: Final = (
    (lazy_pattern(r"hooks(?:/.*)?"), "a hook is a program that git runs"),
    (lazy_pattern(r"config(?:\..*)?"), "configuration names programs that git runs"),
    (lazy_pattern(r"commondir|gitdir"), "it leads git to another repository's configuration"),
    (lazy_pattern(r"info/attributes"), "attributes choose filters, which are programs"),
    (lazy_pattern(r"objects/info/(?:http-)?alternates"), "it leads git to objects elsewhere"),
    (lazy_pattern(r"(?:remotes|branches)(?:/.*)?"), "it names programs that fetch runs"),
)
ARMING_NAMES: Final = (
    *("config", "config.worktree", "hooks", "commondir", "gitdir", "info/attributes"),
    *("objects/info/alternates", "objects/info/http-alternates", "remotes", "branches"),
    *("modules", "worktrees", "index", "rebase-merge", "rebase-apply", "sequencer"),
    *("BISECT_NAMES",),
)
"""Names that are refused or checked in a repository, but land in any other directory."""
BARE_NAMES: Final = ("HEAD", "objects", "refs", "commondir")

_TEMPLATE: Final = lazy_pattern(
    r"config|description|branches|hooks(?:/[\w-]+\.sample)?|info/exclude"
)
"""Files that git puts into a new repository, but does not need."""
_LITTER: Final = lazy_pattern(
    r"objects/(?:.+/)?\.?tmp[-_].+|gc\.pid|fsmonitor--daemon(?:\.ipc|/.*)?"
    r"|lfs/(?:tmp|cache|incomplete)(?:/.*)?"
)
"""Leftovers of a killed git that nothing in the repository refers to."""

_OF_ALL: Final = lazy_pattern(
    r"\.|objects(?:/.*)?|packed-refs|shallow|gc\.log|rr-cache(?:/.*)?|reftable(?:/.*)?"
    r"|info(?:/(?:refs|packs))?|logs|logs/refs(?:/.*)?|refs(?:/.*)?|worktrees"
)
"""Shared by the worktrees of a repository, according to gitrepository-layout(5)."""
_OF_ONE: Final = lazy_pattern(r"(?:logs/)?refs/(?:bisect|worktree|rewritten)(?:/.*)?")


class NodeKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    FIFO = "FIFO"
    SOCKET = "socket"
    DEVICE = "device"


SPECIAL_KINDS: Final = (NodeKind.FIFO, NodeKind.SOCKET, NodeKind.DEVICE)


class GitDirectory(Struct, frozen=True):
    """One git directory; `nested` ones existed in it *before* the command (`modules/lib`)."""

    path: str
    nested: frozenset[str] = frozenset()
    armed_by: str = ""
    """In a directory that would become a repository: the existing entry, workspace-relative, by
    which git could run code."""
    hash_bytes: int = SHA1_BYTES
    is_new: bool = False
    own: str | None = None
    """If it is outside the workspace: the directory in it that belongs to this work tree alone
    (`worktrees/NAME`), empty for the main work tree."""
    folder: str = ""


class GitChange(Struct, frozen=True):
    name: str
    kind: NodeKind
    mode: int = 0o644
    """The new permission bits with setuid, setgid and sticky."""
    content: bytes | None = None
    """Set where `wants_content`; None if larger than `CONTENT_BYTES_MAX`."""
    is_removed: bool = False


class GitRuling(Struct, frozen=True):
    """The verdict on one change; `is_aside`: the rest of its unit may land without it."""

    is_allowed: bool
    reason: str = ""
    is_aside: bool = False
    phase: Phase = Phase.STATE


class GitPlace(Struct, frozen=True):
    directory: str
    name: str


def find_git_place(path: str, bare: Iterable[str] = ()) -> GitPlace | None:
    parts = path.split("/")
    for position, part in enumerate(parts):
        if part.casefold() == _GIT:
            return _place(parts, position + 1)
    for directory in sorted(bare):
        if directory == ".":
            # The workspace is a work tree as well: all other files are the user's.
            if _is_git_name(parts[0]):
                return GitPlace(".", path)
            continue
        depth = directory.count("/") + 1
        if parts[:depth] == directory.split("/"):
            return _place(parts, depth)
    return None


def bare_paths(directories: Iterable[GitDirectory]) -> list[str]:
    paths = (each.path for each in directories)
    return [path for path in paths if path.rpartition("/")[2].casefold() != _GIT]


def looks_bare(names: Iterable[str]) -> bool:
    """Return True if git(1) may take it for a repository; `commondir` may lead to the rest."""
    found = frozenset(names)
    return "HEAD" in found and ("commondir" in found or found >= {"objects", "refs"})


def wants_content(name: str, nested: Iterable[str] = ()) -> bool:
    kind = find_ordinary(_inner(name, nested))
    return kind is not None and kind.check is not None


def judge_git(change: GitChange, directory: GitDirectory, preset: Git) -> GitRuling:
    ruling = _judge_by_name(change, directory, preset)
    owner = "" if directory.own is None else _find_owner(change.name, directory.own)
    # A change to another work tree's part would be incomplete, and is not this agent's to make.
    return GitRuling(False, f"it is {owner}") if owner and ruling.is_allowed else ruling


def _find_owner(name: str, own: str) -> str:
    """Return the owner of a name in a shared directory; empty if this work tree may change it."""
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
        why = f"with the existing {quote(directory.armed_by)} it would become a repository"
        return GitRuling(False, why)
    own = directory.path.rpartition("/")[2]
    is_misspelt = own != _GIT and own.casefold() == _GIT
    is_plain = change.kind is NodeKind.DIRECTORY and change.mode & 0o722 == 0o700
    if change.name == "." and is_plain and not change.is_removed and not is_misspelt:
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


def _is_git_name(name: str) -> bool:
    own = name.removesuffix(".lock")
    return any(
        find_ordinary(each) is not None
        or is_ordinary_directory(each)
        or each in _INSIDE
        or any(code.fullmatch(each) for code, _ in _CODE)
        for each in (own, own.lower(), own.upper())
    )


def _inner(name: str, nested: Iterable[str]) -> str:
    """Return the name in the innermost git directory; empty if that one is not known.

    Threat: the end of a submodule's name is ambiguous (`modules/a/refs/config`): only submodules
    that existed before count.
    """
    if name.partition("/")[0] not in _INSIDE:
        return name
    holding = [each for each in nested if name == each or name.startswith(each + "/")]
    if not holding:
        return ""
    return name[len(max(holding, key=len)) + 1 :]


def _judge_other(inner: str, directory: GitDirectory) -> GitRuling:
    is_aside = _LITTER.fullmatch(inner) is not None
    if directory.is_new:
        is_aside |= _TEMPLATE.fullmatch(inner) is not None
    why = f"no ordinary git operation writes it: {quote(inner)}"
    if inner.endswith(".lock"):
        why = "a lock of git, left over or in use by another process"
    why = next((code for name, code in _CODE if name.fullmatch(inner)), why)
    return GitRuling(False, why, is_aside)


def _judge_directory(inner: str, change: GitChange, directory: GitDirectory) -> GitRuling:
    if not is_ordinary_directory(inner):
        return _judge_other(inner, directory)
    if change.is_removed and inner in ("refs", "objects"):
        return GitRuling(False, "without it the directory is not a repository")
    phase = Phase.OBJECTS if inner.startswith("objects") else Phase.STATE
    return GitRuling(True, phase=_gone(phase) if change.is_removed else phase)


def _judge_file(change: GitChange, kind: Ordinary, hash_bytes: int) -> GitRuling:
    if change.is_removed:
        if change.name == "HEAD":
            return GitRuling(False, "without it the directory is not a repository")
        if change.kind in SPECIAL_KINDS:
            return GitRuling(False, "a command may not remove a FIFO, socket or device")
        return GitRuling(True, phase=_gone(kind.phase))
    if change.kind is not NodeKind.FILE:
        # Threat: through a symlink git writes elsewhere.
        return GitRuling(False, f"a {change.kind.value} where git has a file")
    if change.mode & 0o7111:
        return GitRuling(False, "git does not create executable files here")
    if kind.check is None:
        return GitRuling(True, phase=kind.phase)
    if change.content is None or len(change.content) > CONTENT_BYTES_MAX:
        return GitRuling(False, f"more than {CONTENT_BYTES_MAX} bytes")
    if not kind.check(change.content, hash_bytes):
        return GitRuling(False, "git does not write such content there")
    return GitRuling(True, phase=kind.phase)


def _gone(phase: Phase) -> Phase:
    if phase is Phase.OBJECTS:
        return Phase.GONE_OBJECTS
    return Phase.GONE_STATE if phase is Phase.STATE else Phase.GONE_REFS
