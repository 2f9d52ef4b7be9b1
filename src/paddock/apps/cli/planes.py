"""`paddock plane`: list this user's planes, and remove one permanently."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec import Struct, to_builtins

from paddock import limits
from paddock.apps import command
from paddock.apps.console import EXIT_NO, Console
from paddock.errors import ConfigError, UsageError
from paddock.plane.discover import parse_identity
from paddock.plane.environment import Environment, real_path
from paddock.plane.layout import PlaneLayout, plane_name
from paddock.storage import atomic
from paddock.text.show import quote, show_name
from paddock.values.decisions import PlaneKind

_REMOVED_PREFIX: Final = ".removed-"
"""A plane whose removal was interrupted; the next removal completes it."""


class KeptPlane(Struct, frozen=True):
    """A plane, as `--json` shows it."""

    plane: str
    root: str
    """Empty if its record cannot be read."""
    root_exists: bool
    bytes: int
    changed: str


def _find_planes(environment: Environment) -> list[KeptPlane]:
    with atomic.host_errors("listing", environment.planes):
        try:
            found = sorted(environment.planes.iterdir())
        except FileNotFoundError:
            return []
        return [_measure(path) for path in found if not path.name.startswith(".")]


def _measure(path: Path) -> KeptPlane:
    size, changed_ns = 0, 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                status = (Path(directory) / name).lstat()
            except FileNotFoundError:
                continue  # A running process of the plane has just removed it.
            size += status.st_size
            changed_ns = max(changed_ns, status.st_mtime_ns)
    changed = datetime.fromtimestamp(changed_ns // 10**9, UTC).strftime("%Y-%m-%d")
    root = _root_of(path)
    return KeptPlane(str(path), root, bool(root) and Path(root).is_dir(), size, changed)


def _root_of(path: Path) -> str:
    record = PlaneLayout(path, PlaneKind.PROJECT).record
    try:
        content = atomic.read_file(record, limits.plane_record_bytes_max)
        return "" if content is None else parse_identity(content, str(record)).root
    except ConfigError:
        return ""


def _list(options: command.Options, console: Console) -> command.Reply:
    del options
    planes = _find_planes(command.environment_of(console))
    return command.Reply({"planes": to_builtins(planes)}, _rows(planes))


def _rows(planes: list[KeptPlane]) -> Iterator[str]:
    for each in planes:
        name = Path(each.plane).name
        of = show_name(each.root) if each.root else f"{show_name(name)} (unknown project)"
        note = "  (the project is gone)" if each.root and not each.root_exists else ""
        yield f"{each.changed}  {_size(each.bytes):>9}  {of}{note}"
    if not planes:
        yield "no project has a plane"


def _size(count: int) -> str:
    return f"{count / 10**6:.1f} MB" if count >= 10**5 else f"{count / 10**3:.1f} kB"


def _remove(options: command.Options, console: Console) -> command.Reply:
    command.require_named("DIR", options.directory)
    environment = command.environment_of(console)
    root = real_path(console.directory / options.directory)
    path = environment.planes / plane_name(root)
    if not path.is_dir():
        raise UsageError(
            f"{quote(str(root))} has no plane",
            where="DIR",
            hint="paddock plane list shows the projects that have one",
        )
    plane = _measure(path)
    console.warn(f"the plane of {quote(str(root))} is {path}")
    console.warn("its ledgers, its agents and its undo history are removed with it")
    if not options.yes and not console.agrees(f"remove {_size(plane.bytes)}? [y/N] "):
        return command.Reply({"status": "error", "removed": None}, "not removed", EXIT_NO)
    _delete(path)
    return command.Reply({"status": "ok", "removed": to_builtins(plane)}, f"removed {path}")


def _delete(path: Path) -> None:
    """Sequence: renamed, synced → removed. No process sees half a plane, even after a crash."""
    gone = path.with_name(f"{_REMOVED_PREFIX}{os.urandom(8).hex()}")
    with atomic.host_errors("removing", path):
        path.rename(gone)
        atomic.sync_directory(path.parent)
        for left in path.parent.glob(f"{_REMOVED_PREFIX}*"):
            shutil.rmtree(left)


PLANE = command.Command(
    "List the planes that Paddock keeps for your projects, and remove one.\n"
    "A plane holds a project's ledgers, agents and history; the project itself is not\n"
    "touched. Bare planes are directories that you manage, and are not listed.",
    "  paddock plane list\n  paddock plane remove ~/old/project",
    command.Part("list", "list the planes: last change, size and project", _list),
    command.Part(
        "remove",
        "remove one permanently; asks first",
        _remove,
        command.opt("directory", "DIR", "the project; it need not exist any more"),
        command.flag("--yes", "do not ask"),
    ),
)
