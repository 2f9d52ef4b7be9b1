"""Running gates: one or all, each by itself, and what stops one makes it fail."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from paddock.errors import ConfigError, HostError, IntegrityError, ToolError
from paddock.gates import g0b, g1, g1_complete, g2, g3, g4, g4_last, g5, g6
from paddock.gates.g0a import NO_ARCHIVE
from paddock.gates.ground import Ground, failure_of
from paddock.gates.names import G0A, G0B, G1, G1_COMPLETE, G2, G3, G4, G5, G6
from paddock.gates.results import GateResult, Status, not_applicable

Check = Callable[[Ground], GateResult]


def _no_archive(ground: Ground) -> GateResult:
    del ground
    return not_applicable(G0A, NO_ARCHIVE)


CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        G0A: _no_archive,
        G0B: g0b.check,
        G1: g1.check,
        G1_COMPLETE: g1_complete.check,
        G2: g2.check,
        G3: g3.check,
        G4: g4.check,
        G5: g5.check,
        G6: g6.check,
    }
)

CHECKS_FOR_MODELS: Final[Mapping[str, Check]] = MappingProxyType({**CHECKS, G4: g4_last.report})


def run_gates(
    names: Sequence[str], checks: Mapping[str, Check], ground: Ground
) -> tuple[GateResult, ...]:
    """These gates, in this order. Raises nothing for what stands in the plane."""
    return tuple(run_gate(name, checks[name], ground) for name in names)


def run_gate(name: str, check: Check, ground: Ground) -> GateResult:
    """One gate; what cannot be read makes it fail."""
    ground.tools.watcher.begins(name, "")
    try:
        return check(ground)
    except (ConfigError, IntegrityError, HostError, ToolError) as error:
        return GateResult(name, Status.FAIL, 1, (failure_of(error, ground.layout.root),))
