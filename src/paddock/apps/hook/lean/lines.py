"""One line of the ledger, as `paddock.ledger.format.encoding` writes it, without its imports."""

import time
from _json import encode_basestring, make_encoder

from paddock.apps.hook.lean.asked import DeclinedError
from paddock.apps.hook.lean.records import LeanRecord, sha256

ENTRY_BYTES_MAX = 1_048_576
_TAIL_BYTES_MAX = 96
_UNSHOWABLE = (
    *((0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E)),
    *((0x2066, 0x2069), (0xFEFF, 0xFEFF)),
)
"""Characters that drive terminals or turn text round: never raw in a line."""
_SECONDS_MAX = 253_402_300_800


def _refuse(value: object) -> str:
    raise DeclinedError(f"a {type(value).__name__} in an entry")


_encode = make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, False)


def encode_body(record: LeanRecord, random: bytes, seconds: float) -> bytes:
    """Return a line up to its place in the chain. Raises: DeclinedError where it may not be."""
    text = (
        f'{{"id":"LED-{random.hex()}","timestamp":"{format_timestamp(seconds)}"'
        f',"event_type":"{record.event_type}","submission_id":""'
        f',"decision":"{record.decision}"'
        f',"reason":{encode_basestring(record.reason)}'
        f',"session_id":{encode_basestring(record.session_id)}'
        f',"agent":{encode_basestring(record.agent)}'
        f',"call_id":{encode_basestring(record.call_id)}'
        f',"metadata":{"".join(_encode(record.metadata, 0))}'
    )
    if "\\u0000" in text:
        raise DeclinedError("a NUL in an entry")
    if not text.isascii() or "\x7f" in text:
        text = text.translate(
            {code: f"\\u{code:04x}" for low, high in _UNSHOWABLE for code in range(low, high + 1)}
        )
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise DeclinedError("half a surrogate pair in an entry") from None
    if len(body) + _TAIL_BYTES_MAX > ENTRY_BYTES_MAX:
        raise DeclinedError("an entry that is too long")
    return body


def chain_line(body: bytes, seq: int, prev: str) -> "tuple[bytes, str]":
    """Return the whole line with its LF, and its leaf hash."""
    line = body + f',"seq":{seq},"prev":"{prev}"}}'.encode()
    return line + b"\n", leaf_hash(line)


def leaf_hash(line: bytes) -> str:
    digest = sha256(b"\0")
    digest.update(line)
    return digest.hexdigest()


def format_timestamp(seconds: float) -> str:
    if not 0 <= seconds < _SECONDS_MAX:
        raise DeclinedError("a clock that shows no time")
    whole = int(seconds)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return f"{moment}.{int((seconds - whole) * 1e6):06d}Z"
