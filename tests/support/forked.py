"""Programs of this tree in processes of their own, without the second that importing them takes.

A first process imports what the programs need and waits. Each program is a fork of it, with the
arguments, environment, directory and streams that it is given: a process like any other, but for
the import. A test about how a program starts, or about what it loads, starts the program itself.
"""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

CONSOLE = "from paddock.apps.cli.main import console; console()"
"""The `paddock` program, as `python -c` runs it."""
READY = (
    "tests.support.admin_program",
    "paddock.apps.admin.command",
    "paddock.apps.admin.opening",
    "paddock.apps.admin.rich_drawing",
    "paddock.apps.admin.terminal",
    "paddock.apps.mcp.server",
    "paddock.policy.commands",
)


@dataclass
class Forked:
    """A program that was started: what tests use of `subprocess.Popen`."""

    pid: int
    told: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """How it ended. Raises: subprocess.TimeoutExpired."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self.told], [], [], timeout)[0]:
            self.returncode = int(_line(self.told))
            os.close(self.told)
        return self.returncode


def start(
    code: str,
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    *,
    env: Mapping[str, str],
    cwd: Path,
    on_terminal: bool = False,
) -> Forked:
    """A process that does what `python -c CODE ARGUMENTS` does, with these streams.

    On a terminal it is the one that a hang-up, and Ctrl-C, are for.
    """
    asked = {
        "code": code,
        "arguments": list(arguments),
        "env": dict(env),
        "cwd": str(cwd),
        "on_terminal": on_terminal,
    }
    told, telling = os.pipe()
    try:
        socket.send_fds(_first(), [json.dumps(asked).encode()], [*streams, telling])
    finally:
        os.close(telling)
    return Forked(int(_line(told)), told)


def run(
    code: str, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Such a process until its end: its status, and what it wrote."""
    stdin, giving = os.pipe()
    reading_out, stdout = os.pipe()
    reading_err, stderr = os.pipe()
    process = start(code, arguments, (stdin, stdout, stderr), env=env, cwd=cwd)
    for descriptor in (stdin, stdout, stderr):
        os.close(descriptor)
    with ThreadPoolExecutor(3) as pool:
        written = [pool.submit(_everything, each) for each in (reading_out, reading_err)]
        pool.submit(_give, giving, given)
    status = process.wait()
    return subprocess.CompletedProcess(
        [code, *arguments], status, *(each.result() for each in written)
    )


def _give(descriptor: int, given: bytes) -> None:
    with suppress(BrokenPipeError), open(descriptor, "wb") as file:
        file.write(given)


def _everything(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


@functools.cache
def _first() -> socket.socket:
    """The first process of this one, which lives as long; by the socket on which it is asked."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
            cwd=Path(__file__).parents[2],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _line(descriptor: int) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(descriptor, 1)
        if not read:
            raise AssertionError("the process that programs are forked from is gone")
        line += read
    return line


# --- the first process --------------------------------------------------------


def _serve(asking: socket.socket) -> None:
    """Fork what is asked for, and tell how each ended; a fork comes back from here to be run."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([asking, *running], [], [])[0]:
            if ready is not asking:
                pid, telling = running.pop(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _tell(telling, status)
                os.close(telling)
                os.close(ready)
                continue
            message, descriptors, _, _ = socket.recv_fds(asking, 1_000_000, 4)
            if not message:
                os._exit(0)  # the tests are over
            *streams, telling = descriptors
            pid = os.fork()
            if pid == 0:
                for descriptor in (telling, *running, *(each for _, each in running.values())):
                    os.close(descriptor)
                asking.close()
                _become(json.loads(message), streams)
            for descriptor in streams:
                os.close(descriptor)
            running[os.pidfd_open(pid)] = pid, telling
            _tell(telling, pid)


def _tell(telling: int, number: int) -> None:
    with suppress(BrokenPipeError):  # its test may be over
        os.write(telling, f"{number}\n".encode())


def _become(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    """Be the program; what it raises, an exit too, ends this process as it would end any other."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if asked["on_terminal"]:
        import fcntl
        import termios

        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["-c", *asked["arguments"]]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding="utf-8", errors=errors, buffering=1 if lines else -1)
        for number, errors, lines in ((1, "strict", os.isatty(1)), (2, "backslashreplace", True))
    )
    exec(compile(asked["code"], "<string>", "exec"), {"__name__": "__main__"})
    sys.exit()


if __name__ == "__main__":
    import gc
    import importlib

    from paddock.policy.presets import presets

    for name in READY:
        importlib.import_module(name)
    presets()
    gc.freeze()  # what all forks share is not looked at, and so not copied
    _serve(socket.socket(fileno=int(sys.argv[1])))
