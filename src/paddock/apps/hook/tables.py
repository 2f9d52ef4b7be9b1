"""A policy as the tables of an image: path patterns, rules by head, programs.

`policy.compiled`, `lean.quick` and `lean.shell` say what each part means. What those cannot decide
is `Unfit`, and there is no image.
"""

from collections.abc import Sequence
from string import ascii_letters, digits
from typing import Final

from paddock.apps.hook.policy_engine import anywhere_of, compile_also
from paddock.policy.actions import ANY, HeadPattern, NamePattern
from paddock.policy.commands.dangers import CAUTIONS_BY_PROGRAM, STARTS
from paddock.policy.commands.seeing import CHANGERS
from paddock.policy.commands.walk import RESERVED
from paddock.policy.commands.words import program_name
from paddock.policy.commands.wrappers import NESTING, SHELLS, WRAPPERS
from paddock.policy.commands.writes import BY_OPTION, PROGRAMS
from paddock.policy.compiled import SECRET
from paddock.policy.engine import Policy
from paddock.policy.matching import comparison_of
from paddock.policy.pathset import PathList, build_index, compile_lists, indexed
from paddock.policy.rules import Otherwise, Profile, Rule
from paddock.values.calls import Json
from paddock.values.decisions import Outcome

HEADS: Final = (
    *(("file", operation) for operation in ("create", "str_replace", "view", "delete")),
    ("mcp", "call"),
    ("shell", "run"),
)
INTERPRETERS: Final = frozenset(
    {
        *("nodejs", "deno", "bun", "Rscript", "osascript", "pwsh", "ed", "ex", "bc", "dc"),
        *("paddock", "gdb", "sqlite3", "psql", "mysql", "apply_patch", "applypatch", "chdir", "dd"),
    }
)
"""Programs that may run what stands on their input, or that a client takes for its own."""


_PLAIN_WORD: Final = frozenset(f"{ascii_letters}{digits}._+/-")


def secret_outside_tables(policy: Policy) -> Json:
    return compile_lists(
        [
            (SECRET, PathList(anywhere_of(layer.patterns), layer.comparison))
            for layer in policy.guards.secret
        ]
    )


def also_tables(patterns: tuple[str, ...]) -> Json:
    return compile_lists([("also", compile_also(patterns))])


def profile_table(profile: Profile) -> Json:
    return {
        "name": profile.name,
        "heads": {head: _head(profile, *head) for head in HEADS},
        "client": (
            tuple(
                (*_operation(rule.pattern.head, rule.outcome), _rule(rule))
                for rule in profile.rules
                if rule.pattern.head.category in (ANY, "client") and rule.pattern.kind is None
            ),
            tuple(
                (*_operation(entry.head, entry.outcome), _otherwise(entry))
                for entry in profile.otherwise
                if entry.head.category in (ANY, "client")
            ),
        ),
    }


def _operation(head: HeadPattern, outcome: Outcome) -> tuple[str, bool]:
    """Return the operation, and whether its case does not count, as `means_head` does."""
    is_wide = outcome is not Outcome.ALLOW
    return head.operation.casefold() if is_wide else head.operation, is_wide


def shell_tables() -> Json:
    starting = frozenset(CHANGERS | WRAPPERS.keys() | SHELLS | INTERPRETERS | {"["})
    special = starting | (PROGRAMS - BY_OPTION)
    given = frozenset(
        name for name, rows in CAUTIONS_BY_PROGRAM.items() if any(r.does == STARTS for r in rows)
    ) - {"git"}
    return (special, BY_OPTION, frozenset(RESERVED), dict(NESTING), starting, given)


def outside_table(patterns: tuple[str, ...]) -> Json:
    """Return programs whose commands may be left to the client, and whether any may be."""
    words = [pattern.split()[0] for pattern in patterns if pattern.split()]
    is_wild = any(not _PLAIN_WORD.issuperset(word) for word in words)
    return (frozenset(program_name(word).casefold() for word in words), is_wild)


def _head(profile: Profile, category: str, operation: str) -> Json:
    untargeted: list[Json] = []
    paths: list[Rule] = []
    names: list[Json] = []
    any_rules: list[Json] = []
    narrow: set[str] = set()
    is_wild = False
    for rule in profile.rules:
        if not rule.pattern.head.matches(category, operation):
            continue
        if rule.pattern.path is not None:
            paths.append(rule)
        elif rule.pattern.name is not None:
            names.append(_name(rule.pattern.name, rule))
        elif rule.command is None:
            untargeted.append(_rule(rule))
        elif rule.command.is_any:
            any_rules.append(_rule(rule))
        elif rule.command.words[0].is_literal:
            narrow.add(program_name(rule.command.words[0].parts[0]).casefold())
        else:
            is_wild = True
    entries = [each for each in profile.otherwise if each.head.matches(category, operation)]
    otherwise = _otherwise(max(entries, key=lambda each: each.outcome)) if entries else None
    commands = (tuple(any_rules), frozenset(narrow), is_wild)
    return (tuple(untargeted), _path_rules(paths), tuple(names), commands, otherwise)


def _path_rules(rules: Sequence[Rule]) -> Json:
    if not rules:
        return None
    items = [
        indexed(number, rule.pattern.path, comparison_of(rule.outcome))
        for number, rule in enumerate(rules)
        if rule.pattern.path is not None
    ]
    return (build_index(items), tuple(_rule(rule) for rule in rules))


def _name(pattern: NamePattern, rule: Rule) -> Json:
    is_wide = rule.outcome is not Outcome.ALLOW
    text = pattern.text.casefold() if is_wide else pattern.text
    return (tuple(text.split(ANY)), is_wide, _rule(rule))


def _rule(rule: Rule) -> Json:
    shown = rule.shown
    place = (shown.text, shown.source, shown.file, shown.line)
    return (int(shown.outcome), *place, rule.said, shown.reason)


def _otherwise(entry: Otherwise) -> Json:
    shown = entry.as_match()
    return (int(shown.outcome), shown.text, shown.source, shown.file, shown.line)
