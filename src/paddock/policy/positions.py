"""Parse TOML and JSON policy texts; for TOML find the line of each key.

`tomllib` and `json` define the values. A syntax tree (tree-sitter) supplies only the lines; a
key that it does not know gets the line of the table around it.

A text that is not a document is one `ConfigError`: not UTF-8, a syntax error, a repeated key,
NaN, nesting too deep, a number too long, a lone surrogate, a top level that is not a table.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields, replace

from paddock.errors import ConfigError
from paddock.limits import message_value_chars_max, policy_bytes_max
from paddock.pattern import lazy_pattern
from paddock.policy.compiled import quote
from paddock.text.json import BrokenJsonError, has_half_character, read_json
from paddock.text.show import cut
from paddock.values.calls import Json

if TYPE_CHECKING:
    from tree_sitter import Node

# Patterns and values raise `PatternError`, which has no place; the reader of a file adds the
# place and collects the problems. A file with any problem does not load: `fail` raises one
# `ConfigError` that names the first problem and counts the others.

LISTED_PROBLEMS_MAX = 5


class PatternError(ValueError):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Problem(Struct, frozen=True):
    message: str
    line: int
    hint: str = ""


def quote_toml(value: object) -> str:
    """Quote, escape, and cut after `message_value_chars_max` characters, stating the cut."""
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "an array"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    try:
        return cut(repr(value), message_value_chars_max)
    except ValueError:
        return "an integer too long to print"  # sys.set_int_max_str_digits


def suggest(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone, and costly

    options = sorted(set(known))
    near = get_close_matches(word[:message_value_chars_max], options, n=2, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(quote_toml(option) for option in near) + "?"
    return "known are " + ", ".join(options) if options else ""


def fail(file: str, problems: list[Problem]) -> NoReturn:
    """Raise one `ConfigError` for all `problems`: the first by line, and a count of the others."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: problem.line)
    first, others = ordered[0], ordered[1:]
    message = first.message
    hints = [first.hint] if first.hint else []
    if others:
        message += f" (and {len(others)} more)"
        shown = others[:LISTED_PROBLEMS_MAX]
        hints.extend(f"also {place_text(file, other.line)}: {other.message}" for other in shown)
        if len(others) > len(shown):
            hints.append(f"{len(others) - len(shown)} problems are not listed")
    hint = "; ".join(hints) or "`paddock init` in an empty directory writes a valid file"
    raise ConfigError(message, where=place_text(file, first.line), hint=hint)


def place_text(file: str, line: int) -> str:
    return f"{file}:{line}" if line else file


Key = tuple[str | int, ...]

# Threat: the parser's time grows with the square of a key's parts, and a file may come with a
# clone. Possessive, and anchored at the start of a part, so the search is one pass.
_DEEP_KEY: Final = lazy_pattern(
    r"""(?<![\w-])(?:(?:[\w-]++|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""", re.ASCII
)

BUILT_IN: Final = "built-in"
"""The file name of Paddock's built-in policy; its line is 0."""


class Place(Struct, frozen=True):
    file: str
    line: int

    def __str__(self) -> str:
        return place_text(self.file, self.line)


BUILT_IN_PLACE: Final = Place(BUILT_IN, 0)


class Document(Struct, frozen=True, dict=True):
    file: str
    values: dict[str, Json]
    text: bytes = b""
    """The TOML source; empty for JSON, which has no lines."""

    @cached_property
    def lines(self) -> dict[Key, int]:
        return {each.key: each.line for each in _toml_lines(self.text)} if self.text else {}

    def line(self, key: Key) -> int:
        """Return the line of `key`, else of the first key in it, else of its table, else 1."""
        while key and self.lines:
            found = self.lines.get(key)
            if found is not None:
                return found
            below = [line for other, line in self.lines.items() if other[: len(key)] == key]
            if below:
                return min(below)
            key = key[:-1]
        return 0 if self.file.endswith(".json") else 1

    def place(self, key: Key) -> Place:
        return Place(self.file, self.line(key))


def parse_document(file: str, text: bytes) -> Document:
    """Parse TOML, or JSON where `file` ends in `.json`; ConfigError."""
    if len(text) > policy_bytes_max:
        message = f"a policy of {len(text)} bytes is larger than {policy_bytes_max}"
        _refuse(file, 0, message, "write fewer rules; a pattern can match many paths")
    # Some editors write a byte-order mark.
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        source = text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        _refuse(file, line, f"byte {error.start} is not UTF-8", "save the file as UTF-8", error)
    if file.endswith(".json"):
        return Document(file, _json_values(file, source))
    return Document(file, _toml_values(file, source), text)


