"""G1: package → spec → framework resolves in the registries.

Proves: every installed package names a spec that is registered, that spec names a framework
that is registered, and the package names the same one. Each row that this rests on was
brought by an installed package and stands as that brought it, under the id that it holds.
Every row of both registries loads.

Cannot prove: that a package does what its spec says.
"""

from paddock.gates.ground import NOTHING_INSTALLED, Ground
from paddock.gates.names import G1
from paddock.gates.results import GateResult
from paddock.gates.tally import Tally
from paddock.packages.installed import FRAMEWORKS, SPECS, file_problem
from paddock.packages.manifest import Manifest, manifest_path
from paddock.text.show import quote


def check(ground: Ground) -> GateResult:
    tally = Tally(G1)
    tally.fail(ground.deviations)
    tally.fail(ground.registries.problems)
    packages = ground.installed.packages.values()
    for package in packages:
        tally.look(manifest_path(package.package_id), _chain_problem(package.manifest, ground))
    specs = {package.manifest.spec_id for package in packages}
    for spec_id in sorted(specs & ground.registries.specs.keys()):
        path = spec_path(spec_id)
        tally.look(path, row_problem(path, ground))
    frameworks = {package.manifest.framework_id for package in packages}
    for framework_id in sorted(frameworks & ground.registries.frameworks.keys()):
        path = framework_path(framework_id)
        tally.look(path, row_problem(path, ground))
    return tally.result(NOTHING_INSTALLED)


def _chain_problem(manifest: Manifest, ground: Ground) -> str:
    spec = ground.registries.specs.get(manifest.spec_id)
    if spec is None:
        return f"its spec {quote(manifest.spec_id)} is not registered"
    if spec.framework_id != manifest.framework_id:
        return (
            f"it names the framework {quote(manifest.framework_id)}, and its spec"
            f" {quote(manifest.spec_id)} names {quote(spec.framework_id)}"
        )
    if spec.framework_id not in ground.registries.frameworks:
        return f"the framework {quote(spec.framework_id)} is not registered"
    return ""


def row_problem(path: str, ground: Ground) -> str:
    """What is wrong with a registry's row as a file; empty where a package vouches for it.

    Threat: a row that nobody brought makes anything resolve.
    """
    owner = ground.installed.owner_of(path)
    if owner is None:
        return "no installed package brought this row"
    return file_problem(owner, path, ground.tools.workspace)


def spec_path(spec_id: str) -> str:
    return f"{SPECS}/{spec_id}.json"


def framework_path(framework_id: str) -> str:
    return f"{FRAMEWORKS}/{framework_id}.json"
