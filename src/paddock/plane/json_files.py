"""Read and write JSON files as typed values: an unknown key or another type does not load."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern
from paddock.storage import atomic
from paddock.text.json import (
    BrokenJsonError,
    Way,
    find_lines,
    has_half_character,
    read_json,
    repeated_line,
)
from paddock.text.show import quote
from paddock.values.calls import Json

T = TypeVar("T")

# msgspec's wording of refusals, from which messages are built.
_AT: Final = lazy_pattern(r" - at `(?:key` in `)?\$([^`]*)`$")
_FIELD: Final = lazy_pattern(r"Object (contains unknown|missing required) field `(.*)`", re.DOTALL)
_WORDS: Final = {
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "array": "a list",
    "object": "an object",
}


class JsonFile(Struct, frozen=True):
    file: str
    members: Mapping[str, Json]
    source: bytes = b""

    def convert(self, type_: type[T]) -> T:
        if has_half_character(cast("Json", self.members)):
            way = _way_to_half(cast("Json", self.members), ())
            raise self.error(
                way, "a text contains half of a surrogate pair", "write complete characters"
            )
        try:
            return msgspec.convert(self.members, type_)
        except msgspec.ValidationError as error:
            raise self._refused(str(error), type_) from None

    def with_whole_numbers(self) -> "JsonFile":
        """Return the same with 5 for 5.0: JSON, as JSON Schema reads it, has one kind of number."""
        return replace(self, members=cast("dict[str, Json]", _whole(dict(self.members))))

    def require_once_each(self, name: str, lists: Struct) -> None:
        for each in lists.__struct_fields__:
            self.require_once((name, each), getattr(lists, each))

    def require_once(self, way: str | Way, texts: Sequence[str]) -> None:
        counts = Counter(texts)
        twice = next((text for text in texts if counts[text] > 1), None)
        if twice is not None:
            raise self.error(way, f"{quote(twice)} is given twice", "give it once")

    def error(self, way: str | Way, message: str, hint: str = "correct the file") -> ConfigError:
        return ConfigError(message, where=self.place(way), hint=hint)

    def place(self, way: str | Way) -> str:
        """Return `file, line N, field '…'`; a missing member gets its object's line."""
        way = (way,) if isinstance(way, str) else way
        while way and isinstance(way[-1], int):
            way = way[:-1]
        name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in way)
        lines = find_lines(self.source.decode())
        ways = (way[:length] for length in range(len(way), 0, -1))
        line = next((lines[each] for each in ways if each in lines), 1)
        return f"{self.file}, line {line}, field {quote(name[1:])}"

    def _refused(self, said: str, type_: object) -> ConfigError:
        at = _AT.search(said)
        said = said[: at.start()] if at else said
        # For a map's value msgspec says only `[...]`: then name the map.
        parts = re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", at[1] if at else "")
        way: Way = tuple(int(index) if index else name for name, index in parts)
        field = _FIELD.fullmatch(said)
        if field is not None:
            way = (*way, field[2])
            known = f"known keys: {', '.join(_known(type_, way[:-1]))}"
            if field[1] == "contains unknown":
                return self.error(way, f"unknown key {quote(field[2])}", known)
            return self.error(way, f"{quote(field[2])} is missing", known)
        value: Any = self.members
        for step in way:
            value = value[step]
        name = next((part for part in reversed(way) if isinstance(part, str)), "it")
        if said.startswith("Invalid"):
            return self.error(
                way,
                f"{quote(value)} is not a valid value of {quote(name)}",
                f"one of: {', '.join(_known(type_, way))}",
            )
        wanted = re.sub(", got .*", "", said.removeprefix("Expected "))
        wanted = re.sub(r"`(\w+)( \| null)?`", lambda found: _WORDS.get(found[1], found[1]), wanted)
        return self.error(way, f"{quote(name)} is {_shown(value)}, not {wanted}")