def _toml_values(file: str, source: str) -> dict[str, Json]:
    # A file of comments, as `paddock init` writes it, needs no parser; `tomllib` loads slowly.
    if all(row.isprintable() and row.strip()[:1] in {"", "#"} for row in source.split("\n")):
        return {}
    import tomllib  # noqa: PLC0415 - not needed for JSON

    deep = _DEEP_KEY.search(source)
    if deep is not None:
        line = source.count("\n", 0, deep.start()) + 1
        _refuse(file, line, "a key has too many parts", _FOUR_LEVELS)
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        # The message ends in "(at line 3, column 5)" or "(at end of document)".
        text = str(error)
        found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", text)
        line = int(found[1]) if found and found[1] else source.count("\n") + 1
        what = text[: found.start()] if found else text
        if what.startswith(("Cannot ", "Duplicate ")):
            _refuse_repeated(file, source, error)
        _refuse(file, line, f"not TOML: {_lowered(what)}", "correct the syntax", error)
    except RecursionError as error:
        _refuse(file, 1, "the nesting is too deep", _FOUR_LEVELS, error)
    except ValueError as error:
        # An integer with more digits than Python converts, a date out of range.
        _refuse(file, 1, f"not TOML: {_lowered(str(error))}", "correct the value", error)


def _json_values(file: str, source: str) -> dict[str, Json]:
    try:
        values = read_json(source)
    except BrokenJsonError as error:
        if error.kind == "syntax":
            _refuse(file, error.line, f"not JSON: {error.what}", "correct the syntax", error)
        if error.kind == "twice":
            message = f"the key {quote_toml(error.what)} is given twice"
            _refuse(file, 0, message, "keep one of them", error)
        if error.kind == "depth":
            _refuse(file, 0, "the nesting is too deep", _FOUR_LEVELS, error)
        _refuse(file, 0, f"not JSON: {_lowered(error.what)}", "correct the value", error)
    if has_half_character(values):
        _refuse(file, 0, "a string holds a lone surrogate", "write the character itself")
    if not isinstance(values, dict):
        _refuse(file, 0, "the top of a policy is a table", "write an object: { … }")
    return cast(dict[str, Json], values)


_FOUR_LEVELS: Final = "a policy needs four levels"


def _refuse(
    file: str, line: int, message: str, hint: str, cause: BaseException | None = None
) -> NoReturn:
    raise ConfigError(message, where=place_text(file, line), hint=hint) from cause


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]


def _line_of(node: "Node") -> int:
    return node.start_point[0] + 1


# TOML -----------------------------------------------------------------------


class _Line(NamedTuple):
    key: Key
    line: int
    is_given: bool


def _refuse_repeated(file: str, source: str, cause: BaseException) -> None:
    first: dict[Key, int] = {}
    for key, line, is_given in _toml_lines(source.encode("utf-8")):
        if is_given and key in first:
            name = ".".join(part for part in key if isinstance(part, str))
            message = f"the key {quote_toml(name)} is given twice, first in line {first[key]}"
            _refuse(file, line, message, "merge both into one", cause)
        if is_given:
            first[key] = line


def _toml_lines(text: bytes) -> Iterator[_Line]:
    import tree_sitter  # noqa: PLC0415 - only a file of a project pays for the grammar
    import tree_sitter_toml  # noqa: PLC0415 - as above

    language = tree_sitter.Language(tree_sitter_toml.language())
    root = tree_sitter.Parser(language).parse(text).root_node
    counts: dict[Key, int] = {}
    for child in root.named_children:
        base: Key = ()
        if child.type in ("table", "table_array_element"):
            base = _resolved(_toml_key(child.named_children[0]), counts)
            if child.type == "table_array_element":
                counts[base] = counts.get(base, -1) + 1
                yield _Line(base, _line_of(child), is_given=False)
                base = (*base, counts[base])
            yield _Line(base, _line_of(child), is_given=True)
        elif child.type != "pair":
            continue
        pairs = [child] if child.type == "pair" else child.named_children
        for pair in pairs:
            if pair.type == "pair":
                yield from _toml_pair(base, pair)


def _resolved(key: Key, counts: dict[Key, int]) -> Key:
    way: Key = ()
    for index, part in enumerate(key):
        way = (*way, part)
        if way in counts and index < len(key) - 1:
            way = (*way, counts[way])
    return way


def _toml_pair(base: Key, pair: "Node") -> Iterator[_Line]:
    # An explicit stack: a hostile text may nest deeper than Python's recursion limit.
    stack: list[tuple[Key, Node]] = [(base, pair)]
    while stack:
        key, node = stack.pop()
        if node.type == "pair":
            named = [child for child in node.named_children if child.type != "comment"]
            if len(named) < 2:
                continue
            names = _toml_key(named[0])
            for depth in range(1, len(names) + 1):
                yield _Line(key + names[:depth], _line_of(named[0]), depth == len(names))
            stack.append((key + names, named[1]))
        elif node.type == "inline_table":
            stack.extend((key, child) for child in node.named_children if child.type == "pair")
        elif node.type == "array":
            elements = [child for child in node.named_children if child.type != "comment"]
            for position, child in enumerate(elements):
                yield _Line((*key, position), _line_of(child), is_given=True)
                stack.append(((*key, position), child))


def _toml_key(node: "Node") -> tuple[str, ...]:
    text = (node.text or b"").decode("utf-8", "replace")
    if "." not in text and not text.startswith(('"', "'")):
        return (text,)
    import tomllib  # noqa: PLC0415 - as above

    try:
        table: Json = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return (text,)
    names: list[str] = []
    while isinstance(table, dict):
        ((name, table),) = cast("dict[str, Json]", table).items()
        names.append(name)
    return tuple(names)


