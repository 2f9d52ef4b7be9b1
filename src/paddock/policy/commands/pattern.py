"""Compile and match the command target of a rule, word by word: `git diff *`.

A final `*` matches any words, also none; inside a word any part of it, also newlines. A quoted
`*` is literal. A pattern that no simple command can match does not compile.

An allow matches narrowly: each word is *named* (literally in the rule) or covered by a wildcard.
A covered word must be plain, and must not make the program write or run something (`programs`).
In doubt an allow does not match.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.policy.commands.programs import (
    ASSIGNMENT,
    CAUTIONS_BY_PROGRAM,
    CHANGERS,
    FILTERS_BY_PROGRAM,
    GENERIC,
    GIT_BEFORE,
    GIT_BEFORE_VALUED,
    HARMLESS,
    KNOWN,
    READERS,
    SUBCOMMANDS,
    TRUSTED_BY_PROGRAM,
    VALUED,
    WRAPPERS,
    WRITERS,
    Caution,
    Trusted,
    change_by,
    is_plain_awk,
    is_plain_sed,
    listed,
)
from paddock.policy.commands.words import Reading, SimpleCommand, Word, exact_program, program_name
from paddock.policy.compiled import ONE, RUN, matches_name, matches_text
from paddock.policy.positions import PatternError, quote_toml

_GLOB: Final = lazy_pattern(r"[*?\[]")
_SEEN_THROUGH: Final = lazy_pattern(
    r"time|nice(?: -n \d+)?|g?timeout(?: -k [\d.]+[smhd]?| -s \w+)* [\d.]+[smhd]?"
)
"""Wrappers that an allow ignores: fully written in the line, and without other effects."""
Way = tuple[tuple[Word, ...], tuple[int, ...], bool]
"""The words of a command, the places of programs, and whether it runs in another directory."""
_NOTHING: Final = frozenset({"true", "false", ":"})


def find_loose_word(words: Sequence[Word]) -> str:
    for index, word in enumerate(words):
        if word.unknown or word.inexact:
            return f"{word.source!r}: {word.unknown or word.inexact}"
        is_tame = not (_GLOB.match(word.text) or word.text.startswith("-") or ".." in word.text)
        if word.glob and (index == 0 or not is_tame):
            # Threat: an unquoted pattern expands to a file that is named like an option.
            return f"{word.source!r} may become anything"
        if word.glob and _has_special_operands(program_name(words[0].text), index):
            return f"{word.source!r} may become more than one operand"
    return ""


def find_directory(words: Sequence[Word]) -> str:
    named = [word.text for word in words[1:] if word.text != "--"]
    is_plain = all(word.is_literal for word in words) and words[0].text == "cd"
    return named[0] if is_plain and len(named) == 1 and is_inside(named[0]) else ""


def is_inside(directory: str) -> bool:
    return directory[:1] not in ("", "-", "+", "/", "~") and ".." not in directory.split("/")


def is_neutral(words: Sequence[Word], *, is_piped: bool) -> bool:
    """Return True if a command has no effect besides the others of its line, so needs no rule."""
    if not all(word.is_literal for word in words):
        return False
    program, *_ = texts = [word.text for word in words]
    covered = [""] * len(texts)
    if program in ("test", "["):
        return not find_danger(texts, (0,), 0, [None, *covered[1:]])
    row = FILTERS_BY_PROGRAM.get(program) if is_piped else None
    is_filter = row is not None and not _find_untrusted(texts, 0, covered, row)
    return is_filter or program in _NOTHING or bool(find_directory(words))


def see_exactly(way: Way) -> Iterator[Way]:
    words: tuple[Word, ...] = way[0]
    starts: tuple[int, ...] = way[1]
    is_moved = way[2]
    yield way
    while len(words) > 1:
        texts = [word.text if word.is_literal else "" for word in words]
        program = exact_program(texts[0])
        if len(starts) > 1 and _SEEN_THROUGH.fullmatch(" ".join([program, *texts[1 : starts[1]]])):
            words, starts = words[starts[1] :], tuple(at - starts[1] for at in starts[1:])
        elif program == "git" and texts[1] in ("--no-pager", "-P"):
            words = (words[0], *words[2:])
        elif program == "git" and texts[1:2] == ["-C"] and is_inside("".join(texts[2:3])):
            words, is_moved = (words[0], *words[3:]), True
        else:
            return
        yield words, starts, is_moved


def _has_special_operands(program: str, index: int) -> bool:
    rows = CAUTIONS_BY_PROGRAM.get(program, ())
    return (
        program in TRUSTED_BY_PROGRAM
        or program in WRAPPERS
        or (program in SUBCOMMANDS and index < 2)
        or any(row.holding or any(p[0] != "-" for p in listed(row.prefixes)) for row in rows)
    )


def find_danger(
    words: Sequence[str], starts: Sequence[int], start: int, named: Sequence[str | None]
) -> str:
    """Return what the program at `start` would do by a word that no rule names; else empty.

    `starts`: all programs, each checked separately. `named[i]` is None if the rule names word `i`
    literally, else the literal beginning of the pattern that covers it.
    """
    program = program_name(words[start])
    if start and named[start] is not None:
        return f"{program!r} is started by {words[0]!r}, and no word of the rule names it"
    name = exact_program(words[start])
    if "/" in name and named[start] is not None:
        return f"{words[start]!r} is not a program in a system directory"
    is_covered = named[start] is not None and any(each is not None for each in named[start + 1 :])
    if is_covered and program not in READERS:
        return f"no word of the rule names {program!r}"
    if program in READERS or program in WRITERS:
        return ""
    if program in WRAPPERS:
        stop = min((later for later in starts if later > start), default=len(words))
        for index in range(start + 1, stop):
            word = words[index]
            if named[index] is not None and (word.startswith("-") or ASSIGNMENT.match(word)):
                return f"{word!r} is an option of {program!r}, and no word of the rule names it"
        return ""
    if program in TRUSTED_BY_PROGRAM:
        return _find_untrusted(words, start, named, TRUSTED_BY_PROGRAM[program])
    rows: tuple[Caution, ...] = CAUTIONS_BY_PROGRAM.get(program, ())
    if program in SUBCOMMANDS:
        place = find_subcommand(words, start)
        problem = _find_subcommand_danger(words, start, place, named)
        if problem:
            return problem
        if place < len(words):
            rows += CAUTIONS_BY_PROGRAM.get(f"{program} {words[place]}", ())
    for index in range(start + 1, len(words)):
        beginning = named[index]
        if beginning is None:
            continue
        for row in rows or GENERIC:
            if is_caught(words[index], row, program) and not is_caught(beginning, row, program):
                return f"{words[index]!r} {row.does}, and no word of the rule names it"
    return ""


def find_subcommand(words: Sequence[str], start: int) -> int:
    index = start + 1
    while index < len(words) and words[index].startswith(("-", "+")):
        index += 2 if words[index] in GIT_BEFORE_VALUED else 1
    return min(index, len(words))


def _find_subcommand_danger(
    words: Sequence[str], start: int, place: int, named: Sequence[str | None]
) -> str:
    program = program_name(words[start])
    for index in range(start + 1, place):
        if program == "git" and named[index] is not None and words[index] not in GIT_BEFORE:
            return f"{words[index]!r} before the subcommand, and no word of the rule names it"
    is_covered = place < len(words) and named[place] is not None
    if is_covered and words[place] not in SUBCOMMANDS[program]:
        return f"{program} {words[place]!r} must be named by the rule"
    return ""


def is_caught(word: str, row: Caution, program: str) -> bool:
    if not word.startswith("-") and any(_is_held(part, word) for part in listed(row.holding)):
        return True
    prefixes = listed(row.prefixes)
    # Some programs accept one dash or two.
    if word.startswith(prefixes) or (
        len(word) > 2 and word[:2] == "--" and word[1:].startswith(prefixes)
    ):
        return True
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return bool(name) and any(option.startswith(name) for option in listed(row.long))
    # After a letter with a value comes the value, not another letter.
    ending = row.short + VALUED.get(program, "")
    first = next((letter for letter in word[1:] if letter in ending), " ")
    return word.startswith("-") and first in row.short


def _is_held(part: str, word: str) -> bool:
    text = word.casefold()
    if not part.isidentifier():
        return part in re.sub(r"[ \t]+", "", text)
    return re.search(rf"(?<!\w){part}(?!\w)", text) is not None


def _find_untrusted(
    words: Sequence[str], start: int, named: Sequence[str | None], row: Trusted
) -> str:
    operands: list[int] = []
    values: list[int] = []
    index = start + 1
    while index < len(words):
        word, beginning, at = words[index], named[index], index
        index += 1
        if word == "--":
            # Threat: a later word looks like an option, but is a script or a file.
            operands.extend(range(index, len(words)))
            break
        if not word.startswith("-") or word == "-":
            if at > start + 1 or listed(row.programs)[0] != "tar":
                operands.append(at)
                if row.stops:
                    break
                continue
            # tar's first word is a cluster of options, with a dash or without.
            word = f"-{word}"
        allowed, takes_next, value = _allowed_option(word, row)
        is_more = not allowed and "=" not in (beginning or "")
        if beginning is not None and (is_more or (value and row.script == "sed")):
            return f"{words[at]!r} is not covered by a wildcard: {row.why}"
        if beginning is not None and _holds(row, value):
            return f"{words[at]!r}: {row.why}"
        if takes_next and word == words[at]:
            values.append(index)
            index += 1
    covered = [at for at in range(start + 1, len(words)) if named[at] is not None]
    if len(operands) > row.operands_max and not set(covered).isdisjoint(operands):
        return f"{program_name(words[start])!r} with {len(operands)} operands: {row.why}"
    scripts = (values if row.script == "sed" else []) or operands[:1]
    is_plain = is_plain_sed if row.script == "sed" else is_plain_awk
    for at in covered:
        if _holds(row, words[at]) and at in (*operands, *values):
            return f"{words[at]!r}: {row.why}"
        if row.script and at in scripts and not is_plain(words[at]):
            return f"{words[at]!r} is more than reading: {row.why}"
    return ""


def _holds(row: Trusted, word: str) -> bool:
    return any(part in word for part in listed(row.holding))


def _allowed_option(word: str, row: Trusted) -> tuple[bool, bool, str]:
    if word.startswith("--"):
        name, _, value = word[2:].partition("=")
        return name in listed(row.long), False, value
    for place, letter in enumerate(word[1:], 2):
        if letter in row.valued:
            return True, len(word) == place, word[place:]
        if letter not in row.short:
            return False, False, ""
    return True, False, ""


_PIECE: Final = lazy_pattern(
    r"""'(?P<single>[^']*)'|"(?P<double>[^"]*)"|\\(?P<escaped>.)|(?P<one>.)"""
)
_OPERATORS: Final = frozenset(";&|<>()`")
_LITERAL_PREFIX: Final = lazy_pattern(r"[^*?\[\\]*")
SAME_OPTIONS: Final = {"R": "r", "recursive": "r", "force": "f", "delete": "d", "all": "a"}
"""Names of options, and the letters that usually mean the same."""
_CLUSTER: Final = lazy_pattern(r"-([A-Za-z]{1,5})(?:[0-9./,].*)?", re.DOTALL)
_FILE: Final = lazy_pattern(r"[^./][./]|[./][^./]")
"""Text that names a file or directory; not `.` and `./...`, the working directory."""
ASSIGNED: Final = "an assignment is before the command"
WORDS_DIFFER: Final = "the words do not match"


