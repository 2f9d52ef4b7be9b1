"""`when` of a rule: what the arguments of a call have to be, or may not be.

    when = { "/path" = { path = "docs/**" }, "limit" = { max = 100 }, "/state" = { in = ["open"] } }
    only = true

A key is a JSON pointer (RFC 6901); a bare name is that of a member of the arguments. All keys have
to hold. An argument that is not there, is null or of another type keeps an allow from matching, and
no ask and no deny. Of an array an allow needs every element, an ask or a deny one. `only`, of an
allow: nothing is given that no key names.

Threat: the server reads a value in its own way. Nothing is coerced, and a path that two readers
take for two places (`a/../b`, `%2e`, a backslash) is none.
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
    is_named_alone,
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
    """What one argument has to be; `wanted`: a pattern, a text, two bounds, or values."""

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
        """Tell what keeps the arguments from matching; empty where nothing does."""
        is_allow = outcome is Outcome.ALLOW
        for each in self.conditions:
            value = find_argument(arguments, each.way)
            _, kind, wanted = each.compiled(outcome)
            if not argument_holds(kind, wanted, value, is_allow):
                said = quote_toml(value) if kind_of(value) else "not there, or of another type"
                return f"its {each.said} does not hold: it is {said}"
        is_more = self.only and not is_named_alone(arguments, [e.way for e in self.conditions])
        return "it allows no further arguments" if is_more else ""


def parse_pointer(text: str) -> Way:
    if not text.startswith("/"):
        return (text,)
    if re.search(r"~(?![01])", text):
        hint = "in a JSON pointer ~0 stands for ~, and ~1 for /"
        raise PatternError(f"{quote_toml(text)} is no JSON pointer", hint)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


REDACTED: Final = {"redacted": True}


def redact(value: Json, pointers: Sequence[str]) -> Json:
    """Return arguments without what the pointers lead to; of an array, in each element."""
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
    """Read `when` and `only` of a rule for actions of `category`."""
    conditions = table.table("when")
    found = () if conditions is None else tuple(_read_conditions(conditions))
    only: bool = table.read("only", bool, False)
    if category != "mcp":
        name = "when" if table.has("when") else "only"
        said = f"{name} stands in a rule of {table.title} for calls without arguments"
        table.problem(name, said, "only a rule for tool:mcp: looks at them")
    elif only and outcome is not Outcome.ALLOW:
        said = f"only stands in a rule of {table.title} that does not allow"
        table.problem("only", said, "an ask or a deny holds whatever else is given")
    return When(found, only)


def _read_conditions(table: Table) -> Iterator[ArgumentCondition]:
    known: set[Way] = set()
    for name, entry in table.each():
        try:
            way = parse_pointer(name)
            if way in known or not name:
                said = f"{quote_toml(name)} in {table.title} names no argument of its own"
                raise PatternError(said, "put what both say into one of them")
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
        raise PatternError(f"{entry.title} says not exactly one thing", hint)
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
            raise PatternError(f"in of {entry.title} is no list of values", hint)
        return ArgumentCondition(name, way, "in", among)
    low, high = (entry.read(each, Any, bound) for each, bound in _BOUNDS)
    if any(kind_of(entry.read(each, Any)) != "number" for each in given):
        raise PatternError(f"min and max of {entry.title} are finite numbers", "as max = 100")
    if low > high:
        said = f"{entry.title} can match nothing: min is more than max"
        raise PatternError(said, "exchange them")
    return ArgumentCondition(name, way, "range", (low, high))


_BOUNDS: Final = (("min", -inf), ("max", inf))
