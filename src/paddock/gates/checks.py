"""Every gate but G0B, with what it proves and what it cannot prove; running gates.

G0A checks an archive, the others check a plane. G0B is in `ownership`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from paddock import errors
from paddock.gates import ownership
from paddock.gates.evidence import (
    MADE_WITH_DEV,
    NOTHING_INSTALLED,
    GateEvidence,
    LedgerWitness,
    approval_problem,
    failure_of,
    keys_at,
    use_problem,
)
from paddock.gates.results import (
    G0A,
    G0B,
    G1,
    G1_COMPLETE,
    G2,
    G3,
    G4,
    G5,
    G6,
    GATE_KEY,
    GateResult,
    Status,
    Tally,
    not_applicable,
    read_result,
)
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import BadRow, Filter, find_decided
from paddock.ledger.verify import ChainFault, Verification
from paddock.packages.installed import FRAMEWORKS, SPECS, Framework, InstalledPackage, file_problem
from paddock.packages.ledger import LEDGER_FILE, RecordedPackage
from paddock.packages.manifest import (
    INSTALLED,
    Acceptance,
    Manifest,
    approval_file,
    find_graph_problems,
    manifest_path,
    receipt_path,
)
from paddock.packages.rows import Failure
from paddock.packages.signing import Keys, signature_problem, verify_signature
from paddock.packages.statements import find_key_problems
from paddock.pattern import lazy_pattern
from paddock.plane.layout import LedgerName
from paddock.text.show import quote
from paddock.values.entries import GATE_RESULT

NO_ARCHIVE = "it checks an archive before its install: paddock package verify ARCHIVE"


# G0A: an archive holds exactly what its manifest declares (`packages.archive.read_archive`).
#
# Proves: no extra and no missing file; every hash well formed and correct; every name safe, and no
# two of them the same file on any file system; one archive format that every reader reads in the
# same way. It runs before every install, on the bytes that are then installed.
#
# Cannot prove: who made the archive (G5), that an operator wants it (G2), or that it works (G4).


# G1: package → spec → framework resolves in the registries.
#
# Proves: every installed package names a registered spec, that spec names a registered framework,
# and the package names the same framework. An installed package brought each of these rows, the
# row is unchanged, and its file is named after its id. Every row of both registries loads.
#
# Cannot prove: that a package does what its spec says.


def check_specs(evidence: GateEvidence) -> GateResult:
    tally = Tally(G1)
    tally.fail(evidence.deviations)
    tally.fail(evidence.registries.problems)
    packages = evidence.installed.packages.values()
    for package in packages:
        tally.look(manifest_path(package.package_id), _chain_problem(package.manifest, evidence))
    manifests, registries = [each.manifest for each in packages], evidence.registries
    for place, named, rows in (
        (SPECS, {each.spec_id for each in manifests}, registries.specs),
        (FRAMEWORKS, {each.framework_id for each in manifests}, registries.frameworks),
    ):
        for path in (f"{place}/{name}.json" for name in sorted(named & rows.keys())):
            tally.look(path, row_problem(path, evidence))
    return tally.result(NOTHING_INSTALLED)


def _chain_problem(manifest: Manifest, evidence: GateEvidence) -> str:
    spec = evidence.registries.specs.get(manifest.spec_id)
    if spec is None:
        return f"its spec {quote(manifest.spec_id)} is not registered"
    if spec.framework_id != manifest.framework_id:
        return (
            f"it names the framework {quote(manifest.framework_id)}, and its spec"
            f" {quote(manifest.spec_id)} names {quote(spec.framework_id)}"
        )
    if spec.framework_id not in evidence.registries.frameworks:
        return f"the framework {quote(spec.framework_id)} is not registered"
    return ""


def row_problem(path: str, evidence: GateEvidence) -> str:
    """Threat: a planted row would make any spec or framework resolve."""
    owner = evidence.installed.owner_of(path)
    if owner is None:
        return "no installed package brought this row"
    return file_problem(owner, path, evidence.workspace)


# G1-COMPLETE: every spec that a framework expects exists and points back.
#
# Proves: for every framework that is registered or that an installed package names, each expected
# spec is registered and names that framework; and an installed package brought each of these
# rows, unchanged.
#
# Cannot prove: that a package implements an expected spec, or that a framework expects all that it
# should. A spec that no framework expects is not a failure: G1 checks that it resolves.


def check_frameworks(evidence: GateEvidence) -> GateResult:
    tally = Tally(G1_COMPLETE)
    tally.fail(evidence.deviations)
    tally.fail(evidence.registries.problems)
    frameworks = evidence.registries.frameworks
    named = {package.manifest.framework_id for package in evidence.installed.packages.values()}
    for framework_id in sorted(named - frameworks.keys()):
        tally.look(
            f"{FRAMEWORKS}/{framework_id}.json", "it is named by a package, and not registered"
        )
    for framework_id, framework in sorted(frameworks.items()):
        path = f"{FRAMEWORKS}/{framework_id}.json"
        tally.look(path, row_problem(path, evidence))
        for spec_id in framework.specs:
            tally.look(f"{SPECS}/{spec_id}.json", _expected_problem(framework, spec_id, evidence))
    return tally.result("no framework is registered, and no package names one")


def _expected_problem(framework: Framework, spec_id: str, evidence: GateEvidence) -> str:
    spec = evidence.registries.specs.get(spec_id)
    if spec is None:
        return f"{quote(framework.framework_id)} expects this spec, and it is not registered"
    if spec.framework_id != framework.framework_id:
        return (
            f"{quote(framework.framework_id)} expects this spec, and it points to"
            f" {quote(spec.framework_id)}"
        )
    return row_problem(f"{SPECS}/{spec_id}.json", evidence)


# G2: packages that changed the plane were approved.
#
# Proves: every installed package has an approval, given before or after its install. For every
# approval that was ever used, the file still exists, with an Ed25519 signature by a key of the
# plane over its exact content, for the installed digest, by the key and before the time that the
# ledger records, and it was used once. For installed packages its scope covers every file, and
# the key is still a key of the plane, or was one when the approval was used and a current operator
# has vouched for the package since. Unused approvals are signed too.
#
# Cannot prove: the scope of packages that were replaced or uninstalled since (their files are no
# longer listed), or that the holder of the key was right. G0B covers files changed without a
# package.


def check_approvals(evidence: GateEvidence) -> GateResult:
    if evidence.plane_is_dev:
        return not_applicable(G2, MADE_WITH_DEV)
    tally = Tally(G2)
    tally.fail(evidence.deviations)
    for told in evidence.record.packages.values():
        tally.look(manifest_path(told.package_id), approval_problem(told, evidence))
    _look_at_uses(evidence, tally)
    used = {use.wo_id for use in evidence.record.uses}
    for wo_id, approval in evidence.approvals.items():
        if wo_id not in used:
            tally.look(approval_file(wo_id), signature_problem(approval, evidence.keys))
    return tally.result("no package has changed this plane")


def _look_at_uses(evidence: GateEvidence, tally: Tally) -> None:
    # All keys that were ever valid: a former operator may have approved while in office.
    keys = {**evidence.vouched.known, **evidence.keys}
    times = Counter(use.wo_id for use in evidence.record.uses)
    for use in evidence.record.uses:
        file, approval = approval_file(use.wo_id), evidence.approvals.get(use.wo_id)
        if approval is None:
            why = f"{use.package_id} was installed with it (entry {use.seq})"
            tally.look(file, f"{why}, and it is missing")
        elif times[use.wo_id] > 1:
            tally.look(file, f"it was used {times[use.wo_id]} times")
        else:
            tally.look(file, use_problem(use, approval, keys))


# G3: the dependency graph is closed and acyclic, and no dependency came without an approval.
#
# Proves: every dependency of an installed package is installed, on no higher layer, and without a
# cycle; the dependencies are those that the ledger recorded at the install; and each package with
# a dependency has an approval for exactly that manifest. A plane made with `--dev` needs no
# approvals, here either.
#
# Cannot prove: that a package needs what it names, or names what it needs.


def check_dependencies(evidence: GateEvidence) -> GateResult:
    tally = Tally(G3)
    tally.fail(evidence.deviations)
    packages = evidence.installed.packages
    tally.count(len(packages))
    tally.fail(find_graph_problems({name: each.manifest for name, each in packages.items()}))
    for name in packages:
        _look_at_dependencies(name, evidence, tally)
    return tally.result(NOTHING_INSTALLED)


def _look_at_dependencies(name: str, evidence: GateEvidence, tally: Tally) -> None:
    now = set(evidence.installed.packages[name].manifest.dependencies)
    told = evidence.record.packages.get(name)
    then = frozenset(() if told is None else told.dependencies)
    file = manifest_path(name)
    for needed in sorted(then - now):
        tally.look(file, f"it depended on {needed} when it was installed, and does not any more")
    for needed in sorted(now):
        if told is None or needed not in then:
            tally.look(file, f"it depends on {needed}, and did not when it was installed")
        elif evidence.plane_is_dev:
            tally.count(1)
        else:
            problem = approval_problem(told, evidence)
            tally.look(file, f"it brought the dependency {needed}: {problem}" if problem else "")


# G4: each package's declared acceptance tests run and pass.
#
# Proves: every acceptance command of every installed package, as installed, has just run in the
# plane's root, in the sandbox of the shell tools, within its timeout (at most 300 s), and exited
# with 0; and the package's files that the command names are unchanged. Its writes are discarded. A
# command that cannot be confined on this host does not run, which is a failure.
#
# Cannot prove: that the commands test much. A package that declares none is not tested.

NOTHING_DECLARED = "no installed package declares an acceptance test"


def check_acceptance(evidence: GateEvidence) -> GateResult:
    tally = Tally(G4)
    tally.fail(evidence.deviations)
    if evidence.deviations:
        # Threat: a planted command would run.
        return tally.result(NOTHING_DECLARED)
    for package in evidence.installed.packages.values():
        for acceptance in package.manifest.acceptance:
            tally.fail(_changed_tests(package, acceptance, evidence))
            tally.look(manifest_path(package.package_id), _run(acceptance, evidence))
    return tally.result(NOTHING_DECLARED)


def _changed_tests(
    package: InstalledPackage, acceptance: Acceptance, evidence: GateEvidence
) -> Iterator[Failure]:
    """Find changed files of the package that the command names.

    Threat: an emptied test passes, and so does one that became a directory (dash).
    """
    for path in package.manifest.by_path:
        if path in acceptance.command:
            problem = file_problem(package, path, evidence.workspace)
            if problem:
                yield Failure(path, problem)


def _run(acceptance: Acceptance, evidence: GateEvidence) -> str:
    evidence.watcher(G4, acceptance.command)
    try:
        result = evidence.acceptance.run(acceptance, ())
    except errors.SandboxUnavailableError as error:
        return f"{quote(acceptance.command)} did not run: {error.message}"
    return "" if result.passed else evidence.without_root(str(result))


# G4 for models: no command runs; the last recorded run is reported, with its age. It counts only
# if the same set of packages is still installed.

NOT_RUN: Final = "not run yet"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def report_acceptance(evidence: GateEvidence) -> GateResult:
    if evidence.deviations:
        return GateResult(G4, Status.FAIL, len(evidence.deviations), evidence.deviations)
    stored = _last_run(evidence)
    if stored is None:
        return not_applicable(G4, NOT_RUN)
    said = f"run {_age(stored.timestamp, evidence.now)} ago"
    if stored.entry.metadata.get("set_digest") != evidence.installed.digest:
        return not_applicable(
            G4, f"{NOT_RUN} on the packages that are installed now; the last was {said}"
        )
    found = read_result(stored.entry)
    return not_applicable(G4, NOT_RUN) if found is None else replace(found, note=said)


def _last_run(evidence: GateEvidence) -> StoredEntry | None:
    path = evidence.ledger_path(LedgerName.GOVERNANCE)
    if not path.exists():
        return None
    # Threat: a forged index could hide the last run, so read the lines.
    for row in find_decided(str(path), (GATE_RESULT,), Filter()):
        if isinstance(row, BadRow):
            raise errors.LedgerDamagedError(
                "a line of the governance ledger is not an entry", where=f"byte {row.offset_bytes}"
            )
        metadata = row.entry.metadata
        is_run = metadata.get("status") in {Status.PASS, Status.FAIL}
        if metadata.get(GATE_KEY) == G4 and is_run:
            return row
    return None


def _age(timestamp: str, now: float) -> str:
    passed_s = max(0, int(now - datetime.fromisoformat(timestamp).timestamp()))
    for size_s, unit in _UNITS:
        if passed_s >= size_s:
            return f"{passed_s // size_s} {unit}"
    return "0 s"


# G5: signatures, and the digest of the whole installed set.
#
# Proves: the installed set has exactly the digest that the packages ledger gives; an operator of
# this plane has signed a set; every package is in the last signed set, or came later with a valid
# approval or signature; every signature that came with a package is valid, by a key that is valid
# now or, if an operator vouched for the package since, was valid when it came; and the plane's
# keys are exactly those that an operator vouched for, in a chain from the plane's first key.
#
# Cannot prove: whose the first key is. That is decided when the plane is created, and checkpoints
# of the ledger protect it from later changes (G6).


def check_signatures(evidence: GateEvidence) -> GateResult:
    if evidence.plane_is_dev:
        return not_applicable(G5, MADE_WITH_DEV)
    if evidence.is_empty and not evidence.keys and not evidence.vouched.statements:
        return not_applicable(G5, NOTHING_INSTALLED)
    tally = Tally(G5)
    tally.fail(evidence.deviations)
    _look_at_set(evidence, tally)
    tally.fail(find_key_problems(evidence.vouched, evidence.keys))
    tally.count(len(evidence.keys))
    for told in evidence.record.packages.values():
        tally.look(manifest_path(told.package_id), _vouching_problem(told, evidence))
    for package in evidence.installed.packages.values():
        if package.receipt.signature is not None:
            tally.look(receipt_path(package.package_id), _signature_problem(package, evidence))
    return tally.result(NOTHING_INSTALLED)


def _look_at_set(evidence: GateEvidence, tally: Tally) -> None:
    found, told = evidence.installed.digest, evidence.record.set_digest
    tally.look(INSTALLED, "" if found == told else f"the digest of the set is {found}, not {told}")
    tally.fail(evidence.vouched.problems)
    if not evidence.vouched.statements:
        tally.look(LEDGER_FILE, "the installed set is not signed: paddock package sign --installed")
    tally.count(evidence.vouched.statements)


def _vouching_problem(told: RecordedPackage, evidence: GateEvidence) -> str:
    if told.row in evidence.vouched.rows:
        return ""
    package = evidence.installed.packages.get(told.package_id)
    if package is not None and package.receipt.signature is not None:
        return ""  # `check_signatures` verifies every signature
    problem = approval_problem(told, evidence)
    return f"no operator vouches for it: {problem}" if problem else ""


def _signature_problem(package: InstalledPackage, evidence: GateEvidence) -> str:
    signature = package.receipt.signature
    if signature is None:
        return ""
    try:
        verify_signature(signature, package.manifest.digest, _keys_of_install(package, evidence))
    except errors.IntegrityError as error:
        return error.message
    return ""


def _keys_of_install(package: InstalledPackage, evidence: GateEvidence) -> Keys:
    told = evidence.record.packages.get(package.package_id)
    found = (
        each.seq
        for each in evidence.record.entries
        if told is not None and each.id == told.entry_id
    )
    seq = next(found, None)
    return evidence.keys if told is None or seq is None else keys_at(seq, told, evidence)


_RESTORED: Final = "if it was restored from a backup: paddock ledger accept-rollback"
_PLACE: Final = lazy_pattern(r"""(['"])/(?:[^'"/]*/)*([^'"/]*)\1""")


_Finding = tuple[int, tuple[Failure, ...]]


def judge_ledger(
    name: LedgerName, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
) -> _Finding:
    if not path.exists():
        return _missing(name, path, file, witness, is_required=is_required)
    if path.is_symlink() or not path.is_file():
        # Threat: a link may lead to a ledger elsewhere, or to none.
        return 0, (Failure(file, "it is not a regular file"),)
    try:
        found = witness.verify(name, path)
        if found.torn_bytes:
            # Another process may be appending right now; then a second look finds it complete.
            found = witness.verify(name, path)
    except (errors.HostError, errors.LedgerDamagedError) as error:
        return 0, (Failure(file, _without_places(error.message)),)
    another = witness.problem(name, found)
    reasons = [another] if another else []
    reasons += map(_without_places, _problems(found))
    return found.entries, tuple(Failure(file, why) for why in reasons)


def _problems(found: Verification) -> Iterator[str]:
    for each in found.problems:
        if each.kind in {ChainFault.ROLLED_BACK, ChainFault.REWRITTEN}:
            yield f"{each.detail}; {_RESTORED}"
        else:
            yield f"line {each.line} (entry {each.seq}): {each.kind}: {each.detail}"
    if found.problems_omitted:
        yield f"{found.problems_omitted} more problems"
    if not found.problems and found.torn_bytes:
        yield f"{found.torn_bytes} bytes follow the last complete entry: an append was interrupted"


def _without_places(text: str) -> str:
    """Remove host directories: models read the results of gates."""
    return _PLACE.sub(r"\1…/\2\1", text)


def _missing(
    name: LedgerName, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
) -> _Finding:
    if path.is_symlink():
        return 0, (Failure(file, "it is a dangling link"),)
    if path.with_suffix(".d").exists():
        # Threat: a removed ledger has no line left that could fail.
        why = "it is gone: the files beside it show that it existed"
        return 0, (Failure(file, why),)
    if is_required or witness.expects(name):
        return 0, (Failure(file, "it is missing, and is required"),)
    return 0, ()


# G6: every ledger verifies, and the packages ledger agrees with what is installed.
#
# Proves: every line of each ledger is complete, in its place and chained to the one before, and the
# file agrees with the files beside it; no required ledger is missing; each agrees with what is
# known outside the plane (its key, signed heads kept elsewhere); and replaying the packages ledger
# from its first entry gives exactly the manifests and receipts in the plane.
#
# Cannot prove: who can write the whole plane could have cut off or rewritten entries after the
# newest outside checkpoint. If nothing is known outside, as for a plane that was moved or copied,
# that is all entries, and a note says so.

NOTHING_OUTSIDE: Final = (
    "nothing is known of its ledgers outside the plane, so a cut or a rollback would not show; "
    "keys are stored by the plane's path: was it moved?"
)


def check_ledgers(evidence: GateEvidence) -> GateResult:
    tally = Tally(G6)
    whole = True
    for name, path in evidence.layout.ledger_paths().items():
        evidence.watcher(G6, name)
        is_required = name is LedgerName.GOVERNANCE or (
            name is LedgerName.PACKAGES
            and bool(evidence.installed.packages or evidence.installed.problems)
        )
        file = path.relative_to(evidence.layout.root).as_posix()
        entries, failures = judge_ledger(
            name, path, file, evidence.witness, is_required=is_required
        )
        tally.count(entries)
        tally.fail(failures)
        whole = whole and not (name is LedgerName.PACKAGES and failures)
    if whole:
        tally.fail(evidence.deviations)
        tally.count(len(evidence.record.packages))
    result = tally.result("no ledger exists")
    if result.status is Status.PASS and not evidence.witness.knows_plane():
        return replace(result, note=NOTHING_OUTSIDE)
    return result


Check = Callable[[GateEvidence], GateResult]


CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        G0A: lambda _: not_applicable(G0A, NO_ARCHIVE),
        G0B: ownership.check_owned,
        G1: check_specs,
        G1_COMPLETE: check_frameworks,
        G2: check_approvals,
        G3: check_dependencies,
        G4: check_acceptance,
        G5: check_signatures,
        G6: check_ledgers,
    }
)

CHECKS_FOR_MODELS: Final[Mapping[str, Check]] = MappingProxyType({**CHECKS, G4: report_acceptance})


def run_gates(
    names: Sequence[str], checks: Mapping[str, Check], evidence: GateEvidence
) -> tuple[GateResult, ...]:
    return tuple(run_gate(name, checks[name], evidence) for name in names)


def run_gate(name: str, check: Check, evidence: GateEvidence) -> GateResult:
    evidence.watcher(name, "")
    try:
        return check(evidence)
    except (errors.ConfigError, errors.IntegrityError, errors.HostError, errors.ToolError) as error:
        return GateResult(name, Status.FAIL, 1, (failure_of(error, evidence.layout.root),))
