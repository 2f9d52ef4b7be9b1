"""The command target of a rule: `git diff *`, compiled once, matched often, by words.

A final `*` stands for any words, none included; inside a word for any part of it, newlines
included. Quotes take `*` literally. What no simple command can match does not compile.
"""

import re
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.policy.commands.dangers import KNOWN
from paddock.policy.commands.exact import Way, find_danger, find_loose_word, see_exactly
from paddock.policy.commands.seeing import CHANGERS, change_by
from paddock.policy.commands.words import Reading, SimpleCommand, Word, exact_program, program_name
from paddock.policy.commands.wrappers import ASSIGNMENT, HARMLESS
from paddock.policy.compiled import matches_text
from paddock.policy.places import PatternError, quote_toml

_PIECE: Final = lazy_pattern(
    r"""'(?P<single>[^']*)'|"(?P<double>[^"]*)"|\\(?P<escaped>.)|(?P<one>.)"""
)
_OPERATORS: Final = frozenset(";&|<>()`")
_LITERAL_PREFIX: Final = lazy_pattern(r"[^*?\[\\]*")
SAME_OPTIONS: Final = {"R": "r", "recursive": "r", "force": "f", "delete": "d", "all": "a"}
"""Names of options, and the letters that mostly say the same."""
_CLUSTER: Final = lazy_pattern(r"-([A-Za-z]{1,5})(?:[0-9./,].*)?", re.DOTALL)
_FILE: Final = lazy_pattern(r"[^./][./]|[./][^./]")
"""What names one file or directory; `.` and `./...` stand for where one is."""
ASSIGNED: Final = "an assignment stands before the command"
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
        """The word as a deny or an ask compares it; an option as it is: `-d` is not `-D`."""
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
            case = re.IGNORECASE if self.is_folded else re.NOFLAG
            return re.fullmatch(word.glob, self.parts[0], case) is not None
        prefix = _LITERAL_PREFIX.match(word.text)
        known = prefix[0] if prefix else ""
        known = known.casefold() if self.is_folded else known
        return known.startswith(self.parts[0]) or self.parts[0].startswith(known)


class CommandPattern(Struct, frozen=True):
    """A compiled command pattern: `words` without a final `*` (`is_open`), `wide` for deny and ask.

    `options` are words that may stand anywhere, `operands` the rest without the program.
    """

    text: str
    words: tuple[PatternWord, ...]
    wide: tuple[PatternWord, ...]
    is_open: bool
    options: frozenset[str] = frozenset()
    operands: tuple[PatternWord, ...] = ()

    @property
    def is_any(self) -> bool:
        return (
            self.is_open
            and all(word.parts == ("", "") for word in self.words[:1])
            and (len(self.words) < 2)
        )

    def matches_any_reading(self, command: SimpleCommand) -> bool:
        return command.is_anything or any(
            self._matches_reading(reading) for reading in command.readings
        )

    def may_come_to_match(self, command: SimpleCommand) -> bool:
        """Return whether it might match once the words that only run time tells are known."""
        return any(self._may_become(reading, command.is_open) for reading in command.readings)

    def may_be_started(self, command: SimpleCommand) -> bool:
        """Whether a program of which nothing is known might start it: its words stand behind."""
        words = command.words
        unknown = (at for at in command.starts if program_name(words[at].text) not in KNOWN)
        places = range(next(unknown, len(words)) + 1, len(words))
        if not self.words or not self.words[0].is_literal:
            return False
        return any(self._matches_reading(Reading(words, at, len(words))) for at in places)

    def matches_exactly(self, command: SimpleCommand) -> bool:
        """Return whether an allow with this pattern covers `command`."""
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
            # Threat: `cd sub && ./x`, where the rule means another file.
            return "a file is named, and the directory changes"
        if "/" in as_named[0] and named[0] is not None:
            return f"{texts[0]!r} is no program of a system directory"
        return ""

    def find_bar(self) -> str:
        """Return why a narrow allow with this pattern covers no command at all; else empty."""
        if self.is_any or not self.words[0].is_literal:
            return ""
        if ASSIGNMENT.match(self.text.lstrip(" ")):
            return ASSIGNED
        name = program_name(self.words[0].parts[0])
        # `cd` within the workspace changes nothing that a rule could not tell.
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
        # An unknown word may be none, one or many; with an option before it, it may go with that.
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
        # A pattern of a path: its last component may become the program's name.
        return bool(word.glob) and pattern.may_match(Word(name, name, glob=word.name_glob))


def _options_of(text: str) -> frozenset[str]:
    if text.startswith("--") and len(text) > 2:
        name = text[2:].partition("=")[0]
        # An abbreviation counts as each that it may be.
        known = (SAME_OPTIONS[long] for long in SAME_OPTIONS if long.startswith(name))
        return frozenset("".join(known)) or frozenset({f"--{name}"})
    cluster = _CLUSTER.fullmatch(text)
    if cluster is not None:
        return frozenset(letter for one in cluster[1] for letter in SAME_OPTIONS.get(one, one))
    return frozenset({text}) if len(text) > 1 and text.startswith("-") else frozenset()


def _plain_path(path: str) -> str:
    return re.sub(r"/(?:\.?/)+", "/", path).removeprefix("./")


def compile_command_pattern(text: str) -> CommandPattern:
    """Return the compiled pattern.

    Raises:
        PatternError: a ValueError; the pattern can match nothing.

    """
    if not text.strip(" "):
        raise PatternError("an empty command pattern matches nothing", 'for any command, write "*"')
    hidden = next((char for char in text if not char.isprintable()), "")
    if hidden:
        raise PatternError(f"the command pattern holds {quote_toml(hidden)}")
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
                f"the command pattern {quote_toml(text)} holds {quote_toml(one)},"
                " which ends a command",
                "a line is judged command by command; quote the character if it is meant",
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
