"""A person's acts: the commands of Paddock that no agent may run.

Every command that `READING` does not list is one, so a new command is one by default. A test
compares the list with the argument parser. This is a check of words, not a boundary: only the
sandbox restricts a program of another name.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from paddock.pattern import lazy_pattern
from paddock.policy.commands.programs import NESTING
from paddock.policy.commands.words import CommandLine, Reading, SimpleCommand, Word, program_name

READING: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(
        ("where", "tools", "call", "history", "diff", "gate", "doctor", "completion", "help"),
        frozenset({""}),
    ),
    "session": frozenset({"list", "show", "export"}),
    "agent": frozenset({"list", "show"}),
    "policy": frozenset({"check", "explain", "test", "lint", "replay", "diff"}),
    "approvals": frozenset({"list", "show"}),
    # Not `content`: it may show data that policy withholds from an agent.
    "ledger": frozenset({"query", "tail", "verify", "proof", "export"}),
    "collector": frozenset({"status", "verify"}),
    "package": frozenset({"verify", "list", "why"}),
    "bootstrap": frozenset({"verify"}),
    "hook": frozenset({"status"}),
    # Creates a folder below agent_sandbox/, where agents are asked to work.
    "scratch": frozenset({"new"}),
    "sandbox": frozenset({"plan", "caches"}),
    "network": frozenset({"show"}),
    "plane": frozenset({"list"}),
    **dict.fromkeys(
        ("demo", "init", "trust", "run", "admin", "undo", "mcp", "web"), frozenset[str]()
    ),
}
"""Every command with the sub-commands that only read; "" is the command without one.

`call` is itself governed by policy; `run` and `admin` can act as any agent; `mcp` serves any peer.
"""
CLIENT_RUN: Final = frozenset({("hook", ""), ("mcp", "")})
"""Commands that a client starts itself: allowed to a client's child process, not to an agent."""
_ACTING: Final = {
    "call": frozenset({"--yes", "--agent"}),
    "session": frozenset({"--out"}),
    "ledger": frozenset({"--out"}),
    "sandbox": frozenset({"clear"}),
    "network": frozenset({"--refresh"}),
}
"""Words that make a reading command do more: consent, act as another, write, remove."""
WORDS_MAX: Final = 64
"""Words of a command that are checked: a longer command counts as an act."""
_ADDING_WORDS: Final = frozenset({"xargs", "gxargs", "parallel"})
"""Programs that add words which are not in the line."""
_RUNS: Final = frozenset[str]().union(*NESTING.values())
"""Subcommands followed directly by a program: `uv run`."""
_PYTHON: Final = lazy_pattern(r"(?:python|pypy)[\d.]*")
_CODE_OPTION: Final = lazy_pattern(r"-[A-Za-z]*c")
_ENTRY: Final = lazy_pattern(r"\bpaddock\.apps\b")
_FIXED: Final = lazy_pattern(r"""["'][^$`"'\-\\]|[^$`"'\-\\*?\[{~]""")
"""The start of a word that is not an option, whatever its value at run time."""


def find_persons_act(line: CommandLine) -> str:
    return next((act for each in line.commands for act in _acts(each, line.text)), "")


def place_of(arguments: Sequence[str]) -> tuple[str, str]:
    rest = _without_common(arguments)
    name = rest[0] if rest else ""
    has_sub = len(rest) > 1 and "" not in READING.get(name, ()) and not rest[1].startswith("-")
    return name, rest[1] if has_sub else ""


def is_persons_act(arguments: Sequence[str]) -> bool:
    rest = _without_common(arguments)
    if not rest or _asks_for_help(rest):
        return False
    name, sub = place_of(arguments)
    if sub not in READING.get(name, ()):
        return True
    return any(word.partition("=")[0] in _ACTING.get(name, ()) for word in rest)


def _asks_for_help(rest: Sequence[str]) -> bool:
    # Threat: `--help` as an argument of the command, which then acts all the same.
    if rest[0] in ("--version", "--help", "-h"):
        return True
    return rest[0][:1] != "-" and len(rest) < 4 and rest[-1] in ("--help", "-h")


def _without_common(arguments: Sequence[str]) -> list[str]:
    return [
        word
        for before, word in pairwise(("", *arguments))
        if word not in ("--json", "--plane") and before != "--plane" and word[:8] != "--plane="
    ]


def _acts(command: SimpleCommand, text: str) -> Iterator[str]:
    names = {program_name(reading.first(1)[0].text) for reading in command.readings}
    for reading in command.readings:
        program = reading.first(1)[0].text
        name = program_name(program)
        before = reading.words[reading.start - 1].text if reading.start else ""
        is_sure = not reading.head and (reading.start in command.starts or before in _RUNS)
        if name == "paddock":
            words = reading.first(WORDS_MAX)[1:]
            arguments = [_strictest_text(word) for word in words]
            # If the word may not be a program: not `mypy src/paddock init`.
            is_named = program == name or program.endswith("/bin/paddock")
            is_known = is_sure or (is_named and place_of(arguments)[0] in READING)
            adds = len(reading) > WORDS_MAX or not names.isdisjoint(_ADDING_WORDS)
            if is_known and (adds or is_persons_act(arguments)):
                yield " ".join(("paddock", *(word.text for word in words)))
        elif is_sure and _ENTRY.match(program):
            yield program
        elif _PYTHON.fullmatch(name) and _runs_entry(reading, text):
            yield f"{name} with the entry of Paddock's command line"


def _strictest_text(word: Word) -> str:
    """Return the text of a word; if only run time decides it, an option that it might be."""
    if word.is_literal or _FIXED.match(word.source):
        return word.text
    return "--yes"


def _runs_entry(reading: Reading, text: str) -> bool:
    words = [word.text for word in reading.all_words()[1:]]
    code = [word for before, word in pairwise(("", *words)) if _CODE_OPTION.fullmatch(before)]
    if not words or "-" in words:
        # Python reads its program from the input, maybe a here-document of the line.
        code.append(text)
    return any(map(_ENTRY.search, code))
