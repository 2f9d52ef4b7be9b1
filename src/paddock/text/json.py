"""JSON: a strict reader, writers, and an editor that keeps a file's formatting. No I/O.

The reader refuses duplicate keys, NaN and infinities: another reader may understand them
differently than the writer (RFC 8259, sections 4 and 6, leaves both open). What is read
becomes a typed value by `msgspec.convert`, as a subclass of `Strict`.

The editor inserts and removes single members: a settings file belongs to the user, so it
is never rewritten as a whole.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, NoReturn, cast

from msgspec import Struct, field

from paddock import limits
from paddock.errors import ConfigError, InvalidArgumentsError
from paddock.pattern import lazy_pattern
from paddock.text.show import quote, show_name
from paddock.values.calls import Json

JSON_NAMES: Final[dict[type, str]] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_EXAMPLE: Final = 'give one object, such as {"path": "README.md"}'
_TOO_DEEP_HINT: Final = f"at most {limits.argument_depth_max} levels of objects and arrays"

Way = tuple[str | int, ...]


# --- the reader --------------------------------------------------------------------


class BrokenJsonError(ValueError):
    """The text is not JSON, or readers may understand it differently. `line` 0: unknown."""

    def __init__(
        self,
        kind: Literal["syntax", "twice", "constant", "depth", "value"],
        what: str,
        line: int = 0,
        column: int = 0,
    ) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.line = line
        self.column = column


def read_json(text: str) -> Json:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except BrokenJsonError:
        raise
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:]
        raise BrokenJsonError("syntax", what, error.lineno, error.colno) from None
    except RecursionError:
        raise BrokenJsonError("depth", "the nesting is too deep") from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise BrokenJsonError("value", str(error)) from None


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Threat: readers that keep different ones of two equal names see different values.
        raise BrokenJsonError("twice", _repeated(pairs) or "")
    return found


def _repeated(pairs: list[tuple[str, Json]]) -> str | None:
    known: set[str] = set()
    return next((name for name, _ in pairs if name in known or known.add(name)), None)


def _no_constant(word: str) -> NoReturn:
    raise BrokenJsonError("constant", f"{word} is not a JSON number")


def has_half_character(value: Json) -> bool:
    """Return True if a text in it has half of a surrogate pair, which JSON escapes can express."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def json_name(value: Json) -> str:
    return JSON_NAMES.get(type(cast("object", value)), "a value of no JSON type")


def parse_object(source: str | bytes, subject: str = "the arguments are") -> dict[str, Json]:
    """Parse a JSON object. `subject` begins the error message.

    Raises: InvalidArgumentsError: not JSON, not an object, a duplicate key, NaN, nested over
        `limits.argument_depth_max`, or over `limits.argument_bytes_max`.
    """
    if len(source) > limits.argument_bytes_max:
        unit = "bytes" if isinstance(source, bytes) else "characters"
        raise InvalidArgumentsError(
            f"{subject} too long: {len(source)} {unit}, {limits.argument_bytes_max} are allowed",
            hint="send less at once",
        )
    try:
        # Decode here: from bytes, json would also guess UTF-16 and UTF-32.
        value = read_json(source.decode("utf-8-sig") if isinstance(source, bytes) else source)
    except UnicodeDecodeError as error:
        raise InvalidArgumentsError(
            f"{subject} not UTF-8 at byte {error.start}", hint="send the text as UTF-8"
        ) from None
    except BrokenJsonError as error:
        raise _unusable(error, subject) from None
    if not isinstance(value, dict):
        raise InvalidArgumentsError(f"{subject} {json_name(value)}, not an object", hint=_EXAMPLE)
    if _is_too_deep(value):
        raise InvalidArgumentsError(f"{subject} nested too deep", hint=_TOO_DEEP_HINT)
    return cast("dict[str, Json]", value)


def _unusable(error: BrokenJsonError, subject: str) -> InvalidArgumentsError:
    if error.kind == "syntax":
        where = f"line {error.line}, column {error.column}"
        return InvalidArgumentsError(
            f"{subject} not JSON: {error.what}", where=where, hint=_EXAMPLE
        )
    if error.kind == "twice":
        return InvalidArgumentsError(
            f"{quote(error.what)} is given twice",
            where=show_name(error.what[:80]),
            hint="give every name only once",
        )
    if error.kind == "constant":
        return InvalidArgumentsError(error.what, hint="give a finite number")
    if error.kind == "depth":
        return InvalidArgumentsError(f"{subject} nested too deep", hint=_TOO_DEEP_HINT)
    return InvalidArgumentsError(
        f"{subject} not usable: {error.what}", hint="give a shorter number, or a string"
    )


