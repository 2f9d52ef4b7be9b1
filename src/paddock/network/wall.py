"""The network of one sandbox, served from outside it: names answered, connections decided.

    a question for a name   denied: NXDOMAIN, and it never leaves the machine; else an address that
                            stands for the name, with listeners on the ports of its rules
    a connection            decided again with its port, asked about, resolved, judged by address,
                            recorded, connected, looked at and relayed

One thread and one event loop for all sandboxes of a shell. Nothing is resolved or sent before a
connection was allowed and that is on record.

Threat: everything that comes out of the sandbox is a hostile program's: malformed, endless, slow,
or as many as there are. So each thing that is held for it has a number that it cannot pass.
"""

import asyncio
import contextlib
import os
import resource
import secrets
import select
import socket
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from ipaddress import IPv4Address
from typing import Any, Final

from msgspec import Struct

from paddock.errors import PaddockError
from paddock.network.decisions import Decisions, Helpers, NetworkTerms, rule_of
from paddock.network.egress import Egress, NoWayError, Relay, reset, until_ready
from paddock.network.greeting import Greeting, read_greeting
from paddock.network.names import NameServer, SyntheticNames
from paddock.policy.network import Reach
from paddock.text.show import show_name
from paddock.values.calls import (
    NO_CONNECTIONS,
    NO_RULE,
    ClosedConnection,
    Connections,
    OpenedConnection,
    RefusedConnection,
)

_CONNECTIONS_MAX: Final = 256
_CONNECTIONS_IN_ALL_MAX: Final = 1000
_LISTENERS_MAX: Final = 256
_REFUSALS_MAX: Final = 50
_GREETING_BYTES_MAX: Final = 65_536
_GREETING_S: Final = 30.0
_END_S: Final = 1.0
_LISTEN_S: Final = 10.0
_PAUSE_S: Final = 1.0
_LOOK_S: Final = 0.5
_CROWDED_S: Final = 0.05
_PATH_CHARS_MAX: Final = 200
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - in the sandbox's own network
_CLIENT_FIRST: Final = (80, 443)
"""Ports on which the client speaks first: what it says is known before anything goes out."""


class ServedNetwork(Struct, frozen=True):
    """What was made in the sandbox's network: two namespaces, the name server's socket."""

    user: int
    network: int
    questions: int


Listen = Callable[[bytes, int], None]
"""Have sockets made at `ADDRESS PORT` lines in the sandbox's network, and sent to a socket."""


