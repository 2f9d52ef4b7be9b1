"""Names of hosts: asked for in DNS messages, given synthetic addresses, and answered.

A codec of our own for the one question that matters (RFC 1035, RFC 6891). A question's name has no
compression here, so nothing that is read can point anywhere.
"""

import asyncio
import contextlib
import hashlib
import socket
import struct
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

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
"""What the answer says we take: the size that survives every path (DNS flag day 2020)."""
_DNSSEC_OK: Final = 0x8000
_AT_ONCE_MAX: Final = 64
_DATAGRAM_BYTES_MAX: Final = 65_535
_TTL_S: Final = 5
"""Short: a policy may change. An address stays the name's own as long as its namespace."""
_LOOPBACK: Final = IPv4Address("127.0.0.1")
SYNTHETIC_NETWORK: Final = IPv4Network("198.18.0.0/15")
"""For measuring networks (RFC 2544), so that nothing is really there."""
_NAMES_MAX: Final = 4_096


class HostQuestion(Struct, frozen=True):
    """A DNS question. `name` is empty where `answer` needs no decision: malformed, or localhost."""

    id: int
    flags: int
    code: int = 0
    """The code of its answer, where the question itself decides that."""
    asked: bytes = b""
    """The question as it was sent: its letters' case proves to the client whose answer it is."""
    edns: bytes = b""
    """The OPT record of the answer."""
    name: str = ""
    is_local: bool = False
    wants_address: bool = False
    """It asks for an IPv4 address; whatever else it asks for, the name has none."""


def read_question(message: bytes) -> HostQuestion | None:
    """Read a datagram. None: nothing that can be answered, such as an answer.

    A question that cannot be read, or whose name is none, is one that `answer` answers with an
    error.
    """
    if not _HEADER.size <= len(message) <= _DATAGRAM_BYTES_MAX:
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
    # glibc drops an answer without its question, and waits: so also of a bad name.
    asked, name = message[_HEADER.size : end], "" if code or is_local else name
    return HostQuestion(number, flags, code, asked, edns, name, is_local, kind == _KIND_A)


def _read_labels(message: bytes) -> tuple[list[bytes], int]:
    """Return the labels of the first question, and where it ends; 0 where that cannot be read.

    Threat: a pointer that leads to itself. Nothing stands before the first name that one could
    lead to, so a length above 63 (a pointer, or reserved) ends the reading.
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
    """Return the canonical name, or empty: a dot within a label would make another name of it."""
    if any(b"." in label for label in labels):
        return ""
    try:
        return canonical_host(b".".join(labels).decode("ascii"))
    except ValueError:
        return ""


def _read_rest(rest: bytes, records: int) -> tuple[int, bytes]:
    """Return the code that what follows the question calls for, and the OPT record to answer.

    One OPT record may follow (RFC 6891). Signed questions and other records: an error.
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

    What the question itself decides comes first: its error, or 127.0.0.1 for localhost and names
    below. Else: not known (False); or known, with the address where that was asked for, and nothing
    for any other type.
    """
    found = _LOOPBACK if question.is_local else found
    code = question.code or (_NO_SUCH_NAME if found is False else 0)
    records = b""
    if isinstance(found, IPv4Address) and not code and question.wants_address:
        place = _POINTER_TO_QUESTION
        records = _ADDRESS.pack(place, _KIND_A, _SPACE_IN, _TTL_S, 4, found.packed)
    # Without "recursion available", glibc takes an empty answer for a server's failure.
    flags = _RESPONSE | question.flags & (_OPCODE | _WANTS_RECURSION) | _CAN_RECURSE | code & 0xF
    counts = bool(question.asked), bool(records), 0, bool(question.edns)
    return _HEADER.pack(question.id, flags, *counts) + question.asked + records + question.edns


class SyntheticNames:
    """The addresses that names have inside: each its own, and the same with the same key.

    Of two names that a key leads to one place, who comes second gets the next free one; a program
    cannot choose such names without the key.
    """

    def __init__(self, key: bytes) -> None:
        """`key`: up to 64 random bytes."""
        self._key = key
        self._addresses: dict[str, IPv4Address] = {}
        self._names: dict[IPv4Address, str] = {}

    def address_of(self, name: str) -> IPv4Address | None:
        """Return the address of a canonical name, given at its first use. None: no room is left."""
        known = self._addresses.get(name)
        if known is not None or len(self._names) >= _NAMES_MAX:
            return known
        digest = hashlib.blake2b(name.encode("ascii"), digest_size=8, key=self._key).digest()
        at = int.from_bytes(digest, "big")
        # Not given: the network itself, what `lo` has besides 127.0.0.1, the broadcast address.
        room = SYNTHETIC_NETWORK.num_addresses - 3
        while (address := SYNTHETIC_NETWORK[2 + at % room]) in self._names:
            at += 1
        self._addresses[name], self._names[address] = address, name
        return address

    def name_of(self, address: IPv4Address) -> str | None:
        return self._names.get(address)


Answering = Callable[[str, bool], Awaitable[IPv4Address | bool]]
"""Of a name, and whether its address is asked for: the address, or whether the name is known."""


class NameServer:
    """Answers the questions of one sandbox, from a socket that was made in its network.

    Threat: a flood of questions. Only so many are answered at once; the kernel drops the rest.
    """

    def __init__(self, fd: int, find: Answering) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, fileno=fd)
        self.socket.setblocking(False)
        self._find = find
        self._answering: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self.socket.fileno(), self._take)

    def close(self) -> set[asyncio.Task[None]]:
        """Answer nothing more; return what is still at work."""
        asyncio.get_running_loop().remove_reader(self.socket.fileno())
        self.socket.close()
        return self._answering

    def _take(self) -> None:
        try:
            message, sender = self.socket.recvfrom(_DATAGRAM_BYTES_MAX)
        except OSError:
            return
        if len(self._answering) < _AT_ONCE_MAX:
            task = asyncio.get_running_loop().create_task(self._reply(message, sender))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _reply(self, message: bytes, sender: Any) -> None:
        question = read_question(message)
        if question is None:
            return
        found: IPv4Address | bool = True
        if question.name:
            found = await self._find(question.name, question.wants_address)
        reply = answer(question, found)
        with contextlib.suppress(OSError):
            # Nobody may wait for it any more, or the sandbox has ended.
            self.socket.sendto(reply, sender)
