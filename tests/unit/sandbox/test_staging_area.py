"""The staging area: what is made there, and that all of it goes away again."""

import contextlib
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddock.errors import HostError
from paddock.sandbox.changes.upper import host_owner
from paddock.sandbox.inside.protocol import HOST_IDS_COUNT, HOST_IDS_FIRST, make_stage, remove_tree
from paddock.sandbox.staging_area import StagingArea

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def area(tmp_path: Path):
    made = StagingArea(tmp_path / "staging")
    yield made
    made.claim.release()


@pytest.fixture
def workspace(tmp_path: Path):
    place = tmp_path / "workspace"
    (place / "a/b").mkdir(parents=True)
    for name in ("one", "a/two", "a/b/three"):
        (place / name).write_text(name)
    (place / "a").chmod(0o751)
    os.utime(place / "a", ns=(1_000_000_000, 1_000_000_007))
    fd = os.open(place, os.O_PATH)
    yield fd
    os.close(fd)


def shape(root: str) -> dict[str, str]:
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            look = os.lstat(path)
            is_whiteout = stat.S_ISCHR(look.st_mode) and look.st_rdev == 0
            found[os.path.relpath(path, root)] = "whiteout" if is_whiteout else "directory"
    return found


def test_hidden_names_become_whiteouts_with_their_parents(area: StagingArea, workspace: int):
    name = area.hide(workspace, ["one", "a/b/three", "a/two"])

    root = f"{area.path}/{name}"
    assert shape(root) == {
        "one": "whiteout",
        "a": "directory",
        "a/two": "whiteout",
        "a/b": "directory",
        "a/b/three": "whiteout",
    }
    look = os.stat(f"{root}/a")
    assert (stat.S_IMODE(look.st_mode), look.st_mtime_ns) == (0o751, 1_000_000_007)


def test_a_directory_with_hidden_names_keeps_its_setgid_bit(area: StagingArea, workspace: int):
    os.chmod("a", 0o2771, dir_fd=workspace)

    name = area.hide(workspace, ["a/two", "a/b/three"])

    root = f"{area.path}/{name}"
    assert [stat.S_IMODE(os.stat(f"{root}/{path}").st_mode) for path in ("a", "a/b")] == [
        0o2771,
        stat.S_IMODE(os.stat("a/b", dir_fd=workspace).st_mode),
    ]


def test_the_same_names_are_made_once_and_others_anew(area: StagingArea, workspace: int):
    first = area.hide(workspace, ["one", "a/two"])

    assert area.hide(workspace, ["a/two", "one"]) == first
    assert area.hide(workspace, ["one"]) != first
    os.chmod("a", 0o700, dir_fd=workspace)
    assert area.hide(workspace, ["one", "a/two"]) != first


def test_whiteouts_go_when_nobody_uses_them_and_others_are_newer(area: StagingArea, workspace: int):
    first = area.hide(workspace, ["one"])
    assert area.hide(workspace, ["one"]) == first
    second = area.hide(workspace, ["one", "a/two"])
    area.hold(second)
    for hidden in (first, second, second):
        area.release(hidden)
    assert area.take_unused() == []
    area.release(first)
    assert (area.take_unused(), area.take_unused()) == ([first], [])
    third = area.hide(workspace, ["one"])
    assert third not in (first, second)
    assert area.take_unused() == [second]
    area.release("")
    area.release(third)
    assert (area.take_unused(), area.hide(workspace, ["one"])) == ([], third)


def test_no_names_cost_nothing_and_a_parent_that_is_gone_has_none(
    area: StagingArea, workspace: int
):
    assert area.hide(workspace, []) == ""
    assert os.listdir(area.path) == []
    assert shape(f"{area.path}/{area.hide(workspace, ['gone/x', 'one'])}") == {"one": "whiteout"}


def test_a_stage_looks_like_the_workspaces_root(area: StagingArea, workspace: int):
    os.chmod(".", 0o2750, dir_fd=workspace)

    os.close(make_stage(area.fd, b"stage-1", workspace, -1, as_root=os.geteuid() == 0))

    look = os.stat(f"{area.path}/stage-1/upper")
    assert (stat.S_IMODE(look.st_mode), look.st_mtime_ns) == (
        0o2750,
        os.stat(".", dir_fd=workspace).st_mtime_ns,
    )
    assert host_owner(look.st_uid) == os.geteuid()
    assert stat.S_IMODE(os.stat(f"{area.path}/stage-1").st_mode) == 0o700


def test_owners_are_shifted_back_within_the_range_only():
    assert host_owner(HOST_IDS_FIRST) == 0
    assert host_owner(HOST_IDS_FIRST + 1000) == 1000
    assert host_owner(HOST_IDS_FIRST + HOST_IDS_COUNT) == HOST_IDS_FIRST + HOST_IDS_COUNT
    assert host_owner(1000) == 1000


