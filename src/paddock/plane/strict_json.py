"""JSON of our own files, read strictly: what is not understood does not load."""

import json
from collections.abc import Mapping
from typing import NoReturn, TypeVar, cast

from msgspec import Struct

from paddock.errors import ConfigError
from paddock.policy.places import Key, parse_document
from paddock.text.show import quote
from paddock.values.calls import Json

Choice = TypeVar("Choice", bound=str)


class _RejectedJsonError(Exception):
    """Well-formed for `json`, not for us."""


class Fields(Struct, frozen=True):
    """The members of one JSON object, taken out by name and type.

    Every reader raises `ConfigError` with file and field where a member is
    missing or of another type; nothing is coerced.
    """

    file: str
    members: Mapping[str, Json]
    source: bytes = b""
    """The whole text: where a member stands is looked up when there is something to say."""
    way: Key = ()
    """From the top of the text to this object."""

    def require_only(self, known: frozenset[str]) -> None:
        for name in self.members:
            if name not in known:
                raise self.error(
                    name, f"unknown key {quote(name)}", f"known keys: {', '.join(sorted(known))}"
                )

    def error(self, name: str, message: str, hint: str) -> ConfigError:
        return ConfigError(message, where=self.place(name), hint=hint)

    def place(self, name: str) -> str:
        """`file, line N, field '…'` of member `name`; a missing one has its object's line."""
        way = (*self.way, name)
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in way)
        return f"{self.file}, line {_line_of(self.source, way)}, field {quote(field[1:])}"

    def text(self, name: str) -> str:
        if name not in self.members:
            raise self.error(name, f"{quote(name)} is missing", f"add {quote(name)}: a string")
        return self._text(name, self.members[name])

    def text_or_null(self, name: str) -> str | None:
        """A string, or None where it is null or absent."""
        value = self.members.get(name)
        return None if value is None else self._text(name, value)

    def number(self, name: str) -> int:
        value = self.members.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(name, f"{quote(name)} is not an integer", "write a whole number")
        return value

    def texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """A list of different strings; `default` where it is absent."""
        if name not in self.members:
            return default
        value: Json = self.members[name]
        if not isinstance(value, list):
            raise self.error(name, f"{quote(name)} is not a list", "write a list of strings")
        found: dict[str, None] = {}
        for item in cast("list[Json]", value):
            text = self._text(name, item)
            if text in found:
                raise self.error(name, f"{quote(text)} stands there twice", "name it once")
            found[text] = None
        return tuple(found)

    def short_text(self, name: str, default: str, chars_max: int) -> str:
        """A string of 1 to `chars_max` characters; `default` where it is absent."""
        if name not in self.members:
            return default
        text = self._text(name, self.members[name])
        if not 0 < len(text) <= chars_max:
            raise self.error(
                name,
                f"{quote(name)} has {len(text)} characters: {quote(text)}",
                f"write 1 to {chars_max}",
            )
        return text

    def choice(self, name: str, known: tuple[Choice, ...], default: Choice) -> Choice:
        """One of the `known` strings, exactly; `default` where it is absent."""
        if name not in self.members:
            return default
        value = self.members[name]
        for each in known:
            if isinstance(value, str) and value == each:
                return each
        shown = quote(value) if isinstance(value, str) else _kind(value)
        raise self.error(
            name, f"{quote(name)} is {shown}, which it cannot be", f"one of: {', '.join(known)}"
        )

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false; `default` where it is absent."""
        value = self.members.get(name, default)
        if not isinstance(value, bool):
            raise self.error(
                name, f"{quote(name)} holds {_kind(value)}, not true or false", "write one of them"
            )
        return value

    def count(self, name: str, default: int, maximum: int) -> int:
        """A whole number from 1 to `maximum`; `default` where it is absent.

        JSON has one kind of number, so 5.0 is 5, as in JSON Schema.
        """
        if name not in self.members:
            return default
        value = self.members[name]
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not is_whole:
            raise self.error(
                name, f"{quote(name)} holds {_kind(value)}, not a whole number", "write one"
            )
        if not 1 <= value <= maximum:
            raise self.error(
                name, f"{quote(name)} is {quote(value)}", f"write a number from 1 to {maximum}"
            )
        return int(value)

    def table(self, name: str) -> "Fields":
        """An object's members; none where it is absent."""
        return self._table(name, self.members.get(name, {}), (name,))

    def tables(self, name: str) -> "tuple[Fields, ...]":
        value: Json = self.members.get(name, [])
        if not isinstance(value, list):
            raise self.error(name, f"{quote(name)} is not a list", "write a list of objects")
        items = enumerate(cast("list[Json]", value))
        return tuple(self._table(name, item, (name, position)) for position, item in items)

    def _table(self, name: str, value: Json, way: Key) -> "Fields":
        if not isinstance(value, dict):
            shown = name if len(way) == 1 else f"{name}[{way[-1]}]"
            raise self.error(name, f"{quote(shown)} is not an object", "write an object: {…}")
        members = cast("dict[str, Json]", value)
        return Fields(self.file, members, self.source, self.way + way)

    def _text(self, name: str, value: Json) -> str:
        if not isinstance(value, str):
            raise self.error(
                name, f"{quote(name)} holds {_kind(value)}, not text", "write a string"
            )
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise self.error(
                name, f"{quote(name)} holds half of a surrogate pair", "write whole characters"
            ) from None
        return value


def parse_object(content: bytes, file: str) -> Fields:
    """The one JSON object that `content` is.

    Raises:
        ConfigError: not UTF-8, not JSON, not an object, nested too deep, a key
            given twice anywhere, NaN or Infinity.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "the file is not UTF-8", where=f"{file}, line {line}", hint="save it as UTF-8"
        ) from None
    try:
        value: Json = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_constant=_no_constant
        )
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"the file is not JSON: {error.msg.lower()}",
            where=f"{file}, line {error.lineno}, column {error.colno}",
            hint="correct the file",
        ) from None
    except _RejectedJsonError as error:
        where = f"{file}, line {_line_of_rejected(content)}"
        raise ConfigError(str(error), where=where, hint="correct the file") from None
    except (ValueError, RecursionError):
        # Thousands of digits, or nesting that exhausts the stack.
        raise ConfigError(
            "the file holds a number or a nesting beyond any use", where=file, hint="correct it"
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(
            "the file does not hold a JSON object", where=f"{file}, line 1", hint="write {…}"
        )
    return Fields(file, cast("dict[str, Json]", value), content)


def write_object(members: Mapping[str, Json]) -> bytes:
    """`members` as readable JSON in UTF-8 with a final newline."""
    return (json.dumps(members, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _line_of(source: bytes, way: Key) -> int:
    """The line of a member, else of the nearest object around it."""
    try:
        return parse_document(".json", source).line(way)
    except ConfigError:
        return 1


def _line_of_rejected(content: bytes) -> int:
    """Where a key stands a second time; 1 for anything else that `json` takes and we don't."""
    try:
        parse_document(".json", content)
    except ConfigError as error:
        line = error.where.rpartition(":")[2]
        return int(line) if line.isdigit() else 1
    return 1


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    return "a list" if isinstance(value, list) else "an object"


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise _RejectedJsonError(f"the key {quote(name)} is given twice")
        found[name] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise _RejectedJsonError(f"{name} is not a JSON number")