def _known(type_: object, way: Way) -> tuple[str, ...]:
    from msgspec import inspect  # noqa: PLC0415 - only for a file that does not load

    kinds = [inspect.type_info(type_)]
    for step in (*way, None):
        flat: list[inspect.Type] = []
        while kinds:
            kind = kinds.pop()
            if isinstance(kind, inspect.UnionType):
                kinds += kind.types
            elif isinstance(kind, inspect.Metadata):
                kinds.append(kind.type)
            else:
                flat.append(kind)
        if step is None:
            return tuple(word for kind in flat for word in _words_of(kind))
        for kind in flat:
            if isinstance(kind, inspect.VarTupleType):
                kinds.append(kind.item_type)
            elif isinstance(kind, inspect.StructType):
                kinds += [each.type for each in kind.fields if each.encode_name == step]
    return ()


def _words_of(kind: object) -> tuple[str, ...]:
    from msgspec import inspect  # noqa: PLC0415 - as above

    if isinstance(kind, inspect.StructType):
        return tuple(each.encode_name for each in kind.fields)
    if isinstance(kind, inspect.LiteralType):
        return tuple(map(str, kind.values))
    return tuple(each.value for each in kind.cls) if isinstance(kind, inspect.EnumType) else ()


def _way_to_half(value: Json, way: Way) -> Way:
    """Find the first text that is not UTF-8; for a key, the object that has it."""
    items = enumerate(cast("list[Json]", value)) if isinstance(value, list) else ()
    if isinstance(value, dict):
        items = cast("dict[str, Json]", value).items()
    for step, each in items:
        if has_half_character(each):
            return _way_to_half(each, (*way, step))
    return way


def _whole(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in cast("dict[str, Json]", value).items()}
    if isinstance(value, list):
        return [_whole(each) for each in cast("list[Json]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {quote(value)}"
    if isinstance(value, str):
        return f"the text {quote(value)}"
    return "a list" if isinstance(value, list) else "an object"


def parse_file(content: bytes, file: str) -> JsonFile:
    try:
        text = content.decode("utf-8")
        value = read_json(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "the file is not UTF-8", where=f"{file}, line {line}", hint="save it as UTF-8"
        ) from None
    except BrokenJsonError as error:
        raise _broken_file(error, content.decode("utf-8"), file) from None
    if not isinstance(value, dict):
        raise ConfigError(
            "the file is not a JSON object", where=f"{file}, line 1", hint="write {…}"
        )
    return JsonFile(file, cast("dict[str, Json]", value), content)


def load_file(path: Path, bytes_max: int) -> JsonFile | None:
    content = atomic.read_file(path, bytes_max)
    return None if content is None else parse_file(content, str(path))


def names_in(directory: Path) -> list[str]:
    """List names, sorted, without those of unfinished writes; none without a directory."""
    with atomic.host_errors("listing", directory):
        try:
            names = os.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
    return sorted(name for name in names if not atomic.is_temporary_name(name))


def _broken_file(error: BrokenJsonError, text: str, file: str) -> ConfigError:
    where, said = file, "the file contains a number that is too large, or too many levels"
    if error.kind == "syntax":
        where = f"{file}, line {error.line}, column {error.column}"
        said = f"the file is not JSON: {error.what}"
    elif error.kind == "twice":
        where = f"{file}, line {repeated_line(text)}"
        said = f"the key {quote(error.what)} is given twice"
    elif error.kind == "constant":
        where, said = f"{file}, line 1", error.what
    return ConfigError(said, where=where, hint="correct the file")


def write_object(members: Mapping[str, Json] | Struct) -> bytes:
    value = msgspec.to_builtins(members) if isinstance(members, Struct) else members
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


# Threat: who can write in the directory of such a file can replace it and act as the user.


def read_private(path: Path, bytes_max: int, type_: type[T]) -> T | None:
    atomic.require_private(path.parent)
    found = load_file(path, bytes_max)
    return None if found is None else found.convert(type_)


def write_private(path: Path, value: Struct) -> None:
    atomic.make_directories(path.parent)
    atomic.require_private(path.parent)
    atomic.replace_file(path, write_object(value))
