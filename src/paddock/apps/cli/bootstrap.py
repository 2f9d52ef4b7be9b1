"""`paddock bootstrap`: build, compare and install the archive that creates bare planes."""

from pathlib import Path
from typing import Final

from paddock.apps import command
from paddock.apps.cli.setup import operator_key_note
from paddock.apps.console import Console
from paddock.assembly.bootstrap import init_bare_plane, repair_bare_plane
from paddock.assembly.packages import check_gates
from paddock.assembly.project import Project
from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.gates.results import PLANE_GATES, Status, results_json
from paddock.packages import bootstrap
from paddock.packages.archive import ARCHIVE_MODE, load_bytes
from paddock.packages.rows import GateRefusedError, OwnershipRefusedError
from paddock.plane.discover import is_bare_plane
from paddock.plane.environment import ToolProfile
from paddock.storage.atomic import replace_file
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import digest_of

EXIT_CANNOT: Final = 1
"""Wrong arguments or prerequisites, or the plane exists already."""
EXIT_FAILED: Final = 2
EXIT_GATE: Final = 3
EXIT_DIFFERS: Final = 4
_SHOWN_MAX: Final = 20


def _build(options: command.Options, console: Console) -> command.Reply:
    command.require_named("--out", options.out)
    target = Path(console.directory / (options.out or bootstrap.NAME))
    if target.is_dir():
        target /= bootstrap.NAME
    content = bootstrap.build_bootstrap()
    replace_file(target, content, mode=ARCHIVE_MODE)
    digest, size = digest_of(content), len(content)
    value = {"status": "built", "archive": str(target), "sha256": digest, "bytes": size}
    return command.Reply(value, (f"{digest}  {size} bytes", str(target)))


def _verify(options: command.Options, console: Console) -> command.Reply:
    content = load_bytes(Path(console.directory / (options.archive or bootstrap.NAME)))
    differences, digest = bootstrap.find_differences(content), digest_of(content)
    value: dict[str, Json] = {
        "status": "differs" if differences else "ok",
        "sha256": digest,
        "differences": [command.fields(each, "file", "reason") for each in differences],
    }
    said = f"{digest}  {'differs' if differences else 'identical'}"
    rows = [f"{show_name(each.file)}: {each.reason}" for each in differences[:_SHOWN_MAX]]
    if len(differences) > _SHOWN_MAX:
        rows.append(f"and {len(differences) - _SHOWN_MAX} more")
    text = (*rows, said)
    return command.Reply(value, text, EXIT_DIFFERS if differences else 0)


def _install(options: command.Options, console: Console) -> command.Reply | int:
    try:
        return _make_or_repair(options, console)
    except PaddockError as error:
        console.report(error)
        is_refused = isinstance(error, GateRefusedError | OwnershipRefusedError)
        is_in_the_way = isinstance(error, UsageError | ConfigError) and not is_refused
        return EXIT_CANNOT if is_in_the_way else EXIT_FAILED


def _make_or_repair(options: command.Options, console: Console) -> command.Reply:
    command.require_named("--root", options.root)
    environment = command.environment_of(console)
    root = Path(console.directory / options.root)
    unpacked = None
    if options.source is not None:
        command.require_named("--from", options.source)
        unpacked = bootstrap.read_unpacked(Path(console.directory / options.source))
    done: list[str] = []
    if not is_bare_plane(root):
        profile: ToolProfile = "development" if options.dev else "production"
        made, project = init_bare_plane(root, environment, profile, unpacked)
        done += [] if options.dev else [operator_key_note(console)]
        done.append(f"{show_name(str(project.layout.root))}: created {len(made.made)} files")
    elif options.force:
        archives = bootstrap.load_packages() if unpacked is None else unpacked.archives
        repaired = repair_bare_plane(root, environment, archives, dev=options.dev)
        project = repaired.project
        changed = [each.package_id for each in repaired.reports if each.status != "unchanged"]
        named = ", ".join(changed) or "none, nothing differed"
        done.append(f"{show_name(str(project.layout.root))}: packages repaired: {named}")
    else:
        raise UsageError(
            f"{show_name(str(root))} is a bare plane already",
            hint="nothing was changed; --force repairs files that differ from these packages",
        )
    return _conclude(project, done, options, console)


def _conclude(
    project: Project, done: list[str], options: command.Options, console: Console
) -> command.Reply:
    run = check_gates(project, PLANE_GATES)
    failed = [each for each in run.results if each.status is Status.FAIL]
    value = {
        "status": "gate_failed" if failed else "installed",
        "root": str(project.layout.root),
        "tool_profile": project.gate.tool_profile,
        **results_json(run.results),
    }
    if options.json:
        return command.Reply(value, "", EXIT_GATE if failed else 0)
    done += [
        f"{result.gate} failed: {show_name(str(failure))}"
        for result in failed
        for failure in result.failures[:_SHOWN_MAX]
    ]
    passed = sum(each.status is Status.PASS for each in run.results)
    left = len(run.results) - passed - len(failed)
    done.append(f"gates: {passed} passed, {len(failed)} failed, {left} not applicable")
    if run.unrecorded is not None:
        console.warn(f"note: this was not recorded: {run.unrecorded.message}")
    if options.dev:
        console.warn("note: made with --dev: changes to this plane need no approval or signature")
    return command.Reply(value, done, EXIT_GATE if failed else 0)


COMMAND = command.Command(
    "Build the archive that creates bare planes, compare an archive with the one this\n"
    "Paddock builds, or create a plane from an unpacked archive. Builds are reproducible:\n"
    "the same source gives the same bytes on every machine.\n"
    "Exit status of verify: 0 identical, 4 differs; of install (and install.sh in the\n"
    "archive): 0 done, 1 wrong arguments, or the plane exists and no --force, 2 the install\n"
    "failed, 3 a gate failed.",
    "  paddock bootstrap build --out dist/\n"
    "  paddock bootstrap verify CP_BOOTSTRAP.tar.gz\n"
    "  paddock bootstrap install --root path/to/plane --from path/to/unpacked",
    command.Part(
        "build",
        "build the archive",
        _build,
        command.opt("--out", "FILE", "a file or a directory (default: CP_BOOTSTRAP.tar.gz here)"),
    ),
    command.Part(
        "verify",
        "compare an archive with the one built here",
        _verify,
        command.opt("archive", "ARCHIVE", "default: CP_BOOTSTRAP.tar.gz here", nargs="?"),
    ),
    command.Part(
        "install",
        "create a bare plane, or repair one",
        _install,
        command.opt("--root", "DIR", "directory of the plane", required=True),
        command.opt("--from", "DIR", "an unpacked archive (default: Paddock's own)", dest="source"),
        command.flag("--dev", "a development plane: changes need no approval or signature"),
        command.flag("--force", "repair an existing plane"),
    ),
)
