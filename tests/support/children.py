"""Children of a test: started, killed, and what they told until they ended."""

import os
import select
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct


class Broken(AssertionError):
    """Something that must hold does not."""


class Child(Struct, frozen=True, dict=True):
    """A process that tells."""

    pid: int
    reader: int

    def end(self) -> tuple[int, bytes]:
        """Wait; how it ended, and what it told."""
        _, status = os.waitpid(self.pid, 0)
        with os.fdopen(self.reader, "rb") as told:
            return os.waitstatus_to_exitcode(status), told.read()

    def end_killed(self) -> bytes:
        """What it told until it was killed. Raises: Broken where it ended by itself."""
        code, said = self.end()
        if code != -signal.SIGKILL:
            raise Broken(f"a process ended by itself with {code}")
        return said


def start(act: Callable[[int], object]) -> Child:
    """A child that does `act` with the pipe on which it tells."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            os.close(reader)
            act(writer)
            code = 0
        except Exception:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writer)
    return Child(pid, reader)


def end_of(act: Callable[[], object]) -> int:
    """How a child that does `act` ends: 0, 9 after an exception, or minus the signal."""
    return start(lambda _: act()).end()[0]


def await_first_words(children: list[Child]) -> None:
    """Until each has told something: no life is spent on opening."""
    for child in children:
        waiting = select.poll()
        waiting.register(child.reader, select.POLLIN)
        waiting.poll(30_000)


def kill_after(children: list[Child], life_s: float) -> None:
    """Let them live so long, and kill them in this order."""
    select.select([], [], [], life_s)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
