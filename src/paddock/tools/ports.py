"""The ports by which the shell tools run commands, and tell what a file held before."""

from typing import TYPE_CHECKING, Protocol

from paddock.errors import SandboxUnavailableError
from paddock.sandbox.values import CommandWatch, HeldLine, PreparedLine, ShellLine, ShellOutcome
from paddock.tools.spec import Ports

if TYPE_CHECKING:
    from paddock.sandbox.sessions.process import Process
    from paddock.sandbox.sessions.sessions import Sessions


class Shell(Protocol):
    """Commands of one agent on one workspace, held to its policy.

    Raises, each method that acts: SandboxUnavailableError (nothing has changed),
    StorageFullError, HostError, IntegrityError.
    """

    def prepare(self, line: ShellLine) -> PreparedLine:
        """Plan one line: what it would be held to, and by which backend. Nothing runs."""
        ...

    def asks_about_diff(self, prepared: PreparedLine) -> bool:
        """Whether a question about it is a question about what it would change."""
        ...

    def run(self, prepared: PreparedLine, watch: CommandWatch) -> ShellOutcome:
        """Run it and keep what policy allows of what it changed."""
        ...

    def stage(self, prepared: PreparedLine, watch: CommandWatch) -> HeldLine:
        """Run it and hold back what it changed, to be closed or committed."""
        ...

    def start(self, prepared: PreparedLine, watch: CommandWatch) -> "Process":
        """Start it in the background, in its session."""
        ...

    def lasting(self) -> "Sessions":
        """Return its sessions and what goes on in the background."""
        ...

    def keep(self, content: bytes) -> str:
        """Keep bytes in the history that are too long for a result; their digest."""
        ...


def shell_of(ports: Ports) -> Shell:
    """Return the shell. Raises: SandboxUnavailableError: there is none."""
    if ports.shell is None:
        raise SandboxUnavailableError(
            "this workspace was opened without a shell", hint="do it with the other tools"
        )
    return ports.shell()


class Earlier(Protocol):
    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        """What stood at this very path, workspace-relative, at that version.

        None where nobody knows that it stood there, where it is not kept (any more), and
        where it is larger than `bytes_max`. Never raises: it is asked in a refusal.
        """
        ...
