"""What the commands of one session share: a directory for /tmp and a network."""

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from paddock.sandbox.conversation import receive_served
from paddock.sandbox.inside.protocol import HOST_IDS_FIRST
from paddock.sandbox.values import SandboxPlan
from paddock.storage.atomic import host_error
from paddock.values.calls import Connections

if TYPE_CHECKING:
    from paddock.network.wall import Wall
    from paddock.sandbox.launcher import RunningLauncher


class SharedWall:
    """The wall of a session's network, as one of its commands sees it: from its start on."""

    def __init__(self, wall: "Wall") -> None:
        self._wall = wall
        self._began = wall.connections()
        self._granted_s = wall.granted_s()

    def connections(self) -> Connections:
        now, began = self._wall.connections(), self._began
        refused = tuple(each for each in now.refused if each not in began.refused)
        more_refused = now.more_refused - began.more_refused
        return Connections(now.opened - began.opened, refused, more_refused)

    def placeholders(self) -> tuple[tuple[str, str], ...]:
        return self._wall.placeholders()

    def granted_s(self) -> float:
        return self._wall.granted_s() - self._granted_s

    def notices(self) -> Iterator[bytes]:
        return self._wall.notices()


class SharedSpace(Struct, eq=False):
    running: "RunningLauncher"
    name: str
    spaces: tuple[int, ...] = ()
    """User and network namespace, and the name server's socket where names are answered."""
    network: "Wall | None" = None

    def close(self) -> None:
        """Let it go; its commands have ended."""
        spaces, self.spaces = self.spaces, ()
        if self.network is not None:
            # It has taken the descriptors over.
            self.network.end()
            self.network = None
        else:
            for fd in spaces:
                os.close(fd)
        if self.running.owner == os.getpid():
            self.running.remove(self.name)


def open_space(running: "RunningLauncher", plan: SandboxPlan) -> SharedSpace:
    """Make what the commands of a session share. Raises: HostError, ConfinementError."""
    name = f"session-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as undo, host_error("a session cannot be opened"):
        os.mkdir(name, 0o700, dir_fd=running.area.fd)
        undo.callback(running.remove, name)
        if os.geteuid() == 0:
            os.chown(name, HOST_IDS_FIRST, HOST_IDS_FIRST, dir_fd=running.area.fd)
        spaces = _open_network(running, plan) if plan.network in ("loopback", "policy") else []
        undo.pop_all()
    return SharedSpace(running, name, tuple(spaces))


def _open_network(running: "RunningLauncher", plan: SandboxPlan) -> list[int]:
    is_served = plan.network == "policy"
    literals = plan.literals if is_served else ()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            said = " ".join(("share", plan.network, *literals))
            running.tell(said.encode(), [theirs.fileno()])
        return receive_served(ours, 3 if is_served else 2)