Parsed = TypeVar("Parsed")
Filled = TypeVar("Filled", bound=Struct)
NonEmpty = Annotated[str, Meta(pattern=r"\A(?=[^\0]*\Z)[\s\S]*\S")]
_KINDS: Final = {
    "str": "a string",
    "int": "an integer",
    "bool": "true or false",
    "array": "an array",
    "object": "a table",
}
NO_READERS: Final[Mapping[str, "Reader"]] = {}


class Text(Struct, frozen=True):
    text: str
    place: Place


class Report(Struct):
    document: Document
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, key: Key, message: str, hint: str = "") -> None:
        self.problems.append(Problem(message, self.document.line(key), hint))

    def add_at(self, place: Place, problem: PatternError) -> None:
        self.problems.append(Problem(problem.message, place.line, problem.hint))


class Table:
    def __init__(self, report: Report, key: Key, values: dict[str, Json]) -> None:
        self.report = report
        self.key = key
        self._values = values
        self._known: set[str] = set()

    @property
    def title(self) -> str:
        return "[" + ".".join(str(part) for part in self.key) + "]" if self.key else "the file"

    def has(self, name: str) -> bool:
        self._known.add(name)
        return name in self._values

    def is_text(self, name: str) -> bool:
        return self.has(name) and isinstance(self._values[name], str)

    def names(self) -> list[str]:
        return list(self._values)

    def place(self, name: str) -> Place:
        return self.report.document.place((*self.key, name))

    def problem(self, name: str, message: str, hint: str = "") -> None:
        self.report.add((*self.key, name), message, hint)

    def read(self, name: str, wanted: Any, default: Any = None) -> Any:
        """Return a value of the type `wanted`; `default` if it is missing or has another type."""
        if not self.has(name):
            return default
        value = self._values[name]
        try:
            return convert(value, wanted)
        except ValidationError as error:
            message, key, verb = str(error), (*self.key, name), "is"
        place = re.search(r"at `\$\[(\d+)\]`$", message)
        if place is not None:
            key, value, verb = (*key, int(place[1])), value[int(place[1])], "holds"
        kind = re.match(r"Expected `(\w+)`( matching)?( [<>]= -?\d+)?", message)
        if kind is None:
            what, hint = "not a known value", suggest(str(value), filter(None, get_args(wanted)))
        else:
            more = " with text" if kind[2] else kind[3] or ""
            if kind[1] == "array":
                more = " of tables" if get_origin(wanted) is list else " of strings"
            what, hint = f"not {_KINDS[kind[1]]}{more}", ""
        self.report.add(key, f"{name} in {self.title} {verb} {quote_toml(value)}, {what}", hint)
        return default

    def table(self, name: str) -> "Table | None":
        values = self.read(name, dict[str, Any])
        return None if values is None else Table(self.report, (*self.key, name), values)

    def tables(self, name: str) -> Iterator["Table"]:
        for position, values in enumerate(self.read(name, list[dict[str, Any]], ())):
            yield Table(self.report, (*self.key, name, position), values)

    def each(self) -> Iterator[tuple[str, "Table"]]:
        tables = ((name, self.table(name)) for name in self._values)
        return ((name, table) for name, table in tables if table is not None)

    def fill(self, base: Filled, own: Mapping[str, "Reader"] = NO_READERS) -> Filled:
        """Replace fields of `base` by the keys given, read by type or by a reader of `own`."""
        given = {
            each.name: own.get(each.name, partial(_read_field, each.type))(self, each.name)
            for each in fields(base)
            if not each.required and self.has(each.name)
        }
        self.finish()
        return replace(base, **{name: each for name, each in given.items() if each is not None})

    def texts(self, name: str) -> tuple[Text, ...]:
        found = self.read(name, tuple[str, ...], ())
        place, key = self.report.document.place, (*self.key, name)
        return tuple(Text(text, place((*key, at))) for at, text in enumerate(found))

    def parsed(self, name: str, parse: Callable[[Text], Parsed]) -> tuple[Parsed, ...]:
        """Parse each text; a `PatternError` becomes a problem at the text's place."""
        found: list[Parsed] = []
        for text in self.texts(name):
            try:
                found.append(parse(text))
            except PatternError as problem:
                self.report.add_at(text.place, problem)
        return tuple(found)

    def finish(self) -> None:
        for name in self._values:
            if name not in self._known:
                message = f"unknown key {quote_toml(name)} in {self.title}"
                self.problem(name, message, suggest(name, self._known))


def _read_field(wanted: Any, table: Table, name: str) -> object:
    # A file cannot write None; it leaves the key out.
    kinds = [each for each in get_args(wanted) if each is not NoneType]
    kind = kinds[0] if len(kinds) < len(get_args(wanted)) else wanted
    if not isinstance(kind, type) or not issubclass(kind, Struct):
        return table.read(name, kind)
    below = table.table(name)
    return None if below is None else below.fill(kind())


Reader = Callable[[Table, str], Any]
"""Reads one key that the table has."""
