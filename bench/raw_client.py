"""A client of MCP servers over stdio that costs little enough to measure with."""

import json
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class ServerFailed(Exception):
    """The server ended, or said that it could not."""


class Begun(Struct, frozen=True, dict=True):
    """A request that was sent."""

    number: int
    answer: "queue.SimpleQueue[Any]"


class RawClient:
    """JSON-RPC over a process's streams; cheap enough to measure with."""

    def __init__(self, command: list[str], directory: Path, variables: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        self._next = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.ask("initialize", HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Close its input, and wait until it has ended."""
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> None:
        for line in self._process.stdout:
            message = json.loads(line)
            if "id" in message:
                self._waiting.pop(message["id"]).put(message)
        for answer in self._waiting.values():
            answer.put({"error": "the server ended"})

    def _send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message) + "\n"
        with self._lock:
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def begin(self, method: str, params: dict[str, Any]) -> "Begun":
        """Send a request; its answer comes into the queue."""
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            self._next += 1
            number = self._next
        self._waiting[number] = answer
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return Begun(number, answer)

    def cancel(self, begun: "Begun") -> None:
        """Say that nobody waits for the answer."""
        params = {"requestId": begun.number}
        self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """One request and its answer."""
        answer = self.begin(method, params).answer.get()
        if "error" in answer:
            raise ServerFailed(f"{method}: {answer['error']}")
        return answer["result"]

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """One tool call that has to work."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise ServerFailed(f"{tool}: {result['content']}")
        return result