def test_everything_is_removed_whatever_it_is(tmp_path: Path):
    home = tmp_path / "home"
    deep = home / "tree"
    deep.mkdir(parents=True)
    (home / "kept").write_text("kept")
    os.symlink(home / "kept", deep / "link")
    os.symlink(tmp_path, deep / "directory-link")
    os.mkfifo(deep / "pipe")
    (deep / "dark/inner").mkdir(parents=True)
    (deep / "dark/inner/file").write_text("x")
    (deep / "dark/inner").chmod(0)
    (deep / "dark").chmod(0)
    fd = os.open(deep, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)

    fd = os.open(home, os.O_RDONLY)
    remove_tree(fd, "tree")
    remove_tree(fd, "never-there")
    os.close(fd)

    assert os.listdir(home) == ["kept"]


class Exchanged:
    """Exchanges one directory for a link as soon as another that is removed before it is gone."""

    def __init__(self, tree: Path, target: Path) -> None:
        for number in range(_DIRECTORIES):
            (tree / f"d{number}").mkdir(parents=True)
        self.target = target
        self.at = os.open(tree, os.O_RDONLY)
        self.made = 0
        self.is_over = False
        self.thread = threading.Thread(target=self._exchange)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.thread.join()
        os.close(self.at)

    def _exchange(self) -> None:
        while len(os.listdir(self.at)) == _DIRECTORIES and not self.is_over:
            continue
        for number in reversed(range(_DIRECTORIES)):
            with contextlib.suppress(OSError):
                os.rmdir(f"d{number}", dir_fd=self.at)
                os.symlink(self.target, f"d{number}", dir_fd=self.at)
                self.made += 1


_DIRECTORIES = 3000
_ROUNDS_MAX = 20
"""On a busy machine a tree can be gone before the other thread had a turn."""


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_what_a_link_leads_to_that_took_a_directorys_place_stays_as_it_is(tmp_path: Path, kind):
    target = tmp_path / "theirs"
    target.mkdir() if kind == "directory" else target.write_text("theirs")
    target.chmod(0o555)
    made = 0
    for _ in range(_ROUNDS_MAX):
        exchanged = Exchanged(tmp_path / "home/tree", target)
        fd = os.open(tmp_path / "home", os.O_RDONLY)
        with exchanged:
            remove_tree(fd, "tree")
        os.close(fd)
        made += exchanged.made
        if made:
            break

    assert made > 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o555
    assert os.listdir(tmp_path / "home") == []


def test_an_area_that_cannot_be_made_is_an_error_of_the_host(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(HostError, match="cannot create a staging area"):
        StagingArea(tmp_path / "file/below")
    os.symlink(tmp_path, tmp_path / "link")
    with pytest.raises(HostError, match="cannot create a staging area"):
        StagingArea(tmp_path / "link")


def test_what_was_left_is_swept_and_what_is_in_use_is_not(tmp_path: Path, area: StagingArea):
    home = tmp_path / "staging"
    (home / f"launcher-{'0' * 16}/stage/upper").mkdir(parents=True)
    (home / "launcher-of-somebody").mkdir()

    other = StagingArea(home)

    expected = {os.path.basename(each.path) for each in (area, other)} | {"launcher-of-somebody"}
    assert set(os.listdir(home)) == expected
    other.claim.release()
    assert os.path.isdir(area.path)


def test_many_at_once_make_and_close_their_areas_and_keep_what_is_in_them(tmp_path: Path):
    home = tmp_path / "staging"

    def make_and_close() -> list[list[str]]:
        seen = []
        for _ in range(40):
            made = StagingArea(home)
            os.mkdir("stage", dir_fd=made.fd)
            os.close(os.open("stage/file", os.O_WRONLY | os.O_CREAT, dir_fd=made.fd))
            seen.append(os.listdir(f"{made.path}/stage"))
            made.claim.release()
        return seen

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(make_and_close) for _ in range(4)]
    assert [each.result() for each in found] == [[["file"]] * 40] * 4
    assert os.listdir(home) == []


def test_two_may_remove_the_same(tmp_path: Path):
    for number in range(300):
        (tmp_path / f"tree/d{number}/below").mkdir(parents=True)
        (tmp_path / f"tree/d{number}/file").write_text("x")
    fd = os.open(tmp_path, os.O_RDONLY)

    def remove_all() -> None:
        for name in os.listdir(fd):
            remove_tree(fd, name)

    with ThreadPoolExecutor(4) as pool:
        removals = [pool.submit(remove_all) for _ in range(4)]
    assert [each.result() for each in removals] == [None] * 4
    remove_all()
    os.close(fd)
    assert os.listdir(tmp_path) == []
