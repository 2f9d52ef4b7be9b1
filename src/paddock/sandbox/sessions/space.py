"""What the commands of one session share: a directory for /tmp and a network."""

import contextlib
import os
import secrets
import socket
from typing import TYPE_CHECKING

from msgspec import Struct

from paddock.sandbox.conversation import receive_served
from paddock.sandbox.inside.protocol import HOST_IDS_FIRST
from paddock.sandbox.values import SandboxPlan
from paddock.storage.atomic import host_error

if TYPE_CHECKING:
    from paddock.network.wall import Wall
    from paddock.sandbox.launcher import RunningLauncher


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
