"""The paths that known programs write or remove, as far as their words tell.

A safety net for a hook that cannot hold a command to the policy: what stands
here was read off the words, unresolved; what does not may still be written.
"""

import re
from dataclasses import dataclass
from typing import Final

from paddock.policy.commands.commandline import Reading, program_name
from paddock.policy.commands.touched_own import (
    REMOVING,
    inside,
    names_directory,
    of_find,
    of_git,
    of_sed,
)


@dataclass(frozen=True, slots=True)
class Target:
    """Which words of `programs` are written.

    `operands` is what of the operands: `all`, `last` (a copy's target), `rest`
    (all but the first), `second`, `none`. `valued` and `settings` are options
    that take a word, `written` those whose value is written.
    """

    programs: tuple[str, ...]
    operands: str = "none"
    valued: str = ""
    settings: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()


_ROWS: Final = (
    Target(("rm", "rmdir", "unlink", "shred", "tee", "gzip", "gunzip", "bzip2", "xz"), "all"),
    Target(("touch",), "all", "drt", ("--date", "--reference", "--time")),
    Target(("mkdir", "mkfifo"), "all", "m", ("--mode",)),
    Target(("truncate",), "all", "sr", ("--size", "--reference")),
    Target(("chmod", "chown", "chgrp", "setfacl", "chattr"), "rest", "", ("--reference",)),
    Target(("mv",), "last", "tS", ("--target-directory", "--suffix"), ("-t", "--target-directory")),
    Target(("cp", "ln"), "last", "tS", ("--target-directory", "--suffix"),
           ("-t", "--target-directory")),
    Target(("install",), "last", "tSmog",
           ("--target-directory", "--suffix", "--mode", "--owner", "--group"),
           ("-t", "--target-directory")),
    Target(("scp",), "last", "PFiloScDJX"),
    Target(("rsync",), "last", "efBTM", ("--rsh", "--filter", "--exclude", "--include",
           "--files-from", "--block-size", "--temp-dir")),
    Target(("sort", "shuf"), "none", "kStTo", ("--output", "--key", "--field-separator"),
           ("-o", "--output")),
    Target(("perl", "ruby"), "all", "eEIMmF", (), (), ("-i", "-pi", "-ni")),
    Target(("curl",), "none", "", (), ("-o", "--output", "-D", "-c", "--cookie-jar")),
    Target(("wget",), "none", "", (), ("-O", "-o", "-P", "-a", "--output-document")),
    Target(("gcc", "cc", "g++", "clang", "c++", "ld", "go", "tree", "openssl", "rustc"), "none", "",
           (), ("-o", "-out")),
    Target(("tar", "bsdtar", "make", "ninja"), "none", "", (), ("-C", "--directory")),
    Target(("unzip",), "none", "", (), ("-d",)),
    Target(("uniq", "xxd"), "second", "fswcgolsn"),
    Target(("patch",), "all", "pidoBDFrVYz", (), ("-o",)),
    Target(("split", "csplit"), "second", "abClnt"),
)  # fmt: skip
_TABLE: Final = {program: row for row in _ROWS for program in row.programs}
_OWN: Final = frozenset({"dd", "find", "git", "sed", "gsed"})
PROGRAMS: Final = frozenset(_TABLE) | _OWN
"""Programs at whose words this module looks."""
BY_OPTION: Final = frozenset(program for program, row in _TABLE.items() if row.operands == "none")
"""Of those, the ones that write only what an option names."""
_ELSEWHERE: Final = re.compile(r"[^/]*:")
"""How scp and rsync name another machine."""
_MOVING: Final = frozenset({"mv", "cp", "ln", "install", "scp", "rsync"})
"""Programs that put what they are given into their last operand, or below it."""


def find_touched(reading: Reading) -> tuple[str, ...]:
    """Return the paths that the command would write, as its words name them."""
    name = program_name(reading.first(1)[0].text)
    words = [word.text for word in reading.all_words()[1:]]
    if name == "dd":
        return tuple(word[3:] for word in words if word.startswith("of="))
    if name == "find":
        return tuple(of_find(words).written)
    if name == "git":
        return tuple(of_git(words).written)
    if name in ("sed", "gsed"):
        return tuple(of_sed(words))
    row = _TABLE.get(name)
    if row is None or name in REMOVING:
        return ()
    operands, written, options = _split(words, row)
    if row.only_with and not any(_is_option(option, row.only_with) for option in options):
        return tuple(written)
    if name == "install" and any(_is_option(each, ("-d", "--directory")) for each in options):
        return (*written, *operands)
    return (*written, *_chosen(row, operands, written))


