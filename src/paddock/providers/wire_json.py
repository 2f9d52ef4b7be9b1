"""JSON that a model or its server wrote: read strictly, looked at without trust."""

import json
from collections.abc import Mapping
from typing import NoReturn, cast

from paddock import limits
from paddock.text.show import quote
from paddock.values.calls import Json, Refusal
from paddock.values.models import ToolUse

_EXAMPLE = 'give one object, such as {"path": "README.md"}'


class _RejectedError(ValueError):
    """Well-formed for `json`, not for us."""


def parse_object(text: str) -> Mapping[str, Json] | Refusal:
    """The one JSON object that `text` is, or why it is none.

    A key given twice, NaN and Infinity, and nesting over `limits.argument_depth_max`
    are refused: a reader that picks one meaning may pick another than the model's.
    """
    if len(text) > limits.argument_bytes_max:
        return _refusal(
            f"the arguments have {len(text)} characters, {limits.argument_bytes_max} are allowed"
        )
    try:
        value: Json = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        return _refusal(f"the arguments are not JSON: {error.msg.lower()} ({place})")
    except RecursionError:
        return _refusal("the arguments are nested too deep")
    except ValueError as error:  # ours, or an integer of more digits than Python converts
        return _refusal(f"the arguments are not usable: {error}")
    if not isinstance(value, dict):
        return _refusal(f"the arguments are not an object: {quote(value)}")
    if _is_too_deep(value):
        return _refusal("the arguments are nested too deep")
    return cast("dict[str, Json]", value)


def _refusal(error: str) -> Refusal:
    return Refusal("args.invalid", error, _EXAMPLE)


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RejectedError(f"{quote(twice)} is given twice")
    return found


def _no_constant(word: str) -> NoReturn:
    raise _RejectedError(f"{word} is not a JSON number")


def _is_too_deep(value: Json) -> bool:
    """Whether there are more levels than allowed; level by level, as a stack would run out."""
    level: list[Json] = [value]
    for _ in range(limits.argument_depth_max):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: Json) -> list[Json]:
    """The objects and arrays directly inside an object or array."""
    is_object = isinstance(value, dict)
    members = list(cast("dict[str, Json]", value).values()) if is_object else value
    return [member for member in members if isinstance(member, dict | list)]


def as_map(value: Json) -> Mapping[str, Json]:
    """The members where `value` is an object; none otherwise."""
    return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    """The items where `value` is a list; none otherwise."""
    return cast("list[Json]", value) if isinstance(value, list) else []


def as_maps(value: Json) -> list[Mapping[str, Json]]:
    """The objects of a list; what is no object counts as an empty one."""
    return [as_map(item) for item in as_list(value)]


def as_text(value: Json) -> str:
    """The text where `value` is one; empty otherwise."""
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    """The number where `value` is a whole one that is not negative; 0 otherwise."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else 0


def json_text(call: ToolUse) -> str:
    """A call's arguments as JSON text: as it came, or wrapped where it could not be read.

    Some servers parse the arguments of earlier calls, and fail where they are none.
    """
    if call.problem is not None:
        return json.dumps({"INVALID_JSON": call.raw})
    return call.raw if call.raw.strip() else json.dumps(dict(call.arguments))
