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

Also here:

- JSON text in one form: compact, non-ASCII raw, members in the order given.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from json import JSONDecoder, JSONEncoder
from typing import Final, NoReturn, cast

from paddock import limits
from paddock.errors import InternalError
from paddock.pattern import lazy_pattern
from paddock.values.calls import Json
from paddock.values.entries import Entry, Shared

# The interpreter's own encoder, built once: building it costs more than encoding
# one entry. Pure.

try:
    from _json import encode_basestring as _string
    from _json import make_encoder as _make_encoder
except ImportError:  # an interpreter without the C accelerator
    from json.encoder import py_encode_basestring as _string

    _make_encoder = None


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


encode_string: Final[Callable[[str], str]] = _string
"""A JSON string with its quotes; only `"`, `\\` and controls below U+0020 are escaped."""

_slow: Final = JSONEncoder(
    ensure_ascii=False,
    check_circular=False,
    allow_nan=False,
    separators=(",", ":"),
    default=_refuse,
)
_chunks: Final = (
    None
    if _make_encoder is None
    else _make_encoder(None, _refuse, _string, None, ":", ",", False, False, False)
)


def encode_json(value: Json) -> str:
    """Return compact JSON text.

    Raises:
        TypeError: a value that JSON does not have.
        ValueError: NaN or an infinity.
    """
    if _chunks is None:
        return _slow.encode(value)
    return "".join(_chunks(value, 0))


_decoder: Final = JSONDecoder(parse_constant=_refuse_constant)


def decode_json(text: str) -> Json:
    """Return the value of JSON text without space around it; of a key given twice, the last.

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
    """Return the first key that an object of valid JSON text gives twice."""
    try:
        _strict_decoder.decode(text)
    except _DuplicateKeyError as found:
        return str(found)
    return None


PREV_OF_GENESIS: Final = "0" * 64
"""`prev` of line 0, which follows nothing."""
ID_BYTES: Final = 16
"""Random bytes in an entry's id."""
TIMESTAMP_SECONDS_MAX: Final = 253_402_300_800
"""The year 10000, which no timestamp reaches. Seconds since 1970."""
TAIL_BYTES_MAX: Final = len(',"seq":,"prev":""}') + 16 + 64
"""The fixed text at a line's end; 2^53 has 16 digits."""

_INTEGER_MAX: Final = limits.json_integer_max
_PLAIN_DEPTH_MAX: Final = 4
_PLAIN_MEMBERS_MAX: Final = 16
_LEAF: Final = sha256(b"\0")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EVENT_TYPE: Final = lazy_pattern(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)

