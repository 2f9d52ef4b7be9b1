"""A terminal-less user with a home of its own, standing in a project."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.apps.cli.console import Console
from paddock.apps.cli.main import main


@dataclass(frozen=True)
class Ran:
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class User:
    home: Path
    project: Path

    def run(self, *arguments: str, stdin: str | bytes = "") -> Ran:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.StringIO(), io.StringIO()
        console = Console(
            io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8"),
            out,
            err,
            {"HOME": str(self.home)},
            self.project,
        )
        status = main(list(arguments), console)
        return Ran(status, out.getvalue(), err.getvalue())

    def call(self, tool: str, *options: str, **arguments: Any) -> Ran:
        return self.run("call", tool, json.dumps(arguments), *options)

    def files(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.project))
            for path in self.project.rglob("*")
            if path.is_file() and ".git" not in path.parts
        )


@pytest.fixture
def user(tmp_path: Path) -> User:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (project / "README.md").write_bytes(b"hello teh world\n")
    return User(tmp_path / "home", project)
