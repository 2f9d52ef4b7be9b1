"""Encode entries as lines, and parse lines strictly into entries or faults. Pure.

A line is accepted only if re-encoding its values gives the same bytes. That one comparison detects
a different field order, duplicate keys, white space, other escapes and other number forms.
"""

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64, hexlify
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from json import JSONDecoder
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, cast

from msgspec import Struct
from msgspec.structs import asdict

from paddock import limits
from paddock.errors import HostError, InternalError, LedgerDamagedError
from paddock.ledger.format.line import (
    PREV_OF_GENESIS,
    LineRefusedError,
    chain_tail,
    encode_fields,
    leaf_hash,
)
from paddock.pattern import lazy_pattern
from paddock.values.entries import GENESIS, Entry

if TYPE_CHECKING:
    from paddock.values.calls import Json

_EVENT_TYPE: Final = lazy_pattern(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)


class EntryRefusedError(InternalError, ValueError):
    """An entry that cannot be written: a bug in the caller, which must check what it records."""

    code = "ledger.entry_refused"


def encode_body(entry: Entry, entry_id: str, timestamp: str) -> bytes:
    *texts, metadata = entry
    try:
        if not _EVENT_TYPE.fullmatch(entry.event_type):
            kinds = "upper case letters, digits and _"
            raise LineRefusedError("event type", entry.event_type, kinds)
        return encode_fields(entry_id, timestamp, texts, metadata)
    except LineRefusedError as fault:
        shown = ascii(fault.value[: limits.message_value_chars_max])
        said = f"a ledger entry cannot hold this {fault.what}: {shown}"
        if fault.what == "length":
            said = f"a ledger entry of {fault.value} is too long ({entry.event_type})"
        raise EntryRefusedError(said, hint=fault.hint) from fault
    except (TypeError, ValueError) as fault:
        raise EntryRefusedError(f"a ledger entry cannot hold this value: {fault}") from fault


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_decoder: Final = JSONDecoder(parse_constant=_refuse_constant)

FIELDS: Final = (
    *("id", "timestamp", "event_type", "submission_id", "decision", "reason"),
    *("session_id", "agent", "call_id", "metadata", "seq", "prev"),
)
"""Every line has exactly these fields, in this order."""
_TYPES: Final = [*9 * (str,), dict, int, str]

_OPENING: Final = lazy_pattern(
    rb'\{"id":"LED-[0-9a-f]{32}",'
    rb'"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z","event_type":"'
)
_TAIL: Final = lazy_pattern(rb',"seq":(0|[1-9]\d{0,15}),"prev":"([0-9a-f]{64})"\}\Z')
_TAIL_WINDOW: Final = 120
_NOTE_TYPES: Final = {str, type(None)}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class LineFault(StrEnum):
    BLANK = "blank"
    TOO_LONG = "too_long"
    NUL = "nul"
    CARRIAGE_RETURN = "carriage_return"
    BYTE_ORDER_MARK = "byte_order_mark"
    ENCODING = "encoding"
    GARBAGE = "garbage"
    DUPLICATE_KEY = "duplicate_key"
    FIELDS = "fields"
    RE_ENCODED = "re_encoded"


class BadLine(Struct, frozen=True):
    fault: LineFault
    detail: str


class StoredEntry(Struct, frozen=True):
    seq: int
    prev: str
    id: str
    timestamp: str
    entry: Entry
    line: bytes

    @property
    def leaf(self) -> str:
        return leaf_hash(self.line)


class Head(NamedTuple):
    seq: int
    hash: str


def parse_line(line: bytes, where: str = "") -> StoredEntry:
    found = inspect_line(line)
    if isinstance(found, BadLine):
        raise LedgerDamagedError(f"not a ledger line ({found.fault}): {found.detail}", where=where)
    return found


def inspect_line(line: bytes) -> StoredEntry | BadLine:
    place = _TAIL.search(line, max(0, len(line) - _TAIL_WINDOW))
    if place is None or not _OPENING.match(line) or len(line) > limits.entry_bytes_max:
        return _diagnose(line)
    try:
        fields, _ = _decoder.raw_decode(line.decode())
    except (ValueError, RecursionError):
        return _diagnose(line)
    # The opening proves that this is an object. A duplicate `id` or `timestamp` may have
    # replaced the first; the comparison below detects it.
    values = list(cast("dict[str, Json]", fields).values())
    if [*map(type, values)] != _TYPES:
        return _diagnose(line)
    entry = Entry(*values[2:10])
    try:
        body = encode_body(entry, values[0], values[1])
    except EntryRefusedError as fault:
        return BadLine(LineFault.RE_ENCODED, fault.message)
    seq, prev = int(place[1]), place[2].decode()
    if body + chain_tail(seq, prev) != line:
        return _diagnose(line)
    return StoredEntry(seq, prev, values[0], values[1], entry, line)


LINE_OPENING: Final = b'{"id":"LED-'
_LEAF_STATE: Final = sha256(b"\0")


def fitting_leaves(
    lines: Sequence[bytes], seq: int, prev: str, inspected_from: int = 0
) -> list[bytes]:
    """Hash lines up to the first that does not chain or, from `inspected_from`, is bad."""
    # Hot: runs for every line, so copy a hash that has the prefix, and use local names.
    new_digest, leaves, before = _LEAF_STATE.copy, list[bytes](), prev.encode()
    for line in lines:
        if (
            not line.endswith(b',"seq":%d,"prev":"%b"}' % (seq, before))
            or not line.startswith(LINE_OPENING)
            or (seq >= inspected_from and isinstance(inspect_line(line), BadLine))
        ):
            break
        digest = new_digest()
        digest.update(line)
        leaves.append(digest.digest())
        before, seq = hexlify(leaves[-1]), seq + 1
    return leaves


