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
import secrets
import socket
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from typing import Any, Final, Protocol

from msgspec import Struct

from paddock.errors import PaddockError
from paddock.network.egress import Egress, NoWayError, Relay, Way, reset, until_ready
from paddock.network.greeting import Greeting, read_greeting
from paddock.network.names import SyntheticNames, answer, read_question
from paddock.policy.network import NetworkJudge, Reach
from paddock.text.show import show_name
from paddock.values.calls import (
    ClosedConnection,
    Connections,
    OpenedConnection,
    RefusedConnection,
)
from paddock.values.decisions import Outcome

_CONNECTIONS_MAX: Final = 256
_CONNECTIONS_IN_ALL_MAX: Final = 1000
_LISTENERS_MAX: Final = 256
_REFUSALS_MAX: Final = 50
_GREETING_BYTES_MAX: Final = 65_536
_GREETING_S: Final = 30.0
_QUESTION_BYTES_MAX: Final = 65_535
_END_S: Final = 1.0
_LISTEN_S: Final = 10.0
_PAUSE_S: Final = 1.0
_ASK_S: Final = 120.0
_LOOK_S: Final = 0.5
_CLIENT_FIRST: Final = (80, 443)
"""Ports on which the client speaks first: what it says is known before anything goes out."""


class ServedNetwork(Struct, frozen=True):
    """What was made in the sandbox's network: two namespaces, the name server's socket."""

    user: int
    network: int
    questions: int


class Witness(Protocol):
    """Who can be asked for one command, and keeps the record. Each may block, in any thread."""

    def ask(self, host: str, port: int, reach: Reach) -> bool:
        """Ask whoever can answer, for at most two minutes."""
        ...

    def opened(self, event: OpenedConnection) -> None:
        """Return when it is durable. Raises: PaddockError, then nothing is opened."""
        ...

    def closed(self, event: ClosedConnection) -> None: ...

    def refused(self, event: RefusedConnection) -> None: ...


Listen = Callable[[bytes, int], None]
"""Have sockets made at `ADDRESS PORT` lines in the sandbox's network, and sent to a socket."""


Latest = Callable[[], NetworkJudge | None]
"""Read what policy says by now: the same judge if nothing has changed, None if it is broken."""


class WallThread:
    """The event loop, in a thread of its own that starts with the first sandbox."""

    def __init__(self, outside: Egress) -> None:
        self.owner = os.getpid()
        self._outside = outside
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._key = secrets.token_bytes(16)
        self._walls: set[Wall] = set()
        self._is_closed = False
        # Records are short, and wait for no resolver and for nobody's answer.
        self._records = ThreadPoolExecutor(2, "paddock-network-records")
        self._questions = ThreadPoolExecutor(4, "paddock-network-questions")
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="paddock-network", daemon=True
        )
        self._thread.start()
        _ours.add(self)

    def hold(
        self,
        served: ServedNetwork,
        listen: Listen,
        judge: NetworkJudge,
        latest: Latest,
        witness: Witness,
    ) -> "HeldNetwork":
        """Serve one sandbox; what was `served` is taken over."""
        helpers = Helpers(self._outside, SyntheticNames(self._key), self._records, self._questions)
        wall = Wall(served, listen, judge, latest, witness, helpers)
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
        for pool in (self._records, self._questions):
            pool.shutdown(wait=False, cancel_futures=True)
        self._loop.close()


_ours: "weakref.WeakSet[WallThread]" = weakref.WeakSet()


def _forget_all() -> None:
    for thread in list(_ours):
        thread.forget()
        _ours.discard(thread)


os.register_at_fork(after_in_child=_forget_all)


class HeldNetwork(Struct, frozen=True):
    thread: WallThread
    wall: "Wall"

    def end(self) -> None:
        """Close everything, in at most a second or two."""
        self.thread.end(self.wall)

    def connections(self) -> Connections:
        return self.wall.connections()

    def granted_s(self) -> float:
        """Return by how much the command's time is longer, as somebody was or is asked."""
        return self.wall.granted_s

    def notices(self) -> Iterator[bytes]:
        """Yield what was refused since this was last called, as lines for who watches."""
        while self.wall.told:
            yield self.wall.told.popleft()


class Helpers(Struct, frozen=True):
    """What the walls of one thread share, but for the names, of which each has its own."""

    outside: Egress
    names: SyntheticNames
    records: ThreadPoolExecutor
    questions: ThreadPoolExecutor


