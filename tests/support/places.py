"""Somewhere to stand: a home, a project, and things outside it that must stay as they are."""

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from paddock.apps.cli.main import main
from paddock.apps.console import Console
from paddock.plane.environment import Environment, read_environment
from tests.support.disks import tree

SECRET = "correct-horse-battery-staple"


class Ran(Struct, frozen=True, dict=True):
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_command(
    *arguments: str, variables: Mapping[str, str], here: Path, stdin: bytes = b""
) -> Ran:
    """One command, in this process, of a user without a terminal."""
    out, err = io.StringIO(), io.StringIO()
    source = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    # `ledger tail` would follow for ever.
    status = main(list(arguments), Console(source, out, err, variables, here, _wait_no_more))
    return Ran(status, out.getvalue(), err.getvalue())


def _wait_no_more(_: float) -> bool:
    return False


class Ground(Struct, frozen=True, dict=True):
    """`base` holds a home and a project."""

    base: Path

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def project(self) -> Path:
        return self.base / "project"


class Place(Ground, frozen=True):
    """An outside as well."""

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def environment(self) -> Environment:
        return read_environment({"HOME": str(self.home)})

    def run(self, *arguments: str, stdin: bytes = b"") -> Ran:
        variables = {"HOME": str(self.home)}
        return run_command(*arguments, variables=variables, here=self.project, stdin=stdin)

    def fill(self) -> None:
        """The project's files as every example finds them; what else is there goes."""
        with os.scandir(self.project) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry)
                else:
                    os.unlink(entry)
        for folder in ("src", "empty", ".git"):
            (self.project / folder).mkdir()
        files = {
            "README.md": b"# Widgets\nhello teh world\n",
            "src/a.py": "x = 1\r\ny = 'é'\r\n".encode(),
            "src/binary": b"\0\1\2",
            "src/latin": b"caf\xe9\n",
            ".git/config": b"[core]\n",
            ".env": f"TOKEN={SECRET}\n".encode(),
        }
        for name, content in files.items():
            (self.project / name).write_bytes(content)
        links = {
            "out": self.outside,
            "out.txt": self.outside / "kept.txt",
            "inner": "src",
            "dangling": "nowhere",
            "loop": "loop",
            "proc": "/proc/self/root",
        }
        for name, target in links.items():
            (self.project / name).symlink_to(target)
        os.mkfifo(self.project / "fifo")

    def untouchable(self) -> dict[str, object]:
        """What no call may change: outside, and what policy protects inside."""
        found = {
            name: (self.project / name).read_bytes()
            for name in (".git/config", ".env", "paddock.toml")
            if (self.project / name).exists()
        }
        return {**tree(self.outside), **found, "base": sorted(os.listdir(self.base))}


@contextlib.contextmanager
def new_place() -> Generator[Place, None, None]:
    """A place that is gone afterwards, in memory where there is such a directory.

    Ten thousand calls wait for ten thousand syncs; what is looked at here is not durability.
    """
    memory = "/dev/shm"
    usable = os.path.isdir(memory) and os.access(memory, os.W_OK | os.X_OK)
    with tempfile.TemporaryDirectory(dir=memory if usable else None, prefix="paddock-") as name:
        place = Place(Path(name))
        for folder in (place.home, place.project, place.outside):
            folder.mkdir()
        (place.outside / "kept.txt").write_bytes(b"kept\n")
        place.fill()
        yield place


@contextlib.contextmanager
def program_place(monkeypatch: pytest.MonkeyPatch) -> Generator[Place, None, None]:
    """A place whose home is that of this very process, as of a program that imports Paddock."""
    with new_place() as made:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "PADDOCK_HOME", "PADDOCK_PLANE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(made.home))
        yield made
