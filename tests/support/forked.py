"""Programs of this tree in processes of their own, without the second that importing them takes.

A first process imports what the programs need and waits. Each program is a fork of it, with the
arguments, environment, directory and streams that it is given: a process like any other, but for
the import. A test about how a program starts, or about what it loads, starts the program itself.
"""

import atexit
import fcntl
import functools
import marshal
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

CONSOLE = "from paddock.apps.cli.main import console; console()"
"""The `paddock` program, as `python -c` runs it."""
WRAPPED = "import sys; from paddock.apps.hook.wrapped import main; sys.exit(main(sys.argv[1:]))"
"""What the line of a wrapped command starts: `exec.py`."""
RELAY = Path(__file__).with_name("relayed.py")
_PROGRAMS = frozenset({"paddock.apps.hook.exec", "paddock.apps.hook.launch"})
"""Modules that do their work when they are imported."""
_ABOVE = 10
"""Above every descriptor that a program is given by its number."""
Asked = tuple[list[str], dict[str, str], str, bool]
"""The name, code and arguments; the environment; the directory; is it a terminal's program?

Its streams come beside it: three, or a fourth that it has as descriptor 3; and one to tell on."""


class Forked(Struct, dict=True):
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
            self.returncode = _number(self.told)
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
    asked: Asked = (["-c", code, *arguments], dict(env), str(cwd), on_terminal)
    told, telling = os.pipe()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(str(_first()))
            socket.send_fds(asking, [marshal.dumps(asked)], [*streams, telling])
    finally:
        os.close(telling)
    return Forked(_number(told), told)


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


def command(code: str, name: str = "-c") -> list[str]:
    """The command line of such a process, for whoever starts it otherwise: see `relayed`."""
    return [sys.executable, "-I", "-S", str(RELAY), str(_first()), name, code]


def paddock_in(folder: Path) -> Path:
    """`paddock`, in a folder to be found by the PATH."""
    folder.mkdir(exist_ok=True)
    program = folder / "paddock"
    line = shlex.join(command(CONSOLE, str(Path(sys.executable).with_name("paddock"))))
    program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
    program.chmod(0o755)
    return program


def _give(descriptor: int, given: bytes) -> None:
    with suppress(BrokenPipeError), open(descriptor, "wb") as file:
        file.write(given)


def _everything(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def _number(told: int) -> int:
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(told, 1)
        if not read:
            raise AssertionError("the process that programs are forked from is gone")
        line += read
    return int(line)


@functools.cache
def _first() -> Path:
    """Where the first process is asked; it ends with this one."""
    folder = tempfile.TemporaryDirectory(prefix="paddock-forked-")
    path = Path(folder.name) / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen(64)
        # Nothing is ever written here: it ends when the other end is closed.
        ending, lasting = os.pipe()
        passed = (listening.fileno(), ending)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked", *map(str, passed)],
            cwd=Path(__file__).parents[2],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    os.close(ending)

    def end() -> None:
        os.close(lasting)
        process.wait()
        folder.cleanup()

    atexit.register(end)
    return path


# --- the first process --------------------------------------------------------


def _make_ready() -> None:
    """Import all that a program may need but for vendors' libraries; use what is read once."""
    import importlib
    import pkgutil

    import paddock
    from paddock.ledger.signing import make_key
    from paddock.policy.commands import parse_line
    from paddock.policy.engine import PolicySource, load_policy
    from paddock.policy.presets import presets

    package = pkgutil.walk_packages(paddock.__path__, "paddock.")
    names = {module.name for module in package} - _PROGRAMS
    # Each of these needs its framework.
    names = {name for name in names if not name.startswith("paddock.integrations.")}
    for name in (*sorted(names), "tests.support.admin_program", "sqlite3"):
        importlib.import_module(name)
    make_key("forked/key", bytes(32))
    parse_line("true")
    load_policy(PolicySource("paddock.toml", b'[hook]\nwarnings = "once"\n'))
    presets()


def _serve(listening: socket.socket, ending: int) -> None:
    """Fork what is asked for, and tell how each ended; a fork comes back from here to be run."""
    running: dict[int, tuple[int, int]] = {}
    waiting = select.poll()
    waiting.register(listening, select.POLLIN)
    waiting.register(ending, 0)
    while True:
        for ready, _ in waiting.poll():
            if ready == ending:
                os._exit(0)
            if ready == listening.fileno():
                asked, streams, telling = _receive(listening)
                pid = os.fork()
                if pid == 0:
                    for descriptor in (telling, ending, *running):
                        os.close(descriptor)
                    listening.close()
                    _become(asked, streams)
                for descriptor in streams:
                    os.close(descriptor)
                ended = os.pidfd_open(pid)
                running[telling] = running[ended] = (pid, telling)
                waiting.register(ended, select.POLLIN)
                waiting.register(telling, 0)
                _tell(telling, pid)
            elif ready in running:
                pid, telling = running[ready]
                if ready == telling:  # nobody waits for it any more
                    waiting.unregister(telling)
                    os.kill(pid, signal.SIGKILL)
                    continue
                _tell(telling, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                for descriptor in (ready, telling):
                    with suppress(KeyError):
                        waiting.unregister(descriptor)
                    del running[descriptor]
                    os.close(descriptor)


def _receive(listening: socket.socket) -> tuple[Asked, list[int], int]:
    asking, _ = listening.accept()
    with asking:
        message, descriptors, _, _ = socket.recv_fds(asking, 1_000_000, 5)
    *streams, telling = descriptors
    return marshal.loads(message), streams, telling


def _tell(telling: int, number: int) -> None:
    with suppress(BrokenPipeError):  # its test may be over
        os.write(telling, f"{number}\n".encode())


def _become(asked: Asked, streams: list[int]) -> NoReturn:
    """Be the program; what it raises, an exit too, ends this process as it would end any other."""
    (name, code, *arguments), environment, directory, on_terminal = asked
    # First out of the way: one may have the number that another is to have.
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _ABOVE) for descriptor in streams]
    for descriptor in streams:
        os.close(descriptor)
    for number, descriptor in enumerate(above):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.setsid()
    if on_terminal:
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [name, *arguments]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding="utf-8", errors=errors, buffering=1 if lines else -1)
        for number, errors, lines in ((1, "strict", os.isatty(1)), (2, "backslashreplace", True))
    )
    try:
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        sys.exit()
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            _Ending.status = ended.code or 0
        raise


class _Ending:
    """What the interpreter does last is left out: it would write to all that a fork shares."""

    status: int | None = None

    @classmethod
    def come(cls) -> None:
        if cls.status is not None:
            try:
                sys.stdout.flush()
            except (OSError, ValueError):
                cls.status = 120
            os._exit(cls.status)


if __name__ == "__main__":
    import gc

    atexit.register(_Ending.come)
    _make_ready()
    gc.freeze()  # what all forks share is not looked at, and so not copied
    first, last = map(int, sys.argv[1:])
    _serve(socket.socket(fileno=first), last)
