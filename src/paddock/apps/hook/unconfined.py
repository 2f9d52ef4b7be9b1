"""What a line of shell that no sandbox holds would touch, and from which directory.

A net: it tells what the words name, looked up on the disk. Where `cd` may not be run, or not in
this shell, every directory that the line names is judged.
"""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from paddock.apps.hook.lean.engine import is_bare_below
from paddock.apps.hook.lean.judge import resolve_cd
from paddock.apps.hook.lean.request import ShapeError, read_patch
from paddock.pattern import lazy_pattern
from paddock.policy.commands import CommandLine, SimpleCommand, parse_line
from paddock.policy.commands.walk import RESERVED
from paddock.policy.commands.words import Sift, program_name
from paddock.policy.commands.writes import all_below

EXPANDED_MAX: Final = 500
"""Names that one pattern in a line may stand for; with more it is asked about."""
BELOW_MAX: Final = 5_000
"""Names below a directory that goes or is copied; with more it is asked about."""
READS_MAX: Final = 5_000
STEPS_MAX: Final = 200_000
"""Names that are looked at for one line."""
GROUNDS_MAX: Final = 16

_BARE: Final = (
    "git would take a folder of ordinary files for a repository, and run what its config names"
)
_MAKES_LINK: Final = "the line makes a link, and what its other commands name may stand behind it"
_TOO_MANY_NAMES: Final = "the line stands for more names than are looked at"
_MOVES: Final = frozenset({"cd", "pushd", "popd", "chdir"})
_REMOVES: Final = frozenset({"rm", "rmdir", "shred", "unlink", "find"})
_PATCHES: Final = frozenset({"apply_patch", "applypatch"})
_PATCH: Final = lazy_pattern(r"\*\*\* Begin Patch.*?(?:\*\*\* End Patch|\Z)", re.DOTALL)
_SHELLS: Final = frozenset({"bash", "sh", "dash", "zsh"})
_AGAIN: Final = lazy_pattern(
    r"\bdo\b(?=.*\bdone\b)|\(\s*\)\s*[{(]|\bfunction\s+\S+\s*[{(]", re.DOTALL
)
_GLOB: Final = lazy_pattern(r"[*?\[]")
_CLASS: Final = lazy_pattern(r"\[[^/]*\[([:.=])[^/]*\1\]")
"""`[[:alpha:]]` and its like, which only a shell expands."""
_GLOB_SETTINGS: Final = lazy_pattern(
    r"shopt|setopt|globignore|bashopts|dotglob|nocaseglob|extglob|globstar|globdots", re.IGNORECASE
)
"""What changes for which names a pattern stands."""
_MIXED: Final = lazy_pattern(r"[(){}`|#]|<<|(?<![&<>])&(?![&>])")
"""Behind one of these a command may not be run, or not by this shell."""
_REDIRECTED: Final = lazy_pattern(r"\s*(?:\d?>>?(?:&\d|\s*[\w./-]+)\s*)*")

Ground = tuple[str, ...]
"""The directories that the line changes to before."""


class Targets(Struct):
    """Operations on paths that were read off a line, from which ground. `unsure`: reasons to ask.

    `sets_globs`: the line may change for which names a pattern stands; `removes`: it may remove.
    """

    changes: dict[tuple[str, Ground, str], None] = {}
    reads: dict[tuple[str, Ground, str], None] = {}
    patches: dict[tuple[str, Ground, str], None] = {}
    is_single: bool = False
    sets_globs: bool = False
    removes: bool = False
    unsure: dict[str, None] = {}
    spent: int = 0

    def note(self, operation: str, ground: Ground, names: Iterable[str]) -> None:
        into = self.reads if operation == "view" else self.changes
        into.update(((operation, ground, name), None) for name in names)

    def spend(self) -> bool:
        self.spent += 1
        if self.spent > STEPS_MAX:
            self.unsure[_TOO_MANY_NAMES] = None
        return self.spent <= STEPS_MAX


