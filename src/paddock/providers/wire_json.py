"""JSON that a model or its server wrote: read strictly, looked at without trust."""

import json
from collections.abc import Mapping
from typing import cast

from paddock.errors import InvalidArgumentsError
from paddock.text.json import parse_object
from paddock.values.calls import Json, Refusal
from paddock.values.models import ToolUse


def read_object(text: str, subject: str = "the arguments are") -> Mapping[str, Json] | Refusal:
    """The one JSON object that `text` is, or why it is none; see `parse_object`."""
    try:
        return parse_object(text, subject)
    except InvalidArgumentsError as error:
        place = f" ({error.where})" if error.where else ""
        return Refusal(error.code, f"{error.message}{place}", error.hint)


def whole_characters(message: Mapping[str, Json]) -> Mapping[str, Json]:
    """The message with no half of a surrogate pair in it.

    Halves that came in two pieces are joined; a lone one becomes U+FFFD, for no wire
    carries it back and the conversation would end there.
    """
    text = json.dumps(message, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return as_map(json.loads(mended))
    return message


def has_half_character(value: Mapping[str, Json]) -> bool:
    """Whether a text in it holds half of a surrogate pair, which JSON can write as an escape."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


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
