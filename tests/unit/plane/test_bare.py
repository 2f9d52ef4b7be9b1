"""Making a bare plane: whole or no plane, and nothing that stands there is lost."""

import os
import stat
import threading
from pathlib import Path

import pytest

from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.plane.create import Blueprint, MadePlane, make_bare_plane
from paddock.plane.discover import (
    ProjectRoot,
    bare_planes_below,
    find_root,
    is_bare_plane,
    is_registered_bare_plane,
)
from paddock.plane.layout import BARE_DIRECTORIES, PlaneLayout
from paddock.storage.atomic import FILE_MODE, create_file
from paddock.values.decisions import PlaneKind

BLUEPRINT = Blueprint(b"{}", {"HOT/schemas/s.json": b"schema", "HOT/config/policy.toml": b"# p\n"})
MADE = {
    **dict.fromkeys(BARE_DIRECTORIES, "700"),
    "HOT/config/admin_config.json": b"{}",
    "HOT/config/policy.toml": b"# p\n",
    "HOT/schemas/s.json": b"schema",
}


def tree(directory: Path) -> dict[str, bytes | str]:
    """Every path below: a file's bytes, a directory's mode."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        if path.is_file()
        else f"{stat.S_IMODE(path.lstat().st_mode):o}"
        for path in directory.rglob("*")
    }


def build(layout, blueprint):
    """Nothing but the blueprint's files."""
    for name, content in blueprint.files.items():
        if create_file(layout.root / name, content, FILE_MODE):
            yield layout.root / name


def make(directory, blueprint, environment) -> MadePlane:
    return make_bare_plane(directory, blueprint, environment, build)


def test_a_plane_is_made_where_nothing_was(tmp_path, environment):
    plane = tmp_path / "new" / "plane"
    made = make(plane, BLUEPRINT, environment)
    layout = PlaneLayout(plane, PlaneKind.BARE)
    assert made == MadePlane(
        layout,
        (plane / "HOT/schemas/s.json", plane / "HOT/config/policy.toml", layout.admin_config),
        registered=True,
    )
    assert tree(plane) == MADE
    assert stat.S_IMODE(plane.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in plane.rglob("*") if p.is_file()} == {0o600}
    assert find_root(plane, environment) == ProjectRoot(plane, PlaneKind.BARE, accepted=True)


def test_an_empty_directory_becomes_a_plane_and_stays_the_same_directory(tmp_path, environment):
    plane = tmp_path / "plane"
    plane.mkdir()
    inode = plane.stat().st_ino
    make(plane, BLUEPRINT, environment)
    assert tree(plane) == MADE
    assert plane.stat().st_ino == inode


def test_a_second_time_nothing_changes(tmp_path, environment):
    plane = tmp_path / "plane"
    make(plane, BLUEPRINT, environment)
    (plane / "HO2/scratch/kept").write_bytes(b"kept")
    (plane / "HOT/config/policy.toml").write_bytes(b"# mine\n")
    before = tree(plane)
    again = make(plane, Blueprint(b'{"tool_profile": "development"}', {}), environment)
    assert again == MadePlane(PlaneLayout(plane, PlaneKind.BARE), (), registered=True)
    assert tree(plane) == before


def test_a_plane_that_somebody_else_brought_is_not_registered_by_init(tmp_path, environment):
    # Threat: an unpacked archive would come to count whole by being "made" once more.
    config = tmp_path / "plane" / "HOT" / "config"
    config.mkdir(parents=True)
    (config / "admin_config.json").write_bytes(b'{"tool_profile": "development"}')
    before = tree(tmp_path / "plane")
    made = make(tmp_path / "plane", BLUEPRINT, environment)
    assert made == MadePlane(PlaneLayout(tmp_path / "plane", PlaneKind.BARE), (), registered=False)
    assert not is_registered_bare_plane(tmp_path / "plane", environment)
    assert tree(tmp_path / "plane") == before


@pytest.mark.parametrize(
    "name",
    ["a.txt", ".hidden", "HOT/config/x", "HOT/schemas/s.json", "HO2/scratch/deep/x", ".git/config"],
)
def test_a_directory_with_something_of_its_own_is_refused_and_left_alone(
    tmp_path, environment, name
):
    plane = tmp_path / "plane"
    (plane / name).parent.mkdir(parents=True)
    (plane / name).write_bytes(b"precious")
    before = tree(plane)
    with pytest.raises(UsageError, match="neither empty nor a bare plane"):
        make(plane, BLUEPRINT, environment)
    assert tree(plane) == before
    assert not is_registered_bare_plane(plane, environment)


