"""`run_shell_dev` on a bare plane: its directories stay where and what they are."""

import os
import stat
from pathlib import Path

import pytest

from tests.support.planes import RISKY, Operator, operator_in
from tests.support.shells import hide

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    made = operator_in(tmp_path).make("--dev")
    made.change(permissions={"forbidden": []})
    return made


def run(operator: Operator, command: str) -> dict[str, object]:
    variables = {**RISKY, "PATH": os.environ["PATH"]}
    ran = operator.call("run_shell_dev", variables=variables, command=hide(command))
    is_lost = bool(ran.json["changes_refused"]) and ran.json["exit_code"] == 0
    assert ran.status == int(is_lost), ran.out
    return ran.json


def directories(operator: Operator) -> dict[str, int]:
    """The plane's directories but what is in its scratch and beside its ledgers, with mode."""
    return {
        path.relative_to(operator.plane).as_posix(): path.lstat().st_mode
        for path in operator.plane.rglob("*")
        if not path.is_file() and "scratch/" not in str(path) and "objects/" not in str(path)
        if ".d/" not in f"{path}/"
    }


@pytest.mark.parametrize(
    "attack",
    [
        "mkdir -p HO2/scratch/ag/x && rmdir agents && ln -s HO2/scratch/ag agents",
        "mkdir -p HO2/scratch/ag/x && mv agents HO2/scratch/was && ln -s HO2/scratch/ag agents",
        "rmdir agents && echo > agents",
        "mkdir -p HO2/scratch/ag && ln -s ../HO2/scratch/ag agents/x",
        "mv HO1/contracts HO2/scratch/was && ln -s ../HO2/scratch/was HO1/contracts",
        "rm -rf HO2/tests HO1/kernel; rmdir HOT/registries/keys; ln -sT ../../HO2/scratch HOT/registries/keys",
        "chmod 777 HOT HOT/registries HOT/config agents HO1 HO2 HO2/scratch objects",
        "echo > HO1/contracts/PRC-X.json; mkdir HOT/registries/specs; echo > HOT/schemas/x.json",
    ],
)
def test_no_command_moves_replaces_or_opens_a_planes_own_directory(operator, attack):
    before = directories(operator)
    said = run(operator, attack)
    assert said["changes_refused"]
    assert directories(operator) == before
    assert not any(operator.plane.rglob("PRC-X.json"))
    listed = operator.run("agent", "list", "--json", variables=RISKY)
    assert (listed.status, [each["name"] for each in listed.json]) == (0, ["admin"])


def test_below_the_planes_directories_a_command_does_all_of_it(operator):
    said = run(
        operator,
        "cd HO2/scratch && mkdir -p agents/x d/e && rmdir agents/x && ln -s d agents/y"
        " && chmod 777 d && mv d/e f && echo 1 > ../new && echo 1 > ../../HOT/kernel/a",
    )
    assert said["changes_refused"] == []
    scratch = operator.plane / "HO2/scratch"
    assert (scratch / "agents/y").is_symlink()
    assert stat.S_IMODE((scratch / "d").stat().st_mode) == 0o777
    assert (scratch / "f").is_dir()
    assert (operator.plane / "HO2/new").read_text() == "1\n"
    assert (operator.plane / "HOT/kernel/a").read_text() == "1\n"


def test_a_command_sees_nothing_of_what_paddock_keeps_and_all_of_what_is_an_agents(operator):
    for content in ("the password", "another"):
        operator.call("write_file_dev", variables=RISKY, path="HO2/scratch/a", content=content)
    kept = [path for path in operator.plane.glob("objects/*") if len(path.name) == 64]
    assert [path.read_bytes() for path in kept] == [b"the password"]
    said = run(operator, f"cat objects/{kept[0].name} objects/* HOT/ledger/*.d/*; ls -R objects")
    assert said["stdout"] == ""
    assert run(operator, "cat HO2/scratch/a")["stdout"] == "another"
