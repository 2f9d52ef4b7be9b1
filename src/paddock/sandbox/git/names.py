"""What ordinary git operations write in a git directory: names, and what may stand in them. Pure.

An allow-list, because what makes git run code is an open set: hooks, configuration in
all its places, `commondir`, attributes, alternates, legacy remotes, and what the next
release adds. Sources: gitrepository-layout(5), git-rebase(1), git-bisect(1), and what
these operations were seen to write (tests/unit/sandbox/git/test_git_operations.py).

Files that later commands read as instructions are let through only in the form that
git itself gives them: a planned rebase has no `exec`, a ref is an object's name, an
index has paths of the work tree (`git_index`). The form also keeps such a file from
being taken for another kind of file, where a directory of one repository is passed off
as a repository of its own.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from paddock.sandbox.git.index import is_harmless_index

_OID: Final = r"(?:[0-9a-f]{40}|[0-9a-f]{64})"
_HEX: Final = r"[0-9a-f]"
_REF_NAME: Final = r"refs/[^\x00-\x20~^:?*\[\\\x7f]+"
_OPTION: Final = r"'?-[\w=:.-]*'?"
_OPTIONS: Final = rf"(?:{_OPTION})?(?:[ \n]+{_OPTION})*[ \n]*"
_QUOTED: Final = r"'(?:[^'\n]|'\\['!]')*'"

_UPSTREAM: Final = re.compile(
    rb"(?m)^\[branch \"[^\"\\\n]+\"\]\n"
    rb"(?:\t(?:remote|merge|vscode-merge-base) = [^\"\\#;\n]+\n)*(?=\[|\Z)"
)

Check = Callable[[bytes, int], bool]
"""Of a content, in a repository whose objects' names have that many bytes."""


class Phase(IntEnum):
    """The order in which the changes of one git directory land, so that a cut leaves it sound.

    What is pointed to comes before what points, and goes after it.
    """

    OBJECTS = 0
    STATE = 1
    """Logs, messages, the index, state of a rebase."""
    REFS = 2
    HEADS = 3
    """HEAD and its siblings: the last word on where the repository stands."""
    GONE_REFS = 4
    """Loose refs that `packed-refs` holds now, deleted branches."""
    GONE_STATE = 5
    GONE_OBJECTS = 6


@dataclass(frozen=True, slots=True)
class Ordinary:
    """One kind of file, by its name from the git directory on."""

    name: re.Pattern[str]
    phase: Phase
    check: Check | None = None
    """Whether a content is what git writes there; None where any bytes are harmless."""


def find_ordinary(name: str) -> Ordinary | None:
    """The kind of file that `name` is; None where no ordinary operation writes it."""
    # Threat: a lock that stays keeps the user's own git from working, and one that goes
    # lets two write at once.
    if name.endswith(".lock"):
        return None
    for kind in _FILES:
        if kind.name.fullmatch(name) is not None:
            return kind
    return None


def is_ordinary_directory(name: str) -> bool:
    """Whether git makes and removes directories of that name on the way."""
    return _DIRECTORIES.fullmatch(name) is not None


def differ_in_upstreams(before: bytes, after: bytes) -> bool:
    """Whether two configurations are the same but for the upstreams of branches.

    Git writes these on the way, for `git switch NAME` and `git branch -d`.
    """
    return _UPSTREAM.sub(b"", before) == _UPSTREAM.sub(b"", after)


def _lines(pattern: str) -> Check:
    """Every line of the content, and there may be none, has this form."""
    compiled = re.compile(pattern)

    def check(content: bytes, _hash_bytes: int) -> bool:
        lines = _text(content).removesuffix("\n").split("\n")
        return all(compiled.fullmatch(line) for line in lines if line)

    return check


def _whole(pattern: str) -> Check:
    compiled = re.compile(pattern)

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
"""Any other name is a program `git-merge-NAME`."""
_KNOWN_STRATEGY: Final = _whole(rf"{_STRATEGIES}\n?")
_AUTHOR: Final = _lines(rf"GIT_AUTHOR_(?:NAME|EMAIL|DATE)={_QUOTED}")
"""Old versions of git let a shell read it."""
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
    return Ordinary(re.compile(name), phase, check)


def _one_of(names: Sequence[str]) -> str:
    return "(?:" + "|".join(re.escape(name) for name in names) + ")"


_PACK: Final = rf"pack-{_OID}\.(?:pack|idx|rev|bitmap|keep|mtimes|promisor)"

_FILES: Final = (
    _kind(rf"objects/{_HEX}{{2}}/(?:{_HEX}{{38}}|{_HEX}{{62}})", Phase.OBJECTS),
    _kind(rf"objects/pack/(?:{_PACK}|multi-pack-index(?:-{_OID}\.(?:bitmap|rev))?)", Phase.OBJECTS),
    # What the pointers of git-lfs stand for: bytes under the name of their digest.
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
    # Text that is shown, or becomes a commit's message.
    _kind(r"(?:COMMIT|TAG|NOTES|MERGE)_EDITMSG|(?:MERGE|SQUASH)_MSG|gc\.log", Phase.STATE),
    _kind(r"MERGE_MODE", Phase.STATE, _whole(r"(?:no-ff)?\n?")),
    _kind(r"MERGE_RR", Phase.STATE),
    _kind(r"rr-cache/[0-9a-f]+/(?:pre|post|this)image(?:\.\d+)?", Phase.STATE),
    _kind(rf"NOTES_MERGE_WORKTREE/{_OID}", Phase.STATE),
    # A bisection. Old versions let a shell read the quoted names.
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

_DIRECTORIES: Final = re.compile(
    rf"objects(?:/(?:{_HEX}{{2}}|pack|info|info/commit-graphs))?"
    r"|(?:logs|logs/refs|refs)(?:/.+)?|reftable|info"
    rf"|lfs(?:/(?:tmp|objects(?:/{_HEX}{{2}}){{0,2}}))?"
    r"|rebase-merge(?:/rewritten)?|rebase-apply|sequencer"
    r"|rr-cache(?:/[0-9a-f]+)?|NOTES_MERGE_WORKTREE"
)
