"""Parse a line of shell to a `CommandLine`. Total: for any text it terminates without raising."""

import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from paddock.limits import (
    command_chars_max,
    command_code_chars_max,
    command_depth_max,
    command_parts_max,
    program_command_bytes_max,
)
from paddock.pattern import lazy_pattern
from paddock.policy.commands.pattern import find_directory, is_neutral
from paddock.policy.commands.programs import HARMLESS, change_by
from paddock.policy.commands.unwrap import (
    ENVIRONMENT,
    LOOKING_UP,
    STARTING_ENVIRONMENT,
    SeenCommand,
    rough_commands,
    rough_writes,
    see_through,
)
from paddock.policy.commands.walk import EVALUATED, Findings, RawCommand, walk_tree
from paddock.policy.commands.words import CommandLine, Reading, SimpleCommand, Touch, Word
from paddock.policy.commands.writes import find_touch

if TYPE_CHECKING:
    from tree_sitter import Parser

# Text that the parser reads as one token, however long it is.
_OPAQUE: Final = lazy_pattern(
    r"""\\.
      | "\$\(cat[ ]<<'(?P<said>\w+)'\n(?:(?!(?P=said)\n)[^\n]*\n)*(?P=said)\n\)"
      | <<-?+[ \t]*+(?P<quote>['"]?+)(?P<mark>\w++)(?P=quote)
      | '[^']*'
      | "(?:[^"\\]|\\.)*"
      | (?<![^\s;&|()])\#[^\n]*
    """,
    re.VERBOSE | re.DOTALL,
)
_DASH_BEFORE_DOCUMENT: Final = lazy_pattern(rb"(?<=[ \t])-(?=[ \t]*<<)")
"""A word that the grammar loses: `cat - <<E`. With another letter in its place it is found."""
_ESCAPE_IN_DOCUMENT: Final = lazy_pattern(rb"(<<-?[ \t]*+\w++[^\n<]*+\n[ \t]*+)\\[$`\\]")
"""If a document begins with `\\``, the grammar reads its first line as words."""


def count_code_chars(text: str) -> int:
    """Count characters outside quotes, comments and here-documents; inexact over the limit."""
    at, count = 0, 0
    ends: dict[str, list[int]] = {}
    while count <= command_code_chars_max:
        match = _OPAQUE.search(text, at)
        if match is None:
            return count + len(text) - at
        count += match.start() - at
        at = match.end()
        if match["mark"]:
            ends = ends or _line_ends(text)
            start = text.find("\n", at) + 1
            places = ends.get(match["mark"], [])
            found = bisect_left(places, start)
            if start and found < len(places):
                at = places[found]
            else:
                # Without an end mark it is not a here-document but code.
                at = match.start() + 1
                count += 1
    return count


