"""Serve a sandbox's network from outside it: answer DNS questions, decide and relay connections.

    a DNS question   if denied, NXDOMAIN, and it never leaves the machine; otherwise a synthetic
                     address, with listeners on the ports of the name's rules
    a connection     decided again with its port, approved if need be, resolved, judged by address,
                     recorded, connected, its first data checked, and relayed

One thread and one event loop serve all sandboxes of a shell. Nothing is resolved before the
connection is allowed, and nothing is sent before it is recorded.

Threat: all input from the sandbox is hostile: malformed, endless, slow, or excessive. So every
resource that is held for it has a limit.
"""

import asyncio
import contextlib
import os
import resource
import secrets
import shlex
import socket
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any, Final

from paddock.errors import PaddockError
from paddock.network.decisions import Decisions, NetworkTerms, rule_of
from paddock.network.egress import (
    SERVER_FAILED,
    Egress,
    EgressError,
    FaultError,
    Relay,
    reset,
    until_ready,
)
from paddock.network.names import (
    DATAGRAM_BYTES_MAX,
    FIRST_NAME_SERVER,
    HostQuestion,
    SyntheticNames,
    answer,
    read_question,
)
from paddock.network.sniff import greeting_of
from paddock.policy.network import WEB_PORTS, Reach
from paddock.text.show import show_name
from paddock.values.calls import (
    NO_RULE,
    SHOW_NETWORK,
    ClosedConnection,
    Connections,
    OpenedConnection,
    RefusedConnection,
)
from paddock.values.decisions import Action

if TYPE_CHECKING:
    from paddock.network.requests import Authority

_QUESTIONS_MAX: Final = 64
_CONNECTIONS_MAX: Final = 256
_CONNECTIONS_IN_ALL_MAX: Final = 1000
_LISTENERS_MAX: Final = 256
_REFUSALS_MAX: Final = 50
_END_S: Final = 1.0
_LISTEN_S: Final = 10.0
_PAUSE_S: Final = 1.0
_LOOK_S: Final = 0.5
_PATH_CHARS_MAX: Final = 200
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - in the sandbox's own network
_CLIENT_FIRST: Final = (80, 443)
"""Ports on which the client speaks first: its first data is checked before connecting out."""

Listen = Callable[[bytes, int], None]
"""Create sockets at `ADDRESS PORT` lines in the sandbox's network, and send them to a socket."""


