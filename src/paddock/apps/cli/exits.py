"""What a command ends with: one table for what is raised and for what a call is refused with."""

from typing import Final

from paddock.errors import (
    TOOL_ERRORS,
    ConfigError,
    HostError,
    IntegrityError,
    LedgerBusyError,
    LedgerFullError,
    LedgerUnknownError,
    PaddockError,
    SandboxUnavailableError,
    StorageFullError,
    ToolError,
    UsageError,
)
from paddock.values.calls import Refusal

EXIT_DONE: Final = 0
EXIT_NO: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 3
EXIT_INTEGRITY: Final = 4
EXIT_HOST: Final = 5
EXIT_DEFECT: Final = 70
EXIT_SIGNAL: Final = 128
"""And the number of the signal that ended a command: as a shell reports it."""
EXIT_INTERRUPTED: Final = 130
"""As a shell reports a command that SIGINT ended."""
EXIT_NOT_READ: Final = 141
"""As a shell reports a command that SIGPIPE ended."""

_EXITS: Final[tuple[tuple[type[PaddockError], int], ...]] = (
    (UsageError, EXIT_USAGE),
    (ConfigError, EXIT_CONFIG),
    (IntegrityError, EXIT_INTEGRITY),
    (HostError, EXIT_HOST),
    (LedgerBusyError, EXIT_HOST),
    (LedgerFullError, EXIT_HOST),
    # The call ran: "no" would say that it did not.
    (LedgerUnknownError, EXIT_HOST),
    (SandboxUnavailableError, EXIT_HOST),
    (StorageFullError, EXIT_HOST),
    (ToolError, EXIT_NO),
)


def exit_of_error(kind: type[PaddockError]) -> int:
    """The exit status of a command that an error of this class ended."""
    return next((status for each, status in _EXITS if issubclass(kind, each)), EXIT_DEFECT)


def exit_of_call(refusal: Refusal | None) -> int:
    """The exit status of a command that made one call: as if its refusal had been raised."""
    if refusal is None:
        return EXIT_DONE
    return exit_of_error(TOOL_ERRORS.get(refusal.code, ToolError))
