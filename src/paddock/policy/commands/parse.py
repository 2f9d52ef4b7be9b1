"""A line of shell to a `CommandLine`. Total: whatever the text, it ends and never raises."""

import re
from dataclasses import dataclass, field
from typing import Final

from paddock.limits import command_depth_max
from paddock.policy.commands.commandline import CommandLine, Reading, SimpleCommand
from paddock.policy.commands.grammar import parse_tree
from paddock.policy.commands.rough import rough_commands, rough_writes
from paddock.policy.commands.seeing import STARTING_ENVIRONMENT, Seen, see_through
from paddock.policy.commands.touched import find_touch
from paddock.policy.commands.walk import Findings, RawCommand, walk_tree
from paddock.policy.commands.words import Word

SCRIPTS_MAX: Final = 256
"""Texts inside texts (`sh -c '…'`) that one line may hold; a text that occurs twice counts once."""

# Threat: characters that a reader of the line does not see, or sees elsewhere than they stand.
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


@dataclass(slots=True)
class _Line:
    """What is gathered from a line and the scripts in it."""

    found: list[tuple[RawCommand, Seen]] = field(default_factory=list[tuple[RawCommand, Seen]])
    writes: dict[str, None] = field(default_factory=dict[str, None])
    touched: dict[str, None] = field(default_factory=dict[str, None])
    removed: dict[str, None] = field(default_factory=dict[str, None])
    copied: dict[tuple[str, str], None] = field(default_factory=dict[tuple[str, str], None])
    run_time: dict[str, None] = field(default_factory=dict[str, None])
    problems: dict[str, None] = field(default_factory=dict[str, None])
    changes: dict[str, None] = field(default_factory=dict[str, None])
    scripts: set[str] = field(default_factory=set[str])


def parse_line(text: str) -> CommandLine:
    """Return the commands of a line of shell, and what is doubtful about it.

    Never raises: text that is not understood is a `CommandLine` with
    `problems`, whose `commands` are what a deny can still be held against.

    Limits: `command_chars_max`, `command_code_chars_max`, `command_depth_max`,
    `SCRIPTS_MAX`; over them the line has a problem.
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
        )
        for raw, seen in line.found
    )
    return CommandLine(
        text,
        commands,
        tuple(line.writes),
        tuple(line.touched),
        tuple(line.removed),
        tuple(line.copied),
        tuple(line.run_time),
        tuple(line.problems),
    )


def _gather(line: _Line, text: str, depth: int) -> None:
    problems = _find_unseen(text)
    if depth > command_depth_max or len(line.scripts) > SCRIPTS_MAX:
        problems["scripts inside scripts, too many to follow"] = None
    raws: list[RawCommand] = []
    if not problems:
        found = _walk(text)
        problems = found.problems
        raws = found.commands
        line.run_time |= found.run_time
        line.changes |= found.changes
        line.writes |= dict.fromkeys(target for target in found.writes if target not in STREAMS)
        if any(STARTING_ENVIRONMENT.match(assignment) for assignment in found.assigned):
            line.run_time["the environment decides which program runs"] = None
    if problems:
        line.problems |= problems
        line.writes |= dict.fromkeys(rough_writes(text))
        raws = raws + [RawCommand(text, list(words)) for words in rough_commands(text)]
    for raw in raws:
        _add(line, raw, depth)


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
    seen = see_through(tuple(raw.words), raw.documents)
    line.found.append((raw, seen))
    line.run_time |= seen.run_time
    line.changes |= seen.changes
    touch = find_touch(seen.readings)
    line.touched |= dict.fromkeys(touch.written)
    line.removed |= dict.fromkeys(touch.removed)
    line.copied |= dict.fromkeys(touch.copied)
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
