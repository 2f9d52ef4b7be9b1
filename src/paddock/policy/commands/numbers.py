"""Find arithmetic in which only numbers take part.

Threat: arithmetic evaluates what a variable holds, and a subscript in it runs commands: after
`i='a[$(git push)]'`, `$((i))` pushes. A counter holds a number in whatever order the commands of
the line run: each assignment to it is one of a number, and no command of the line can assign
variables in another way.
"""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.policy.commands.words import Word

COMPUTED: Final = "a number is only known at run time"
_COUNT: Final = r"\d+|\$[?#$!]|\$\{#(?:[@*]|\w+(?:\[[@*]\])?)\}"
_NAME: Final = r"[a-z_][a-z0-9_]*"
"""Upper-case names may come from the environment."""
_OPERAND: Final = rf"(?:{_COUNT}|\$?{_NAME}|\$\{{{_NAME}\}})"
_SIGNS: Final = r"[\s*/%()<>=!&|^~?:+,;-]"
_COUNTED: Final = lazy_pattern(
    rf"\w+\[(?P<index>[@*]|-?{_OPERAND})\]|\$?\(\((?P<sum>(?:{_OPERAND}|{_SIGNS})*)\)\)"
    rf'|\[\[\s+(?P<left>"?{_OPERAND}"?)\s+-(?:eq|ne|lt|le|gt|ge)\s+(?P<right>"?{_OPERAND}"?)\s+\]\]'
)
_JOINED: Final = lazy_pattern(r"[\w})]\$|\}\w|\d[a-zA-Z_]")
"""Operands without a sign between them: `a$b` names another variable."""
_NAMES: Final = lazy_pattern(rf"(?<![\w#]){_NAME}")
_SET: Final = lazy_pattern(rf"(?<![\w$#])({_NAME})\s*=(?!=)")
_NUMBER: Final = lazy_pattern(rf'(?P<quote>"?)-?(?:\d*|{_COUNT})(?P=quote)')
_RANGE: Final = lazy_pattern(r"-?\d+|\{-?\d+\.\.-?\d+(?:\.\.-?\d+)?\}")
_ASSIGNED: Final = lazy_pattern(r"(?P<name>[A-Za-z_]\w*)(?:\+?=(?P<value>.*)|\[.*)", re.DOTALL)
_DEFAULT: Final = lazy_pattern(rb"\$\{[^}]*=")
"""`${x:=value}` assigns, too."""
_PLAIN: Final = lazy_pattern(r"\[|:|[\w./+-]+")
_SETTING: Final = lazy_pattern(r"[-+][euxo]+|pipefail|errexit|nounset|xtrace")
_ASSIGNING: Final = frozenset(
    # Of bash, then of zsh; and what runs a builtin, or text, that is named after it.
    "mapfile readarray getopts let declare typeset unset bind complete compgen compopt "
    "print vared integer float private zstat zparseopts zselect zformat strftime pcre_match sched "
    "getln sysread syswrite sysopen sysseek zsocket ztcp zcurses zle zmodload autoload functions "
    "command builtin exec eval source . trap alias coproc enable fc history time noglob nocorrect "
    "- emulate repeat".split()
)


class Numbers(Struct):
    """Arithmetic of a line, and the variables that it assigns, with True if only numbers."""

    evaluated: list[tuple[str, frozenset[str] | None]] = []
    """Why it is in doubt, and the names of its variables; None if it is not plain."""
    assigned: dict[str, bool] = {}
    has_defaults: bool = False

    def evaluate(self, source: str, why: str) -> None:
        names = _find_names(source)
        self.evaluated.append((COMPUTED if names == frozenset() else why, names))
        for name in _SET.findall(source) if names else ():
            self._give(name, is_number=True)

    def assign(self, source: str) -> None:
        found = _ASSIGNED.fullmatch(source)
        if found is not None:
            value = found["value"]
            self._give(found["name"], is_number=value is not None and _is_number(value))

    def loop(self, name: str, values: Iterable[str]) -> None:
        given = list(values)
        self._give(name, is_number=given != [] and all(map(_RANGE.fullmatch, given)))

    def doubts(self, commands: Iterable[list[Word]]) -> list[str]:
        """Return what is in doubt, if a shell begins with this line."""
        counters = {name for name, is_number in self.assigned.items() if is_number}
        for words in commands:
            taken = _assigned_by(words)
            if taken is None or self.has_defaults:
                return self.all_doubts()
            counters -= taken
        return [
            COMPUTED if names is not None and names <= counters else why
            for why, names in self.evaluated
        ]

    def all_doubts(self) -> list[str]:
        return [why for why, _ in self.evaluated]

    def _give(self, name: str, *, is_number: bool) -> None:
        self.assigned[name] = self.assigned.get(name, True) and is_number


def holds_default(data: bytes) -> bool:
    return _DEFAULT.search(data) is not None


def _find_names(source: str) -> frozenset[str] | None:
    found = _COUNTED.fullmatch(source)
    parts = [found[part] or "" for part in ("index", "sum", "left", "right")] if found else []
    if found is None or any(map(_JOINED.search, parts)):
        return None
    return frozenset(name for part in parts for name in _NAMES.findall(part))


def _is_number(value: str) -> bool:
    if _NUMBER.fullmatch(value):
        return True
    plain = value[1:-1] if value[:1] == value[-1:] == '"' else value
    return plain.startswith("$((") and _find_names(plain) is not None


def _assigned_by(words: list[Word]) -> frozenset[str] | None:
    """Return the variables that a command assigns besides those of assignments; None: any."""
    if words and not _PLAIN.fullmatch(words[0].source):
        return None
    name, rest = words[0].source if words else "", words[1:]
    sources = [word.source for word in rest]
    match name:
        case "read":
            names = [each for each in sources if each != "-r"]
            return frozenset(names) if all(map(str.isidentifier, names)) else None
        case "printf":
            is_plain = rest != [] and rest[0].is_literal and not rest[0].text.startswith("-")
        case "wait":
            is_plain = rest == []
        case "set":
            is_plain = all(map(_SETTING.fullmatch, sources))
        case "export" | "local" | "readonly":
            # Braces give several values, and the grammar then sees no assignment.
            given = [each.partition("=") for each in sources]
            taken = frozenset(name for name, _, value in given if not _is_number(value))
            return taken if all(name.isidentifier() for name, _, _ in given) else None
        case _:
            is_plain = name not in _ASSIGNING
    return frozenset() if is_plain else None
