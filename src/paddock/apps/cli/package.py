"""`paddock package` and `paddock gate`."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from paddock.apps.cli.console import EXIT_NO, Console
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import environment_of, find_project, use_project
from paddock.errors import ConfigError, LedgerDamagedError, UsageError
from paddock.packages.rows import (
    ArchiveRefusedError,
    Failure,
    GateRefusedError,
    OwnershipRefusedError,
    PackageRow,
)
from paddock.text.show import quote, show_name
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind

if TYPE_CHECKING:
    from paddock.gates.results import GateResult
    from paddock.packages.archive import Archive
    from paddock.packages.install import InstallReport
    from paddock.packages.listing import Ownership
    from paddock.packages.signing import PublicKey, Signature
    from paddock.packages.vouching import Approved


_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class PackageCommand:
    summary = (
        "Make, check, sign, approve, install and remove packages of a bare plane.\n"
        "install: 0 done, 1 this very digest is installed, 2 a gate says no, 3 a file is\n"
        "another package's. What a killed install left is settled by the next command."
    )
    examples = (
        "  paddock package hash src/PKG-GREETING-001\n"
        "  paddock package pack src/PKG-GREETING-001 dist/\n"
        "  paddock package sign dist/PKG-GREETING-001.tar.gz\n"
        "  paddock package sign --installed\n"
        "  paddock package approve dist/PKG-GREETING-001.tar.gz --expires 24h\n"
        "  paddock package install dist/PKG-GREETING-001.tar.gz --dry-run\n"
        "  paddock package why HOT/kernel/greeting.txt"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        hashing = actions.add_parser(
            "hash", help="write each file's hash into the manifest", allow_abbrev=False
        )
        hashing.add_argument("source", metavar="SRC")
        hashing.add_argument("--check", action="store_true", help="compare, and write nothing")
        packing = actions.add_parser("pack", help="make an archive", allow_abbrev=False)
        packing.add_argument("source", metavar="SRC")
        packing.add_argument("destination", metavar="DEST", help="a file or a folder")
        parsers = [hashing, packing]
        signing = actions.add_parser(
            "sign", help="vouch for an archive (ARCHIVE.sig), or for all that is installed",
            allow_abbrev=False,
        )  # fmt: skip
        signing.add_argument("archive", metavar="ARCHIVE", nargs="?")
        signing.add_argument(
            "--installed", action="store_true",
            help="sign the plane's installed set, and the keys that stand in it",
        )  # fmt: skip
        parsers.append(signing)
        for name, help_text in (
            ("verify", "whether an archive is exactly what it declares"),
            ("approve", "allow one package to change the plane"),
            ("install", "install a package, or put it in another version's place"),
        ):
            made = actions.add_parser(name, help=help_text, allow_abbrev=False)
            made.add_argument("archive", metavar="ARCHIVE")
            parsers.append(made)
        approving, installing = parsers[-2:]
        approving.add_argument("--expires", metavar="TIME", default="24h", help="such as 30m, 7d")
        approving.add_argument(
            "--scope", metavar="PATTERN", nargs="+", action="extend", default=[],
            help="paths of the plane that may change (default: exactly the package's)",
        )  # fmt: skip
        installing.add_argument("--dry-run", action="store_true", help="only say what would happen")
        installing.add_argument("--dev", action="store_true", help="without an approval")
        removing = actions.add_parser("uninstall", help="remove a package", allow_abbrev=False)
        removing.add_argument("package", metavar="PKG-ID")
        asking = actions.add_parser("why", help="whose file it is", allow_abbrev=False)
        asking.add_argument("file", metavar="FILE", help="relative to the plane, or absolute")
        listing = actions.add_parser("list", help="what is installed", allow_abbrev=False)
        for parsed in (*parsers, removing, asking, listing):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        actions = {
            "hash": self._hash,
            "pack": self._pack,
            "verify": self._verify,
            "sign": self._sign,
            "approve": self._approve,
            "install": self._install,
            "uninstall": self._uninstall,
            "list": self._list,
            "why": self._why,
        }
        try:
            return actions[options.action](options, console)
        except (GateRefusedError, OwnershipRefusedError, ArchiveRefusedError) as refusal:
            if options.json:
                console.write_json(_refusal_json(refusal))
            raise

    def _hash(self, options: Options, console: Console) -> int:
        from paddock.packages.archive import write_hashes

        report = write_hashes(console.directory / options.source, check=options.check)
        if options.json:
            status = "written" if report.written else "stale" if report.stale else "fresh"
            stale = _failures_json(report.stale)
            console.write_json({"status": status, "files": report.files, "stale": stale})
        else:
            for failure in report.stale:
                console.say(f"{show_name(failure.file)}: {failure.reason}")
            done = "written" if report.written else "looked at"
            console.say(f"{len(report.stale)} of {report.files} hashes were stale; {done}")
        return EXIT_NO if options.check and report.stale else 0

    def _pack(self, options: Options, console: Console) -> int:
        from paddock.packages.archive import pack

        directory = console.directory
        report = pack(directory / options.source, directory / options.destination)
        manifest = report.manifest
        if options.json:
            console.write_json(
                {
                    "status": "packed",
                    "archive": str(report.archive),
                    "package_id": manifest.package_id,
                    "version": manifest.version.text,
                    "digest": manifest.digest,
                    "sha256": report.sha256,
                    "bytes": report.size_bytes,
                    "left_out": list(report.left_out),
                }
            )
            return 0
        for name in report.left_out:
            console.say(f"left out: {show_name(name)}")
        console.say(f"{manifest.package_id} {manifest.version.text}  {manifest.digest}")
        console.say(f"archive  {report.sha256}  {report.size_bytes} bytes")
        console.say(str(report.archive))
        return 0

    def _verify(self, options: Options, console: Console) -> int:
        from paddock.packages.archive import load_archive
        from paddock.packages.signing import read_signature

        path = console.directory / options.archive
        archive = load_archive(path)
        signature = read_signature(path)
        signed = "none"
        if signature is not None:
            signed = _judge_signature(signature, archive.manifest.digest, options, console)
        manifest = archive.manifest
        shown: dict[str, Json] = {
            "status": "ok",
            "package_id": manifest.package_id,
            "version": manifest.version.text,
            "digest": manifest.digest,
            "sha256": archive.sha256,
            "files": len(archive.files),
            "signature": signed,
            "key_id": None if signature is None else signature.key_id,
        }
        if options.json:
            console.write_json(shown)
            return 0
        console.say(f"{manifest.package_id} {manifest.version.text}  {manifest.digest}")
        console.say(f"{len(archive.files)} files, exactly as declared; signature: {signed}")
        return 0

    def _sign(self, options: Options, console: Console) -> int:
        if options.installed == (options.archive is not None):
            raise UsageError(
                "what is to be signed is not clear",
                where="package sign",
                hint="name an ARCHIVE, or --installed for all that is installed",
            )
        return (self._sign_installed if options.installed else self._sign_archive)(options, console)

    def _sign_installed(self, options: Options, console: Console) -> int:
        from paddock.assembly.packages import open_depot
        from paddock.packages.signing import make_operator_key
        from paddock.packages.vouching import sign_installed_set

        project = use_project(options, console)
        with open_depot(project) as depot:
            signed = sign_installed_set(depot, make_operator_key(project.environment))
        if options.json:
            console.write_json({"status": "signed", **signed.as_json()})
            return 0
        console.say(f"signed the installed set {signed.set_digest} with key {signed.key_id}")
        for key in signed.keys:
            console.say(f"  key {key.key_id} counts on this plane")
        return 0

    def _sign_archive(self, options: Options, console: Console) -> int:
        from paddock.packages.archive import load_archive
        from paddock.packages.signing import make_operator_key, sign_digest, write_signature

        path = console.directory / options.archive
        digest = load_archive(path).manifest.digest
        signature = sign_digest(make_operator_key(environment_of(console)), digest)
        file = write_signature(path, signature)
        if options.json:
            console.write_json({"status": "signed", "file": str(file), **signature.as_json()})
            return 0
        console.say(f"signed {digest} with key {signature.key_id}")
        console.say(str(file))
        return 0

    def _approve(self, options: Options, console: Console) -> int:
        from paddock.assembly.packages import open_depot
        from paddock.packages.archive import load_archive
        from paddock.packages.signing import make_operator_key
        from paddock.packages.vouching import approve

        expires_s = _seconds(options.expires)
        manifest = load_archive(console.directory / options.archive).manifest
        project = use_project(options, console)
        with open_depot(project) as depot:
            key = make_operator_key(project.environment)
            made = approve(depot, manifest, key, tuple(options.scope), expires_s)
        if made.rollback:
            console.warn(f"note: no install will take this package: {made.rollback}")
        say_approved(made, options, console)
        return 0

    def _install(self, options: Options, console: Console) -> int:
        from paddock.assembly.packages import archive_notes, is_development_plane, open_depot
        from paddock.packages.install import InstallWish, install
        from paddock.packages.signing import read_signature

        path = console.directory / options.archive
        # Before the plane is even opened: an archive that is not taken changes nothing at all.
        archive = _load(path)
        signature = read_signature(path)
        project = use_project(options, console)
        wish = InstallWish(
            is_dry_run=options.dry_run,
            dev=options.dev,
            plane_is_dev=is_development_plane(project),
            signature=signature,
        )
        with open_depot(project) as depot:
            notes = archive_notes(project, archive)
            report = install(depot, archive, wish)
        if report.status != "unchanged":
            report = replace(report, notes=(*report.notes, *notes))
        if wish.plane_is_dev:
            console.warn("note: this plane was made with --dev: nobody had to approve this")
        elif wish.dev and report.status != "unchanged":
            console.warn("note: without an approval (--dev): G2 and G5 fail until there is one")
        say_report(report, options, console)
        # This very digest is installed already.
        return EXIT_NO if report.status == "unchanged" else 0

    def _uninstall(self, options: Options, console: Console) -> int:
        from paddock.assembly.packages import open_depot
        from paddock.packages.install import uninstall

        with open_depot(use_project(options, console)) as depot:
            report = uninstall(depot, options.package)
        say_report(report, options, console)
        return 0

    def _list(self, options: Options, console: Console) -> int:
        from paddock.assembly.packages import plane_packages

        rows = plane_packages(use_project(options, console)).list_all()
        say_rows(rows, options, console)
        return 0

    def _why(self, options: Options, console: Console) -> int:
        from paddock.assembly.packages import plane_packages
        from paddock.packages.listing import find_owner

        packages = plane_packages(use_project(options, console))
        with packages.open_workspace() as workspace:
            path = workspace.resolve_entry(options.file).path.relative
        found = find_owner(packages, path)
        say_owner(found, options, console)
        return 0 if found.owner is not None else EXIT_NO


def _load(path: Path) -> "Archive":
    from paddock.packages.archive import load_archive

    try:
        return load_archive(path)
    except ArchiveRefusedError as refusal:
        raise GateRefusedError("G0A", [refusal.failure]) from refusal


def _judge_signature(
    signature: "Signature", digest: str, options: Options, console: Console
) -> str:
    """`valid`, or `unknown key`. Raises: IntegrityError: it does not hold."""
    from paddock.packages.signing import verify_signature

    keys = _known_keys(options, console)
    if signature.key_id not in keys and signature.digest == digest:
        return "unknown key"
    verify_signature(signature, digest, keys)
    return "valid"


def _known_keys(options: Options, console: Console) -> "dict[str, PublicKey]":
    from paddock.packages.signing import find_operator_key, public_half, read_keys

    found: dict[str, PublicKey] = {}
    own = find_operator_key(environment_of(console))
    if own is not None:
        found[public_half(own).key_id] = public_half(own)
    try:
        project = find_project(options, console)
    except ConfigError as error:
        console.warn(f"note: the keys of this plane were not looked at: {error.message}")
        return found
    if project.layout.kind is PlaneKind.BARE and project.root.accepted:
        found |= read_keys(project.layout)
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


def _refusal_json(
    refusal: GateRefusedError | OwnershipRefusedError | ArchiveRefusedError,
) -> dict[str, Json]:
    gate: str | None = None
    if isinstance(refusal, ArchiveRefusedError):
        gate, failures = "G0A", (refusal.failure,)
    else:
        failures = refusal.failures
        gate = refusal.gate if isinstance(refusal, GateRefusedError) else None
    return {
        "status": "refused",
        "code": refusal.code,
        "gate": gate,
        "failures": _failures_json(failures),
    }


def _failures_json(failures: tuple[Failure, ...]) -> list[Json]:
    return [{"file": failure.file, "reason": failure.reason} for failure in failures]


PACKAGE = PackageCommand()

_SHOWN_MAX: Final = 20
"""Rows that are said one by one; `--json` has all."""


def say_report(report: "InstallReport", options: Options, console: Console) -> None:
    from paddock.packages.install import word_of

    if options.json:
        console.write_json(report.as_json())
        return
    word = {"unchanged": "is installed already, exactly so:", "planned": "would be installed:"}.get(
        report.status, f"{report.status}:"
    )
    before = f" (was {report.previous})" if report.previous else ""
    console.say(f"{word} {report.package_id} {report.version}{before}  {report.digest}")
    for change in report.changes[:_SHOWN_MAX]:
        console.say(f"  {word_of(change):<9} {show_name(change.path)}")
    if len(report.changes) > _SHOWN_MAX:
        console.say(f"  and {len(report.changes) - _SHOWN_MAX} more: --json lists them")
    for note in report.notes:
        console.say(f"  note: {show_name(note)}")
    for result in report.acceptance:
        console.say(f"  accepted: {show_name(result.command)}")
    if report.wo_id is not None:
        console.say(f"  approved by {report.wo_id}")


def say_approved(made: "Approved", options: Options, console: Console) -> None:
    """An approval that was made: its id alone on the first line."""
    approval = made.approval
    if options.json:
        console.write_json(
            {
                "status": "approved",
                **approval.as_json(),
                "enrolled": made.enrolled,
                "settles_install": made.settles_install,
            }
        )
        return
    console.say(approval.wo_id)
    console.say(f"  digest   {approval.digest}")
    console.say(f"  expires  {approval.expires}")
    for pattern in approval.scope[:_SHOWN_MAX]:
        console.say(f"  scope    {show_name(pattern)}")
    if len(approval.scope) > _SHOWN_MAX:
        console.say(f"  and {len(approval.scope) - _SHOWN_MAX} more")
    if made.enrolled:
        console.say(f"  the plane had no key: yours, {approval.key_id}, is its first")
    if made.settles_install:
        console.say("  the package was installed without one: it has one now")


def say_rows(rows: tuple[PackageRow, ...], options: Options, console: Console) -> None:
    if options.json:
        console.write_json([row.as_json() for row in rows])
        return
    if not rows:
        console.say("no packages are installed")
    width = max((len(row.package_id) for row in rows), default=0)
    for row in rows:
        approved = row.wo_id or ("no approval" if row.dev else "")
        parts = (
            f"{show_name(row.package_id):<{width}}",
            f"{row.version:<10}",
            f"{row.tier:<4}",
            f"{row.framework_id:<12}",
            f"{row.spec_id:<16}",
            f"{row.state:<9}",
            approved,
        )
        console.say("  ".join(parts).rstrip())
        for failure in row.failures[:_SHOWN_MAX]:
            console.say(f"    {show_name(failure.file)}: {failure.reason}")


def say_owner(found: "Ownership", options: Options, console: Console) -> None:
    if options.json:
        console.write_json(found.as_json())
        return
    owner = found.owner
    if owner is None:
        console.say(f"{show_name(found.path)}: no package owns it")
        return
    console.say(f"{show_name(found.path)}: {owner.package_id} {owner.version}")
    console.say(f"  classification  {found.classification}")
    console.say(f"  package digest  {owner.digest}")
    console.say(f"  approved by     {owner.wo_id or 'nobody'}")
    console.say(f"  state           {found.problem or 'as it was brought'}")


_SHOWN_MAX_GATE: Final = 50
"""Failures of one gate that are said one by one; `--json` has all."""


class GateCommand:
    summary = (
        "Look whether a bare plane is what its packages, approvals and ledgers say.\n"
        "Without --gate all eight look: G0B files and ownership, G1 and G1-COMPLETE specs\n"
        "and frameworks, G2 approvals, G3 dependencies, G4 acceptance tests (they run, in the\n"
        "sandbox), G5 signatures, G6 ledgers. What has nothing to look at is not applicable,\n"
        "which is no pass. With --enforce the status is 1 when a gate fails. What the gates\n"
        "said is recorded in the governance ledger."
    )
    examples = (
        "  paddock gate --all --enforce\n"
        "  paddock gate --gate G0B\n"
        "  paddock --plane DIR gate --all --json"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--gate", metavar="NAME", help="one gate, such as G0B")
        which.add_argument("--all", action="store_true", help="all eight (the default)")
        parser.add_argument(
            "--enforce", action="store_true", help="end with status 1 when a gate fails"
        )

    def run(self, options: Options, console: Console) -> int:
        from paddock.assembly.packages import check_gates, is_governance_gone
        from paddock.gates.results import results_json

        names = _names(options.gate)
        project = find_project(options, console)
        # That is what G6 is there to say; nothing can be recorded. Opened, the plane would
        # have another ledger in the place of one that is gone.
        is_damaged = is_governance_gone(project)
        if not is_damaged:
            try:
                project = use_project(options, console)
            except LedgerDamagedError:
                is_damaged = True
        run = check_gates(project, names, _Progress(console))
        if options.json:
            console.write_json(results_json(run.results))
        else:
            _say(run.results, console)
        if run.unrecorded is not None:
            console.warn(f"note: this was not recorded: {run.unrecorded.message}")
        return EXIT_NO if run.has_failed and (options.enforce or is_damaged) else 0


def _names(given: str | None) -> tuple[str, ...]:
    from paddock.gates.results import ALL_GATES, PLANE_GATES

    if given is None:
        return PLANE_GATES
    name = given.upper()
    if name not in ALL_GATES:
        raise UsageError(
            f"there is no gate {quote(given)}",
            where="--gate",
            hint=f"the gates are: {', '.join(ALL_GATES)}",
        )
    return (name,)


class _Progress:
    def __init__(self, console: Console) -> None:
        self._console = console

    def begins(self, gate: str, what: str) -> None:
        if self._console.stderr.isatty():
            self._console.warn(f"{gate}: {show_name(what)} …" if what else f"{gate} …")


def _say(results: "tuple[GateResult, ...]", console: Console) -> None:
    from paddock.gates.results import Status, count_of

    words = {
        Status.PASS: console.paint(f"{'pass':<14}", "32"),
        Status.FAIL: console.paint(f"{'FAIL':<14}", "31"),
        Status.NOT_APPLICABLE: f"{'not applicable':<14}",
    }
    for result in results:
        note = f"  {show_name(result.note)}" if result.note else ""
        row = f"{result.gate:<11}  {words[result.status]}  {result.checks} checks{note}"
        console.print(f"{row}\n")
        for failure in result.failures[:_SHOWN_MAX_GATE]:
            console.say(f"  {show_name(str(failure))}")
        if len(result.failures) > _SHOWN_MAX_GATE:
            console.say(f"  and {len(result.failures) - _SHOWN_MAX_GATE} more: --json lists them")
    passed, failed = count_of(results, Status.PASS), count_of(results, Status.FAIL)
    console.say(
        f"{passed} passed, {failed} failed, {len(results) - passed - failed} not applicable"
    )


GATE = GateCommand()
