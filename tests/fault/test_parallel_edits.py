"""A hundred edits of one file at once, each of its own line: all of them land."""

import threading
from collections.abc import Callable

import pytest

from paddock.workspace import Workspace
from paddock.workspace.listing import list_directory
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import edit_file, write_file
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.children import start
from tests.support.disks import temporaries

EDITS = 100
EXPECTED = b"".join(b"line %03d done\n" % number for number in range(EDITS))


class Done:
    """Marks one line as done, and notices if it was done before."""

    def __init__(self, number: int) -> None:
        self.old = b"line %03d todo\n" % number
        self.new = b"line %03d done\n" % number

    def apply(self, content: bytes) -> Pieces:
        assert content.count(self.old) == 1
        return (content.replace(self.old, self.new),)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(EXPECTED.replace(b"done", b"todo"))
    return str(tmp_path)


def edit(workspace: Workspace, number: int) -> None:
    receipt = edit_file(workspace, workspace.resolve_write("a/file"), Done(number))
    assert receipt.doing.after != receipt.doing.before


def failures_of_threads(act: Callable[[int], object]) -> list[BaseException]:
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            act(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(EDITS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_threads_of_one_workspace_lose_no_edit(root):
    with Workspace.open(root) as workspace:
        assert failures_of_threads(lambda number: edit(workspace, number)) == []
    with open(f"{root}/a/file", "rb") as file:
        assert file.read() == EXPECTED
    assert temporaries(root) == []


@pytest.mark.needs("openat2")
def test_processes_with_workspaces_of_their_own_and_either_resolution_lose_no_edit(root):
    def act(number: int) -> None:
        resolution = (Openat2Resolution, WalkResolution)[number % 2]()
        with Workspace.open(root, resolution) as workspace:
            edit(workspace, number)

    children = [start(lambda _, number=number: act(number)) for number in range(EDITS)]
    codes = [child.end()[0] for child in children]
    assert codes == [0] * EDITS
    with open(f"{root}/a/file", "rb") as file:
        assert file.read() == EXPECTED
    assert temporaries(root) == []


def test_forked_children_that_share_the_parents_workspace_lose_no_edit(root):
    with Workspace.open(root) as workspace:
        children = [
            start(lambda _, number=number: edit(workspace, number)) for number in range(EDITS)
        ]
        codes = [child.end()[0] for child in children]
    assert codes == [0] * EDITS
    with open(f"{root}/a/file", "rb") as file:
        assert file.read() == EXPECTED


def test_parallel_creations_below_one_missing_directory_all_land(root):
    def create(number: int) -> None:
        path = workspace.resolve_write(f"new/deep/{number % 5}/file{number}")
        write_file(workspace, path, b"%d" % number)

    with Workspace.open(root) as workspace:
        assert failures_of_threads(create) == []
        found = list_directory(workspace, workspace.resolve_read("new"), 3, 1000)
    assert sum(entry.size_bytes > 0 for entry in found.entries) == EDITS
