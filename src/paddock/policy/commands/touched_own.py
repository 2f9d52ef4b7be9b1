"""The paths that find and tar write or remove: their words need a reading of their own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Final

from paddock.policy.commands.commandline import program_name
from paddock.policy.commands.touch import Touch, all_below, inside, is_here

REMOVING: Final = frozenset({"rm", "rmdir", "unlink"})
"""Programs that take away all their operands."""
_FIND_FILES: Final = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_NAMES: Final = frozenset({"-name", "-iname"})
_FIND_NARROWS: Final = _FIND_NAMES | {
    *("-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-samefile"),
}
_FOUND: Final = "{}"
"""What find puts the name of a file in the place of."""
_CHANGES_FOUND: Final = "find gives what it finds to a command that changes it or copies it"

PAIRS_MAX: Final = 500
"""Places where find begins, each with a place that files are copied to; more are asked about."""

_TAR_VALUED: Final = "bCfFgHIKLNTVX"
_TAR_MAKES: Final = ("--create", "--append", "--update", "--concatenate", "--catenate", "--delete")
_TAR_TAKES: Final = ("--extract", "--get")
_TAR_LETTERS: Final = {"--file": "f", "--directory": "C", "--listed-incremental": "g"}


@dataclass(frozen=True, slots=True)
class Handed:
    """What a command does to the files in the place of `{}`; `targets` are where it copies them."""

    removes: bool
    writes: bool
    targets: tuple[str, ...]


def of_find(words: Sequence[str]) -> Touch:
    """Files that find writes its output to; and where it begins, if it takes away what it finds."""
    touch = Touch()
    touch.written += [after for word, after in pairwise(words) if word in _FIND_FILES]
    runs = {program_name(after) for word, after in pairwise(words) if word in _FIND_RUNS}
    if "-delete" in words or not runs.isdisjoint(REMOVING | {"shred", "mv"}):
        touch.removed += _starts(words)
    return touch


def read_handed(touch: Touch) -> Handed | None:
    """Return what a command does to what find hands to it; None where it only reads that."""
    removes = any(_FOUND in path for path in touch.removed)
    written = (*touch.written, *(target for _, target in touch.copied))
    writes = any(path.startswith(_FOUND) for path in written)
    targets = (target for source, target in touch.copied if _FOUND in source)
    brought = tuple(dict.fromkeys(target for target in targets if _FOUND not in target))
    return Handed(removes, writes, brought) if removes or writes or brought else None


def of_executed(words: Sequence[str], executed: Iterable[Handed]) -> Touch:
    """What commands that find runs do to what it finds, told of where it begins.

    Where it begins here and looks for names, those names are told, as they would stand
    here, and the rest is asked about: it would else be everything.
    """
    touch = Touch()
    starts = _starts(words)
    names = _names(words)
    writes = False
    targets: dict[str, None] = {}
    for handed in executed:
        touch.removed = starts if handed.removes else touch.removed
        writes = writes or handed.writes
        targets |= dict.fromkeys(handed.targets)
    if len(starts) * len(targets) > PAIRS_MAX:
        return Touch(removed=touch.removed, doubts=[_CHANGES_FOUND])
    for start in starts if writes or targets else ():
        if names is not None and is_here(start):
            touch.doubts.append(_CHANGES_FOUND)
            places = [*([start] if writes else []), *targets]
            touch.written += [inside(place, name) for place in places for name in names]
            continue
        if writes:
            touch.written.append(start)
            touch.copied.append(all_below(start))
        touch.copied += [(start, target) for target in targets]
    return touch


def _starts(words: Sequence[str]) -> list[str]:
    after_options = _behind_leading_options(words)
    starts = list(takewhile(lambda word: not word.startswith(("-", "(", "!")), after_options))
    return starts or ["."]


def _names(words: Sequence[str]) -> list[str] | None:
    """Return the names and patterns that find looks for; None where it looks for all names."""
    tests = [
        (word, value)
        for before, word, value in zip(("", *words), words, (*words[1:], ""), strict=False)
        if word in _FIND_NARROWS and before not in ("!", "-not")
    ]
    if not tests:
        return None
    return [value for word, value in tests if word in _FIND_NAMES]


def _behind_leading_options(words: Sequence[str]) -> Sequence[str]:
    """`find -L -D help x`: what follows its first options."""
    at = 0
    while at < len(words) and (words[at] in ("-H", "-L", "-P", "-D") or words[at][:2] == "-O"):
        at += 2 if words[at] == "-D" else 1
    return words[at:]


def of_tar(words: Sequence[str]) -> Touch:
    """The archive that tar makes, or the directories that it unpacks into.

    `-C` is only where it looks, while it makes one.
    """
    letters, values, longs, operands = _read_tar(words)
    makes = not set("cruA").isdisjoint(letters) or _has(longs, _TAR_MAKES)
    takes = "x" in letters or _has(longs, _TAR_TAKES)
    written = [value for letter, value in values if letter == "g"]
    written += [value for letter, value in values if letter == "f" and makes and value != "-"]
    written += [value for letter, value in values if letter == "C" and (takes or not makes)]
    written += [each.partition("=")[2] for each in longs if each.startswith("--one-top-level=")]
    removed = operands if makes and _has(longs, ("--remove-files",)) else []
    return Touch(written=[each for each in written if each], removed=removed)


def _read_tar(words: Sequence[str]) -> tuple[str, list[tuple[str, str]], list[str], list[str]]:
    """Return the letters, the values of letters, the long options and the operands."""
    letters, values, longs, operands = "", list[tuple[str, str]](), list[str](), list[str]()
    left = list(words)
    if left and not left[0].startswith("-"):
        # The old way: all letters in the first word, their values behind it.
        letters = left.pop(0)
        values += [(each, left.pop(0)) for each in letters if each in _TAR_VALUED and left]
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            longs.append(word)
            name, equals, value = word.partition("=")
            wanted = [each for each in _TAR_LETTERS if name[3:] and each.startswith(name)]
            if wanted:
                value = value if equals or not left else left.pop(0)
                values.append((_TAR_LETTERS[wanted[0]], value))
        elif word.startswith("-") and word != "-":
            for place, letter in enumerate(word[1:], 2):
                letters += letter
                if letter in _TAR_VALUED:
                    values.append((letter, word[place:] or (left.pop(0) if left else "")))
                    break
        else:
            operands.append(word)
    return letters, values, longs, operands


def _has(longs: Sequence[str], wanted: tuple[str, ...]) -> bool:
    return any(
        option.startswith(each.partition("=")[0]) for each in longs if each[3:] for option in wanted
    )
