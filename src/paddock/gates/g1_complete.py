"""G1-COMPLETE: every spec that a framework expects exists and points back.

Proves: of every registered framework, and of every framework that an installed package
names, each expected spec is registered and names that framework; and each of these rows was
brought by an installed package and stands as that brought it.

Cannot prove: that some package implements an expected spec, nor that a framework expects all
that it should. A spec which no framework expects is no failure: G1 sees that it resolves.
"""

from paddock.gates.g1 import framework_path, row_problem, spec_path
from paddock.gates.ground import Ground
from paddock.gates.names import G1_COMPLETE
from paddock.gates.results import GateResult
from paddock.gates.tally import Tally
from paddock.packages.installed import Framework
from paddock.text.show import quote


def check(ground: Ground) -> GateResult:
    tally = Tally(G1_COMPLETE)
    tally.fail(ground.deviations)
    tally.fail(ground.registries.problems)
    frameworks = ground.registries.frameworks
    named = {package.manifest.framework_id for package in ground.installed.packages.values()}
    for framework_id in sorted(named - frameworks.keys()):
        tally.look(framework_path(framework_id), "it is named by a package, and not registered")
    for framework_id, framework in sorted(frameworks.items()):
        path = framework_path(framework_id)
        tally.look(path, row_problem(path, ground))
        for spec_id in framework.specs:
            tally.look(spec_path(spec_id), _expected_problem(framework, spec_id, ground))
    return tally.result("no framework is registered, and no package names one")


def _expected_problem(framework: Framework, spec_id: str, ground: Ground) -> str:
    spec = ground.registries.specs.get(spec_id)
    if spec is None:
        return f"{quote(framework.framework_id)} expects this spec, and it is not registered"
    if spec.framework_id != framework.framework_id:
        return (
            f"{quote(framework.framework_id)} expects this spec, and it points to"
            f" {quote(spec.framework_id)}"
        )
    return row_problem(spec_path(spec_id), ground)
