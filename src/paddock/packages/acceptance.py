"""The port by which a package's acceptance commands run.

They run after the swap, in the plane's root, in the sandbox of the shell tools, and change
nothing: what such a command writes is thrown away.
"""

from dataclasses import dataclass
from typing import Protocol

from paddock.errors import SandboxUnavailableError
from paddock.packages.manifest import Acceptance
from paddock.text.show import quote
from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class AcceptanceResult:
    """What one command came to."""

    command: str
    passed: bool
    """It exited by itself, with 0."""
    exit_code: int
    output: str
    """The end of what it printed, within `limits.acceptance_output_chars_max`; a cut is said."""
    duration_s: float

    def as_json(self) -> dict[str, Json]:
        """Without its output, which may hold anything."""
        return {
            "command": self.command,
            "passed": self.passed,
            "exit_code": self.exit_code,
            "duration_ms": round(self.duration_s * 1000),
        }


class AcceptanceRunner(Protocol):
    """Runs commands on the plane."""

    def run(self, acceptance: Acceptance) -> AcceptanceResult:
        """Run one command, to its end or its time-out.

        Raises: SandboxUnavailableError: this host cannot confine it, so it does not run.
        """
        ...


class NoAcceptance:
    """Of a plane that was opened without a sandbox."""

    def run(self, acceptance: Acceptance) -> AcceptanceResult:
        """Raises: SandboxUnavailableError."""
        raise SandboxUnavailableError(
            f"the acceptance command {quote(acceptance.command)} cannot run without a sandbox",
            hint="paddock doctor says what this host lacks for one",
        )
