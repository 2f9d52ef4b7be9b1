"""Bind a model's JSON arguments to typed values, or raise an error that names the field.

An argument type is an `ArgumentType` whose fields are declared with `needed_text`,
`optional_integer`, `flag` and the like, or built from a function's signature. It yields
the JSON Schema that a model sees and the binder that checks what the model sent.
Texts, integers and booleans are checked here (type, characters, ranges, limits of a
policy); `msgspec` builds the schema and converts every other type.
Nothing is coerced: a wrong type, an unknown name, a missing or empty text is an error;
a number out of range is an error unless its field is clamped.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property, partial
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeVar,
    cast,
    dataclass_transform,
)

from msgspec import Meta, Struct, StructMeta, ValidationError, convert, field, to_builtins
from msgspec.json import encode, schema_components
from msgspec.structs import replace

from paddock import limits
from paddock.errors import InvalidArgumentsError, UnknownArgumentError
from paddock.text.json import JSON_NAMES, json_name
from paddock.text.show import cut, quote, show_name, text_of
from paddock.values.calls import Json

_PLAIN: Final = (str, int, bool)  # kinds that are the exact Python types of their JSON values


class Argument(Struct, frozen=True):
    """The declaration of one field. `kind` is a plain type, or any that `msgspec` converts."""

    kind: Any
    description: str
    default: object = ...  # `...` where the field is required
    may_be_empty: bool = True
    is_content: bool = False  # large or personal: ledgers keep only a salted digest
    minimum: int | None = None
    maximum: int | None = None
    out_of_range: Literal["refused", "clamped"] = "refused"
    limit: str = ""  # name of the limit behind `maximum`, if a policy may lower it
    choices: tuple[str, ...] = ()  # shown to the model; the tool itself refuses others

    @property
    def is_required(self) -> bool:
        return self.default is ...

    @property
    def converted(self) -> Any:
        """The type that `msgspec` converts to: never None, which means "left out"."""
        return self.kind if self.may_be_empty else Annotated[self.kind, Meta(min_length=1)]


def plain_text(description: str, *, is_content: bool = False) -> Any:
    """Declare a required text that may be empty."""
    return Argument(str, description, is_content=is_content)


def needed_text(description: str, *, is_content: bool = False) -> Any:
    """Declare a required text that must not be empty."""
    return Argument(str, description, may_be_empty=False, is_content=is_content)


def optional_text(description: str) -> Any:
    """Declare an optional text, None by default; not empty if given."""
    return Argument(str, description, None, may_be_empty=False)


def filled_text(description: str, default: str, choices: Iterable[str] = ()) -> Any:
    """Declare an optional text with a default; not empty if given."""
    return Argument(str, description, default, may_be_empty=False, choices=tuple(choices))


def content_text(description: str) -> Any:
    """Declare an optional text, empty by default, that ledgers treat as content."""
    return Argument(str, description, "", is_content=True)


def needed_integer(description: str) -> Any:
    """Declare a required integer; the tool checks its range."""
    return Argument(int, description)


def optional_integer(
    description: str,
    default: int | None,
    *,
    minimum: int,
    maximum: int | None = None,
    limit: str = "",
) -> Any:
    """Declare an optional integer; a value out of range is an error.

    `limit` names the limit that a policy may lower; it is the default of `maximum`.
    """
    most = int(getattr(limits, limit)) if limit and maximum is None else maximum
    return Argument(int, description, default, minimum=minimum, maximum=most, limit=limit)


def clamped_integer(
    description: str, default: int, *, minimum: int, maximum: int | None = None, limit: str = ""
) -> Any:
    """Declare an optional integer; a value out of range is clamped, and the result says so.

    Needs `maximum` or `limit`. With both, a policy may lower `maximum` but not raise it.
    """
    declared = optional_integer(description, default, minimum=minimum, maximum=maximum, limit=limit)
    return replace(declared, out_of_range="clamped")


def flag(description: str, *, default: bool) -> Any:
    """Declare an optional boolean."""
    return Argument(bool, description, default)


def text_map(description: str) -> Any:
    """Declare an optional object of texts, None by default."""
    return Argument(dict[str, str], description, None)


@dataclass_transform(frozen_default=True)
class _ArgumentMeta(StructMeta):
    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        own = {name: each for name, each in namespace.items() if isinstance(each, Argument)}
        fields = {
            name: field()
            if each.is_required
            else field(default=each.default)
            if isinstance(each.default, str | int | None)
            # A copy for each call: a function may change its arguments.
            else field(default_factory=partial(deepcopy, each.default))
            for name, each in own.items()
        }
        made: Any = super().__new__(mcls, name, bases, {**namespace, **fields}, **options)
        made.declared_arguments = {**getattr(made, "declared_arguments", {}), **own}
        return made

    def __setattr__(cls, name: str, value: object) -> None:
        if name.startswith("__dataclass"):
            raise TypeError(f"{cls.__name__} is an argument type: declare it without @dataclass")
        super().__setattr__(name, value)


class ArgumentType(Struct, frozen=True, metaclass=_ArgumentMeta):
    """Base of every argument type: a frozen struct of `Argument` fields."""

    declared_arguments: ClassVar[Mapping[str, Argument]]


def made_type(name: str, arguments: dict[str, Argument]) -> type[ArgumentType]:
    """Build an argument type. Raises: TypeError: a kind has no JSON Schema."""
    fields = {"__annotations__": dict.fromkeys(arguments, Any), **arguments}
    made = _ArgumentMeta(name, (ArgumentType,), fields, kw_only=True)
    _schema_of(made.declared_arguments)
    return made


A = TypeVar("A")

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class Binder(Generic[A]):
    """Checks a call's arguments against one argument type."""

    def __init__(self, type_: type[A]) -> None:
        if not (isinstance(type_, _ArgumentMeta) and issubclass(type_, ArgumentType)):
            raise TypeError(f"{type_!r} is not an argument type")
        self._type = type_
        self.declared: Mapping[str, Argument] = type_.declared_arguments
        if tuple(self.declared) != type_.__struct_fields__:
            raise TypeError(f"a field of {type_.__name__} is not an Argument")
        self._numbers = [each for each in self.declared.items() if each[1].minimum is not None]

    @cached_property
    def schema(self) -> dict[str, Json]:
        # Lazy: the schema builder is slow to load, and a call does not need it.
        return _schema_of(self.declared)

    def bind(
        self, given: Mapping[str, Json], lowered: Mapping[str, int] = _NOTHING
    ) -> tuple[A, Mapping[str, int]]:
        """Return the typed arguments, and the numbers that were clamped (name → value used).

        `lowered` are the limits that a policy lowers, by name. They clamp defaults too.

        Raises: UnknownArgumentError, InvalidArgumentsError.
        """
        values: dict[str, Any] = {}
        for name, declared in self.declared.items():
            if name in given:
                values[name] = self._typed(name, declared, given[name])
            elif declared.default is ...:
                # A misspelt name is both unknown and missing; the former says more.
                raise self._unknown(given) or self._missing(name)
        if len(values) < len(given):
            raise self._unknown(given) or InvalidArgumentsError("the arguments are not usable")
        clamped: dict[str, int] = {}
        for name, declared in self._numbers:
            value = values.get(name, declared.default)
            if value is None:
                continue
            low, most = declared.minimum or 0, _most_of(declared, lowered)
            used = max(value, low)
            used = used if most is None else min(used, most)
            if used == value:
                continue
            if name in given and declared.out_of_range == "refused":
                raise _out_of_range(name, low, most, value)
            values[name] = clamped[name] = used
        return self._type(**values), clamped

    def values(self, given: Mapping[str, Json]) -> dict[str, Json]:
        """Return the bound arguments by name, with defaults filled in. Raises: as `bind`."""
        return to_builtins(self.bind(given)[0], enc_hook=as_model)

    def _typed(self, name: str, declared: Argument, value: Json) -> Any:
        if declared.kind not in _PLAIN:
            return _converted(name, declared, value)
        if type(value) is not declared.kind:
            raise _mistyped(name, declared, value)
        if value == "" and not declared.may_be_empty:
            raise self._missing(name)
        if type(value) is str and not value.isascii():
            _require_characters(name, value)
        return value

    def _missing(self, name: str) -> InvalidArgumentsError:
        declared = self.declared[name]
        if declared.may_be_empty:
            hint = f"give {name} as its schema says"
            if declared.kind in _PLAIN:
                what = JSON_NAMES[declared.kind]
                what = "may be empty" if declared.kind is str else f"is {what}"
                hint = f"give {name}; it {what}"
            return InvalidArgumentsError(f"{name} is required", where=name, hint=hint)
        if not declared.is_required:
            return InvalidArgumentsError(
                f"{name} must not be empty", where=name, hint=f"leave {name} out, or fill it"
            )
        needed = [n for n, a in self.declared.items() if a.is_required and not a.may_be_empty]
        return InvalidArgumentsError(
            f"{' and '.join(needed)} {'is' if len(needed) == 1 else 'are'} required",
            where=name,
            hint=f"{name} is missing or empty",
        )

    def _unknown(self, given: Mapping[str, Json]) -> UnknownArgumentError | None:
        name = next((name for name in given if name not in self.declared), None)
        if name is None:
            return None
        return UnknownArgumentError(
            f"unknown argument {quote(name)}",
            where=show_name(str(name)[: limits.message_value_chars_max]),
            hint=f"the arguments are: {', '.join(self.declared) or 'none'}",
        )


