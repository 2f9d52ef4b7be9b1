"""A workspace in every test, by either resolution."""

from pathlib import Path

import pytest
from msgspec import Struct

from paddock.workspace import Workspace
from paddock.workspace.workspace import Openat2Resolution, Resolution, WalkResolution

RESOLUTIONS = [
    pytest.param(Openat2Resolution, id="openat2", marks=pytest.mark.needs("openat2")),
    pytest.param(WalkResolution, id="walk"),
]


class Ground(Struct, dict=True):
    """The workspace under test, where it stands, and the outside with its bait."""

    workspace: Workspace
    root: Path
    outside: Path


@pytest.fixture(params=RESOLUTIONS)
def resolution(request) -> Resolution:
    return request.param()


@pytest.fixture
def ground(tmp_path, resolution):
    """`ws` beside `outside`, which holds a file and a directory; and `ws-evil` beside both."""
    root, outside, evil = tmp_path / "ws", tmp_path / "outside", tmp_path / "ws-evil"
    for folder in (root, outside, evil, outside / "dir"):
        folder.mkdir()
    for file in (outside / "file", outside / "dir/file", evil / "file"):
        file.write_bytes(b"outside\n")
    with Workspace.open(str(root), resolution) as workspace:
        yield Ground(workspace, root, outside)
