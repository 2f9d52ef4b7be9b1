"""The sets of tools that are compared: how each is started and asked."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field
from peers.installing import (
    HOME,
    Unavailable,
    npm_program,
    npm_version,
    package_version,
    printed_by,
    python_with,
)

HERE = Path(__file__).parent
PATIENCE_S = 10.0
START_S = 120.0


class Answer(Struct, frozen=True, dict=True):
    """What a peer said. `hung` where it said nothing in time."""

    ok: bool
    text: str = ""
    hung: bool = False


class Peer(Struct, frozen=True, dict=True):
    """One set of tools."""

    name: str
    version: str
    command: tuple[str, ...]
    """The root follows."""
    after: tuple[str, ...] = ()
    lacks: frozenset[str] = field(default_factory=frozenset)
    """Operations that it does not offer."""

    def start(self, root: Path, file_bytes_max: int | None = None) -> "Running":
        """Start it on a root; with a limit, no file of it grows beyond that."""
        return Running(self, root, file_bytes_max)


class Running:
    """A started peer."""

    def __init__(self, peer: Peer, root: Path, file_bytes_max: int | None) -> None:
        self.peer = peer
        self._home = HOME / "home"
        self._home.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [*_limited(file_bytes_max), *peer.command, str(root), *peer.after],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"HOME": str(self._home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        self._unread = b""
        self._line(START_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill it and what it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()

    def ask(self, op: str, patience_s: float = PATIENCE_S, **given: Any) -> Answer:
        """One operation; a peer that does not answer in time is killed."""
        if op in self.peer.lacks:
            return Answer(False, "not offered")
        if self.process.poll() is not None:
            return Answer(False, "it ended before", hung=True)
        self.send(op, **given)
        return self.receive(patience_s)

    def send(self, op: str, **given: Any) -> None:
        """Ask without waiting."""
        self.process.stdin.write(json.dumps({"op": op, **given}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, patience_s: float) -> Answer:
        """The next answer."""
        line = self._line(patience_s)
        if line is None:
            self.end()
            return Answer(False, "no answer", hung=True)
        if not line:
            return Answer(False, "it ended")
        told = json.loads(line)
        return Answer(told["ok"], told["text"])

    def _line(self, patience_s: float) -> bytes | None:
        """The next line with its end; empty at the end, None for nothing in time."""
        while b"\n" not in self._unread:
            if not select.select([self.process.stdout], [], [], patience_s)[0]:
                return None
            piece = os.read(self.process.stdout.fileno(), 1 << 20)
            if not piece:
                return b""
            self._unread += piece
        line, end, self._unread = self._unread.partition(b"\n")
        return line + end


def _limited(bytes_max: int | None) -> list[str]:
    """The beginning of a command line under which no file grows further: an error, no end."""
    if bytes_max is None:
        return []
    return ["sh", "-c", f"trap '' XFSZ; ulimit -f {bytes_max // 512}; exec \"$@\"", "sh"]


def gather() -> tuple[list[Peer], list[str]]:
    """Everybody who can be had, installed by name at first; who cannot, and why."""
    here, away = [_paddock()], []
    wanted = {
        "MCP filesystem server": _filesystem_server,
        "deepagents backend": _deepagents,
        "Anthropic SDK toolset": _anthropic,
    }
    for name, find in wanted.items():
        try:
            here.append(find(name))
        except Unavailable as reason:
            away.append(f"{name}: {reason}")
    return here, away


def bare_commands() -> Peer:
    """ripgrep, sed, ls and a file written in place: no set of tools, but what they all add to."""
    version = printed_by("rg", "--version").split()[1]
    command = (sys.executable, str(HERE / "bare_commands.py"))
    return Peer("bare commands", f"(ripgrep {version})", command)


def _paddock() -> Peer:
    import paddock

    command = (sys.executable, str(HERE / "paddock_tools.py"))
    return Peer("Paddock", paddock.__version__, command)


def _filesystem_server(name: str) -> Peer:
    package = "@modelcontextprotocol/server-filesystem"
    program = npm_program(package, "mcp-server-filesystem")
    return Peer(
        name,
        npm_version(package),
        (sys.executable, str(HERE / "mcp_filesystem.py")),
        (program,),
        frozenset({"grep"}),
    )


def _deepagents(name: str) -> Peer:
    python = python_with("deepagents")
    command = (python, str(HERE / "deepagents_tools.py"))
    return Peer(name, package_version(python, "deepagents"), command)


def _anthropic(name: str) -> Peer:
    python = python_with("anthropic")
    command = (python, str(HERE / "anthropic_tools.py"))
    lacks = frozenset({"ls"})
    return Peer(name, package_version(python, "anthropic"), command, lacks=lacks)