def _is_too_deep(value: Json) -> bool:
    level: list[Json] = [value]  # level by level: recursion could exhaust the stack
    for _ in range(limits.argument_depth_max):
        below: list[Json] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
        level = below
    return any(isinstance(each, dict | list) for each in level)


class Twice(NamedTuple):
    name: str
    is_outermost: bool


def find_twice(source: str) -> Twice | None:
    """Return the first duplicate name in one object, or None: other readers may take either.

    Raises: ValueError, RecursionError: it is not JSON.
    """
    found: list[str | None] = []

    def note(pairs: list[tuple[str, None]]) -> None:
        found.append(_repeated(pairs))

    # Objects come from the inside out. Numbers stay texts: they may have any count of digits.
    json.loads(source, object_pairs_hook=note, parse_int=str, parse_float=str)
    if found and found[-1] is not None:
        return Twice(found[-1], True)
    return next((Twice(name, False) for name in found if name is not None), None)


class Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of types converted from JSON: by default, msgspec allows unknown fields."""


def find_lines(text: str) -> dict[Way, int]:
    """Return the line of each member's name and of each item; empty if the text does not parse."""
    found: dict[Way, int] = {}
    try:
        top = _Scanner(text).whole()
    except BrokenJsonError:
        return found
    line, here = 1, 0
    for way, start in sorted(_starts(top, ()), key=lambda each: each[1]):
        line, here = line + text.count("\n", here, start), start
        found[way] = line
    return found


def _starts(node: "Node", way: Way) -> Iterator[tuple[Way, int]]:
    for member in node.members:
        yield (*way, member.name), member.start
        yield from _starts(member.node, (*way, member.name))
    for position, item in enumerate(node.items):
        yield (*way, position), item.start
        yield from _starts(item, (*way, position))


def repeated_line(text: str) -> int:
    """Return the line of a duplicate name, or 1."""
    try:
        _Scanner(text).whole()
    except BrokenJsonError as error:
        return error.line if error.kind == "twice" else 1
    return 1


# --- the writers -------------------------------------------------------------------


def compact_json(value: Json) -> bytes:
    """Encode a value for signing: compact JSON in UTF-8, members in their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def canonical_json(value: Json) -> str:
    """Encode a value for hashing: compact JSON, members sorted by name."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --- the editor: locating values -----------------------------------------------------
#
# Comments (`//`, `/* */`) and a comma after the last member are ignored.

DEPTH_MAX: Final = 200

