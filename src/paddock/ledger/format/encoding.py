"""An entry as the bytes of its line, and what reads JSON text back. Pure; see line.py."""

import re
from collections.abc import Mapping
from json import JSONDecoder
from typing import Final, NoReturn

from paddock import limits
from paddock.errors import InternalError
from paddock.ledger.format.line import LineRefusedError, encode_fields, encode_members
from paddock.pattern import lazy_pattern
from paddock.values.calls import Json
from paddock.values.entries import Entry, Shared

_EVENT_TYPE: Final = lazy_pattern(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)


class EntryRefusedError(InternalError, ValueError):
    """An entry that cannot be written: its caller must check what it records.

    An InternalError, not a ToolError: no model writes entries. Whoever takes
    values from a model into an entry (arguments with a NUL, say) refuses or
    digests them first. Nothing was written.
    """

    code = "ledger.entry_refused"


def encode_body(entry: Entry, entry_id: str, timestamp: str) -> bytes:
    """A line up to its place in the chain; `entry_id` and `timestamp` are taken as they are.

    Raises:
        EntryRefusedError: the entry holds what no line may hold, or is longer
            than `limits.entry_bytes_max`.
    """
    *texts, metadata, shared = entry
    try:
        if not _EVENT_TYPE.fullmatch(entry.event_type):
            kinds = "upper case letters, digits and _"
            raise LineRefusedError("event type", entry.event_type, kinds)
        others = "" if shared is None else _encode_shared(shared, metadata)
        return encode_fields(entry_id, timestamp, texts, metadata, others)
    except LineRefusedError as fault:
        shown = ascii(fault.value[: limits.message_value_chars_max])
        said = f"a ledger entry cannot hold this {fault.what}: {shown}"
        if fault.what == "length":
            said = f"a ledger entry of {fault.value} is too long ({entry.event_type})"
        raise EntryRefusedError(said, hint=fault.hint) from fault
    except (TypeError, ValueError) as fault:
        raise EntryRefusedError(f"a ledger entry cannot hold this value: {fault}") from fault


def _encode_shared(shared: Shared, metadata: Mapping[str, Json]) -> str:
    if not shared.members.keys().isdisjoint(metadata):
        stands = "one that stands in metadata and in shared"
        raise LineRefusedError("key", stands, "keys are unique")
    if shared.encoded is None:
        shared.encoded = encode_members(shared.members)
    return shared.encoded


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_decoder: Final = JSONDecoder(parse_constant=_refuse_constant)


def decode_json(text: str) -> Json:
    """The value of JSON text without space around it; of a key given twice, the last.

    Raises:
        ValueError: not JSON, or NaN or an infinity.
        RecursionError: nested deeper than the interpreter can.
    """
    value, end = _decoder.raw_decode(text)
    if end != len(text):
        raise ValueError(f"more text after the JSON value, at character {end}")
    return value


class _DuplicateKeyError(ValueError):
    """Stops the decoder at the first key that an object gives twice."""


def _refuse_duplicates(pairs: list[tuple[str, Json]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


_strict_decoder: Final = JSONDecoder(object_pairs_hook=_refuse_duplicates)


def find_duplicate_key(text: str) -> str | None:
    try:
        _strict_decoder.decode(text)
    except _DuplicateKeyError as found:
        return str(found)
    return None
