"""`paddock package` and `paddock gate`: change a bare plane by packages, and check it."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from paddock.apps.command import (
    Command,
    Options,
    Part,
    Reply,
    environment_of,
    find_project,
    flag,
    opt,
    use_project,
)
from paddock.apps.console import EXIT_NO, Console
from paddock.assembly import packages as assembled
from paddock.errors import ConfigError, LedgerDamagedError, UsageError
from paddock.gates.results import ALL_GATES, PLANE_GATES, GateResult, Status, count_of, results_json
from paddock.packages import rows as shown
from paddock.packages import signing
from paddock.packages.archive import load_archive, pack, write_hashes
from paddock.packages.install import (
    InstallReport,
    InstallWish,
    Ownership,
    find_owner,
    install,
    uninstall,
)
from paddock.packages.statements import Approved, approve, sign_installed_set
from paddock.text.show import quote, show_name
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_REFUSALS: Final = (shown.GateRefusedError, shown.OwnershipRefusedError, shown.ArchiveRefusedError)
_SHOWN_MAX: Final = 20
"""Rows to print; `--json` has all."""
_FAILURES_MAX: Final = 50
"""Failures to print of one gate; `--json` has all."""


def _hash(options: Options, console: Console) -> Reply:
    report = write_hashes(console.directory / options.source, check=options.check)
    stale = report.stale
    status = "written" if report.written else "stale" if stale else "fresh"
    value = {"status": status, "files": report.files, "stale": to_builtins(stale)}
    said = f"the hashes in the manifest are right: {report.files} checked, nothing written"
    if stale:
        done = "written to the manifest" if report.written else "wrong in the manifest, not written"
        said = f"{len(stale)} of {report.files} hashes {done}"
    rows = (f"{show_name(failure.file)}: {failure.reason}" for failure in stale)
    return Reply(value, (*rows, said), EXIT_NO if options.check and stale else 0)


def _pack(options: Options, console: Console) -> Reply:
    directory = console.directory
    report = pack(directory / options.source, directory / options.destination)
    manifest, version = report.manifest, report.manifest.version
    value: dict[str, Json] = {
        "status": "packed",
        "archive": str(report.archive),
        "package_id": manifest.package_id,
        "version": version,
        "digest": manifest.digest,
        "sha256": report.sha256,
        "bytes": report.size_bytes,
        "left_out": list(report.left_out),
    }
    text = (
        *(f"left out: {show_name(name)}" for name in report.left_out),
        f"{manifest.package_id} {version}  {manifest.digest}",
        f"archive  {report.sha256}  {report.size_bytes} bytes",
        str(report.archive),
    )
    return Reply(value, text)


def _verify(options: Options, console: Console) -> Reply:
    path = console.directory / options.archive
    archive = load_archive(path)
    manifest, version = archive.manifest, archive.manifest.version
    signature = signing.read_signature(path)
    signed = "none"
    if signature is not None:
        keys = _known_keys(options, console)
        signed = "unknown key"
        if signature.key_id in keys or signature.digest != manifest.digest:
            signing.verify_signature(signature, manifest.digest, keys)
            signed = "valid"
    value: dict[str, Json] = {
        "status": "ok",
        "package_id": manifest.package_id,
        "version": version,
        "digest": manifest.digest,
        "sha256": archive.sha256,
        "files": len(archive.files),
        "signature": signed,
        "key_id": None if signature is None else signature.key_id,
    }
    text = (
        f"{manifest.package_id} {version}  {manifest.digest}",
        f"{len(archive.files)} files, exactly as declared; signature: {signed}",
    )
    return Reply(value, text)


def _sign(options: Options, console: Console) -> Reply:
    if options.installed == (options.archive is not None):
        raise UsageError(
            "give either an ARCHIVE or --installed",
            where="package sign",
            hint="--installed signs the set of installed packages",
        )
    return (_sign_installed if options.installed else _sign_archive)(options, console)


def _sign_installed(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    with assembled.open_depot(project) as depot:
        signed = sign_installed_set(depot, signing.make_operator_key(project.environment))
    said = f"signed the installed set {signed.set_digest} with key {signed.key_id}"
    keys = (f"  key {key.key_id} is trusted on this plane" for key in signed.keys)
    return Reply({"status": "signed", **to_builtins(signed)}, (said, *keys))


def _sign_archive(options: Options, console: Console) -> Reply:
    path = console.directory / options.archive
    digest = load_archive(path).manifest.digest
    signature = signing.sign_digest(signing.make_operator_key(environment_of(console)), digest)
    file = str(signing.write_signature(path, signature))
    value = {"status": "signed", "file": file, **signature.as_json()}
    return Reply(value, (f"signed {digest} with key {signature.key_id}", file))


def _approve(options: Options, console: Console) -> Reply:
    expires_s = _seconds(options.expires)
    manifest = load_archive(console.directory / options.archive).manifest
    project = use_project(options, console)
    with assembled.open_depot(project) as depot:
        key = signing.make_operator_key(project.environment)
        made = approve(depot, manifest, key, tuple(options.scope), expires_s)
    if made.rollback:
        console.warn(f"note: this package cannot be installed: {made.rollback}")
    enrolled = {"enrolled": made.enrolled, "settles_install": made.settles_install}
    value = {"status": "approved", **made.approval.as_json(), **enrolled}
    return Reply(value, _approved_rows(made))


def _install(options: Options, console: Console) -> Reply:
    path = console.directory / options.archive
    # Before the plane is opened: a rejected archive must change nothing.
    try:
        archive = load_archive(path)
    except shown.ArchiveRefusedError as refusal:
        raise shown.GateRefusedError("G0A", [refusal.failure]) from refusal
    signature = signing.read_signature(path)
    project = use_project(options, console)
    wish = InstallWish(
        is_dry_run=options.dry_run,
        dev=options.dev,
        plane_is_dev=assembled.is_development_plane(project),
        signature=signature,
    )
    with assembled.open_depot(project) as depot:
        notes = assembled.archive_notes(project, archive)
        report = install(depot, archive, wish)
    # The same digest is installed already.
    is_unchanged = report.status == "unchanged"
    if not is_unchanged:
        report = replace(report, notes=(*report.notes, *notes))
    if wish.plane_is_dev:
        console.warn("note: this plane was made with --dev: no approval was needed")
    elif wish.dev and not is_unchanged:
        console.warn("note: installed without an approval (--dev): G2 and G5 fail until it has one")
    return Reply(report.as_json(), _report_rows(report), EXIT_NO if is_unchanged else 0)


def _uninstall(options: Options, console: Console) -> Reply:
    with assembled.open_depot(use_project(options, console)) as depot:
        report = uninstall(depot, options.package)
    return Reply(report.as_json(), _report_rows(report))


def _list(options: Options, console: Console) -> Reply:
    rows = assembled.plane_packages(use_project(options, console)).list_all()
    return Reply([row.as_json() for row in rows], _package_rows(rows))


def _why(options: Options, console: Console) -> Reply:
    packages = assembled.plane_packages(use_project(options, console))
    with packages.open_workspace() as workspace:
        path = workspace.resolve_entry(options.file).path.relative
    found = find_owner(packages, path)
    return Reply(found.as_json(), _owner_rows(found), 0 if found.owner is not None else EXIT_NO)


def _do(options: Options, console: Console) -> Reply | int:
    """Run the part; with `--json`, print a refusal as JSON before it is raised."""
    try:
        return options.do(options, console)
    except _REFUSALS as refusal:
        if options.json:
            gate, failures = None, ()
            if isinstance(refusal, shown.ArchiveRefusedError):
                gate, failures = "G0A", (refusal.failure,)
            else:
                failures = refusal.failures
                gate = refusal.gate if isinstance(refusal, shown.GateRefusedError) else None
            value: dict[str, Json] = {"status": "refused", "code": refusal.code, "gate": gate}
            console.write_json({**value, "failures": to_builtins(failures)})
        raise


def _known_keys(options: Options, console: Console) -> dict[str, signing.PublicKey]:
    found: dict[str, signing.PublicKey] = {}
    own = signing.find_operator_key(environment_of(console))
    if own is not None:
        found[signing.public_half(own).key_id] = signing.public_half(own)
    try:
        project = find_project(options, console)
    except ConfigError as error:
        console.warn(f"note: the keys of this plane were not checked: {error.message}")
        return found
    if project.layout.kind is PlaneKind.BARE and project.root.accepted:
        found |= signing.read_keys(project.layout)
    return found


def _seconds(text: str) -> float:
    matched = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text, re.ASCII)
    if matched is None:
        raise UsageError(
            f"invalid duration {quote(text)}",
            where="--expires",
            hint="a number with s, m, h or d, such as 24h",
        )
    return float(int(matched[1]) * _UNITS_S[matched[2]])


def _report_rows(report: InstallReport) -> Iterator[str]:
    word = {"unchanged": "installed already, identical:", "planned": "would be installed:"}.get(
        report.status, f"{report.status}:"
    )
    before = f" (was {report.previous})" if report.previous else ""
    yield f"{word} {report.package_id} {report.version}{before}  {report.digest}"
    for change in report.changes[:_SHOWN_MAX]:
        yield f"  {change.word:<9} {show_name(change.path)}"
    if len(report.changes) > _SHOWN_MAX:
        yield f"  and {len(report.changes) - _SHOWN_MAX} more: --json lists them"
    for note in report.notes:
        yield f"  note: {show_name(note)}"
    for result in report.acceptance:
        yield f"  accepted: {show_name(result.command)}"
    if report.wo_id is not None:
        yield f"  approved by {report.wo_id}"


def _approved_rows(made: Approved) -> Iterator[str]:
    approval = made.approval
    yield approval.wo_id
    yield f"  digest   {approval.digest}"
    yield f"  expires  {approval.expires}"
    for pattern in approval.scope[:_SHOWN_MAX]:
        yield f"  scope    {show_name(pattern)}"
    if len(approval.scope) > _SHOWN_MAX:
        yield f"  and {len(approval.scope) - _SHOWN_MAX} more"
    if made.enrolled:
        yield f"  the plane had no key: your key {approval.key_id} is now its first"
    if made.settles_install:
        yield "  the package was installed without an approval: it has one now"


def _package_rows(rows: tuple[shown.PackageRow, ...]) -> Iterator[str]:
    if not rows:
        yield "no packages are installed"
    width = max((len(row.package_id) for row in rows), default=0)
    for row in rows:
        parts = (
            f"{show_name(row.package_id):<{width}}",
            f"{row.version:<10}",
            f"{row.tier:<4}",
            f"{row.framework_id:<12}",
            f"{row.spec_id:<16}",
            f"{row.state:<9}",
            row.wo_id or ("no approval" if row.dev else ""),
        )
        yield "  ".join(parts).rstrip()
        for failure in row.failures[:_SHOWN_MAX]:
            yield f"    {show_name(failure.file)}: {failure.reason}"


def _owner_rows(found: Ownership) -> Iterator[str]:
    owner = found.owner
    if owner is None:
        yield f"{show_name(found.path)}: no package owns it"
        return
    yield f"{show_name(found.path)}: {owner.package_id} {owner.version}"
    yield f"  classification  {found.classification}"
    yield f"  package digest  {owner.digest}"
    yield f"  approved by     {owner.wo_id or 'no approval'}"
    yield f"  state           {found.problem or 'as installed'}"


_SOURCE = opt("source", "SRC", "directory of the package, with its manifest")
_ARCHIVE = opt("archive", "ARCHIVE", "a packed package")

PACKAGE = Command(
    "Build, verify, sign, approve, install and remove packages of a bare plane.\n"
    "Exit status of install: 0 done, 1 the same digest is installed already, 2 a gate\n"
    "refused, 3 a file belongs to another package. If an install is killed, the next\n"
    "command finishes it or rolls it back.",
    "  paddock package hash src/PKG-GREETING-001\n"
    "  paddock package pack src/PKG-GREETING-001 dist/\n"
    "  paddock package sign dist/PKG-GREETING-001.tar.gz\n"
    "  paddock package sign --installed\n"
    "  paddock package approve dist/PKG-GREETING-001.tar.gz --expires 24h\n"
    "  paddock package install dist/PKG-GREETING-001.tar.gz --dry-run\n"
    "  paddock package why HOT/kernel/greeting.txt",
    Part(
        "hash",
        "write each file's hash into the manifest",
        _hash,
        _SOURCE,
        flag("--check", "compare only, and write nothing"),
    ),
    Part(
        "pack",
        "pack SRC into an archive",
        _pack,
        _SOURCE,
        opt("destination", "DEST", "file or folder"),
    ),
    Part(
        "sign",
        "sign an archive (writes ARCHIVE.sig), or the set of installed packages",
        _sign,
        opt("archive", "ARCHIVE", nargs="?"),
        flag("--installed", "sign the plane's installed set and its list of trusted keys"),
    ),
    Part("verify", "check that an archive holds exactly what it declares", _verify, _ARCHIVE),
    Part(
        "approve",
        "approve one package for installation",
        _approve,
        _ARCHIVE,
        opt("--expires", "TIME", "valid for, such as 30m or 7d (default: 24h)", default="24h"),
        opt(
            "--scope",
            "PATTERN",
            "paths of the plane that may change (default: the package's files)",
            nargs="+",
            action="extend",
            default=[],
        ),
    ),
    Part(
        "install",
        "install a package, or replace another version of it",
        _install,
        _ARCHIVE,
        flag("--dry-run", "only show what would change"),
        flag("--dev", "install without an approval"),
    ),
    Part("uninstall", "remove a package", _uninstall, opt("package", "PKG-ID")),
    Part("why", "show which package owns a file", _why, opt("file", "FILE", "a file of the plane")),
    Part("list", "list the installed packages", _list),
    do=_do,
)


def _gate(options: Options, console: Console) -> int:
    names = PLANE_GATES if options.gate is None else (options.gate.upper(),)
    if not {*names} <= {*ALL_GATES}:
        raise UsageError(
            f"no gate named {quote(options.gate)}",
            where="--gate",
            hint=f"the gates are: {', '.join(ALL_GATES)}",
        )
    project = find_project(options, console)
    # G6 reports a missing ledger, and nothing can be recorded. Opening the plane would
    # create a new ledger in place of the one that is gone.
    is_damaged = assembled.is_governance_gone(project)
    if not is_damaged:
        try:
            project = use_project(options, console)
        except LedgerDamagedError:
            is_damaged = True
    run = assembled.check_gates(project, names, partial(_show_step, console))
    if options.json:
        console.write_json(results_json(run.results))
    else:
        _say(run.results, console)
    if run.unrecorded is not None:
        console.warn(f"note: this was not recorded: {run.unrecorded.message}")
    return EXIT_NO if run.has_failed and (options.enforce or is_damaged) else 0


def _show_step(console: Console, gate: str, step: str) -> None:
    if console.stderr.isatty():
        console.warn(f"{gate}: {show_name(step)} …" if step else f"{gate} …")


def _say(results: tuple[GateResult, ...], console: Console) -> None:
    words = {
        Status.PASS: console.paint(f"{'pass':<14}", "32"),
        Status.FAIL: console.paint(f"{'FAIL':<14}", "31"),
        Status.NOT_APPLICABLE: f"{'not applicable':<14}",
    }
    for result in results:
        note = f"  {console.as_typed(show_name(result.note))}" if result.note else ""
        row = f"{result.gate:<11}  {words[result.status]}  {result.checks} checks{note}"
        console.print(f"{row}\n")
        for failure in result.failures[:_FAILURES_MAX]:
            console.say(console.as_typed(f"  {show_name(str(failure))}"))
        if len(result.failures) > _FAILURES_MAX:
            console.say(f"  and {len(result.failures) - _FAILURES_MAX} more: --json lists them")
    passed, failed = count_of(results, Status.PASS), count_of(results, Status.FAIL)
    console.say(
        f"{passed} passed, {failed} failed, {len(results) - passed - failed} not applicable"
    )


GATE = Command(
    "Check that a bare plane matches its packages, approvals and ledgers. The gates: G0B\n"
    "files and ownership, G1 and G1-COMPLETE specs and frameworks, G2 approvals, G3\n"
    "dependencies, G4 acceptance tests (run in the sandbox), G5 signatures, G6 ledgers. A\n"
    "gate with nothing to check is not applicable, which does not count as passed. The\n"
    "results are recorded in the governance ledger. With --enforce the exit status is 1\n"
    "if a gate fails.",
    "  paddock gate --all --enforce\n"
    "  paddock gate --gate G0B\n"
    "  paddock --plane DIR gate --all --json",
    (
        opt("--gate", "NAME", "run only this gate, such as G0B"),
        flag("--all", "run all eight gates (the default)"),
    ),
    flag("--enforce", "exit with status 1 if a gate fails"),
    do=_gate,
)
