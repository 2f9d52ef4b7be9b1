"""Why a package is not taken: by which gate, about which file, for what reason.

Whoever gives an exit status tells the two kinds apart: a gate is 2, ownership is 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.errors import ConfigError, IntegrityError, UsageError
from paddock.text.show import quote


@dataclass(frozen=True, slots=True)
class Failure:
    """One file, or the package itself (an empty name), and what is wrong with it."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{quote(self.file)}: {self.reason}" if self.file else self.reason


class ArchiveRefusedError(IntegrityError):
    """An archive that is not exactly what its manifest declares, in the one form we read."""

    code = "package.archive"

    def __init__(self, reason: str, *, file: str = "", hint: str = "") -> None:
        self.failure = Failure(file, reason)
        super().__init__(str(self.failure), hint=hint)


class GateRefusedError(UsageError):
    """A gate that stands before every change of the installed set said no. Nothing changed."""

    code = "package.gate"

    def __init__(self, gate: str, failures: Sequence[Failure], *, hint: str = "") -> None:
        self.gate = gate
        self.failures = tuple(failures)
        super().__init__(f"{gate}: {_shown(failures)}", hint=hint or "nothing was changed")


class OwnershipRefusedError(ConfigError):
    """A file is somebody else's. Nothing changed."""

    code = "package.ownership"

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__(f"ownership: {_shown(failures)}", hint="nothing was changed")


_SHOWN_MAX = 5


def _shown(failures: Sequence[Failure]) -> str:
    shown = "; ".join(str(failure) for failure in failures[:_SHOWN_MAX])
    more = len(failures) - _SHOWN_MAX
    return f"{shown} (and {more} more)" if more > 0 else shown
