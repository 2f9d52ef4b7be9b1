"""A terminal-less user with a home of its own, standing in a project."""

import functools
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from paddock.apps.hook.settings import interpreters
from tests.support.places import Ran, run_command


@pytest.fixture(scope="session", autouse=True)
def _pythons_timed_once() -> Generator[None]:
    """Time the starts of a Python once: `hook install` starts each eleven times."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_ask", "_time_start"):
            patch.setattr(interpreters, name, functools.cache(getattr(interpreters, name)))
        yield


class User(Struct, dict=True):
    home: Path
    project: Path

    def run(self, *arguments: str, stdin: str | bytes = "") -> Ran:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        variables = {"HOME": str(self.home)}
        return run_command(*arguments, variables=variables, here=self.project, stdin=raw)

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
