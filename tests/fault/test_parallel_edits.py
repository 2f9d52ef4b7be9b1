"""A hundred edits of one file at once, each of its own line: all of them land."""

import os
import threading

import pytest

from paddock.workspace import Openat2Resolution, WalkResolution, Workspace
from tests.support.disks import temporaries

EDITS = 100
EXPECTED = b"".join(b"line %03d done\n" % number for number in range(EDITS))


class Done:
    """Marks one line as done, and notices if it was done before."""

    def __init__(self, number: int) -> None:
        self.old = b"line %03d todo\n" % number
        self.new = b"line %03d done\n" % number

    def apply(self, content: bytes) -> bytes:
        assert content.count(self.old) == 1
        return content.replace(self.old, self.new)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").write_bytes(EXPECTED.replace(b"done", b"todo"))
    return str(tmp_path)


def edit(workspace: Workspace, number: int) -> None:
    receipt = workspace.edit_file(workspace.resolve_write("a/file"), Done(number))
    assert receipt.version != receipt.version_before


def test_by_threads_of_one_workspace(root):
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            edit(workspace, number)
        except BaseException as failure:
            failures.append(failure)

    with Workspace.open(root) as workspace:
        threads = [threading.Thread(target=one, args=(number,)) for number in range(EDITS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    with open(f"{root}/a/file", "rb") as file:
        assert file.read() == EXPECTED
    assert temporaries(root) == []


@pytest.mark.needs("openat2")
def test_by_processes_with_workspaces_of_their_own_and_either_resolution(root):
    children = []
    for number in range(EDITS):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                resolution = (Openat2Resolution, WalkResolution)[number % 2]()
                with Workspace.open(root, resolution) as workspace:
                    edit(workspace, number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * EDITS
    with open(f"{root}/a/file", "rb") as file:
        assert file.read() == EXPECTED
    assert temporaries(root) == []


def test_by_forked_children_that_share_the_parents_workspace(root):
    children = []
    with Workspace.open(root) as workspace:
        for number in range(EDITS):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    edit(workspace, number)
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * EDITS
    with open(f"{root}/a/file", "rb") as file:
        assert file.read() == EXPECTED


def test_parallel_creations_below_one_missing_directory_all_land(root):
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            path = workspace.resolve_write(f"new/deep/{number % 5}/file{number}")
            workspace.write_file(path, b"%d" % number)
        except BaseException as failure:
            failures.append(failure)

    with Workspace.open(root) as workspace:
        threads = [threading.Thread(target=one, args=(number,)) for number in range(EDITS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = workspace.list_directory(workspace.resolve_read("new"), 3, 1000)
    assert failures == []
    assert sum(entry.size_bytes > 0 for entry in found.entries) == EDITS
