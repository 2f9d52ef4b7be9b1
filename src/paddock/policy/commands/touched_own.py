"""The paths that sed, find and git write or remove: their words need a reading of their own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Final

from paddock.policy.commands.commandline import program_name

REMOVING: Final = frozenset({"rm", "rmdir", "unlink"})
"""Programs that take away all their operands."""
_SED_WRITES: Final = re.compile(r"(?:^|[;{}/\s\d$])[wW]\s+([^\s;}]+)")
_FIND_FILES: Final = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})
_FIND_RUNS: Final = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_GIT_PATHS: Final = frozenset({"rm", "mv", "checkout", "restore", "clean", "clone", "init"})
_GIT_VALUED: Final = frozenset({"-c", "--namespace", "--exec-path", "--config-env"})


@dataclass(slots=True)
class Touch:
    """What one command writes, and what it takes away."""

    written: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])


def of_sed(words: Sequence[str]) -> list[str]:
    """The files that sed edits in place, and those that its scripts write."""
    operands: list[str] = []
    scripts: list[str] = []
    is_in_place = named_script = False
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            operands += left
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if any(long.startswith(name) for long in ("--expression", "--file")) and name[2:]:
                named_script = True
                scripts.append(value if equals or not left else left.pop(0))
            is_in_place = is_in_place or (name[2:] != "" and "--in-place".startswith(name))
        elif word.startswith("-") and word != "-":
            for place, letter in enumerate(word[1:], 2):
                if letter == "i":
                    # The rest of the word is the suffix of a copy.
                    is_in_place = True
                    break
                if letter in "efl":
                    value = word[place:] or (left.pop(0) if left else "")
                    named_script = named_script or letter != "l"
                    scripts.append(value)
                    break
        else:
            operands.append(word)
    if not named_script:
        scripts += operands[:1]
        operands = operands[1:]
    written = [name for script in scripts for name in _SED_WRITES.findall(script)]
    return [*(operands if is_in_place else []), *written]


def of_find(words: Sequence[str]) -> Touch:
    """Files that find writes its output to; and where it begins, if it takes away what it finds."""
    touch = Touch()
    touch.written += [after for word, after in pairwise(words) if word in _FIND_FILES]
    runs = {program_name(after) for word, after in pairwise(words) if word in _FIND_RUNS}
    if "-delete" in words or not runs.isdisjoint(REMOVING | {"shred", "mv"}):
        after_options = _behind_leading_options(words)
        starts = list(takewhile(lambda word: not word.startswith(("-", "(", "!")), after_options))
        touch.removed += starts or ["."]
    return touch


def _behind_leading_options(words: Sequence[str]) -> Sequence[str]:
    """`find -L -D help x`: what follows its first options."""
    at = 0
    while at < len(words) and (words[at] in ("-H", "-L", "-P", "-D") or words[at][:2] == "-O"):
        at += 2 if words[at] == "-D" else 1
    return words[at:]


def of_git(words: Sequence[str]) -> Touch:
    """What git changes of the paths that it is given, from the directory that `-C` names."""
    touch, directory, left = Touch(), "", list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        value = ""
        if word[:2] == "-C":
            value = word[2:] or (left.pop(0) if left else "")
            directory = _joined(directory, value)
            touch.written.append(directory)
        elif word in _GIT_VALUED or word in ("--git-dir", "--work-tree"):
            value = left.pop(0) if left else ""
        if word.startswith(("--git-dir", "--work-tree")):
            touch.written.append(value or word.partition("=")[2])
    touch.written += _outputs(left)
    operands = [word for word in left[1:] if not word.startswith("-")]
    if left and left[0] in _GIT_PATHS:
        paths = [_joined(directory, each) for each in operands]
        if left[0] == "rm":
            touch.removed += paths
        elif left[0] == "mv":
            touch.removed += paths[:-1]
            touch.written += paths[-1:]
            if len(paths) > 2 or (paths and names_directory(paths[-1])):
                touch.written += [inside(paths[-1], each) for each in paths[:-1]]
        else:
            touch.written += paths
    return touch


def names_directory(target: str) -> bool:
    """Whether a target is taken for a directory's name: one with an extension is a file's."""
    last = target.rstrip("/").rpartition("/")[2]
    return target.endswith("/") or last in (".", "..") or "." not in last


def inside(target: str, source: str) -> str:
    """Where a source comes to stand in a directory."""
    return f"{target.rstrip('/')}/{program_name(source.rstrip('/'))}"


def _outputs(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for word, after in pairwise((*words, "")):
        if word.startswith("--output=") or (word[:2] == "-o" and len(word) > 2):
            found.append(word.partition("=")[2] if "=" in word else word[2:])
        elif word in ("-o", "--output") and after:
            found.append(after)
    return found


def _joined(directory: str, path: str) -> str:
    return path if not directory or path.startswith("/") else f"{directory.rstrip('/')}/{path}"
