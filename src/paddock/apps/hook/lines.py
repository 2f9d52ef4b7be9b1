"""What a line of shell would write or remove, as far as its words tell, and from which directory.

A safety net: a command that no sandbox holds can write anywhere. Here stands what can
be read off the line: redirections, and the words of programs that write. `cd` moves
the ground under both: a plain list of commands, and a script given as `sh -c '…'`, is
followed step by step; in anything else every directory that the line may come to stand
in is judged.
"""

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from paddock.apps.hook.expanding import Expander, TooManyStepsError
from paddock.apps.hook.lean.asked import ShapeError
from paddock.apps.hook.lean.patches import read_patch
from paddock.apps.hook.lean.places import find_stands
from paddock.apps.hook.lean.shell import is_bare_below
from paddock.policy.commands import CommandLine, SimpleCommand, parse_line
from paddock.policy.commands.commandline import program_name
from paddock.policy.commands.links import makes_link
from paddock.policy.commands.tokens import RESERVED
from paddock.policy.commands.touch import all_below

EXPANDED_MAX: Final = 500
"""Names that one pattern in a line may stand for; with more it is asked about."""
BELOW_MAX: Final = 5_000
"""Names below a directory that goes or is copied; with more it is asked about."""
GROUNDS_MAX: Final = 16
"""Directories that a line may come to stand in; with more it is asked about."""

_TAKEN_FOR_A_REPOSITORY: Final = (
    "git would take a folder of ordinary files for a repository, and run what its config names"
)
_MAKES_LINK: Final = "the line makes a link, and what its other commands name may stand behind it"
_CHANGES_DIRECTORY: Final = frozenset({"cd", "pushd", "popd", "chdir"})
_REMOVES: Final = frozenset({"rm", "rmdir", "shred", "unlink", "find"})
_PATCHES: Final = frozenset({"apply_patch", "applypatch"})
_PATCH: Final = re.compile(r"\*\*\* Begin Patch.*?(?:\*\*\* End Patch|\Z)", re.DOTALL)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh"})
_AGAIN: Final = re.compile(
    r"\bdo\b(?=.*\bdone\b)|\(\s*\)\s*[{(]|\bfunction\s+\S+\s*[{(]", re.DOTALL
)
"""Where a loop or a function begins."""
_GLOB: Final = re.compile(r"[*?\[]")
_CLASS: Final = re.compile(r"\[[^/]*\[([:.=])[^/]*\1\]")
"""`[[:alpha:]]` and its like, which only a shell expands."""
_GLOB_SETTINGS: Final = re.compile(
    r"shopt|setopt|globignore|bashopts|dotglob|nocaseglob|extglob|globstar|globdots", re.IGNORECASE
)
"""What changes for which names a pattern stands."""
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
    patches: dict[tuple[str, Ground, str], None] = field(
        default_factory=dict[tuple[str, Ground, str], None]
    )
    """What patches in the line touch, with the operation: a client may apply them itself."""
    is_single: bool = False
    """The line is one command."""
    sets_globs: bool = False
    """The line may change for which names a pattern stands."""
    removes: bool = False
    """A program of the line removes or moves what it is given."""
    unsure: dict[str, None] = field(default_factory=dict[str, None])
    expander: Expander = field(default_factory=Expander)


def read_targets(line: CommandLine, base: str) -> Targets:
    """Return what `line` would write for someone who stands in `base`."""
    found = Targets(
        is_single=len(line.commands) == 1,
        removes=not _programs(line).isdisjoint(_REMOVES),
        sets_globs=_sets_globs(line),
    )
    if _names_what_it_links(line):
        found.unsure[_MAKES_LINK] = None
    if _programs(line).isdisjoint(_CHANGES_DIRECTORY):
        _note(found, line, [()], base)
    else:
        _follow(found, line, [()], base)
    return found


def _names_what_it_links(line: CommandLine) -> bool:
    """Whether the line makes a link and does more than that, or does it again.

    Threat: `ln -s .git l && cp a l/config`. Names are resolved on the disk as it is before
    the line runs, where `l` is nothing yet.
    """
    if not makes_link(line):
        return False
    others = [each for each in line.commands if _CHANGES_DIRECTORY.isdisjoint(_names(each))]
    return len(others) > 1 or bool(line.writes) or _AGAIN.search(line.text) is not None


def _note(found: Targets, line: CommandLine, grounds: list[Ground], base: str) -> None:
    written = [each for each in (*line.writes, *line.touched) if not each.startswith("&")]
    starts_git = "git" in _programs(line)
    patches = _patches(line, found)
    for ground in grounds:
        found.patches |= {(operation, ground, path): None for operation, path in patches}
        for here in _stands(found, ground, base):
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
                    # What is changed where it stands is no copy to the pattern's own name.
                    place = each if source == all_below(target)[0] else target
                    for name in _arriving(found, each, place, here):
                        found.targets[ground, name] = None


def _follow(found: Targets, line: CommandLine, grounds: list[Ground], base: str) -> None:
    """Take a line with `cd` apart at its operators, and keep count of where it stands."""
    steps = _steps(line)
    if steps is None:
        # Groups, substitutions, here-documents: every directory that is named is possible.
        _note(found, line, _anywhere(found, line, grounds, base), base)
        return
    # Where it stands if a step of this chain failed: that counts where the chain ends.
    behind: list[Ground] = []
    before = ""
    for step, operator in steps:
        script = _script(step)
        if script is not None:
            outer, inner = script
            _note(found, outer, grounds, base)
            _follow(found, inner, grounds, base)
        elif len(step.commands) != 1:
            # A script of another form may move its own commands, and with `eval` the rest.
            grounds = _anywhere(found, step, grounds, base)
            _note(found, step, grounds, base)
        else:
            _note(found, step, grounds, base)
            moved = _moved(found, step.commands[0], grounds)
            stands = (each for ground in moved for each in _stands(found, ground, base))
            # Threat: `true || cd a && x`, `ls | cd a && x`: the rest runs without the step.
            if before in ("||", "|", "|&") or operator not in ("&&", ";", "\n", ""):
                grounds = _bounded(found, grounds + moved)
            elif moved:
                is_sure = before != "&&" and all(map(os.path.isdir, stands))
                behind += [] if is_sure else grounds
                grounds = _bounded(found, moved)
        if operator != "&&":
            grounds, behind = _bounded(found, grounds + behind), []
        before = operator