def find_removed(reading: Reading) -> tuple[str, ...]:
    """Return the paths that would be gone after the command, as its words name them."""
    name = program_name(reading.first(1)[0].text)
    words = [word.text for word in reading.all_words()[1:]]
    if name == "find":
        return tuple(of_find(words).removed)
    if name == "git":
        return tuple(of_git(words).removed)
    if name in REMOVING:
        return tuple(_split(words, _TABLE[name])[0])
    if name == "mv":
        operands, directories, _ = _split(words, _TABLE[name])
        return tuple(operands if directories else operands[:-1])
    return ()


def find_copied(reading: Reading) -> tuple[tuple[str, str], ...]:
    """Return sources with the target that they, or what is below them, come to stand in."""
    name = program_name(reading.first(1)[0].text)
    if name not in _MOVING:
        return ()
    operands, directories, _ = _split([each.text for each in reading.all_words()[1:]], _TABLE[name])
    sources = operands if directories else operands[:-1]
    targets = directories or operands[-1:]
    if name in ("scp", "rsync"):
        targets = [target for target in targets if not _ELSEWHERE.match(target)]
    return tuple((source, target) for target in targets for source in sources)


def _is_option(option: str, wanted: tuple[str, ...]) -> bool:
    # A cluster such as -ni, a suffix such as -i.bak, an abbreviation such as --in-pl.
    if option.startswith("--"):
        return any(long.startswith(option.partition("=")[0]) for long in wanted)
    return any(letters[1:] and letters[-1] in option for letters in wanted if letters[1] != "-")


def _chosen(row: Target, operands: list[str], written: list[str]) -> list[str]:
    match row.operands:
        case "all":
            return operands
        case "rest":
            return operands[1:]
        case "second":
            return operands[1:2]
        case "last":
            return _copies(operands, written)
        case _:
            return []


def _copies(operands: list[str], directories: list[str]) -> list[str]:
    """Return the target, and the files that would be in it if it is a directory."""
    sources = operands if directories else operands[:-1]
    targets = directories or operands[-1:]
    made = list(targets)
    for target in targets:
        # What stands on the disk tells better, where that can be looked at: see `find_copied`.
        if directories or len(sources) > 1 or names_directory(target):
            made.extend(inside(target, source) for source in sources)
    return made


def _split(words: list[str], row: Target) -> tuple[list[str], list[str], list[str]]:
    """Return operands, the values of `written` options, and the options."""
    operands: list[str] = []
    written: list[str] = []
    options: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            operands.extend(words[index:])
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        options.append(word)
        value, taken = _value(word, words[index : index + 1], row)
        index += taken
        name = word.partition("=")[0] if word.startswith("--") else word
        if value and any(_names(name, option) for option in row.written):
            written.append(value)
    return operands, written, options


def _names(name: str, option: str) -> bool:
    if option.startswith("--"):
        return name.startswith("--") and len(name) > 2 and option.startswith(name)
    return (not name.startswith("--") and name.startswith(option)) or (
        len(option) == 2 and not name.startswith("--") and option[1] in name[1:]
    )


def _value(word: str, following: list[str], row: Target) -> tuple[str, int]:
    """Return the value of an option and how many further words it takes."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if equals:
            return value, 0
        takes = name in row.settings or any(_names(name, option) for option in row.written)
        return (following[0], 1) if takes and following else ("", 0)
    for option in row.written:
        if not option.startswith("--") and len(option) > 2 and word == option:
            return (following[0], 1) if following else ("", 0)
    letters = row.valued + "".join(option[1] for option in row.written if len(option) == 2)
    for place, letter in enumerate(word[1:], 2):
        if letter in letters:
            rest = word[place:]
            return (rest, 0) if rest else ((following[0], 1) if following else ("", 0))
    return "", 0