class PassedArguments:
    """Binder of another program's tool: passes the arguments through unchecked."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema: dict[str, Json] = {"type": "object", "properties": {}, **schema}
        self.declared = {str(name): Argument(str, "", "") for name in self.schema["properties"]}

    def bind(
        self, given: Mapping[str, Json], lowered: Mapping[str, int] = _NOTHING
    ) -> tuple[Any, Mapping[str, int]]:
        del lowered
        return given, _NOTHING

    def values(self, given: Mapping[str, Json]) -> dict[str, Json]:
        return dict(given)


def _mistyped(name: str, declared: Argument, value: Json) -> InvalidArgumentsError:
    shown = "" if value is None else f" {_shown(value)}"
    kind = JSON_NAMES[declared.kind]
    return InvalidArgumentsError(
        f"{name} must be {kind}, not {json_name(value)}{shown}",
        where=name,
        hint=f"give {kind}" if declared.is_required else f"give {kind}, or leave {name} out",
    )


def _shown(value: Json) -> str:
    if isinstance(value, int | float):
        return cut(text_of(value), limits.message_value_chars_max)
    return quote(value)


_AT: Final = " - at "  # `msgspec` puts it between the problem and its place


def _unfit(name: str, error: Exception) -> InvalidArgumentsError:
    """Report an error of `msgspec` with its place in the argument: `tags[1]`, `report.days`."""
    said, *inwards = show_name(str(error).replace("`", "")).split(_AT)
    where = name + "".join(path.removeprefix("key in ")[1:] for path in reversed(inwards))
    return InvalidArgumentsError(
        f"{where}: {said[:1].lower()}{said[1:]}",
        where=where,
        hint=f"give {name} as its schema says",
    )


def _converted(name: str, declared: Argument, value: Json) -> Any:
    try:
        converted = convert(value, declared.kind, dec_hook=from_model)
    except (ValidationError, RecursionError) as error:
        raise _unfit(name, error) from None
    except UnicodeEncodeError:
        converted = None  # a lone surrogate is not JSON either: refused below
    _require_json(name, value)
    return converted


def _require_json(name: str, value: Json) -> None:
    try:
        encode(value)
    except UnicodeEncodeError:
        said, hint = "has half of a surrogate pair in it", "send whole Unicode characters"
    except (TypeError, RecursionError) as error:
        said, hint = f"is not JSON: {show_name(str(error))}", "send valid JSON"
    else:
        return
    raise InvalidArgumentsError(f"{name} {said}", where=name, hint=hint)


def _require_characters(name: str, value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentsError(
            f"{name} has half of a surrogate pair at position {error.start}",
            where=name,
            hint="send whole Unicode characters",
        ) from None


def _most_of(declared: Argument, lowered: Mapping[str, int]) -> int | None:
    """Return the field's maximum; a policy may raise only the limit itself."""
    own, most = declared.maximum, lowered.get(declared.limit)
    if own is None or most is None:
        return own
    return most if own == getattr(limits, declared.limit) else min(own, most)