def _diagnose(line: bytes) -> BadLine:
    if not line.strip(b" \t\r"):
        return BadLine(LineFault.BLANK, "an empty line")
    if len(line) > limits.entry_bytes_max:
        return BadLine(LineFault.TOO_LONG, f"over {limits.entry_bytes_max} bytes")
    if b"\0" in line:
        return BadLine(LineFault.NUL, f"a NUL byte at byte {line.index(0)} of the line")
    if line.endswith(b"\r"):
        return BadLine(LineFault.CARRIAGE_RETURN, "a carriage return at the end of the line")
    if line.startswith(_BYTE_ORDER_MARK):
        return BadLine(LineFault.BYTE_ORDER_MARK, "a byte order mark")
    repeated: list[str] = []

    def note_repeated(pairs: "list[tuple[str, Json]]") -> "Json":
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            repeated.append(next(key for key in keys if keys.count(key) > 1))
        return found

    decoder = JSONDecoder(object_pairs_hook=note_repeated, parse_constant=_refuse_constant)
    try:
        fields: Json = decoder.decode(line.decode())
    except UnicodeDecodeError as fault:
        return BadLine(LineFault.ENCODING, f"not UTF-8 at byte {fault.start} of the line")
    except ValueError as fault:
        return BadLine(LineFault.GARBAGE, f"not JSON: {fault}"[: limits.message_value_chars_max])
    except RecursionError:
        return BadLine(LineFault.GARBAGE, "nested too deeply")
    if repeated:
        shown = ascii(repeated[0][: limits.message_value_chars_max])
        return BadLine(LineFault.DUPLICATE_KEY, f"the key {shown} is given twice")
    return _diagnose_fields(fields)


def _diagnose_fields(fields: "Json") -> BadLine:
    found = cast("dict[str, Json]", fields if isinstance(fields, dict) else {})
    missing = [name for name in FIELDS if name not in found]
    unknown = [name for name in found if name not in FIELDS]
    if not isinstance(fields, dict):
        said = "not an object"
    elif missing:
        said = f"no field {', '.join(missing)}"
    elif unknown:
        said = f"unknown field {unknown[0][: limits.message_value_chars_max]!a}"
    elif tuple(found) != FIELDS:
        said = "fields in the wrong order"
    elif [*map(type, found.values())] != _TYPES:
        said = "a field of the wrong type"
    else:
        return BadLine(LineFault.RE_ENCODED, "not the canonical encoding of its values")
    return BadLine(LineFault.FIELDS, said)


# The public key is text as in C2SP signed-note: `name+hash+base64`, with the algorithm byte 0x01
# (Ed25519) before the 32 key bytes, and as hash the first four bytes of
# SHA-256(name ‖ LF ‖ algorithm byte ‖ key) in hex.

FORMAT: Final = 1

ALGORITHM_ED25519: Final = b"\x01"
_KEY_BYTES: Final = 32
_NAME: Final = lazy_pattern(r"[!-*,-~]{1,255}", re.ASCII)


class Genesis(Struct, frozen=True):
    """The metadata of line 0: `origin` names the ledger and its key; `tier` is HOT, HO2 or HO1."""

    origin: str
    tier: str
    public_key: str
    parent_checkpoint: str | None = None
    """The signed note of the tier above when this ledger was created, if any."""

    def entry(self) -> Entry:
        return Entry(GENESIS, metadata={"format": FORMAT, **asdict(self)})


class VerifierKey(Struct, frozen=True):
    name: str
    public: bytes

    @property
    def key_id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + ALGORITHM_ED25519 + self.public).digest()[:4]

    def __str__(self) -> str:
        encoded = b2a_base64(ALGORITHM_ED25519 + self.public, newline=False).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        found = split_key(text)
        if found is not None:
            key = cls(found[0], found[2])
            if str(key) == text:
                return key
        shown = ascii(text[: limits.message_value_chars_max])
        raise LedgerDamagedError(f"not an Ed25519 verifier key: {shown}")


def split_key(text: str) -> tuple[str, str, bytes] | None:
    name, key_id, encoded = [*text.split("+", 2), "", ""][:3]
    decoded = decode_base64(encoded) or b""
    is_key = len(decoded) == 1 + _KEY_BYTES and decoded[:1] == ALGORITHM_ED25519
    return (name, key_id, decoded[1:]) if is_key and is_key_name(name) else None


def decode_base64(encoded: str) -> bytes | None:
    # Accept only the canonical form.
    try:
        decoded = a2b_base64(encoded, strict_mode=True)
    except (Base64Error, ValueError):
        return None
    return decoded if b2a_base64(decoded, newline=False).decode() == encoded else None


def is_key_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def parse_genesis(stored: StoredEntry) -> Genesis:
    metadata = stored.entry.metadata
    if stored.entry.event_type != GENESIS or stored.seq != 0 or stored.prev != PREV_OF_GENESIS:
        raise LedgerDamagedError("the first line of a ledger is not GENESIS", where="line 1")
    if metadata.get("format") != FORMAT or type(metadata["format"]) is not int:
        shown = ascii(metadata.get("format"))[: limits.message_value_chars_max]
        hint = f"this version of Paddock reads format {FORMAT}"
        raise HostError(f"unknown ledger format {shown}", where="line 1", hint=hint)
    _, *values = metadata.values()
    is_whole = tuple(metadata) == ("format", *Genesis.__struct_fields__)
    if not is_whole or [*map(type, values[:3])] != [str] * 3 or type(values[3]) not in _NOTE_TYPES:
        raise LedgerDamagedError("GENESIS has missing, extra or invalid fields", where="line 1")
    found = Genesis(*values)
    VerifierKey.parse(found.public_key)
    return found