class WallThread:
    """The event loop, in a thread of its own that starts with the first sandbox."""

    def __init__(self, egress: Egress) -> None:
        self.owner = os.getpid()
        self._egress = egress
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._key = secrets.token_bytes(16)
        self._walls: set[Wall] = set()
        self._is_closed = False
        self._helpers = Helpers()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="paddock-network", daemon=True
        )
        self._thread.start()
        _ours.add(self)

    def hold(self, served: ServedNetwork, listen: Listen, terms: NetworkTerms) -> "HeldNetwork":
        """Serve one sandbox; what was `served` is taken over."""
        names = SyntheticNames(self._key)
        wall = Wall(served, listen, terms, names, self._egress, self._helpers)
        with self._lock:
            self._walls.add(wall)
        held = HeldNetwork(self, wall)
        self.call(wall.start())
        return held

    def call(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def end(self, wall: "Wall") -> None:
        self.call(wall.end())
        with self._lock:
            self._walls.discard(wall)
            is_last = self._is_closed and not self._walls
        if is_last:
            self._stop()

    def close(self) -> None:
        """Stop once the last sandbox has ended."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            is_last = is_first and not self._walls
        if is_last:
            self._stop()

    def forget(self) -> None:
        """In a child of the owner: close what belongs to a sandbox's network, and use nothing."""
        for wall in self._walls:
            wall.forget()

    def _stop(self) -> None:
        _ours.discard(self)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._helpers.close()
        self._loop.close()


_ours: "weakref.WeakSet[WallThread]" = weakref.WeakSet()


def _forget_all() -> None:
    for thread in list(_ours):
        thread.forget()
        _ours.discard(thread)


os.register_at_fork(after_in_child=_forget_all)


class HeldNetwork(Struct, frozen=True):
    """The network that a command is in; in a session, what came since it began."""

    thread: WallThread
    wall: "Wall"
    began: Connections = NO_CONNECTIONS
    granted_before_s: float = 0.0

    def since_now(self) -> "HeldNetwork":
        return HeldNetwork(self.thread, self.wall, self.connections(), self.wall.granted_s())

    def end(self) -> None:
        """Close everything, in at most a second or two."""
        self.thread.end(self.wall)

    def connections(self) -> Connections:
        now, began = self.wall.connections(), self.began
        refused = tuple(each for each in now.refused if each not in began.refused)
        return Connections(
            now.opened - began.opened, refused, now.more_refused - began.more_refused
        )

    def placeholders(self) -> tuple[tuple[str, str], ...]:
        """Return the variables that stand for credentials, new for each sandbox."""
        return tuple((each.variable, each.placeholder) for each in self.wall.terms.credentials)

    def granted_s(self) -> float:
        """Return by how much the command's time is longer, as somebody was or is asked."""
        return self.wall.granted_s() - self.granted_before_s

    def notices(self) -> Iterator[bytes]:
        """Yield what was refused since this was last called, as lines for who watches."""
        while self.wall.told:
            yield self.wall.told.popleft()


class Wall:
    def __init__(
        self,
        served: ServedNetwork,
        listen: Listen,
        terms: NetworkTerms,
        names: SyntheticNames,
        egress: Egress,
        helpers: Helpers,
    ) -> None:
        self._served = served
        self._listen = listen
        self.terms = terms
        self._witness = terms.witness
        self._decisions = Decisions(terms, helpers)
        self._names = names
        self._egress = egress
        self._helpers = helpers
        self._name_server = NameServer(served.questions, self._answer)
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        self._listening: dict[str, asyncio.Task[str]] = {}
        self._promised = 0
        # Threat: a command that takes the runtime's last descriptors. Of each connection there
        # are six: it, its way out, and a pipe each way.
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections_max = min(_CONNECTIONS_MAX, descriptors // 16)
        self._listeners_max = min(_LISTENERS_MAX, descriptors // 8)
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[socket.socket, tuple[str, int, asyncio.Task[None]]] = {}
        self._outside: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._count = 0
        self._refused: Counter[tuple[str, int, str]] = Counter()
        self._recording: list[asyncio.Task[None]] = []
        """Records of refusals, which the end of the command waits for."""
        self._more_refused = 0
        self._is_ended = False
        self.told: deque[bytes] = deque()

    async def start(self) -> None:
        self._name_server.start()
        literals = self._decisions.judge.literals()
        # Who listens on every address of a port leaves nobody one of them, and comes first.
        for network, ports in sorted(literals, key=lambda each: each[0].prefixlen):
            is_one = network.prefixlen == 32
            await self._serve_at(str(network.network_address) if is_one else _EVERYWHERE, ports)

    def granted_s(self) -> float:
        return self._decisions.granted_s

    def connections(self) -> Connections:
        refused = tuple(RefusedConnection(*key, count) for key, count in self._refused.items())
        return Connections(self._count, refused, self._more_refused)

    async def end(self) -> None:
        """Close listeners first: what nobody accepted is dropped; what was decided is delivered."""
        self._is_ended = True
        loop = asyncio.get_running_loop()
        answering = self._name_server.close()
        for door in self._listeners.values():
            loop.remove_reader(door.fileno())
            door.close()
        self._listeners.clear()
        self._decisions.withdraw()
        serving = [task for *_, task in self._open.values()]
        if serving:
            await asyncio.wait(serving, timeout=_END_S)
        left = (*self._tasks, *answering)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, *self._listening.values(), return_exceptions=True)
        await asyncio.gather(*self._recording)
        for fd in (self._served.user, self._served.network):
            socket.close(fd)
        if self._more_refused:
            more = RefusedConnection("", 0, "further refusals", self._more_refused)
            await self._helpers.record_after(self._witness.refused, more)

    def forget(self) -> None:
        """In a forked child: these are the parent's, and would outlive their command."""
        doors = (self._name_server.socket, *self._listeners.values(), *self._open, *self._outside)
        for fd in (*(door.detach() for door in doors), self._served.user, self._served.network):
            with contextlib.suppress(OSError):
                os.close(fd)

    async def _answer(self, name: str, wants_address: bool) -> IPv4Address | bool:
        """Return the address that stands for a name, and whether it is known at all."""
        judge = self._decisions.judge
        ports = judge.ports(name)
        if not ports:
            self.note(name, 0, rule_of(judge.connect(name, 443)))
            return False
        if not wants_address:
            return True
        address = self._names.address_of(name)
        why = "too many names at once"
        if address is not None:
            why = await self._listen_for(name, address, ports)
        if address is None or why:
            self.note(name, 0, why)
            return False
        return address

    async def _listen_for(self, name: str, address: IPv4Address, ports: tuple[int, ...]) -> str:
        """Return why nothing listens for the name; empty where something does."""
        task = self._listening.get(name)
        if task is None:
            task = asyncio.create_task(self._serve_at(str(address), ports))
            self._listening[name] = task
        return await asyncio.shield(task)

    async def _serve_at(self, address: str, ports: tuple[int, ...]) -> str:
        ports = tuple(port for port in ports if (_EVERYWHERE, port) not in self._listeners)
        # Threat: names asked for all at once, while none of them has its listeners yet.
        if len(self._listeners) + self._promised + len(ports) > self._listeners_max:
            return "too many names at once"
        self._promised += len(ports)
        try:
            return await self._listen_at(address, ports) if ports else ""
        except (OSError, PaddockError):
            # The launcher has ended, or there are no descriptors.
            return "nothing can listen for it"
        finally:
            self._promised -= len(ports)

    async def _listen_at(self, address: str, ports: tuple[int, ...]) -> str:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wanted = "\n".join(f"{address} {port}" for port in ports)
        loop = asyncio.get_running_loop()
        with ours:
            with theirs:
                self._listen(wanted.encode("ascii"), theirs.fileno())
            ours.setblocking(False)
            async with asyncio.timeout(_LISTEN_S):
                await until_ready(ours.fileno(), is_reading=True)
            said, fds, _, _ = socket.recv_fds(ours, 4096, len(ports), socket.MSG_CMSG_CLOEXEC)
        codes = [int(code) for code in said.split()]
        if len(codes) != len(ports):
            return "the sandbox has no network any more"
        for port, code in zip(ports, codes, strict=True):
            if code:
                continue
            door = _nonblocking(fds.pop(0), socket.SOCK_STREAM)
            if self._is_ended:
                door.close()
                continue
            self._listeners[address, port] = door
            loop.add_reader(door.fileno(), self._accept, door, port)
        return "a server inside the sandbox has its ports" if all(codes) else ""

    # --- connections ----------------------------------------------------------------

    def _accept(self, door: socket.socket, port: int) -> None:
        try:
            client, _ = door.accept()
        except BlockingIOError:
            return
        except OSError:
            # Out of descriptors: what waits would wake us again and again.
            self._pause(door, port)
            return
        address = IPv4Address(client.getsockname()[0])
        host = self._names.name_of(address) or str(address)
        if len(self._open) >= self._connections_max or self._count >= _CONNECTIONS_IN_ALL_MAX:
            self.note(host, port, "too many connections")
            reset(client)
            return
        client.setblocking(False)
        task = self._start(self._serve(client, host, port))
        self._open[client] = host, port, task
        if self._watching is None or self._watching.done():
            self._watching = self._start(self._watch_policy())

    def _pause(self, door: socket.socket, port: int) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(door.fileno())

        def go_on() -> None:
            if not self._is_ended:
                loop.add_reader(door.fileno(), self._accept, door, port)

        loop.call_later(_PAUSE_S, go_on)

    async def _serve(self, client: socket.socket, host: str, port: int) -> None:
        try:
            try:
                reach = await self._decisions.connect(host, port)
                await self._pass_on(client, host, port, reach)
            except NoWayError as refusal:
                self.note(host, port, str(refusal))
            except OSError as error:
                self.note(host, port, error.strerror or type(error).__name__)
        finally:
            self._open.pop(client, None)
            reset(client)

    async def _watch_policy(self) -> None:
        """End what policy denies by now, within a second or two of the change."""
        while self._open and not self._is_ended:
            await asyncio.sleep(_LOOK_S)
            now = await self._decisions.judge_now()
            for host, port, task in tuple(self._open.values()):
                if self._decisions.is_denied_by(now, host, port):
                    self.note(host, port, "policy does not allow it any more")
                    task.cancel()

    async def _pass_on(self, client: socket.socket, host: str, port: int, reach: Reach) -> None:
        is_judged = self.terms.judges_requests(host, port)
        greeting = None
        if is_judged or port in _CLIENT_FIRST:
            greeting = await _greeting_of(client, host)
        if greeting is not None and is_judged:
            if greeting.kind != "tls":
                raise NoWayError("requests to this host are judged, so they have to come over TLS")
            await self._serve_requests(client, host, port, reach)
            return
        name = "" if greeting is None else greeting.name
        outside, opened = await self.open(host, port, reach, name)
        await self._relay(client, outside, opened, is_known=greeting is not None)

    async def open(
        self, host: str, port: int, reach: Reach, name: str
    ) -> tuple[socket.socket, OpenedConnection]:
        """Connect to where the name leads, each try on record before it. Raises: NoWayError."""
        for way in await self._egress.find(host, port, await self._decisions.places(host, port)):
            opened = OpenedConnection(host, port, way.shown, name, rule_of(reach))
            self._count += 1
            try:
                await self._helpers.record(self._witness.opened, opened)
            except PaddockError as error:
                raise NoWayError("it cannot be put on record") from error
            try:
                outside = await self._egress.connect(way, host, port)
            except (OSError, TimeoutError):
                await self.close(ClosedConnection(opened, name, 0, 0, 0.0, "not connected"))
            else:
                self._outside.add(outside)
                return outside, opened
        raise NoWayError("nothing answers there")

    async def close(self, event: ClosedConnection) -> None:
        await asyncio.shield(self._helpers.record_after(self._witness.closed, event))

    async def _relay(
        self,
        client: socket.socket,
        outside: socket.socket,
        opened: OpenedConnection,
        *,
        is_known: bool,
    ) -> None:
        """Relay to the end, and put on record what it came to."""
        began, ending, relay = time.monotonic(), "cut off", Relay(client, outside)
        looking = None if is_known else asyncio.create_task(_greeting_of(client, opened.host))
        try:
            ending = await relay.run(looking)
            if ending == "closed":
                client.close()
        finally:
            reset(outside)
            name = opened.server_name
            if looking is not None:
                looking.cancel()
                name = await _name_of(looking)
            sent, received, took_s = (
                relay.sent.bytes,
                relay.received.bytes,
                time.monotonic() - began,
            )
            await self.close(ClosedConnection(opened, name, sent, received, took_s, ending))

    async def _serve_requests(
        self, client: socket.socket, host: str, port: int, reach: Reach
    ) -> None:
        from paddock.network.requests import serve_requests  # noqa: PLC0415 - few hosts need it

        terms = self.terms
        if terms.authority is None:
            raise NoWayError("requests to this host are judged, and nothing here can end TLS")
        gate = _Gate(self, host, port, reach)
        try:
            await serve_requests(client, host, port, gate, terms.authority, terms.credentials)
        finally:
            await gate.end()

    async def judge_request(self, method: str, host: str, port: int, target: str) -> str:
        try:
            if not self._decisions.judge.ends_tls(host, port):
                raise NoWayError("a credential names this host, and no rule its requests")
            await self._decisions.request(method, host, port, target)
        except NoWayError as refusal:
            path = target.partition("?")[0][:_PATH_CHARS_MAX]
            self.note(host, port, f"{method} {path}: {refusal}")
            return str(refusal)
        return ""

    # --- what was refused -------------------------------------------------------------

    def note(self, host: str, port: int, why: str) -> None:
        key = (host, port, why)
        if key not in self._refused and len(self._refused) >= _REFUSALS_MAX:
            self._more_refused += 1
            return
        self._refused[key] += 1
        if self._refused[key] == 1:
            place = f"{host}:{port}" if port else host
            said = f"paddock: policy refused the connection to {show_name(place)}: {show_name(why)}"
            if why == NO_RULE:
                said += f"; a person can allow it: paddock network allow {show_name(place)}"
            self.told.append(f"{said}\n".encode())
            event = RefusedConnection(host, port, why)
            recording = self._helpers.record_after(self._witness.refused, event)
            self._recording.append(asyncio.get_running_loop().create_task(recording))

    def _start(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Gate:
    """What one connection whose requests are judged asks of the wall."""

    def __init__(self, wall: Wall, host: str, port: int, reach: Reach) -> None:
        self._wall = wall
        self._place = host, port
        self._reach = reach
        self._opened: OpenedConnection | None = None
        self._began = 0.0
        self._closing: set[asyncio.Task[None]] = set()

    async def judge(self, method: str, target: str) -> str:
        return await self._wall.judge_request(method, *self._place, target)

    async def dial(self) -> socket.socket | str:
        host, port = self._place
        try:
            outside, self._opened = await self._wall.open(host, port, self._reach, host)
        except NoWayError as refusal:
            self._wall.note(host, port, str(refusal))
            return str(refusal)
        self._began = time.monotonic()
        return outside

    def closed(self, sent: int, received: int) -> None:
        if self._opened is not None:
            took_s = time.monotonic() - self._began
            host, _ = self._place
            event = ClosedConnection(self._opened, host, sent, received, took_s, "closed")
            self._closing.add(asyncio.get_running_loop().create_task(self._wall.close(event)))

    def refused(self, code: str, said: str) -> None:
        self._wall.note(*self._place, f"{code}: {said}")

    async def end(self) -> None:
        await asyncio.gather(*self._closing)


async def _greeting_of(client: socket.socket, host: str) -> Greeting:
    """Look at what the client says first, and leave it there. Raises: NoWayError, OSError."""
    await until_ready(client.fileno(), is_reading=True)
    try:
        async with asyncio.timeout(_GREETING_S):
            greeting = await _look(client)
    except TimeoutError:
        raise NoWayError(f"it did not say what it wants within {_GREETING_S:.0f} s") from None
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if greeting.problem:
        raise NoWayError(greeting.problem)
    if greeting.name and greeting.name != host:
        raise NoWayError(f"it asks for {greeting.name}, which is not the name of the connection")
    return greeting


async def _look(client: socket.socket) -> Greeting:
    first = b""
    while True:
        # More than was seen: else what is there already would wake us again and again.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(first) + 1)
        await until_ready(client.fileno(), is_reading=True)
        seen = client.recv(_GREETING_BYTES_MAX, socket.MSG_PEEK)
        greeting = read_greeting(seen)
        if greeting is not None:
            return greeting
        if len(seen) == len(first) and await _has_said_all(client):
            break
        first = seen
    # It says no more: a line that it did not end is whole, half a hello or head is not.
    greeting = read_greeting(seen + b"\n") if seen else Greeting("other")
    if greeting is None:
        raise NoWayError("it began to say what it wants, and never ended")
    return greeting


async def _has_said_all(client: socket.socket) -> bool:
    """Tell whether a client that is readable, with nothing more to see, will say no more.

    Threat: urgent data, which hides what is behind it until what is before it has been read; and
    a buffer that is full of small packets, with the rest to come. Raises: NoWayError.
    """
    events = select.poll()
    events.register(client, select.POLLRDHUP | select.POLLPRI)
    found = sum(flags for _, flags in events.poll(0))
    if found & select.POLLPRI:
        raise NoWayError("it sends urgent data before it has said what it wants")
    if not found:
        await asyncio.sleep(_CROWDED_S)
    return bool(found)


async def _name_of(looking: "asyncio.Task[Greeting]") -> str:
    try:
        return (await looking).name
    except (asyncio.CancelledError, NoWayError, OSError, TimeoutError):
        return ""


def _nonblocking(fd: int, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind, fileno=fd)
    made.setblocking(False)
    return made
