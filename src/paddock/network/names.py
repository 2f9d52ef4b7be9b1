"""Answer DNS questions with synthetic addresses.

A minimal codec for single-question messages (RFC 1035, RFC 6891). Compression in a question's name
is refused, so no pointer is ever followed.
"""

import hashlib
import struct
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from msgspec import Struct

from paddock.policy.network import canonical_host

_HEADER: Final = struct.Struct(">6H")
_KIND_AND_SPACE: Final = struct.Struct(">2H")
_OPT: Final = struct.Struct(">BHHBBHH")
_ADDRESS: Final = struct.Struct(">HHHIH4s")
_ENCODED_NAME_MAX: Final = 255
_RESPONSE, _OPCODE, _TRUNCATED, _WANTS_RECURSION, _CAN_RECURSE = 0x8000, 0x7800, 0x200, 0x100, 0x80
_FORMAT_ERROR, _NO_SUCH_NAME, _NOT_IMPLEMENTED, _REFUSED, _BAD_VERSION = 1, 3, 4, 5, 16
_KIND_A, _KIND_OPT, _SPACE_IN = 1, 41, 1
_POINTER_TO_QUESTION: Final = 0xC000 | _HEADER.size
_DATAGRAM_MAX: Final = 1232
"""The datagram size that answers announce; it passes on all paths (DNS flag day 2020)."""
_DNSSEC_OK: Final = 0x8000
DATAGRAM_BYTES_MAX: Final = 65_535
_TTL_S: Final = 5
"""Short, because policy may change. A name keeps its address as long as the namespace exists."""
_LOOPBACK: Final = IPv4Address("127.0.0.1")
SYNTHETIC_NETWORK: Final = IPv4Network("198.18.0.0/15")
"""Reserved for network benchmarks (RFC 2544), so no real host uses it."""
FIRST_NAME_SERVER: Final = IPv4Address("127.0.0.53")
_NAMES_MAX: Final = 4_096
_PARTS: Final = 16
_PART_ADDRESSES: Final = SYNTHETIC_NETWORK.num_addresses // _PARTS


class HostQuestion(Struct, frozen=True):
    """A DNS question. `name` is empty if `answer` needs no decision: malformed, or localhost."""

    id: int
    flags: int
    code: int = 0
    """The response code, if the question alone decides it."""
    asked: bytes = b""
    """The question as sent: clients compare its letter case to match the answer."""
    edns: bytes = b""
    """The OPT record of the answer."""
    name: str = ""
    is_local: bool = False
    wants_address: bool = False
    """It asks for an IPv4 address; a name has no other records."""


def read_question(message: bytes) -> HostQuestion | None:
    """Read a datagram. Return None if it cannot be answered, for example an answer.

    A malformed question, or one with an invalid name, gets an error from `answer`.
    """
    if not _HEADER.size <= len(message) <= DATAGRAM_BYTES_MAX:
        return None
    number, flags, questions, answers, authorities, others = _HEADER.unpack_from(message)
    if flags & _RESPONSE:
        return None
    if flags & _OPCODE:
        return HostQuestion(number, flags, _NOT_IMPLEMENTED)
    labels, end = _read_labels(message)
    if not end or questions != 1:
        return HostQuestion(number, flags, _FORMAT_ERROR)
    kind, space = _KIND_AND_SPACE.unpack_from(message, end - _KIND_AND_SPACE.size)
    name = _name_of(labels)
    code, edns = _read_rest(message[end:], others)
    if not name or answers or authorities or flags & _TRUNCATED:
        code = _FORMAT_ERROR
    elif not code and space != _SPACE_IN:
        code = _REFUSED
    is_local = not code and f".{name}".endswith(".localhost")
    # glibc ignores an answer without its question, and waits: include it for a bad name too.
    asked, name = message[_HEADER.size : end], "" if code or is_local else name
    return HostQuestion(number, flags, code, asked, edns, name, is_local, kind == _KIND_A)


