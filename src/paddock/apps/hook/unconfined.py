"""Find the paths that a shell line outside the sandbox would touch.

Best effort: names are resolved on the disk. If a `cd` may not run, or may run in a subshell, paths
are judged from every possible working directory.
"""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from paddock.apps.hook.lean.image import is_bare_below
from paddock.apps.hook.lean.judge import resolve_cd
from paddock.apps.hook.lean.request import ShapeError, read_patch
from paddock.pattern import lazy_pattern
from paddock.policy.commands import CommandLine, SimpleCommand, parse_line
from paddock.policy.commands.walk import RESERVED
from paddock.policy.commands.words import Sift, program_name
from paddock.policy.commands.writes import all_below

EXPANDED_MAX: Final = 500
"""If one pattern expands to more names, the user is asked."""
BELOW_MAX: Final = 5_000
"""If a removed or copied directory holds more names, the user is asked."""
READS_MAX: Final = 5_000
STEPS_MAX: Final = 200_000
"""Names that are checked for one line."""
CD_PATHS_MAX: Final = 16

_BARE: Final = (
    "git would treat a plain folder as a repository, and run the programs that its config names"
)
_CREATES_LINK: Final = "the line creates a link, and its other commands may reach paths through it"
_TOO_MANY_NAMES: Final = "the line expands to more names than are checked"
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
"""Character classes such as `[[:alpha:]]`, which only a shell expands."""
_GLOB_SETTINGS: Final = lazy_pattern(
    r"shopt|setopt|globignore|bashopts|dotglob|nocaseglob|extglob|globstar|globdots", re.IGNORECASE
)
"""Settings that change how a shell expands patterns."""
_MIXED: Final = lazy_pattern(r"[(){}`|#]|<<|(?<![&<>])&(?![&>])")
"""A command after one of these may not run, or may run in a subshell."""
_REDIRECTED: Final = lazy_pattern(r"\s*(?:\d?>>?(?:&\d|\s*[\w./-]+)\s*)*")

CdPath = tuple[str, ...]
"""The arguments of the `cd` commands that ran before, in order."""


class Targets(Struct):
    """Operations on paths that a line names. `unsure` holds reasons to ask the user.

    `sets_globs`: the line may change how patterns expand; `removes`: it may remove files.
    """

    changes: dict[tuple[str, CdPath, str], None] = {}
    reads: dict[tuple[str, CdPath, str], None] = {}
    patches: dict[tuple[str, CdPath, str], None] = {}
    is_single: bool = False
    sets_globs: bool = False
    removes: bool = False
    unsure: dict[str, None] = {}
    spent: int = 0

    def note(self, operation: str, cd_path: CdPath, names: Iterable[str]) -> None:
        into = self.reads if operation == "view" else self.changes
        into.update(((operation, cd_path, name), None) for name in names)

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
        # Threat: `ln -s .git l && cp a l/config`. Names are resolved before the line runs, when
        # `l` does not exist yet.
        others = [each for each in line.commands if _MOVES.isdisjoint(_names(each))]
        if len(others) > 1 or line.writes or again:
            found.unsure[_CREATES_LINK] = None
    moving = [command for command in line.commands if not _MOVES.isdisjoint(_names(command))]
    # A command whose text is not found is inside a quoted script with its own escapes.
    places = [line.text.rfind(command.text) for command in moving]
    if again and any(place < 0 or place > again.start() for place in places):
        found.unsure["the line changes its working directory in a loop or a function"] = None
    followed = _unwrap_shell(line)
    cd_paths = _follow(found, followed, base)
    owned = {target for command in followed.commands for target in command.writes}
    rest = [target for target in line.writes if target not in owned]
    for cd_path in cd_paths:
        for here in _resolve(found, cd_path, base):
            found.note("create", cd_path, _expand(found, rest, here))
            found.note("view", cd_path, line.reads)
    if len(found.reads) > READS_MAX:
        found.unsure["the line reads more files than are checked"] = None
    return found


def _unwrap_shell(line: CommandLine) -> CommandLine:
    first = line.commands[0] if line.commands else None
    words = first.words if first is not None else ()
    if first is None or len(words) != 3 or not line.text.startswith(first.text):
        return line
    if not _REDIRECTED.fullmatch(line.text, len(first.text)):
        return line
    is_known = words[1].text in ("-c", "-lc") and words[2].is_literal
    return parse_line(words[2].text) if is_known and words[0].text in _SHELLS else line


