"""The paths that git writes or removes."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from paddock.policy.commands.touch import Touch, all_below, inside, is_here, names_directory

_PATHS: Final = frozenset({"clone", "init"})
_VALUED: Final = frozenset({"-c", "--namespace", "--exec-path", "--config-env", "--attr-source"})
_PLACES: Final = ("--git-dir", "--work-tree")
_READING: Final = frozenset(
    "annotate blame cat-file check-attr check-ignore count-objects describe diff diff-files "
    "diff-index diff-tree for-each-ref grep help log ls-files ls-remote ls-tree merge-base "
    "name-rev rev-list rev-parse shortlog show show-ref status var version whatchanged".split()
)
"""Subcommands that change nothing where git stands, but what an option names."""
_ASKING: Final = frozenset({"--get", "--get-all", "--get-regexp", "--get-urlmatch", "--get-color",
                            "--get-colorbool", "--list", "-l"})  # fmt: skip
_ADD_VALUED: Final = frozenset({"-b", "-B", "--reason", "--orphan"})
_ALL_BUT_GIT: Final = ("*", ".[!g]*", ".g[!i]*", ".gi[!t]*", ".git?*")
"""What stands in a directory, as patterns; `git clean` keeps the repository."""
_UP: Final = re.compile(r"(?:\.{0,2}/)*\.{0,2}")
"""Where one stands, or above it; the top of the disk, too."""
_FROM_FILE: Final = "--pathspec-from-file"
_MAGIC: Final = re.compile(r"^:|[*?\[]")
_REWRITES: Final = "git rewrites files that it finds by itself, and words do not tell which"
_CACHED: Final = re.compile(r"--(?:no-)?c(?:a(?:c(?:h(?:ed?)?)?)?)?")
_STASHES: Final = "git stash takes away every file that git does not track"
_STAGED: Final = frozenset({"-S", "--staged", "-q", "--quiet"})
"""Options of `git restore` with which it writes no file, `--staged` being among them."""
_CLEANS: Final = "git clean removes every file that git does not keep"


def of_git(words: Sequence[str]) -> Touch:
    """What git changes of the paths that it is given, from the directory that `-C` names."""
    directory, places, left = _before(words)
    touch = Touch()
    subcommand, rest = (left[0], left[1:]) if left else ("", [])
    if subcommand not in _READING:
        touch.written += places
    found = _HANDLERS.get(subcommand, _none)(rest)
    found.written[:0] = _outputs(rest)
    if subcommand in _PATHS:
        found.written += _operands(rest)
    touch.written += [joined(directory, path) for path in found.written]
    touch.removed += [joined(directory, path) for path in found.removed]
    touch.copied += [
        (joined(directory, source), joined(directory, target)) for source, target in found.copied
    ]
    touch.doubts += found.doubts
    return touch


def joined(directory: str, path: str) -> str:
    """A path as it is for someone who does not stand in `directory`."""
    return path if not directory or path.startswith("/") else f"{directory.rstrip('/')}/{path}"


def _before(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return the directory of `-C`, the places that are named, the words from the subcommand."""
    directory, places, left = "", list[str](), list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        value = ""
        if word[:2] == "-C":
            value = word[2:] or (left.pop(0) if left else "")
            directory = joined(directory, value)
            places.append(directory)
        elif word in _VALUED or word in _PLACES:
            value = left.pop(0) if left else ""
        if word.startswith(_PLACES):
            places.append(value or word.partition("=")[2])
    return directory, places, left


def _none(_rest: Sequence[str]) -> Touch:
    return Touch()


def _rm(rest: Sequence[str]) -> Touch:
    # The index is not the file: what `--cached` takes out of it still stands on the disk.
    told = [each for each in _options(rest) if _CACHED.fullmatch(each)]
    is_index_alone = bool(told) and not told[-1].startswith("--no-")
    return Touch(removed=[] if is_index_alone else _operands(rest))


def _stash(rest: Sequence[str]) -> Touch:
    """What goes from where it stands; what git keeps is put back as it was committed."""
    is_bare = not rest or rest[0].startswith("-")
    verb, words = ("push", rest) if is_bare else (rest[0], rest[1:])
    if verb not in ("push", "save"):
        return Touch()
    named = _without_values(words, frozenset({"-m", "--message"})) if verb == "push" else []
    paths = [path for path in named if not is_here(path)]
    if paths:
        return Touch(removed=paths)
    letters = {letter for word in _options(words) if word[:2] != "--" for letter in word}
    is_wide = not letters.isdisjoint("ua") or any(
        _shortens(word, "--include-untracked", 3) or _shortens(word, "--all", 3) for word in words
    )
    return Touch(doubts=[_STASHES] if is_wide else [])


def _format_patch(rest: Sequence[str]) -> Touch:
    is_told = bool(_outputs(rest)) or any(_shortens(word, "--stdout", 5) for word in rest)
    return Touch(written=[] if is_told else ["."])


def _mv(rest: Sequence[str]) -> Touch:
    paths = _operands(rest)
    touch = Touch(written=paths[-1:], removed=paths[:-1])
    if len(paths) > 2 or (paths and names_directory(paths[-1])):
        touch.written += [inside(paths[-1], each) for each in paths[:-1]]
    return touch