class Wall:
    def __init__(
        self,
        served: ServedNetwork,
        listen: Listen,
        judge: NetworkJudge,
        latest: Latest,
        witness: Witness,
        helpers: Helpers,
    ) -> None:
        self._served = served
        self._listen = listen
        self._judge = judge
        self._latest = latest
        self._witness = witness
        self._names = helpers.names
        self._helpers = helpers
        self._questions = _nonblocking(served.questions, socket.SOCK_DGRAM)
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        self._listening: dict[str, asyncio.Task[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[socket.socket, tuple[str, int, asyncio.Task[None]]] = {}
        self._count = 0
        self._asked: dict[tuple[str, int], asyncio.Task[bool]] = {}
        self._refused: Counter[tuple[str, int, str]] = Counter()
        self._more_refused = 0
        self._is_ended = False
        self.told: deque[bytes] = deque()
        self.granted_s = 0.0
        self._asking = 0
        self._asked_until_s = 0.0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._questions.fileno(), self._take_questions)
        for network, ports in self._judge.literals():
            address = str(network.network_address) if network.prefixlen == 32 else "0.0.0.0"  # noqa: S104 - in the sandbox's own network
            await self._serve_at(address, ports)

    def connections(self) -> Connections:
        refused = tuple(RefusedConnection(*key, count) for key, count in self._refused.items())
        return Connections(self._count, refused, self._more_refused)

    async def end(self) -> None:
        """Close listeners first: what nobody accepted is dropped; what was decided is delivered."""
        self._is_ended = True
        loop = asyncio.get_running_loop()
        for door in (self._questions, *self._listeners.values()):
            loop.remove_reader(door.fileno())
            door.close()
        self._listeners.clear()
        serving = [task for *_, task in self._open.values()]
        if serving:
            await asyncio.wait(serving, timeout=_END_S)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._listening.values(), return_exceptions=True)
        for fd in (self._served.user, self._served.network):
            socket.close(fd)
        if self._more_refused:
            more = RefusedConnection("", 0, "further refusals", self._more_refused)
            await self._record(self._witness.refused, more)

    def forget(self) -> None:
        """In a forked child: these are the parent's, and the network would outlive its command."""
        doors = (self._questions, *self._listeners.values(), *self._open)
        for fd in (*(door.detach() for door in doors), self._served.user, self._served.network):
            with contextlib.suppress(OSError):
                os.close(fd)

    # --- names --------------------------------------------------------------------

    def _take_questions(self) -> None:
        for _ in range(_REFUSALS_MAX):
            try:
                message, sender = self._questions.recvfrom(_QUESTION_BYTES_MAX)
            except OSError:
                return
            self._start(self._answer_datagram(message, sender))

    async def _answer_datagram(self, message: bytes, sender: Any) -> None:
        reply = await self._reply(message)
        if reply and not self._is_ended:
            with contextlib.suppress(OSError):
                self._questions.sendto(reply, sender)

    async def _reply(self, message: bytes) -> bytes:
        question = read_question(message)
        if question is None:
            return b""
        if not question.name:
            return answer(question)
        ports = self._judge.ports(question.name)
        if not ports:
            self._refuse(question.name, 0, self._judge.connect(question.name, 443))
            return answer(question, is_known=False)
        if not question.wants_address:
            return answer(question)
        address = self._names.address_of(question.name)
        if address is None:
            why = "too many names"
        else:
            why = await self._listen_for(question.name, address, ports)
        if why:
            self._note(question.name, 0, why)
            return answer(question, is_known=False)
        return answer(question, address=address)

    async def _listen_for(self, name: str, address: IPv4Address, ports: tuple[int, ...]) -> str:
        """Return why nothing listens for the name; empty where something does."""
        task = self._listening.get(name)
        if task is None:
            task = asyncio.create_task(self._serve_at(str(address), ports))
            self._listening[name] = task
        return await asyncio.shield(task)

    async def _serve_at(self, address: str, ports: tuple[int, ...]) -> str:
        if len(self._listeners) + len(ports) > _LISTENERS_MAX:
            return "too many names at once"
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
        if len(self._open) >= _CONNECTIONS_MAX or self._count >= _CONNECTIONS_IN_ALL_MAX:
            self._note(host, port, "too many connections")
            reset(client)
            return
        client.setblocking(False)
        task = self._start(self._serve(client, host, port))
        self._open[client] = host, port, task
        if len(self._open) == 1:
            self._start(self._watch_policy())

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
                reach = await self._decide(host, port)
                await self._pass_on(client, host, port, reach)
            except NoWayError as refusal:
                self._note(host, port, str(refusal))
            except OSError as error:
                self._note(host, port, error.strerror or type(error).__name__)
        finally:
            self._open.pop(client, None)
            reset(client)

    async def _decide(self, host: str, port: int) -> Reach:
        reach = self._judge.connect(host, port)
        now = await self._judge_now()
        later = None if now is None else now.connect(host, port)
        if later is None or later.outcome > reach.outcome:
            reach = later or Reach(Outcome.DENY, None)
        if reach.outcome is Outcome.ALLOW:
            return reach
        if reach.outcome is Outcome.ASK:
            asked = self._asked.get((host, port))
            if asked is None:
                asked = asyncio.create_task(self._ask(host, port, reach))
                self._asked[host, port] = asked
            if await asyncio.shield(asked):
                return reach
            raise NoWayError("nobody allowed it")
        raise NoWayError(_why(reach))

    async def _judge_now(self) -> NetworkJudge | None:
        """Return what policy says by now; None where it cannot be read."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._helpers.records, self._latest)

    async def _watch_policy(self) -> None:
        """End what policy denies by now, within a second or two of the change."""
        while self._open and not self._is_ended:
            await asyncio.sleep(_LOOK_S)
            now = await self._judge_now()
            if now is self._judge:
                continue
            for host, port, task in tuple(self._open.values()):
                if now is None or now.connect(host, port).outcome is Outcome.DENY:
                    self._note(host, port, "policy does not allow it any more")
                    task.cancel()

    async def _ask(self, host: str, port: int, reach: Reach) -> bool:
        loop = asyncio.get_running_loop()
        pool = self._helpers.questions
        self._grant_until(loop.time() + _ASK_S)
        self._asking += 1
        try:
            return await loop.run_in_executor(pool, self._witness.ask, host, port, reach)
        finally:
            if self._asking == 1:
                self._grant_until(loop.time())
            self._asking -= 1

    def _grant_until(self, until_s: float) -> None:
        """Of several questions at once the time counts once."""
        before_s = self._asked_until_s if self._asking else asyncio.get_running_loop().time()
        self.granted_s += until_s - before_s
        self._asked_until_s = until_s

    async def _pass_on(self, client: socket.socket, host: str, port: int, reach: Reach) -> None:
        greeting = await _greeting_of(client, host) if port in _CLIENT_FIRST else None
        ways = await self._helpers.outside.find(host, port, reach.addresses, self._judge)
        for way in ways:
            opened = OpenedConnection(
                host, port, way.shown, greeting.name if greeting else "", _why(reach)
            )
            self._count += 1
            try:
                await self._record(self._witness.opened, opened)
            except PaddockError as error:
                raise NoWayError("it cannot be put on record") from error
            if await self._relay(client, way, opened, is_known=greeting is not None):
                return
        raise NoWayError("nothing answers there")

    async def _relay(
        self, client: socket.socket, way: Way, opened: OpenedConnection, *, is_known: bool
    ) -> bool:
        """Return whether it was connected. What it came to is on record in any case."""
        began = time.monotonic()
        looking = None if is_known else asyncio.create_task(_greeting_of(client, opened.host))
        relay, ending = None, "not connected"
        try:
            outside = await self._helpers.outside.connect(way, opened.host, opened.port)
            relay, ending = Relay(client, outside), "cut off"
            try:
                ending = await relay.run(looking)
                if ending == "closed":
                    client.close()
            finally:
                reset(outside)
        except (OSError, TimeoutError):
            return relay is not None
        finally:
            sent, received = (relay.sent.bytes, relay.received.bytes) if relay else (0, 0)
            name = opened.server_name
            if looking is not None:
                looking.cancel()
                name = await _name_of(looking)
            closed = ClosedConnection(
                opened, name, sent, received, time.monotonic() - began, ending
            )
            await asyncio.shield(self._record(self._witness.closed, closed))
        return True

    # --- what was refused -------------------------------------------------------------

    def _refuse(self, host: str, port: int, reach: Reach) -> None:
        self._note(host, port, _why(reach))

    def _note(self, host: str, port: int, why: str) -> None:
        key = (host, port, why)
        if key not in self._refused and len(self._refused) >= _REFUSALS_MAX:
            self._more_refused += 1
            return
        self._refused[key] += 1
        if self._refused[key] == 1:
            place = f"{host}:{port}" if port else host
            self.told.append(
                f"paddock: policy refused the connection to {show_name(place)}: {show_name(why)};"
                f" a person can allow it: paddock network allow {show_name(place)}\n".encode()
            )
            event = RefusedConnection(host, port, why)
            self._start(self._record(self._witness.refused, event))

    async def _record(self, keep: Callable[[Any], None], event: Any) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._helpers.records, keep, event)

    def _start(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _why(reach: Reach) -> str:
    return reach.rule.said if reach.rule is not None else "no rule allows it"


async def _greeting_of(client: socket.socket, host: str) -> Greeting:
    """Look at what the client says first, and leave it there. Raises: NoWayError, TimeoutError."""
    await until_ready(client.fileno(), is_reading=True)
    first = b""
    async with asyncio.timeout(_GREETING_S):
        while True:
            # More than was seen: else what is there already would wake us again and again.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(first) + 1)
            await until_ready(client.fileno(), is_reading=True)
            seen = client.recv(_GREETING_BYTES_MAX, socket.MSG_PEEK)
            greeting = read_greeting(seen)
            if greeting is not None or len(seen) == len(first):
                break
            first = seen
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if greeting is None and seen:
        # It says no more: a line that it did not end is whole, half a hello or head is not.
        greeting = read_greeting(seen + b"\n")
        if greeting is None:
            raise NoWayError("it began to say what it wants, and never ended")
    if greeting is None:
        return Greeting("other")
    if greeting.problem:
        raise NoWayError(greeting.problem)
    if greeting.name and greeting.name != host:
        raise NoWayError(f"it asks for {greeting.name}, which is not the name of the connection")
    return greeting


async def _name_of(looking: "asyncio.Task[Greeting]") -> str:
    try:
        return (await looking).name
    except (asyncio.CancelledError, NoWayError, OSError, TimeoutError):
        return ""


def _nonblocking(fd: int, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind, fileno=fd)
    made.setblocking(False)
    return made
