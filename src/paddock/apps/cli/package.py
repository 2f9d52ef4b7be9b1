"""`paddock package` and `paddock gate`."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from paddock.apps.command import (
    Command,
    Options,
    Part,
    Reply,
    environment_of,
    fields,
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
_REFUSALS: Final = (
    shown.GateRefusedError,
    shown.OwnershipRefusedError,
    shown.ArchiveRefusedError,
)
_SHOWN_MAX: Final = 20
"""Rows that are said one by one; `--json` has all."""
_FAILURES_MAX: Final = 50
"""Failures of one gate that are said one by one; `--json` has all."""


def _hash(options: Options, console: Console) -> Reply:
    report = write_hashes(console.directory / options.source, check=options.check)
    stale = report.stale
    status = "written" if report.written else "stale" if stale else "fresh"
    value = {"status": status, "files": report.files, "stale": _failures_json(stale)}
    done = "written" if report.written else "looked at"
    said = f"{len(stale)} of {report.files} hashes were stale; {done}"
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
            "what is to be signed is not clear",
            where="package sign",
            hint="name an ARCHIVE, or --installed for all that is installed",
        )
    return (_sign_installed if options.installed else _sign_archive)(options, console)


def _sign_installed(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    with assembled.open_depot(project) as depot:
        signed = sign_installed_set(depot, signing.make_operator_key(project.environment))
    said = f"signed the installed set {signed.set_digest} with key {signed.key_id}"
    keys = (f"  key {key.key_id} counts on this plane" for key in signed.keys)
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
        console.warn(f"note: no install will take this package: {made.rollback}")
    enrolled = {"enrolled": made.enrolled, "settles_install": made.settles_install}
    value = {"status": "approved", **made.approval.as_json(), **enrolled}
    return Reply(value, _approved_rows(made))


def _install(options: Options, console: Console) -> Reply:
    path = console.directory / options.archive
    # Before the plane is even opened: an archive that is not taken changes nothing at all.
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
    # This very digest is installed already.
    is_unchanged = report.status == "unchanged"
    if not is_unchanged:
        report = replace(report, notes=(*report.notes, *notes))
    if wish.plane_is_dev:
        console.warn("note: this plane was made with --dev: nobody had to approve this")
    elif wish.dev and not is_unchanged:
        console.warn("note: without an approval (--dev): G2 and G5 fail until there is one")
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
    """What the part does; a program is told of a refusal too, before everybody is."""
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
            told: dict[str, Json] = {"status": "refused", "code": refusal.code, "gate": gate}
            console.write_json({**told, "failures": _failures_json(failures)})
        raise


def _known_keys(options: Options, console: Console) -> dict[str, signing.PublicKey]:
    found: dict[str, signing.PublicKey] = {}
    own = signing.find_operator_key(environment_of(console))
    if own is not None:
        found[signing.public_half(own).key_id] = signing.public_half(own)
    try:
        project = find_project(options, console)
    except ConfigError as error:
        console.warn(f"note: the keys of this plane were not looked at: {error.message}")
        return found
    if project.layout.kind is PlaneKind.BARE and project.root.accepted:
        found |= signing.read_keys(project.layout)
    return found


def _seconds(text: str) -> float:
    matched = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text, re.ASCII)
    if matched is None:
        raise UsageError(
            f"{quote(text)} is no span of time",
            where="--expires",
            hint="a number and s, m, h or d: 24h",
        )
    return float(int(matched[1]) * _UNITS_S[matched[2]])


def _failures_json(failures: tuple[shown.Failure, ...]) -> list[Json]:
    return [fields(failure, "file", "reason") for failure in failures]


def _report_rows(report: InstallReport) -> Iterator[str]:
    word = {"unchanged": "is installed already, exactly so:", "planned": "would be installed:"}.get(
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
        yield f"  the plane had no key: yours, {approval.key_id}, is its first"
    if made.settles_install:
        yield "  the package was installed without one: it has one now"


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
    yield f"  approved by     {owner.wo_id or 'nobody'}"
    yield f"  state           {found.problem or 'as it was brought'}"


_SOURCE, _ARCHIVE = opt("source", "SRC"), opt("archive", "ARCHIVE")

PACKAGE = Command(
    "Make, check, sign, approve, install and remove packages of a bare plane.\n"
    "install: 0 done, 1 this very digest is installed, 2 a gate says no, 3 a file is\n"
    "another package's. What a killed install left is settled by the next command.",
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
        flag("--check", "compare, and write nothing"),
    ),
    Part(
        "pack", "make an archive", _pack, _SOURCE, opt("destination", "DEST", "a file or a folder")
    ),
    Part(
        "sign",
        "vouch for an archive (ARCHIVE.sig), or for all that is installed",
        _sign,
        opt("archive", "ARCHIVE", nargs="?"),
        flag("--installed", "sign the plane's installed set, and the keys that stand in it"),
    ),
    Part("verify", "whether an archive is exactly what it declares", _verify, _ARCHIVE),
    Part(
        "approve",
        "allow one package to change the plane",
        _approve,
        _ARCHIVE,
        opt("--expires", "TIME", "such as 30m, 7d", default="24h"),
        opt(
            "--scope",
            "PATTERN",
            "paths of the plane that may change (default: exactly the package's)",
            nargs="+",
            action="extend",
            default=[],
        ),
    ),
    Part(
        "install",
        "install a package, or put it in another version's place",
        _install,
        _ARCHIVE,
        flag("--dry-run", "only say what would happen"),
        flag("--dev", "without an approval"),
    ),
    Part("uninstall", "remove a package", _uninstall, opt("package", "PKG-ID")),
    Part(
        "why", "whose file it is", _why, opt("file", "FILE", "relative to the plane, or absolute")
    ),
    Part("list", "what is installed", _list),
    do=_do,
)


def _gate(options: Options, console: Console) -> int:
    names = PLANE_GATES if options.gate is None else (options.gate.upper(),)
    if not {*names} <= {*ALL_GATES}:
        raise UsageError(
            f"there is no gate {quote(options.gate)}",
            where="--gate",
            hint=f"the gates are: {', '.join(ALL_GATES)}",
        )
    project = find_project(options, console)
    # That is what G6 is there to say; nothing can be recorded. Opened, the plane would
    # have another ledger in the place of one that is gone.
    is_damaged = assembled.is_governance_gone(project)
    if not is_damaged:
        try:
            project = use_project(options, console)
        except LedgerDamagedError:
            is_damaged = True
    run = assembled.check_gates(project, names, _Progress(console))
    if options.json:
        console.write_json(results_json(run.results))
    else:
        _say(run.results, console)
    if run.unrecorded is not None:
        console.warn(f"note: this was not recorded: {run.unrecorded.message}")
    return EXIT_NO if run.has_failed and (options.enforce or is_damaged) else 0


class _Progress(Struct):
    console: Console

    def begins(self, gate: str, what: str) -> None:
        if self.console.stderr.isatty():
            self.console.warn(f"{gate}: {show_name(what)} …" if what else f"{gate} …")


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
    "Look whether a bare plane is what its packages, approvals and ledgers say.\n"
    "Without --gate all eight look: G0B files and ownership, G1 and G1-COMPLETE specs\n"
    "and frameworks, G2 approvals, G3 dependencies, G4 acceptance tests (they run, in the\n"
    "sandbox), G5 signatures, G6 ledgers. What has nothing to look at is not applicable,\n"
    "which is no pass. With --enforce the status is 1 when a gate fails. What the gates\n"
    "said is recorded in the governance ledger.",
    "  paddock gate --all --enforce\n"
    "  paddock gate --gate G0B\n"
    "  paddock --plane DIR gate --all --json",
    (
        opt("--gate", "NAME", "one gate, such as G0B"),
        flag("--all", "all eight (the default)"),
    ),
    flag("--enforce", "end with status 1 when a gate fails"),
    do=_gate,
)
