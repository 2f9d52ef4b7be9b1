"""Strict reading of tables: each key by its type, what is left over is a mistake.

A value that does not fit is reported and its default returned: one load names every problem.
"""

from collections.abc import Iterator
from typing import TypeVar, cast

from msgspec import Struct, field

from paddock.policy.places import Document, Key, PatternError, Place, Problem, quote_toml, suggest
from paddock.values.calls import Json

Word = TypeVar("Word", bound=str)


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
    __slots__ = ("_known", "_values", "key", "report")

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
        self._known.update(self._values)
        return list(self._values)

    def place(self, name: str) -> Place:
        return self.report.document.place((*self.key, name))

    def problem(self, name: str, message: str, hint: str = "") -> None:
        self.report.add((*self.key, name), message, hint)

    def table(self, name: str) -> "Table | None":
        if not self.has(name):
            return None
        value = self._values[name]
        if not isinstance(value, dict):
            self._mistyped(name, value, "a table")
            return None
        return Table(self.report, (*self.key, name), cast(dict[str, Json], value))

    def tables(self, name: str) -> Iterator["Table"]:
        for position, value in enumerate(self._array(name, "an array of tables")):
            key = (*self.key, name, position)
            if isinstance(value, dict):
                yield Table(self.report, key, cast(dict[str, Json], value))
            else:
                self.report.add(
                    key, f"{name} of {self.title} holds {quote_toml(value)}, not a table"
                )

    def string(self, name: str, default: str = "") -> str:
        if not self.has(name):
            return default
        value = self._values[name]
        if not isinstance(value, str):
            self._mistyped(name, value, "a string")
            return default
        if not value.strip():
            self.problem(name, f"{name} in {self.title} is empty", "leave the key out instead")
            return default
        return value

    def word(self, name: str, known: tuple[Word, ...], default: Word) -> Word:
        value = self.string(name, str(default))
        for option in known:
            if option == value:
                return option
        message = f"{name} in {self.title} is {quote_toml(value)}, and that is none of its values"
        self.problem(name, message, suggest(value, known))
        return default

    def given_word(self, name: str, known: tuple[Word, ...]) -> Word | None:
        return self.word(name, known, known[0]) if self.has(name) else None

    def boolean(self, name: str, default: bool) -> bool:
        if not self.has(name):
            return default
        value = self._values[name]
        if isinstance(value, bool):
            return value
        self._mistyped(name, value, "true or false")
        return default

    def integer(self, name: str, default: int, lowest: int, highest: int) -> int:
        if not self.has(name):
            return default
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            self._mistyped(name, value, "an integer")
            return default
        return int(self._in_range(name, value, default, lowest, highest))

    def texts(self, name: str) -> tuple[Text, ...] | None:
        if not self.has(name):
            return None
        found: list[Text] = []
        for position, value in enumerate(self._array(name, "an array of strings")):
            key = (*self.key, name, position)
            if isinstance(value, str):
                found.append(Text(value, self.report.document.place(key)))
            else:
                self.report.add(
                    key, f"{name} in {self.title} holds {quote_toml(value)}, not a string"
                )
        return tuple(found)

    def strings(self, name: str) -> tuple[str, ...] | None:
        found = self.texts(name)
        if found is None:
            return None
        for position, item in enumerate(found):
            if not item.text.strip() or "\0" in item.text:
                key = (*self.key, name, position)
                self.report.add(key, f"{name} in {self.title} holds {quote_toml(item.text)}")
        return tuple(item.text for item in found)

    def finish(self) -> None:
        for name in self._values:
            if name not in self._known:
                message = f"unknown key {quote_toml(name)} in {self.title}"
                self.problem(name, message, suggest(name, self._known))

    def _array(self, name: str, wanted: str) -> list[Json]:
        if not self.has(name):
            return []
        value = self._values[name]
        if isinstance(value, list):
            return cast(list[Json], value)
        self._mistyped(name, value, wanted)
        return []

    def _mistyped(self, name: str, value: Json, wanted: str) -> None:
        self.problem(name, f"{name} in {self.title} is {quote_toml(value)}, not {wanted}")

    def _in_range(
        self, name: str, value: float, default: float, lowest: float, highest: float
    ) -> int | float:
        if lowest <= value <= highest:
            return value
        message = f"{name} in {self.title} is {quote_toml(value)}, outside {lowest} to {highest}"
        self.problem(name, message, f"{highest} is the limit, and no file raises it")
        return default
