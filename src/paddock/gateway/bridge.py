"""Run in a server's sandbox in place of a server that is reached by HTTP: lines to requests.

So whatever holds for a process holds for a URL: one network wall, one record, one wire. It is read
as text and handed to the sandbox's own Python, and knows nothing of Paddock.
"""

import json
import sys
import threading
import urllib.error
import urllib.request

URL = sys.argv[1]
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
        **SESSION,
    }
    version = meta.get("io.modelcontextprotocol/protocolVersion")
    if version:
        found["MCP-Protocol-Version"] = version
        found["Mcp-Method"] = message.get("method", "")
        name = params.get("name") or params.get("uri")
        if name:
            found["Mcp-Name"] = name
    return found


def hear(response) -> None:
    """Hand on what an answer holds: one message, or a stream of them."""
    if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
        content = response.read()
        if content.strip():
            say(content)
        return
    data = []
    for line in response:
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            data.append(text[5:].strip())
        elif not text and data:
            say(b"\n".join(data))
            data = []


def send(message: dict) -> None:
    request = urllib.request.Request(URL, json.dumps(message).encode(), headers_of(message))
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            if message.get("method") == "initialize":
                remember(response)
            hear(response)
    except urllib.error.HTTPError as error:
        answer(message, error.read(), f"HTTP status {error.code}")
    except OSError as error:
        answer(message, b"", str(error))


def remember(response) -> None:
    session = response.headers.get("Mcp-Session-Id")
    if session:
        SESSION["Mcp-Session-Id"] = session
        threading.Thread(target=listen, daemon=True).start()


def listen() -> None:
    """Hear what the server says by itself, where it has a stream for that."""
    request = urllib.request.Request(URL, headers={"Accept": "text/event-stream", **SESSION})
    try:
        with urllib.request.urlopen(request) as response:
            hear(response)
    except OSError:
        return


def answer(message: dict, content: bytes, why: str) -> None:
    if "id" not in message or "method" not in message:
        return
    try:
        said = json.loads(content)
    except ValueError:
        said = {}
    if not isinstance(said, dict) or "error" not in said:
        said = {"error": {"code": -32000, "message": why}}
    say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": said["error"]}).encode())


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            # Its answer has the session that all others belong to.
            send(message)
        else:
            threading.Thread(target=send, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