def read_targets(line: CommandLine, base: str) -> Targets:
    words = (word.text for command in line.commands for word in command.words)
    programs = frozenset(name for command in line.commands for name in _names(command))
    found = Targets(
        is_single=len(line.commands) == 1,
        removes=not programs.isdisjoint(_REMOVES),
        sets_globs=any(map(_GLOB_SETTINGS.search, (line.text, *words))),
    )
    again = _AGAIN.search(line.text)
    if line.touch.makes_link:
        # Threat: `ln -s .git l && cp a l/config`. Names are resolved on the disk as it is before
        # the line runs, where `l` is nothing yet.
        others = [each for each in line.commands if _MOVES.isdisjoint(_names(each))]
        if len(others) > 1 or line.writes or again:
            found.unsure[_MAKES_LINK] = None
    moving = [command for command in line.commands if not _MOVES.isdisjoint(_names(command))]
    # One whose text is not found is in a script with escapes of its own.
    places = [line.text.rfind(command.text) for command in moving]
    if again and any(place < 0 or place > again.start() for place in places):
        found.unsure["the line changes its directory in what may run again"] = None
    followed = _unwrapped(line)
    grounds = _follow(found, followed, base)
    owned = {target for command in followed.commands for target in command.writes}
    rest = [target for target in line.writes if target not in owned]
    for ground in grounds:
        for here in _stands(found, ground, base):
            found.note("create", ground, _expand(found, rest, here))
            found.note("view", ground, line.reads)
    if len(found.reads) > READS_MAX:
        found.unsure["the line reads more files than are looked at"] = None
    return found


def _unwrapped(line: CommandLine) -> CommandLine:
    first = line.commands[0] if line.commands else None
    words = first.words if first is not None else ()
    if first is None or len(words) != 3 or not line.text.startswith(first.text):
        return line
    if not _REDIRECTED.fullmatch(line.text, len(first.text)):
        return line
    is_told = words[1].text in ("-c", "-lc") and words[2].is_literal
    return parse_line(words[2].text) if is_told and words[0].text in _SHELLS else line


def _follow(found: Targets, line: CommandLine, base: str) -> list[Ground]:
    """Note what each command touches from where it may stand; return where one may have stood."""
    grounds: list[Ground] = [()]
    all_grounds = dict.fromkeys(grounds)
    # Where it stands if a step of this chain failed: that counts where the chain ends.
    behind: list[Ground] = []
    at, is_mixed = 0, False
    for command in line.commands:
        start = line.text.find(command.text, at)
        gap = line.text[at : max(start, at)]
        if re.search(r"[;\n|&]", gap.replace("&&", "")):
            grounds, behind = _bounded(found, grounds + behind), []
        _note(found, command, grounds, base)
        if not _PATCHES.isdisjoint(_names(command)):
            _note_patches(found, line, grounds)
        # Threat: `true || cd a && x`, `ls | cd a && x`: the rest runs without the step.
        is_mixed |= start < 0 or "'" in gap or '"' in gap or _MIXED.search(gap) is not None
        is_mixed |= not RESERVED.isdisjoint(gap.split())
        end = start + len(command.text)
        moved = _moved(found, command, grounds)
        if (
            moved
            and not is_mixed
            and re.match(r"[ \t]*(?:&&|;(?!;)|\n|$)", line.text[end : end + 99])
        ):
            stands = [each for ground in moved for each in _stands(found, ground, base)]
            is_sure = not gap.rstrip().endswith("&&") and all(map(os.path.isdir, stands))
            behind += [] if is_sure else grounds
            grounds = _bounded(found, moved)
        else:
            grounds = _bounded(found, grounds + moved)
        all_grounds |= dict.fromkeys(grounds)
        is_mixed |= _MIXED.search(command.text) is not None
        at = max(end, at) if start >= 0 else at
    return list(all_grounds)


def _names(command: SimpleCommand) -> frozenset[str]:
    return frozenset(program_name(reading.first(1)[0].text) for reading in command.readings)


