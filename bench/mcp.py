"""The MCP server over stdio: quick calls beside a slow one, and a round trip beside a raw loop.

    python bench/mcp.py [SECONDS_OF_THE_SLOW_CALL]

Quick calls are `view` of a small file, ledger and its sync included; 31 are in flight at
all times, each worker sending its next when the last is answered. The slow call is a
command that sleeps. It is started and cancelled in turns, so that what else the machine
does falls on both sides. Prints the p99 of quick calls alone, beside the slow call, and
the ratio (must: 2). Then `ping`, one at a time and 32 in flight, beside a loop of our own that
reads and writes JSON and nothing else; and what a start costs.
"""

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from raw_client import RawClient

PADDOCK = [sys.executable, "-c", "from paddock.apps.cli.main import console; console()"]
RAW = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}), flush=True)
"""
QUICK = 31
ROUNDS = 20
SLOW_S = 30
TURNS = 6
MUST = 2.0
ROUND_TRIPS = 500


def quick_calls(client: RawClient, seconds: float | None) -> list[float]:
    """The latencies of quick calls, 31 in flight: so many rounds, or for so long."""
    taken: list[float] = []

    def work() -> None:
        left = ROUNDS
        while left if seconds is None else time.perf_counter() < until:
            left -= 1
            began = time.perf_counter()
            client.call("view", {"path": "README.md"})
            taken.append(time.perf_counter() - began)

    until = time.perf_counter() + (seconds or 0.0)
    workers = [threading.Thread(target=work) for _ in range(QUICK)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return taken


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def beside_slow(client: RawClient, slow_s: float) -> tuple[list[float], list[float]]:
    """The latencies of quick calls alone, and beside a slow one, in turns."""
    turn_s = slow_s / TURNS
    slow = {"command": f"sleep {slow_s:g}", "timeout": 120}
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(TURNS):
        alone += quick_calls(client, turn_s)
        running = client.begin("tools/call", {"name": "run_shell", "arguments": slow})
        beside += quick_calls(client, turn_s)
        if not running.answer.empty():
            raise SystemExit(f"the slow call ended early: {running.answer.get()}")
        client.cancel(running)
    return alone, beside


def round_trips(client: RawClient) -> tuple[float, float]:
    """Microseconds of one ping alone (median), and of one of 32 in flight."""
    alone: list[float] = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        client.ask("ping", {})
        alone.append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(ROUND_TRIPS // 32):
        for begun in [client.begin("ping", {}) for _ in range(32)]:
            begun.answer.get()
    together = (time.perf_counter() - began) / (ROUND_TRIPS // 32 * 32)
    return statistics.median(alone) * 1e6, together * 1e6


def start_s(command: list[str], directory: Path, variables: dict[str, str]) -> float:
    """From the start of the process to its first answer."""
    began = time.perf_counter()
    with RawClient(command, directory, variables):
        return time.perf_counter() - began


def main() -> None:
    slow_s = float(sys.argv[1]) if len(sys.argv) > 1 else SLOW_S
    with tempfile.TemporaryDirectory() as base:
        home, project = Path(base, "home"), Path(base, "project")
        home.mkdir()
        (project / ".git").mkdir(parents=True)
        (project / "README.md").write_text("hello\n")
        policy = '[profiles.standard]\nallow = ["tool:*"]\n[mcp]\ncalls_max = 32\n'
        (project / "paddock.toml").write_text(policy)
        variables = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
        trust = [*PADDOCK, "trust", "--yes"]
        subprocess.run(trust, cwd=project, env=variables, check=True, capture_output=True)
        server = [*PADDOCK, "mcp"]
        with RawClient(server, project, variables) as client:
            quick_calls(client, None)
            alone, beside = map(p99, beside_slow(client, slow_s))
            again = p99(quick_calls(client, None))
            ratio = beside / alone
            print(f"31 quick calls, p99: alone {alone * 1e3:.1f} ms, beside a call of", end=" ")
            print(f"{slow_s:g} s {beside * 1e3:.1f} ms ({ratio:.2f}, must {MUST:g});", end=" ")
            print(f"a burst of {QUICK * ROUNDS} {again * 1e3:.1f} ms")
            ours = round_trips(client)
        raw = [sys.executable, "-c", RAW]
        with RawClient(raw, project, variables) as client:
            floor = round_trips(client)
        for name, one, other in zip(("alone", "of 32"), ours, floor, strict=True):
            print(f"ping {name}: {one:.0f} us, raw loop {other:.0f} us ({one / other:.1f})")
        ours_s = statistics.median(start_s(server, project, variables) for _ in range(5))
        raw_s = statistics.median(start_s(raw, project, variables) for _ in range(5))
        print(
            f"start to first answer: {ours_s * 1e3:.0f} ms, raw loop {raw_s * 1e3:.0f} ms", end=""
        )
        print(f" ({ours_s / raw_s:.1f})")
    if ratio > MUST:
        raise SystemExit("quick calls wait for the slow one")


if __name__ == "__main__":
    main()
