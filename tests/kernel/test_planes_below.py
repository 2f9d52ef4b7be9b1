"""An agent whose workspace holds a bare plane of its user: it changes nothing in it."""

from pathlib import Path

import pytest

from tests.support.disks import tree
from tests.support.shells import Yard

ATTACKS = (
    "echo x > ops/plane/HOT/config/policy.toml",
    "echo x > ops/plane/HOT/registries/keys/mine.json",
    "mv ops/plane ops/was",
    "mv ops was",
    "rm -rf ops/plane/HOT",
    "mkdir d && ln -s ../ops/plane/HOT d/x && echo x > d/x/config/admin_config.json",
    "chmod -R 777 ops/plane",
)


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    """A checkout in which a plane stood before anybody worked in it."""
    made = Yard(tmp_path)
    made.home.mkdir()
    made.root.mkdir()
    assert made.cli("init", "--bare", "ops/plane", "--dev").status == 0
    return made.make()


def test_no_tool_writes_in_the_plane_and_every_tool_beside_it(yard):
    before = tree(yard.root / "ops")
    with yard.opened() as terminal:
        for path in (
            *("HOT/config/admin_config.json", "HOT/config/policy.toml", "HO2/scratch/new"),
            *("HOT/registries/keys/mine.json", "HOT/ledger/governance.jsonl"),
        ):
            said = terminal.call("create_file", path=f"ops/plane/{path}", content="{}")
            assert said.refusal.code == "policy.protected", path
        assert tree(yard.root / "ops") == before
        assert terminal.call("view", path="ops/plane/HOT/config/policy.toml").status == "ok"
        made = terminal.call("create_file", path="ops/HOT/config/policy.toml", content="x")
        assert made.status == "ok"


@pytest.mark.needs("stage")
@pytest.mark.needs("bash")
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_changes_the_plane_and_every_command_what_is_beside_it(yard, attack):
    plane = yard.root / "ops" / "plane"
    before = tree(plane)
    with yard.opened() as terminal:
        assert terminal.sneak(attack)["changes_refused"]
        assert terminal.sneak("echo x > ops/new; mkdir ops/HOT")["changes_refused"] == []
    assert tree(plane) == before
    assert (yard.root / "ops" / "new").read_text() == "x\n"
    assert yard.cli("--plane", str(plane), "agent", "list").status == 0