class PatternWord(Struct, frozen=True):
    """Literal parts with `*` between them; one that `is_folded`, in lower case, ignores case."""

    parts: tuple[str, ...]
    is_folded: bool = False

    @property
    def is_literal(self) -> bool:
        return len(self.parts) == 1

    @property
    def folded(self) -> "PatternWord":
        """The word for a deny or an ask, without case; options keep it: `-d` is not `-D`."""
        if self.parts[0].startswith("-"):
            return self
        return PatternWord(tuple(part.casefold() for part in self.parts), is_folded=True)

    def matches(self, text: str) -> bool:
        if self.is_folded:
            text = text.casefold()
        return matches_text(self.parts, text)

    def may_match(self, word: Word) -> bool:
        if self.matches(word.text):
            return True
        if not word.glob:
            return False
        if self.is_literal:
            pieces = (each.casefold() if isinstance(each, str) else each for each in word.glob)
            glob, text = tuple(pieces) if self.is_folded else word.glob, self.parts[0]
            # A pattern does not match a leading dot.
            is_hidden = text.startswith(".") and glob[0] in (RUN, ONE)
            return not is_hidden and matches_name(glob, text)
        prefix = _LITERAL_PREFIX.match(word.text)
        known = prefix[0] if prefix else ""
        known = known.casefold() if self.is_folded else known
        return known.startswith(self.parts[0]) or self.parts[0].startswith(known)


