"""The bytes of one ledger line, from an entry and its place in the chain.

Rules kept here:
  * one compact UTF-8 JSON object, fields in one order, `seq` and `prev` last as
    fixed text, so that a chain is checked without parsing;
  * one value has one encoding: what a line parses to encodes to that line again;
  * what readers disagree about is never written: NUL, lone surrogates, NaN and
    infinities, keys that are not text, integers beyond 2^53, deep nesting;
  * nothing that drives a terminal or reorders text stands raw in a line.

Pure: time and randomness come in as arguments. The format is described in
docs/formats/ledger.md.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Final, cast

from paddock import limits
from paddock.errors import InternalError
from paddock.ledger.format_json import encode_json, encode_string
from paddock.values.calls import Json
from paddock.values.entries import Entry, Shared

PREV_OF_GENESIS: Final = "0" * 64
"""`prev` of line 0, which follows nothing."""
ID_BYTES: Final = 16
"""Random bytes in an entry's id."""
TAIL_BYTES_MAX: Final = len(',"seq":,"prev":""}') + 16 + 64
"""The fixed text at a line's end; 2^53 has 16 digits."""

_HEADER_FIELDS: Final = 6
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EVENT_TYPE: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)

# Threat: a value that an agent chose is shown by `cat` in somebody's terminal.
# DEL and the C1 controls drive terminals; line separators, direction marks and
# the byte order mark make a line look like another one.
_UNSHOWABLE: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class EntryRefusedError(InternalError, ValueError):
    """An entry that cannot be written: its caller must check what it records.

    An InternalError, not a ToolError: no model writes entries. Whoever takes
    values from a model into an entry (arguments with a NUL, say) refuses or
    digests them first. Nothing was written.
    """

    code = "ledger.entry_refused"


def encode_body(entry: Entry, entry_id: str, timestamp: str) -> bytes:
    """Return a line up to its place in the chain: `{"id":…,"metadata":{…}`.

    `entry_id` and `timestamp` are taken as they are (`format_id`,
    `format_timestamp`).

    Raises:
        EntryRefusedError: the entry holds what no line may hold, or is longer
            than `limits.entry_bytes_max`.
    """
    metadata: Json = entry.metadata
    if metadata.__class__ is not dict:
        metadata = dict(entry.metadata)
    check_json(metadata)
    shared = entry.shared
    if shared is not None and not shared.members.keys().isdisjoint(metadata):
        raise _refused("key", "one that stands in metadata and in shared", "keys are unique")
    try:
        text = (
            f'{{"id":"{entry_id}","timestamp":"{timestamp}"'
            f"{_header(*entry[:_HEADER_FIELDS])}"
            f',"call_id":{encode_string(entry.call_id)}'
            f',"metadata":{_join(encode_json(metadata), shared)}'
        )
    except (TypeError, ValueError) as fault:
        raise _refused("value", str(fault)) from fault
    # The encoder writes NUL as \\u0000; the same letters after an escaped
    # backslash are innocent, which only a walk can tell.
    if "\\u0000" in text and _holds_nul(_values(entry)):
        raise _refused("text with NUL", entry.event_type)
    if not text.isascii() or "\x7f" in text:
        text = _UNSHOWABLE.sub(_escape, text)
    try:
        body = text.encode()
    except UnicodeEncodeError as fault:
        raise _refused("lone surrogate", text[fault.start]) from fault
    if len(body) + TAIL_BYTES_MAX > limits.entry_bytes_max:
        raise EntryRefusedError(
            f"a ledger entry of {len(body)} bytes is too long ({entry.event_type})",
            hint=f"a line holds {limits.entry_bytes_max} bytes; record a digest of what is large",
        )
    return body


@lru_cache(maxsize=512)
def _header(
    event_type: str, submission_id: str, decision: str, reason: str, session_id: str, agent: str
) -> str:
    """The members before `call_id`: the same for many entries of a session, so kept."""
    if not _EVENT_TYPE.fullmatch(event_type):
        raise _refused("event type", event_type, "upper case letters, digits and _")
    return (
        f',"event_type":"{event_type}"'
        f',"submission_id":{encode_string(submission_id)}'
        f',"decision":{encode_string(decision)}'
        f',"reason":{encode_string(reason)}'
        f',"session_id":{encode_string(session_id)}'
        f',"agent":{encode_string(agent)}'
    )


def _join(metadata: str, shared: Shared | None) -> str:
    """One object's text from its own members and the shared ones, which are encoded once."""
    if shared is None:
        return metadata
    encoded = shared.encoded
    if encoded is None:
        members = dict(shared.members)
        check_json(members)
        encoded = shared.encoded = encode_json(members)[1:]
    if metadata == "{}" or encoded == "}":
        return f"{{{encoded}" if metadata == "{}" else metadata
    return f"{metadata[:-1]},{encoded}"


