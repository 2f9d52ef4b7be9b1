"""Classify a client's first bytes: a TLS hello, the head of an HTTP request, or something else.

Threat: a program is allowed one name and asks the server for another that it serves too. "Other"
data passes unread, so it must exclude everything that a lax server would accept as TLS or HTTP.
Detection is as lax as servers are, parsing is strict; data that only passes detection is refused.
Not covered: servers that use a later name (a second or encrypted hello, a later request).
"""

import asyncio
import re
import select
import socket
import struct
from ipaddress import IPv6Address, ip_address
from typing import Final, Literal

from msgspec import Struct

from paddock.network.egress import EgressError, until_ready
from paddock.policy.network import canonical_host

_GREETING_BYTES_MAX: Final = 65_536
_GREETING_S: Final = 30.0
_CROWDED_S: Final = 0.05
_RECORD: Final = struct.Struct(">BBBH")
_FIRST_BYTES: Final = bytes((*range(0x14, 0x19), *range(0x80, 0x100)))
_MAJOR_VERSIONS: Final = bytes(range(0x10))
_RECORD_BYTES_MAX: Final = 16_384
_RECORDS_MAX: Final = 128
"""A hello in one-byte records would be parsed again for each of its bytes."""
_HANDSHAKE, _ALERT, _CLIENT_HELLO = 0x16, 0x15, 1
_SERVER_NAME, _HOST_NAME = b"\0\0", b"\0"
_BAD_HELLO: Final = "it begins like TLS, but is not a valid hello"

