"""Sets, single writes and moves at once in the same directories: none waits for ever."""

import os
from pathlib import Path

import pytest

from paddock.errors import FileChangedError, PathExistsError, PathNotFoundError
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    MakeDirectory,
    RemoveDirectory,
    RemoveFile,
    WriteFile,
)
from paddock.workspace.paths import unchecked_path as at
from paddock.workspace.single_change import move_entry, write_file
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.changes import (
    Bench,
    File,
    Folder,
    content,
    lay_out,
    memory_directory,
    model_of,
    open_bench,
    seen,
)
from tests.support.children import start

TURNS = 25
FOLDERS = ["a", "b", "b/c", "d", "."]
REFUSED = (FileChangedError, PathNotFoundError, PathExistsError)


def name_in(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def sets(bench: Bench, number: int) -> int:
    """Write one content to a file in every directory, in changing order."""
    done = 0
    for turn in range(TURNS):
        folders = FOLDERS if (turn + number) % 2 else FOLDERS[::-1]
        text = content(b"%d %d" % (number, turn))
        try:
            changes = [
                WriteFile(at(name_in(f, "shared")), text, seen(bench.root, name_in(f, "shared")))
                for f in folders
            ]
            bench.commit(*changes)
            done += 1
        except (*REFUSED, FileNotFoundError):
            continue
    return done


def writes(bench: Bench, number: int) -> int:
    for turn in range(TURNS):
        path = name_in(FOLDERS[turn % len(FOLDERS)], f"own{number}")
        write_file(bench.workspace, bench.workspace.resolve_write(path), b"%d" % turn)
    return TURNS


def moves(bench: Bench, number: int) -> int:
    here = name_in(FOLDERS[0], f"moved{number}")
    write_file(bench.workspace, bench.workspace.resolve_write(here), b"moved")
    for turn in range(TURNS):
        there = name_in(FOLDERS[(turn + 1) % len(FOLDERS)], f"moved{number}")
        workspace = bench.workspace
        move_entry(workspace, workspace.resolve_entry(here), workspace.resolve_write(there))
        here = there
    return TURNS


def comes_and_goes(bench: Bench, number: int) -> int:
    """Make a tree and remove it, as two sets."""
    top = name_in("d", f"tree{number}")
    for _ in range(TURNS):
        bench.commit(
            MakeDirectory(at(top), Absent()),
            MakeDirectory(at(f"{top}/e"), Absent()),
            WriteFile(at(f"{top}/e/x"), content(b"x"), Absent()),
        )
        bench.commit(
            RemoveDirectory(at(top)),
            RemoveDirectory(at(f"{top}/e")),
            RemoveFile(at(f"{top}/e/x"), seen(bench.root, f"{top}/e/x")),
        )
    return TURNS


ACTS = (sets, sets, sets, writes, moves, comes_and_goes)


@pytest.fixture
def base():
    with memory_directory() as directory:
        model = {folder: Folder() for folder in FOLDERS if folder != "."}
        model |= {name_in(folder, "shared"): File(b"first") for folder in FOLDERS}
        lay_out(directory / "ws", model)
        with open_bench(directory):
            yield directory


def act(base: Path, number: int, told: int) -> None:
    resolution = (Openat2Resolution, WalkResolution)[number % 2]()
    with open_bench(base, resolution=resolution) as bench:
        os.write(told, b"%d" % ACTS[number](bench, number))


@pytest.mark.needs("openat2")
def test_sets_writes_and_moves_of_six_processes_all_end_and_each_set_is_whole(base):
    children = [
        start(lambda told, number=number: act(base, number, told)) for number in range(len(ACTS))
    ]
    ended = [child.end() for child in children]
    assert [code for code, _ in ended] == [0] * len(ACTS)
    assert all(int(counted) for _, counted in ended)
    found = model_of(base / "ws")
    # The last of the sets that were not refused, in every directory.
    assert len({found[name_in(folder, "shared")].content for folder in FOLDERS}) == 1
    assert [name for name in found if ".paddock-" in name or "tree" in name] == []
    assert [found[name].content for name in found if "moved" in name] == [b"moved"]
    assert os.listdir(base / "journal") == []


def test_a_process_that_edits_a_file_in_the_middle_makes_the_set_give_way(base):
    """Two-sided: the set that believes the old version is refused, the next one is not."""
    with open_bench(base) as mine, open_bench(base) as theirs:
        believed = seen(mine.root, "a/shared")
        workspace = theirs.workspace
        receipt = write_file(workspace, workspace.resolve_write("a/shared"), b"theirs")
        before = model_of(mine.root)
        changes = [
            WriteFile(at("b/shared"), content(b"mine"), seen(mine.root, "b/shared")),
            WriteFile(at("a/shared"), content(b"mine"), believed),
        ]
        with pytest.raises(FileChangedError, match="a/shared"):
            mine.commit(*changes)
        assert model_of(mine.root) == before
        mine.commit(
            changes[0], WriteFile(at("a/shared"), content(b"mine"), AtVersion(receipt.doing.after))
        )
        assert model_of(mine.root)["a/shared"].content == b"mine"