def _line_ends(text: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    at = 0
    for line in text.split("\n"):
        at += len(line) + 1
        found.setdefault(line.lstrip("\t"), []).append(at - 1)
    return found


@cache
def _parser() -> "Parser":
    # A policy without command rules never loads the grammar.
    import tree_sitter  # noqa: PLC0415 - late on purpose
    import tree_sitter_bash  # noqa: PLC0415 - late on purpose

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


SCRIPTS_MAX: Final = 256
"""Nested scripts (`sh -c '…'`) of one line; a script that occurs twice counts once."""
SCRIPTS_CODE_CHARS_MAX: Final = 2 * command_code_chars_max
"""Threat: `env -S env -S …`: each word begins a script that extends to the end of the line."""
READINGS_MAX: Final = 20_000
MOVES_MAX: Final = 4
_TOO_MUCH: Final = "scripts inside scripts, too many to follow"
_TOO_LONG: Final = f"the line is longer than {command_chars_max} characters"
_TOO_MANY: Final = f"the line does not parse, and has more than {command_parts_max} parts"

# Threat: characters that a reader of the line does not see, or sees in another position.
_UNSEEN: Final = lazy_pattern(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


_LITERAL: Final = lazy_pattern(r"exec --(?: '[^']*'(?:\\''[^']*')*)+")
"""A command whose words are all quoted, as `tools.program.literal_line` writes it."""
_LITERAL_WORD: Final = lazy_pattern(r"'[^']*'(?:\\''[^']*')*")

_Command: TypeAlias = tuple[RawCommand, SeenCommand, Touch]


class _Line(Struct):
    found: list[_Command] = []
    writes: dict[str, None] = {}
    reads: dict[str, None] = {}
    run_time: dict[str, None] = {}
    problems: dict[str, None] = {}
    changes: dict[str, None] = {}
    scripts: set[str] = set()
    script_code_chars: int = 0
    readings: int = 0
    moves: list[str] = []
    bound: str = ""
    may_be_any: bool = False
    hiding: dict[str, None] = {}
    has_statement: bool = False


def parse_line(text: str) -> CommandLine:
    """Return the commands of a line of shell, and everything doubtful about it.

    Never raises: text that is not understood has `problems`, and rough `commands` that a deny can
    still match. Over a limit (`command_chars_max`, `command_code_chars_max`, `command_parts_max`,
    `command_depth_max`, those above) the line has a problem, and over all but the second also a
    `bound` and a command that `is_anything`.
    """
    line = _Line()
    # A literal command may be longer: it has few words, and is not parsed.
    is_literal = len(text) <= program_command_bytes_max and _LITERAL.fullmatch(text)
    if len(text) > command_chars_max and (not is_literal or _has_too_much_code(text)):
        _stop(line, _TOO_LONG)
    else:
        _gather(line, text, 0)
    if line.problems:
        line.run_time["the line is not understood"] = None
    if len(line.moves) > MOVES_MAX:
        line.changes[change_by("cd")] = None
    shared = (*line.problems, *line.run_time, *line.changes)
    commands = tuple(
        SimpleCommand(
            raw.text,
            tuple(raw.words),
            tuple(raw.assignments),
            tuple(seen.readings),
            tuple(sorted(set(seen.starts))),
            (*shared, *seen.obstacles),
            is_open=seen.is_open,
            touch=touch,
            writes=tuple(raw.writes),
            is_neutral=not (
                shared or seen.obstacles or not all(map(HARMLESS.fullmatch, raw.assignments))
            )
            and is_neutral(raw.words, is_piped=raw.is_piped and not line.reads),
            is_moved=bool(line.moves),
        )
        for raw, seen, touch in line.found
    )
    touch = Touch()
    for _, _, each in line.found:
        touch.add(each)
    if line.bound:
        # Threat: a deny becomes an ask because the command it denies is beyond a limit.
        unread = Word(text, text, unknown="it is not read")
        commands += (SimpleCommand(text, (unread,), obstacles=shared, is_anything=True),)
    return CommandLine(
        text,
        commands,
        tuple(target for target in line.writes if target not in STREAMS),
        tuple(line.run_time),
        tuple(line.problems),
        line.may_be_any or bool(line.problems),
        tuple(line.hiding),
        tuple(line.reads),
        line.bound,
        tuple(line.moves[:MOVES_MAX]),
        touch,
        line.has_statement,
    )


def _stop(line: _Line, bound: str) -> None:
    line.bound = bound
    line.problems[bound] = None


def _has_too_much_code(text: str) -> bool:
    # The parser's time is quadratic in it.
    return count_code_chars(text) > command_code_chars_max


def _gather(line: _Line, text: str, depth: int, within: _Command | None = None) -> None:
    if depth and _is_too_much(line, text, depth):
        _stop(line, _TOO_MUCH)
        return
    found = _walk(text)
    raws = found.commands
    # Only the outermost shell begins without variables of this line.
    numbers, words = found.numbers, (raw.words for raw in raws)
    found.run_time |= dict.fromkeys(numbers.all_doubts() if depth else numbers.doubts(words))
    line.run_time |= found.run_time
    line.changes |= found.changes
    line.has_statement |= found.has_statement
    line.writes |= dict.fromkeys(found.writes)
    line.reads |= dict.fromkeys(found.reads)
    for assignment in filter(STARTING_ENVIRONMENT.match, found.assigned):
        line.run_time[ENVIRONMENT] = None
        line.may_be_any |= not LOOKING_UP.match(assignment)
        line.hiding[ENVIRONMENT] = None
    line.may_be_any |= not EVALUATED.isdisjoint(found.run_time)
    if found.problems:
        line.problems |= found.problems
        line.writes |= dict.fromkeys(rough_writes(text))
        rough = rough_commands(text)
        if len(rough) > command_parts_max:
            _stop(line, _TOO_MANY)
            return
        # Not the whole text: each of thousands of commands would store and quote it.
        raws = raws + [RawCommand(" ".join(w.text for w in words), list(words)) for words in rough]
    for raw in raws:
        _add(line, raw, depth, within)
    _gather_scripts(line, found.scripts, depth, within)


def _gather_scripts(
    line: _Line, scripts: Iterable[str], depth: int, within: _Command | None
) -> None:
    for script in scripts:
        if script.strip() and script not in line.scripts:
            line.scripts.add(script)
            _gather(line, script, depth + 1, within)


def _is_too_much(line: _Line, script: str, depth: int) -> bool:
    if line.bound or depth > command_depth_max or len(line.scripts) > SCRIPTS_MAX:
        return True
    line.script_code_chars += count_code_chars(script)
    return line.script_code_chars > SCRIPTS_CODE_CHARS_MAX


def _walk(text: str) -> Findings:
    unseen = _UNSEEN.search(text)
    if unseen is not None:
        problem = f"the line contains the control character U+{ord(unseen[0]):04X}"
        return Findings(problems={problem: None})
    if _has_too_much_code(text):
        return Findings(problems={"the line is too long to parse": None})
    if _LITERAL.fullmatch(text):
        words = [Word(each, each) for each in ("exec", "--")]
        sources = (found[0] for found in _LITERAL_WORD.finditer(text))
        words += [Word(each[1:-1].replace("'\\''", "'"), each) for each in sources]
        return Findings([RawCommand(text, words)])
    shown = _ESCAPE_IN_DOCUMENT.sub(rb"\1__", _DASH_BEFORE_DOCUMENT.sub(b"_", text.encode()))
    tree = _parser().parse(shown)
    return walk_tree(tree.root_node, text.encode())


STREAMS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"})


def _add(line: _Line, raw: RawCommand, depth: int, within: _Command | None) -> None:
    words = tuple(raw.words)
    if line.readings > READINGS_MAX:
        _stop(line, _TOO_MUCH)
    if line.bound:
        seen = SeenCommand([Reading(words, 0, len(words))], [0])
    else:
        seen = see_through(words, raw.documents)
    line.readings += len(seen.readings)
    touch = find_touch(seen.readings, seen.starts)
    here = (raw, seen, touch)
    if within is None:
        line.found.append(here)
    line.run_time |= seen.run_time
    line.may_be_any |= seen.may_be_any
    line.hiding |= seen.hiding
    directory = find_directory(words)
    if directory:
        line.moves.append(directory)
    else:
        line.changes |= seen.changes
    _gather_scripts(line, seen.texts, depth, here)
    line.run_time |= dict.fromkeys(touch.doubts)
    if raw.assignments and raw.words:
        head = tuple(Word(text, text) for text in raw.assignments)
        seen.readings.append(Reading(tuple(raw.words), 0, len(raw.words), head))
    _gather_scripts(line, seen.scripts, depth, within)
    seen.readings += seen.input
    if within is not None:
        within[0].writes += raw.writes
        within[1].readings += seen.readings
        within[2].add(touch)