def _out_of_range(name: str, low: int, high: int | None, value: int) -> InvalidArgumentsError:
    top = "" if high is None else f" and at most {high}"
    return InvalidArgumentsError(
        f"{name} must be at least {low}{top}, not {_shown(value)}",
        where=name,
        hint=f"give a number in that range, or leave {name} out",
    )


def _schema_of(declared: Mapping[str, Argument]) -> dict[str, Json]:
    """Build the schema of a tool's arguments. Raises: TypeError: a kind has none."""
    named = [each.converted for each in declared.values()]
    own: dict[str, Json] = {}
    kinds, common = schema_components(
        named, schema_hook=partial(_model_schema, own), ref_template=f"{_DEFINITIONS}{{name}}"
    )
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {
            name: _described(each, kind)
            for (name, each), kind in zip(declared.items(), kinds, strict=True)
        },
        "required": [name for name, each in declared.items() if each.is_required],
        "additionalProperties": False,
    }
    for name in own.keys() & common.keys():
        raise TypeError(f"two different types have the name {name}")
    if own or common:
        schema["$defs"] = {**common, **own}
    return schema


def _described(declared: Argument, schema: dict[str, Json]) -> dict[str, Json]:
    description = declared.description
    if declared.choices:
        schema["enum"] = list(declared.choices)
    if declared.out_of_range == "clamped":
        description += f" Clamped to {declared.minimum}-{declared.maximum}."
    else:
        if declared.minimum is not None:
            schema["minimum"] = declared.minimum
        if declared.maximum is not None:
            schema["maximum"] = declared.maximum
    if description:
        schema["description"] = description
    if declared.default is not ... and declared.default is not None:
        schema["default"] = to_builtins(declared.default, enc_hook=as_model)
    return schema


