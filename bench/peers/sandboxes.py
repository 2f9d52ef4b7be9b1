"""Other sandboxes for a command: how each is had, and how a command is run in it.

Each is told the same: the workspace may be written, nothing beside it, and there is no
network. Whether that is so is tried before anything is timed (`try_out`).
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field
from peers.installing import (
    HOME,
    Unavailable,
    debian_packages,
    npm_package,
    npm_program,
    npm_version,
    printed_by,
)

HERE = Path(__file__).parent
RUNTIME, CODEX = "@anthropic-ai/sandbox-runtime", "@openai/codex"
WRITABLE = {
    "network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
}


class Way(Protocol):
    """A way to run a command in a workspace."""

    @property
    def name(self) -> str:
        """For the table."""
        ...

    @property
    def workspace(self) -> Path:
        """Where the command runs, and what it may write."""
        ...

    def run(self, argv: Sequence[str]) -> None:
        """Run it to its end. Raises: Unavailable where it fails."""
        ...

    def end(self) -> None:
        """Stop what was started for it."""
        ...


def surroundings() -> dict[str, str]:
    """The variables of every peer: a home of its own, and no more."""
    home = HOME / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


class Spawned(Struct, dict=True):
    """A program in front of the command, started for each."""

    name: str
    workspace: Path
    before: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=surroundings)

    def run(self, argv: Sequence[str]) -> None:
        done = subprocess.run(
            [*self.before, *argv],
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise Unavailable(f"ended with {done.returncode}: {said[-1][:200] if said else ''}")

    def end(self) -> None:
        pass


class Library:
    """The npm sandbox runtime in a process that goes on, as an agent embeds it."""

    def __init__(self, name: str, workspace: Path, module: Path, settings: Path) -> None:
        self.name = name
        self.workspace = workspace
        if shutil.which("node") is None:
            raise Unavailable("there is no program node")
        self._process = subprocess.Popen(
            ["node", str(HERE / "srt_library.mjs"), str(module), str(settings)],
            cwd=workspace,
            env=runtime_surroundings(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            self._read("ready")
        except Unavailable:
            self.end()
            raise

    def run(self, argv: Sequence[str]) -> None:
        self._process.stdin.write(shlex.join(argv) + "\n")
        self._process.stdin.flush()
        self._read("0")

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _read(self, expected: str) -> None:
        said = self._process.stdout.readline().strip()
        if said != expected:
            raise Unavailable(f"its library answered {said!r}, not {expected!r}")


def gather(workspace: Path, settings: Path) -> tuple[list[Way], list[str], list[str]]:
    """Who can be had, installed by name at first, with versions; who cannot, and why."""
    found: dict[str, Callable[[Path, Path], tuple[list[Way], str]]] = {
        "bubblewrap": _bubblewrap,
        "npm sandbox runtime": _runtime,
        "Codex": _codex,
    }
    settings.write_text(json.dumps(WRITABLE), encoding="utf-8")
    here: list[Way] = []
    versions, away = [], []
    for name, find in found.items():
        try:
            ways, version = find(workspace, settings)
            for way in ways:
                try_out(way, settings.with_name("not-for-them"))
        except Unavailable as reason:
            away.append(f"{name}: {reason}")
            continue
        here += ways
        versions.append(f"{name} {version}")
    return here, versions, away


def try_out(way: Way, outside: Path) -> None:
    """See that a file of the workspace can be written, and `outside` not. Raises: Unavailable."""
    made = way.workspace / "made.txt"
    made.unlink(missing_ok=True)
    try:
        way.run(writing("first"))
        if not made.exists() or made.read_text(encoding="utf-8") != "first\n":
            raise Unavailable("what the command wrote is not in the workspace")
        # What it ends with says nothing; whether the file is there does.
        way.run(("sh", "-c", f"echo escaped > {shlex.quote(str(outside))}; true"))
        if outside.exists():
            raise Unavailable("the command wrote outside of the workspace")
    except Unavailable:
        way.end()
        raise


def writing(text: str) -> tuple[str, ...]:
    """A command that writes a file of the workspace."""
    return ("sh", "-c", f"echo {text} > made.txt")


def _bubblewrap(workspace: Path, settings: Path) -> tuple[list[Way], str]:
    version = printed_by("bwrap", "--version").split()[-1]
    before = (
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"),
        *("--bind", str(workspace), str(workspace), "--chdir", str(workspace)),
    )
    return [Spawned("bubblewrap", workspace, before)], version


def _runtime(workspace: Path, settings: Path) -> tuple[list[Way], str]:
    program = npm_program(RUNTIME, "srt")
    before = (program, "--settings", str(settings))
    command = Spawned("npm sandbox runtime, srt", workspace, before, runtime_surroundings())
    module = npm_package(RUNTIME) / "dist" / "index.js"
    library = Library("npm sandbox runtime, library", workspace, module, settings)
    return [library, command], npm_version(RUNTIME)


def runtime_surroundings() -> dict[str, str]:
    """With socat, which the npm sandbox runtime needs on Linux. Raises: Unavailable."""
    variables = surroundings()
    if shutil.which("socat") is None:
        root = debian_packages("socat", "libwrap0")
        libraries = [str(folder) for folder in root.glob("usr/lib/*-linux-gnu")]
        variables["PATH"] += f":{root}/usr/bin"
        variables["LD_LIBRARY_PATH"] = ":".join(libraries)
    return variables


def _codex(workspace: Path, settings: Path) -> tuple[list[Way], str]:
    program, variables = codex_program()
    before = [program, "sandbox", "-c", 'sandbox_mode="workspace-write"']
    for place in ("exclude_slash_tmp", "exclude_tmpdir_env_var"):
        before += ["-c", f"sandbox_workspace_write.{place}=true"]
    return [Spawned("Codex", workspace, (*before, "--"), variables)], npm_version(CODEX)


def codex_program() -> tuple[str, dict[str, str]]:
    """Its own program, without the Node script of the package that starts it; its variables."""
    npm_package(CODEX)
    programs = sorted((HOME / "node_modules" / "@openai").glob("codex-*/vendor/*/bin/codex"))
    if not programs:
        raise Unavailable(f"{CODEX} brought no program for this machine")
    variables = surroundings()
    # It keeps a helper in its home, and refuses a home that is in the temporary directory.
    variables["TMPDIR"] = str(HOME / "home" / "tmp")
    Path(variables["TMPDIR"]).mkdir(exist_ok=True)
    return str(programs[0]), variables