def _note(found: Targets, command: SimpleCommand, grounds: list[Ground], base: str) -> None:
    touch = command.touch
    written = [each for each in (*command.writes, *touch.written) if each[:1] != "&"]
    for ground, here in ((each, here) for each in grounds for here in _stands(found, each, base)):
        if "git" in _names(command) and is_bare_below(here):
            found.unsure[_BARE] = None
        found.note("create", ground, _expand(found, written, here))
        for name in _expand(found, touch.removed, here):
            below = (os.path.join(name, each) for each in _below(found, name, here))
            found.note("delete", ground, (name, *below))
        for source, target in touch.copied:
            for each in _expand(found, (source,), here):
                # What is changed where it stands is no copy to the pattern's own name.
                place = each if source == all_below(target)[0] else target
                found.note("create", ground, _arriving(found, each, place, here))
        for sift in touch.sifted:
            for start in _expand(found, (sift.start,), here):
                found.note(sift.act, ground, _sifted(found, sift, start, here))
        known = dict(found.unsure)
        for name in _expand(found, touch.reads, here):
            # A pattern, or a text of several words, is seldom a file: then it has to be there.
            if not re.search(r"[\s*?]", name) or os.path.lexists(os.path.join(here, name)):
                found.note("view", ground, (name,))
        # Reading is often and mostly harmless: what words do not tell of it is let be.
        found.unsure = known


def _expand(found: Targets, named: Iterable[str], here: str) -> Iterator[str]:
    for name in filter(None, named):
        yield name
        if not _GLOB.search(name):
            continue
        if found.sets_globs or _CLASS.search(name):
            found.unsure["a pattern stands for names that only the shell can tell"] = None
        home = f"{os.path.expanduser('~')}/" if name.startswith("~/") else ""
        # A `^` means what `!` means; where it was quoted it is a character like others.
        for pattern in dict.fromkeys((name, name.replace("[^", "[!"))):
            yield from _matching(found, pattern[2:] if home else pattern, home, here)


def _matching(found: Targets, pattern: str, start: str, here: str) -> list[str]:
    """Return what a pattern stands for, in a bounded number of steps; `**` as zsh has it.

    Threat: `*/../*/../*/../x` makes `glob` look into the same directories without end.
    """
    if pattern.startswith("/"):
        start = "/"
    names = [start]
    for part in pattern.strip("/").split("/"):
        if not _GLOB.search(part):
            tried = [os.path.join(name, part) for name in names if found.spend()]
            names = [each for each in tried if os.path.lexists(os.path.join(here, each))]
            continue
        names = [each for name in names for each in _listed(found, name, part, here)]
        if len(names) > EXPANDED_MAX * 10:
            found.unsure[_TOO_MANY_NAMES] = None
            return []
    if len(names) > EXPANDED_MAX:
        found.unsure["a pattern stands for more names than are looked at"] = None
    return names[:EXPANDED_MAX]


def _listed(found: Targets, name: str, part: str, here: str) -> Iterator[str]:
    if part == "**":
        yield name
        below = (each for each, is_folder in _walk(found, os.path.join(here, name)) if is_folder)
        yield from (os.path.join(name, each) for each in below)
    try:
        with os.scandir(os.path.join(here, name)) as entries:
            names = sorted(entry.name for entry in entries if found.spend())
    except OSError:
        # What cannot be read is expanded to nothing by a shell, too.
        return
    for each in fnmatch.filter(names, part):
        if part.startswith(".") or not each.startswith("."):
            yield os.path.join(name, each)


def _walk(found: Targets, top: str) -> Iterator[tuple[str, bool]]:
    """Yield relative paths, and which are directories; leave out links: their targets stay."""
    for place, folders, files in () if os.path.islink(top) else os.walk(top):
        for name in sorted((*folders, *files)):
            path = os.path.join(place, name)
            if not found.spend():
                return
            if not os.path.islink(path):
                yield os.path.relpath(path, top), name in folders


def _below(found: Targets, target: str, here: str) -> Iterator[str]:
    top = os.path.join(here, os.path.expanduser(target))
    for count, (name, _) in enumerate(_walk(found, top)):
        if count >= BELOW_MAX:
            found.unsure["a directory holds more names than are looked at"] = None
            return
        yield name


