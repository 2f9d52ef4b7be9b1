"""From a model's JSON to a typed value, or to an error that names the field.

An argument type is a frozen dataclass whose fields are made with `needed_text`,
`optional_integer`, `flag` and the like. From it come the JSON Schema that a model
sees and the binder that checks what the model sent. Nothing is coerced: a wrong type,
an unknown name, a missing or empty text is an error; a number out of range is an
error unless its field is clamped.

Also here:

- Result fields that the workspace tools have in common, and their JSON Schema.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import InvalidArgumentsError, UnknownArgumentError
from paddock.text.json import JSON_NAMES, json_name
from paddock.text.show import quote, show_name
from paddock.values.calls import Json

_KEY: Final = "paddock.argument"
_OutOfRange = Literal["refused", "clamped"]


class Argument(Struct, frozen=True):
    """What one field accepts. `kind` is the exact Python type of its JSON value."""

    kind: type
    description: str
    is_required: bool = True
    may_be_empty: bool = True
    is_content: bool = False
    """Large or personal: ledgers keep a salted digest instead of the text."""
    minimum: int | None = None
    maximum: int | None = None
    out_of_range: _OutOfRange = "refused"
    limit: str = ""
    """The limit that `maximum` is, by name, where a policy may lower it."""
    choices: tuple[str, ...] = ()
    """Told to the model; the tool refuses others in its own words."""


def plain_text(description: str, *, is_content: bool = False) -> Any:
    """A required text that may be empty."""
    return _field(Argument(str, description, is_content=is_content))


def needed_text(description: str, *, is_content: bool = False) -> Any:
    """A required text that must not be empty."""
    return _field(Argument(str, description, may_be_empty=False, is_content=is_content))


def optional_text(description: str) -> Any:
    """A text that may be left out; then the field is None. Not empty if given."""
    return _field(Argument(str, description, is_required=False, may_be_empty=False), None)


def filled_text(description: str, default: str, choices: Iterable[str] = ()) -> Any:
    """A text that may be left out; then the field is `default`. Not empty if given."""
    declared = Argument(
        str, description, is_required=False, may_be_empty=False, choices=tuple(choices)
    )
    return _field(declared, default)


def optional_integer(
    description: str,
    default: int | None,
    *,
    minimum: int,
    maximum: int | None = None,
    limit: str = "",
) -> Any:
    """An integer that may be left out; out of range is an error.

    `limit` names what it is at most where a policy may lower that; then it is `maximum`.
    """
    return _integer(description, default, minimum, _most(maximum, limit), limit, "refused")


def content_text(description: str) -> Any:
    """A text that may be left out, and then is empty; kept as content."""
    return _field(Argument(str, description, is_required=False, is_content=True), "")


def clamped_integer(
    description: str, default: int, *, minimum: int, maximum: int | None = None, limit: str = ""
) -> Any:
    """An integer that may be left out; out of range is clamped, and that is said.

    One of `maximum` and `limit` is needed. With both, a policy may lower `maximum`, and not
    raise it.
    """
    return _integer(description, default, minimum, _most(maximum, limit), limit, "clamped")


def _most(maximum: int | None, limit: str) -> int | None:
    return int(getattr(limits, limit)) if limit and maximum is None else maximum


def _integer(
    description: str,
    default: int | None,
    minimum: int,
    maximum: int | None,
    limit: str,
    out_of_range: _OutOfRange,
) -> Any:
    declared = Argument(
        int,
        description,
        is_required=False,
        minimum=minimum,
        maximum=maximum,
        out_of_range=out_of_range,
        limit=limit,
    )
    return _field(declared, default)


def flag(description: str, *, default: bool) -> Any:
    """A boolean that may be left out."""
    return _field(Argument(bool, description, is_required=False), default)


def text_map(description: str) -> Any:
    """An object whose members are texts; it may be left out, and then the field is None."""
    return _field(Argument(dict, description, is_required=False), None)


def _field(argument: Argument, default: object = dataclasses.MISSING) -> Any:
    return dataclasses.field(default=default, metadata={_KEY: argument})


class ArgumentType:
    """Base of every argument type: a frozen dataclass of `Argument` fields."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


A = TypeVar("A")


_ABSENT: Final = object()
_REQUIRED: Final = object()
_NOTHING_CLAMPED: Final[Mapping[str, int]] = MappingProxyType({})
_NOTHING_LOWERED: Final[Mapping[str, int]] = MappingProxyType({})

# One field, laid out for the loop that binds a call. A plain tuple: unpacking a named one
# costs a third of the whole binding.
_Slot = tuple[str, type, bool, int | None, object, Callable[[object, object], None]]


