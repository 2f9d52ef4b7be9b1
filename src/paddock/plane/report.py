"""Where everything is: the answer of `paddock where`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.plane.discover import ProjectRoot
from paddock.plane.dual_gate import DualGate
from paddock.plane.environment import Environment
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.plane.trust import PolicyFiles
from paddock.values.calls import Json

MADE_WITH_DEV: Final = "made with --dev: nobody approves what changes this plane"


class WhereReport(Struct, frozen=True):
    root: Path
    plane: Path
    policy: tuple[Path, ...] | None
    """None where it is not known: what governs does not load."""
    ledgers: Mapping[LedgerName, Path]
    user_config: Path
    gate: DualGate | None = None
    made_with_dev: bool = False

    def as_json(self) -> dict[str, Json]:
        """`{root, plane, policy[] or null, ledgers{name: path}, user_config}`.

        Of a bare plane `dual_gate` and `made_with_dev` besides.
        """
        gate: dict[str, Json] = {}
        if self.gate is not None:
            gate = {"dual_gate": self.gate.as_json(), "made_with_dev": self.made_with_dev}
        return {
            "root": str(self.root),
            "plane": str(self.plane),
            "policy": None if self.policy is None else [str(path) for path in self.policy],
            "ledgers": {name: str(path) for name, path in self.ledgers.items()},
            "user_config": str(self.user_config),
            **gate,
        }


def where_report(
    root: ProjectRoot,
    layout: PlaneLayout,
    files: PolicyFiles | None,
    environment: Environment,
    gate: DualGate | None = None,
) -> WhereReport:
    return WhereReport(
        root=root.path,
        plane=layout.root,
        policy=None if files is None else files.paths(),
        ledgers=layout.ledger_paths(),
        user_config=environment.user_config,
        gate=gate,
    )