# Models of pydantic: the program that declares one has loaded it.

_DEFINITIONS: Final = "#/$defs/"


def from_model(kind: Any, value: object) -> Any:
    if not hasattr(kind, "model_validate_json"):
        raise NotImplementedError
    # From JSON text: strict, yet dates and enum members may be sent as texts.
    source = encode(value)
    try:
        return kind.model_validate_json(source, strict=True)
    except ValueError as error:
        first = cast("Any", error).errors()[0]
        path = "".join(f"[{e}]" if isinstance(e, int) else f".{e}" for e in first["loc"])
        raise ValueError(f"{first['msg']}{_AT}${path}") from None


def as_model(value: Any) -> Any:
    if not hasattr(value, "model_dump"):
        raise NotImplementedError(f"{type(value).__name__} is not JSON")
    return value.model_dump(mode="json")


def _model_schema(common: dict[str, Json], kind: Any) -> dict[str, Json]:
    if not hasattr(kind, "model_json_schema"):
        raise NotImplementedError
    lead = f"{kind.__name__}_"
    try:
        schema = kind.model_json_schema(ref_template=f"{_DEFINITIONS}{lead}{{model}}")
    except RuntimeError as error:  # pydantic's error for a model without a schema
        raise TypeError(str(error).partition("\n")[0]) from None
    for name, each in schema.pop("$defs", {}).items():
        if common.setdefault(lead + name, each) != each:
            raise TypeError(f"two different models have the name {name}")
    return schema


TEXT: Final[dict[str, Json]] = {"type": "string"}
INTEGER: Final[dict[str, Json]] = {"type": "integer"}
BOOLEAN: Final[dict[str, Json]] = {"type": "boolean"}
TEXTS: Final[dict[str, Json]] = {"type": "array", "items": TEXT}
_NO_FIELDS: Final[Mapping[str, Json]] = MappingProxyType({})
WORKSPACE_FAILURE: Final[Mapping[str, Json]] = MappingProxyType({"success": False})


def result_schema(own: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema of a result: the fields of every tool, and this tool's."""
    common: dict[str, Json] = {
        "status": {"enum": ["ok", "error"]},
        "content": {"type": "string", "description": "The text for the model."},
        "code": {"type": "string", "description": "Stable code of an error."},
        "error": {"type": ["string", "null"], "description": "What happened."},
        "hint": {"type": "string", "description": "What to do next."},
        "rule": {"type": "object", "description": "The rule that refused: text, file, line."},
        "approval": {"type": "string", "description": "Id of the request awaiting approval."},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "clamped": {"type": "object", "description": "Clamped numbers: the values used instead."},
    }
    return {
        "type": "object",
        "properties": {**common, **own},
        "required": ["status", "content"],
        "additionalProperties": False,
    }


def rows_schema(fields: Mapping[str, Json], *, optional: Mapping[str, Json] = _NO_FIELDS) -> Json:
    """Return the schema of a list of objects with all `fields` and maybe `optional` ones."""
    return {"type": "array", "items": object_schema(fields, optional=optional)}


def object_schema(fields: Mapping[str, Json], *, optional: Mapping[str, Json] = _NO_FIELDS) -> Json:
    return {
        "type": "object",
        "properties": {**fields, **optional},
        "required": list(fields),
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
