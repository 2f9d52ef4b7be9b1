"""The launcher: a small process that creates sandboxes for one runtime, on order.

It is single-threaded, so that it can fork. Its event loop never waits for a sandbox. When it ends,
every sandbox ends: each has the read end of a pipe whose write end only the launcher has. It is
started by path, with the descriptor of a socket to the runtime and the runtime's process id.
"""

from __future__ import annotations

import _socket
import gc
import os
import select
import sys

# This file is a program: skip the package's __init__, which imports modules it does not need.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for _name, _path in (("paddock", _PACKAGE), ("paddock.sandbox", f"{_PACKAGE}/sandbox")):
    if _name not in sys.modules:
        sys.modules[_name] = type(sys)(_name)
        sys.modules[_name].__path__ = [_path]

from paddock.kernel import mounts, seccomp, syscalls  # noqa: E402 - after the path
from paddock.sandbox.inside import confine, protocol  # noqa: E402 - after the path
from paddock.sandbox.inside.confine import Layers, detach_layers  # noqa: E402 - after the path
from paddock.sandbox.inside.init import (  # noqa: E402 - after the path
    KILL_SIGNAL,
    InitProcess,
    close_all_but,
    receive,
    send,
    send_report,
)
from paddock.sandbox.inside.protocol import NOT_CONFINED, Base, CommandReport  # noqa: E402 - after the path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

_DESCRIPTORS_MAX = 10
_ORDER_BYTES_MAX = 2048
_DROP = b"drop "
_LISTEN = b"listen "
_SHARE = b"share "
_MORE_LAYERS = ("hidden", "git", "git_shown")
_STOPPING = (1, 2, 15)
_MAPS = b"0 %d %d" % (protocol.HOST_IDS_FIRST, protocol.HOST_IDS_COUNT)
_NAMESPACES = (
    mounts.NEW_USER
    | mounts.NEW_MOUNTS
    | mounts.NEW_PID
    | mounts.NEW_IPC
    | mounts.NEW_UTS
    | mounts.NEW_CGROUP
)


