from pathlib import Path

import pytest

from paddock.plane.environment import ledger_key_path
from paddock.plane.layout import PlaneLayout, path_id, plane_name
from paddock.values.decisions import PlaneKind

PLANE = PlaneLayout(Path("/p"), PlaneKind.BARE)


def test_every_ledger_has_its_tier():
    assert PLANE.ledger_paths() == {
        "governance": Path("/p/HOT/ledger/governance.jsonl"),
        "packages": Path("/p/HOT/ledger/packages.jsonl"),
        "ho2m": Path("/p/HO2/ledger/ho2m.jsonl"),
        "ho1m": Path("/p/HO1/ledger/ho1m.jsonl"),
    }


def test_the_other_places_of_a_plane():
    assert (
        PLANE.admin_config,
        PLANE.registries,
        PLANE.installed,
        PLANE.objects,
        PLANE.agent_file("a"),
        PLANE.agent_workspace("a"),
    ) == (
        Path("/p/HOT/config/admin_config.json"),
        Path("/p/HOT/registries"),
        Path("/p/HOT/installed"),
        Path("/p/objects"),
        Path("/p/agents/a/agent.json"),
        Path("/p/agents/a/workspace"),
    )


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ("/w/My Project", "my-project"),
        ("/w/.dotfiles", "dotfiles"),
        ("/w/..hidden..", "hidden"),
        ("/", "root"),
        ("/w/ünïcode", "n-code"),
        ("/w/\n\t", "root"),
        ("/w/" + "x" * 300, "x" * 40),
    ],
)
def test_a_plane_is_named_after_its_project(root, name):
    assert plane_name(Path(root)) == f"{name}-{path_id(Path(root))}"


def test_projects_of_one_name_have_different_planes():
    assert plane_name(Path("/a/app")) != plane_name(Path("/b/app"))


def test_the_ledger_key_lies_with_the_users_configuration(environment):
    keys = environment.config_home / "keys"
    of_project = PlaneLayout(Path("/s/planes/app-1"), PlaneKind.PROJECT)
    assert ledger_key_path(of_project, environment, "ho1m") == keys / "app-1.ho1m.key"
    bare = f"{plane_name(PLANE.root)}.governance.key"
    assert ledger_key_path(PLANE, environment, "governance") == keys / bare
