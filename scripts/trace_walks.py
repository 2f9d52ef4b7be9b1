"""Write the walks of docs/architecture.md: which modules real work passes, from a real run.

    make walks            (python scripts/trace_walks.py --write docs/architecture.md)

Each walk runs in a process of its own, in a project or plane of its own, with Python's profiler
on: `paddock` itself is not changed, nor told. A module is passed where one of its functions runs;
what runs while a module is loaded (classes, decorators) is not counted.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1]
MARKS = ("<!-- walks: make walks -->\n", "<!-- end of walks -->\n")
TRACER = """
import sys
from pathlib import Path
import paddock
HERE, calls = str(Path(paddock.__file__).parent) + "/", []
def module_of(code):
    name = code.co_filename
    return name[len(HERE):-3].replace("/__init__", "") if name.startswith(HERE) else None
def is_defining(frame):
    # A class, or a module while it is loaded: definitions, and no work of this walk.
    while frame is not None:
        module = module_of(frame.f_code)
        if frame.f_code.co_name == "<module>" and module not in (None, "apps/hook/launch"):
            return True
        frame = frame.f_back
    return False
def note(frame, event, _):
    to = module_of(frame.f_code) if event == "call" else None
    if to is None or is_defining(frame):
        return
    back = frame.f_back
    while back is not None and module_of(back.f_code) is None:
        back = back.f_back
    calls.append((back and module_of(back.f_code), to))
def tell():
    sys.setprofile(None)
    import json
    Path("trace.json").write_text(json.dumps(calls))
"""
CALL = """
with paddock.open(".") as runtime:
    runtime.view("README.md"); runtime.create_file("a.md", "once")
    sys.setprofile(note)
    runtime.TOOL
    tell()
