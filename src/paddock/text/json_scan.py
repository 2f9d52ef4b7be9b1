"""JSON text with its places: where each value stands in a file that belongs to somebody. Pure.

Comments (`//`, `/* */`) and a comma behind the last member are read over.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Final, Literal

from paddock.errors import ConfigError
from paddock.text.show import quote
from paddock.values.calls import Json

DEPTH_MAX: Final = 200

_GAP: Final = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null'
)
_MARK: Final = "\ufeff"


@dataclass(slots=True)
class Node:
    """A value: from its first character up to behind its last."""

    kind: Literal["object", "array", "scalar"]
    start: int
    end: int = 0
    members: "list[Member]" = field(default_factory=list["Member"])
    items: "list[Node]" = field(default_factory=list["Node"])

    def find(self, name: str) -> "Node | None":
        return next((member.node for member in self.members if member.name == name), None)


@dataclass(slots=True)
class Member:
    """A member of an object: its name, where that begins, its value."""

    name: str
    start: int
    node: Node


Way = tuple[str | int, ...]
"""Names of members and positions of items, from the top."""


def parse_text(text: str, file: str = "") -> Node:
    """Scan one JSON text. `file` is where it comes from, if that is to be said.

    Raises:
        ConfigError: it is none, gives a key twice, or nests deeper than `DEPTH_MAX`.
    """
    scanner = _Scanner(text, file)
    return scanner.whole()


class _Scanner:
    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.depth = 0

    def whole(self) -> Node:
        start = self.skip(len(_MARK) if self.text.startswith(_MARK) else 0)
        node = self.value(start)
        if self.skip(node.end) != len(self.text):
            raise self.broken(node.end, "more text follows the value")
        return node

    def value(self, at: int) -> Node:
        sign = self.text[at : at + 1]
        if sign == "{":
            return self.container(at, "object", "}")
        if sign == "[":
            return self.container(at, "array", "]")
        match = _SCALAR.match(self.text, at)
        if match is None:
            raise self.broken(at, "a value is expected")
        return Node("scalar", at, match.end())

    def container(self, at: int, kind: Literal["object", "array"], close: str) -> Node:
        node = Node(kind, at)
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.broken(at, "nested too deep")
        here = self.skip(at + 1)
        while self.text[here : here + 1] != close:
            here = self.member(node, here) if kind == "object" else self.item(node, here)
            here = self.skip(here)
            if self.text[here : here + 1] == ",":
                here = self.skip(here + 1)
            elif self.text[here : here + 1] != close:
                raise self.broken(here, f"a comma or {close} is expected")
        self.depth -= 1
        node.end = here + 1
        return node

    def item(self, node: Node, at: int) -> int:
        found = self.value(at)
        node.items.append(found)
        return found.end

    def member(self, node: Node, at: int) -> int:
        match = _STRING.match(self.text, at)
        if match is None:
            raise self.broken(at, "a name in quotes is expected")
        name = self.decoded(match[0], at)
        if node.find(name) is not None:
            raise self.broken(at, f"the key {quote(name)} is given twice")
        colon = self.skip(match.end())
        if self.text[colon : colon + 1] != ":":
            raise self.broken(colon, "a colon is expected")
        value = self.value(self.skip(colon + 1))
        node.members.append(Member(name, at, value))
        return value.end

    def skip(self, at: int) -> int:
        found = _GAP.match(self.text, at)
        return at if found is None else found.end()

    def decoded(self, source: str, at: int) -> str:
        try:
            return str(json.loads(source))
        except ValueError:
            raise self.broken(at, "a text with an escape that is none") from None

    def broken(self, at: int, what: str) -> ConfigError:
        line = self.text.count("\n", 0, at) + 1
        return ConfigError(
            f"the settings are no JSON: {what}",
            where=f"{self.file}:{line}" if self.file else f"line {line}",
            hint="mend the file first; nothing was changed",
        )


def text_at(text: str, node: Node | None) -> str | None:
    """The text that a scalar stands for; None for anything else."""
    if node is None or node.kind != "scalar" or text[node.start] != '"':
        return None
    try:
        return str(json.loads(text[node.start : node.end]))
    except ValueError:
        return None


def value_at(text: str, node: Node | None) -> Json:
    """The value at a node; None where there is none, or it cannot be read."""
    if node is None:
        return None
    try:
        return json.loads(text[node.start : node.end])
    except ValueError:
        return None


def find_node(top: Node, way: Way) -> Node | None:
    """The value at the end of a way."""
    node: Node | None = top
    for step in way:
        if node is None:
            return None
        if isinstance(step, str):
            node = node.find(step)
        else:
            node = node.items[step] if step < len(node.items) else None
    return node