class WallThread:
    """The event loop, in a separate thread that starts with the first sandbox."""

    def __init__(self, egress: Egress) -> None:
        self.owner = os.getpid()
        self.egress, self.key = egress, secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._walls: set[Wall] = set()
        self._is_closed = False
        self._records = ThreadPoolExecutor(2, "paddock-network-records")
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="paddock-network", daemon=True
        )
        self._thread.start()
        _threads.add(self)

    def hold(self, served: Sequence[int], listen: Listen, terms: NetworkTerms) -> "Wall":
        """Serve one sandbox; take ownership of the descriptors of `inside.confine.open_network`."""
        wall = Wall(self, served, listen, terms)
        with self._lock:
            self._walls.add(wall)
        self._loop.call_soon_threadsafe(wall.start)
        if literals := terms.judge.literals():
            self.call(wall.listen(literals))
        return wall

    def call(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def record(self, act: Callable[..., Any], *given: Any) -> Any:
        return await self._loop.run_in_executor(self._records, act, *given)

    def drop(self, wall: "Wall") -> None:
        with self._lock:
            self._walls.discard(wall)
            is_last = self._is_closed and not self._walls
        if is_last:
            self._stop()

    def close(self) -> None:
        """Stop when the last sandbox has ended. Call this once."""
        with self._lock:
            self._is_closed = True
            is_last = not self._walls
        if is_last:
            self._stop()

    def forget(self) -> None:
        """Close the descriptors of sandbox networks, in a forked child of the owner."""
        for wall in self._walls:
            wall.forget()

    def _stop(self) -> None:
        _threads.discard(self)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._records.shutdown(wait=False, cancel_futures=True)
        self._loop.close()


_threads: "weakref.WeakSet[WallThread]" = weakref.WeakSet()


def _forget_all() -> None:
    for thread in list(_threads):
        thread.forget()
        _threads.discard(thread)


os.register_at_fork(after_in_child=_forget_all)


class NetworkTally:
    """Counts of one command's opened and refused connections."""

    def __init__(self) -> None:
        self.opened = self.more_refused = 0
        self.refused: Counter[tuple[str, int, str, str]] = Counter()

    def note(self, *key: Any) -> bool:
        """Count a refusal (host, port, reason, remedy); return True for the first of its kind."""
        if key not in self.refused and len(self.refused) >= _REFUSALS_MAX:
            self.more_refused += 1
            return False
        self.refused[key] += 1
        return self.refused[key] == 1


class Wall:
    """The network of one sandbox. The methods up to `notices` run in the command's thread."""

    def __init__(
        self, thread: WallThread, served: Sequence[int], listen: Listen, terms: NetworkTerms
    ) -> None:
        self._thread, self._listen, self.terms = thread, listen, terms
        *self._namespaces, questions = served
        self.decisions = Decisions(terms, thread.record)
        self._questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, fileno=questions)
        self._questions.setblocking(False)
        self._answering: set[asyncio.Task[None]] = set()
        served_at = IPv4Address(self._questions.getsockname()[0])
        self._names = SyntheticNames(thread.key, part=int(served_at) - int(FIRST_NAME_SERVER))
        self._listeners: dict[tuple[str, int], socket.socket] = {}
        self._listening: dict[str, asyncio.Task[str]] = {}
        self._pending_listeners = 0
        # Threat: a command exhausts the runtime's descriptors. Each connection needs six: two
        # sockets, and a pipe in each direction.
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._connections_max = min(_CONNECTIONS_MAX, descriptors // 16)
        self._listeners_max = min(_LISTENERS_MAX, descriptors // 8)
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[socket.socket, tuple[str, int, asyncio.Task[None]]] = {}
        self._outside: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._tallies: list[NetworkTally] = []
        """One per running command; a session's share a network. The last one has the limits."""
        self._recording: set[asyncio.Task[None]] = set()
        """Records being written; the command's end waits for them."""
        self._is_ended = False
        self._notices: deque[bytes] = deque()

    def end(self) -> None:
        """Close everything, in at most a second or two."""
        self._thread.call(self._end())
        self._thread.drop(self)

    def begin(self) -> NetworkTally:
        """Start a count for a new command; `finish` must follow."""
        tally = NetworkTally()
        self._tallies.append(tally)
        return tally

    def finish(self, tally: NetworkTally) -> Connections:
        self._tallies.remove(tally)
        refused = tuple(RefusedConnection(*key, count=n) for key, n in tally.refused.items())
        if tally.more_refused:
            with contextlib.suppress(PaddockError):
                more = RefusedConnection("", 0, "further refusals", count=tally.more_refused)
                self.terms.witness.refused(more)
        return Connections(tally.opened, refused, tally.more_refused)

    def placeholders(self) -> tuple[tuple[str, str], ...]:
        return tuple((each.variable, each.placeholder) for each in self.terms.credentials)

    def notices(self) -> Iterator[bytes]:
        """Yield the refusals since the last call, as lines for the command's error stream."""
        while self._notices:
            yield self._notices.popleft()

    def forget(self) -> None:
        """In a forked child, close the parent's descriptors, which would outlive the command."""
        sockets = (self._questions, *self._listeners.values(), *self._open, *self._outside)
        for fd in (*(each.detach() for each in sockets), *self._namespaces):
            with contextlib.suppress(OSError):
                os.close(fd)

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self._questions.fileno(), self._take_question)

    async def listen(self, literals: Iterable[tuple[IPv4Network, tuple[int, ...]]]) -> None:
        # A listener on all addresses of a port excludes others on that port, so it comes first.
        for network, ports in sorted(literals, key=lambda each: each[0].prefixlen):
            is_one = network.prefixlen == 32
            await self._serve_at(str(network.network_address) if is_one else _EVERYWHERE, ports)

    async def _end(self) -> None:
        """Close listeners first: unaccepted connections are dropped, decided ones are finished."""
        self._is_ended = True
        loop = asyncio.get_running_loop()
        for own in (self._questions, *self._listeners.values()):
            loop.remove_reader(own.fileno())
            own.close()
        self._listeners.clear()
        self.decisions.withdraw()
        serving = [task for *_, task in self._open.values()]
        if serving:
            await asyncio.wait(serving, timeout=_END_S)
        left = (*self._tasks, *self._answering)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, *self._listening.values(), return_exceptions=True)
        await asyncio.gather(*self._recording)
        for fd in self._namespaces:
            socket.close(fd)

    # --- names ------------------------------------------------------------------------

    def _take_question(self) -> None:
        try:
            message, sender = self._questions.recvfrom(DATAGRAM_BYTES_MAX)
        except OSError:
            return
        question = read_question(message)
        # Threat: a flood of questions: those over the limit are dropped.
        if question is not None and len(self._answering) < _QUESTIONS_MAX:
            self._start(self._reply(question, sender), self._answering)

    async def _reply(self, question: HostQuestion, sender: Any) -> None:
        reply = answer(question, await self._find(question) if question.name else True)
        with contextlib.suppress(OSError):
            # The client may be gone, or the sandbox has ended.
            self._questions.sendto(reply, sender)

    async def _find(self, question: HostQuestion) -> IPv4Address | bool:
        """Return the name's synthetic address, or whether the name is known."""
        name = question.name
        judge = self.terms.judge
        ports = judge.ports(name)
        if not ports:
            self.note(name, 0, rule_of(judge.connect(name, 443)))
            return False
        if not question.wants_address:
            return True
        address, why = self._names.address_of(name), "too many names at once"
        if address is not None:
            listening = self._listening.get(name)
            if listening is None:
                listening = asyncio.create_task(self._serve_at(str(address), ports, WEB_PORTS))
                self._listening[name] = listening
            why = await asyncio.shield(listening)
            if not why:
                return address
            if self._listening.get(name) is listening:  # The process on its ports may end.
                del self._listening[name]
        self.note(name, 0, why)
        return False

    async def _serve_at(
        self, address: str, ports: tuple[int, ...], also: tuple[int, ...] = ()
    ) -> str:
        """Return why nothing listens at `ports`; empty if something does.

        `also` are served while there is room, to tell and record that they are refused: without a
        listener, the kernel refuses them and nobody learns why.
        """
        ports = tuple(port for port in ports if (_EVERYWHERE, port) not in self._listeners)
        needed = len(ports)
        if ports and len(self._listeners) + self._pending_listeners < self._listeners_max // 2:
            more = (port for port in also if (_EVERYWHERE, port) not in self._listeners)
            ports = tuple(dict.fromkeys((*ports, *more)))
        # Threat: many names are asked for at once, before any has its listeners.
        if len(self._listeners) + self._pending_listeners + len(ports) > self._listeners_max:
            return "too many names at once"
        self._pending_listeners += len(ports)
        try:
            return await self._listen_at(address, ports, needed) if ports else ""
        except (OSError, PaddockError):
            # The launcher has ended, or the process is out of descriptors.
            return "cannot listen for it"
        finally:
            self._pending_listeners -= len(ports)

    async def _listen_at(self, address: str, ports: tuple[int, ...], needed: int) -> str:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wanted = "\n".join(f"{address} {port}" for port in ports)
        with ours:
            with theirs:
                self._listen(wanted.encode("ascii"), theirs.fileno())
            ours.setblocking(False)
            async with asyncio.timeout(_LISTEN_S):
                await until_ready(ours.fileno(), is_reading=True)
            reply, fds, _, _ = socket.recv_fds(ours, 4096, len(ports), socket.MSG_CMSG_CLOEXEC)
        codes = [int(code) for code in reply.split()]
        if len(codes) != len(ports):
            return "the network of the sandbox is gone"
        for port, code in zip(ports, codes, strict=True):
            if code:
                continue
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fds.pop(0))
            if self._is_ended:
                listener.close()
                continue
            listener.setblocking(False)
            self._listeners[address, port] = listener
            self._watch(listener, port)
        return "a server inside the sandbox uses its ports" if all(codes[:needed]) else ""

    # --- connections ----------------------------------------------------------------

    def _watch(self, listener: socket.socket, port: int) -> None:
        if not self._is_ended:
            loop = asyncio.get_running_loop()
            loop.add_reader(listener.fileno(), self._accept, listener, port)

    def _accept(self, listener: socket.socket, port: int) -> None:
        try:
            client, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:
            # Out of descriptors: the waiting connection would wake the loop again and again.
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener.fileno())
            loop.call_later(_PAUSE_S, self._watch, listener, port)
            return
        address = IPv4Address(client.getsockname()[0])
        host = self._names.name_of(address) or str(address)
        opened = self._tallies[-1].opened if self._tallies else 0
        if len(self._open) >= self._connections_max or opened >= _CONNECTIONS_IN_ALL_MAX:
            self.note(host, port, "too many connections")
            reset(client)
            return
        client.setblocking(False)
        task = self._start(self._serve(client, host, port), self._tasks)
        self._open[client] = host, port, task
        if self._watching is None or self._watching.done():
            self._watching = self._start(self._watch_policy(), self._tasks)

    async def _serve(self, client: socket.socket, host: str, port: int) -> None:
        try:
            action = Action("net", "connect", f"{host}:{port}")
            reach = await self.decisions.decide(action, lambda judge: judge.connect(host, port))
            await self._pass_on(client, host, port, reach)
        except EgressError as refusal:
            self.note(host, port, str(refusal), refusal.remedy)
        except OSError as error:
            self.note(host, port, error.strerror or type(error).__name__, remedy="")
        finally:
            self._open.pop(client, None)
            reset(client)

    async def _watch_policy(self) -> None:
        """End connections that policy now denies, within a second or two of the change."""
        while self._open and not self._is_ended:
            await asyncio.sleep(_LOOK_S)
            now = await self.decisions.judge_now()
            for host, port, task in tuple(self._open.values()):
                if self.decisions.is_denied_by(now, host, port):
                    self.note(host, port, "policy no longer allows it")
                    task.cancel()

    async def _pass_on(self, client: socket.socket, host: str, port: int, reach: Reach) -> None:
        listed = (each.hosts for each in self.terms.credentials)
        is_judged = reach.is_judged or any((host, port) in hosts for hosts in listed)
        greeting = None
        if is_judged or port in _CLIENT_FIRST:
            greeting = await greeting_of(client, host)
        if greeting is None or not is_judged:
            name = "" if greeting is None else greeting.name
            outside, opened = await self.open(host, port, reach, name)
            await self._relay(client, outside, opened, is_known=greeting is not None)
        elif greeting.kind != "tls":
            raise EgressError("requests to this host are judged, so they must use TLS")
        elif self.terms.authority is None:
            raise EgressError("requests to this host are judged, but TLS cannot be ended here")
        else:
            await self._serve_requests(client, host, port, reach, self.terms.authority)

    async def open(
        self, host: str, port: int, reach: Reach, name: str
    ) -> tuple[socket.socket, OpenedConnection]:
        """Connect to an address of the name; record each try before it. Raises: EgressError."""
        for way in await self._thread.egress.find(
            host, port, await self.decisions.terms_for(host, port)
        ):
            shown = "via proxy" if way is None else str(way)
            opened = OpenedConnection(host, port, shown, name, rule_of(reach))
            for tally in tuple(self._tallies):
                tally.opened += 1
            try:
                await self._thread.record(self.terms.witness.opened, opened)
            except PaddockError as error:
                raise EgressError("it cannot be recorded") from error
            try:
                outside = await self._thread.egress.connect(way, host, port)
            except (OSError, TimeoutError):
                await self.close(ClosedConnection(opened, name, 0, 0, 0.0, "not connected"))
            except asyncio.CancelledError:
                await self.close(ClosedConnection(opened, name, 0, 0, 0.0, "cut off"))
                raise
            else:
                self._outside.add(outside)
                return outside, opened
        raise FaultError("the host does not answer")

    async def close(self, event: ClosedConnection) -> None:
        await asyncio.shield(self._record_after(self.terms.witness.closed, event))

    async def _record_after(self, act: Callable[..., Any], event: Any) -> None:
        """Record a past event. If the ledger fails, the call itself fails at its end."""
        with contextlib.suppress(PaddockError):
            await self._thread.record(act, event)

    async def _relay(
        self,
        client: socket.socket,
        outside: socket.socket,
        opened: OpenedConnection,
        *,
        is_known: bool,
    ) -> None:
        began, ending, relay = time.monotonic(), "cut off", Relay(client, outside)
        looking = None if is_known else asyncio.create_task(greeting_of(client, opened.host))
        try:
            ending = await relay.run(looking)
            if ending == "closed":
                client.close()
        finally:
            reset(outside)
            name = opened.server_name
            if looking is not None:
                looking.cancel()
                with contextlib.suppress(asyncio.CancelledError, EgressError, OSError):
                    name = (await looking).name
            passed, took_s = (relay.sent.bytes, relay.received.bytes), time.monotonic() - began
            await self.close(ClosedConnection(opened, name, *passed, took_s, ending))

    async def _serve_requests(
        self, client: socket.socket, host: str, port: int, reach: Reach, authority: "Authority"
    ) -> None:
        from paddock.network.requests import serve_requests  # noqa: PLC0415 - few hosts need it

        gate = RequestGate(self, host, port, reach)
        await serve_requests(client, host, port, gate, authority, self.terms.credentials)

    # --- what was refused -------------------------------------------------------------

    def note(self, host: str, port: int, why: str, remedy: str = SHOW_NETWORK) -> None:
        """Tell the command and record it; `remedy` as in `RefusedConnection`."""
        place = f"{host}:{port}" if port else host
        if why == NO_RULE:
            remedy = self.terms.witness.remedy.format(shlex.quote(place))
        # A refusal between two commands of a session belongs to neither.
        is_first = [tally.note(host, port, why, remedy) for tally in tuple(self._tallies)]
        if is_first and is_first[-1]:
            did = f"policy refused the connection to {show_name(place)}"
            if not remedy:
                did = f"policy allows the connection to {show_name(place)}, but it failed"
            text = f"paddock: {did}: {show_name(why)}"
            if remedy not in ("", SHOW_NETWORK):
                text += f"; a person can allow it: {show_name(remedy)}"
            self._notices.append(f"{text}\n".encode())
            event = RefusedConnection(host, port, why, remedy)
            self.record_later(self.terms.witness.refused, event)

    def record_later(self, act: Callable[..., Any], event: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._record_after(act, event))
        self._recording.add(task)
        task.add_done_callback(self._recorded)

    def _recorded(self, task: asyncio.Task[None]) -> None:
        # A fault stays, and the command's end raises it.
        if not task.cancelled() and task.exception() is None:
            self._recording.discard(task)

    @staticmethod
    def _start(
        what: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(what)
        among.add(task)
        task.add_done_callback(among.discard)
        return task


class RequestGate:
    """The wall's interface for one connection whose requests are judged."""

    def __init__(self, wall: Wall, host: str, port: int, reach: Reach) -> None:
        self._wall, self._host, self._port, self._reach = wall, host, port, reach
        self._opened: OpenedConnection | None = None
        self._began = 0.0

    async def judge(self, method: str, target: str) -> str:
        """Return "" if the request is allowed, else the rule that refuses it."""
        wall, host, port = self._wall, self._host, self._port
        path = target.partition("?")[0]
        action = Action("net", "request", f"{method} {host}:{port}{path}")
        try:
            if not self._reach.is_judged:
                raise EgressError("a credential names this host, but no rule allows its requests")
            await wall.decisions.decide(
                action, lambda judge: judge.request(method, host, port, target)
            )
        except EgressError as refusal:
            wall.note(host, port, f"{method} {path[:_PATH_CHARS_MAX]}: {refusal}")
            return str(refusal)
        return ""

    async def dial(self) -> socket.socket | str:
        """Return a connected non-blocking socket, already recorded; otherwise why not."""
        host, port = self._host, self._port
        try:
            outside, self._opened = await self._wall.open(host, port, self._reach, host)
        except EgressError as refusal:
            self._wall.note(host, port, str(refusal), refusal.remedy)
            return str(refusal)
        self._began = time.monotonic()
        return outside

    def closed(self, sent: int, received: int) -> None:
        """Record the end of the last dialled connection, with its byte counts."""
        if self._opened is not None:
            took_s = time.monotonic() - self._began
            event = ClosedConnection(self._opened, self._host, sent, received, took_s, "closed")
            self._wall.record_later(self._wall.terms.witness.closed, event)

    def refused(self, code: str, said: str) -> None:
        """Record a request that failed, or was refused without a rule."""
        remedy = "" if code == SERVER_FAILED else SHOW_NETWORK
        self._wall.note(self._host, self._port, f"{code}: {said}", remedy)