def encode_text(value: str) -> bytes:
    """Return a text as it stands in a line, with its quotes: what a search looks for."""
    return _UNSHOWABLE.sub(_escape, encode_string(value)).encode(errors="replace")


def chain_line(body: bytes, seq: int, prev: str) -> bytes:
    """Return the whole line without its LF: `body` with its place in the chain."""
    return b'%b,"seq":%d,"prev":"%b"}' % (body, seq, prev.encode())


def chain_tail(seq: int, prev: str) -> bytes:
    """Return the fixed text that a line at this place ends with."""
    return b',"seq":%d,"prev":"%b"}' % (seq, prev.encode())


def leaf_hash(line: bytes) -> str:
    """SHA-256(0x00 ‖ line without LF) in hex: the Merkle leaf hash of RFC 6962.

    It is the next line's `prev`, so one hash serves the chain and the tree.
    """
    return sha256(b"\0" + line).hexdigest()


def format_id(random: bytes) -> str:
    """`LED-` and 32 hex digits from 16 random bytes."""
    return f"LED-{random.hex()}"


def format_timestamp(seconds: float) -> str:
    """RFC 3339 in UTC with microseconds, always 27 characters: text order is time order.

    `seconds` since 1970, from 0 to the year 9999; what lies outside is clamped,
    because a broken clock must not stop an entry (the timestamp is a claim).
    """
    whole = int(seconds) if 0 <= seconds < 253_402_300_800 else 0
    microseconds = int((seconds - whole) * 1e6) if whole or 0 <= seconds < 1 else 0
    return f"{_whole_second(whole)}.{microseconds:06d}Z"


@lru_cache(maxsize=4)
def _whole_second(seconds: int) -> str:
    moment = _EPOCH + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def check_json(value: Mapping[str, Json]) -> None:
    """Refuse what JSON readers disagree about, in an object of plain values.

    Raises:
        EntryRefusedError: a key that is no text, an integer beyond 2^53, or
            nesting beyond `limits.entry_depth_max`.
    """
    # Every entry goes through this: a loop over exact types. What is deep, goes
    # in circles or is of a rarer type is left to the recursive walk below.
    integer_max = limits.json_integer_max
    containers: list[Json] = [value]
    for container in containers:
        if container.__class__ is dict:
            for key in container:
                if key.__class__ is not str:
                    _check_rare(value, 1)
            items = container.values()
        else:
            items = container
        for item in items:
            kind = item.__class__
            if kind is str:
                continue
            if kind is int:
                if not -integer_max <= item <= integer_max:
                    _check_rare(value, 1)
            elif kind is list or kind is dict:
                containers.append(item)
            elif item is not None and kind is not bool and kind is not float:
                _check_rare(value, 1)
                return
        if len(containers) > limits.entry_depth_max:
            _check_rare(value, 1)
            return


def _check_rare(value: Json, depth: int) -> None:
    if depth > limits.entry_depth_max:
        raise _refused("nesting", f"over {limits.entry_depth_max} levels")
    values: Iterable[object]
    if isinstance(value, dict):
        members = cast("dict[object, object]", value)
        for key in members:
            if not isinstance(key, str):
                raise _refused("key", repr(key), "keys are text")
        values = members.values()
    else:
        values = cast("Sequence[object]", value)
    for item in values:
        if isinstance(item, (dict, list, tuple)):
            _check_rare(cast("Json", item), depth + 1)
        elif isinstance(item, int) and not (
            -limits.json_integer_max <= item <= limits.json_integer_max
        ):
            raise _refused("integer", hex(item), "beyond 2^53 readers disagree; write text")


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _values(entry: Entry) -> list[Json]:
    return [
        entry.submission_id,
        entry.decision,
        entry.reason,
        entry.session_id,
        entry.agent,
        entry.call_id,
        entry.metadata,
        {} if entry.shared is None else entry.shared.members,
    ]


def _holds_nul(value: Json) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Json]", value)
        return any("\0" in key or _holds_nul(item) for key, item in members.items())
    if isinstance(value, (list, tuple)):
        return any(_holds_nul(item) for item in cast("Sequence[Json]", value))
    return False


def _refused(what: str, value: str, hint: str = "") -> EntryRefusedError:
    shown = ascii(value[: limits.message_value_chars_max])
    return EntryRefusedError(f"a ledger entry cannot hold this {what}: {shown}", hint=hint)
