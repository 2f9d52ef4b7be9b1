"""G4: each package's declared acceptance tests run and pass.

Proves: every acceptance command of every installed package, as it was installed, ran just
now in the plane's root, in the sandbox of the shell tools, within its own time-out (300 s at
most), and exited with 0; and that the files of the package which the command names are the
ones that it brought. What it writes is thrown away. A command that cannot be confined
here does not run, and that is a failure.

Cannot prove: that the commands test much; a package that declares none is not tested at all.
"""

from collections.abc import Iterator

from paddock.errors import SandboxUnavailableError
from paddock.gates.ground import Ground
from paddock.gates.names import G4
from paddock.gates.results import GateResult
from paddock.gates.tally import Tally
from paddock.packages.installed import InstalledPackage, file_problem
from paddock.packages.manifest import Acceptance, manifest_path
from paddock.packages.rows import Failure
from paddock.packages.transaction import AcceptanceResult
from paddock.text.show import quote, show_name

NOTHING_DECLARED = "no installed package declares an acceptance test"


def check(ground: Ground) -> GateResult:
    tally = Tally(G4)
    tally.fail(ground.deviations)
    if ground.deviations:
        # Threat: a command that nobody installed would be run.
        return tally.result(NOTHING_DECLARED)
    for package in ground.installed.packages.values():
        for acceptance in package.manifest.acceptance:
            tally.fail(_changed_tests(package, acceptance, ground))
            tally.look(manifest_path(package.package_id), _run(acceptance, ground))
    return tally.result(NOTHING_DECLARED)


def _changed_tests(
    package: InstalledPackage, acceptance: Acceptance, ground: Ground
) -> Iterator[Failure]:
    """The package's own files that the command names, where they are not as it brought them.

    Threat: a test that was emptied passes, and so does one that became a directory (dash).
    """
    for path in package.manifest.by_path:
        if path in acceptance.command:
            problem = file_problem(package, path, ground.tools.workspace)
            if problem:
                yield Failure(path, problem)


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
