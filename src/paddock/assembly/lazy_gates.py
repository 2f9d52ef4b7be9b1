"""Gates, for those who open a plane for something else: loaded when they are asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from paddock.assembly.project import Project
from paddock.values.decisions import PlaneKind

if TYPE_CHECKING:
    from paddock.gates.results import GateResult, Gates


def gates_of(project: Project, agent: str) -> "Gates | None":
    """The port by which tools ask for gates; a project's plane has none."""
    return LazyGates(project, agent) if project.layout.kind is PlaneKind.BARE else None


class LazyGates(Struct, frozen=True):
    project: Project
    agent: str

    def check(self, names: Sequence[str]) -> "tuple[GateResult, ...]":
        from paddock.assembly.gates import check_gates_for_model  # noqa: PLC0415 - few calls ask

        return check_gates_for_model(self.project, names, self.agent).results