class CommandPattern(Struct, frozen=True):
    """A compiled command pattern: `words` without a final `*` (`is_open`), `wide` for deny and ask.

    `options` may be anywhere in a command, `operands` are the other words after the program.
    """

    text: str
    words: tuple[PatternWord, ...]
    wide: tuple[PatternWord, ...]
    is_open: bool
    options: frozenset[str] = frozenset()
    operands: tuple[PatternWord, ...] = ()

    @property
    def is_any(self) -> bool:
        return self.is_open and self.words in ((), (PatternWord(("", "")),))

    def matches_any_reading(self, command: SimpleCommand) -> bool:
        return command.is_anything or any(
            self._matches_reading(reading) for reading in command.readings
        )

    def may_come_to_match(self, command: SimpleCommand) -> bool:
        """Return True if it might match once the words known only at run time are known."""
        return any(self._may_become(reading, command.is_open) for reading in command.readings)

    def may_be_started(self, command: SimpleCommand) -> bool:
        """Return True if an unknown program of the command might start it: its words follow."""
        words = command.words
        unknown = (at for at in command.starts if program_name(words[at].text) not in KNOWN)
        places = range(next(unknown, len(words)) + 1, len(words))
        if not self.words or not self.words[0].is_literal:
            return False
        return any(self._matches_reading(Reading(words, at, len(words))) for at in places)

    def matches_exactly(self, command: SimpleCommand) -> bool:
        return self.is_any or not self.find_obstacle(command)

    def find_obstacle(self, command: SimpleCommand) -> str:
        """Return why a narrow allow with this pattern does not cover `command`; else empty."""
        ways = see_exactly((command.words, command.starts, command.is_moved))
        obstacles = [self._find_obstacle(command, way) for way in ways]
        return obstacles[0] if all(obstacles) else ""

    def _find_obstacle(self, command: SimpleCommand, way: Way) -> str:
        words, starts, is_moved = way
        if not words or not self._fits(len(words)):
            return WORDS_DIFFER
        texts = [word.text for word in words]
        as_named = [exact_program(texts[0]), *texts[1:]]
        if not all(word.matches(text) for word, text in zip(self.words, as_named, strict=False)):
            return WORDS_DIFFER
        if command.obstacles:
            return command.obstacles[0]
        if not all(map(HARMLESS.fullmatch, command.assignments)):
            return ASSIGNED
        named = self._named(len(words))
        loose = find_loose_word(words)
        if loose:
            return loose
        for start in starts:
            danger = find_danger(texts, starts, start, named)
            if danger:
                return danger
        names = (text for text, plain in zip(as_named, named, strict=True) if plain is None)
        if is_moved and any(map(_FILE.search, names)):
            # Threat: `cd sub && ./x`, but the rule means another file.
            return "a file is named, and the directory changes"
        if "/" in as_named[0] and named[0] is not None:
            return f"{texts[0]!r} is not a program in a system directory"
        return ""

    def find_bar(self) -> str:
        """Return why an allow with this pattern can never match; else empty."""
        if self.is_any or not self.words[0].is_literal:
            return ""
        if ASSIGNMENT.match(self.text.lstrip(" ")):
            return ASSIGNED
        name = program_name(self.words[0].parts[0])
        # An allow can match `cd`, since a `cd` within the workspace is tracked.
        return change_by(name) if name in CHANGERS and name != "cd" else ""

    def _named(self, count: int) -> list[str | None]:
        named: list[str | None] = [
            None if word.is_literal else word.parts[0] for word in self.words
        ]
        return named + [""] * (count - len(named))

    def _fits(self, count: int) -> bool:
        return count >= len(self.words) if self.is_open else count == len(self.words)

    def _matches_reading(self, reading: Reading) -> bool:
        if self.options and self._matches_anywhere(reading):
            return True
        if not self._fits(len(reading)):
            return False
        if not self.words:
            return True
        found = reading.first(len(self.words))
        if not self._matches_program(found[0]):
            return False
        return all(word.may_match(one) for word, one in zip(self.wide[1:], found[1:], strict=True))

    def _matches_anywhere(self, reading: Reading) -> bool:
        words = reading.all_words()
        if not words or not self._matches_program(words[0]):
            return False
        given = frozenset[str]()
        operands: list[Word] = []
        for at, word in enumerate(words[1:], 1):
            if word.text == "--":
                operands += words[at + 1 :]
                break
            options = _options_of(word.text)
            given |= options
            operands += () if options else (word,)
        if not self.options <= given:
            return False
        wanted = len(self.operands)
        return (len(operands) >= wanted if self.is_open else len(operands) == wanted) and all(
            word.may_match(one) for word, one in zip(self.operands, operands, strict=False)
        )

    def _may_become(self, reading: Reading, is_open: bool) -> bool:
        words = reading.all_words()
        at = next((index for index, word in enumerate(words) if word.unknown), len(words))
        if at == len(words) and not is_open:
            return False
        # An unknown word may be none, one or many; after an option it may be the option's value.
        before = words[:at]
        operands = (*before[:1], *(word for word in before[1:] if word.text[:1] != "-"))
        return (
            self._begins(before, self.wide[1:])
            or self._begins(operands, self.wide[1:])
            or (self.options != frozenset() and self._begins(operands, self.operands))
        )

    def _begins(self, words: tuple[Word, ...], pattern: tuple[PatternWord, ...]) -> bool:
        if not words or not self.words:
            return True
        if len(words) > len(pattern) + 1 and not self.is_open:
            return False
        return self._matches_program(words[0]) and all(
            word.may_match(one) for word, one in zip(pattern, words[1:], strict=False)
        )

    def _matches_program(self, word: Word) -> bool:
        pattern = self.wide[0]
        if pattern.may_match(word):
            return True
        name = program_name(word.text)
        if name == word.text:
            return False
        plain = _plain_path(word.text)
        if pattern.matches(plain) or pattern.matches(name):
            return True
        if pattern.is_literal and _plain_path(pattern.parts[0]) == plain.casefold():
            return True
        # The last component of a path pattern may expand to the program's name.
        return bool(word.glob) and pattern.may_match(Word(name, name, glob=word.name_glob))


