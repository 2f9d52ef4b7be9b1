"""A person's acts: what of Paddock's own command line no agent runs.

Each command is one that `READING` does not name: a new one is, too. The list stands here since
rules are asked of it before anything runs; a test holds it against the parser. A net and no
wall: what holds a program of another name is the sandbox.
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
    # Not `content`: what policy withholds from an agent may stand there.
    "ledger": frozenset({"query", "tail", "verify", "proof", "export"}),
    "collector": frozenset({"status", "verify"}),
    "package": frozenset({"verify", "list", "why"}),
    "bootstrap": frozenset({"verify"}),
    "hook": frozenset({"status"}),
    # A new folder below agent_sandbox/, where agents are told to work.
    "scratch": frozenset({"new"}),
    "sandbox": frozenset({"plan", "caches"}),
    "network": frozenset({"show"}),
    "plane": frozenset({"list"}),
    **dict.fromkeys(
        ("demo", "init", "trust", "run", "admin", "undo", "mcp", "web"), frozenset[str]()
    ),
}
"""Every command with the sub-commands that only read; "" is the command without one.

`call` is governed itself; `run` and `admin` work as any agent; `mcp` serves whoever talks to it.
"""
CLIENT_RUN: Final = frozenset({("hook", ""), ("mcp", "")})
"""What a client starts by itself: no agent types it, and it is not refused to a client's child."""
_ACTING: Final = {
    "call": frozenset({"--yes", "--agent"}),
    "session": frozenset({"--out"}),
    "ledger": frozenset({"--out"}),
    "sandbox": frozenset({"clear"}),
    "network": frozenset({"--refresh"}),
}
"""Words by which a reading command does more: consents, acts as another, writes, removes."""
WORDS_MAX: Final = 64
"""Words of a command that are looked at: a longer one is an act."""
_GIVEN_WORDS: Final = frozenset({"xargs", "gxargs", "parallel"})
"""Programs that add words which are not in the line."""
_RUNS: Final = frozenset[str]().union(*NESTING.values())
"""`uv run`: what stands right behind it is the program."""
_PYTHON: Final = lazy_pattern(r"(?:python|pypy)[\d.]*")
_CODE_OPTION: Final = lazy_pattern(r"-[A-Za-z]*c")
_ENTRY: Final = lazy_pattern(r"\bpaddock\.apps\b")
_FIXED: Final = lazy_pattern(r"""["'][^$`"'\-\\]|[^$`"'\-\\*?\[{~]""")
"""How a word begins that is no option, whatever it becomes at run time."""


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
    # Threat: an argument of that name, which changes nothing of what is done.
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
            told = [_told(word) for word in words]
            # Of a word that may be no program: not `mypy src/paddock init`.
            is_named = program == name or program.endswith("/bin/paddock")
            is_known = is_sure or (is_named and place_of(told)[0] in READING)
            adds = len(reading) > WORDS_MAX or not names.isdisjoint(_GIVEN_WORDS)
            if is_known and (adds or is_persons_act(told)):
                yield " ".join(("paddock", *(word.text for word in words)))
        elif is_sure and _ENTRY.match(program):
            yield program
        elif _PYTHON.fullmatch(name) and _runs_entry(reading, text):
            yield f"{name} with the entry of Paddock's command line"


def _told(word: Word) -> str:
    """A word as it will be; where it is known at run time alone, the option that it might be."""
    if word.is_literal or _FIXED.match(word.source):
        return word.text
    return "--yes"


def _runs_entry(reading: Reading, text: str) -> bool:
    words = [word.text for word in reading.all_words()[1:]]
    code = [word for before, word in pairwise(("", *words)) if _CODE_OPTION.fullmatch(before)]
    if not words or "-" in words:
        # The program stands on its input, maybe as a here-document of the line.
        code.append(text)
    return any(map(_ENTRY.search, code))
