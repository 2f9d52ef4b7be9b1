"""Scripts of a model as files: a JSON array of steps, or one step a line.

A step is `{"text", "calls": [{"name", "arguments" | "raw", "id"}], "stop",
"structured", "usage": [input, output, cache_read, cache_write] | null, "reason",
"stop_raw", "expects", "holds"}`, every member optional, or `{"error": {"kind",
"message", "status", "retry_after_s"}}`. An unknown member does not load. For users it
stands in `docs/guides/embed.md`.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar, cast

from paddock.errors import ConfigError
from paddock.providers.failures import FailureKind
from paddock.providers.scripted import USAGE, Fail, Say, ScriptedCall, Step
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.models import Stop, Usage

_SAY: Final = frozenset(
    {
        "text",
        "calls",
        "stop",
        "structured",
        "usage",
        "reason",
        "stop_raw",
        "expects",
        "holds",
        "error",
    }
)
_CALL: Final = frozenset({"name", "arguments", "id", "raw"})
_FAIL: Final = frozenset({"kind", "message", "status", "retry_after_s"})

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)


def parse_script(content: str, file: str) -> tuple[Step, ...]:
    """The steps of a script; `file` is its name, for messages.

    Raises: ConfigError with file and place where it is no script.
    """
    if content.lstrip().startswith("["):
        rows = cast("list[Json]", _json(content, file))
        return tuple(_step(row, f"{file}, step {n}") for n, row in enumerate(rows, start=1))
    places = ((f"{file}, line {n}", line) for n, line in enumerate(content.split("\n"), start=1))
    return tuple(_step(_json(line, where), where) for where, line in places if line.strip())


def _json(text: str, where: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"this is not JSON: {error}", where) from None


def _wrong(what: str, where: str) -> ConfigError:
    return ConfigError(f"the script does not load: {what}", where=where, hint="correct the script")


def _step(row: Json, where: str) -> Step:
    members = _members(row, _SAY, where)
    if "error" in members:
        if len(members) > 1:
            raise _wrong("a step that fails says nothing else", where)
        return _fail(_members(members["error"], _FAIL, where), where)
    stop = members.get("stop")
    calls: list[Json] = _get(members, "calls", list, [], where)
    structured: Mapping[str, Json] = _get(members, "structured", dict, {}, where)
    return Say(
        text=_get(members, "text", str, "", where),
        calls=tuple(_call(_members(call, _CALL, where), where) for call in calls),
        stop=None if stop is None else _word(Stop, stop, where),
        structured=structured if "structured" in members else None,
        usage=_usage(members["usage"], where) if "usage" in members else USAGE,
        reason=_get(members, "reason", str, "", where),
        stop_raw=_get(members, "stop_raw", str, "", where),
        expects=_get(members, "expects", str, "", where),
        holds=_get(members, "holds", bool, False, where),
    )


def _call(members: Mapping[str, Json], where: str) -> ScriptedCall:
    if "raw" in members and "arguments" in members:
        raise _wrong("a call has 'arguments' or 'raw', not both", where)
    raw = _get(members, "raw", str, "", where)
    return ScriptedCall(
        _get(members, "name", str, "", where),
        _get(members, "arguments", dict, {}, where),
        _get(members, "id", str, "", where),
        raw if "raw" in members else None,
    )


def _fail(members: Mapping[str, Json], where: str) -> Fail:
    retry_after_s: Json = members.get("retry_after_s")
    if retry_after_s is not None and type(retry_after_s) not in {int, float}:
        raise _wrong(f"'retry_after_s' is {quote(retry_after_s)}, not a number", where)
    return Fail(
        _word(FailureKind, members.get("kind"), where),
        _get(members, "message", str, "the script says so", where),
        _get(members, "status", int, 0, where),
        retry_after_s,
    )


def _usage(value: Json, where: str) -> Usage | None:
    if value is None:
        return None
    counts = list(cast("list[Json]", value)) if type(value) is list else []
    if not 1 <= len(counts) <= 4 or any(type(count) is not int or count < 0 for count in counts):
        raise _wrong("'usage' is not a list of one to four numbers of tokens", where)
    return Usage(*counts)


def _members(value: Json, known: frozenset[str], where: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise _wrong(f"{quote(value)} is no object", where)
    members = cast("dict[str, Json]", value)
    for name in members:
        if name not in known:
            raise _wrong(f"unknown member {quote(name)}; known: {', '.join(sorted(known))}", where)
    return members


def _get(members: Mapping[str, Json], name: str, kind: type[T], default: T, where: str) -> T:
    value: Json = members.get(name, default)
    if type(value) is not kind:
        raise _wrong(f"{quote(name)} is {quote(value)}", where)
    return value


def _word(kind: type[W], value: Json, where: str) -> W:
    for word in kind:
        if value == word.value:
            return word
    raise _wrong(f"{quote(value)} is none of {', '.join(kind)}", where)
