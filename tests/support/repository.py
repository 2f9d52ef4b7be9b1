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


def files() -> Iterator[Path]:
    """Every file that is, or is about to be, under version control."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("needs git and a clone: without them nobody knows which files belong here")
    listing = subprocess.run(
        [
            git,
            "-c",
            f"safe.directory={ROOT}",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in sorted(listing.stdout.decode().split("\0")):
        path = ROOT / name
        if name and path.is_file():
            yield path
