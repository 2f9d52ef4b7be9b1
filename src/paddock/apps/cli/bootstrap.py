"""`paddock bootstrap`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common, require_named
from paddock.apps.cli.project import environment_of
from paddock.apps.cli.setup import say_key
from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.packages.rows import GateRefusedError, OwnershipRefusedError
from paddock.text.show import show_name
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.assembly.project import Project
    from paddock.packages.bootstrap import Unpacked
    from paddock.packages.rows import Failure

EXIT_CANNOT: Final = 1
"""Arguments, prerequisites, or a plane that is there already."""
EXIT_FAILED: Final = 2
EXIT_GATE: Final = 3
EXIT_DIFFERS: Final = 4
_SHOWN_MAX: Final = 20


class Bootstrap:
    summary = (
        "Make the archive that bare planes are made of, compare one with what this Paddock\n"
        "makes, or make a plane of an unpacked one. The same source makes the same bytes,\n"
        "whatever the clock, user, umask, locale and machine.\n"
        "verify: 0 the same, 4 it differs. install, as install.sh of the archive: 0 done,\n"
        "1 wrong arguments, or a plane is there and no --force, 2 the install failed,\n"
        "3 a gate failed."
    )
    examples = (
        "  paddock bootstrap build --out dist/\n"
        "  paddock bootstrap verify CP_BOOTSTRAP.tar.gz\n"
        "  paddock bootstrap install --root path/to/plane --from path/to/unpacked"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        building = actions.add_parser("build", help="make the archive", allow_abbrev=False)
        building.add_argument(
            "--out", metavar="FILE", help="a file or a folder (default: CP_BOOTSTRAP.tar.gz here)"
        )
        verifying = actions.add_parser(
            "verify", help="whether an archive is the one made here", allow_abbrev=False
        )
        verifying.add_argument(
            "archive", nargs="?", metavar="ARCHIVE", help="default: CP_BOOTSTRAP.tar.gz here"
        )
        installing = actions.add_parser(
            "install", help="make a plane, or put one right", allow_abbrev=False
        )
        installing.add_argument("--root", metavar="DIR", required=True, help="where the plane is")
        installing.add_argument(
            "--from", dest="source", metavar="DIR", help="an unpacked archive (default: our own)"
        )
        installing.add_argument(
            "--dev", action="store_true", help="a plane that asks for no approvals, and says so"
        )
        installing.add_argument(
            "--force", action="store_true", help="put right what differs on a plane that is there"
        )
        for made in (building, verifying, installing):
            add_common(made)

    def run(self, options: Options, console: Console) -> int:
        if options.action == "build":
            return _build(options, console)
        if options.action == "verify":
            return _verify(options, console)
        try:
            return _install(options, console)
        except PaddockError as error:
            console.report(error)
            return EXIT_CANNOT if _is_in_the_way(error) else EXIT_FAILED


def _is_in_the_way(error: PaddockError) -> bool:
    is_refused = isinstance(error, GateRefusedError | OwnershipRefusedError)
    return isinstance(error, UsageError | ConfigError) and not is_refused


def _build(options: Options, console: Console) -> int:
    from paddock.packages.archive import ARCHIVE_MODE
    from paddock.packages.bootstrap import NAME, build_bootstrap
    from paddock.storage.atomic import replace_file
    from paddock.values.entries import digest_of

    require_named("--out", options.out)
    target = Path(console.directory / (options.out or NAME))
    if target.is_dir():
        target /= NAME
    content = build_bootstrap()
    replace_file(target, content, mode=ARCHIVE_MODE)
    digest = digest_of(content)
    if options.json:
        shown: dict[str, Json] = {
            "status": "built",
            "archive": str(target),
            "sha256": digest,
            "bytes": len(content),
        }
        console.write_json(shown)
    else:
        console.say(f"{digest}  {len(content)} bytes")
        console.say(str(target))
    return 0


def _verify(options: Options, console: Console) -> int:
    from paddock.packages.archive import load_bytes
    from paddock.packages.bootstrap import NAME, find_differences
    from paddock.values.entries import digest_of

    content = load_bytes(Path(console.directory / (options.archive or NAME)))
    differences = find_differences(content)
    if options.json:
        shown: dict[str, Json] = {
            "status": "differs" if differences else "ok",
            "sha256": digest_of(content),
            "differences": [{"file": each.file, "reason": each.reason} for each in differences],
        }
        console.write_json(shown)
    else:
        _say_differences(differences, console)
        console.say(f"{digest_of(content)}  {'it differs' if differences else 'the same'}")
    return EXIT_DIFFERS if differences else 0


def _say_differences(differences: "tuple[Failure, ...]", console: Console) -> None:
    for each in differences[:_SHOWN_MAX]:
        console.say(f"{show_name(each.file)}: {each.reason}")
    if len(differences) > _SHOWN_MAX:
        console.say(f"and {len(differences) - _SHOWN_MAX} more")


def _install(options: Options, console: Console) -> int:
    from paddock.assembly.bootstrap import init_bare_plane, repair_bare_plane
    from paddock.packages.bootstrap import load_packages
    from paddock.plane.discover import is_bare_plane
    from paddock.plane.dual_gate import ToolProfile

    require_named("--root", options.root)
    environment = environment_of(console)
    root = Path(console.directory / options.root)
    unpacked = _unpacked(options, console)
    is_new = not is_bare_plane(root)
    if is_new:
        profile: ToolProfile = "development" if options.dev else "production"
        made, project = init_bare_plane(root, environment, profile, unpacked)
        done = f"{len(made.made)} files were made"
    elif options.force:
        archives = load_packages() if unpacked is None else unpacked.archives
        repaired = repair_bare_plane(root, environment, archives, dev=options.dev)
        project = repaired.project
        changed = [each.package_id for each in repaired.reports if each.status != "unchanged"]
        done = f"packages put right: {', '.join(changed) or 'none, nothing differed'}"
    else:
        raise UsageError(
            f"{show_name(str(root))} is a bare plane already",
            hint="nothing was changed; --force puts right what differs from these packages",
        )
    if is_new and not options.dev and not options.json:
        say_key(console)
    return _conclude(project, done, options, console)


def _unpacked(options: Options, console: Console) -> "Unpacked | None":
    from paddock.packages.bootstrap import read_unpacked

    if options.source is None:
        return None
    require_named("--from", options.source)
    return read_unpacked(Path(console.directory / options.source))


def _conclude(project: "Project", done: str, options: Options, console: Console) -> int:
    from paddock.assembly.packages import check_gates
    from paddock.gates.results import PLANE_GATES, Status, results_json

    run = check_gates(project, PLANE_GATES)
    root = str(project.layout.root)
    failed = [each for each in run.results if each.status is Status.FAIL]
    if options.json:
        status = "gate_failed" if failed else "installed"
        shown: dict[str, Json] = {
            "status": status,
            "root": root,
            "tool_profile": project.gate.tool_profile,
            **results_json(run.results),
        }
        console.write_json(shown)
        return EXIT_GATE if failed else 0
    console.say(f"{show_name(root)}: {done}")
    for result in failed:
        for failure in result.failures[:_SHOWN_MAX]:
            console.say(f"{result.gate} failed: {show_name(str(failure))}")
    passed = sum(each.status is Status.PASS for each in run.results)
    left = len(run.results) - passed - len(failed)
    console.say(f"gates: {passed} passed, {len(failed)} failed, {left} not applicable")
    if run.unrecorded is not None:
        console.warn(f"note: this was not recorded: {run.unrecorded.message}")
    if options.dev:
        console.warn("note: this plane was made with --dev: nobody approves what changes it")
    return EXIT_GATE if failed else 0


COMMAND = Bootstrap()
