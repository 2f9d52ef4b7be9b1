"""A model's server on this machine: speaks both vendors' APIs, errors and broken streams too.

    with WireServer() as server:
        server.say(calls(("list_files", {"path": "."})), says("done"))
        ... ask `server.url` + "/v1" (OpenAI) or `server.url` (Anthropic) ...
        assert server.requests[0].body["model"] == "test-model"

Replies go out in the order in which they were put in; a request without one is
answered with 418, which nobody retries. The API is taken from the request's path.
"""

import json
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from msgspec import Struct, field

from tests.support.wire_words import WIRES, Said, Words


class Speak(Struct, frozen=True, dict=True):
    """A reply in the API's words, streamed where the request asks for it.

    `cut_after`: so many events, then the connection breaks. `end_after`: so many
    events, then the stream ends as if it were whole. `hold_after`: so many events,
    then nothing until the server closes.
    """

    said: Said
    cut_after: int | None = None
    end_after: int | None = None
    hold_after: int | None = None
    streams: bool = True


class Fail(Struct, frozen=True, dict=True):
    """An HTTP error in the API's words."""

    status: int
    word: str = "api_error"
    message: str = "the server says no"
    headers: tuple[tuple[str, str], ...] = ()


class FailInStream(Struct, frozen=True, dict=True):
    """The first events of a reply, then an error event."""

    said: Said
    after: int = 2
    word: str = "overloaded_error"
    message: str = "overloaded in the middle"


class Raw(Struct, frozen=True, dict=True):
    """Bytes as they are."""

    body: bytes
    content_type: str = "text/event-stream"
    status: int = 200


class Hang(Struct, frozen=True, dict=True):
    """Nothing at all until the server closes."""


class Drop(Struct, frozen=True, dict=True):
    """The connection is closed before a byte is answered."""


Reply = Speak | Fail | FailInStream | Raw | Hang | Drop


class Received(Struct, frozen=True, dict=True):
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class _State(Struct, dict=True):
    replies: deque[Reply] = field(default_factory=deque)
    requests: list[Received] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gone: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    closing: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A short reply must not wait for the client's acknowledgement.
    disable_nagle_algorithm = True

    @property
    def state(self) -> _State:
        return self.server.state

    def log_message(self, *arguments: object) -> None:
        return

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        body = json.loads(self.rfile.read(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.state.lock:
            self.state.requests.append(Received(self.path, headers, body))
            reply = self.state.replies.popleft() if self.state.replies else Fail(418)
        self.state.arrived.release()
        words = next(
            (words for words in WIRES.values() if self.path.startswith(words.path)),
            WIRES["chat"],
        )
        try:
            self._answer(reply, words, body)
        except OSError:
            self.close_connection = True
            self.state.gone.release()

    def _answer(self, reply: Reply, words: Words, body: dict) -> None:
        match reply:
            case Fail():
                content = json.dumps(words.error(reply.word, reply.message)).encode()
                self._whole(reply.status, "application/json", content, reply.headers)
            case Raw():
                self._whole(reply.status, reply.content_type, reply.body)
            case Hang():
                self._hold()
            case Drop():
                self.close_connection = True
            case FailInStream():
                events = words.events(reply.said)[: reply.after]
                error = words.error_event(reply.word, reply.message)
                self._stream([*events, error])
            case Speak() if body.get("stream") and reply.streams:
                self._speak(words.events(reply.said), reply)
            case Speak():
                content = json.dumps(words.whole(reply.said)).encode()
                self._whole(200, "application/json", content)

    def _whole(
        self, status: int, kind: str, content: bytes, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.send_response_only(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _speak(self, events: list, reply: Speak) -> None:
        if reply.cut_after is not None:
            self._stream(events[: reply.cut_after], is_whole=False)
            self.close_connection = True
        elif reply.hold_after is not None:
            self._stream(events[: reply.hold_after], is_whole=False)
            self._hold()
        else:
            self._stream(events[: reply.end_after])

    def _stream(self, events: list, *, is_whole: bool = True) -> None:
        self.send_response_only(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            head = f"event: {name}\n" if name else ""
            self._chunk(f"{head}data: {text}\n\n".encode())
        if is_whole:
            self._chunk(b"")
        self.wfile.flush()

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def _hold(self) -> None:
        """Wait until the client is gone or the server closes, whichever comes first."""
        self.wfile.flush()
        self.connection.settimeout(0.02)
        while not self.state.closing.is_set():
            try:
                if not self.connection.recv(1):
                    break
            except TimeoutError:
                continue
        self.close_connection = True
        self.state.gone.release()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64
    block_on_close = True

    def __init__(self, state: _State) -> None:
        self.state = state
        super().__init__(("127.0.0.1", 0), _Handler)


class WireServer:
    """Listens on a port of its own while its block runs."""

    def __init__(self) -> None:
        self._state = _State()
        self._server = _Server(self._state)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._state.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def requests(self) -> list[Received]:
        return self._state.requests

    @property
    def replies_left(self) -> int:
        return len(self._state.replies)

    def say(self, *said: Said) -> None:
        """Answer the next requests with these turns."""
        self.reply(*(Speak(each) for each in said))

    def reset(self) -> None:
        """Forget what was to be said and what was asked."""
        self._state.replies.clear()
        self._state.requests.clear()
        for semaphore in (self._state.arrived, self._state.gone):
            while semaphore.acquire(blocking=False):
                continue

    def reply(self, *replies: Reply) -> None:
        """Answer the next requests so."""
        self._state.replies.extend(replies)

    def wait_for_request(self, timeout_s: float = 30.0) -> None:
        """Return when the next request has come."""
        assert self._state.arrived.acquire(timeout=timeout_s), "no request came"

    def wait_for_hang_up(self, timeout_s: float = 30.0) -> None:
        """Return when a client has closed a connection on which it was being answered."""
        assert self._state.gone.acquire(timeout=timeout_s), "the client is still there"
