"""A workspace to search, and where it stands."""

import pytest

from paddock.workspace import Workspace


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(root):
    with Workspace.open(str(root)) as opened:
        yield opened