def _rewritten(rest: Sequence[str]) -> Touch:
    """What `git checkout` and `git restore` write: what is named, and all that is below it.

    Below where one stands, or above it, that is whatever git keeps: a question.
    """
    if _writes_index_alone(rest):
        return Touch()
    touch = Touch(written=_operands(rest))
    named = [each for each in touch.written if not _UP.fullmatch(each)]
    touch.copied = [all_below(each) for each in named]
    is_wide = len(named) < len(touch.written) or any(map(_MAGIC.search, named))
    if is_wide or any(_shortens(word.partition("=")[0], _FROM_FILE, 4) for word in rest):
        touch.doubts.append(_REWRITES)
    return touch


def _from_index(rest: Sequence[str]) -> Touch:
    """`git checkout-index`: what is named, or everything, perhaps below a prefix."""
    words = list(pairwise((*rest, "")))
    prefixes = [word.partition("=")[2] for word in rest if word.startswith("--prefix=")]
    prefixes += [after for word, after in words if word == "--prefix"]
    named = _without_values(rest, frozenset({"--prefix", "--stage"}))
    is_told = bool(named) or not rest
    written = [f"{prefix}{each}" for prefix in prefixes[-1:] or [""] for each in named]
    return Touch(written=[*filter(None, prefixes), *written], doubts=[] if is_told else [_REWRITES])


def _writes_index_alone(rest: Sequence[str]) -> bool:
    """`git restore --staged PATH`, with no option that could be more: no file is written."""
    options = _options(rest)
    return bool(options) and set(options) <= _STAGED and not {"-S", "--staged"}.isdisjoint(options)


def _clean(rest: Sequence[str]) -> Touch:
    """What is ignored goes with `x` and `X`: among it are the files of secrets.

    Without them it goes by git's own lists, which words do not tell: a question.
    """
    # What follows an e is its pattern, and no letter.
    flags = [word[1:].partition("e")[0] for word in rest if word[:1] == "-" and word[:2] != "--"]
    letters = "".join(flags)
    options = [word for word in rest if word.startswith("--")]
    is_dry = "n" in letters or any(_shortens(word, "--dry-run", 3) for word in options)
    if is_dry and not any(_shortens(word, "--no-dry-run", 6) for word in options):
        return Touch()
    operands = _without_values(rest, frozenset({"-e", "--exclude"}))
    if "x" not in letters.lower():
        return Touch(written=operands, doubts=[_CLEANS])
    removed: list[str] = []
    for path in operands or [""]:
        removed += [joined(path, each) for each in _ALL_BUT_GIT] if is_here(path) else [path]
    # In a pattern of git a star goes through slashes, and `:/` is the top.
    is_pattern = any(_MAGIC.search(path) for path in operands)
    return Touch(removed=removed, doubts=[_CLEANS] if is_pattern else [])


def _config(rest: Sequence[str]) -> Touch:
    if not _ASKING.isdisjoint(rest) or rest[:1] in (["get"], ["list"]):
        return Touch()
    files = [after for word, after in pairwise(rest) if word in ("-f", "--file")]
    files += [word[2:] for word in rest if word[:2] == "-f" and len(word) > 2]
    files += [word.partition("=")[2] for word in rest if word.startswith("--file=")]
    return Touch(written=files)


def _bundle(rest: Sequence[str]) -> Touch:
    operands = _operands(rest)
    return Touch(written=operands[1:2] if operands[:1] == ["create"] else [])


def _worktree(rest: Sequence[str]) -> Touch:
    operands = _without_values(rest, _ADD_VALUED)
    match operands[:1]:
        case ["add"]:
            return Touch(written=operands[1:2])
        case ["move"]:
            return Touch(written=operands[2:3], removed=operands[1:2])
        case ["remove"]:
            return Touch(removed=operands[1:2])
        case _:
            return Touch()


_HANDLERS: Final[dict[str, Callable[[Sequence[str]], Touch]]] = {
    "checkout": _rewritten,
    "checkout-index": _from_index,
    "restore": _rewritten,
    "format-patch": _format_patch,
    "rm": _rm,
    "stash": _stash,
    "mv": _mv,
    "clean": _clean,
    "config": _config,
    "bundle": _bundle,
    "worktree": _worktree,
}


def _options(words: Sequence[str]) -> list[str]:
    before = words[: words.index("--")] if "--" in words else words
    return [word for word in before if word.startswith("-")]


def _operands(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("-")]


def _without_values(words: Sequence[str], valued: frozenset[str]) -> list[str]:
    return [
        word
        for before, word in pairwise(("", *words))
        if before not in valued and not word.startswith("-")
    ]


def _outputs(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for word, after in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if _shortens(name, "--output-directory", 5):
            found.append(value if equals else after)
        elif word == "-o":
            found.append(after)
        elif word[:2] == "-o":
            found.append(value if equals else word[2:])
    return [each for each in found if each]


def _shortens(name: str, option: str, least: int) -> bool:
    return len(name) >= least and option.startswith(name)
