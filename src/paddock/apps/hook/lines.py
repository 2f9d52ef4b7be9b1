"""What a line of shell would write or remove, as far as its words tell, and from which directory.

A safety net: a command that no sandbox holds can write anywhere. Here stands what can
be read off the line: redirections, and the words of programs that write. `cd` moves
the ground under both: a plain list of commands is followed step by step; in anything
else every directory that the line may come to stand in is judged.
"""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from paddock.apps.hook.lean.asked import ShapeError
from paddock.apps.hook.lean.patches import read_patch
from paddock.apps.hook.lean.shell import is_bare_below
from paddock.policy.commands import CommandLine, SimpleCommand, parse_line
from paddock.policy.commands.commandline import program_name
from paddock.policy.commands.tokens import RESERVED

EXPANDED_MAX: Final = 500
"""Names that one pattern in a line may stand for; with more it is asked about."""
BELOW_MAX: Final = 5_000
"""Names below a directory that goes or is copied; with more it is asked about."""
GROUNDS_MAX: Final = 16
"""Directories that a line may come to stand in; with more it is asked about."""

_TAKEN_FOR_A_REPOSITORY: Final = (
    "git would take a folder of ordinary files for a repository, and run what its config names"
)
_CHANGES_DIRECTORY: Final = frozenset({"cd", "pushd", "popd", "chdir"})
_REMOVES: Final = frozenset({"rm", "rmdir", "shred", "unlink", "find"})
_PATCHES: Final = frozenset({"apply_patch", "applypatch"})
_PATCH: Final = re.compile(r"\*\*\* Begin Patch.*?(?:\*\*\* End Patch|\Z)", re.DOTALL)
_GLOB: Final = re.compile(r"[*?\[]")
_OPERATOR: Final = re.compile(r"&&|\|\||;;?|\|&|\||\n|&")
_STRUCTURE: Final = re.compile(r"[(){}`]|\$\(|<<|(?:^|[\s;&|])#")

Ground = tuple[str, ...]
"""The directories changed to, in order; none is where the line starts."""
Grounded = tuple[Ground, str]


@dataclass(slots=True)
class Targets:
    """What was read off a line. `unsure` are reasons to ask."""

    targets: dict[Grounded, None] = field(default_factory=dict[Grounded, None])
    removed: dict[Grounded, None] = field(default_factory=dict[Grounded, None])
    patches: tuple[tuple[str, str], ...] = ()
    is_single: bool = False
    """The line is one command."""
    removes: bool = False
    """A program of the line removes or moves what it is given."""
    unsure: dict[str, None] = field(default_factory=dict[str, None])


def read_targets(line: CommandLine, base: str) -> Targets:
    """Return what `line` would write for someone who stands in `base`."""
    found = Targets(
        is_single=len(line.commands) == 1, removes=not _programs(line).isdisjoint(_REMOVES)
    )
    if _programs(line).isdisjoint(_CHANGES_DIRECTORY):
        _note(found, line, [()], base)
    else:
        _follow(found, line, base)
    found.patches = _patches(line, found)
    return found


def _note(found: Targets, line: CommandLine, grounds: list[Ground], base: str) -> None:
    written = [each for each in (*line.writes, *line.touched) if not each.startswith("&")]
    starts_git = "git" in _programs(line)
    for ground in grounds:
        here = _directory(base, ground)
        if starts_git and is_bare_below(here):
            found.unsure[_TAKEN_FOR_A_REPOSITORY] = None
        for target in filter(None, written):
            for name in (target, *_expanded(found, target, here)):
                found.targets[ground, name] = None
        for target in filter(None, line.removed):
            for name in (target, *_expanded(found, target, here)):
                found.removed[ground, name] = None
                for below in _below(found, name, here):
                    found.removed[ground, os.path.join(name, below)] = None
        for source, target in line.copied:
            for each in (source, *_expanded(found, source, here)):
                for name in _arriving(found, each, target, here):
                    found.targets[ground, name] = None


def _follow(found: Targets, line: CommandLine, base: str) -> None:
    """Take a line with `cd` apart at its operators, and keep count of where it stands."""
    grounds: list[Ground] = [()]
    steps = _steps(line.text)
    if steps is None:
        # Groups, substitutions, here-documents: every directory that is named is possible.
        for command in line.commands:
            grounds += _moved(found, command, grounds)
        _note(found, line, _bounded(found, grounds), base)
        return
    for text, operator in steps:
        step = parse_line(text)
        _note(found, step, grounds, base)
        for command in step.commands:
            moved = _moved(found, command, grounds)
            if not moved:
                continue
            # It surely moved where it had to succeed for the rest, or where it can.
            is_sure = len(step.commands) == 1 and operator in ("&&", ";", "\n", "")
            exists = all(os.path.isdir(_directory(base, ground)) for ground in moved)
            only_if = operator == "&&" and all(sign in ("&&", "|", "") for _, sign in steps)
            grounds = moved if is_sure and (exists or only_if) else grounds + moved
            grounds = _bounded(found, grounds)


