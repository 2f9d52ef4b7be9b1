"""Installed packages as a person or a model sees them; refusals of archives and of changes.

Imports no other module of packages: every runtime loads this one, few use packages.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import cast

from msgspec import Struct, to_builtins

from paddock.errors import ConfigError, IntegrityError, UsageError
from paddock.text.show import quote
from paddock.values.calls import Json

# The exit status comes from the base class: an archive is 4, a gate is 2, ownership is 3.


class Failure(Struct, frozen=True):
    """One file, or the package itself (an empty name), and its fault."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{quote(self.file)}: {self.reason}" if self.file else self.reason


class ArchiveRefusedError(IntegrityError):
    """An archive that is not exactly what its manifest declares, or has another format."""

    code = "package.archive"

    def __init__(self, reason: str, *, file: str = "", hint: str = "") -> None:
        self.failure = Failure(file, reason)
        super().__init__(str(self.failure), hint=hint)


class GateRefusedError(UsageError):
    """A gate refused a change of the installed set, or the packing of a source."""

    code = "package.gate"

    def __init__(self, gate: str, failures: Sequence[Failure], *, hint: str = "") -> None:
        self.gate = gate
        self.failures = tuple(failures)
        super().__init__(f"{gate}: {_shown(failures)}", hint=hint or "nothing was changed")


class OwnershipRefusedError(ConfigError):
    """A file belongs to another package, or to none. Nothing changed."""

    code = "package.ownership"

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__(f"ownership: {_shown(failures)}", hint="nothing was changed")


_SHOWN_MAX = 5


def _shown(failures: Sequence[Failure]) -> str:
    shown = "; ".join(str(failure) for failure in failures[:_SHOWN_MAX])
    more = len(failures) - _SHOWN_MAX
    return f"{shown} (and {more} more)" if more > 0 else shown


class State(StrEnum):
    INSTALLED = "installed"
    """Every file is unchanged; configuration files exist."""
    CHANGED = "changed"
    """A file is missing, or has another content, type or mode."""
    CHANGING = "changing"
    DAMAGED = "damaged"
    """Its manifest or its receipt does not load."""


_SHOWN_AS = {"framework_id": "framework", "spec_id": "spec"}


class PackageRow(Struct, frozen=True, kw_only=True, rename=_SHOWN_AS):
    """One package. If it is damaged, only its id is known."""

    package_id: str
    version: str = ""
    tier: str = ""
    framework_id: str = ""
    spec_id: str = ""
    state: State
    layer: int = 0
    title: str = ""
    digest: str = ""
    installed_at: str = ""
    wo_id: str | None = None
    """The approval of its install, or a later one."""
    dev: bool = False
    failures: tuple[Failure, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return cast("dict[str, Json]", to_builtins(self))