def _sifted(found: Targets, sift: Sift, start: str, here: str) -> Iterator[str]:
    taken: set[str] = set()
    for name, is_folder in _walk(found, os.path.join(here, os.path.expanduser(start))):
        shown = f"{start.rstrip('/')}/{name}"
        is_met = all(_is_met(test, value, shown, is_folder) for test, value in sift.tests)
        if not is_met and os.path.dirname(name) not in taken:
            continue
        if is_folder:
            taken.add(name)
        if len(taken) > BELOW_MAX:
            found.unsure["a directory holds more names than are looked at"] = None
            return
        yield os.path.join(sift.target, os.path.basename(name)) if sift.target else shown


def _is_met(test: str, value: str, path: str, is_folder: bool) -> bool:
    if test == "type":
        return is_folder == (value == "d")
    text = path if "path" in test else os.path.basename(path)
    if test.startswith("i"):
        text, value = text.lower(), value.lower()
    return fnmatch.fnmatchcase(text, value)


def _arriving(found: Targets, source: str, target: str, here: str) -> Iterator[str]:
    inside = os.path.join(target, os.path.basename(source.rstrip("/")))
    there = os.path.join(here, os.path.expanduser(target))
    # One that is not there may be made by an earlier command of the line.
    if os.path.isdir(there) or not (found.is_single or os.path.isfile(there)):
        yield inside
    # What a link leads to stands beside the link.
    beside = os.path.dirname(os.path.join(here, os.path.expanduser(target.rstrip("/"))))
    for place in dict.fromkeys((here, beside)):
        for below in _below(found, source, place):
            yield from (os.path.join(target, below), os.path.join(inside, below))


def _note_patches(found: Targets, line: CommandLine, grounds: list[Ground]) -> None:
    """Note what patches in the line touch: a client may apply them itself."""
    words = (word.text for command in line.commands for word in command.words)
    # As they stand in the line, and without their quotes.
    texts = [text for each in (line.text, *words) for text in _PATCH.findall(each)]
    for text in dict.fromkeys(texts):
        try:
            for operation, path in read_patch(text):
                found.patches |= {(operation, ground, path): None for ground in grounds}
        except ShapeError as error:
            found.unsure[str(error)] = None
    if not texts:
        found.unsure["a patch is applied that does not stand in the line"] = None


def _bounded(found: Targets, grounds: list[Ground]) -> list[Ground]:
    distinct = list(dict.fromkeys(grounds))
    if len(distinct) > GROUNDS_MAX:
        found.unsure["the line changes its directory too often to be followed"] = None
    return distinct[:GROUNDS_MAX]


def _moved(found: Targets, command: SimpleCommand, grounds: list[Ground]) -> list[Ground]:
    moved: list[Ground] = []
    for reading in command.readings:
        words = reading.all_words()
        if reading.head or program_name(words[0].text) not in _MOVES:
            continue
        named = [each for each in words[1:] if each.text not in ("-P", "-L", "-e", "-@", "--")]
        is_told = not any(each.unknown or each.glob or each.alternatives for each in named)
        # `cd -` and `cd +1` mean a directory of before.
        is_plain = len(named) < 2 and all(each.text[:1] not in ("", "-", "+") for each in named)
        if words[0].text == "popd" or not is_plain:
            found.unsure["the line changes to a directory that is not told by its words"] = None
        elif not is_told:
            found.unsure["the line changes to a directory that is only known at run time"] = None
        else:
            directory = named[0].text if named else "~"
            moved += [(*ground, directory) for ground in grounds]
    return moved


def _stands(found: Targets, ground: Ground, base: str) -> tuple[str, ...]:
    named = tuple(map(os.path.expanduser, ground))
    home = os.path.expanduser("~")
    try:
        # A home that is not there is a name like others, as the shell has it.
        return resolve_cd(base, tuple(f"./{n}" if n[:1] == "~" else n for n in named), home)
    except ShapeError as error:
        found.unsure[str(error)] = None
        return ()
