"""The files that sed edits in place, and those that its scripts write.

A script is read command by command, as sed does: the name behind `w` runs to the end of
its line. What is not known here, or runs a program, makes the reading unsure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from paddock.policy.commands.touch import backup_names

# Possessive throughout: a hostile script must not make the search go back.
_SKIPPED: Final = re.compile(r"(?:[\s;}]|#[^\n]*+)*+")
_BRACKETS: Final = r"\[\^?+\]?+(?:\[[:.=][^\]\n]*+\]|[^\]\n])*+\]"
"""In brackets a delimiter means itself."""
_REGEX: Final = rf"(?:\\.|{_BRACKETS}|(?!END)[^\\\[])*+END"
"""A regular expression with the `END` that stands behind it."""
_WORDS: Final = r"(?:\\.|(?!END)[^\\])*+END"
_PATTERN: Final = rf"(?:/{_REGEX.replace('END', '/')}|\\([^\\\n]){_REGEX})[IM]*+"
_ADDRESS: Final = re.compile(
    r"(?:\d++(?:~\d++)?+|\$|" + _PATTERN.replace("END", r"\1") + ")"
    r"(?:\s*+,\s*+(?:[+~]?+\d++|\$|" + _PATTERN.replace("END", r"\2") + "))?+",
    re.DOTALL,
)
_BEFORE: Final = re.compile(r"[\s!]*+")
_BARE: Final = re.compile(r"[{=dDgGhHnNpPxzF]|[qQlL][ \t]*+\d*+|[bTt:v][ \t]*+[^\s;]*+")
_TEXT: Final = re.compile(r"[aic](?:\\.|[^\\\n])*+", re.DOTALL)
_NAMED: Final = re.compile(r"([rRwW])[ \t]*+([^\n]*+)")
_TWO_PARTS: Final = re.compile(
    "(?:"
    + rf"s([^\\\n]){_REGEX}{_WORDS}".replace("END", r"\1")
    + "|"
    + rf"y([^\\\n]){_WORDS}{_WORDS}".replace("END", r"\2")
    + ")",
    re.DOTALL,
)
_FLAGS: Final = re.compile(r"[gpiImM\d]*+(?:w[ \t]*+([^\n]*+))?+")
SCRIPT_CHARS_MAX: Final = 2_000
"""A longer script is asked about: a line may name sed, with its script, a thousand times."""
_OPTIONS_WITH_WORD: Final = "efl"


@dataclass(slots=True)
class SedWords:
    """What stands among the words of one call of sed."""

    scripts: list[str] = field(default_factory=list[str])
    operands: list[str] = field(default_factory=list[str])
    is_in_place: bool = False
    suffix: str = ""
    """Of the copies that are kept of what is edited in place."""
    has_script: bool = False
    """An option named a script, or the file of one."""


@dataclass(frozen=True, slots=True)
class SedWrites:
    """The files that a call of sed writes; whether that is all that it writes or runs."""

    files: tuple[str, ...]
    is_sure: bool


def of_sed(words: Sequence[str]) -> SedWrites:
    """Return what sed writes that gets `words`."""
    found = _read_words(words)
    if not found.has_script:
        found.scripts += found.operands[:1]
        found.operands = found.operands[1:]
    # sed itself joins its scripts by line ends.
    script = "\n".join(found.scripts)
    named, is_sure = _read_script(script) if len(script) <= SCRIPT_CHARS_MAX else ([], False)
    edited = found.operands if found.is_in_place else []
    kept = [name for each in edited if found.suffix for name in backup_names(each, found.suffix)]
    return SedWrites((*edited, *kept, *named), is_sure)


def _read_words(words: Sequence[str]) -> SedWords:
    found = SedWords()
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.operands += left
            break
        if word.startswith("--"):
            _read_long(found, word, left)
        elif word.startswith("-") and word != "-":
            _read_letters(found, word, left)
        else:
            found.operands.append(word)
    return found


def _read_long(found: SedWords, word: str, left: list[str]) -> None:
    name, equals, value = word.partition("=")
    wanted = [
        long
        for long in ("--expression", "--file", "--line-length")
        if name[2:] and long.startswith(name)
    ]
    if wanted and not equals:
        value = left.pop(0) if left else ""
    if "--expression" in wanted:
        found.scripts.append(value)
    found.has_script = found.has_script or not {"--expression", "--file"}.isdisjoint(wanted)
    if name[2:] and "--in-place".startswith(name):
        found.is_in_place = True
        found.suffix = value or found.suffix


def _read_letters(found: SedWords, word: str, left: list[str]) -> None:
    for place, letter in enumerate(word[1:], 2):
        if letter == "i":
            # The rest of the word is the suffix of a copy.
            found.is_in_place = True
            found.suffix = word[place:] or found.suffix
            return
        if letter in _OPTIONS_WITH_WORD:
            value = word[place:] or (left.pop(0) if left else "")
            found.has_script = found.has_script or letter != "l"
            if letter == "e":
                found.scripts.append(value)
            return


def _read_script(script: str) -> tuple[list[str], bool]:
    """Return the files that a script writes, and whether all of it was read."""
    files: list[str] = []
    at = 0
    while True:
        at = _end(_SKIPPED, script, at)
        if at >= len(script):
            return files, True
        address = _ADDRESS.match(script, at)
        at = _end(_BEFORE, script, address.end() if address else at)
        if match := _BARE.match(script, at) or _TEXT.match(script, at):
            at = match.end()
        elif match := _NAMED.match(script, at):
            at = match.end()
            if match[1] in "wW" and match[2]:
                files.append(match[2])
        elif match := _TWO_PARTS.match(script, at):
            flags = _FLAGS.match(script, match.end())
            at = flags.end() if flags else match.end()
            if flags and flags[1]:
                files.append(flags[1])
            if at < len(script) and script[at] not in "; \t\n}#":
                return files, False
        else:
            return files, False


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
