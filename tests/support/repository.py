"""Where things stand in this repository, and what belongs to it."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "paddock"


def modules(package: Path = PACKAGE) -> Iterator[Path]:
    """Every Python file of the package, in order; what planes are made of is none of them."""
    brought = package / "bootstrap"
    yield from sorted(path for path in package.rglob("*.py") if brought not in path.parents)


def documents() -> Iterator[Path]:
    """Every Markdown file that a reader is meant to find."""
    yield from sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def git(*arguments: str) -> str:
    """What git prints in this clone; the test skips where there is no git or no clone."""
    program = shutil.which("git")
    if program is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a clone: what belongs here, and what was, only git knows")
    command = [program, "-c", f"safe.directory={ROOT}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def files() -> Iterator[Path]:
    """Every file that is, or is about to be, under version control."""
    for name in sorted(
        git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    ):
        path = ROOT / name
        if name and path.is_file():
            yield path
