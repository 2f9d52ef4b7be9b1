"""A terminal-less user with a home of its own, standing in a project."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.support.places import Place, Ran, new_place, run_command
from tests.support.planes import Operator, operator_with_plane


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


@pytest.fixture
def asking(user: User, request: pytest.FixtureRequest) -> User:
    """A user who trusts the policy that the module calls ASKING."""
    (user.project / "paddock.toml").write_bytes(request.module.ASKING)
    assert user.run("trust", "--yes").status == 0
    return user


@pytest.fixture
def operator() -> Iterator[Operator]:
    with operator_with_plane() as made:
        yield made


@pytest.fixture
def dev() -> Iterator[Operator]:
    with operator_with_plane("--dev") as made:
        yield made


@pytest.fixture
def place() -> Iterator[Place]:
    with new_place() as made:
        yield made


@pytest.fixture
def lived(user):
    """A project in which something happened."""
    assert user.call("create_file", path="f", content="x").status == 0
    assert user.run("run", "hello").status == 0
    return user
