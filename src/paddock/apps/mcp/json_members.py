"""Setting one member of a JSON file that belongs to somebody else, or taking it out. Pure.

Every byte that is not the member's stays as it is: people keep their own order, indent
and line ends in there. The text is parsed strictly before it comes here.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from paddock.values.calls import Json

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_STEP: Final = "  "


@dataclass(frozen=True, slots=True)
class _Member:
    """Where a member stands: its value's first character, and the one behind its last."""

    name: str
    start: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class _Object:
    open: int
    members: tuple[_Member, ...]

    def find(self, name: str) -> _Member | None:
        return next((member for member in self.members if member.name == name), None)


def set_member(text: str, way: tuple[str, ...], value: Json) -> str:
    """`text` with the member at `way` set, its parents made where they are missing.

    Raises: ValueError: something on the way is no object.
    """
    start, name = _skip(text, 0), ""
    for depth, name in enumerate(way):
        if text[start] != "{":
            raise ValueError(f"{name!r} cannot be set in what is no object")
        found = _scan(text, start)
        member = found.find(name)
        if member is None:
            for parent in reversed(way[depth + 1 :]):
                value = {parent: value}
            return _insert(text, found, name, value)
        if depth == len(way) - 1:
            written = _written(value, _indent(text, member.start))
            return text[: member.value] + written + text[member.end :]
        start = member.value
    raise ValueError("no way to a member")


def remove_member(text: str, way: tuple[str, ...]) -> str:
    """`text` without the member at `way`; its parents stay.

    Raises: ValueError: there is none.
    """
    start = _skip(text, 0)
    for depth, name in enumerate(way):
        found = _scan(text, start) if text[start] == "{" else _Object(start, ())
        member = found.find(name)
        if member is None:
            break
        if depth == len(way) - 1:
            return _without(text, found, member)
        start = member.value
    raise ValueError("no way to a member")


def _without(text: str, where: _Object, member: _Member) -> str:
    at = where.members.index(member)
    if at > 0:
        return text[: where.members[at - 1].end] + text[member.end :]
    if len(where.members) > 1:
        return text[: member.start] + text[where.members[1].start :]
    return text[: where.open + 1] + text[_skip(text, member.end) :]


def _insert(text: str, where: _Object, name: str, value: Json) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _indent(text, where.open)
    if where.members:
        last = where.members[-1]
        indent = _indent(text, last.start)
        written = f"{json.dumps(name)}: {_written(value, indent)}"
        addition = f",{newline}{indent}{written}"
        return text[: last.end] + addition + text[last.end :]
    indent = outer + _STEP
    written = f"{json.dumps(name)}: {_written(value, indent)}"
    close = text.index("}", where.open)
    return text[: where.open + 1] + f"{newline}{indent}{written}{newline}{outer}" + text[close:]


def _written(value: Json, indent: str) -> str:
    return json.dumps(value, indent=_STEP).replace("\n", f"\n{indent}")


def _indent(text: str, at: int) -> str:
    """The white space that the line of this place begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _scan(text: str, start: int) -> _Object:
    return _Object(start, tuple(_members(text, start)))


def _members(text: str, start: int) -> Iterator[_Member]:
    decoder = json.JSONDecoder()
    at = _skip(text, start + 1)
    while text[at] != "}":
        name, behind = cast("tuple[str, int]", decoder.raw_decode(text, at))
        value = _skip(text, _skip(text, behind) + 1)
        _, end = decoder.raw_decode(text, value)
        yield _Member(name, at, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
