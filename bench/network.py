"""What the network wall costs, beside the same connection of a command on the host's network.

    python bench/network.py [--rounds 200] [--stream-mb 1000]

    set-up    connect, send a byte, have it back, close: how much longer, at the median. Must: 2 ms
    stream    one long download over the same without the wall. Must: 0.6 of its speed
    held      256 connections at once, each answered. Must: all
    start     `true` where policy lets something connect, over `true` with a loopback alone: how
              much longer, at the median. Must: 0.5 ms

Both sides are commands in the sandbox, taken in turns; the server is on this machine's loopback.
"""

import argparse
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from msgspec.structs import replace

from paddock.network.decisions import NetworkTerms
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.network import NetworkJudge
from paddock.sandbox.conversation import UNOBSERVED, Observed
from paddock.sandbox.values import CommandEnd
from paddock.values.decisions import Agent
from tests.support.networks import Seen, leading
from tests.support.sandboxes import PYTHON, Room, a_room, complained, said

SETUP_MUST_MS = 2.0
STREAM_MUST = 0.6
START_MUST_MS = 0.5
HELD = 256
TURNS = 5
STARTS = 40
NAME = "server.example.org"
PIECE = bytes(262_144)

CONNECT = """
import socket, statistics, sys, time
host, port, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
address = socket.gethostbyname(host)
took = []
for _ in range(rounds):
    began = time.perf_counter()
    made = socket.create_connection((address, port))
    made.sendall(b"\\0"); made.recv(1); made.close()
    took.append(time.perf_counter() - began)
print(statistics.median(took) * 1000)
"""
STREAM = """
import socket, sys, time
made = socket.create_connection((sys.argv[1], int(sys.argv[2])))
count = int(sys.argv[3])
began = time.perf_counter()
made.sendall(b"\\1%d\\n" % count)
into, left = bytearray(262144), count
while left:
    left -= made.recv_into(into)
print(count / (time.perf_counter() - began) / 1e6)
"""
HOLD = """
import socket, sys
made = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
for each in made: each.sendall(b"\\0")
print(sum(each.recv(1) == b"\\0" for each in made))
"""


def serve(door: socket.socket) -> None:
    while True:
        client, _ = door.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(client,), daemon=True).start()


def answer(client: socket.socket) -> None:
    with client, client.makefile("rb") as words:
        while what := words.read(1):
            if what == b"\0":
                client.sendall(what)
                continue
            left = int(words.readline())
            while left:
                left -= client.send(PIECE[:left])


class Bench:
    def __init__(self, room: Room, port: int) -> None:
        rule = (
            f'[[profiles.bench.rules]]\naction = "tool:net:connect {NAME}:{port}"\n'
            'outcome = "allow"\naddresses = ["127.0.0.0/8"]\n'
        )
        policy = load_policy(PolicySource("bench.toml", rule.encode()))
        judge = NetworkJudge(policy, (Agent("bench", "bench"),), None)
        self.room = room
        self.port = port
        self.walled = Observed(network=NetworkTerms(judge, lambda: judge, Seen()))

    def run(self, network: str, *argv: str) -> CommandEnd:
        observed = self.walled if network == "policy" else UNOBSERVED
        request = self.room.request(*argv, timeout_s=300)
        request = replace(request, plan=replace(request.plan, network=network))
        with self.room.launcher.open_stage(request.plan, self.room.fd) as stage:
            return self.room.launcher.run(request, stage, observed)

    def figure(self, network: str, code: str, count: int) -> float:
        host = NAME if network == "policy" else "127.0.0.1"
        end = self.run(network, PYTHON, "-c", code, host, str(self.port), str(count))
        if end.exit_code:
            sys.exit(complained(end))
        return float(said(end))

    def start_ms(self, network: str) -> float:
        # The one before has a sandbox made ahead for this one.
        self.run(network, "/bin/true")
        time.sleep(0.02)
        began = time.perf_counter()
        self.run(network, "/bin/true")
        return (time.perf_counter() - began) * 1000


def say(row: str, figure: str, must: float, is_kept: bool) -> None:
    print(f"{row:30} {figure:40} must {must:g}  {'kept' if is_kept else 'BROKEN'}")


def compare(bench: Bench, code: str, count: int) -> list[tuple[float, float]]:
    return [
        (bench.figure("policy", code, count), bench.figure("host", code, count))
        for _ in range(TURNS)
    ]


def medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    walled, bare = zip(*pairs, strict=True)
    return statistics.median(walled), statistics.median(bare)


def measure(bench: Bench, rounds: int, stream_bytes: int) -> None:
    pairs = compare(bench, CONNECT, rounds)
    more = statistics.median(walled - bare for walled, bare in pairs)
    walled, bare = medians(pairs)
    shown = f"{more:7.2f}  ({walled:.2f} against {bare:.2f} ms)"
    say("set-up, ms more than direct", shown, SETUP_MUST_MS, more <= SETUP_MUST_MS)
    pairs = compare(bench, STREAM, stream_bytes)
    share = statistics.median(walled / bare for walled, bare in pairs)
    walled, bare = medians(pairs)
    shown = f"{share:7.2f}  ({walled:.0f} against {bare:.0f} MB/s)"
    say("stream, share of direct", shown, STREAM_MUST, share >= STREAM_MUST)
    held = bench.figure("policy", HOLD, HELD)
    say("held at once", f"{held:7.0f}", HELD, held == HELD)
    pairs = [(bench.start_ms("policy"), bench.start_ms("loopback")) for _ in range(STARTS)]
    more = statistics.median(walled - bare for walled, bare in pairs)
    walled, bare = medians(pairs)
    shown = f"{more:7.2f}  ({walled:.2f} against {bare:.2f} ms)"
    say("start, ms more than a loopback", shown, START_MUST_MS, more <= START_MUST_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--stream-mb", type=int, default=1000)
    arguments = parser.parse_args()
    door = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = door.getsockname()[1]
    # A process of its own: a server's time is not to be the wall's.
    server = os.fork()
    if server == 0:
        serve(door)
    door.close()
    try:
        with (
            tempfile.TemporaryDirectory() as home,
            a_room(Path(home), leading({NAME: "127.0.0.1"})) as room,
        ):
            measure(Bench(room, port), arguments.rounds, arguments.stream_mb * 1_000_000)
    finally:
        os.kill(server, signal.SIGKILL)


if __name__ == "__main__":
    main()
