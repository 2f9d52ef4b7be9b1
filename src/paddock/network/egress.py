"""Make outgoing connections: resolve names, judge addresses, connect, relay bytes.

A connection goes to exactly the address that was judged, so a later DNS answer has no effect. If
the host's environment configures a proxy, every connection goes through it.

The first megabyte is received and sent, so that short exchanges need no pipe; the rest is moved by
splice(2) through a pipe and never copied into this process. Half-closes are passed on.

Threat: an allowed name can resolve to this machine, to its network, or to the cloud's metadata
service with its keys. The name's owner chooses the addresses and can change them at any time.
"""

import asyncio
import base64
import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from paddock.policy.network import NetworkJudge, held_addresses
from paddock.values.calls import SHOW_NETWORK

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Terms = tuple[tuple[Network, ...], NetworkJudge]
"""The non-public addresses that a name may resolve to, and the judge of the address itself."""
Resolve = Callable[[str, int], Awaitable[list[Address]]]

SERVER_FAILED: Final = "net.server_failed"
_FOUND: Final = "network.packages"
"""The source of rules that the package clients' indexes gave: nobody can write into them."""
_HOSTS_FILE: Final = Path("/etc/hosts")
_CONNECT_S: Final = 30.0
_TRIED_MAX: Final = 4
_PROXY_HEAD_BYTES_MAX: Final = 16_384


class EgressError(Exception):
    """A refused connection; the text says why, for the result and the record."""

    def __init__(self, why: str, remedy: str = SHOW_NETWORK) -> None:
        super().__init__(why)
        self.remedy = remedy
        """As in `RefusedConnection`."""


class FaultError(EgressError):
    """A connection that policy allows, and that failed."""

    def __init__(self, why: str) -> None:
        super().__init__(why, remedy="")


