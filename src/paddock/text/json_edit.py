"""Pieces put into JSON text and taken out of it. Pure.

A settings file belongs to somebody: order, indent, line ends and comments are theirs.
So the text is never written anew: it is scanned for where values stand, and an edit is
one splice. There are two ways to put something in:

  * so that it can be taken out again exactly (`with_member`, `with_item`, `without`):
    into a container with members, behind the last one: `,` and white space, and then it;
    into an empty container, right behind its bracket, without white space; a container
    that we make begins with white space. So an emptied one tells who made it, and goes
    or stays;
  * so that it reads well, on lines of its own (`set_member`, `remove_member`): parents
    are made where they are missing, and stay. For text without comments.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from paddock.text.json_scan import Node, Way, find_node, parse_text
from paddock.values.calls import Json

_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_STEP: Final = "  "


# --- exactly: putting in -------------------------------------------------------------------


def with_member(text: str, where: Node, name: str, value: Json) -> str:
    """The text with another member behind the last one of an object."""
    style = _Style.of(text, where)
    if not where.members:
        written = f"{json.dumps(name)}: {style.made(value, '')}"
        return text[: where.start + 1] + written + text[where.start + 1 :]
    last = where.members[-1].node
    indent = style.indent
    written = f"{json.dumps(name)}: {style.made(value, indent)}"
    return text[: last.end] + f",{style.gap}{written}" + text[last.end :]


def with_item(text: str, where: Node, value: Json) -> str:
    """The text with another item behind the last one of an array."""
    if not where.items:
        return text[: where.start + 1] + json.dumps(value) + text[where.start + 1 :]
    last = where.items[-1]
    style = _Style.of(text, where)
    return text[: last.end] + f",{style.gap}{json.dumps(value)}" + text[last.end :]


@dataclass(frozen=True, slots=True)
class _Style:
    """How a container is laid out: what stands before a member, and the member's indent."""

    gap: str
    indent: str
    step: str

    @classmethod
    def of(cls, text: str, where: Node) -> "_Style":
        starts = [member.start for member in where.members]
        starts += [item.start for item in where.items]
        newline = "\r\n" if "\r\n" in text else "\n"
        if not starts:
            return cls(newline, "", "  ")
        line = text[text.rfind("\n", 0, starts[-1]) + 1 : starts[-1]]
        if line.strip(" \t"):
            return cls(" ", "", "")
        return cls(newline + line, line, "\t" if line.startswith("\t") else "  ")

    def made(self, value: Json, indent: str) -> str:
        """A value as we write it; a container that we make begins with white space."""
        if not self.step:
            return _spaced(value)
        newline = self.gap[: len(self.gap) - len(self.indent)] or "\n"
        written = json.dumps(value, indent=self.step)
        return written.replace("\n", f"{newline}{indent}")


def _spaced(value: Json) -> str:
    """A value on one line, white space behind each bracket that opens."""
    if isinstance(value, dict):
        members = cast("dict[str, Json]", value).items()
        inner = ", ".join(f"{json.dumps(name)}: {_spaced(each)}" for name, each in members)
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[ {', '.join(map(_spaced, cast('list[Json]', value)))} ]"
    return json.dumps(value)


# --- exactly: taking out -------------------------------------------------------------------


def without(text: str, top: Node, way: Way) -> str:
    """The text without what stands at a way, nor a container that we made for it alone."""
    while True:
        step, parent_way = way[-1], way[:-1]
        parent = find_node(top, parent_way)
        if parent is None:
            return text
        spans = [(member.start, member.node.end) for member in parent.members]
        spans += [(item.start, item.end) for item in parent.items]
        names: list[str | int] = [member.name for member in parent.members]
        index = names.index(step) if isinstance(step, str) else step
        if len(spans) > 1:
            return _cut(text, spans, index)
        start, end = spans[index]
        is_ours = _BLANKS.fullmatch(text, parent.start + 1, start) is not None
        if not is_ours or not parent_way:
            return text[:start] + text[end:]
        way = parent_way


def _cut(text: str, spans: Sequence[tuple[int, int]], index: int) -> str:
    """The text without one of several members or items, and without the comma that it had."""
    if index:
        return text[: spans[index - 1][1]] + text[spans[index][1] :]
    return text[: spans[0][0]] + text[spans[1][0] :]


# --- for readers -------------------------------------------------------------------


def set_member(text: str, way: tuple[str, ...], value: Json) -> str:
    """`text` with the member at `way` set, its parents made where they are missing.

    Raises:
        ConfigError: as `parse_text`.
        ValueError: something on the way is no object.
    """
    node = parse_text(text)
    for depth, name in enumerate(way):
        if node.kind != "object":
            raise ValueError(f"{name!r} cannot be set in what is no object")
        member = next((each for each in node.members if each.name == name), None)
        if member is None:
            for parent in reversed(way[depth + 1 :]):
                value = {parent: value}
            return _insert(text, node, name, value)
        node = member.node
        if depth == len(way) - 1:
            written = _written(value, _indent(text, member.start))
            return text[: node.start] + written + text[node.end :]
    raise ValueError("no way to a member")


def remove_member(text: str, way: tuple[str, ...]) -> str:
    """`text` without the member at `way`; its parents stay.

    Raises:
        ConfigError: as `parse_text`.
        ValueError: there is none.
    """
    parent = find_node(parse_text(text), way[:-1])
    names = [] if parent is None else [member.name for member in parent.members]
    if parent is None or way[-1] not in names:
        raise ValueError("no way to a member")
    if len(names) == 1:
        return text[: parent.start + 1] + text[parent.end - 1 :]
    spans = [(member.start, member.node.end) for member in parent.members]
    return _cut(text, spans, names.index(way[-1]))


def _insert(text: str, where: Node, name: str, value: Json) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    if where.members:
        last = where.members[-1]
        indent = _indent(text, last.start)
        written = f"{json.dumps(name)}: {_written(value, indent)}"
        return text[: last.node.end] + f",{newline}{indent}{written}" + text[last.node.end :]
    outer = _indent(text, where.start)
    indent = outer + _STEP
    written = f"{json.dumps(name)}: {_written(value, indent)}"
    inner = f"{newline}{indent}{written}{newline}{outer}"
    return text[: where.start + 1] + inner + text[where.end - 1 :]


def _written(value: Json, indent: str) -> str:
    return json.dumps(value, indent=_STEP).replace("\n", f"\n{indent}")


def _indent(text: str, at: int) -> str:
    """The white space that the line of this place begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
