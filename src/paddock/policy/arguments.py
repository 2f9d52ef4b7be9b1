"""`when` of a rule: conditions on the arguments of a call.

    when = { "/path" = { path = "docs/**" }, "limit" = { max = 100 }, "/state" = { in = ["open"] } }
    only = true

A key is a JSON pointer (RFC 6901); a bare name is a member of the arguments. All keys have to
hold. An argument that is missing, null or of another type keeps an allow from matching, but not an
ask or a deny. In an array, an allow needs every element to hold, an ask or a deny only one. `only`,
for an allow: no argument may be given that no key names.

Threat: the server may read a value differently. Nothing is coerced, and a path that two readers
may resolve differently (`a/../b`, `%2e`, a backslash) does not count as a path.
"""

import json
import re
from collections.abc import Iterator, Sequence
from math import inf, isfinite
from typing import Any, Final, Literal, cast

from msgspec import Struct

from paddock.policy.compiled import (
    ANY,
    ONE,
    RUN,
    argument_holds,
    find_argument,
    has_only,
    kind_of,
)
from paddock.policy.pathset import PathPattern, build_index, comparison_of, compile_target
from paddock.policy.positions import NonEmpty, PatternError, Table, quote_toml
from paddock.values.calls import Json
from paddock.values.decisions import Outcome

Way = tuple[str, ...]
ConditionKind = Literal["path", "glob", "range", "in"]

_KINDS: Final = {
    "path": "path",
    "glob": "glob",
    "min": "range",
    "max": "range",
    "in": "in",
}


class ArgumentCondition(Struct, frozen=True):
    """A condition on one argument; `wanted`: a pattern, a text, two bounds, or values."""

    pointer: str
    way: Way
    kind: ConditionKind
    wanted: Json

    @property
    def said(self) -> str:
        if self.kind == "range":
            bounds = zip(("min", "max"), self.wanted, strict=True)
            given = (f"{name} = {json.dumps(value)}" for name, value in bounds if isfinite(value))
            return f"{json.dumps(self.pointer)} = {{ {', '.join(given)} }}"
        wanted = self.wanted.text if isinstance(self.wanted, PathPattern) else self.wanted
        return f"{json.dumps(self.pointer)} = {{ {self.kind} = {json.dumps(wanted)} }}"

    def compiled(self, outcome: Outcome) -> Json:
        wanted = self.wanted
        if isinstance(wanted, PathPattern):
            wanted = build_index([(0, wanted, comparison_of(outcome))])
        elif self.kind == "glob":
            found = (piece for piece in re.split(r"([*?])", wanted) if piece)
            wanted = tuple({ANY: RUN, "?": ONE}.get(piece, piece) for piece in found)
        return self.way, self.kind, wanted


class When(Struct, frozen=True):
    conditions: tuple[ArgumentCondition, ...]
    only: bool = False

    @property
    def said(self) -> str:
        only = ", only = true" if self.only else ""
        return f"when = {{ {', '.join(each.said for each in self.conditions)} }}{only}"

    def compiled(self, outcome: Outcome) -> Json:
        return tuple(each.compiled(outcome) for each in self.conditions), self.only

    def find_miss(self, arguments: Json, outcome: Outcome) -> str:
        """Say why the arguments do not match; empty if they do."""
        is_allow = outcome is Outcome.ALLOW
        for each in self.conditions:
            value = find_argument(arguments, each.way)
            _, kind, wanted = each.compiled(outcome)
            if not argument_holds(kind, wanted, value, is_allow):
                given = quote_toml(value) if kind_of(value) else "missing, or of another type"
                return f"its {each.said} does not hold: it is {given}"
        is_more = self.only and not has_only(arguments, [e.way for e in self.conditions])
        return "it allows no further arguments" if is_more else ""


def parse_pointer(text: str) -> Way:
    if not text.startswith("/"):
        return (text,)
    if re.search(r"~(?![01])", text):
        hint = "in a JSON pointer write ~0 for ~, and ~1 for /"
        raise PatternError(f"{quote_toml(text)} is not a JSON pointer", hint)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


REDACTED: Final = {"redacted": True}


def redact(value: Json, pointers: Sequence[str]) -> Json:
    """Replace the values at the pointers; a pointer applies to each element of an array."""
    return _redact(value, [parse_pointer(each) for each in pointers])


def _redact(value: Json, ways: Sequence[Way]) -> Json:
    if () in ways:
        return dict(REDACTED)
    if ways and isinstance(value, dict):
        members = cast("dict[str, Json]", value).items()
        return {
            name: _redact(each, [way[1:] for way in ways if way[0] == name])
            for name, each in members
        }
    if ways and isinstance(value, list):
        return [
            _redact(each, [*ways, *(way[1:] for way in ways if way[0] == str(number))])
            for number, each in enumerate(cast("list[Json]", value))
        ]
    return value


def read_when(table: Table, category: str, outcome: Outcome) -> When:
    conditions = table.table("when")
    found = () if conditions is None else tuple(_read_conditions(conditions))
    only: bool = table.read("only", bool, False)
    if category != "mcp":
        name = "when" if table.has("when") else "only"
        message = f"{name} is in a rule of {table.title} for calls without arguments"
        table.problem(name, message, "only a rule for tool:mcp: checks arguments")
    elif only and outcome is not Outcome.ALLOW:
        message = f"only is in a rule of {table.title} that does not allow"
        table.problem("only", message, "an ask or a deny holds whatever else is given")
    return When(found, only)


def _read_conditions(table: Table) -> Iterator[ArgumentCondition]:
    known: set[Way] = set()
    for name, entry in table.each():
        try:
            way = parse_pointer(name)
            if way in known or not name:
                message = f"{quote_toml(name)} in {table.title} is empty or names an argument twice"
                raise PatternError(message, "put all conditions of an argument into one key")
            known.add(way)
            yield _read_condition(name, way, entry)
        except PatternError as problem:
            table.problem(name, problem.message, problem.hint)


def _read_condition(name: str, way: Way, entry: Table) -> ArgumentCondition:
    given = [each for each in _KINDS if entry.has(each)]
    entry.finish()
    kinds = {_KINDS[each] for each in given}
    if len(kinds) != 1:
        hint = "give one: { path = … }, { glob = … }, { min = …, max = … } or { in = […] }"
        raise PatternError(f"{entry.title} needs exactly one kind of condition", hint)
    kind = kinds.pop()
    if kind == "path":
        return ArgumentCondition(
            name, way, "path", compile_target(entry.read("path", NonEmpty, ""))
        )
    if kind == "glob":
        return ArgumentCondition(name, way, "glob", entry.read("glob", NonEmpty, ""))
    if kind == "in":
        among: tuple[Json, ...] = entry.read("in", tuple[Any, ...], ())
        if not among or not all(map(kind_of, among)):
            hint = "write texts, finite numbers, true or false"
            raise PatternError(f"in of {entry.title} is not a list of values", hint)
        return ArgumentCondition(name, way, "in", among)
    low, high = (entry.read(each, Any, bound) for each, bound in _BOUNDS)
    if any(kind_of(entry.read(each, Any)) != "number" for each in given):
        raise PatternError(f"min and max of {entry.title} must be finite numbers", "as max = 100")
    if low > high:
        message = f"{entry.title} can match nothing: min is more than max"
        raise PatternError(message, "swap them")
    return ArgumentCondition(name, way, "range", (low, high))


_BOUNDS: Final = (("min", -inf), ("max", inf))
