"""Encode one line and its place in the chain from plain values. Pure.

A line is one compact UTF-8 JSON object with fields in a fixed order; `seq` and `prev` come last as
fixed text, so the chain can be checked without parsing. A value has one encoding. Values that JSON
readers disagree about are refused (NUL, lone surrogates, NaN, keys that are not text, integers
beyond 2^53, deep nesting). Terminal controls and characters that reorder text are escaped.

It imports nothing that loads slowly: the hook writes lines with it while a client waits.
"""

import sys
from _json import encode_basestring as encode_string
from _json import make_encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from hashlib import sha256
    from typing import Any, NoReturn

    from paddock.values.calls import Json
elif sys.hexversion >= 0x030C0000:
    from _sha2 import sha256
else:
    from _sha256 import sha256

PREV_OF_GENESIS = "0" * 64
ID_BYTES = 16
TIMESTAMP_SECONDS_MAX = 253_402_300_800  # since 1970, exclusive: the year 10000
TAIL_BYTES_MAX = len(',"seq":,"prev":""}') + 16 + 64  # 2^53 has 16 digits
LINE_BYTES_MAX = 1_048_576  # as `limits.entry_bytes_max`
DEPTH_MAX = 64  # as `limits.entry_depth_max`
INTEGER_MAX = 2**53  # as `limits.json_integer_max`

# Threat: a user prints an agent's values in a terminal with `cat`. DEL and the C1 controls act on
# terminals; line separators, direction marks and the byte order mark disguise a line as another.
_UNSHOWABLE = {
    code: f"\\u{code:04x}"
    for low, high in (
        *((0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E)),
        *((0x2066, 0x2069), (0xFEFF, 0xFEFF)),
    )
    for code in range(low, high + 1)
}


class LineRefusedError(ValueError):
    def __init__(self, what: str, value: str, hint: str = "") -> None:
        super().__init__(f"{what}: {value!a}")
        self.what, self.value, self.hint = what, value, hint


def _refuse(value: object) -> "NoReturn":
    raise LineRefusedError("value", f"a {type(value).__name__} is not a JSON value")


_chunks = make_encoder(None, _refuse, encode_string, None, ":", ",", False, False, False)


def encode_json(value: "Json") -> str:
    return "".join(_chunks(value, 0))


def encode_members(members: "Mapping[str, Json]") -> str:
    found = dict(members)
    _check(found, 1)
    return _escape(encode_json(found)[1:-1])


def encode_fields(
    entry_id: str,
    timestamp: str,
    texts: "Sequence[str]",
    metadata: "Mapping[str, Json]",
) -> bytes:
    """Encode a line up to its metadata; `texts`: event type to call id. Raises: ValueError."""
    kind, *others = texts
    if "\0" in "".join(others):
        raise LineRefusedError("text with NUL", "".join(others))
    submission, decision, reason, session, agent, call_id = map(encode_string, others)
    header = _escape(
        f'"submission_id":{submission},"decision":{decision},"reason":{reason},'
        f'"session_id":{session},"agent":{agent},"call_id":{call_id}'
    )
    text = (
        f'{{"id":"{entry_id}","timestamp":"{timestamp}","event_type":"{kind}",{header},'
        f'"metadata":{{{encode_members(metadata)}}}'
    )
    try:
        body = text.encode()
    except UnicodeEncodeError as fault:
        raise LineRefusedError("lone surrogate", text[fault.start]) from fault
    if len(body) + TAIL_BYTES_MAX > LINE_BYTES_MAX:
        raise LineRefusedError("length", f"{len(body)} bytes", "record a digest of what is large")
    return body


def encode_text(value: str) -> bytes:
    """Return a text as a line has it, in quotes, to search for."""
    return encode_string(value).translate(_UNSHOWABLE).encode(errors="replace")


def chain_line(body: bytes, seq: int, prev: str) -> bytes:
    return body + chain_tail(seq, prev)


def chain_tail(seq: int, prev: str) -> bytes:
    return f',"seq":{seq},"prev":"{prev}"}}'.encode()


def chain_lines(bodies: "Sequence[bytes]", seq: int, prev: str) -> tuple[bytes, str]:
    lines: list[bytes] = []
    for number, body in enumerate(bodies, seq):
        lines.append(chain_line(body, number, prev))
        prev = leaf_hash(lines[-1])
    return b"\n".join([*lines, b""]), prev


def leaf_hash(line: bytes) -> str:
    """Return SHA-256(0x00 ‖ line) in hex: RFC 6962's leaf hash, and the next line's `prev`."""
    return sha256(b"\0" + line).hexdigest()


def format_id(random: bytes) -> str:
    return f"LED-{random.hex()}"


def format_timestamp(seconds: float) -> str:
    """Return RFC 3339 in UTC, 27 characters, so text order is time order; 1970 if out of range."""
    whole = int(seconds) if 0 <= seconds < TIMESTAMP_SECONDS_MAX else 0
    microseconds = int((seconds - whole) * 1e6) if whole or 0 <= seconds < 1 else 0
    days, rest = divmod(whole, 86_400)
    # Count days since 1 March of the year 0 in eras of 400 years: a year that begins in March
    # ends with its leap day.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    month, year = (month + 2) % 12 + 1, year + 400 * era + (month > 9)
    return (
        f"{year:04}-{month:02}-{day:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
        f".{microseconds:06}Z"
    )


def _check(value: "Any", depth: int) -> None:
    if depth > DEPTH_MAX:
        raise LineRefusedError("nesting", f"over {DEPTH_MAX} levels")
    items: Iterable[object] = value
    if issubclass(type(value), dict):
        for key in value:
            if not isinstance(key, str):
                raise LineRefusedError("key", repr(key), "keys are text")
        items = (*value, *value.values())
    for item in items:
        if isinstance(item, str):
            if "\0" in item:
                raise LineRefusedError("text with NUL", item)
        elif isinstance(item, (dict, list, tuple)):
            _check(item, depth + 1)
        elif isinstance(item, int) and not -INTEGER_MAX <= item <= INTEGER_MAX:
            hint = "beyond 2^53 readers disagree; write text"
            raise LineRefusedError("integer", hex(item), hint)


def _escape(text: str) -> str:
    return text if text.isascii() and "\x7f" not in text else text.translate(_UNSHOWABLE)
