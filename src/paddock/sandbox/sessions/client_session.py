"""Let the commands of one client's session meet, each of which runs in a process of its own.

A background command listens on a socket in the session's directory. A command that starts asks
there for the network namespace, and serves it for itself. So no command depends on another: the
namespace lasts as long as any of them, and each has its own decisions, records and names in it.

    join               answered with the user and the network namespace, where there is one to share
    changed, PATH …    the view of the background command shows the new entries at these paths

Threat: a stale file, or a pid that was reused, is taken for a running command. Only the kernel is
believed: it refuses a message to a socket whose process has ended. Another user cannot write in the
directory, and no sandbox sees it.
"""

import contextlib
import fcntl
import os
import secrets
import socket
import stat
import threading
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Final

from paddock.errors import HostError, PathError
from paddock.sandbox.sessions.process import LiveView
from paddock.storage.atomic import held_open, host_error, make_directories
from paddock.storage.disk import DIRECTORY
from paddock.storage.locks import wait_for_lock
from paddock.text.show import quote
from paddock.values.entries import digest_of_json

_JOIN: Final = b"join"
_CHANGED: Final = b"changed"
_MESSAGE_BYTES_MAX: Final = 131_072
"""Longer lists of changes are not shown: sockets take no longer message (socket(7), wmem)."""
_ANSWER_S: Final = 2.0
_START_S: Final = 10.0
_BEGIN_S: Final = 60.0
_GRACE_S: Final = 0.7
"""Between SIGTERM and SIGKILL. Claude Code kills us 1.5 seconds after its SIGTERM, and the changes
have to be committed by then."""
_KILLED: Final = "a background command was killed: its changes since it began were discarded"
_ALONE: Final = "a background command has a network of its own: its ports cannot be reached"
_SILENT: Final = "a background command does not answer: its ports cannot be reached"