"""
HOOK = """
import posix, runpy
sys.argv = ["launch.py"]
posix._exit = lambda status: tell()
sys.setprofile(note)
runpy.run_path(HERE + "apps/hook/launch.py", run_name="__main__")
"""
COMMAND = """
from paddock.apps.cli import main
sys.argv = ["paddock", *ARGUMENTS]
sys.setprofile(note)
main.console(lambda status: tell())
"""
EVENT = {
    "session_id": "walk",
    "hook_event_name": "PreToolUse",
    "tool_name": "Edit",
    "tool_input": {"file_path": "README.md", "old_string": "a", "new_string": "b"},
}
MANIFEST = {
    "package_id": "PKG-WALK-001",
    "version": "1.0.0",
    "schema_version": 1,
    "title": "Walk",
    "description": "A file.",
    "spec_id": "SPEC-SKILLS-001",
    "framework_id": "FMWK-200",
    "plane_id": "ho1",
    "layer": 3,
    "dependencies": ["PKG-SKILLS-001"],
    "assets": [{"path": "HO1/skills/walk/SKILL.md", "sha256": "", "classification": "skill"}],
    "acceptance": [{"command": "true", "timeout_s": 10}],
}
SKILL = "---\nname: walk\ndescription: Walk.\n---\n\nWalk.\n"


class Walk(Struct, frozen=True):
    """What one piece of work passed."""

    title: str
    own: str
    calls: tuple[tuple[str | None, str], ...]

    @property
    def own_modules(self) -> set[str]:
        """The modules of the folder that leads the work."""
        return {to for _, to in self.calls if to.startswith(f"{self.own}/")}

    def render(self, layers: dict[str, int]) -> str:
        """As a section of the page: a folder a row, in the order in which they are entered."""
        folders: dict[str, list[str]] = {}
        for _, to in self.calls:
            folder, _, module = to.rpartition("/")
            held = folders.setdefault(folder or ".", [])
            if module not in held:
                held.append(module)
        upward = {
            f"`{caller}` → `{to}`"
            for caller, to in self.calls
            if caller and _layer(caller, layers) > _layer(to, layers)
        }
        modules = sum(map(len, folders.values()))
        rows = [f"| `{name}/` | {', '.join(held)} |" for name, held in folders.items()]
        back = ", ".join(sorted(upward)) or "none"
        return "\n".join(
            (
                f"**{self.title}** passes {len(self.own_modules)} modules of `{self.own}/`,",
                f"and {modules} of {len(folders)} folders in all.",
                f"Calls that point up, through a port: {back}.\n",
                "| folder | modules, in the order in which they are entered |",
                "| --- | --- |",
                *rows,
            )
        )


def _layer(module: str, layers: dict[str, int]) -> int:
    return layers.get(module.split("/", 1)[0], 0)


def _layers() -> dict[str, int]:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    rows = next(each for each in contract["contracts"] if each["id"] == "layers")["layers"]
    return {name: at for at, row in enumerate(rows) for name in re.findall(r"[a-z_]+", row)}


def _run(place: Path, program: str, stdin: str = "") -> tuple[tuple[str | None, str], ...]:
    variables = {"HOME": str(place.parent), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    line = [sys.executable, "-c", TRACER + program]
    done = subprocess.run(
        line, cwd=place, env=variables, input=stdin, text=True, capture_output=True, check=False
    )
    traced = place / "trace.json"
    if not traced.exists():
        raise SystemExit(f"nothing was traced: {done.stdout}{done.stderr}")
    calls = json.loads(traced.read_text())
    traced.unlink()
    return tuple((caller, to) for caller, to in calls)


def _paddock(place: Path, *arguments: str) -> str:
    variables = {"HOME": str(place.parent), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    line = [str(Path(sys.executable).with_name("paddock")), *arguments]
    done = subprocess.run(
        line, cwd=place, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)}: {done.stdout}{done.stderr}")
    return done.stdout


def walk_calls(place: Path) -> list[Walk]:
    """Walk one call that reads and one that writes, in a runtime that is open."""
    (place / "README.md").write_text("a walk\n")
    asked = {"view": 'view("README.md")', "create_file": 'create_file("b.md", "again")'}
    return [
        Walk(f"One `{name}`", "runtime", _run(place, CALL.replace("TOOL", line)))
        for name, line in asked.items()
    ]


def walk_hook(place: Path) -> Walk:
    """Walk one event of a client, decided by the image that the event before has left."""
    (place / "README.md").write_text("a walk\n")
    _paddock(place, "init")
    event = json.dumps({**EVENT, "cwd": str(place)})
    _run(place, HOOK, event)
    return Walk("One event of the hook", "apps/hook", _run(place, HOOK, event))


def walk_install(place: Path) -> Walk:
    """Walk the installation of a package that is signed and approved."""
    plane, package = place.parent / "plane", place / "walk"
    _paddock(place, "init", "--bare", str(plane))
    skill = package / "HO1" / "skills" / "walk" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL)
    (package / "manifest.json").write_text(json.dumps(MANIFEST))
    archive, asked = "PKG-WALK-001.tar.gz", ["--plane", str(plane), "package"]
    _paddock(place, "package", "hash", "walk")
    _paddock(place, "package", "pack", "walk", archive)
    _paddock(place, *asked, "sign", archive)
    _paddock(place, *asked, "approve", archive)
    program = COMMAND.replace("ARGUMENTS", repr([*asked, "install", archive]))
    return Walk("One `package install`", "packages", _run(place, program))


def walks() -> list[Walk]:
    """Walk everything, each in a directory of its own."""
    found: list[Walk] = []
    for make in (walk_calls, walk_hook, walk_install):
        with tempfile.TemporaryDirectory() as place:
            work = Path(place, "work")
            work.mkdir()
            made = make(work)
            found += made if isinstance(made, list) else [made]
    return found


def main() -> int:
    """Print the walks, or put them into a page between its marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    text = "\n\n".join(walk.render(_layers()) for walk in walks()) + "\n"
    if options.write is None:
        sys.stdout.write(text)
        return 0
    page = options.write.read_text(encoding="utf-8")
    before, _, rest = page.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    options.write.write_text(f"{before}{MARKS[0]}{text}{MARKS[1]}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
