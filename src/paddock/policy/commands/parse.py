"""A line of shell to a `CommandLine`. Total: whatever the text, it ends and never raises."""

import re
from dataclasses import dataclass, field
from typing import Final

from paddock.limits import command_code_chars_max, command_depth_max
from paddock.policy.commands.commandline import CommandLine, Reading, SimpleCommand, Touch
from paddock.policy.commands.grammar import count_code_chars, parse_tree
from paddock.policy.commands.rough import rough_commands, rough_writes
from paddock.policy.commands.seeing import STARTING_ENVIRONMENT, Seen, see_through
from paddock.policy.commands.tokens import EVALUATED
from paddock.policy.commands.walk import Findings, RawCommand, walk_tree
from paddock.policy.commands.words import Word
from paddock.policy.commands.writes import find_touch

SCRIPTS_MAX: Final = 256
"""Texts inside texts (`sh -c '…'`) that one line may hold; a text that occurs twice counts once."""
SCRIPTS_CODE_CHARS_MAX: Final = 2 * command_code_chars_max
"""What of all of them together may be code.

Threat: `env -S env -S …`, in which each word begins a script that goes on to the end of the line.
"""
READINGS_MAX: Final = 20_000
"""Ways to read the commands of a line that are looked at."""
_TOO_MUCH: Final = "scripts inside scripts, too many to follow"

# Threat: characters that a reader of the line does not see, or sees elsewhere than they stand.
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


@dataclass(slots=True)
class _Line:
    """What is gathered from a line and the scripts in it."""

    found: list[tuple[RawCommand, Seen, Touch]] = field(
        default_factory=list[tuple[RawCommand, Seen, Touch]]
    )
    writes: dict[str, None] = field(default_factory=dict[str, None])
    reads: dict[str, None] = field(default_factory=dict[str, None])
    run_time: dict[str, None] = field(default_factory=dict[str, None])
    problems: dict[str, None] = field(default_factory=dict[str, None])
    changes: dict[str, None] = field(default_factory=dict[str, None])
    scripts: set[str] = field(default_factory=set[str])
    script_code_chars: int = 0
    readings: int = 0
    is_too_much: bool = False
    may_be_any: bool = False


def parse_line(text: str) -> CommandLine:
    """Return the commands of a line of shell, and what is doubtful about it.

    Never raises: text that is not understood is a `CommandLine` with
    `problems`, whose `commands` are what a deny can still be held against.

    Limits: `command_chars_max`, `command_code_chars_max`, `command_depth_max`,
    `SCRIPTS_MAX`, `SCRIPTS_CODE_CHARS_MAX`, `READINGS_MAX`; over them the line
    has a problem, and over those of scripts and readings a command that is anything.
    """
    line = _Line()
    _gather(line, text, 0)
    if line.problems:
        line.run_time["the line is not understood"] = None
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
        )
        for raw, seen, touch in line.found
    )
    touch = Touch()
    for _, _, each in line.found:
        touch.add(each)
    if line.is_too_much:
        # Threat: a deny that becomes an ask, because what it is about stands behind a limit.
        unread = Word(text, text, unknown="it is not read")
        commands += (SimpleCommand(text, (unread,), obstacles=shared, is_anything=True),)
    return CommandLine(
        text,
        commands,
        tuple(line.writes),
        tuple(dict.fromkeys(touch.written)),
        tuple(dict.fromkeys(touch.removed)),
        tuple(dict.fromkeys(touch.copied)),
        tuple(line.run_time),
        tuple(line.problems),
        line.may_be_any or bool(line.problems),
        tuple(dict.fromkeys(touch.doubts)),
        tuple(line.reads),
    )


def _gather(line: _Line, text: str, depth: int) -> None:
    if depth and _is_too_much(line, text, depth):
        line.is_too_much = True
        line.problems[_TOO_MUCH] = None
        return
    problems = _find_unseen(text)
    raws: list[RawCommand] = []
    if not problems:
        found = _walk(text)
        problems = found.problems
        raws = found.commands
        line.run_time |= found.run_time
        line.changes |= found.changes
        line.writes |= dict.fromkeys(target for target in found.writes if target not in STREAMS)
        line.reads |= dict.fromkeys(found.reads)
        if any(STARTING_ENVIRONMENT.match(assignment) for assignment in found.assigned):
            line.run_time["the environment decides which program runs"] = None
            line.may_be_any = True
        line.may_be_any |= not EVALUATED.isdisjoint(found.run_time)
    if problems:
        line.problems |= problems
        line.writes |= dict.fromkeys(rough_writes(text))
        raws = raws + [_rough(words) for words in rough_commands(text)]
    for raw in raws:
        _add(line, raw, depth)


def _rough(words: tuple[Word, ...]) -> RawCommand:
    # Not the whole text: each of thousands of commands would hold and quote it.
    return RawCommand(" ".join(word.text for word in words), list(words))


def _is_too_much(line: _Line, script: str, depth: int) -> bool:
    if line.is_too_much or depth > command_depth_max or len(line.scripts) > SCRIPTS_MAX:
        return True
    line.script_code_chars += count_code_chars(script)
    return line.script_code_chars > SCRIPTS_CODE_CHARS_MAX


def _walk(text: str) -> Findings:
    root = parse_tree(text)
    if root is None:
        found = Findings()
        found.problems["the line is too long to parse"] = None
        return found
    return walk_tree(root, text.encode())


STREAMS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"})
"""Targets of redirections that are no file."""


def _add(line: _Line, raw: RawCommand, depth: int) -> None:
    words = tuple(raw.words)
    if line.readings > READINGS_MAX:
        line.is_too_much = True
        line.problems[_TOO_MUCH] = None
    if line.is_too_much:
        seen = Seen([Reading(words, 0, len(words))], [0])
    else:
        seen = see_through(words, raw.documents)
    line.readings += len(seen.readings)
    touch = find_touch(seen.readings, seen.starts)
    line.found.append((raw, seen, touch))
    line.run_time |= seen.run_time
    line.may_be_any |= seen.may_be_any
    line.changes |= seen.changes
    line.run_time |= dict.fromkeys(touch.doubts)
    if raw.assignments and raw.words:
        head = tuple(Word(text, text) for text in raw.assignments)
        seen.readings.append(Reading(tuple(raw.words), 0, len(raw.words), head))
    for script in seen.scripts:
        if script not in line.scripts:
            line.scripts.add(script)
            _gather(line, script, depth + 1)


def _find_unseen(text: str) -> dict[str, None]:
    match = _UNSEEN.search(text)
    if match is None:
        return {}
    return {f"the line holds the control character U+{ord(match[0]):04X}": None}