def _options_of(text: str) -> frozenset[str]:
    if text.startswith("--") and len(text) > 2:
        name = text[2:].partition("=")[0]
        # An abbreviation counts as every option that it may mean.
        known = (SAME_OPTIONS[long] for long in SAME_OPTIONS if long.startswith(name))
        return frozenset("".join(known)) or frozenset({f"--{name}"})
    cluster = _CLUSTER.fullmatch(text)
    if cluster is not None:
        return frozenset(letter for one in cluster[1] for letter in SAME_OPTIONS.get(one, one))
    return frozenset({text}) if len(text) > 1 and text.startswith("-") else frozenset()


def _plain_path(path: str) -> str:
    return re.sub(r"/(?:\.?/)+", "/", path).removeprefix("./")


def compile_command_pattern(text: str) -> CommandPattern:
    """Compile a pattern; PatternError if it can match nothing."""
    if not text.strip(" "):
        raise PatternError("an empty command pattern matches nothing", 'for any command, write "*"')
    hidden = next((char for char in text if not char.isprintable()), "")
    if hidden:
        raise PatternError(f"the command pattern contains {quote_toml(hidden)}")
    words = _split(text)
    program = words[0].parts
    if len(program) == 1:
        words[0] = PatternWord((exact_program(program[0]),))
        if not program[0] or program[0].endswith("/"):
            raise PatternError(f"no program is named {quote_toml(program[0])}")
    is_open = words[-1].parts == ("", "") and text.endswith("*")
    kept = tuple(words[:-1] if is_open else words)
    wide = tuple(word.folded for word in kept)
    literal = [word.parts[0] if word.is_literal else "" for word in kept]
    options = [_options_of(one) for one in literal[1:]]
    return CommandPattern(
        text,
        kept,
        wide,
        is_open,
        frozenset[str]().union(*options) if "--" not in literal else frozenset(),
        tuple(word for word, found in zip(wide[1:], options, strict=False) if not found),
    )


def _split(text: str) -> list[PatternWord]:
    words: list[PatternWord] = []
    parts: list[str] | None = None
    for match in _PIECE.finditer(text):
        one = match["one"]
        if one == " ":
            if parts is not None:
                words.append(PatternWord(tuple(parts)))
            parts = None
            continue
        if one is not None and one in _OPERATORS:
            raise PatternError(
                f"the command pattern {quote_toml(text)} contains {quote_toml(one)},"
                " which ends a command",
                "a line is judged command by command; quote the character to match it",
            )
        if one is not None and one in "'\"\\":
            raise PatternError(f"the command pattern {quote_toml(text)} has an open quote")
        parts = parts if parts is not None else [""]
        if one == "*":
            parts.append("")
        else:
            parts[-1] += next(piece for piece in match.groups() if piece is not None)
    if parts is not None:
        words.append(PatternWord(tuple(parts)))
    return words