def _bounded(found: Targets, grounds: list[Ground]) -> list[Ground]:
    distinct = list(dict.fromkeys(grounds))
    if len(distinct) > GROUNDS_MAX:
        found.unsure["the line changes its directory too often to be followed"] = None
    return distinct[:GROUNDS_MAX]


def _steps(text: str) -> list[tuple[str, str]] | None:
    """Return the parts of a plain list with the operator after each; None for anything else."""
    steps: list[tuple[str, str]] = []
    start = at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 2
            continue
        if char in "'\"":
            end = _closing(text, at)
            if end < 0:
                return None
            at = end + 1
            continue
        match = _OPERATOR.match(text, at)
        beside = text[at - 1 : at], text[at + 1 : at + 2]
        if match is None or (char == "&" and (beside[0] in "<>" or beside[1] == ">") and at):
            at += 1
            continue
        steps.append((text[start:at], match[0]))
        start = at = match.end()
    steps.append((text[start:], ""))
    for part, _ in steps:
        if _STRUCTURE.search(part) or not RESERVED.isdisjoint(part.split()):
            return None
    return [(part, sign) for part, sign in steps if part.strip()]


def _closing(text: str, at: int) -> int:
    """Return where the quote at `at` ends; -1 where it does not."""
    quote = text[at]
    end = at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" and quote == '"' else 1
    return end if end < len(text) else -1


def _moved(found: Targets, command: SimpleCommand, grounds: list[Ground]) -> list[Ground]:
    """Return the grounds after a command that changes directory; none for any other."""
    moved: list[Ground] = []
    for reading in command.readings:
        words = reading.all_words()
        if reading.head or program_name(words[0].text) not in _CHANGES_DIRECTORY:
            continue
        options = [word for word in words[1:] if word.text in ("-P", "-L", "-e", "-@", "--")]
        named = [word for word in words[1:] if word not in options]
        if words[0].text == "popd" or len(named) > 1 or (named and not _is_plain(named[0].text)):
            found.unsure["the line changes to a directory that is not told by its words"] = None
        elif named and (named[0].unknown or named[0].glob or named[0].alternatives):
            found.unsure["the line changes to a directory that is only known at run time"] = None
        else:
            directory = named[0].text if named else "~"
            moved += [(*ground, directory) for ground in grounds]
    return moved


def _is_plain(directory: str) -> bool:
    # `cd -` and `cd +1` mean a directory of before.
    return bool(directory) and directory[0] not in "-+"


def _directory(base: str, ground: Ground) -> str:
    """Return the directory as the kernel would find it; only for a look at what is there."""
    here = base
    for directory in ground:
        here = os.path.join(here, os.path.expanduser(directory))
    return here


def _expanded(found: Targets, target: str, directory: str) -> list[str]:
    """Return what a pattern among the words stands for now, as the shell would expand it."""
    if not _GLOB.search(target):
        return []
    names: list[str] = []
    for name in glob.iglob(target, root_dir=directory):
        if len(names) >= EXPANDED_MAX:
            found.unsure["a pattern stands for more names than are looked at"] = None
            break
        names.append(name)
    return names


def _below(found: Targets, target: str, directory: str) -> Iterator[str]:
    """Names below a directory, relative to it. Of too many it is asked about the rest.

    Links are left out: they go by themselves, and what they lead to stays.
    """
    top = os.path.join(directory, os.path.expanduser(target))
    names = (
        os.path.join(place, name)
        for place, directories, files in (() if os.path.islink(top) else os.walk(top))
        for name in sorted((*directories, *files))
    )
    own = (os.path.relpath(name, top) for name in names if not os.path.islink(name))
    for count, name in enumerate(own):
        if count >= BELOW_MAX:
            found.unsure["a directory holds more names than are looked at"] = None
            return
        yield name


def _arriving(found: Targets, source: str, target: str, directory: str) -> Iterator[str]:
    """Where what is given to a copy, and what is below it, would come to stand."""
    inside = os.path.join(target, os.path.basename(source.rstrip("/")))
    places = (target, inside)
    there = os.path.join(directory, os.path.expanduser(target))
    # One that is not there may be made by an earlier command of the line.
    if os.path.isdir(there) or not (found.is_single or os.path.isfile(there)):
        yield inside
    # What a link leads to stands beside the link.
    beside = os.path.dirname(os.path.join(directory, os.path.expanduser(target.rstrip("/"))))
    for here in dict.fromkeys((directory, beside)):
        for below in _below(found, source, here):
            for place in places:
                yield os.path.join(place, below)


def _programs(line: CommandLine) -> frozenset[str]:
    return frozenset(
        program_name(reading.first(1)[0].text)
        for command in line.commands
        for reading in command.readings
    )


def _patches(line: CommandLine, found: Targets) -> tuple[tuple[str, str], ...]:
    """Return what patches in the line touch: a client may apply them itself."""
    if _programs(line).isdisjoint(_PATCHES):
        return ()
    touched: list[tuple[str, str]] = []
    texts = _PATCH.findall(line.text)
    for text in texts:
        try:
            touched += read_patch(text)
        except ShapeError as error:
            found.unsure[str(error)] = None
    if not texts:
        found.unsure["a patch is applied that does not stand in the line"] = None
    return tuple(touched)
