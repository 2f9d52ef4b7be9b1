"""A file that says it has more bytes than anybody waits for: nothing reads it to its end."""

import os

import pytest

from paddock import limits
from paddock.errors import TextTooLargeError
from paddock.workspace.changes import entry_state
from paddock.workspace.single_change import delete_entry, move_entry, write_file

SHOWN = 1_000


def view(workspace):
    with workspace.open_file(workspace.resolve_read("endless")) as file:
        file.window(1, 10, SHOWN)


def view_with_version(workspace):
    with workspace.open_file(workspace.resolve_read("endless")) as file:
        file.window(1, 10, SHOWN)


ACTS = {
    "view": view,
    "view with version": view_with_version,
    "version": lambda workspace: workspace.version(workspace.resolve_read("endless")),
    "overwrite": lambda workspace: write_file(workspace, workspace.resolve_write("endless"), b""),
    "move": lambda workspace: move_entry(
        workspace, workspace.resolve_entry("endless"), workspace.resolve_write("moved")
    ),
    "delete": lambda workspace: delete_entry(workspace, workspace.resolve_entry("endless")),
    "look": lambda workspace: entry_state(workspace, workspace.resolve_entry("endless")),
}


@pytest.fixture(params=ACTS.values(), ids=ACTS.keys())
def act(request):
    return request.param


def test_it_is_refused_at_once_and_stays_as_it_is(ground, act):
    size = limits.versioned_file_bytes_max + 1
    (ground.root / "endless").touch()
    os.truncate(ground.root / "endless", size)
    with pytest.raises(TextTooLargeError, match=f"'endless' has {size} bytes"):
        act(ground.workspace)
    assert os.listdir(ground.root) == ["endless"]
    assert os.stat(ground.root / "endless").st_size == size


def test_a_small_one_is_not(ground, act):
    (ground.root / "endless").touch()
    act(ground.workspace)


def test_its_beginning_can_be_read(ground):
    (ground.root / "endless").write_bytes(b"one\n")
    os.truncate(ground.root / "endless", limits.versioned_file_bytes_max + 1)
    with ground.workspace.open_file(ground.workspace.resolve_read("endless")) as file:
        assert file.read_start(4) == b"one\n"