class Loop:
    """Event loop that owns the launcher's child processes, by pidfd."""

    def __init__(self, orders: _socket.socket, runtime: int) -> None:
        self._orders = orders
        self._runtime = os.pidfd_open(runtime)
        self._sandboxes: dict[int, int] = {}
        self._events = select.poll()
        self._later: list[tuple[set[int], int, bytes]] = []
        self._id_map = -1
        self._arguments = syscalls.find_arguments()
        self._step = b"start"
        # Nothing is ever written: a sandbox sees the end of file when the launcher is gone.
        self._life, self._life_kept = os.pipe()
        for fd in (orders.fileno(), self._runtime):
            self._events.register(fd, select.POLLIN)

    def serve(self) -> None:
        self._listen()
        os.close(self._life_kept)
        for pid in self._sandboxes.values():
            os.waitpid(pid, 0)

    def _listen(self) -> None:
        while True:
            for fd, _ in self._events.poll():
                if fd == self._runtime:
                    return
                if fd in self._sandboxes:
                    self._reap(fd)
                elif not self._handle_order():
                    return

    def _reap(self, fd: int) -> None:
        self._events.unregister(fd)
        os.waitpid(self._sandboxes.pop(fd), 0)
        os.close(fd)
        for waiting, _, _ in self._later:
            waiting.discard(fd)
        ready = [each for each in self._later if not each[0]]
        self._later = [each for each in self._later if each[0]]
        for _, area, name in ready:
            self._remove(area, name)

    def _handle_order(self) -> bool:
        content, fds = receive(self._orders, _ORDER_BYTES_MAX, _DESCRIPTORS_MAX)
        if not content:
            return False
        if content.startswith(_DROP):
            self._drop(fds[0], content[len(_DROP) :])
            return True
        if content.startswith(_LISTEN):
            wanted = content[len(_LISTEN) :]
            reply, user, network = fds
            self._run_in_child(fds, lambda: confine.listen_within(user, network, wanted, reply))
            return True
        if content.startswith(_SHARE):
            kind, *literals = content[len(_SHARE) :].split()
            reply, *joined = fds
            owner, new = (os.geteuid(), os.getegid()), mounts.NEW_USER | mounts.NEW_NETWORK

            def share() -> None:
                if joined:
                    confine.join_network(*joined)
                confine.share_network(kind, literals, reply, (0, 0) if joined else owner)

            self._run_in_child(fds, share, 0 if joined else new)
            return True
        control, order, *layers = fds
        base = Base.decode(os.pread(order, os.fstat(order).st_size, 0))
        self._step = b"stage"
        try:
            self._make(base, control, layers)
        except OSError as error:
            send_report(
                control, CommandReport(NOT_CONFINED, code=error.errno or 0, where=self._step)
            )
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _drop(self, area: int, name: bytes) -> None:
        if name.startswith(protocol.HIDDEN_PREFIX) and self._sandboxes:
            # Threat: a command that is still running would see the hidden names.
            self._later.append((set(self._sandboxes), area, name))
        else:
            self._remove(area, name)

    def _remove(self, area: int, name: bytes) -> None:
        # In a child, because the tree may be large.
        self._run_in_child([area], lambda: protocol.remove_tree(area, os.fsdecode(name)))

    def _run_in_child(self, fds: list[int], act: Callable[[], None], new: int = 0) -> None:
        """Run `act` in a child, in the `new` namespaces, and close `fds` here."""
        pid = mounts.clone_process(new)
        if pid == 0:
            try:
                # A runtime that kills the launcher removes the whole area; no child may still run.
                syscalls.set_death_signal(KILL_SIGNAL)
                os.close(self._life_kept)
                act()
            finally:
                syscalls.end_process(0)
        for fd in fds:
            os.close(fd)
        self._keep(pid)

    def _make(self, base: Base, control: int, fds: list[int]) -> None:
        workspace, area, *rest = fds
        session = tuple(rest[-2:]) if base.joins else ()
        # In the order in which they are sent; an empty name means that none is sent.
        more = {name: rest.pop(0) for name in _MORE_LAYERS if getattr(base, name)}
        as_root = os.geteuid() == 0
        name = os.path.basename(base.stage)
        stage = protocol.make_stage(area, name, workspace, more.get("git", -1), as_root=as_root)
        given = layers = Layers({"workspace": workspace, "stage": stage, **more})
        try:
            if as_root:
                if self._id_map < 0:
                    self._step = b"user namespace"
                    self._id_map = _make_id_map()
                self._step = b"identity-mapped mounts"
                layers = detach_layers(base, given, self._id_map)
            else:
                os.fchdir(workspace)
            self._step = b"user namespace"
            self._clone(base, control, layers, session, as_root=as_root)
        finally:
            os.close(stage)
            if layers is not given:
                layers.close()
            os.chdir("/")

    def _clone(
        self, base: Base, control: int, layers: Layers, session: tuple[int, ...], *, as_root: bool
    ) -> None:
        released, release = os.pipe()
        try:
            has_own = base.network != b"host" and not session
            new = _NAMESPACES | (mounts.NEW_NETWORK if has_own else 0)
            families = () if base.network == b"none" else (seccomp.AF_INET, seccomp.AF_INET6)
            program = seccomp.build_filter(families + (seccomp.AF_UNIX,) * base.sockets)
            setup = confine.Confinement(base, layers, program, released if as_root else -1)
            pid = _clone_joined(new, *session) if session else mounts.clone_process(new)
            if pid == 0:
                os.close(release)
                kept = {control, self._life, released, *layers.descriptors()}
                self._become(setup, base, control, kept)
            self._keep(pid)
            if as_root:
                mounts.write_id_maps(pid, _MAPS, _MAPS, keep_groups=True)
                os.write(release, b"!")
        finally:
            os.close(released)
            os.close(release)

    def _keep(self, pid: int) -> None:
        fd = os.pidfd_open(pid)
        self._sandboxes[fd] = pid
        self._events.register(fd, select.POLLIN)

    def _become(self, setup: confine.Confinement, base: Base, control: int, kept: set[int]) -> None:
        """Threat: an exception that escapes from here would leave a second launcher."""
        code = 1
        try:
            # Threat: the command, and so the model, could read Paddock's path on the host there.
            syscalls.clear_arguments(*self._arguments)
            close_all_but(kept)
            try:
                # Unroutable packets are counted per network, and a session shares its network.
                is_private = base.network != b"host" and not base.joins
                memory_kb = base.memory_mb * 1024
                setup.confine()
                if setup.served:
                    send(control, protocol.SERVED, *setup.served)
                close_all_but({control, self._life})
                sock = _socket.socket(fileno=control)
                InitProcess(sock, (self._life,), memory_kb, has_own_network=is_private).serve()
                code = 0
            except OSError as error:
                report = CommandReport(NOT_CONFINED, code=error.errno or 0, where=setup.step)
                send_report(control, report)
        finally:
            syscalls.end_process(code)


def _clone_joined(new: int, user: int, network: int) -> int:
    """Clone a child that starts in another network; return its pid, 0 in it. Raises: OSError.

    An intermediate process enters the network, clones the child as its sibling, and exits.
    """
    read_end, write_end = os.pipe()
    try:
        between = os.fork()
        if between == 0:
            answer, pid = b"-1", -1
            try:
                confine.join_network(user, network)
                pid = mounts.clone_process(new | mounts.SAME_PARENT)
                answer = b"%d" % pid
            except OSError as error:
                answer = b"-%d" % (error.errno or 1)
            finally:
                if pid != 0:
                    os.write(write_end, answer)
                    syscalls.end_process(0)
            return 0
        os.waitpid(between, 0)
        pid = int(os.read(read_end, 16))
    finally:
        os.close(read_end)
        os.close(write_end)
    if pid < 0:
        raise OSError(-pid, os.strerror(-pid))
    return pid


def _make_id_map() -> int:
    held, hold = os.pipe()
    pid = mounts.clone_process(mounts.NEW_USER)
    if pid == 0:
        try:
            os.close(hold)
            os.read(held, 1)
        finally:
            syscalls.end_process(0)
    try:
        mounts.write_id_maps(pid, _MAPS, _MAPS, keep_groups=True)
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(held)
        os.close(hold)
        os.waitpid(pid, 0)


def main(arguments: list[str]) -> None:
    orders, runtime = (int(argument) for argument in arguments)
    if os.getppid() == runtime:
        # Without garbage collection a child copies fewer pages.
        gc.disable()
        gc.freeze()
        # A client that stops a command sends these to all its descendants; we end with the runtime.
        # The command starts with an empty mask.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _STOPPING)
        Loop(_socket.socket(fileno=orders), runtime).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
