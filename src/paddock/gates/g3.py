"""G3: the dependency graph is closed and acyclic, and no dependency came without an approval.

Proves: everything that an installed package depends on is installed, on no higher layer, and
no way leads back; what a package depends on is what the ledger said when it was installed;
and whoever brought a dependency had an approval for exactly that manifest. On a plane that
was made with `--dev` nobody asks for approvals, here either.

Cannot prove: that a package needs what it names, or names what it needs.
"""

from paddock.gates.authority import standing_problem
from paddock.gates.ground import NOTHING_INSTALLED, Ground
from paddock.gates.names import G3
from paddock.gates.results import GateResult
from paddock.gates.tally import Tally
from paddock.packages.manifest import find_graph_problems, manifest_path


def check(ground: Ground) -> GateResult:
    tally = Tally(G3)
    tally.fail(ground.deviations)
    packages = ground.installed.packages
    tally.count(len(packages))
    tally.fail(find_graph_problems({name: each.manifest for name, each in packages.items()}))
    for name in packages:
        _look_at_dependencies(name, ground, tally)
    return tally.result(NOTHING_INSTALLED)


def _look_at_dependencies(name: str, ground: Ground, tally: Tally) -> None:
    """What one package depends on, as it says and as the ledger said."""
    now = set(ground.installed.packages[name].manifest.dependencies)
    told = ground.record.packages.get(name)
    then = frozenset(() if told is None else told.dependencies)
    file = manifest_path(name)
    for needed in sorted(then - now):
        tally.look(file, f"it depended on {needed} when it was installed, and does not any more")
    for needed in sorted(now):
        if told is None or needed not in then:
            tally.look(file, f"it depends on {needed}, and did not when it was installed")
        elif ground.tools.plane_is_dev:
            tally.count(1)
        else:
            problem = standing_problem(told, ground)
            tally.look(file, f"it brought the dependency {needed}: {problem}" if problem else "")