class ClientSession:
    """The session, for the process of one of its commands."""

    def __init__(
        self, directory: Path, who: tuple[str, str], *, is_background: bool, lock: int = -1
    ) -> None:
        """`directory` is created by the first background command, whose process may have locked it.

        Threat: an agent of another kind, with a stricter policy, uses what this one may reach. Only
        commands of the same agent and kind (`who`) share a network.
        """
        self._directory, self._lock = directory, lock
        self._prefix = digest_of_json([*who])[-16:]
        self.is_background = is_background
        self.hints: list[str] = []
        """Notes for the command's user about others of the session."""
        self.is_stopped = False
        """It did not end when it was asked to, and was killed."""
        self._name = ""
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._spaces: list[int] = []
        self._view: LiveView | None = None
        self._begun = threading.Event()
        self._ended = threading.Event()

    @contextlib.contextmanager
    def meet(self) -> Generator[tuple[int, ...]]:
        """Yield the namespaces to join, none if no background command shares one.

        Two background commands do so in turn: the second one finds what the first one offers.
        Raises: HostError.
        """
        with contextlib.ExitStack() as held, host_error("cannot look for background commands"):
            joined: tuple[int, ...] = ()
            # There is none before the first one, and after the last one.
            with contextlib.suppress(FileNotFoundError):
                joined = self._find(held.enter_context(self._opened()))
            for fd in joined:
                held.callback(os.close, fd)
            yield joined
            self.release()

    def release(self) -> None:
        """Release the lock with which this process was started."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def offer(self, spaces: Sequence[int]) -> None:
        """In a background command, within `meet`: be found by others. Raises: HostError."""
        if not self.is_background:
            return
        with host_error("cannot offer a network to other commands"), self._opened() as directory:
            self._spaces = [os.dup(fd) for fd in spaces]
            self._name = f"{self._prefix}-{secrets.token_hex(8)}"
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.bind(_place(directory, self._name))
        self._thread = threading.Thread(target=self._serve, args=(self._socket,), daemon=True)
        self._thread.start()

    def tell(self, paths: Iterable[str]) -> None:
        """Have the session's background commands shown these absolute paths, as they are now."""
        message = b"\0".join((_CHANGED, *map(os.fsencode, paths)))
        is_sent = len(_CHANGED) < len(message) <= _MESSAGE_BYTES_MAX
        if not is_sent or not self._directory.is_dir():
            return
        with contextlib.suppress(OSError, HostError), self._opened() as directory:
            for name in os.listdir(directory):
                # It has ended, or does not listen: then it does not see the changes.
                with contextlib.suppress(OSError):
                    _send(directory, name, message)

    # --- the background command ---------------------------------------------------------

    def show(self, view: LiveView) -> None:
        self._view = view

    def begin(self) -> None:
        """Note that the command was sent into its sandbox."""
        self._begun.set()

    def stop(self) -> bool:
        """Terminate it, then kill it; its changes count. Return False if it has not begun."""
        if self._view is None or not self._begun.is_set():
            return False
        self._view.ask_to_end()
        if not self._ended.wait(_GRACE_S):
            self.is_stopped = True
            self._view.end()
        return True

    def close(self) -> None:
        """The command has ended: be found no more."""
        self._ended.set()
        self._begun.set()
        if self._socket is None:
            return
        self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()
        self._socket.close()
        for fd in self._spaces:
            os.close(fd)
        with contextlib.suppress(OSError, HostError), self._opened() as directory:
            os.unlink(self._name, dir_fd=directory)
            # Not while another one starts there; it stays if others are in it.
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rmdir(self._directory)

    def _serve(self, served: socket.socket) -> None:
        while not self._ended.is_set():
            message, fds, _, _ = socket.recv_fds(
                served, _MESSAGE_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC
            )
            kind, *paths = message.split(b"\0")
            for fd in fds:
                self._answer(fd)
            view = self._view
            if kind == _CHANGED and self._begun.wait(_BEGIN_S) and view is not None:
                view.update(_inside(view, map(os.fsdecode, paths)))

    def _answer(self, fd: int) -> None:
        try:
            reply = socket.socket(fileno=fd)
        except OSError:
            # Threat: something else than a socket.
            os.close(fd)
            return
        with reply, contextlib.suppress(OSError):
            reply.setblocking(False)
            socket.send_fds(reply, [_JOIN], self._spaces)

    # --- the directory --------------------------------------------------------------------

    @contextlib.contextmanager
    def _opened(self) -> Generator[int]:
        if self.is_background:
            make_directories(self._directory)
        with held_open(os.open(self._directory, DIRECTORY)) as directory:
            found = os.fstat(directory)
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise HostError(
                    f"the directory {quote(str(self._directory))} is open to other users",
                    hint="remove it",
                )
            yield directory

    def _await_turn(self, directory: int) -> None:
        """Wait until no background command is starting; one that does not go on, for a time."""
        kind = fcntl.LOCK_EX if self.is_background else fcntl.LOCK_SH
        if not wait_for_lock(directory, kind, _START_S):
            self.hints.append(_SILENT)

    def _find(self, directory: int) -> tuple[int, ...]:
        if self._lock < 0:
            self._await_turn(directory)
        names = [each for each in os.listdir(directory) if each.startswith(self._prefix)]
        is_alone = False
        for name in sorted(names):
            try:
                spaces = _ask(directory, name)
            except TimeoutError:
                self.hints.append(_SILENT)
            except ConnectionRefusedError:
                # Its process was killed: others remove their sockets. One command says so.
                with contextlib.suppress(FileNotFoundError):
                    if stat.S_ISSOCK(os.stat(name, dir_fd=directory).st_mode):
                        os.unlink(name, dir_fd=directory)
                        self.hints.append(_KILLED)
            except OSError:
                # It has ended since, or somebody put something else there.
                continue
            else:
                if spaces:
                    return spaces
                is_alone = True
        self.hints += [_ALONE] * is_alone
        return ()


def _inside(view: LiveView, paths: Iterable[str]) -> set[str]:
    """Return these paths of the workspace, links above them resolved, and a link's target."""
    found: set[str] = set()
    for path in paths:
        with contextlib.suppress(PathError):
            given = view.place.workspace.resolve_read(path)
            # Threat: behind a link, the sandbox's own could lead elsewhere.
            is_direct = given.asked.parent == given.real.parent
            found |= {each.relative for each in (given.real, *[given.asked] * is_direct)}
    return found - {"."}


def _ask(directory: int, name: str) -> tuple[int, ...]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            _send(directory, name, _JOIN, theirs.fileno())
        ours.settimeout(_ANSWER_S)
        _, fds, _, _ = socket.recv_fds(ours, len(_JOIN), 2, socket.MSG_CMSG_CLOEXEC)
    return tuple(fds)


def _send(directory: int, name: str, message: bytes, *fds: int) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        # Threat: a process that was stopped takes no messages, and the queue is full.
        sock.settimeout(_ANSWER_S)
        sock.connect(_place(directory, name))
        socket.send_fds(sock, [message], fds)


def _place(directory: int, name: str) -> str:
    """Return an address of a few bytes: the path may be longer than unix(7) takes."""
    return f"/proc/self/fd/{directory}/{name}"
