"""Send new entries and waiting requests to each open page, as server-sent events.

One thread polls the ledgers for all pages; the event loop distributes the events. A page that
reads too slowly is disconnected, and connects again.
"""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.apps.web.record import examined
from paddock.apps.web.view import ServedPlane, damage_of, error_json, row_json
from paddock.assembly.history import open_inbox
from paddock.errors import PaddockError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, query
from paddock.ledger.read import stands
from paddock.plane.layout import LedgerName
from paddock.values.calls import Json

_POLL_S: Final = 0.05
_INBOX_POLLS: Final = 100
"""The inbox is read at least every so many polls: a request expires without an entry."""
_ALIVE_S: Final = 15
_Stamp = tuple[int, int] | None


class Hub:
    """Used only by the event loop's thread, except `_poll`, `_index` and what they call."""

    def __init__(self, plane: ServedPlane) -> None:
        self._plane = plane
        self._ended = threading.Event()
        self._queues: set[asyncio.Queue[bytes | None]] = set()
        self._stamps: dict[LedgerName, _Stamp] = {}
        self._seen: dict[LedgerName, int] = {}
        self._last: dict[str, bytes] = {}
        """The last event of each name that still applies: sent first to a new page."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Note the current end of each ledger, then start to poll."""
        self._loop = asyncio.get_running_loop()
        for name, path in self._plane.ledgers().items():
            self._read_new(name, path)
        threading.Thread(target=self._poll, name="paddock-web", daemon=True).start()
        threading.Thread(target=self._index, name="paddock-web-index", daemon=True).start()

    def stop(self) -> None:
        """End every stream. Any thread and a signal handler may call it."""
        self._ended.set()
        self._post(None, "")

    async def events(self) -> AsyncGenerator[bytes]:
        if self.is_full:
            return  # other streams began after the response's head was sent
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(limits.web_stream_events_max)
        self._queues.add(queue)
        try:
            hello = _event("hello", {"seen": {**self._seen}})
            found: bytes | None = b"".join((hello, *self._last.values()))
            while found is not None and queue in self._queues and not self._ended.is_set():
                yield found
                try:
                    found = await asyncio.wait_for(queue.get(), _ALIVE_S)
                except TimeoutError:
                    found = b": \n\n"
        finally:
            self._queues.discard(queue)

    @property
    def is_full(self) -> bool:
        return len(self._queues) >= limits.web_streams_max

    def _send(self, event: bytes | None, kept_as: str) -> None:
        if event is not None and kept_as:
            self._last[kept_as] = event
        for queue in [*self._queues]:
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self._queues.discard(queue)

    def _post(self, event: bytes | None, kept_as: str) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._send, event, kept_as)

    def _index(self) -> None:
        """Build the indexes. Until they are ready, a search reads lines, newest first."""
        for path in self._plane.ledgers().values():
            with suppress(PaddockError):  # reported where the ledger is shown
                if stands(path):
                    query(str(path), Filter(event_type=""))

    def _poll(self) -> None:
        polls, waiting = 0, list[Json]()
        examined(self._plane.site.environment.paddock_home)  # before a page asks for it
        while not self._ended.wait(_POLL_S):
            is_due = polls % _INBOX_POLLS == 0
            polls += 1
            for name, path in self._plane.ledgers().items():
                # Every question and answer is recorded there.
                is_new = self._read_new(name, path)
                is_due = is_due or (is_new and name is LedgerName.GOVERNANCE)
            if is_due and (now := self._waiting(waiting)) != waiting:
                waiting = now
                self._post(_event("inbox", {"waiting": waiting}), "inbox")

    def _read_new(self, name: LedgerName, path: Path) -> bool:
        """Post new entries; return whether the file has changed."""
        stamp = _stamp(path)
        if self._stamps.get(name) == stamp and name in self._stamps:
            return False
        is_first, self._stamps[name] = name not in self._stamps, stamp
        try:
            newest = _newest(path, 1) if stands(path) else ()
            seen, end = self._seen.get(name, 0), newest[0].seq + 1 if newest else 0
            for row in _newest(path, end - seen, end) if seen < end and not is_first else ():
                self._post(_event("entry", row_json(name, row)), "")
            self._seen[name] = end
        except PaddockError as error:
            damaged = {"ledger": name, "error": error_json(error)}
            self._post(_event("damaged", damaged), f"damaged {name}")
        return True

    def _waiting(self, before: list[Json]) -> list[Json]:
        with suppress(PaddockError):  # reported where the inbox is shown
            found = open_inbox(self._plane.project()).list_all()
            return [each.id for each in found if each.state == "waiting"]
        return before


def _stamp(path: Path) -> _Stamp:
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_size
    return None


def _newest(path: Path, last: int, before: int | None = None) -> Sequence[StoredEntry]:
    rows = query(str(path), Filter(), last=last, before=before)
    for bad in rows.bad:
        raise damage_of(bad)
    return rows.entries


def _event(name: str, value: Json) -> bytes:
    return f"event: {name}\ndata: {json.dumps(value)}\n\n".encode("ascii")
