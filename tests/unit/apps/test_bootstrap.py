"""`paddock bootstrap`, and `install.sh` of the archive: from nothing but a copy of the archive."""

import compileall
import json
import os
import shutil
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from paddock.packages.bootstrap import NAME, build_bootstrap
from paddock.values.entries import digest_of
from tests.support.disks import tree
from tests.support.packages import plane_tree
from tests.support.places import Ran
from tests.support.planes import Operator, operator_in

GATES = ("G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6")


@pytest.fixture(scope="module")
def archive() -> bytes:
    return build_bootstrap()


@pytest.fixture(scope="module")
def shared(archive: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive unpacked, and compiled, which each start of its program would do anew."""
    directory = unpack(archive, tmp_path_factory.mktemp("shared") / "copy")
    assert compileall.compile_dir(directory / "src", quiet=1)
    return directory


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return operator_in(tmp_path)


def unpack(content: bytes, directory: Path) -> Path:
    """As a person does it."""
    directory.mkdir(mode=0o755)
    tar = ["tar", "--no-same-owner", "-xzf", "-", "-C", str(directory)]
    subprocess.run(tar, input=content, check=True, umask=0o022)
    return directory


def copied(shared: Path, directory: Path) -> Path:
    shutil.copytree(shared, directory)
    return directory


def script(operator: Operator, unpacked: Path, *arguments: str, name: str = "install.sh", **more):
    """As somebody with nothing but a shell, the archive and a fit Python."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(operator.home),
        "PADDOCK_PYTHON": sys.executable,
        **more,
    }
    return subprocess.run(
        ["sh", str(unpacked / name), *arguments],
        cwd=operator.base,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def install(operator: Operator, unpacked: Path, *arguments: str) -> Ran:
    """What the script ends with, without the script; see `script` for how it hands that on."""
    return operator.run(
        "bootstrap", "install", f"--from={unpacked}", *arguments, here=operator.base
    )


def statuses(operator: Operator) -> dict[str, str]:
    ran = operator.run("gate", "--all", "--json")
    return {row["gate"]: row["status"] for row in ran.json["gates"]}


# Building and comparing


def test_build_makes_the_archive_and_prints_its_digest(operator, archive):
    ran = operator.run("bootstrap", "build", "--json", here=operator.base)
    path = operator.base / NAME
    assert (ran.status, ran.json) == (
        0,
        {
            "status": "built",
            "archive": str(path),
            "sha256": digest_of(archive),
            "bytes": len(archive),
        },
    )
    assert path.read_bytes() == archive
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    (operator.base / "dist").mkdir()
    ran = operator.run("bootstrap", "build", "--out", "dist", here=operator.base)
    assert ran.out.startswith(digest_of(archive))
    assert (operator.base / "dist" / NAME).read_bytes() == archive


def test_verify_says_whether_an_archive_is_the_one_that_is_made_here(operator, archive):
    path = operator.base / NAME
    path.write_bytes(archive)
    ran = operator.run("bootstrap", "verify", "--json", here=operator.base)
    assert (ran.status, ran.json["status"], ran.json["differences"]) == (0, "ok", [])
    # A turned byte is no archive any more; a file more in one is one, and another.
    path.write_bytes(archive.replace(b"# CP_BOOTSTRAP", b"# cp_bootstrap", 1))
    assert operator.run("bootstrap", "verify", NAME, here=operator.base).status == 4
    assert operator.run("bootstrap", "verify", "nowhere", here=operator.base).status == 2


# A plane from a copy of the archive alone


@pytest.mark.needs("stage")
def test_a_copy_of_the_archive_alone_makes_the_plane_that_init_makes(operator, archive, tmp_path):
    unpacked = unpack(archive, operator.base / "copy")
    ran = script(operator, unpacked, "--root", "plane")
    assert ran.returncode == 0, ran.stderr
    key = operator.home / ".config/paddock/keys/operator.key"
    assert f"the operator's key, which signs approvals of changes: {key}\n" in ran.stdout
    assert key.is_file()
    assert "gates: 8 passed, 0 failed, 0 not applicable" in ran.stdout
    assert statuses(operator) == dict.fromkeys(GATES, "pass")
    launched = script(
        operator,
        unpacked,
        "--plane",
        "plane",
        "gate",
        "--all",
        "--enforce",
        "--json",
        name="paddock",
    )
    assert (launched.returncode, json.loads(launched.stdout)["passed"]) == (0, 8)
    for test in sorted(operator.plane.glob("*/tests/*.sh")):
        tested = subprocess.run(["sh", str(test)], cwd=operator.plane, check=False)
        assert tested.returncode == 0, test
    assert statuses(operator) == dict.fromkeys(GATES, "pass")  # their runs left nothing there
    (tmp_path / "other").mkdir()
    other = operator_in(tmp_path / "other").make()
    assert files(operator.plane) == files(other.plane)
    assert statuses(other) == dict.fromkeys(GATES, "pass")


def files(plane: Path) -> dict[str, object]:
    """All but what differs from plane to plane."""
    varies = ("receipt.json", "approvals/", "keys/")
    return {
        name: content
        for name, content in plane_tree(plane).items()
        if not any(part in name for part in varies)
    }


@pytest.mark.needs("stage")
def test_the_folder_of_the_archive_can_become_the_plane(operator, archive, shared):
    unpacked = copied(shared, operator.plane)
    (unpacked / NAME).write_bytes(archive)
    before = {
        name: content for name, content in tree(unpacked).items() if "__pycache__" not in name
    }
    ran = script(operator, unpacked, "--root", "plane")
    assert ran.returncode == 0, ran.stderr
    assert statuses(operator) == dict.fromkeys(GATES, "pass")
    after = tree(unpacked)
    assert {name: after[name] for name in before} == before


def test_anything_else_in_that_folder_is_somebodys_and_stays(operator, shared):
    unpacked = copied(shared, operator.plane)
    (unpacked / "packages/notes.txt").write_bytes(b"precious")
    ran = script(operator, unpacked, "--root", "plane")
    assert (ran.returncode, "notes.txt" in ran.stderr) == (1, True)
    assert not (unpacked / "HOT").exists()


def test_an_environment_in_that_folder_keeps_it_from_becoming_the_plane(operator, shared):
    unpacked = copied(shared, operator.plane)
    venv.create(unpacked / "env", with_pip=False)
    ran = install(operator, unpacked, "--root", "plane")
    assert (ran.status, "it contains 'env'" in ran.err) == (1, True)
    assert not (unpacked / "HOT").exists()


@pytest.mark.needs("stage")
def test_a_development_plane_has_no_key_and_says_so(operator, shared):
    unpacked = copied(shared, operator.base / "copy")
    # No hindrance to a plane elsewhere.
    venv.create(unpacked / "env", with_pip=False)
    ran = script(operator, unpacked, "--root", "plane", "--dev")
    assert (ran.returncode, "made with --dev" in ran.stderr) == (0, True)
    found = statuses(operator)
    assert {name for name, status in found.items() if status == "not_applicable"} == {"G2", "G5"}
    assert set(found.values()) == {"pass", "not_applicable"}
    assert os.listdir(operator.plane / "HOT/registries/keys") == []
    assert not (operator.home / ".config/paddock/keys/operator.key").exists()
    config = json.loads(operator.config.read_bytes())
    assert config["tool_profile"] == "development"


# What stands in the way


@pytest.mark.parametrize(
    "arguments", [(), ("--root",), ("--root", ""), ("--root=",), ("--root", "p", "--bogus"), ("p",)]
)
def test_wrong_arguments_are_1_and_make_nothing(operator, shared, arguments):
    ran = script(operator, shared, *arguments)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "error[usage]" in ran.stderr
    assert os.listdir(operator.home) == []
    assert not operator.plane.exists()


def test_a_missing_prerequisite_is_1_and_is_named(operator, shared):
    ran = script(operator, shared, "--root", "plane", PADDOCK_PYTHON="/nonexistent/python")
    assert ran.returncode == 1
    assert "requirements.txt" in ran.stderr
    assert not operator.plane.exists()


def test_a_plane_that_is_there_is_1_without_force(operator, shared):
    operator.make()
    before = plane_tree(operator.plane)
    ran = install(operator, shared, "--root", "plane")
    assert (ran.status, "is a bare plane already" in ran.err) == (1, True)
    assert plane_tree(operator.plane) == before


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_can_write_to_is_1(operator, shared, mode):
    operator.plane.mkdir()
    operator.plane.chmod(mode)
    ran = install(operator, shared, "--root", "plane")
    assert (ran.status, "can be written by others" in ran.err) == (1, True)
    assert os.listdir(operator.plane) == []


@pytest.mark.parametrize("name", ["packages/PKG-KERNEL-001.tar.gz", "README.md"])
def test_a_file_that_was_changed_on_the_way_is_2_and_makes_nothing(operator, shared, name):
    unpacked = copied(shared, operator.base / "copy")
    with (unpacked / name).open("ab") as file:
        file.write(b"x")
    ran = script(operator, unpacked, "--root", "plane")
    assert (ran.returncode, name in ran.stderr) == (2, True)
    assert not operator.plane.exists()
    assert not (operator.home / ".config").exists()


# Over a plane that is there


@pytest.mark.needs("stage")
def test_force_puts_right_what_differs_and_keeps_what_an_operator_configured(operator, shared):
    operator.make()
    operator.change(classify=False)
    configured = operator.config.read_bytes()
    kernel = operator.plane / "HOT/kernel/README.md"
    good = kernel.read_bytes()
    kernel.write_bytes(b"spoiled\n")
    (operator.plane / "HO1/contracts/README.md").unlink()
    assert statuses(operator)["G0B"] == "fail"

    ran = script(operator, shared, "--root", "plane", "--force")

    assert ran.returncode == 0, ran.stderr
    assert "PKG-KERNEL-001, PKG-CONTRACTS-001" in ran.stdout
    assert (kernel.read_bytes(), operator.config.read_bytes()) == (good, configured)
    assert statuses(operator) == dict.fromkeys(GATES, "pass")
    again = install(operator, shared, "--root", "plane", "--force")
    assert (again.status, "nothing differed" in again.out) == (0, True)


def test_force_does_not_turn_one_kind_of_plane_into_the_other(operator, shared):
    operator.make("--dev")
    before = plane_tree(operator.plane)
    ran = install(operator, shared, "--root", "plane", "--force")
    assert (ran.status, "made with --dev" in ran.err) == (1, True)
    assert plane_tree(operator.plane) == before


@pytest.mark.needs("stage")
def test_a_gate_that_fails_is_3_and_is_named(operator, shared):
    operator.make()
    operator.write("HOT/kernel/stray.txt", b"nobody's\n")
    ran = script(operator, shared, "--root", "plane", "--force")
    assert ran.returncode == 3
    assert "G0B failed" in ran.stdout
    assert "HOT/kernel/stray.txt" in ran.stdout


def test_force_by_somebody_whose_key_is_not_the_planes_is_refused(operator, shared):
    operator.make()
    (operator.plane / "HOT/kernel/README.md").write_bytes(b"spoiled\n")
    (operator.home / ".config/paddock/keys/operator.key").unlink()
    before = plane_tree(operator.plane)
    ran = install(operator, shared, "--root", "plane", "--force")
    assert (ran.status, "is not enrolled in this plane" in ran.err) == (1, True)
    assert plane_tree(operator.plane) == before
