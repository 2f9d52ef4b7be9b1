"""Strict reading of tables: each key by its type, what is left over is a mistake.

A value that does not fit is reported and its default returned: one load names every problem.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args, get_origin

from msgspec import Struct, field
from msgspec.structs import fields, replace

from paddock.policy.places import Document, Key, PatternError, Place, Problem, quote_toml, suggest
from paddock.values.calls import Json

Word = TypeVar("Word", bound=str)
Filled = TypeVar("Filled", bound=Struct)
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

    def fill(self, base: Filled, own: Mapping[str, "Reader"] = NO_READERS) -> Filled:
        """Put each key given in place of its value in `base`, read by its type or as `own` says."""
        given: dict[str, Any] = {}
        for each in fields(base):
            if not each.required and self.has(each.name):
                read = own.get(each.name) or partial(Table.value, wanted=each.type)
                given[each.name] = read(self, each.name)
        self.finish()
        return replace(base, **given)

    def value(self, name: str, wanted: Any) -> object:
        if NoneType in get_args(wanted):
            (wanted,) = (each for each in get_args(wanted) if each is not NoneType)
        kind = get_origin(wanted)
        if kind is Annotated:
            bounds = get_args(wanted)[1]
            return self.integer(name, bounds.ge, bounds.le)
        if kind is Literal:
            return self.word(name, get_args(wanted))
        if kind is tuple:
            return self.strings(name)
        if wanted is str:
            return self.string(name)
        if wanted is bool:
            return self.boolean(name)
        table = self.table(name)
        return wanted() if table is None else table.fill(wanted())

    def string(self, name: str) -> str:
        if not self.has(name):
            return ""
        value = self._values[name]
        if not isinstance(value, str):
            self._mistyped(name, value, "a string")
            return ""
        if not value.strip():
            self.problem(name, f"{name} in {self.title} is empty", "leave the key out instead")
            return ""
        return value

    def word(self, name: str, known: tuple[Word, ...]) -> Word:
        value = self.string(name)
        for option in known:
            if option == value:
                return option
        if value:
            message = f"{name} in {self.title} is {quote_toml(value)}, and that is none of its"
            self.problem(name, f"{message} values", suggest(value, known))
        return known[0]

    def boolean(self, name: str) -> bool:
        value = self._values[name]
        if not isinstance(value, bool):
            self._mistyped(name, value, "true or false")
        return value is True

    def integer(self, name: str, lowest: int, highest: int) -> int:
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            self._mistyped(name, value, "an integer")
            return lowest
        if not lowest <= value <= highest:
            said = f"{name} in {self.title} is {quote_toml(value)}, outside {lowest} to {highest}"
            self.problem(name, said, f"{highest} is the limit, and no file raises it")
        return value

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


Reader = Callable[[Table, str], Any]
"""Reads one key of a table, of which it is known that it is there."""