def _read_labels(message: bytes) -> tuple[list[bytes], int]:
    """Return the labels of the first question, and its end; 0 if it is malformed.

    Threat: a pointer to itself. The first name has nothing before it to point to, so a length
    above 63 (a pointer, or reserved) is malformed.
    """
    labels: list[bytes] = []
    start = at = _HEADER.size
    while at < len(message) and 0 < message[at] < 0x40 and at - start < _ENCODED_NAME_MAX:
        labels.append(message[at + 1 : at + 1 + message[at]])
        at += 1 + message[at]
    end = at + 1 + _KIND_AND_SPACE.size
    if end > len(message) or message[at] or at + 1 - start > _ENCODED_NAME_MAX:
        return [], 0
    return labels, end


def _name_of(labels: list[bytes]) -> str:
    """Return the canonical name, empty if invalid: a dot in a label would change the name."""
    if any(b"." in label for label in labels):
        return ""
    try:
        return canonical_host(b".".join(labels).decode("ascii"))
    except ValueError:
        return ""


def _read_rest(rest: bytes, records: int) -> tuple[int, bytes]:
    """Check the records after the question; return a response code, and the OPT record to answer.

    One OPT record may follow (RFC 6891). Signed questions and other records are an error.
    """
    if not rest and not records:
        return 0, b""
    if records != 1 or len(rest) < _OPT.size:
        return _FORMAT_ERROR, b""
    owner, kind, _, _, version, flags, length = _OPT.unpack_from(rest)
    if owner or kind != _KIND_OPT or len(rest) != _OPT.size + length:
        return _FORMAT_ERROR, b""
    code = _BAD_VERSION if version else 0
    return code, _OPT.pack(0, _KIND_OPT, _DATAGRAM_MAX, code >> 4, 0, flags & _DNSSEC_OK, 0)


def answer(question: HostQuestion, found: IPv4Address | bool = True) -> bytes:
    """Return the answer: at most 512 bytes, so that it always fits a datagram.

    The question's own code comes first, or 127.0.0.1 for localhost and names below it. Otherwise
    `found` is False for an unknown name, True for a known one, or its address, which is only
    included if the question asks for it.
    """
    found = _LOOPBACK if question.is_local else found
    code = question.code or (_NO_SUCH_NAME if found is False else 0)
    records = b""
    if isinstance(found, IPv4Address) and not code and question.wants_address:
        place = _POINTER_TO_QUESTION
        records = _ADDRESS.pack(place, _KIND_A, _SPACE_IN, _TTL_S, 4, found.packed)
    # Without "recursion available", glibc treats an empty answer as a server failure.
    flags = _RESPONSE | question.flags & (_OPCODE | _WANTS_RECURSION) | _CAN_RECURSE | code & 0xF
    counts = bool(question.asked), bool(records), 0, bool(question.edns)
    return _HEADER.pack(question.id, flags, *counts) + question.asked + records + question.edns


class SyntheticNames:
    """Assign each name a unique synthetic address, which depends only on the name and the key.

    If two names collide, the second one gets the next free address; without the key a program
    cannot choose colliding names.
    """

    def __init__(self, key: bytes, part: int = 0) -> None:
        """`key`: up to 64 random bytes. `part`: processes that serve one network have their own."""
        self._key = key
        self._first = part % _PARTS * _PART_ADDRESSES
        self._addresses: dict[str, IPv4Address] = {}
        self._names: dict[IPv4Address, str] = {}

    def address_of(self, name: str) -> IPv4Address | None:
        """Return a canonical name's address, assigned at first use. None: the table is full."""
        known = self._addresses.get(name)
        if known is not None or len(self._names) >= _NAMES_MAX:
            return known
        digest = hashlib.blake2b(name.encode("ascii"), digest_size=8, key=self._key).digest()
        at = int.from_bytes(digest, "big")
        # Never assigned: the network address, the second address of `lo`, the broadcast address.
        room = _PART_ADDRESSES - 3
        while (address := SYNTHETIC_NETWORK[self._first + 2 + at % room]) in self._names:
            at += 1
        self._addresses[name], self._names[address] = address, name
        return address

    def name_of(self, address: IPv4Address) -> str | None:
        return self._names.get(address)
