import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError, HostError
from paddock.plane.agents import AgentStore
from paddock.plane.create import OpenedPlane, open_plane
from paddock.plane.discover import ProjectRoot, plane_for
from paddock.plane.layout import PlaneLayout, path_id
from paddock.values.decisions import Agent, PlaneKind


def tree(directory: Path) -> dict[str, str]:
    """Every path below with its mode in octal."""
    return {
        str(path.relative_to(directory)): f"{stat.S_IMODE(path.lstat().st_mode):o}"
        for path in directory.rglob("*")
    }


def test_first_use_makes_the_whole_plane_and_the_next_finds_it(project, environment):
    root = ProjectRoot(project, PlaneKind.PROJECT)
    layout = plane_for(root, environment)
    assert open_plane(root, environment) == OpenedPlane(layout, created=True)
    made = tree(layout.root)
    assert made == {
        "HOT": "700",
        "HOT/config": "700",
        "HOT/ledger": "700",
        "HO2": "700",
        "HO2/ledger": "700",
        "HO2/scratch": "700",
        "HO1": "700",
        "HO1/ledger": "700",
        "agents": "700",
        "agents/main": "700",
        "agents/main/agent.json": "600",
        "objects": "700",
        "plane.json": "600",
    }
    assert json.loads(layout.record.read_bytes()) == {
        "format": 1,
        "root": str(project),
        "id": path_id(project),
    }
    assert open_plane(root, environment) == OpenedPlane(layout, created=False)
    assert tree(layout.root) == made
    assert tree(project) == {}


def test_the_state_directories_are_private(project, environment):
    open_plane(ProjectRoot(project, PlaneKind.PROJECT), environment)
    for directory in (environment.paddock_home, environment.planes):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_new_plane_has_the_agent_main_who_works_on_the_root(project, environment):
    layout = open_plane(ProjectRoot(project, PlaneKind.PROJECT), environment).layout
    [main] = AgentStore(layout, environment).read_all()
    file = layout.agent_file("main")
    assert main.agent == Agent("main", "standard", source=str(file), declaration=file.read_bytes())
    assert main.workspace == project


def test_a_bare_plane_is_opened_and_never_made(tmp_path, environment):
    root = ProjectRoot(tmp_path / "bare", PlaneKind.BARE)
    assert open_plane(root, environment) == OpenedPlane(
        PlaneLayout(tmp_path / "bare", PlaneKind.BARE), created=False
    )
    assert not (tmp_path / "bare").exists()


def test_nothing_is_made_where_state_lies_in_the_project(project, environment):
    inside = replace(environment, paddock_home=project / "state")
    with pytest.raises(ConfigError):
        open_plane(ProjectRoot(project, PlaneKind.PROJECT), inside)
    assert tree(project) == {}


@pytest.mark.parametrize("change", [{"root": "/elsewhere"}, {"id": "0" * 16}])
def test_a_plane_that_is_another_projects_is_refused(project, environment, change):
    root = ProjectRoot(project, PlaneKind.PROJECT)
    record = open_plane(root, environment).layout.record
    record.write_text(json.dumps(json.loads(record.read_bytes()) | change))
    with pytest.raises(ConfigError, match="belongs to"):
        open_plane(root, environment)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"format": 2, "root": "/", "id": ""}',
        b'{"format": 1, "root": "relative", "id": ""}',
    ],
)
def test_a_record_that_does_not_load_stops(project, environment, content):
    root = ProjectRoot(project, PlaneKind.PROJECT)
    record = open_plane(root, environment).layout.record
    record.write_bytes(content)
    with pytest.raises(ConfigError, match=r".") as caught:
        open_plane(root, environment)
    assert caught.value.where.startswith(str(record))
    assert record.read_bytes() == content


def test_a_plane_without_its_record_is_damaged_and_left_as_it_is(project, environment):
    root = ProjectRoot(project, PlaneKind.PROJECT)
    layout = open_plane(root, environment).layout
    layout.record.unlink()
    before = tree(layout.root)
    with pytest.raises(ConfigError, match=r"has no plane\.json"):
        open_plane(root, environment)
    assert tree(layout.root) == before
    assert os.listdir(environment.planes) == [layout.root.name]


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_plane_that_others_can_write_is_refused(project, environment, mode):
    root = ProjectRoot(project, PlaneKind.PROJECT)
    layout = open_plane(root, environment).layout
    layout.root.chmod(mode)
    with pytest.raises(ConfigError, match="written by others"):
        open_plane(root, environment)
    layout.root.chmod(0o700)
    open_plane(root, environment)


def test_a_link_in_place_of_the_plane_is_refused(project, environment, tmp_path):
    root = ProjectRoot(project, PlaneKind.PROJECT)
    layout = plane_for(root, environment)
    environment.planes.mkdir(parents=True, mode=0o700)
    (tmp_path / "elsewhere").mkdir()
    layout.root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="not a directory"):
        open_plane(root, environment)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_what_a_killed_builder_left_is_swept(project, environment):
    left = environment.planes / ".new-0123"
    (left / "HOT").mkdir(parents=True)
    environment.planes.chmod(0o700)
    layout = open_plane(ProjectRoot(project, PlaneKind.PROJECT), environment).layout
    assert os.listdir(environment.planes) == [layout.root.name]


def test_a_file_in_the_way_is_a_host_error(project, environment):
    environment.paddock_home.parent.mkdir(parents=True)
    environment.paddock_home.write_text("")
    with pytest.raises(HostError):
        open_plane(ProjectRoot(project, PlaneKind.PROJECT), environment)


def test_a_disk_that_fails_at_any_sync_leaves_no_plane_and_the_next_call_makes_it(
    project, environment, monkeypatch
):
    root = ProjectRoot(project, PlaneKind.PROJECT)
    sync = os.fsync
    for good_syncs in range(100):
        left = iter(range(good_syncs))

        def fail_later(descriptor: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "no space left")
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", fail_later)
        try:
            opened = open_plane(root, environment)
        except HostError:
            left_behind = list(environment.planes.iterdir()) if environment.planes.exists() else []
            assert left_behind in ([], [plane_for(root, environment).root])
            if left_behind:
                # The rename is done and whole; only its durability was in doubt.
                assert AgentStore(plane_for(root, environment), environment).names() == ("main",)
        else:
            break
    monkeypatch.undo()
    assert good_syncs > 10
    assert AgentStore(opened.layout, environment).names() == ("main",)


OPENER = """
import sys
from pathlib import Path
from paddock.plane.create import open_plane
from paddock.plane.discover import ProjectRoot
from paddock.plane.environment import read_environment
from paddock.values.decisions import PlaneKind
sys.stdin.readline()
home, project = sys.argv[1:]
opened = open_plane(ProjectRoot(Path(project), PlaneKind.PROJECT), read_environment({"HOME": home}))
print(opened.created)
"""


def test_eight_processes_at_first_use_get_one_whole_plane(project, environment):
    command = [sys.executable, "-c", OPENER, str(environment.home), str(project)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = sorted(process.communicate()[0].strip() for process in processes)
    assert answers == ["False"] * 7 + ["True"]
    assert [process.returncode for process in processes] == [0] * 8
    layout = plane_for(ProjectRoot(project, PlaneKind.PROJECT), environment)
    assert os.listdir(environment.planes) == [layout.root.name]
    assert AgentStore(layout, environment).names() == ("main",)
