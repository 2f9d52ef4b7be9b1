"""Other people's servers behind the gateway: a call beside a direct one, and one that stalls.

    python bench/mcp_gateway.py [SECONDS_A_TURN]

Both are spoken to over stdio by the same raw client. A call through the gateway is judged, and its
intent and its outcome are on record, each durable: that is told besides, as the time of two
appends. Then 32 calls in flight over six servers, alone and with one of the six stalled.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from raw_client import RawClient

PADDOCK = [sys.executable, "-c", "from paddock.apps.cli.main import console; console()"]
SERVER = """
import json, sys, time
TOOL = {"name": "say", "description": "Say.", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        said = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"}}
    elif method == "tools/list":
        said = {"tools": [TOOL]}
    elif method == "tools/call":
        while asked["params"]["arguments"].get("text") == "stall":
            time.sleep(1)
        said = {"content": [{"type": "text", "text": "x"}]}
    elif "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                          "error": {"code": -32601, "message": "unknown"}}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
"""
COMMAND = ["python3", "-c", SERVER]
NAMES = tuple(f"server-{number}" for number in range(6))
CALLS = 500
IN_FLIGHT = 32
MUST_MS = 2.0
MUST_RATIO = 2.0


def one_at_a_time(client: RawClient, tool: str) -> float:
    """Return the median of one call, in milliseconds."""
    taken: list[float] = []
    for _ in range(CALLS):
        began = time.perf_counter()
        client.call(tool, {"text": "x"})
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def in_flight(client: RawClient, names: tuple[str, ...], workers: int, turn_s: float) -> float:
    """Return the p99 of calls, so many in flight over these servers, in milliseconds."""
    taken: list[float] = []
    until = time.perf_counter() + turn_s

    def work(number: int) -> None:
        while time.perf_counter() < until:
            began = time.perf_counter()
            client.call(f"{names[number % len(names)]}__say", {"text": "x"})
            taken.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.quantiles(taken, n=100)[98] * 1e3


def appends_ms(base: Path) -> float:
    """Return what two small durable appends take here."""
    taken: list[float] = []
    with (base / "appended").open("ab", buffering=0) as file:
        for _ in range(CALLS):
            began = time.perf_counter()
            for _ in range(2):
                file.write(b"x" * 600)
                os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def main() -> None:
    turn_s = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory() as base:
        home, project = Path(base, "home"), Path(base, "project")
        home.mkdir()
        (project / ".git").mkdir(parents=True)
        policy = '[profiles.standard]\nallow = ["tool:*"]\n'
        for name in NAMES:
            policy += f"[mcp.servers.{name}]\ncommand = {json.dumps(COMMAND)}\n"
        (project / "paddock.toml").write_text(policy)
        variables = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        for arguments in (("trust", "--yes"), ("mcp", "review", "--yes")):
            command = [*PADDOCK, *arguments]
            subprocess.run(command, cwd=project, env=variables, check=True, capture_output=True)
        with RawClient(COMMAND, project, variables) as client:
            direct = one_at_a_time(client, "say")
        with RawClient([*PADDOCK, "mcp"], project, variables) as client:
            for name in NAMES:
                client.call(f"{name}__say", {"text": "x"})
            behind = one_at_a_time(client, f"{NAMES[0]}__say")
            alone = in_flight(client, NAMES[1:], IN_FLIGHT - 1, turn_s)
            client.begin("tools/call", {"name": f"{NAMES[0]}__say", "arguments": {"text": "stall"}})
            beside = in_flight(client, NAMES[1:], IN_FLIGHT - 1, turn_s)
        durable = appends_ms(Path(base))
    more = behind - direct
    print(f"one call: direct {direct:.2f} ms, behind the gateway {behind:.2f} ms", end=" ")
    print(f"(+{more:.2f} ms, of which two durable appends {durable:.2f} ms; must +{MUST_MS:g})")
    print(f"31 calls over five servers, p99: alone {alone:.1f} ms, beside a sixth that", end=" ")
    print(f"stalls {beside:.1f} ms ({beside / alone:.2f}, must {MUST_RATIO:g})")
    if beside / alone > MUST_RATIO:
        raise SystemExit("the others wait for the one that stalls")


if __name__ == "__main__":
    main()
