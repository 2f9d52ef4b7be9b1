"""Stand in for a server that is reached by HTTP, in its sandbox: turn lines into requests.

So the same network wall, record and protocol apply to a URL as to a process. The file is passed as
text to the sandbox's Python, and must not import Paddock.
"""

import base64
import contextlib
import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

URL = sys.argv[1]
HEADERS: dict[str, str] = {}
"""For every request; variables in them contain credentials' placeholders."""
ANSWER_S = 600
LOCK = threading.Lock()
SESSION: dict[str, str] = {}


def say(message: bytes) -> None:
    with LOCK:
        sys.stdout.buffer.write(message.replace(b"\n", b" ") + b"\n")
        sys.stdout.buffer.flush()


def headers_of(message: dict) -> dict[str, str]:
    params = message.get("params") or {}
    meta = params.get("_meta") or {}
    found = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **HEADERS,
        **SESSION,
    }
    version = meta.get("io.modelcontextprotocol/protocolVersion")
    if version:
        found["MCP-Protocol-Version"] = version
        found["Mcp-Method"] = message.get("method", "")
        name = params.get("name") or params.get("uri")
        if name:
            is_plain = name.isascii() and name.isprintable() and name == name.strip()
            coded = base64.b64encode(name.encode()).decode()
            found["Mcp-Name"] = name if is_plain else f"=?base64?{coded}?="
    return found


def messages(response) -> Iterator[bytes]:
    """Yield the messages of a response: one, or a stream of them."""
    if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
        content = response.read()
        if content.strip():
            yield content
        return
    data = []
    for line in response:
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            data.append(text[5:].strip())
        elif not text and any(data):
            yield b"\n".join(data)
            data = []


def send(message: dict) -> None:
    request = urllib.request.Request(URL, json.dumps(message).encode(), headers_of(message))
    why = "its answer is incomplete"
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            for content in messages(response):
                reply = json.loads(content)
                reply = reply if isinstance(reply, dict) else {}
                if reply.get("id") == message.get("id") and "method" not in reply:
                    why = ""
                    remember(message, response, reply)
                say(content)
    except urllib.error.HTTPError as error:
        if error.code == 404 and "Mcp-Session-Id" in SESSION:
            # The server was restarted: end, so that this is restarted with a new session.
            sys.stderr.write("the server no longer knows the session")
            sys.stderr.flush()
            signal.raise_signal(signal.SIGTERM)
        reply = error.read()
        is_text = error.headers.get_content_type() == "text/plain"
        more = f": {reply[:300].decode(errors='replace').strip()}" if is_text else ""
        answer(message, reply, f"HTTP status {error.code}{more}")
        why = ""
    except (OSError, ValueError) as error:
        why = why and (str(error) or type(error).__name__)
    finally:  # Also for an exception that only ends this thread.
        if why:
            answer(message, b"", why)


def remember(message: dict, response, reply: dict) -> None:
    if message.get("method") != "initialize" or "result" not in reply:
        return
    SESSION["MCP-Protocol-Version"] = reply["result"].get("protocolVersion", "")
    session = response.headers.get("Mcp-Session-Id")
    if session:
        SESSION["Mcp-Session-Id"] = session
        threading.Thread(target=listen, daemon=True).start()


def listen() -> None:
    """Pass on the server's own messages, if it has a stream for them."""
    headers = {"Accept": "text/event-stream", **HEADERS, **SESSION}
    request = urllib.request.Request(URL, headers=headers)
    try:
        with urllib.request.urlopen(request) as response:
            for content in messages(response):
                say(content)
    except OSError:
        return


def answer(message: dict, content: bytes, why: str) -> None:
    """Answer with an error, the server's own if it sent one."""
    error = {"code": -32000, "message": why}
    with contextlib.suppress(ValueError, LookupError, TypeError):
        error = json.loads(content)["error"]
    if "id" in message and "method" in message:
        say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())


def main() -> None:
    HEADERS.update(os.path.expandvars(each).split(": ", 1) for each in sys.argv[2:])
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") in ("initialize", "notifications/initialized"):
            # The first one's answer has the session for all others, and a server may answer
            # nothing else before it has the second one.
            send(message)
        else:
            threading.Thread(target=send, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