class Egress:
    """`environment` is that of the user on the host, for the proxy settings."""

    def __init__(self, environment: Mapping[str, str], resolve: "Resolve | None" = None) -> None:
        self._environment = environment
        self._resolve = resolve or _resolve_here

    async def find(self, host: str, port: int, terms: Sequence[Terms]) -> Sequence[Address | None]:
        """Return the addresses that all terms allow, best first. Raises: EgressError.

        None: through a proxy, which resolves the name.
        """
        if self._proxy_for(host) is not None:
            return [None]
        literal = _literal(host)
        found = await self._resolve(host, port) if literal is None else [literal]
        own = tuple(_own_networks())

        def why_denied(address: Address, allowed: tuple[Network, ...], judge: NetworkJudge) -> str:
            denial = judge.find_denial(address, port)
            if denial is not None:
                return f": {denial.said}"
            usable = allowed if literal is None else [*filter(_is_one_kind, allowed)]
            problem = judge_address(address, usable, own)
            return problem and f", which is {problem}"

        ways: list[Address] = []
        why = remedy = ""
        for address in found:
            problem = next(filter(None, (why_denied(address, *each) for each in terms)), "")
            if problem:
                why = why or f"it resolves to {address}{problem}"
                remedy = remedy or _remedy(address, host, port, terms, own)
            else:
                ways.append(address)
        if not ways:
            raise EgressError(why, remedy) if why else FaultError("the name has no address")
        return ways[:_TRIED_MAX]

    async def connect(self, way: Address | None, host: str, port: int) -> socket.socket:
        """Connect to the address, or through the proxy. Raises: OSError."""
        async with asyncio.timeout(_CONNECT_S):
            if way is not None:
                return await _connect(str(way), port)
            return await self._connect_by_proxy(host, port)

    async def _connect_by_proxy(self, host: str, port: int) -> socket.socket:
        proxy = self._proxy_for(host)
        if proxy is None:
            raise ConnectionRefusedError("the proxy is gone")
        name, proxy_port, user = proxy
        loop = asyncio.get_running_loop()
        (*_, place), *_ = await loop.getaddrinfo(name, proxy_port, type=socket.SOCK_STREAM)
        sock = await _connect(str(place[0]), proxy_port)
        try:
            target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
            if user:
                head += f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"
            await loop.sock_sendall(sock, f"{head}\r\n".encode("ascii"))
            await _require_granted(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def _proxy_for(self, host: str) -> tuple[str, int, str] | None:
        given = self._variable("https_proxy") or self._variable("all_proxy")
        if not given or _is_excepted(host, self._variable("no_proxy")):
            return None
        try:
            parts = urlsplit(given if "//" in given else f"http://{given}")
            name, port = (parts.hostname or "").encode("idna").decode(), parts.port or 80
        except ValueError:
            # It may contain a password, so do not quote it.
            raise FaultError("this host's proxy variable is not a proxy address") from None
        if parts.scheme != "http" or not name:
            raise FaultError(f"this host's proxy has an unsupported scheme: {parts.scheme}")
        user = (
            f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        )
        return name, port, user

    def _variable(self, name: str) -> str:
        return self._environment.get(name) or self._environment.get(name.upper()) or ""


def _is_excepted(host: str, exceptions: str) -> bool:
    literal = _literal(host)
    for word in exceptions.lower().replace(",", " ").split():
        if word == "*":
            return True
        if literal is not None:
            try:
                if literal in ip_network(word, strict=False):
                    return True
            except ValueError:
                continue
        name = word.removeprefix("*").removeprefix(".")
        if name and (host == name or host.endswith(f".{name}")):
            return True
    return False


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _remedy(
    address: Address, host: str, port: int, terms: Sequence[Terms], own: tuple[Network, ...]
) -> str:
    """Say what to add to the name's rule, if that lets it resolve to the address."""
    is_denied = any(judge.find_denial(address, port) for _, judge in terms)
    rule = next((judge.connect(host, port).rule for _, judge in terms), None)
    if is_denied or judge_address(address, (ip_network(address),), own):
        return SHOW_NETWORK
    if rule is None or rule.source == _FOUND or _literal(host) is not None:
        return SHOW_NETWORK
    return f'addresses = ["{address}"] in the rule {rule.said}, then: paddock trust'


def _is_one_kind(network: Network) -> bool:
    """Return True if a rule for this network also covers its non-public addresses.

    Threat: 0.0.0.0/0 is written to mean the internet, but contains this machine and metadata
    services. So non-public addresses only count if the whole network is of one kind.
    """
    first, last = (judge_address(end, (), ()) for end in (network[0], network[-1]))
    return network.num_addresses == 1 or first == last != ""


async def _resolve_here(host: str, port: int) -> list[Address]:
    # With the final dot below, the resolver would not use the hosts file.
    with contextlib.suppress(OSError):
        if named := addresses_in_hosts_file(_HOSTS_FILE.read_text(errors="replace"), host):
            return named
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            # The final dot makes it absolute: no search list is applied.
            found = await loop.getaddrinfo(
                host if "." not in host else f"{host}.",
                port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_ADDRCONFIG,
            )
    except (socket.gaierror, TimeoutError) as error:
        raise FaultError("the name cannot be resolved") from error
    places = (str(place[0]).partition("%")[0] for *_, place in found)
    return [ip_address(text) for text in dict.fromkeys(places)]


def addresses_in_hosts_file(text: str, host: str) -> list[Address]:
    """Return a name's addresses in hosts(5); malformed lines are skipped."""
    found: list[Address] = []
    for line in text.lower().splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if host in names:
            with contextlib.suppress(ValueError):
                found.append(ip_address(address.partition("%")[0]))
    return found


async def _connect(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    sock.setblocking(False)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


async def _require_granted(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    head = b""
    # Byte by byte: the data after the head already comes from the server.
    while not head.endswith(b"\r\n\r\n"):
        piece = await loop.sock_recv(sock, 1)
        head += piece
        if not piece or len(head) > _PROXY_HEAD_BYTES_MAX:
            raise ConnectionRefusedError("the proxy of this host did not answer")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or not status[1].startswith(b"2"):
        raise ConnectionRefusedError("the proxy of this host refused the connection")


def _own_networks() -> Iterator[Network]:
    """Yield this machine's addresses and its directly attached networks (proc(5), net)."""
    address = ""
    for line in _lines("/proc/net/fib_trie"):
        word = line.split()
        if word[:1] == ["|--"]:
            address = word[1]
        elif word[-1:] == ["LOCAL"] and word[:1] == ["/32"]:
            yield ip_network(address)
    for line in _lines("/proc/net/route")[1:]:
        _, destination, gateway, *_, mask = (line.split() + [""] * 8)[:8]
        # In the machine's byte order; a default route has no mask.
        if int(gateway, 16) == 0 and int(mask, 16):
            start, bits = (int(part, 16).to_bytes(4, "little") for part in (destination, mask))
            yield ip_network(f"{IPv4Address(start)}/{IPv4Address(bits)}")
    for line in _lines("/proc/net/if_inet6"):
        digits, _, bits, *_ = line.split()
        found = ip_interface((int(digits, 16).to_bytes(16, "big"), int(bits, 16)))
        yield found.network


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("ascii").splitlines()
    except OSError:
        # The kernel does not support the protocol.
        return []


# --- which addresses a name may resolve to --------------------------------------

# Threat: the owner of an allowed name lets it resolve to a router, a metadata service, a database
# or this machine; directly, or embedded in an IPv6 address that a translator unwraps.
#
# The tables follow IANA's registries of special-purpose addresses (RFC 6890), multicast addresses
# and global unicast addresses. They are stricter for protocol blocks: all of 192.0.0.0/24 and
# 2001::/23. Python's `is_global` is not enough: it is true for multicast, 168.63.129.16, and
# private hosts behind NAT64 or 6to4.
_Table = tuple[tuple[Network, str], ...]


def _table(*rows: tuple[str, str]) -> _Table:
    return tuple((ip_network(block), word) for word, blocks in rows for block in blocks.split())


_NEVER: Final = _table(
    ("unspecified", "0.0.0.0/8 ::/128"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("broadcast", "255.255.255.255/32"),
)
_NOT_PUBLIC: Final = _table(
    ("loopback", "127.0.0.0/8 ::1/128"),
    ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("carrier-grade NAT", "100.64.0.0/10"),
    ("a cloud platform service", "168.63.129.16/32"),
    ("reserved for protocols", "192.0.0.0/24 192.88.99.0/24 2001::/23"),
    ("reserved for benchmarks", "198.18.0.0/15"),
    ("for documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("reserved", "240.0.0.0/4"),
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")


def judge_address(address: Address, allowed: Sequence[Network], own: Sequence[Network]) -> str:
    """Return why the address may not be reached, in a few words; empty if it may.

    `allowed`: the non-public addresses that a rule allows; never an unspecified, multicast or
    broadcast one. `own`: this machine's addresses and its directly attached networks.
    An address with embedded IPv4 addresses is judged as each of them.
    """
    held = held_addresses(address)
    words = [_judge(each, allowed, own) for each in held or (address,)]
    if held and not _is_in(address, allowed):
        words.append(_judge_own(address, own))
    return next(filter(None, words), "")


def _judge(address: Address, allowed: Sequence[Network], own: Sequence[Network]) -> str:
    for each in own:
        if each.version == 4 and each.prefixlen < 31 and address == each.broadcast_address:
            return "broadcast"
    never = _find(address, _NEVER)
    if never or _is_in(address, allowed):
        return never
    word = _find(address, _NOT_PUBLIC)
    if not word and isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "not public"
    return word or _judge_own(address, own)


def _judge_own(address: Address, own: Sequence[Network]) -> str:
    found = [each.num_addresses for each in own if address in each]
    if not found:
        return ""
    return "on this machine" if min(found) == 1 else "on a network of this machine"


def _find(address: Address, table: _Table) -> str:
    return next((word for network, word in table if address in network), "")


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


# --- bytes ----------------------------------------------------------------------

_PIECE_BYTES: Final = 262_144
_SPLICED_FROM_BYTES: Final = 1_048_576
_PIPE_BYTES: Final = 1_048_576
IDLE_S: Final = 3600.0
HALF_CLOSED_S: Final = 300.0
_LOOK_S: Final = 5.0
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, zero seconds: close(2) resets the connection (socket(7))."""


class _Flow:
    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.bytes, self.is_over = 0, False


class Relay:
    """Relay between a command's connection, `inside`, and the real one, `outside`: non-blocking."""

    def __init__(self, inside: socket.socket, outside: socket.socket) -> None:
        self.sent, self.received = _Flow(inside, outside), _Flow(outside, inside)
        self._moved_s = 0.0

    async def run(self, until: "asyncio.Task[Any] | None" = None) -> str:
        """Return how it ended: `closed`, `reset` or `idle`.

        Nothing is sent before the task `until` is done. Raises: what that raised.
        """
        loop = asyncio.get_running_loop()
        self._moved_s = loop.time()
        flows = (self._pump(self.sent, until), self._pump(self.received))
        pumps = [loop.create_task(each) for each in flows]
        waiting = {*pumps}
        try:
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=_LOOK_S, return_when=asyncio.FIRST_EXCEPTION
                )
                for each in done:
                    each.result()
                most = HALF_CLOSED_S if self.sent.is_over or self.received.is_over else IDLE_S
                if waiting and loop.time() - self._moved_s > most:
                    return "idle"
        except OSError:
            return "reset"
        else:
            return "closed"
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, flow: _Flow, until: "asyncio.Task[Any] | None" = None) -> None:
        if until is not None:
            await until
        loop = asyncio.get_running_loop()
        while flow.bytes < _SPLICED_FROM_BYTES:
            piece = await loop.sock_recv(flow.source, _PIECE_BYTES)
            if not piece:
                break
            await loop.sock_sendall(flow.target, piece)
            self._moved(flow, len(piece))
        else:
            await self._splice(flow)
        flow.is_over = True
        with contextlib.suppress(OSError):
            # The other side may have closed already.
            flow.target.shutdown(socket.SHUT_WR)

    async def _splice(self, flow: _Flow) -> None:
        out, into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            with contextlib.suppress(PermissionError):
                # All pipes of a user share a limit: smaller pieces only cost time.
                fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            source, target = flow.source.fileno(), flow.target.fileno()
            while True:
                taken = await _splice_when(source, into, wait_for=source, is_reading=True)
                if not taken and not await self._pass_mark(flow):
                    return
                while taken:
                    given = await _splice_when(out, target, wait_for=target, is_reading=False)
                    taken -= given
                    self._moved(flow, given)
        finally:
            os.close(out)
            os.close(into)

    async def _pass_mark(self, flow: _Flow) -> bool:
        """Pass TCP's urgent mark, at which splice(2) stops. Return False at the end of data."""
        loop = asyncio.get_running_loop()
        piece = await loop.sock_recv(flow.source, _PIECE_BYTES)
        await loop.sock_sendall(flow.target, piece)
        self._moved(flow, len(piece))
        return piece != b""

    def _moved(self, flow: _Flow, count: int) -> None:
        flow.bytes += count
        self._moved_s = asyncio.get_running_loop().time()


async def _splice_when(source: int, target: int, *, wait_for: int, is_reading: bool) -> int:
    """Return the number of bytes; 0 at the end, and if splice(2) cannot move the readable data."""
    was_ready = False
    while True:
        try:
            # The numbers of SPLICE_F_MOVE and SPLICE_F_NONBLOCK (splice(2)).
            return os.splice(source, target, _PIPE_BYTES, flags=3)
        except BlockingIOError:
            if is_reading and was_ready:
                return 0
            await until_ready(wait_for, is_reading=is_reading)
            was_ready = True


async def until_ready(fd: int, *, is_reading: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (
        (loop.add_reader, loop.remove_reader)
        if is_reading
        else (loop.add_writer, loop.remove_writer)
    )
    add(fd, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        remove(fd)


def reset(connection: socket.socket) -> None:
    """Close with a reset, so that the peer does not take a cut answer for a complete one."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