def _follow(found: Targets, line: CommandLine, base: str) -> list[CdPath]:
    """Note what each command touches from its possible directories; return all of these."""
    cd_paths: list[CdPath] = [()]
    all_cd_paths = dict.fromkeys(cd_paths)
    # The directories if a step of this `&&` chain failed: they count after the chain ends.
    if_failed: list[CdPath] = []
    at, is_mixed = 0, False
    for command in line.commands:
        start = line.text.find(command.text, at)
        gap = line.text[at : max(start, at)]
        if re.search(r"[;\n|&]", gap.replace("&&", "")):
            cd_paths, if_failed = _limit(found, cd_paths + if_failed), []
        _note(found, command, cd_paths, base)
        if not _PATCHES.isdisjoint(_names(command)):
            _note_patches(found, line, cd_paths)
        # Threat: `true || cd a && x`, `ls | cd a && x`: the rest runs without the `cd`.
        is_mixed |= start < 0 or "'" in gap or '"' in gap or _MIXED.search(gap) is not None
        is_mixed |= not RESERVED.isdisjoint(gap.split())
        end = start + len(command.text)
        moved = _apply_cd(found, command, cd_paths)
        if (
            moved
            and not is_mixed
            and re.match(r"[ \t]*(?:&&|;(?!;)|\n|$)", line.text[end : end + 99])
        ):
            resolved = [each for cd_path in moved for each in _resolve(found, cd_path, base)]
            is_sure = not gap.rstrip().endswith("&&") and all(map(os.path.isdir, resolved))
            if_failed += [] if is_sure else cd_paths
            cd_paths = _limit(found, moved)
        else:
            cd_paths = _limit(found, cd_paths + moved)
        all_cd_paths |= dict.fromkeys(cd_paths)
        is_mixed |= _MIXED.search(command.text) is not None
        at = max(end, at) if start >= 0 else at
    return list(all_cd_paths)


def _names(command: SimpleCommand) -> frozenset[str]:
    return frozenset(program_name(reading.first(1)[0].text) for reading in command.readings)


def _note(found: Targets, command: SimpleCommand, cd_paths: list[CdPath], base: str) -> None:
    touch = command.touch
    written = [each for each in (*command.writes, *touch.written) if each[:1] != "&"]
    for cd, here in ((each, here) for each in cd_paths for here in _resolve(found, each, base)):
        if "git" in _names(command) and is_bare_below(here):
            found.unsure[_BARE] = None
        found.note("create", cd, _expand(found, written, here))
        for name in _expand(found, touch.removed, here):
            below = (os.path.join(name, each) for each in _list_below(found, name, here))
            found.note("delete", cd, (name, *below))
        for source, target in touch.copied:
            for each in _expand(found, (source,), here):
                # A file changed in place is written under its own name, not the pattern's.
                place = each if source == all_below(target)[0] else target
                found.note("create", cd, _copy_targets(found, each, place, here))
        for sift in touch.sifted:
            for start in _expand(found, (sift.start,), here):
                found.note(sift.act, cd, _select(found, sift, start, here))
        known = dict(found.unsure)
        for name in _expand(found, touch.reads, here):
            # A pattern or a text of several words is seldom a file, so it counts only if it exists.
            if not re.search(r"[\s*?]", name) or os.path.lexists(os.path.join(here, name)):
                found.note("view", cd, (name,))
        # Reads are frequent and mostly harmless: an incomplete expansion is not a reason to ask.
        found.unsure = known


def _expand(found: Targets, named: Iterable[str], here: str) -> Iterator[str]:
    for name in filter(None, named):
        yield name
        if not _GLOB.search(name):
            continue
        if found.sets_globs or _CLASS.search(name):
            found.unsure["only the shell can expand a pattern of the line"] = None
        home = f"{os.path.expanduser('~')}/" if name.startswith("~/") else ""
        # An unquoted `^` means `!`; a quoted one is an ordinary character.
        for pattern in dict.fromkeys((name, name.replace("[^", "[!"))):
            yield from _expand_pattern(found, pattern[2:] if home else pattern, home, here)


def _expand_pattern(found: Targets, pattern: str, start: str, here: str) -> list[str]:
    """Expand a pattern in a bounded number of steps; `**` as in zsh.

    Threat: `*/../*/../*/../x` makes `glob` list the same directories without end.
    """
    if pattern.startswith("/"):
        start = "/"
    names = [start]
    for part in pattern.strip("/").split("/"):
        if not _GLOB.search(part):
            tried = [os.path.join(name, part) for name in names if found.spend()]
            names = [each for each in tried if os.path.lexists(os.path.join(here, each))]
            continue
        names = [each for name in names for each in _list_matching(found, name, part, here)]
        if len(names) > EXPANDED_MAX * 10:
            found.unsure[_TOO_MANY_NAMES] = None
            return []
    if len(names) > EXPANDED_MAX:
        found.unsure["a pattern expands to more names than are checked"] = None
    return names[:EXPANDED_MAX]


def _list_matching(found: Targets, name: str, part: str, here: str) -> Iterator[str]:
    if part == "**":
        yield name
        below = (each for each, is_folder in _walk(found, os.path.join(here, name)) if is_folder)
        yield from (os.path.join(name, each) for each in below)
    try:
        with os.scandir(os.path.join(here, name)) as entries:
            names = sorted(entry.name for entry in entries if found.spend())
    except OSError:
        # A shell, too, expands nothing in a directory that it cannot read.
        return
    for each in fnmatch.filter(names, part):
        if part.startswith(".") or not each.startswith("."):
            yield os.path.join(name, each)