_GAP: Final = lazy_pattern(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = lazy_pattern(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = lazy_pattern(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null'
)
_MARK: Final = "\ufeff"


class Node(Struct):
    kind: Literal["object", "array", "scalar"]
    start: int
    end: int = 0
    members: "list[Member]" = field(default_factory=list["Member"])
    items: "list[Node]" = field(default_factory=list["Node"])
    names: set[str] = field(default_factory=set[str])

    def find(self, name: str) -> "Node | None":
        return next((member.node for member in self.members if member.name == name), None)


class Member(Struct):
    name: str
    start: int
    node: Node


def parse_text(text: str, file: str = "") -> Node:
    """Scan a JSON text from `file`. Raises: ConfigError: also for a duplicate key."""
    try:
        return _Scanner(text).whole()
    except BrokenJsonError as error:
        what = (
            f"the key {quote(error.what)} is given twice" if error.kind == "twice" else error.what
        )
        raise ConfigError(
            f"the settings are not valid JSON: {what}",
            where=f"{file}:{error.line}" if file else f"line {error.line}",
            hint="correct the file first; nothing was changed",
        ) from None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.depth = 0

    def whole(self) -> Node:
        start = self.skip(len(_MARK) if self.text.startswith(_MARK) else 0)
        node = self.value(start)
        if self.skip(node.end) != len(self.text):
            raise self.broken(node.end, "unexpected text after the value")
        return node

    def value(self, at: int) -> Node:
        sign = self.text[at : at + 1]
        if sign == "{":
            return self.container(at, "object", "}")
        if sign == "[":
            return self.container(at, "array", "]")
        match = _SCALAR.match(self.text, at)
        if match is None:
            raise self.broken(at, "expected a value")
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
                raise self.broken(here, f"expected a comma or {close}")
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
            raise self.broken(at, "expected a name in quotes")
        name = self.decoded(match[0], at)
        if name in node.names:
            raise self.broken(at, name, "twice")
        node.names.add(name)
        colon = self.skip(match.end())
        if self.text[colon : colon + 1] != ":":
            raise self.broken(colon, "expected a colon")
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
            raise self.broken(at, "invalid escape in a text") from None

    def broken(
        self, at: int, what: str, kind: Literal["syntax", "twice"] = "syntax"
    ) -> BrokenJsonError:
        return BrokenJsonError(kind, what, self.text.count("\n", 0, at) + 1)


def text_at(text: str, node: Node | None) -> str | None:
    value = value_at(text, node)
    return value if isinstance(value, str) else None


def value_at(text: str, node: Node | None) -> Json:
    try:
        return None if node is None else json.loads(text[node.start : node.end])
    except ValueError:
        return None


def find_node(top: Node, way: Way) -> Node | None:
    node: Node | None = top
    for step in way:
        if node is None:
            return None
        if isinstance(step, str):
            node = node.find(step)
        else:
            node = node.items[step] if step < len(node.items) else None
    return node


# --- the editor: inserting and removing ------------------------------------------------
#
# A settings file belongs to the user, who chose its order, indent, line ends and comments.
# So an edit is one splice at a located value. There are two ways to insert:
#
#   * exactly reversible (`with_member`, `with_item`, `without`): after the last member of a
#     container, as `,`, white space and the new member; or right after the bracket of an
#     empty container, without white space. A container that we create begins with white
#     space, so `without` can tell it from the user's, and removes it when it is empty;
#   * readable, on a separate line (`set_member`, `remove_member`): missing parents are
#     created, and kept. For text without comments.

_BLANKS: Final = lazy_pattern(r"[ \t\r\n]+")
_STEP: Final = "  "


# --- reversibly: inserting -----------------------------------------------------------------


def with_member(text: str, where: Node, name: str, value: Json) -> str:
    style = _Style.of(text, where)
    if not where.members:
        written = f"{json.dumps(name)}: {style.made(value, '')}"
        return text[: where.start + 1] + written + text[where.start + 1 :]
    last = where.members[-1].node
    indent = style.indent
    written = f"{json.dumps(name)}: {style.made(value, indent)}"
    return text[: last.end] + f",{style.gap}{written}" + text[last.end :]


def with_item(text: str, where: Node, value: Json) -> str:
    if not where.items:
        return text[: where.start + 1] + json.dumps(value) + text[where.start + 1 :]
    last = where.items[-1]
    style = _Style.of(text, where)
    return text[: last.end] + f",{style.gap}{json.dumps(value)}" + text[last.end :]


class _Style(Struct, frozen=True):
    """The layout of a container: the text before a member, and the member's indent."""

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
        """Format a value; a container that we create begins with white space."""
        if not self.step:
            return _spaced(value)
        newline = self.gap[: len(self.gap) - len(self.indent)] or "\n"
        written = json.dumps(value, indent=self.step)
        return written.replace("\n", f"{newline}{indent}")


def _spaced(value: Json) -> str:
    if isinstance(value, dict):
        members = cast("dict[str, Json]", value).items()
        inner = ", ".join(f"{json.dumps(name)}: {_spaced(each)}" for name, each in members)
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[ {', '.join(map(_spaced, cast('list[Json]', value)))} ]"
    return json.dumps(value)


# --- reversibly: removing ------------------------------------------------------------------


def without(text: str, top: Node, way: Way) -> str:
    """Remove the value at `way`, and any container that was created only for it."""
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
    if index:
        return text[: spans[index - 1][1]] + text[spans[index][1] :]
    return text[: spans[0][0]] + text[spans[1][0] :]


# --- for readers -------------------------------------------------------------------


def set_member(text: str, way: tuple[str, ...], value: Json) -> str:
    """Set the member at `way`, creating its parents. Raises: ConfigError; ValueError."""
    node = parse_text(text)
    for depth, name in enumerate(way):
        if node.kind != "object":
            raise ValueError(f"cannot set {name!r}: its parent is not an object")
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
    """Remove the member at `way`, keeping its parents. Raises: ConfigError; ValueError."""
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
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
