"""The paths that known programs write or remove, as far as their words tell.

A safety net for a hook that cannot hold a command to the policy: what stands
here was read off the words, unresolved; what does not may still be written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paddock.policy.commands.commandline import Reading, program_name
from paddock.policy.commands.touch import (
    Touch,
    all_below,
    backup_names,
    inside,
    names_directory,
)
from paddock.policy.commands.touched_git import of_git
from paddock.policy.commands.touched_own import REMOVING, of_executed, of_find, of_tar, read_handed
from paddock.policy.commands.touched_packed import PACKERS, of_packer, of_xxd
from paddock.policy.commands.touched_sed import of_sed


@dataclass(frozen=True, slots=True)
class Target:
    """Which words of `programs` are written.

    `operands` is what of the operands: `all`, `last` (a copy's target), `rest` (all but
    the first), `first`, `second`, `pieces` (what `split` names), `none`. `valued` and
    `settings` are options that take a word, `written` those whose value is written.
    `only_with` one of its options operands are written; with one of `all_with` the first
    is, too; with one of `below`, all that stands below them. The value of one of
    `suffixes` comes behind each name; with one of `doubted` words do not tell the names.
    """

    programs: tuple[str, ...]
    operands: str = "none"
    valued: str = ""
    settings: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()
    all_with: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    doubted: tuple[str, ...] = ()


_ROWS: Final = (
    Target(("rm", "rmdir", "unlink", "shred", "tee"), "all"),
    Target(("touch",), "all", "drt", ("--date", "--reference", "--time")),
    Target(("mkdir", "mkfifo"), "all", "m", ("--mode",)),
    Target(("truncate",), "all", "sr", ("--size", "--reference")),
    # A mode such as -w has the look of an option.
    Target(("chmod",), "rest", "", ("--reference",), below=("-R", "--recursive"),
           all_with=("--reference", *(f"-{mode}" for mode in "rwxXstugo"))),
    Target(("chown", "chgrp"), "rest", "", ("--reference", "--from"),
           below=("-R", "--recursive"), all_with=("--reference",)),
    Target(("setfacl",), "all", "mMxX", ("--modify", "--modify-file", "--remove",
           "--remove-file", "--set", "--set-file", "--restore"), below=("-R", "--recursive")),
    Target(("chattr",), "rest", "vp", below=("-R",),
           all_with=tuple(f"-{mode}" for mode in "aAcCdDeFijmPsStTux")),
    Target(("mv", "cp", "ln"), "last", "tS", ("--target-directory", "--suffix"),
           ("-t", "--target-directory"), suffixes=("-S", "--suffix")),
    Target(("install",), "last", "tSmog",
           ("--target-directory", "--suffix", "--mode", "--owner", "--group"),
           ("-t", "--target-directory"), suffixes=("-S", "--suffix")),
    Target(("scp",), "last", "PFiloScDJX"),
    Target(("rsync",), "last", "efBTM", ("--rsh", "--filter", "--exclude", "--include",
           "--files-from", "--block-size", "--temp-dir")),
    Target(("sort", "shuf"), "none", "kStTo", ("--output", "--key", "--field-separator"),
           ("-o", "--output")),
    Target(("perl", "ruby"), "all", "eEIMmF", (), (), ("-i", "-pi", "-ni")),
    Target(("curl",), "none", "XHdAuemxbFTrtwyYzKCEQPU", ("--data", "--header", "--user"),
           ("-o", "--output", "--output-dir", "-D", "--dump-header", "-c", "--cookie-jar",
            "--trace", "--trace-ascii", "--stderr", "--etag-save", "--hsts", "--alt-svc",
            "--libcurl"), doubted=("-K", "--config")),
    Target(("wget",), "none", "", (), ("-O", "-o", "-P", "-a", "--output-document")),
    Target(("gcc", "cc", "g++", "clang", "c++", "ld", "go", "tree", "rustc"), "none", "",
           (), ("-o", "-out")),
    Target(("openssl",), "none", "", (), ("-o", "-out", "-keyout", "-writerand", "-CRLout")),
    Target(("mktemp",), "all", "p", ("--suffix",), ("-p", "--tmpdir"), suffixes=("--suffix",)),
    Target(("zip",), "first", "bnOPstZ", (), ("-O", "--output-file")),
    Target(("link",), "second"),
    Target(("make", "ninja"), "none", "", (), ("-C", "--directory")),
    Target(("unzip",), "none", "", (), ("-d",)),
    Target(("uniq",), "second", "fsw", ("--skip-fields", "--skip-chars", "--check-chars")),
    Target(("patch",), "all", "pidoBDFrVYz", ("--strip", "--input", "--ifdef", "--fuzz"),
           ("-o", "--output", "-r", "--reject-file", "-d", "--directory"),
           doubted=("-B", "-Y", "-z", "--prefix", "--basename-prefix", "--suffix")),
    Target(("split",), "pieces", "abClnt", ("--suffix-length", "--bytes", "--line-bytes",
           "--lines", "--number", "--separator", "--filter", "--additional-suffix"),
           suffixes=("--additional-suffix",), doubted=("--filter",)),
    Target(("csplit",), "pieces", "bn", ("--suffix-format", "--digits"), ("-f", "--prefix"),
           suffixes=("-b", "--suffix-format")),
)  # fmt: skip
_TABLE: Final = {program: row for row in _ROWS for program in row.programs}
_OWN: Final = frozenset({"dd", "find", "git", "sed", "gsed", "tar", "bsdtar", "xxd"})
_UNTOLD: Final = "an option makes names of files that the words of the line do not tell"
_UNREAD_SED: Final = "what sed writes or runs cannot be told from its script"
PROGRAMS: Final = frozenset(_TABLE) | _OWN | PACKERS.keys()
"""Programs at whose words this module looks."""
BY_OPTION: Final = frozenset(program for program, row in _TABLE.items() if row.operands == "none")
"""Of those, the ones that write only what an option names."""
_ELSEWHERE: Final = re.compile(r"[^/]*:")
"""How scp and rsync name another machine."""
_MOVING: Final = frozenset({"mv", "cp", "ln", "install", "scp", "rsync"})
"""Programs that put what they are given into their last operand, or below it."""


def find_touch(readings: Sequence[Reading]) -> Touch:
    """Return what a command would write, remove and copy, as the words of its readings name it."""
    # One with a head of its own guesses at options, where a write would be a guess.
    plain = [(reading, _touch(reading)) for reading in readings if not reading.head]
    handed = [(reading, read_handed(touch)) for reading, touch in plain]
    found = [(reading, each) for reading, each in handed if each is not None]
    whole = Touch()
    for reading, touch in plain:
        whole.add(touch)
        if found and _program(reading) == "find":
            executed = (each for inner, each in found if _is_within(inner, reading))
            whole.add(of_executed(_rest(reading), executed))
    return whole


def _touch(reading: Reading) -> Touch:
    name, words = _program(reading), _rest(reading)
    match name:
        case "dd":
            return Touch([word[3:] for word in words if word.startswith("of=")])
        case "find":
            return of_find(words)
        case "git":
            return of_git(words)
        case "tar" | "bsdtar":
            return of_tar(words)
        case "xxd":
            return of_xxd(words)
        case _ if name in PACKERS:
            return of_packer(name, words)
        case "sed" | "gsed":
            found = of_sed(words)
            return Touch(list(found.files), doubts=[] if found.is_sure else [_UNREAD_SED])
        case _:
            row = _TABLE.get(name)
            return Touch() if row is None else _of_row(name, words, row)


def _of_row(name: str, words: list[str], row: Target) -> Touch:
    operands, values, options = _split(words, row)
    written = [value for value in _of(row.written, values) if value]
    suffixes = _of(row.suffixes, values)
    touch = Touch(doubts=[_UNTOLD] if row.doubted and _has(options, row.doubted) else [])
    if name in REMOVING:
        touch.removed = operands
        return touch
    if _shares(name, options):
        # Threat: what is written by the new name later is this file, and no link tells it.
        sources = operands if written else operands[:-1] or operands
        touch.written += sources
        touch.copied += [all_below(each) for each in sources if name == "cp"]
    if name in _MOVING:
        touch.copied += _brought(name, operands, written)
    if name == "ln" and len(operands) == 1 and not written:
        touch.written.append(inside(".", operands[0]))
    if name == "cp" and _has(options, ("--parents",)):
        places = [(source, target.rstrip("/")) for source, target in touch.copied]
        touch.copied += [(source, f"{target}/{source}") for source, target in places]
        touch.written += [f"{target}/{source}" for source, target in places]
    if name == "mv":
        touch.removed = operands if written else operands[:-1]
    if name == "curl" and _has(options, ("-O", "--remote-name")):
        touch.written += [inside(written[-1] if written else ".", url) for url in operands]
    touch.written += written
    if row.only_with and not _has(options, row.only_with):
        return touch
    if name == "install" and _has(options, ("-d", "--directory")):
        touch.written += operands
        return touch
    if row.operands == "pieces":
        prefixes = _of(row.written, values) if row.written else operands[1:2]
        touch.written += _pieces(name, prefixes[-1:], suffixes)
        return touch
    chosen = operands if _has(options, row.all_with) else _chosen(row, operands, written)
    touch.written += chosen
    touch.written += [f"{each}{suffix}" for each in chosen for suffix in suffixes]
    if row.only_with:
        touch.written += _kept(chosen, options)
    if _has(options, row.below):
        touch.copied += [all_below(each) for each in chosen]
    touch.written = [each for each in touch.written if each not in touch.removed]
    return touch


def _of(named: tuple[str, ...], values: list[tuple[str, str]]) -> list[str]:
    return [value for name, value in values if any(_names(name, option) for option in named)]


def _pieces(name: str, prefix: list[str], suffixes: list[str]) -> list[str]:
    """Return the prefix of the files that `split` makes, or the first of them where it is told."""
    if prefix and not suffixes:
        return [each for each in prefix if each]
    begin = prefix[0] if prefix else ("x" if name == "split" else "xx")
    number, end = "aa" if name == "split" else "", suffixes[-1] if suffixes else ""
    return [*filter(None, prefix), f"{begin}{number}{end or ('' if number else '00')}"]


def _kept(edited: list[str], options: list[str]) -> list[str]:
    """Return the copies that `perl -i.bak` keeps of what it edits."""
    suffixes = [
        option.partition("i")[2]
        for option in options
        if "i" in option and option[1:2] not in "-IMmeEF"
    ]
    return [name for each in edited for end in suffixes if end for name in backup_names(each, end)]


def _shares(name: str, options: list[str]) -> bool:
    """Whether a program makes hard links: one file under one more name."""
    # Behind these letters stands a value.
    flags = [each if each[:2] == "--" else re.split("[tS]", each)[0] for each in options]
    if name == "link":
        return True
    if name == "ln":
        return not _has(flags, ("-s", "--symbolic"))
    return name == "cp" and _has(flags, ("-l", "--link"))


def _brought(name: str, operands: list[str], directories: list[str]) -> list[tuple[str, str]]:
    sources = operands if directories else operands[:-1]
    targets = directories or operands[-1:]
    if name in ("scp", "rsync"):
        targets = [target for target in targets if not _ELSEWHERE.match(target)]
    return [(source, target) for target in targets for source in sources]


def _is_within(inner: Reading, outer: Reading) -> bool:
    is_behind = outer.start < inner.start and inner.end <= outer.end
    return is_behind and inner.words is outer.words


def _program(reading: Reading) -> str:
    return program_name(reading.first(1)[0].text)


def _rest(reading: Reading) -> list[str]:
    return [word.text for word in reading.all_words()[1:]]


def _has(options: list[str], wanted: tuple[str, ...]) -> bool:
    return any(_is_option(option, wanted) for option in options)


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
        case "first":
            return operands[:1]
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
        # What stands on the disk tells better, where that can be looked at: see `Touch.copied`.
        if directories or len(sources) > 1 or names_directory(target):
            made.extend(inside(target, source) for source in sources)
    return made


def _split(words: list[str], row: Target) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Return operands, the options that have a value with it, and the options."""
    operands: list[str] = []
    values: list[tuple[str, str]] = []
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
        name, value, taken = _value(word, words[index : index + 1], row)
        index += taken
        values.append((name, value))
    return operands, values, options


def _names(name: str, option: str) -> bool:
    if option.startswith("--"):
        return name.startswith("--") and len(name) > 2 and option.startswith(name)
    return name == option


def _value(word: str, following: list[str], row: Target) -> tuple[str, str, int]:
    """Return the option that has a value, the value, and how many further words it takes."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if equals:
            return name, value, 0
        takes = any(_names(name, option) for option in (*row.settings, *row.written))
        return (name, following[0], 1) if takes and following else (name, "", 0)
    name, equals, value = word.partition("=")
    if len(name) > 2 and name in row.written:
        # A name of several letters behind one dash: `-out x`, `-out=x`.
        if equals:
            return name, value, 0
        return (word, following[0], 1) if following else (word, "", 0)
    letters = row.valued + "".join(option[1] for option in row.written if len(option) == 2)
    for place, letter in enumerate(word[1:], 2):
        if letter in letters:
            rest = word[place:]
            if rest:
                return f"-{letter}", rest, 0
            return (f"-{letter}", following[0], 1) if following else (f"-{letter}", "", 0)
    return word, "", 0