def _walk(found: Targets, top: str) -> Iterator[tuple[str, bool]]:
    """Yield relative paths, and True for directories. Skip links: their targets are not touched."""
    for place, folders, files in () if os.path.islink(top) else os.walk(top):
        for name in sorted((*folders, *files)):
            path = os.path.join(place, name)
            if not found.spend():
                return
            if not os.path.islink(path):
                yield os.path.relpath(path, top), name in folders


def _list_below(found: Targets, target: str, here: str) -> Iterator[str]:
    top = os.path.join(here, os.path.expanduser(target))
    for count, (name, _) in enumerate(_walk(found, top)):
        if count >= BELOW_MAX:
            found.unsure["a directory holds more names than are checked"] = None
            return
        yield name


def _select(found: Targets, sift: Sift, start: str, here: str) -> Iterator[str]:
    taken: set[str] = set()
    for name, is_folder in _walk(found, os.path.join(here, os.path.expanduser(start))):
        shown = f"{start.rstrip('/')}/{name}"
        is_met = all(_is_met(test, value, shown, is_folder) for test, value in sift.tests)
        if not is_met and os.path.dirname(name) not in taken:
            continue
        if is_folder:
            taken.add(name)
        if len(taken) > BELOW_MAX:
            found.unsure["a directory holds more names than are checked"] = None
            return
        yield os.path.join(sift.target, os.path.basename(name)) if sift.target else shown


def _is_met(test: str, value: str, path: str, is_folder: bool) -> bool:
    if test == "type":
        return is_folder == (value == "d")
    text = path if "path" in test else os.path.basename(path)
    if test.startswith("i"):
        text, value = text.lower(), value.lower()
    return fnmatch.fnmatchcase(text, value)


def _copy_targets(found: Targets, source: str, target: str, here: str) -> Iterator[str]:
    inside = os.path.join(target, os.path.basename(source.rstrip("/")))
    there = os.path.join(here, os.path.expanduser(target))
    # A missing target may be created by an earlier command of the line.
    if os.path.isdir(there) or not (found.is_single or os.path.isfile(there)):
        yield inside
    # A link's relative target is resolved from the directory of the link.
    beside = os.path.dirname(os.path.join(here, os.path.expanduser(target.rstrip("/"))))
    for place in dict.fromkeys((here, beside)):
        for below in _list_below(found, source, place):
            yield from (os.path.join(target, below), os.path.join(inside, below))


def _note_patches(found: Targets, line: CommandLine, cd_paths: list[CdPath]) -> None:
    """Note the files of patches in the line: a client may apply them itself."""
    words = (word.text for command in line.commands for word in command.words)
    # Both as written in the line and without their quotes.
    texts = [text for each in (line.text, *words) for text in _PATCH.findall(each)]
    for text in dict.fromkeys(texts):
        try:
            for operation, path in read_patch(text):
                found.patches |= {(operation, cd_path, path): None for cd_path in cd_paths}
        except ShapeError as error:
            found.unsure[str(error)] = None
    if not texts:
        found.unsure["the line applies a patch that it does not contain"] = None


def _limit(found: Targets, cd_paths: list[CdPath]) -> list[CdPath]:
    distinct = list(dict.fromkeys(cd_paths))
    if len(distinct) > CD_PATHS_MAX:
        found.unsure["the line changes its working directory too often to be followed"] = None
    return distinct[:CD_PATHS_MAX]


def _apply_cd(found: Targets, command: SimpleCommand, cd_paths: list[CdPath]) -> list[CdPath]:
    moved: list[CdPath] = []
    for reading in command.readings:
        words = reading.all_words()
        if reading.head or program_name(words[0].text) not in _MOVES:
            continue
        named = [each for each in words[1:] if each.text not in ("-P", "-L", "-e", "-@", "--")]
        is_known = not any(each.unknown or each.glob or each.alternatives for each in named)
        # `cd -` and `cd +1` mean an earlier directory.
        is_plain = len(named) < 2 and all(each.text[:1] not in ("", "-", "+") for each in named)
        if words[0].text == "popd" or not is_plain:
            found.unsure["the line changes to a directory that its words do not name"] = None
        elif not is_known:
            found.unsure["the line changes to a directory that is only known at run time"] = None
        else:
            directory = named[0].text if named else "~"
            moved += [(*cd_path, directory) for cd_path in cd_paths]
    return moved


def _resolve(found: Targets, cd_path: CdPath, base: str) -> tuple[str, ...]:
    named = tuple(map(os.path.expanduser, cd_path))
    home = os.path.expanduser("~")
    try:
        # `~name` for an unknown user is an ordinary name, as in the shell.
        return resolve_cd(base, tuple(f"./{n}" if n[:1] == "~" else n for n in named), home)
    except ShapeError as error:
        found.unsure[str(error)] = None
        return ()