@pytest.mark.parametrize("name", ["HOT", "agents", "HOT/config/policy.toml"])
def test_a_link_in_the_place_of_a_part_is_refused(tmp_path, environment, name):
    plane, elsewhere = tmp_path / "plane", tmp_path / "elsewhere"
    (plane / name).parent.mkdir(parents=True)
    elsewhere.mkdir()
    (plane / name).symlink_to(elsewhere)
    with pytest.raises(UsageError, match="neither empty nor a bare plane"):
        make(plane, BLUEPRINT, environment)
    assert list(elsewhere.iterdir()) == []


def test_a_file_is_no_directory_to_make_a_plane_of(tmp_path, environment):
    (tmp_path / "plane").write_bytes(b"precious")
    with pytest.raises(UsageError, match="is not a directory"):
        make(tmp_path / "plane", BLUEPRINT, environment)
    assert (tmp_path / "plane").read_bytes() == b"precious"


def test_a_plane_and_paddocks_own_files_do_not_overlap(environment):
    environment.config_home.mkdir(parents=True)
    places = (environment.home, environment.paddock_home / "x", environment.config_home / "x")
    for place in places:
        with pytest.raises(ConfigError, match="is inside"):
            make(place, BLUEPRINT, environment)
        assert not is_bare_plane(place)
    make(environment.home / "plane", BLUEPRINT, environment)


def test_a_plane_inside_a_plane_is_refused(tmp_path, environment):
    make(tmp_path / "plane", BLUEPRINT, environment)
    inner = tmp_path / "plane" / "HO2" / "scratch" / "inner"
    inner.mkdir()
    with pytest.raises(ConfigError, match="is in the bare plane"):
        make(inner, BLUEPRINT, environment)
    assert list(inner.iterdir()) == []


def test_a_directory_that_others_can_write_to_is_refused(tmp_path, environment):
    plane = tmp_path / "plane"
    plane.mkdir()
    plane.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        make(plane, BLUEPRINT, environment)
    assert list(plane.iterdir()) == []
    plane.chmod(0o755)
    make(plane, BLUEPRINT, environment)


def test_what_a_stopped_init_left_is_completed_at_every_step(tmp_path, environment):
    steps = [*BARE_DIRECTORIES, *BLUEPRINT.files]
    for done in range(len(steps) + 1):
        plane = tmp_path / f"plane-{done}"
        plane.mkdir()
        for step in steps[:done]:
            if step in BLUEPRINT.files:
                (plane / step).write_bytes(BLUEPRINT.files[step])
                (plane / step).chmod(0o600)
            else:
                (plane / step).mkdir(0o700)
        if done:
            (plane / "HOT" / f".paddock-{'0' * 32}.tmp").write_bytes(b"half")
        assert not is_bare_plane(plane)
        make(plane, BLUEPRINT, environment)
        found = tree(plane)
        found.pop(f"HOT/.paddock-{'0' * 32}.tmp", None)
        assert found == MADE, steps[:done]


def test_of_many_at_once_one_makes_it_and_all_find_it(tmp_path, environment):
    plane = tmp_path / "plane"
    results: list[MadePlane | PaddockError] = []
    start = threading.Barrier(8)

    def make_one() -> None:
        start.wait()
        try:
            results.append(make(plane, BLUEPRINT, environment))
        except PaddockError as error:
            results.append(error)

    threads = [threading.Thread(target=make_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(len(made.made) for made in results) == [0] * 7 + [3]
    assert tree(plane) == MADE


def test_a_link_to_a_directory_names_that_directory(tmp_path, environment):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert make(tmp_path / "link", BLUEPRINT, environment).layout.root == (tmp_path / "real")
    assert os.path.islink(tmp_path / "link")


def test_the_planes_below_a_directory_are_those_that_were_registered(tmp_path, environment):
    assert bare_planes_below(tmp_path, environment) == ()
    for name in ("b/deep", "a", "a-b"):
        make(tmp_path / name, BLUEPRINT, environment)
    (tmp_path / "c/HOT/config").mkdir(parents=True)
    (tmp_path / "c/HOT/config/admin_config.json").write_bytes(b"{}")
    (environment.paddock_home / "bare" / "broken.json").write_bytes(b"{")
    assert bare_planes_below(tmp_path, environment) == ("a", "a-b", "b/deep")
    assert bare_planes_below(tmp_path / "b", environment) == ("deep",)
    assert bare_planes_below(tmp_path / "a", environment) == ()
