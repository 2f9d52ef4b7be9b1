"""G4: each package's declared acceptance tests run and pass.

Proves: every acceptance command of every installed package, as it was installed, ran just
now in the plane's root, in the sandbox of the shell tools, within its own time-out (300 s at
most), and exited with 0. What it writes is thrown away. A command that cannot be confined
here does not run, and that is a failure.

Cannot prove: that the commands test much; a package that declares none is not tested at all.
"""

from paddock.errors import SandboxUnavailableError
from paddock.gates.ground import Ground
from paddock.gates.names import G4
from paddock.gates.results import GateResult
from paddock.gates.tally import Tally
from paddock.packages.acceptance import AcceptanceResult
from paddock.packages.manifest import Acceptance
from paddock.packages.names import manifest_path
from paddock.text.show import quote, show_name

NOTHING_DECLARED = "no installed package declares an acceptance test"


def check(ground: Ground) -> GateResult:
    """See the module. Raises: IntegrityError, HostError: it cannot be told."""
    tally = Tally(G4)
    tally.fail(ground.deviations)
    if ground.deviations:
        # Threat: a command that nobody installed would be run.
        return tally.result(NOTHING_DECLARED)
    for package in ground.installed.packages.values():
        for acceptance in package.manifest.acceptance:
            tally.look(manifest_path(package.package_id), _run(acceptance, ground))
    return tally.result(NOTHING_DECLARED)


def _run(acceptance: Acceptance, ground: Ground) -> str:
    """What is wrong with one command; empty where it passed."""
    ground.tools.watcher.begins(G4, acceptance.command)
    try:
        result = ground.tools.acceptance.run(acceptance)
    except SandboxUnavailableError as error:
        return f"{quote(acceptance.command)} did not run: {error.message}"
    return "" if result.passed else ground.without_root(_failed(result))


def _failed(result: AcceptanceResult) -> str:
    said = f": {show_name(result.output)}" if result.output else ""
    return f"{quote(result.command)} ended with {result.exit_code}{said}"
