"""New entries of every ledger, and what waits, to each page that is open: server-sent events.

One thread a ledger follows its tail, whatever the number of pages. The event loop hands on: a
page that reads too slowly is let go, and begins anew.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from paddock import limits
from paddock.apps.web.desk import Desk, HttpRefusal, error_json, refused, row_json
from paddock.assembly.approvals import open_inbox
from paddock.errors import PaddockError
from paddock.ledger.query import Filter, query
from paddock.ledger.read import follow, stands
from paddock.plane.layout import LedgerName
from paddock.text.json import compact_json
from paddock.values.calls import Json

_POLL_S: Final = 0.05
_INBOX_POLL_S: Final = 0.25
_ALIVE_S: Final = 15
_NEW_ENTRIES_MAX: Final = 1_000
"""Of a ledger that was made after us: so many of its first entries are sent."""


class Hub:
    """Owned by the event loop's thread, but for what says otherwise."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._queues: set[asyncio.Queue[bytes | None]] = set()
        self._threads: list[threading.Thread] = []
        self._seen: dict[str, Json] = {}
        self._damaged: dict[str, bytes] = {}
        self._waiting = _event("inbox", {"waiting": []})

    def start(self) -> None:
        """Return once each ledger is followed from its end."""
        self._loop = asyncio.get_running_loop()
        ready: list[threading.Event] = []
        for name, path in self._desk.ledgers().items():
            ready.append(threading.Event())
            self._run(self._follow, name, path, ready[-1])
        self._run(self._watch_inbox)
        for each in ready:
            each.wait()

    def stop(self) -> None:
        """End every stream. From any thread, and from a signal's handler."""
        self._ended.set()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._send, None)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One page's stream, until either side ends it."""
        if len(self._queues) >= limits.web_streams_max:
            said = f"{limits.web_streams_max} streams are open, and no more are served"
            error = HttpRefusal(503, "web.streams", said, "close a page")
            await refused(error)(scope, receive, send)
            return
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(limits.web_stream_events_max)
        self._queues.add(queue)
        gone = asyncio.ensure_future(_wait_gone(receive))
        try:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            first = [_event("hello", {"seen": dict(self._seen)}), self._waiting]
            await _send_part(send, b"".join((*first, *self._damaged.values())))
            await self._hand_on(queue, gone, send)
        finally:
            self._queues.discard(queue)
            gone.cancel()

    async def _hand_on(
        self, queue: asyncio.Queue[bytes | None], gone: "asyncio.Future[None]", send: Send
    ) -> None:
        while queue in self._queues and not self._ended.is_set():
            event = asyncio.ensure_future(queue.get())
            await asyncio.wait({event, gone}, timeout=_ALIVE_S, return_when="FIRST_COMPLETED")
            if gone.done():
                event.cancel()
                return
            found = event.result() if event.done() else b": \n\n"
            event.cancel()
            if found is None:
                break
            await _send_part(send, found)
        await send({"type": "http.response.body", "body": b""})

    def _send(self, event: bytes | None) -> None:
        for queue in [*self._queues]:
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self._queues.discard(queue)

    def _run(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, name="paddock-web", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _post(self, work: Callable[..., None], *given: object) -> None:
        if self._loop is not None and not self._ended.is_set():
            self._loop.call_soon_threadsafe(work, *given)

    def _follow(self, name: LedgerName, path: Path, ready: threading.Event) -> None:
        """In a thread of its own."""

        def poll() -> bool:
            ready.set()
            return not self._ended.wait(_POLL_S)

        try:
            before = query(str(path), Filter(), last=1).entries if stands(path) else ()
            if before:
                self._post(self._seen.__setitem__, name.value, before[-1].seq + 1)
            while not stands(path):
                if not poll():
                    return
            seen = before[-1].seq if before else -1
            last = 1 if before else _NEW_ENTRIES_MAX
            for stored in follow(str(path), last=last, poll=poll):
                if stored.seq > seen:
                    event = _event("entry", row_json(name.value, stored)) if self._queues else b""
                    self._post(self._publish, name.value, stored.seq, event)
        except PaddockError as error:
            damaged = _event("damaged", {"ledger": name.value, "error": error_json(error)})
            self._post(self._damage, name.value, damaged)
        finally:
            ready.set()

    def _publish(self, name: str, seq: int, event: bytes) -> None:
        self._seen[name] = seq + 1
        if event:
            self._send(event)

    def _damage(self, name: str, event: bytes) -> None:
        self._damaged[name] = event
        self._send(event)

    def _watch_inbox(self) -> None:
        """In a thread of its own. A request that does not load is told where the inbox is read."""
        before: list[str] = []
        while not self._ended.wait(_INBOX_POLL_S):
            try:
                inbox = open_inbox(self._desk.project())
                waiting = [each.id for each in inbox.list_all() if each.state == "waiting"]
            except PaddockError:
                continue
            if waiting != before:
                before = waiting
                self._post(self._put_waiting, _event("inbox", {"waiting": list[Json](waiting)}))

    def _put_waiting(self, event: bytes) -> None:
        self._waiting = event
        self._send(event)


async def _wait_gone(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


async def _send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _event(name: str, value: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), compact_json(value))
