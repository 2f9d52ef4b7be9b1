"""The port by which the shell tools run commands, and the shell of a workspace that has none."""

from typing import Final, Protocol

from paddock.errors import SandboxUnavailableError
from paddock.sandbox.outcome import CommandLine, HeldLine, OnOutput, PreparedLine, ShellOutcome
from paddock.values.cancelling import Cancel


class Shell(Protocol):
    """Commands of one agent on one workspace, held to its policy.

    Raises, each method that acts: SandboxUnavailableError (nothing has changed),
    StorageFullError, HostError, IntegrityError.
    """

    def prepare(self, line: CommandLine) -> PreparedLine:
        """Plan one line: what it would be held to, and by which backend. Nothing runs."""
        ...

    def asks_about_diff(self, prepared: PreparedLine) -> bool:
        """Whether a question about it is a question about what it would change."""
        ...

    def run(
        self, prepared: PreparedLine, cancel: Cancel, on_output: OnOutput | None = None
    ) -> ShellOutcome:
        """Run it and keep what policy allows of what it changed."""
        ...

    def stage(
        self, prepared: PreparedLine, cancel: Cancel, on_output: OnOutput | None = None
    ) -> HeldLine:
        """Run it and hold back what it changed, to be closed or committed."""
        ...

    def keep(self, content: bytes) -> str:
        """Keep bytes in the history that are too long for a result; their digest."""
        ...


class NoShell:
    """Of a workspace that was opened without one."""

    def prepare(self, line: CommandLine) -> PreparedLine:
        """Raises: SandboxUnavailableError."""
        raise _no_shell()

    def asks_about_diff(self, prepared: PreparedLine) -> bool:
        """There is nothing to ask about."""
        return False

    def run(
        self, prepared: PreparedLine, cancel: Cancel, on_output: OnOutput | None = None
    ) -> ShellOutcome:
        """Raises: SandboxUnavailableError."""
        raise _no_shell()

    def stage(
        self, prepared: PreparedLine, cancel: Cancel, on_output: OnOutput | None = None
    ) -> HeldLine:
        """Raises: SandboxUnavailableError."""
        raise _no_shell()

    def keep(self, content: bytes) -> str:
        """Raises: SandboxUnavailableError."""
        raise _no_shell()


def _no_shell() -> SandboxUnavailableError:
    return SandboxUnavailableError(
        "this workspace was opened without a shell", hint="do it with the other tools"
    )


NO_SHELL: Final[Shell] = NoShell()
