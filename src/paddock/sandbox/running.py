"""The launcher's process, as the runtime holds it: started, asked for sandboxes, let go."""

import os
import socket
import subprocess
import threading
import weakref
from pathlib import Path
from typing import Final

from paddock.errors import HostError
from paddock.sandbox.area import StagingArea

_PROGRAM: Final = str(Path(__file__).with_name("inside") / "main.py")
_STOP_WAIT_S: Final = 10.0
_SAID_BYTES_MAX: Final = 2000


class Running:
    """One launcher process with its socket and its staging area."""

    def __init__(self, staging: Path, interpreter: str) -> None:
        """Start it. Raises: HostError where it cannot be started."""
        self.area = StagingArea(staging)
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._stages = 0
        self._is_stopped = False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._said = os.open("said", flags, 0o600, dir_fd=self.area.fd)
            self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self.area.close()
            raise _no_launcher(error, interpreter) from error
        try:
            # Isolated, without site: nothing of the user's and nothing slow is loaded. Never
            # preexec_fn, which copies this whole process and may deadlock in a threaded one.
            self._process = subprocess.Popen(
                [interpreter, "-I", "-S", _PROGRAM, str(theirs.fileno()), str(self.owner)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError as error:
            self._let_go()
            raise _no_launcher(error, interpreter) from error
        finally:
            theirs.close()
        _ours.add(self)

    def is_alive(self) -> bool:
        return not self._is_stopped and self._process.poll() is None

    def make(self, fds: list[int]) -> None:
        """Have a sandbox made from the descriptors of an order and its layers.

        Its stage belongs to the caller until `drop`.

        Raises: HostError where the launcher is gone, with the last that it said.
        """
        self._tell(b"make", fds)
        with self._lock:
            self._stages += 1

    def drop(self, stage: str, hidden: tuple[str, ...]) -> None:
        """Have the directory of a sandbox that has ended removed, while nobody waits for it.

        `hidden` are its layers of whiteouts, which go with the last sandbox that uses them.
        A launcher that is gone removes nothing: then it goes with the whole area.
        In a child of the owner nothing is ours to remove.
        """
        if self.owner != os.getpid():
            return
        for name in hidden:
            self.area.let_go(name)
        for name in (stage, *self.area.take_unused()):
            try:
                self._tell(b"drop " + name.encode("ascii"), [self.area.fd])
            except HostError:
                self._process.poll()
        with self._lock:
            self._stages -= 1
            is_last = self._is_stopped and self._stages == 0
        if is_last:
            self._let_go()

    def _tell(self, what: bytes, fds: list[int]) -> None:
        try:
            socket.send_fds(self._door, [what], fds)
        except OSError as error:
            raise HostError(
                f"the launcher has ended: {os.strerror(error.errno or 0)}", hint=self.last_words()
            ) from error

    def last_words(self) -> str:
        """The end of what it wrote to its standard error: empty but for a defect."""
        size = os.fstat(self._said).st_size
        said = os.pread(self._said, _SAID_BYTES_MAX, max(0, size - _SAID_BYTES_MAX))
        return said.decode("utf-8", "replace").strip()

    def stop(self) -> None:
        """End it and every sandbox. Waits until it is gone.

        What the sandboxes left is removed when the last stage has been dropped: somebody
        may still be reading changes.
        """
        with self._lock:
            if self._is_stopped or self.owner != os.getpid():
                return
            self._is_stopped = True
            is_last = self._stages == 0
        _ours.discard(self)
        self._door.close()
        try:
            self._process.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if is_last:
            self._let_go()

    def forget(self) -> None:
        """In a child of the owner: the parent's launcher must see only the parent's end.

        Nothing is stopped and nothing removed: it is all the parent's.
        """
        self._door.close()
        # The child is not the launcher's parent: waiting for it would fail, and warn.
        self._process.returncode = 0
        self._is_stopped = True
        os.close(self._said)
        self.area.forget()

    def _let_go(self) -> None:
        self._door.close()
        os.close(self._said)
        self.area.close()


def _no_launcher(error: OSError, interpreter: str) -> HostError:
    return HostError(
        f"the launcher cannot be started: {os.strerror(error.errno or 0)}", where=interpreter
    )


_ours: "weakref.WeakSet[Running]" = weakref.WeakSet()
"""Every launcher of this process. Added to and removed from by whoever starts and stops one."""


def _forget_all() -> None:
    for running in list(_ours):
        running.forget()
        _ours.discard(running)


os.register_at_fork(after_in_child=_forget_all)
