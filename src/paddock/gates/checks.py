"""The gates but G0B: of each what it proves, and what it cannot prove; running them.

G0A looks at an archive, the others at a plane. G0B stands in `owned`.
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
    GatesGround,
    LedgerWitness,
    failure_of,
    keys_at,
    standing_problem,
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
    judged,
    not_applicable,
    read_result,
)
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import BadRow, Filter, find_decided
from paddock.ledger.verify import ChainFault, Verification
from paddock.packages.archive import read_archive
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
from paddock.packages.rows import ArchiveRefusedError, Failure
from paddock.packages.signing import Keys, signature_problem, verify_signature
from paddock.packages.statements import find_key_problems
from paddock.pattern import lazy_pattern
from paddock.plane.layout import LedgerName
from paddock.text.show import quote
from paddock.values.entries import GATE_RESULT

NO_ARCHIVE = "it looks at an archive, when that is installed: paddock package verify ARCHIVE"


# G0A: an archive holds exactly what its manifest declares.
#
# Proves: nothing more and nothing missing; every hash well formed and right; every name safe,
# and no two of them one file on some file system; one form of archive, which every reader
# reads alike. It runs before every install, on the bytes that are then installed.
#
# Cannot prove: who made the archive (G5), that anybody wants it (G2), or that what it holds is
# any good (G4).


def check_archive(content: bytes) -> GateResult:
    tally = Tally(G0A)
    try:
        archive = read_archive(content)
    except ArchiveRefusedError as refusal:
        tally.fail((refusal.failure,))
        return tally.result(NO_ARCHIVE)
    return judged(G0A, len(archive.files) + 1, (), NO_ARCHIVE)


# G1: package → spec → framework resolves in the registries.
#
# Proves: every installed package names a spec that is registered, that spec names a framework
# that is registered, and the package names the same one. Each row that this rests on was
# brought by an installed package and stands as that brought it, under the id that it holds.
# Every row of both registries loads.
#
# Cannot prove: that a package does what its spec says.


def check_specs(ground: GatesGround) -> GateResult:
    tally = Tally(G1)
    tally.fail(ground.deviations)
    tally.fail(ground.registries.problems)
    packages = ground.installed.packages.values()
    for package in packages:
        tally.look(manifest_path(package.package_id), _chain_problem(package.manifest, ground))
    manifests, registries = [each.manifest for each in packages], ground.registries
    for place, named, rows in (
        (SPECS, {each.spec_id for each in manifests}, registries.specs),
        (FRAMEWORKS, {each.framework_id for each in manifests}, registries.frameworks),
    ):
        for path in (f"{place}/{name}.json" for name in sorted(named & rows.keys())):
            tally.look(path, row_problem(path, ground))
    return tally.result(NOTHING_INSTALLED)


def _chain_problem(manifest: Manifest, ground: GatesGround) -> str:
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


def row_problem(path: str, ground: GatesGround) -> str:
    """Threat: a row that no package brought would make any spec or framework resolve."""
    owner = ground.installed.owner_of(path)
    if owner is None:
        return "no installed package brought this row"
    return file_problem(owner, path, ground.workspace)


# G1-COMPLETE: every spec that a framework expects exists and points back.
#
# Proves: of every registered framework, and of every framework that an installed package
# names, each expected spec is registered and names that framework; and each of these rows was
# brought by an installed package and stands as that brought it.
#
# Cannot prove: that some package implements an expected spec, nor that a framework expects all
# that it should. A spec which no framework expects is no failure: G1 sees that it resolves.


def check_frameworks(ground: GatesGround) -> GateResult:
    tally = Tally(G1_COMPLETE)
    tally.fail(ground.deviations)
    tally.fail(ground.registries.problems)
    frameworks = ground.registries.frameworks
    named = {package.manifest.framework_id for package in ground.installed.packages.values()}
    for framework_id in sorted(named - frameworks.keys()):
        tally.look(
            f"{FRAMEWORKS}/{framework_id}.json", "it is named by a package, and not registered"
        )
    for framework_id, framework in sorted(frameworks.items()):
        path = f"{FRAMEWORKS}/{framework_id}.json"
        tally.look(path, row_problem(path, ground))
        for spec_id in framework.specs:
            tally.look(f"{SPECS}/{spec_id}.json", _expected_problem(framework, spec_id, ground))
    return tally.result("no framework is registered, and no package names one")


def _expected_problem(framework: Framework, spec_id: str, ground: GatesGround) -> str:
    spec = ground.registries.specs.get(spec_id)
    if spec is None:
        return f"{quote(framework.framework_id)} expects this spec, and it is not registered"
    if spec.framework_id != framework.framework_id:
        return (
            f"{quote(framework.framework_id)} expects this spec, and it points to"
            f" {quote(spec.framework_id)}"
        )
    return row_problem(f"{SPECS}/{spec_id}.json", ground)


# G2: packages that changed the plane were approved.
#
# Proves: every package that is installed stands on an approval, given before its install or
# after it; and of every approval that was ever used, the file is still there, with an Ed25519
# signature of a key of the plane over exactly what it says, for the digest that was installed,
# by the key and before the time that the ledger tells, and used once. Of what is installed
# now, its scope covers every file, and the key is one of the plane still, or was one when the
# approval was used and a present operator has vouched for the package since. An approval that
# waits to be used is signed too.
#
# Cannot prove: the scope of what was replaced or uninstalled since (its files are not told any
# more), nor that whoever held the key was right. Files changed without a package are G0B's.


def check_approvals(ground: GatesGround) -> GateResult:
    if ground.plane_is_dev:
        return not_applicable(G2, MADE_WITH_DEV)
    tally = Tally(G2)
    tally.fail(ground.deviations)
    for told in ground.record.packages.values():
        tally.look(manifest_path(told.package_id), standing_problem(told, ground))
    _look_at_uses(ground, tally)
    used = {use.wo_id for use in ground.record.uses}
    for wo_id, approval in ground.approvals.items():
        if wo_id not in used:
            tally.look(approval_file(wo_id), signature_problem(approval, ground.keys))
    return tally.result("no package has changed this plane")


def _look_at_uses(ground: GatesGround, tally: Tally) -> None:
    # Keys that ever counted: an operator who left may have approved while he was one.
    keys = {**ground.vouched.known, **ground.keys}
    times = Counter(use.wo_id for use in ground.record.uses)
    for use in ground.record.uses:
        file, approval = approval_file(use.wo_id), ground.approvals.get(use.wo_id)
        if approval is None:
            why = f"{use.package_id} was installed with it (entry {use.seq})"
            tally.look(file, f"{why}, and it is not there")
        elif times[use.wo_id] > 1:
            tally.look(file, f"it was used {times[use.wo_id]} times")
        else:
            tally.look(file, use_problem(use, approval, keys))


# G3: the dependency graph is closed and acyclic, and no dependency came without an approval.
#
# Proves: everything that an installed package depends on is installed, on no higher layer, and
# no way leads back; what a package depends on is what the ledger said when it was installed;
# and whoever brought a dependency had an approval for exactly that manifest. On a plane that
# was made with `--dev` nobody asks for approvals, here either.
#
# Cannot prove: that a package needs what it names, or names what it needs.


def check_dependencies(ground: GatesGround) -> GateResult:
    tally = Tally(G3)
    tally.fail(ground.deviations)
    packages = ground.installed.packages
    tally.count(len(packages))
    tally.fail(find_graph_problems({name: each.manifest for name, each in packages.items()}))
    for name in packages:
        _look_at_dependencies(name, ground, tally)
    return tally.result(NOTHING_INSTALLED)


def _look_at_dependencies(name: str, ground: GatesGround, tally: Tally) -> None:
    now = set(ground.installed.packages[name].manifest.dependencies)
    told = ground.record.packages.get(name)
    then = frozenset(() if told is None else told.dependencies)
    file = manifest_path(name)
    for needed in sorted(then - now):
        tally.look(file, f"it depended on {needed} when it was installed, and does not any more")
    for needed in sorted(now):
        if told is None or needed not in then:
            tally.look(file, f"it depends on {needed}, and did not when it was installed")
        elif ground.plane_is_dev:
            tally.count(1)
        else:
            problem = standing_problem(told, ground)
            tally.look(file, f"it brought the dependency {needed}: {problem}" if problem else "")


# G4: each package's declared acceptance tests run and pass.
#
# Proves: every acceptance command of every installed package, as it was installed, ran just
# now in the plane's root, in the sandbox of the shell tools, within its own time-out (300 s at
# most), and exited with 0; and that the files of the package which the command names are the
# ones that it brought. What it writes is thrown away. A command that cannot be confined
# here does not run, and that is a failure.
#
# Cannot prove: that the commands test much; a package that declares none is not tested at all.

NOTHING_DECLARED = "no installed package declares an acceptance test"


def check_acceptance(ground: GatesGround) -> GateResult:
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
    package: InstalledPackage, acceptance: Acceptance, ground: GatesGround
) -> Iterator[Failure]:
    """The package's own files that the command names, where they are not as it brought them.

    Threat: a test that was emptied passes, and so does one that became a directory (dash).
    """
    for path in package.manifest.by_path:
        if path in acceptance.command:
            problem = file_problem(package, path, ground.workspace)
            if problem:
                yield Failure(path, problem)


def _run(acceptance: Acceptance, ground: GatesGround) -> str:
    ground.watcher.begins(G4, acceptance.command)
    try:
        result = ground.acceptance.run(acceptance, ())
    except errors.SandboxUnavailableError as error:
        return f"{quote(acceptance.command)} did not run: {error.message}"
    return "" if result.passed else ground.without_root(str(result))


# G4 as a model gets it: no command runs; the last recorded run is reported, with its age. It
# counts only while the installed set is the one that it ran on.

NOT_RUN: Final = "not run yet"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def report_acceptance(ground: GatesGround) -> GateResult:
    if ground.deviations:
        return GateResult(G4, Status.FAIL, len(ground.deviations), ground.deviations)
    stored = _last_run(ground)
    if stored is None:
        return not_applicable(G4, NOT_RUN)
    said = f"run {_age(stored.timestamp, ground.now)} ago"
    if stored.entry.metadata.get("set_digest") != ground.installed.digest:
        return not_applicable(G4, f"{NOT_RUN} on what is installed now; the last was {said}")
    found = read_result(stored.entry)
    return not_applicable(G4, NOT_RUN) if found is None else replace(found, note=said)


def _last_run(ground: GatesGround) -> StoredEntry | None:
    path = ground.ledger_path(LedgerName.GOVERNANCE)
    if not path.exists():
        return None
    # Threat: an index that hides the last run would have an earlier one reported.
    for row in find_decided(str(path), (GATE_RESULT,), Filter()):
        if isinstance(row, BadRow):
            raise errors.LedgerDamagedError(
                "a line of the governance ledger holds no entry", where=f"byte {row.offset_bytes}"
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
# Proves: the set that is installed has exactly the digest that the packages ledger comes to;
# an operator of this plane has signed a set; every package is in the set that was signed last,
# or came later with an approval or a signature of its own that holds; every signature that
# came with a package holds, by a key that counts or, where an operator vouched for the package
# since, counted when it came; and the plane's keys are exactly those that an operator vouched
# for, each by one who counted before, from the plane's first key on.
#
# Cannot prove: whose the first key is. That is settled when the plane is made, and kept from
# being changed later by checkpoints of the ledger (G6).


def check_signatures(ground: GatesGround) -> GateResult:
    if ground.plane_is_dev:
        return not_applicable(G5, MADE_WITH_DEV)
    if ground.is_empty and not ground.keys and not ground.vouched.statements:
        return not_applicable(G5, NOTHING_INSTALLED)
    tally = Tally(G5)
    tally.fail(ground.deviations)
    _look_at_set(ground, tally)
    tally.fail(find_key_problems(ground.vouched, ground.keys))
    tally.count(len(ground.keys))
    for told in ground.record.packages.values():
        tally.look(manifest_path(told.package_id), _vouching_problem(told, ground))
    for package in ground.installed.packages.values():
        if package.receipt.signature is not None:
            tally.look(receipt_path(package.package_id), _signature_problem(package, ground))
    return tally.result(NOTHING_INSTALLED)


def _look_at_set(ground: GatesGround, tally: Tally) -> None:
    found, told = ground.installed.digest, ground.record.set_digest
    tally.look(INSTALLED, "" if found == told else f"the digest of the set is {found}, not {told}")
    tally.fail(ground.vouched.problems)
    if not ground.vouched.statements:
        tally.look(
            LEDGER_FILE, "nobody has signed the installed set: paddock package sign --installed"
        )
    tally.count(ground.vouched.statements)


def _vouching_problem(told: RecordedPackage, ground: GatesGround) -> str:
    if told.row in ground.vouched.rows:
        return ""
    package = ground.installed.packages.get(told.package_id)
    if package is not None and package.receipt.signature is not None:
        return ""  # `check_signatures` verifies every signature
    problem = standing_problem(told, ground)
    return f"nobody vouches for it: {problem}" if problem else ""


def _signature_problem(package: InstalledPackage, ground: GatesGround) -> str:
    signature = package.receipt.signature
    if signature is None:
        return ""
    try:
        verify_signature(signature, package.manifest.digest, _keys_of_install(package, ground))
    except errors.IntegrityError as error:
        return error.message
    return ""


def _keys_of_install(package: InstalledPackage, ground: GatesGround) -> Keys:
    told = ground.record.packages.get(package.package_id)
    found = (each.seq for each in ground.entries if told is not None and each.id == told.entry_id)
    seq = next(found, None)
    return ground.keys if told is None or seq is None else keys_at(seq, told, ground)


_RESTORED: Final = "if it was restored from a backup: paddock ledger accept-rollback"
_PLACE: Final = lazy_pattern(r"""(['"])/(?:[^'"/]*/)*([^'"/]*)\1""")


_Finding = tuple[int, tuple[Failure, ...]]


def judge_ledger(
    name: LedgerName, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
) -> _Finding:
    if not path.exists():
        return _missing(name, path, file, witness, is_required=is_required)
    if path.is_symlink() or not path.is_file():
        # Threat: a link leads to a ledger that grows elsewhere, or to none.
        return 0, (Failure(file, "it is not a regular file"),)
    try:
        found = _verified(name, path, witness)
    except (errors.HostError, errors.LedgerDamagedError) as error:
        return 0, (Failure(file, _without_places(error.message)),)
    another = witness.problem(name, found)
    reasons = [another] if another else []
    reasons += map(_without_places, _problems(found))
    return found.entries, tuple(Failure(file, why) for why in reasons)


def _verified(name: LedgerName, path: Path, witness: LedgerWitness) -> Verification:
    found = witness.verify(name, path)
    # Somebody may be appending right now; then the second look finds the entry whole.
    return witness.verify(name, path) if found.torn_bytes else found


def _problems(found: Verification) -> Iterator[str]:
    for each in found.problems:
        if each.kind in {ChainFault.ROLLED_BACK, ChainFault.REWRITTEN}:
            yield f"{each.detail}; {_RESTORED}"
        else:
            yield f"line {each.line} (entry {each.seq}): {each.kind}: {each.detail}"
    if found.problems_omitted:
        yield f"{found.problems_omitted} more problems"
    if not found.problems and found.torn_bytes:
        yield f"{found.torn_bytes} bytes follow the last whole entry: an append was cut short"


def _without_places(text: str) -> str:
    """Take out directories of the host: what a gate says is shown to models."""
    return _PLACE.sub(r"\1…/\2\1", text)


def _missing(
    name: LedgerName, path: Path, file: str, witness: LedgerWitness, *, is_required: bool
) -> _Finding:
    if path.is_symlink():
        return 0, (Failure(file, "it is a link that leads nowhere"),)
    if path.with_suffix(".d").exists():
        # Threat: a ledger that was removed has no line left that could fail.
        why = "it is gone: what is kept beside it says that there was one"
        return 0, (Failure(file, why),)
    if is_required or witness.expects(name):
        return 0, (Failure(file, "it is not there, and there has to be one"),)
    return 0, ()


# G6: every ledger verifies, and the packages ledger agrees with what is installed.
#
# Proves: of each ledger that every line is whole, in its place and chained to the one before,
# and that the file agrees with what is kept beside it; that no ledger is missing which there
# has to be; what the plane's witness says of each from outside the plane (its key, signed
# heads that are kept elsewhere); and that following the packages ledger from its first entry
# comes to exactly the manifests and receipts that stand in the plane.
#
# Cannot prove: entries after the newest checkpoint that is kept outside could have been cut
# off or written anew by whoever can write the whole plane. Where nothing outside is known of
# its ledgers, as of a plane that was moved or brought, that is all entries, and a note says so.

NOTHING_OUTSIDE: Final = (
    "nothing outside the plane is known of its ledgers here: what was cut off or put back does "
    "not show; keys are kept by the plane's path: was it moved?"
)


def check_ledgers(ground: GatesGround) -> GateResult:
    tally = Tally(G6)
    whole = True
    for name, path in ground.layout.ledger_paths().items():
        ground.watcher.begins(G6, name)
        is_required = name is LedgerName.GOVERNANCE or (
            name is LedgerName.PACKAGES
            and bool(ground.installed.packages or ground.installed.problems)
        )
        file = path.relative_to(ground.layout.root).as_posix()
        entries, failures = judge_ledger(name, path, file, ground.witness, is_required=is_required)
        tally.count(entries)
        tally.fail(failures)
        whole = whole and not (name is LedgerName.PACKAGES and failures)
    if whole:
        tally.fail(ground.deviations)
        tally.count(len(ground.record.packages))
    result = tally.result("there is no ledger")
    if result.status is Status.PASS and not ground.witness.knows_plane():
        return replace(result, note=NOTHING_OUTSIDE)
    return result


Check = Callable[[GatesGround], GateResult]


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
    names: Sequence[str], checks: Mapping[str, Check], ground: GatesGround
) -> tuple[GateResult, ...]:
    return tuple(run_gate(name, checks[name], ground) for name in names)


def run_gate(name: str, check: Check, ground: GatesGround) -> GateResult:
    ground.watcher.begins(name, "")
    try:
        return check(ground)
    except (errors.ConfigError, errors.IntegrityError, errors.HostError, errors.ToolError) as error:
        return GateResult(name, Status.FAIL, 1, (failure_of(error, ground.layout.root),))
