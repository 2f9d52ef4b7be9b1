"""One JSON object from its text, read strictly: what models and callers write as arguments.

A key given twice, NaN and infinities, and nesting over `limits.argument_depth_max` are
refused: a reader that picks one meaning may pick another than the writer's (RFC 8259,
sections 4 and 6, leaves both open).
"""

import json
from typing import Final, NamedTuple, cast

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.text.show import quote, show_name
from paddock.values.calls import Json

JSON_NAMES: Final = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_EXAMPLE: Final = 'give one object, such as {"path": "README.md"}'
_TOO_DEEP_HINT: Final = f"at most {limits.argument_depth_max} levels of objects and arrays"


def parse_object(source: str | bytes, subject: str = "the arguments are") -> dict[str, Json]:
    """The object that `source` is. `subject` begins the message where it is none.

    Raises:
        InvalidArgumentsError: not JSON, not an object, a key given twice, NaN,
            nested too deep, or over `limits.argument_bytes_max`.
    """
    if len(source) > limits.argument_bytes_max:
        unit = "bytes" if isinstance(source, bytes) else "characters"
        raise InvalidArgumentsError(
            f"{subject} too long: {len(source)} {unit}, {limits.argument_bytes_max} are allowed",
            hint="send less at once",
        )
    try:
        # Given bytes, json guesses UTF-16 and UTF-32 as well.
        text = source.decode("utf-8-sig") if isinstance(source, bytes) else source
        value: Json = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise InvalidArgumentsError(
            f"{subject} not UTF-8 at byte {error.start}", hint="send the text as UTF-8"
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidArgumentsError(
            f"{subject} not JSON: {error.msg.lower()}",
            where=f"line {error.lineno}, column {error.colno}",
            hint=_EXAMPLE,
        ) from None
    except RecursionError:
        raise InvalidArgumentsError(f"{subject} nested too deep", hint=_TOO_DEEP_HINT) from None
    except ValueError as error:  # An integer of more digits than Python converts.
        raise InvalidArgumentsError(
            f"{subject} not usable: {error}", hint="give a shorter number, or a string"
        ) from None
    if not isinstance(value, dict):
        raise InvalidArgumentsError(f"{subject} {json_name(value)}, not an object", hint=_EXAMPLE)
    if _is_too_deep(value):
        raise InvalidArgumentsError(f"{subject} nested too deep", hint=_TOO_DEEP_HINT)
    return cast("dict[str, Json]", value)


class Twice(NamedTuple):
    name: str
    is_outermost: bool
    """Whether the object is the whole text."""


def find_twice(source: str) -> Twice | None:
    """The first name that is given twice in one object of this JSON text, or None.

    For a text that another reader parses, which takes one of the two and says nothing.

    Raises: ValueError, RecursionError: it is no JSON.
    """
    first: Twice | None = None
    last: str | None = None

    def look(pairs: list[tuple[str, None]]) -> None:
        nonlocal first, last
        known: set[str] = set()
        last = next((name for name, _ in pairs if name in known or known.add(name)), None)
        if last is not None and first is None:
            first = Twice(last, False)

    # Objects come from the inside out. No number is made: it may have any count of digits.
    json.loads(source, object_pairs_hook=look, parse_int=str, parse_float=str)
    return Twice(last, True) if last is not None else first


def json_name(value: Json) -> str:
    return next(
        (name for kind, name in JSON_NAMES.items() if type(value) is kind),
        "a value of no JSON type",
    )


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidArgumentsError(
                f"{quote(name)} is given twice",
                where=show_name(name[:80]),
                hint="give every name once: nobody knows which of the two is meant",
            )
        found[name] = value
    return found


def _no_constant(word: str) -> Json:
    raise InvalidArgumentsError(f"{word} is not a JSON number", hint="give a finite number")


def _is_too_deep(value: Json) -> bool:
    """Whether there are more levels than allowed; level by level, as a stack would run out."""
    level = [value]
    for _ in range(limits.argument_depth_max):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
