"""JSON of our own files, read strictly: what is not understood does not load."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, cast

from paddock.errors import ConfigError
from paddock.plane.quoting import quote
from paddock.values.calls import Json


class _RejectedJsonError(Exception):
    """Well-formed for `json`, not for us."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The members of one JSON object, taken out by name and type.

    Every reader raises `ConfigError` with file and field where a member is
    missing or of another type; nothing is coerced.
    """

    file: str
    members: Mapping[str, Json]
    prefix: str = ""

    def require_only(self, known: frozenset[str]) -> None:
        """Refuse members that are not in `known`."""
        for name in self.members:
            if name not in known:
                raise self.error(
                    name, f"unknown key {quote(name)}", f"known keys: {', '.join(sorted(known))}"
                )

    def error(self, name: str, message: str, hint: str) -> ConfigError:
        """The error to raise about member `name`."""
        return ConfigError(
            message, where=f"{self.file}, field {quote(self.prefix + name)}", hint=hint
        )

    def text(self, name: str) -> str:
        """A string that is there."""
        if name not in self.members:
            raise self.error(name, f"{quote(name)} is missing", f"add {quote(name)}: a string")
        return self._text(name, self.members[name])

    def text_or_null(self, name: str) -> str | None:
        """A string, or None where it is null or absent."""
        value = self.members.get(name)
        return None if value is None else self._text(name, value)

    def number(self, name: str) -> int:
        """An integer that is there."""
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

    def table(self, name: str) -> "Fields":
        """An object's members; none where it is absent."""
        value: Json = self.members.get(name, {})
        if not isinstance(value, dict):
            raise self.error(name, f"{quote(name)} is not an object", "write an object: {…}")
        return Fields(self.file, cast("dict[str, Json]", value), f"{self.prefix}{name}.")

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
        raise ConfigError(str(error), where=file, hint="correct the file") from None
    except (ValueError, RecursionError):
        # Thousands of digits, or nesting that exhausts the stack.
        raise ConfigError(
            "the file holds a number or a nesting beyond any use", where=file, hint="correct it"
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(
            "the file does not hold a JSON object", where=f"{file}, line 1", hint="write {…}"
        )
    return Fields(file, cast("dict[str, Json]", value))


def write_object(members: Mapping[str, Json]) -> bytes:
    """`members` as readable JSON in UTF-8 with a final newline."""
    return (json.dumps(members, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _kind(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
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
