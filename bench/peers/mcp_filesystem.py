"""The MCP filesystem server: `python mcp_filesystem.py ROOT SERVER`.

It is spoken to in its own protocol; several edits are several requests at once.
"""

import itertools
import json
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Any

from serve import Refused, serve


class Server:
    """A client of one server over its pipes."""

    def __init__(self, root: str, program: str) -> None:
        self._process = subprocess.Popen(
            [program, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()
        client = {"name": "comparison", "version": "1"}
        self.ask(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client},
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, given: dict[str, Any]) -> Any:
        """A request's result."""
        number = next(self._ids)
        answer: Future[Any] = Future()
        self._waiting[number] = answer
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": given})
        return answer.result()

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        for line in self._process.stdout:
            message = json.loads(line)
            waiting = self._waiting.pop(message.get("id"), None)
            if waiting is None:
                continue
            if "error" in message:
                waiting.set_exception(Refused(message["error"]["message"]))
            else:
                waiting.set_result(message["result"])


class Tools:
    """Its tools. It has no search of contents."""

    def __init__(self, root: str, program: str) -> None:
        self._root = root
        self._server = Server(root, program)

    def read(self, path: str, first: int = 1, count: int = 2000) -> str:
        if first == 1:
            return self._call("read_text_file", path=f"{self._root}/{path}")
        text = self._call("read_text_file", path=f"{self._root}/{path}", head=first + count - 1)
        return "\n".join(text.split("\n")[first - 1 :])

    def write(self, path: str, text: str) -> str:
        return self._call("write_file", path=f"{self._root}/{path}", content=text)

    def edit(self, path: str, old: str, new: str) -> str:
        edits = [{"oldText": old, "newText": new}]
        return self._call("edit_file", path=f"{self._root}/{path}", edits=edits)

    def find(self, pattern: str) -> str:
        return self._call("search_files", path=self._root, pattern=pattern)

    def ls(self, path: str) -> str:
        return self._call("list_directory", path=f"{self._root}/{path}")

    def _call(self, name: str, **given: Any) -> str:
        done = self._server.ask("tools/call", {"name": name, "arguments": given})
        text = "".join(part.get("text", "") for part in done["content"])
        if done.get("isError"):
            raise Refused(text)
        return text


serve(Tools(sys.argv[1], sys.argv[2]))