class Binder(Generic[A]):
    """Checks a call's arguments against one argument type; compiled once.

    A frozen dataclass's own constructor costs more than all checks together, so
    the slots are filled directly; nothing else ever holds the unfinished value.
    """

    __slots__ = ("_by_name", "_needed", "_slots", "_type", "schema")

    def __init__(self, type_: type[A]) -> None:
        fields = dataclasses.fields(type_)  # pyright: ignore[reportArgumentType] - `A` is a dataclass
        self._type = type_
        self._by_name: dict[str, Argument] = {f.name: f.metadata[_KEY] for f in fields}
        self._slots = tuple(_slot_of(type_, field) for field in fields)
        self._needed = tuple(
            n for n, a in self._by_name.items() if a.is_required and not a.may_be_empty
        )
        self.schema: dict[str, Json] = self._make_schema()

    @property
    def declared(self) -> Mapping[str, Argument]:
        """Field name → what it accepts."""
        return self._by_name

    def bind(
        self, given: Mapping[str, Json], lowered: Mapping[str, int] = _NOTHING_LOWERED
    ) -> tuple[A, Mapping[str, int]]:
        """The typed arguments, and the numbers that were clamped (name → value used).

        `lowered` are the limits that a policy lowers, by name. A number that was left out is
        clamped to them too.

        Raises:
            UnknownArgumentError: a name that the tool does not have.
            InvalidArgumentsError: missing, empty, mistyped or out of range.
        """
        bound = object.__new__(self._type)
        clamped = _NOTHING_CLAMPED
        left = len(given)
        for name, kind, must_be_filled, minimum, default, put in self._slots:
            value = given.get(name, _ABSENT)
            if type(value) is kind:
                left -= 1
                if kind is str:
                    if must_be_filled and not value:
                        raise self._missing(name)
                    if not value.isascii():
                        _require_characters(name, value)
                elif kind is dict:
                    _require_texts(name, value)
                elif minimum is not None:
                    used = _in_range(name, _raised(self._by_name[name], lowered), value)
                    if used != value:
                        clamped = {**clamped, name: used}
                        value = used
                put(bound, value)
            elif value is _ABSENT and default is not _REQUIRED:
                put(bound, default)
            else:
                raise self._problem(name, value, given)
        if left:
            raise self._unknown(given)
        return bound, self._lower(bound, given, lowered, clamped) if lowered else clamped

    def _lower(
        self,
        bound: A,
        given: Mapping[str, Json],
        lowered: Mapping[str, int],
        clamped: Mapping[str, int],
    ) -> Mapping[str, int]:
        used = dict(clamped)
        for name, _, _, _, _, put in self._slots:
            declared = self._by_name[name]
            most = lowered.get(declared.limit)
            value = getattr(bound, name)
            if most is None or value <= most:
                continue
            if name in given:
                _in_range(name, replace(declared, maximum=most), value)
            put(bound, most)
            used[name] = most
        return used

    def values(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """The arguments as `bind` types them, by name, defaults filled in; raises as it does."""
        bound, _ = self.bind(given)
        return {name: getattr(bound, name) for name in self._by_name}

    def _problem(self, name: str, value: Json, given: Mapping[str, Json]) -> InvalidArgumentsError:
        if value is not _ABSENT:
            return _mistyped(name, self._by_name[name], value)
        # A misspelt name is both unknown and missing; the former says more.
        if any(other not in self._by_name for other in given):
            return self._unknown(given)
        return self._missing(name)

    def _missing(self, name: str) -> InvalidArgumentsError:
        declared = self._by_name[name]
        if declared.may_be_empty:
            return InvalidArgumentsError(
                f"{name} is required", where=name, hint=f"give {name}; it may be empty"
            )
        if not declared.is_required:
            return InvalidArgumentsError(
                f"{name} must not be empty", where=name, hint=f"leave {name} out, or fill it"
            )
        verb = "is" if len(self._needed) == 1 else "are"
        return InvalidArgumentsError(
            f"{' and '.join(self._needed)} {verb} required",
            where=name,
            hint=f"{name} is missing or empty",
        )

    def _unknown(self, given: Mapping[str, Json]) -> UnknownArgumentError:
        name = next(name for name in given if name not in self._by_name)
        return UnknownArgumentError(
            f"unknown argument {quote(name)}",
            where=show_name(str(name)[: limits.message_value_chars_max]),
            hint=f"the arguments are: {', '.join(self._by_name) or 'none'}",
        )

    def _make_schema(self) -> dict[str, Json]:
        return {
            "type": "object",
            "properties": {
                name: _schema_of(self._by_name[name], default)
                for name, _, _, _, default, _ in self._slots
            },
            "required": [n for n, a in self._by_name.items() if a.is_required],
            "additionalProperties": False,
        }


def _slot_of(type_: type, field: "dataclasses.Field[Any]") -> _Slot:
    declared: Argument = field.metadata[_KEY]
    default = _REQUIRED if declared.is_required else field.default
    put = getattr(type_, field.name).__set__
    must_be_filled = not declared.may_be_empty
    return field.name, declared.kind, must_be_filled, declared.minimum, default, put


def _mistyped(name: str, declared: Argument, value: Json) -> InvalidArgumentsError:
    shown = "" if value is None else f" {quote(value)}"
    kind = JSON_NAMES[declared.kind]
    return InvalidArgumentsError(
        f"{name} must be {kind}, not {json_name(value)}{shown}",
        where=name,
        hint=f"give {kind}" if declared.is_required else f"give {kind}, or leave {name} out",
    )


def _require_characters(name: str, value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentsError(
            f"{name} has half of a surrogate pair at position {error.start}",
            where=name,
            hint="send whole Unicode characters",
        ) from None


def _require_texts(name: str, value: Mapping[object, object]) -> None:
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidArgumentsError(
                f"{name} must hold texts alone: {quote(str(key))} is {json_name(text)}",
                where=name,
                hint=f'give {name} as {{"NAME": "text"}}',
            )
        for part in (key, text):
            _require_characters(name, part)


def _raised(declared: Argument, lowered: Mapping[str, int]) -> Argument:
    most = lowered.get(declared.limit)
    own = declared.maximum
    if most is None or own is None or own != getattr(limits, declared.limit):
        return declared
    return replace(declared, maximum=max(most, own))


def _in_range(name: str, declared: Argument, value: int) -> int:
    low, high = declared.minimum, declared.maximum
    used = value
    if low is not None and used < low:
        used = low
    if high is not None and used > high:
        used = high
    if used != value and declared.out_of_range == "refused":
        top = "" if high is None else f" and at most {high}"
        raise InvalidArgumentsError(
            f"{name} must be at least {low}{top}, not {quote(value)}",
            where=name,
            hint=f"give a number in that range, or leave {name} out",
        )
    return used


def _schema_of(declared: Argument, default: object) -> dict[str, Json]:
    kinds = {str: "string", int: "integer", bool: "boolean", dict: "object"}
    schema: dict[str, Json] = {"type": kinds[declared.kind]}
    if declared.kind is dict:
        schema["additionalProperties"] = {"type": "string"}
    description = declared.description
    if declared.kind is str and not declared.may_be_empty:
        schema["minLength"] = 1
    if declared.choices:
        schema["enum"] = list(declared.choices)
    if declared.out_of_range == "clamped":
        description += f" Clamped to {declared.minimum}-{declared.maximum}."
    else:
        if declared.minimum is not None:
            schema["minimum"] = declared.minimum
        if declared.maximum is not None:
            schema["maximum"] = declared.maximum
    schema["description"] = description
    if default is not _REQUIRED and default is not None:
        schema["default"] = default
    return schema


WORKSPACE_FAILURE: Final[Mapping[str, Json]] = MappingProxyType({"success": False})


def result_schema(own: Mapping[str, Json]) -> dict[str, Json]:
    """The schema of a result object: what every tool has, and a tool's own fields."""
    common: dict[str, Json] = {
        "status": {"enum": ["ok", "error"]},
        "content": {"type": "string", "description": "The text for the model."},
        "code": {"type": "string", "description": "Stable code of an error."},
        "error": {"type": ["string", "null"], "description": "What happened."},
        "hint": {"type": "string", "description": "What to do next."},
        "rule": {"type": "object", "description": "The rule that refused: text, file, line."},
        "approval": {"type": "string", "description": "The request that waits for an answer."},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "clamped": {"type": "object", "description": "Numbers that were clamped, as used."},
    }
    return {
        "type": "object",
        "properties": {**common, **own},
        "required": ["status", "content"],
        "additionalProperties": False,
    }


def workspace_schema(actions: Sequence[str], own: Mapping[str, Json]) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "path": {"type": "string", "description": "Absolute path, for the host."},
        "action": {"enum": list(actions)},
        "success": {"type": "boolean"},
    }
    return result_schema({**fields, **own})


def written_schema(actions: Sequence[str]) -> dict[str, Json]:
    return workspace_schema(
        actions,
        {
            "content_snippet": {"type": "string"},
            "bytes_written": {"type": "integer"},
            "version": {"type": "string", "description": "sha256 of the bytes written."},
        },
    )
