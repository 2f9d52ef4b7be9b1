"""`paddock package` from the command line: what it prints, and with which status it ends."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from paddock.packages.bootstrap import load_packages
from paddock.storage.disk import Disk
from tests.support.disks import tree
from tests.support.packages import (
    StoppedError,
    archive_bytes,
    lay_source,
    manifest_of,
    open_bench,
    plane_tree,
    stop,
)
from tests.support.planes import Operator

BOOTSTRAP = {archive.manifest.package_id for archive in load_packages()}
FILES = {"HOT/kernel/a.txt": b"a\n", "HOT/scripts/run.sh": b"#!/bin/sh\n"}


def packed(operator: Operator, name: str = "a.tar.gz", files=None, **fields) -> str:
    path = operator.base / name
    path.write_bytes(archive_bytes(files or FILES, **fields))
    return str(path)


def package(operator: Operator, *arguments: str):
    return operator.run("package", *arguments, "--json")


def own_rows(operator: Operator) -> list[dict]:
    """What is installed besides the packages that every plane is made of."""
    return [row for row in package(operator, "list").json if row["package_id"] not in BOOTSTRAP]


def approve(operator: Operator, archive: str, *options: str) -> dict:
    ran = package(operator, "approve", archive, *options)
    assert ran.status == 0, ran.err
    return ran.json


# A package that no command could load

NEXT_POLICY = {"package_id": "PKG-POLICY-001", "version": "99.0.0"}


@pytest.mark.parametrize(
    ("path", "content", "fields", "why"),
    [
        ("HOT/config/policy.json", b"{}", {}, "the plane would have two policies"),
        ("HOT/config/policy.toml", b"[paths", NEXT_POLICY, "it does not load"),
        (
            "HOT/config/admin_config.json",
            b'{"tools": [{"tool_id": "nothing", "description": "d", "parameters": {}}]}',
            {"package_id": "PKG-ADMIN-001", "version": "99.0.0"},
            "'nothing' is not a core tool",
        ),
    ],
)
def test_a_package_that_would_lock_the_plane_is_refused_and_the_plane_goes_on(
    operator, path, content, fields, why
):
    archive = packed(operator, files={path: content}, **fields, config=(path,))
    before = plane_tree(operator.plane)
    ran = package(operator, "install", archive, "--dev")
    assert (ran.status, plane_tree(operator.plane)) == (2, before)
    assert "error[package.gate]: G0B" in ran.err
    assert why in ran.err
    assert own_rows(operator) == []
    policy = "HOT/config/policy.toml"
    loads = packed(operator, files={policy: b"# ours\n"}, **NEXT_POLICY, config=(policy,))
    assert package(operator, "install", loads, "--dev").json["status"] == "upgraded"
    assert (operator.plane / policy).read_bytes() == b"# ours\n"


# The whole way


def test_hashes_are_said_to_be_right_wrong_or_written(operator):
    source = lay_source(operator.base / "src", FILES)

    def said(*options: str) -> str:
        return operator.run("package", "hash", str(source), *options).out.splitlines()[-1]

    right = "the hashes in the manifest are right: 2 checked, nothing written"
    assert said("--check") == said() == right
    (source / "HOT/kernel/a.txt").write_text("other\n")
    assert said("--check") == "1 of 2 hashes wrong in the manifest, not written"
    assert said() == "1 of 2 hashes written to the manifest"


def test_a_source_becomes_an_installed_package_and_goes_again(operator):
    before = plane_tree(operator.plane)
    source = lay_source(operator.base / "src", FILES)
    value = json.loads((source / "manifest.json").read_text())
    del value["assets"][0]["sha256"]
    (source / "manifest.json").write_text(json.dumps(value))

    assert package(operator, "hash", str(source), "--check").status == 1
    assert package(operator, "hash", str(source)).json["status"] == "written"
    assert package(operator, "hash", str(source), "--check").status == 0
    made = package(operator, "pack", str(source), str(operator.base)).json
    archive = made["archive"]
    assert (made["digest"], made["left_out"]) == (manifest_of(FILES).digest, [])
    assert package(operator, "verify", archive).json["signature"] == "none"
    signed = package(operator, "sign", archive).json
    assert signed["file"] == f"{archive}.sig"
    assert package(operator, "verify", archive).json["signature"] == "valid"
    approval = approve(operator, archive)
    assert package(operator, "install", archive, "--dry-run").json["status"] == "planned"

    installed = package(operator, "install", archive)

    assert (installed.status, installed.json["status"]) == (0, "installed")
    assert installed.json["wo_id"] == approval["wo_id"]
    again = package(operator, "install", archive)
    assert (again.status, again.json["status"]) == (1, "unchanged")
    (row,) = own_rows(operator)
    assert {
        name: row[name]
        for name in ("package_id", "version", "tier", "framework", "spec", "state", "wo_id")
    } == {
        "package_id": "PKG-A-001",
        "version": "1.0.0",
        "tier": "HOT",
        "framework": "FMWK-000",
        "spec": "SPEC-A-001",
        "state": "installed",
        "wo_id": approval["wo_id"],
    }
    assert package(operator, "uninstall", "PKG-A-001").json["status"] == "uninstalled"
    assert own_rows(operator) == []
    after = plane_tree(operator.plane)
    assert {name for name in after.keys() - before.keys() if "/keys" not in name} == {
        f"HOT/registries/approvals/{approval['wo_id']}.json 600"
    }


def test_a_person_reads_the_same(operator):
    archive = packed(operator)
    assert operator.run("package", "approve", archive).out.startswith("WO-")
    assert operator.run("package", "install", archive).out.startswith("installed: PKG-A-001 1.0.0")
    listed = operator.run("package", "list").out.splitlines()
    assert ["PKG-A-001", "1.0.0"] in [line.split()[:2] for line in listed]
    why = operator.run("package", "why", "HOT/kernel/a.txt")
    assert why.out.startswith("HOT/kernel/a.txt: PKG-A-001 1.0.0")


def test_changed_files_of_an_installed_package_are_put_back_by_an_approved_install(operator):
    archive, path = packed(operator), operator.plane / "HOT/kernel/a.txt"
    approve(operator, archive)
    assert package(operator, "install", archive).status == 0
    path.chmod(0o644)
    path.write_text("edited\n")
    before = plane_tree(operator.plane)

    refused = operator.run("package", "install", archive)

    assert (refused.status, plane_tree(operator.plane)) == (2, before)
    assert "G2: 'HOT/kernel/a.txt': its digest is " in refused.err
    assert "it was used already" in refused.err
    assert "to put them back: paddock package approve ARCHIVE, then install it again" in refused.err
    made = approve(operator, archive)
    repaired = operator.run("package", "install", archive)
    assert repaired.status == 0
    assert repaired.out.startswith("repaired: PKG-A-001 1.0.0  sha256:")
    assert path.read_bytes() == FILES["HOT/kernel/a.txt"]
    (row,) = own_rows(operator)
    assert (row["state"], row["wo_id"]) == ("installed", made["wo_id"])
    assert package(operator, "install", archive).json["status"] == "unchanged"
    gates = {each["gate"]: each["status"] for each in operator.run("gate", "--json").json["gates"]}
    assert {gates[name] for name in ("G0B", "G2", "G5", "G6")} == {"pass"}


def test_packages_are_listed_by_layer_then_dependencies_then_name(dev):
    for name, needed in (("PKG-Z", ()), ("PKG-M", ("PKG-Z",)), ("PKG-N", ())):
        file = {f"HOT/kernel/{name}.txt": b"x"}
        archive = packed(dev, f"{name}.gz", file, package_id=name, dependencies=list(needed))
        assert package(dev, "install", archive).status == 0
    assert [row["package_id"] for row in own_rows(dev)] == ["PKG-N", "PKG-Z", "PKG-M"]


def test_where_a_dependency_is_gone_packages_are_listed_by_layer_and_name(dev):
    for name, needed in (("PKG-0", ()), ("PKG-Z", ()), ("PKG-M", ("PKG-Z", "PKG-0"))):
        file = {f"HOT/kernel/{name}.txt": b"x"}
        archive = packed(dev, f"{name}.gz", file, package_id=name, dependencies=list(needed))
        assert package(dev, "install", archive).status == 0
    assert [row["package_id"] for row in own_rows(dev)] == ["PKG-0", "PKG-Z", "PKG-M"]
    shutil.rmtree(dev.plane / "HOT/installed/PKG-0")
    assert [row["package_id"] for row in own_rows(dev)] == ["PKG-M", "PKG-Z"]


def test_an_install_says_what_a_gate_or_a_session_will_not_take(dev):
    contract = {"HO1/contracts/PRC-NEW.json": b"{}"}
    spec = json.dumps({"spec_id": "SPEC-OWN", "framework_id": "FMWK-000", "title": "Own"})
    row = {"HOT/registries/specs/SPEC-OWN.json": spec.encode()}
    broken = packed(dev, "a", contract, plane_id="ho1")
    for options in (("--dry-run",), ()):
        ran = package(dev, "install", broken, *options)
        assert ran.status == 0
        unregistered, contracts = ran.json["notes"]
        assert unregistered == (
            "its spec 'SPEC-A-001' is in no registry: G1 fails until a package brings it"
        )
        assert contracts.startswith(
            "the prompt contract HO1/contracts/PRC-NEW.json does not load, and no session opens"
        )
    own = packed(dev, "b", row, package_id="PKG-B", spec_id="SPEC-OWN")
    known = packed(dev, "c", package_id="PKG-C", spec_id="SPEC-OWN")
    for archive in (own, known):
        assert package(dev, "install", archive).json["notes"] == []
    lost = packed(dev, "e", {"HOT/kernel/e": b""}, package_id="PKG-E", framework_id="FMWK-999")
    said = package(dev, "install", lost, "--dry-run").json["notes"]
    assert said[-1] == (
        "its framework 'FMWK-999' is in no registry: G1 fails until a package brings it"
    )
    other = packed(
        dev,
        "f",
        {"HOT/kernel/f": b""},
        package_id="PKG-F",
        spec_id="SPEC-OWN",
        framework_id="FMWK-200",
    )
    for options in (("--dry-run",), ()):
        assert package(dev, "install", other, *options).json["notes"] == [
            "its spec 'SPEC-OWN' names the framework 'FMWK-000', not 'FMWK-200': G1 fails"
        ]
    assert dev.run("gate", "--gate", "G1", "--enforce").status == 1
    without = packed(
        dev,
        "d",
        package_id="PKG-B",
        spec_id="SPEC-OWN",
        version="2.0.0",
        files={"HOT/kernel/b": b""},
    )
    assert "is in no registry" in package(dev, "install", without, "--dry-run").json["notes"][0]


# Statuses


def test_a_gate_that_refuses_ends_with_2(operator):
    ran = package(operator, "install", packed(operator))
    assert (ran.status, ran.json["gate"]) == (2, "G2")
    assert "paddock package approve" in ran.err


def test_an_archive_that_is_not_safe_ends_install_with_2_and_verify_with_4(operator):
    path = Path(packed(operator))
    path.write_bytes(path.read_bytes() + b"more")
    for action, status in (("install", 2), ("verify", 4), ("sign", 4), ("approve", 4)):
        ran = package(operator, action, str(path))
        assert (ran.status, ran.json["gate"]) == (status, "G0A"), action


def test_a_file_of_another_package_ends_with_3(dev):
    assert package(dev, "install", packed(dev)).status == 0
    other = packed(dev, "b.tar.gz", {"HOT/kernel/a.txt": b"b\n"}, package_id="PKG-B")
    ran = package(dev, "install", other)
    assert (ran.status, ran.json["code"], ran.json["gate"]) == (3, "package.ownership", None)
    assert ran.json["failures"][0]["file"] == "HOT/kernel/a.txt"


def test_a_lower_version_ends_with_2(dev):
    assert package(dev, "install", packed(dev, version="2.0.0")).status == 0
    ran = package(dev, "install", packed(dev, version="1.0.0"), "--dry-run")
    assert (ran.status, ran.json["gate"]) == (2, "G5")
    assert ran.err == (
        "error[package.gate]: G5: 'PKG-A-001': version 1.0.0 is below 2.0.0, which was installed before\n"
        "  hint:  nothing was changed; to go back, pack the old content under a higher version\n"
    )
    assert package(dev, "install", packed(dev, version="2.0.1")).status == 0


def test_an_approval_says_that_no_install_takes_a_lower_version(operator):
    old, new = packed(operator, "old.gz"), packed(operator, "new.gz", version="1.1.0")
    assert operator.run("package", "approve", new).err == ""
    assert package(operator, "install", new).status == 0

    ran = operator.run("package", "approve", old)

    assert (ran.status, ran.out.startswith("WO-")) == (0, True)
    assert ran.err == (
        "note: this package cannot be installed: version 1.0.0 is below 1.1.0, which was installed before\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("install", "nowhere.tar.gz"),
        ("uninstall", "PKG-X"),
        ("approve", "../a.tar.gz", "--expires", "soon"),
        ("approve", "../a.tar.gz", "--expires", "0h"),
        ("approve", "../a.tar.gz", "--expires", "999999999d"),
        ("approve", "../a.tar.gz", "--scope", "!x"),
        ("pack", "nowhere", "x.tar.gz"),
        ("frobnicate",),
        (),
    ],
)
def test_wrong_usage_ends_with_2_and_changes_nothing(arguments, operator):
    packed(operator)
    before = plane_tree(operator.plane)
    ran = operator.run("package", *arguments)
    assert ran.status == 2, ran.err
    assert plane_tree(operator.plane) == before


def test_a_projects_plane_takes_no_packages(operator, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    archive = packed(operator)
    for arguments in (
        ("install", archive),
        ("approve", archive),
        ("list",),
        ("uninstall", "PKG-A"),
    ):
        ran = operator.run("package", *arguments, here=project)
        assert (ran.status, "not a bare plane" in ran.err) == (2, True), arguments


def test_a_plane_of_somebody_elses_is_not_changed_before_it_is_trusted(operator):
    os.rename(operator.plane, operator.base / "moved")
    archive = packed(operator)
    here = operator.base / "moved"
    for arguments in (("install", archive, "--dev"), ("approve", archive)):
        ran = operator.run("package", *arguments, here=here)
        assert (ran.status, "trust" in ran.err) == (3, True), ran.err
    assert not (here / "HOT/kernel/a.txt").exists()


# Approvals and keys


def test_the_operators_key_lies_with_the_user_and_its_public_half_in_the_plane(operator):
    made = approve(operator, packed(operator))

    private = operator.home / ".config/paddock/keys/operator.key"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert sorted(os.listdir(operator.plane / "HOT/registries/keys")) == [f"{made['key_id']}.json"]
    seed = private.read_bytes().split(b"+", 4)[4].strip()
    for content in tree(operator.plane).values():
        assert not isinstance(content, bytes) or seed not in content


def test_an_approval_is_the_file_that_it_says(operator):
    made = approve(operator, packed(operator), "--scope", "HOT/**", "HO1/**", "--expires", "90m")

    path = operator.plane / "HOT/registries/approvals" / f"{made['wo_id']}.json"
    value = json.loads(path.read_text())
    assert list(value) == ["wo_id", "digest", "scope", "expires", "key_id", "signature"]
    assert (value["digest"], value["scope"]) == (manifest_of(FILES).digest, ["HOT/**", "HO1/**"])
    assert {name: made[name] for name in value} == value


def test_an_approval_counts_once(operator):
    archive = packed(operator)
    approve(operator, archive)
    assert package(operator, "install", archive).status == 0
    assert package(operator, "uninstall", "PKG-A-001").status == 0
    ran = package(operator, "install", archive)
    assert (ran.status, "used already" in ran.json["failures"][0]["reason"]) == (2, True)


def test_dev_installs_without_and_is_approved_afterwards(operator):
    archive = packed(operator)
    ran = package(operator, "install", archive, "--dev")
    assert (ran.status, "G2 and G5" in ran.err) == (0, True)
    (row,) = own_rows(operator)
    assert (row["wo_id"], row["dev"]) == (None, True)
    made = approve(operator, archive)
    assert made["settles_install"] is True
    (row,) = own_rows(operator)
    assert row["wo_id"] == made["wo_id"]


def test_a_plane_that_was_made_for_development_asks_for_none_and_says_so(dev):
    ran = package(dev, "install", packed(dev))
    assert (ran.status, "made with --dev" in ran.err) == (0, True)


def test_editing_the_configuration_does_not_make_a_plane_one_for_development(operator):
    operator.change(tool_profile="development")
    assert operator.run("tools").status == 0
    assert package(operator, "install", packed(operator)).status == 2


def test_a_spoiled_signature_stops_an_install(operator):
    archive = packed(operator)
    approve(operator, archive)
    package(operator, "sign", archive)
    path = Path(f"{archive}.sig")
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"signature": "A" * 86 + "=="}))

    assert package(operator, "verify", archive).status == 4
    assert package(operator, "install", archive).json["gate"] == "G5"
    path.write_text(json.dumps(value | {"digest": f"sha256:{'0' * 64}"}))
    hint = "sign it again (paddock package sign ARCHIVE), or remove ARCHIVE.sig"
    assert f"hint:  nothing was changed; {hint}" in package(operator, "install", archive).err
    assert f"hint:  {hint}" in package(operator, "verify", archive).err
    path.write_text(json.dumps(value))
    assert package(operator, "install", archive).status == 0


def test_a_strangers_signature_is_said_to_be_one(operator):
    archive = packed(operator)
    own = operator.home / ".config/paddock/keys/operator.key"
    own.rename(operator.base / "kept.key")
    package(operator, "sign", archive)
    (operator.base / "kept.key").rename(own)
    assert package(operator, "verify", archive).json["signature"] == "unknown key"


# Whose file


def test_why_says_whose_a_file_is(dev):
    package(dev, "install", packed(dev))
    found = package(dev, "why", str(dev.plane / "HOT/kernel/a.txt")).json
    assert (found["path"], found["owner"], found["problem"]) == (
        "HOT/kernel/a.txt",
        "PKG-A-001",
        "",
    )
    (dev.plane / "HOT/kernel/a.txt").write_bytes(b"edited")
    assert "digest" in package(dev, "why", "HOT/kernel/a.txt").json["problem"]
    assert own_rows(dev)[0]["state"] == "changed"
    found = package(dev, "why", "HOT/config/policy.toml").json
    assert (found["owner"], found["classification"]) == ("PKG-POLICY-001", "config")
    ran = package(dev, "why", "HO2/scratch/x")
    assert (ran.status, ran.json["owner"]) == (1, None)


def test_a_file_of_another_package_is_not_taken(dev):
    package(dev, "install", packed(dev))
    other = packed(
        dev,
        "b.tar.gz",
        {"HOT/kernel/a.txt": b"b\n"},
        package_id="PKG-B",
        dependencies=["PKG-A-001"],
    )
    ran = package(dev, "install", other)
    assert (ran.status, ran.json["status"], ran.json["code"]) == (3, "refused", "package.ownership")
    found = package(dev, "why", "HOT/kernel/a.txt").json
    assert (found["owner"], found["problem"], found["handed_over_by"]) == ("PKG-A-001", "", [])


def test_the_admin_lists_the_packages(dev):
    package(dev, "install", packed(dev))
    ran = dev.call("list_packages")
    listed = {row["package_id"]: row for row in ran.json["packages"]}
    assert (ran.status, ran.json["count"], set(listed)) == (0, 10, BOOTSTRAP | {"PKG-A-001"})
    assert listed["PKG-A-001"] == {
        "package_id": "PKG-A-001",
        "version": "1.0.0",
        "tier": "HOT",
        "framework": "FMWK-000",
        "spec": "SPEC-A-001",
        "state": "installed",
    }


# Acceptance, in the sandbox


@pytest.mark.parametrize(("tests", "said"), [(1, "command"), (2, "commands")])
def test_a_dry_run_says_that_acceptance_commands_were_not_run(dev, tests, said):
    archive = packed(dev, acceptance=[{"command": "exit 1", "timeout_s": 20}] * tests)
    ran = dev.run("package", "install", archive, "--dry-run")
    assert (ran.status, f"  note: not run: {tests} acceptance {said}\n" in ran.out) == (0, True)


@pytest.mark.needs("stage")
def test_acceptance_commands_see_the_new_files_and_change_nothing(dev):
    command = "test -x HOT/scripts/run.sh && grep -q a HOT/kernel/a.txt && echo x > HOT/kernel/x"
    acceptance = [{"command": command, "timeout_s": 20}]
    ran = package(dev, "install", packed(dev, acceptance=acceptance))
    assert (ran.status, ran.json["acceptance"][0]["passed"]) == (0, True), ran.err
    assert not (dev.plane / "HOT/kernel/x").exists()


@pytest.mark.needs("stage")
def test_acceptance_commands_see_an_upgrade_as_it_is_going_to_be(dev):
    """New directories, a file that becomes a directory, what goes."""
    old = {"HOT/kernel/a": b"old", "HOT/kernel/gone": b"x", "HOT/kernel/flat": b"old"}
    new = {"HOT/kernel/a/b/c": b"deep", "HOT/kernel/flat": b"file", "HOT/kernel/made/z": b"z"}
    assert package(dev, "install", packed(dev, files=old)).status == 0
    looks = (
        "test ! -e HOT/kernel/gone",
        'test deep = "$(cat HOT/kernel/a/b/c)"',
        'test file = "$(cat HOT/kernel/flat)"',
        'test z = "$(cat HOT/kernel/made/z)"',
        "test -e HOT/config/policy.toml",
        "echo more >> HOT/kernel/flat",
        "rm -r HOT/kernel/a",
        "grep -q 2.0.0 HOT/installed/PKG-A-001/manifest.json",
    )
    acceptance = [{"command": each, "timeout_s": 20} for each in looks]

    ran = package(dev, "install", packed(dev, files=new, version="2.0.0", acceptance=acceptance))

    assert ran.status == 0, ran.err
    assert [each["passed"] for each in ran.json["acceptance"]] == [True] * len(looks)
    assert (dev.plane / "HOT/kernel/flat").read_bytes() == b"file"
    assert (dev.plane / "HOT/kernel/a/b/c").read_bytes() == b"deep"


@pytest.mark.needs("stage")
def test_an_acceptance_command_that_fails_stops_the_install(dev):
    before = plane_tree(dev.plane)
    acceptance = [{"command": "echo no such luck >&2; exit 3", "timeout_s": 20}]
    ran = package(dev, "install", packed(dev, acceptance=acceptance))
    assert (ran.status, ran.json["gate"]) == (2, "G4")
    assert "no such luck" in ran.json["failures"][0]["reason"]
    assert plane_tree(dev.plane) == before


@pytest.mark.needs("stage")
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("printf '%02000d'", "0" * 2000),
        ("printf '1%02000d'", "[1 characters before this are not shown] " + "0" * 2000),
    ],
)
def test_a_failed_acceptance_command_says_how_much_of_its_output_is_missing(dev, command, said):
    acceptance = [{"command": f"{command} 0; exit 3", "timeout_s": 20}]
    ran = package(dev, "install", packed(dev, acceptance=acceptance))
    assert ran.json["failures"][0]["reason"].endswith(f" ended with 3: {said}")


@pytest.mark.needs("stage")
def test_an_acceptance_command_that_hangs_stops_the_install(dev):
    ran = package(dev, "install", packed(dev, acceptance=[{"command": "sleep 60", "timeout_s": 1}]))
    assert (ran.status, ran.json["gate"]) == (2, "G4")


# After a crash


def test_the_next_command_on_the_plane_settles_what_was_left(dev):
    """The files are in their places, and the process died before the ledger told of it."""
    with open_bench(dev.plane, before_entry=stop) as bench, pytest.raises(StoppedError):
        bench.install(FILES)
    assert (dev.plane / "objects/packages/transaction.json").exists()

    assert dev.call("list_files").status == 0

    assert not (dev.plane / "objects/packages/transaction.json").exists()
    with open_bench(dev.plane) as bench:
        assert bench.events()[-1] == "PACKAGE_INSTALLED"
        assert bench.layout.root.joinpath("HOT/kernel/a.txt").exists()


class KilledAtTheRecord(Disk):
    """Ends the process before the last name of the swap."""

    def move_new(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        if to == "transaction.json":
            os._exit(9)
        super().move_new(from_fd, name, to_fd, to)


def test_the_next_command_on_the_plane_completes_a_swap_that_was_killed(dev):
    child = os.fork()
    if child == 0:
        with open_bench(dev.plane, disk=KilledAtTheRecord()) as bench:
            bench.install(FILES)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert os.listdir(dev.plane / "objects/journal")
    assert not (dev.plane / "objects/packages/transaction.json").exists()

    assert dev.call("list_files").status == 0

    assert not os.listdir(dev.plane / "objects/journal")
    with open_bench(dev.plane) as bench:
        assert bench.events()[-1] == "PACKAGE_INSTALLED"
        assert bench.layout.root.joinpath("HOT/kernel/a.txt").exists()
