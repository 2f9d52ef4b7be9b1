"""Peers' programs: installed by name from their registries, once, into one folder.

What cannot be had raises `Unavailable` with its reason, for the page to say; nothing of
it is counted. The folder stands in the temporary directory and may be removed at any time.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = Path(os.environ.get("TMPDIR", "/tmp"), "paddock-peers")


class Unavailable(Exception):
    """A peer that cannot be had here; the text says why."""


def printed_by(*command: str, cwd: Path | None = None) -> str:
    """What a program prints. Raises: Unavailable where it is missing or fails."""
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=cwd)
    except OSError as error:
        raise Unavailable(f"there is no program {command[0]}") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip() or error.stdout.strip() or "it said nothing").splitlines()
        why = next((line for line in said if "error" in line.lower()), said[-1])
        raise Unavailable(f"{Path(command[0]).name} failed: {why[:200]}") from error
    return done.stdout


def npm_package(name: str) -> Path:
    """The folder of a package of npm. Raises: Unavailable."""
    folder = HOME / "node_modules" / name
    if not folder.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        quietly = ("--loglevel", "error", "--no-audit", "--no-fund")
        printed_by("npm", "install", *quietly, "--prefix", str(HOME), name)
    return folder


def npm_program(package: str, name: str) -> str:
    """A program of a package of npm. Raises: Unavailable."""
    npm_package(package)
    return str(HOME / "node_modules" / ".bin" / name)


def npm_version(name: str) -> str:
    """Of an installed package of npm."""
    about = (HOME / "node_modules" / name / "package.json").read_text(encoding="utf-8")
    return json.loads(about)["version"]


def python_with(package: str) -> str:
    """An interpreter of the peers' own environment, with a package of PyPI. Raises: Unavailable."""
    python = peers_python()
    if not package_version(python, package):
        printed_by(python, "-m", "pip", "install", "-qq", package)
    return python


def peers_python() -> str:
    """The interpreter of the peers' own environment. Raises: Unavailable."""
    python = HOME / "python" / "bin" / "python"
    if not python.exists():
        try:
            printed_by(sys.executable, "-m", "venv", str(HOME / "python"))
        except Unavailable:
            shutil.rmtree(HOME / "python", ignore_errors=True)
            raise
    return str(python)


def package_version(python: str, package: str) -> str:
    """Of a package that an interpreter finds; empty where it finds none."""
    line = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", line], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def debian_packages(*names: str) -> Path:
    """Where packages of this Debian are unpacked, not installed. Raises: Unavailable."""
    folder = HOME / "debian" / "-".join(names)
    if not folder.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HOME) as fresh:
            place = Path(fresh)
            printed_by("apt-get", "download", "-qq", *names, cwd=place)
            for package in place.glob("*.deb"):
                printed_by("dpkg", "-x", str(package), str(place / "root"))
            folder.parent.mkdir(exist_ok=True)
            (place / "root").rename(folder)
    return folder