def _anywhere(found: Targets, line: CommandLine, grounds: list[Ground], base: str) -> list[Ground]:
    """Return every directory in which a command of the line may stand, before it and within."""
    for command in line.commands:
        grounds = grounds + _moved(found, command, grounds)
    grounds = _bounded(found, grounds)
    known = {stand for ground in grounds for stand in _stands(found, ground, base)}
    for command in _repeated(line):
        stands = (
            stand
            for ground in _moved(found, command, grounds)
            for stand in _stands(found, ground, base)
        )
        if any(stand not in known and os.path.isdir(stand) for stand in stands):
            found.unsure["the line changes its directory in what may run again"] = None
    return grounds


def _repeated(line: CommandLine) -> list[SimpleCommand]:
    """Return the commands that stand in a loop or a function, and perhaps some behind it."""
    again = _AGAIN.search(line.text)
    if again is None:
        return []
    # One whose text is not found is in a script with escapes of its own.
    places = ((line.text.rfind(command.text), command) for command in line.commands)
    return [command for place, command in places if place < 0 or place > again.start()]


def _script(step: CommandLine) -> tuple[CommandLine, CommandLine] | None:
    """Return `sh -c '…'` without its script, and the script; None for any other command."""
    words = step.commands[0].words if step.commands else ()
    if len(words) != 3 or words[0].text not in _SHELLS or words[1].text not in ("-c", "-lc"):
        return None
    script = words[2]
    if script.unknown or script.glob or script.alternatives or step.text.count(script.source) != 1:
        return None
    inner = parse_line(script.text)
    own = [command.text for command in step.commands[1:]]
    if not own or own != [command.text for command in inner.commands]:
        return None
    return parse_line(step.text.replace(script.source, ":")), inner


def _bounded(found: Targets, grounds: list[Ground]) -> list[Ground]:
    distinct = list(dict.fromkeys(grounds))
    if len(distinct) > GROUNDS_MAX:
        found.unsure["the line changes its directory too often to be followed"] = None
    return distinct[:GROUNDS_MAX]


def _steps(line: CommandLine) -> list[tuple[CommandLine, str]] | None:
    """Return the parts of a plain list with the operator after each; None for anything else."""
    parts = _parts(line.text)
    if parts is None:
        return None
    steps = [(parse_line(text), operator) for text, operator in parts]
    # Threat: quotes that end elsewhere than they seem to: `$'\\''`.
    commands = [command.text for step, _ in steps for command in step.commands]
    return steps if commands == [command.text for command in line.commands] else None


def _parts(text: str) -> list[tuple[str, str]] | None:
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


def _stands(found: Targets, ground: Ground, base: str) -> tuple[str, ...]:
    """Return the directories that a ground may be; only for a look at what is there."""
    named = tuple(map(os.path.expanduser, ground))
    home = os.path.expanduser("~")
    try:
        # A home that is not there is a name like others, as the shell has it.
        return find_stands(base, tuple(f"./{n}" if n[:1] == "~" else n for n in named), home)
    except ShapeError as error:
        found.unsure[str(error)] = None
        return ()


def _sets_globs(line: CommandLine) -> bool:
    words = (word.text for command in line.commands for word in command.words)
    return any(map(_GLOB_SETTINGS.search, (line.text, *words)))


def _expanded(found: Targets, target: str, directory: str) -> list[str]:
    """Return what a pattern among the words stands for now, as the shell would expand it."""
    if not _GLOB.search(target):
        return []
    if found.sets_globs or _CLASS.search(target):
        found.unsure["a pattern stands for names that only the shell can tell"] = None
    if target.startswith("~/"):
        target = os.path.join(glob.escape(os.path.expanduser("~")), target[2:])
    names: dict[str, None] = {}
    # A `^` means what `!` means; where it was quoted it is a character like others.
    for pattern in dict.fromkeys((target, target.replace("[^", "[!"))):
        try:
            for name in found.expander.expand(pattern, directory):
                if len(names) >= EXPANDED_MAX:
                    found.unsure["a pattern stands for more names than are looked at"] = None
                    break
                names[name] = None
        except TooManyStepsError:
            found.unsure["a pattern leads through more names than are looked at"] = None
    return list(names)


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
    return frozenset(name for command in line.commands for name in _names(command))


def _names(command: SimpleCommand) -> frozenset[str]:
    return frozenset(program_name(reading.first(1)[0].text) for reading in command.readings)


def _patches(line: CommandLine, found: Targets) -> tuple[tuple[str, str], ...]:
    """Return what patches in the line touch: a client may apply them itself."""
    if _programs(line).isdisjoint(_PATCHES):
        return ()
    touched: list[tuple[str, str]] = []
    words = (word.text for command in line.commands for word in command.words)
    # As they stand in the line, and without their quotes.
    texts = [text for each in (line.text, *words) for text in _PATCH.findall(each)]
    for text in dict.fromkeys(texts):
        try:
            touched += read_patch(text)
        except ShapeError as error:
            found.unsure[str(error)] = None
    if not texts:
        found.unsure["a patch is applied that does not stand in the line"] = None
    return tuple(touched)