# Threat: a value that an agent chose is shown by `cat` in somebody's terminal.
# DEL and the C1 controls drive terminals; line separators, direction marks and
# the byte order mark make a line look like another one.
_UNSHOWABLE: Final = lazy_pattern("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


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
    # Every call of a tool comes through here twice. What recurs is encoded and
    # checked once (`_header`, `Shared`); only the entry's own part is looked at.
    kind, submission, decision, reason, session, agent, call_id, metadata, shared = entry
    try:
        header = _header(kind, submission, decision, reason, session, agent)
        try:
            members = _encode_plain(metadata, 1)
        except TypeError:
            members = _encode_any(metadata)
        own = f'{encode_string(call_id)},"metadata":{{{members}'
    except EntryRefusedError:
        raise
    except (TypeError, ValueError) as fault:
        raise _refused("value", str(fault)) from fault
    # One character is found much faster than six.
    if "\\" in own and "\\u0000" in own and _holds_nul([call_id, metadata]):
        raise _refused("text with NUL", kind)
    if not own.isascii() or "\x7f" in own:
        own = _UNSHOWABLE.sub(_escape, own)
    if shared is None:
        others = ""
    elif shared.encoded and metadata and shared.members.keys().isdisjoint(metadata):
        others = f",{shared.encoded}"
    else:
        others = _encode_shared(shared, metadata)
    text = f'{{"id":"{entry_id}","timestamp":"{timestamp}"{header},"call_id":{own}{others}}}'
    try:
        body = text.encode()
    except UnicodeEncodeError as fault:
        raise _refused("lone surrogate", text[fault.start]) from fault
    if len(body) + TAIL_BYTES_MAX > limits.entry_bytes_max:
        raise EntryRefusedError(
            f"a ledger entry of {len(body)} bytes is too long ({kind})",
            hint=f"a line holds {limits.entry_bytes_max} bytes; record a digest of what is large",
        )
    return body


def _encode_any(members: Mapping[str, Json]) -> str:
    """Checked members as JSON text without the braces."""
    members = dict(members)
    check_json(members)
    return encode_json(members)[1:-1]


def _encode_plain(members: Mapping[str, Json], depth: int) -> str:
    """What `_encode_any` returns, for what entries mostly hold.

    Few members, of text, integers, truth values, lists of text or of integers, and
    objects of such: one walk here takes half the time of one to check and one to encode.

    Raises:
        TypeError: something else, or what may have to be refused.
    """
    if depth > _PLAIN_DEPTH_MAX or len(members) > _PLAIN_MEMBERS_MAX:
        raise TypeError
    text = comma = ""
    for key, item in members.items():
        kind = item.__class__
        # `encode_string` raises TypeError for what is no text, so also for a key.
        if kind is str:
            value = encode_string(item)
        elif kind is int and -_INTEGER_MAX <= item <= _INTEGER_MAX:
            value = item
        elif kind is list:
            try:
                value = f"[{','.join(map(encode_string, item))}]"
            except TypeError:
                value = f"[{','.join(map(_encode_number, item))}]"
        elif kind is dict:
            value = f"{{{_encode_plain(item, depth + 1)}}}"
        elif kind is bool:
            value = "true" if item else "false"
        else:
            raise TypeError
        text = f"{text}{comma}{encode_string(key)}:{value}"
        comma = ","
    return text


def _encode_number(item: Json) -> str:
    """An integer of a list, as a range of lines is one. Raises: TypeError: something else."""
    if item.__class__ is int and -_INTEGER_MAX <= item <= _INTEGER_MAX:
        return str(item)
    raise TypeError


@lru_cache(maxsize=512)
def _header(
    event_type: str, submission_id: str, decision: str, reason: str, session_id: str, agent: str
) -> str:
    """The members before `call_id`: the same for many entries of a session, so kept."""
    if not _EVENT_TYPE.fullmatch(event_type):
        raise _refused("event type", event_type, "upper case letters, digits and _")
    text = (
        f',"event_type":"{event_type}"'
        f',"submission_id":{encode_string(submission_id)}'
        f',"decision":{encode_string(decision)}'
        f',"reason":{encode_string(reason)}'
        f',"session_id":{encode_string(session_id)}'
        f',"agent":{encode_string(agent)}'
    )
    return _clean(text, [submission_id, decision, reason, session_id, agent], event_type)


def _encode_shared(shared: Shared, metadata: Mapping[str, Json]) -> str:
    """The shared members as they stand in a line after an entry's own, without braces."""
    if not shared.members.keys().isdisjoint(metadata):
        raise _refused("key", "one that stands in metadata and in shared", "keys are unique")
    encoded = shared.encoded
    if encoded is None:
        members = shared.members
        try:
            encoded = shared.encoded = _clean(_encode_any(members), members, "shared members")
        except EntryRefusedError:
            raise
        except (TypeError, ValueError) as fault:
            raise _refused("value", str(fault)) from fault
    return f",{encoded}" if metadata and encoded else encoded


def _clean(text: str, values: Json, what: str) -> str:
    """JSON text as it may stand in a line, from the values that were encoded.

    The encoder writes NUL as an escape; the same letters after an escaped
    backslash are innocent, which only a walk through the values can tell.
    """
    if "\\u0000" in text and _holds_nul(values):
        raise _refused("text with NUL", what)
    return _UNSHOWABLE.sub(_escape, text)


def encode_text(value: str) -> bytes:
    """Return a text as it stands in a line, with its quotes: what a search looks for."""
    return _UNSHOWABLE.sub(_escape, encode_string(value)).encode(errors="replace")


def chain_line(body: bytes, seq: int, prev: str) -> bytes:
    """Return the whole line without its LF: `body` with its place in the chain."""
    return body + chain_tail(seq, prev)


def chain_tail(seq: int, prev: str) -> bytes:
    """Return the fixed text that a line at this place ends with."""
    return f',"seq":{seq},"prev":"{prev}"}}'.encode()


def chain_lines(bodies: Sequence[bytes], seq: int, prev: str) -> tuple[bytes, str]:
    """Return whole lines, each with its LF, from the number `seq` on, and the last one's leaf.

    As `chain_line` and `leaf_hash` for each, without their calls: this runs inside
    the append lock.
    """
    lines: list[bytes] = []
    for number, body in enumerate(bodies, seq):
        line = body + f',"seq":{number},"prev":"{prev}"}}'.encode()
        lines.append(line)
        # The copy of a hash that has begun is cheaper than a new one.
        digest = _LEAF.copy()
        digest.update(line)
        prev = digest.hexdigest()
    lines.append(b"")
    return b"\n".join(lines), prev


def leaf_hash(line: bytes) -> str:
    """SHA-256(0x00 ‖ line without LF) in hex: the Merkle leaf hash of RFC 6962.

    It is the next line's `prev`, so one hash serves the chain and the tree.
    """
    return sha256(b"\0" + line).hexdigest()


def format_id(random: bytes) -> str:
    """`LED-` and 32 hex digits from 16 random bytes."""
    return f"LED-{random.hex()}"


def format_ids(random: bytes) -> list[str]:
    """As many ids as there are times 16 random bytes, at the price of a few."""
    digits = random.hex(",", ID_BYTES).replace(",", ",LED-")
    return f"LED-{digits}".split(",")


def format_timestamp(seconds: float) -> str:
    """RFC 3339 in UTC with microseconds, always 27 characters: text order is time order.

    `seconds` since 1970, from 0 to the year 9999; what lies outside is clamped,
    because a broken clock must not stop an entry (the timestamp is a claim).
    """
    whole = int(seconds) if 0 <= seconds < TIMESTAMP_SECONDS_MAX else 0
    microseconds = int((seconds - whole) * 1e6) if whole or 0 <= seconds < 1 else 0
    moment = _EPOCH + timedelta(seconds=whole, microseconds=microseconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def check_json(value: Mapping[str, Json]) -> None:
    """Refuse what JSON readers disagree about, in an object of plain values.

    Raises:
        EntryRefusedError: a key that is no text, an integer beyond 2^53, or
            nesting beyond `limits.entry_depth_max`.
    """
    # Every entry goes through this: a loop over exact types. What is deep, goes
    # in circles or is of a rarer type is left to the recursive walk below.
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
                if not -_INTEGER_MAX <= item <= _INTEGER_MAX:
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
        elif isinstance(item, int) and not (-_INTEGER_MAX <= item <= _INTEGER_MAX):
            raise _refused("integer", hex(item), "beyond 2^53 readers disagree; write text")


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


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