_LINE_BYTES_MAX: Final = 16_384
_HEADERS_MAX: Final = 256
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SPACE: Final = rb"[ \t\v\f\r\x1c-\x1f\x85\xa0]"
"""Bytes that servers accept as a space: RFC 9112 (3) has the first ones, Python accepts all."""
_METHOD: Final = re.compile(_SPACE + rb"*(" + _TOKEN.pattern + rb")(?:" + _SPACE + rb"|\Z)")
_USUAL_METHOD: Final = re.compile(rb"[A-Z_-]+")
_CONTROL: Final = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")
_REQUEST: Final = re.compile(
    rb"(" + _TOKEN.pattern + rb") ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])\r"
)
_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_AUTHORITY: Final = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]{0,5})?")
_PROXIED: Final = (b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n")
"""The PROXY protocol of HAProxy, versions 1 and 2. A server that accepts it from any client reads
a hello or a request after it, for any host."""


class Greeting(Struct, frozen=True):
    """`name`: the canonical name or literal address that the client asks for, if any.

    `problem`: why the connection must be refused; empty if it need not.
    """

    kind: Literal["tls", "http", "other"]
    name: str = ""
    problem: str = ""


def read_greeting(first: bytes) -> Greeting | None:
    """Classify a client's data so far. None: with more bytes it may become TLS or HTTP."""
    if first.startswith(_PROXIED):
        return Greeting("other", problem="it sends a PROXY protocol header")
    is_tls = _speaks_tls(first)
    if is_tls is None or any(each.startswith(first) for each in _PROXIED):
        return None
    try:
        greeting = _read_hello(first) if is_tls else _read_http(first)
        if greeting is None and len(first) >= _GREETING_BYTES_MAX:
            raise ValueError("its first message is larger than 64 kB")
    except ValueError as error:
        return Greeting("tls" if is_tls else "http", problem=str(error))
    return greeting


def _read_host(raw: bytes) -> str:
    """Return a canonical name or a literal address. Raises: ValueError."""
    if not raw.isascii():
        raise ValueError(f"it asks for {raw[:40]!r}, which is not an ASCII name")
    try:
        return str(ip_address(raw.decode()))
    except ValueError:
        return canonical_host(raw.decode())


# --- TLS (RFC 8446, RFC 6066) ---------------------------------------------------


def _speaks_tls(first: bytes) -> bool | None:
    """Return True if a server could accept the first record as TLS, or skip it; None: unknown yet.

    Servers skip warnings, and some skip other short records; Go's accepts versions below 0x1000.
    The first message can only be a hello. Other protocols, such as MySQL's, begin with a length
    that may look like a record type.
    """
    if not _may_have(first, 0, _FIRST_BYTES):
        return False
    if first and first[0] >= 0x80:  # An SSL 2 hello, which OpenSSL accepts for newer versions too.
        is_open = _may_have(first, 2, b"\1") and _may_have(first, 3, b"\0\3")
        return (len(first) >= 4 or None) if is_open else False
    if not _may_have(first, 1, _MAJOR_VERSIONS):
        return False
    if len(first) < _RECORD.size + 1:
        return None
    kind, major, _, size = _RECORD.unpack_from(first)
    message = first[_RECORD.size]
    if major != 3:
        return kind in (_ALERT, _HANDSHAKE) and message == _CLIENT_HELLO
    return size <= 4 or (kind == _HANDSHAKE and message <= _CLIENT_HELLO)


def _may_have(first: bytes, at: int, wanted: bytes) -> bool:
    """Return True if the byte at `at` is one of `wanted`, or has not arrived yet."""
    return at >= len(first) or first[at] in wanted


def _read_hello(first: bytes) -> Greeting | None:
    """Read a hello from its records. None: it is incomplete."""
    message = bytearray()
    at = announced = 0
    for _ in range(_RECORDS_MAX):
        if len(first) - at < _RECORD.size:
            return None
        kind, major, minor, size = _RECORD.unpack_from(first, at)
        if kind != _HANDSHAKE or major != 3 or minor > 4 or not 0 < size <= _RECORD_BYTES_MAX:
            raise ValueError(_BAD_HELLO)
        at += _RECORD.size
        message += first[at : at + size]
        at += size
        announced += size
        if len(message) >= 4:
            wanted = 4 + int.from_bytes(message[1:4], "big")
            if wanted > _GREETING_BYTES_MAX:
                raise ValueError("its TLS hello is larger than 64 kB")
            if announced > wanted or message[0] != _CLIENT_HELLO:
                raise ValueError(_BAD_HELLO)
            if len(message) == wanted:
                return Greeting("tls", _read_server_name(bytes(message[4:])))
        if at > len(first):
            return None
    raise ValueError(f"its TLS hello comes in more than {_RECORDS_MAX} records")


def _vector(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    """Return the content of a length-prefixed field, and its end. Raises: ValueError."""
    start = at + width
    end = start + int.from_bytes(data[at:start], "big")
    if start > len(data) or end > len(data):
        raise ValueError(_BAD_HELLO)
    return data[start:end], end


def _read_server_name(hello: bytes) -> str:
    """Return the host name that a hello asks for; empty if it has no such extension.

    With an encrypted hello (ECH) the outer name counts, because only it is visible; clients without
    ECH send a fake one, too (GREASE). Paddock's DNS does not hand out ECH keys.
    """
    session, at = _vector(hello, 34, 1)
    suites, at = _vector(hello, at, 2)
    compressions, at = _vector(hello, at, 1)
    if hello[0] != 3 or len(session) > 32 or not suites or len(suites) % 2 or not compressions:
        raise ValueError(_BAD_HELLO)
    if at == len(hello):
        return ""
    listed, end = _vector(hello, at, 2)
    extensions: dict[bytes, bytes] = {}
    at = 0
    while at < len(listed):
        kind = listed[at : at + 2]
        content, at = _vector(listed, at + 2, 2)
        if kind in extensions:
            raise ValueError(_BAD_HELLO)
        extensions[kind] = content
    if end != len(hello):
        raise ValueError(_BAD_HELLO)
    names = extensions.get(_SERVER_NAME)
    if names is None:
        return ""
    entries, end = _vector(names, 0, 2)
    name, entry_end = _vector(entries, 1, 2)
    if end != len(names) or entry_end != len(entries) or entries[:1] != _HOST_NAME or not name:
        raise ValueError("its TLS hello does not name exactly one host")
    return _read_host(name)


# --- HTTP (RFC 9112) ------------------------------------------------------------


def _read_http(first: bytes) -> Greeting | None:
    text = first.lstrip(b"\r\n")  # Servers skip these.
    line, end, _ = text[:_LINE_BYTES_MAX].partition(b"\n")
    words = line.decode("latin-1").split()
    if not end and not words:
        return None
    method = _METHOD.match(line)
    # Some servers accept control characters, but only with a usual method. First messages of LDAP
    # and git begin with a digit, and may contain no line end.
    if method is None or (_CONTROL.search(line) and not _USUAL_METHOD.fullmatch(method[1])):
        return Greeting("other")
    if not end:
        if len(line) == _LINE_BYTES_MAX:
            raise ValueError("its first line is longer than 16 kB")
        return None
    if not _is_request(words):
        return Greeting("other")
    return _read_head(line, text)


def _is_request(words: list[str]) -> bool:
    """Return True if some server would accept a line of these words as a request."""
    if words[-1].upper().startswith("HTTP/"):
        return True
    is_old = len(words) > 1 and words[0] == "GET"  # HTTP/0.9
    return is_old and (words[1].startswith("/") or "://" in words[1])


def _read_head(line: bytes, text: bytes) -> Greeting | None:
    """Read the head of a request. None: it has not ended."""
    if line.split()[-1] == b"HTTP/2.0":
        # Its requests name hosts in compressed frames: refuse it instead of passing it unread.
        raise ValueError("it speaks HTTP/2 without TLS, where the host cannot be checked")
    request = _REQUEST.fullmatch(line)
    if request is None:
        raise ValueError("its request line is not METHOD TARGET HTTP/1.1, ended by CRLF")
    method, target, minor = request.groups()
    # One quick pass, because data in one-byte pieces is parsed again with each piece.
    *lines, _ = text.split(b"\n", _HEADERS_MAX + 2)
    end = next((at for at, each in enumerate(lines) if each in (b"\r", b"")), 0)
    if not end:
        if len(lines) > _HEADERS_MAX + 1:
            raise ValueError(f"it has more than {_HEADERS_MAX} headers")
        return None
    hosts: list[bytes] = []
    for number, header in enumerate(lines[1 : end + 1], 1):
        if header.partition(b"\r")[1:] != (b"\r", b"") or b"\0" in header:
            raise ValueError("a line of its head does not end in CRLF, or holds a NUL")
        name, colon, value = header.partition(b":")
        # This also refuses a folded line (it begins with a space), which servers read differently.
        if number < end and not (colon and _TOKEN.fullmatch(name)):
            raise ValueError(f"header {number} is not NAME: VALUE")
        if name.lower() == b"host":
            hosts.append(value.strip(b" \t\r"))
    if len(hosts) > 1:
        raise ValueError(f"it has {len(hosts)} Host headers")
    if not hosts and minor == b"1":
        raise ValueError("it has no Host header")
    names = {_read_authority(value) for value in (*hosts, *_target_authority(method, target))}
    if len(names) > 1:
        raise ValueError("its target and its Host header name different hosts")
    return Greeting("http", names.pop() if names else "")


def _target_authority(method: bytes, target: bytes) -> tuple[bytes, ...]:
    """Return the host and port in the request target, if any."""
    if method == b"CONNECT":
        return (target,)
    if target.startswith(b"/") or target == b"*":
        return ()
    absolute = _ABSOLUTE.match(target)
    if absolute is None:
        raise ValueError("its target is neither a path nor an address with a scheme")
    return (absolute[1],)


def _read_authority(value: bytes) -> str:
    """Return the host of HOST or HOST:PORT. The port is ignored. Raises: ValueError."""
    found = _AUTHORITY.fullmatch(value)
    if found is None:
        raise ValueError(f"it asks for {value[:40]!r}, which is not HOST or HOST:PORT")
    return _read_host(found[2]) if found[1] is None else str(IPv6Address(found[1].decode("ascii")))


# --- reading from a client ------------------------------------------------------


async def greeting_of(client: socket.socket, host: str) -> Greeting:
    """Peek at the client's first data, without consuming it. Raises: EgressError, OSError."""
    await until_ready(client.fileno(), is_reading=True)
    try:
        async with asyncio.timeout(_GREETING_S):
            greeting = await _peek(client)
    except TimeoutError:
        raise EgressError(f"its first message was not complete in {_GREETING_S:.0f} s") from None
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if greeting.problem:
        raise EgressError(greeting.problem)
    if greeting.name and greeting.name != host:
        raise EgressError(f"it asks for {greeting.name}, which is not the name of the connection")
    return greeting


async def _peek(client: socket.socket) -> Greeting:
    first = b""
    while True:
        # Wait for more than was seen, so that the same data does not wake this loop again.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(first) + 1)
        await until_ready(client.fileno(), is_reading=True)
        seen = client.recv(_GREETING_BYTES_MAX, socket.MSG_PEEK)
        greeting = read_greeting(seen)
        if greeting is not None:
            return greeting
        if len(seen) == len(first) and await _is_finished(client):
            break
        first = seen
    # No more data will come: an unterminated line counts as complete, a partial hello does not.
    greeting = read_greeting(seen + b"\n") if seen else Greeting("other")
    if greeting is None:
        raise EgressError("its first message is incomplete")
    return greeting


async def _is_finished(client: socket.socket) -> bool:
    """Return True if a readable client without new data will send no more.

    Threat: urgent data, which hides the data after it until the data before it has been read; and
    a buffer full of small packets, with the rest still to come. Raises: EgressError.
    """
    events = select.poll()
    events.register(client, select.POLLRDHUP | select.POLLPRI)
    found = sum(flags for _, flags in events.poll(0))
    if found & select.POLLPRI:
        raise EgressError("it sends urgent data in its first message")
    if not found:
        await asyncio.sleep(_CROWDED_S)
    return bool(found)
