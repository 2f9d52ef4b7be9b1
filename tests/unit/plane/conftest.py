"""A user with a home, and a project of theirs."""

from pathlib import Path

import pytest

from paddock.plane.environment import Environment, read_environment


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    home = tmp_path / "home"
    home.mkdir()
    return read_environment({"HOME": str(home)})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory
