"""`paddock gate` from the command line: what it prints, records, and ends with."""

import errno
import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddock.assembly.packages import check_gates, check_gates_for_model
from paddock.assembly.project_open import open_project
from paddock.assembly.sessions import SessionWish, open_session
from paddock.gates.checks import NOTHING_OUTSIDE
from paddock.gates.results import PLANE_GATES
from paddock.packages.change import PendingChange
from paddock.plane.layout import plane_name
from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.storage.objects import ObjectStore
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.workspace import Workspace
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import AtVersion, WriteFile, entry_state
from tests.support import forked
from tests.support.packages import archive_bytes
from tests.support.planes import Operator, operator_in

QUICK = [gate for gate in PLANE_GATES if gate != "G4"]
FILES = {"HOT/kernel/mine.txt": b"mine\n"}


def gate(operator: Operator, *options: str):
    return operator.run("--plane", str(operator.plane), "gate", *options, "--json")


def status_of(operator: Operator, name: str) -> str:
    ran = gate(operator, "--gate", name)
    assert ran.status == 0, ran.err
    (found,) = ran.json["gates"]
    return found["status"]


def packed(operator: Operator, **fields) -> str:
    path = operator.base / "mine.tar.gz"
    known = json.loads((operator.plane / "HOT/installed/PKG-KERNEL-001/manifest.json").read_text())
    same = {name: known[name] for name in ("spec_id", "framework_id")}
    path.write_bytes(archive_bytes(FILES, package_id="PKG-MINE", layer=5, **same, **fields))
    return str(path)


# A plane that was just made


@pytest.mark.parametrize("name", QUICK)
def test_a_fresh_plane_passes(operator, name):
    assert status_of(operator, name) == "pass"


@pytest.mark.parametrize("name", QUICK)
def test_a_fresh_development_plane_passes_all_but_what_nobody_has_to_vouch_for(dev, name):
    assert status_of(dev, name) == ("not_applicable" if name in {"G2", "G5"} else "pass")


@pytest.mark.needs("stage")
def test_all_eight_pass_and_are_counted(operator):
    ran = gate(operator, "--all", "--enforce")

    assert (ran.status, ran.err) == (0, "")
    assert [found["gate"] for found in ran.json["gates"]] == list(PLANE_GATES)
    counts = {name: ran.json[name] for name in ("passed", "failed", "not_applicable")}
    assert counts == {"passed": 8, "failed": 0, "not_applicable": 0}


@pytest.mark.needs("stage")
def test_without_options_all_eight_look(operator):
    ran = operator.run("gate")

    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "8 passed, 0 failed, 0 not applicable"


# What fails


def test_a_failure_is_status_1_only_where_it_is_enforced(operator):
    operator.write("HOT/kernel/.hidden", b"x")

    assert gate(operator, "--gate", "G0B").status == 0
    ran = gate(operator, "--gate", "G0B", "--enforce")
    assert ran.status == 1
    assert ran.json["gates"][0]["failures"] == [
        {"file": "HOT/kernel/.hidden", "reason": "no package owns this file"}
    ]
    assert gate(operator, "--gate", "G1", "--enforce").status == 0


def test_a_person_reads_which_file_and_why(operator):
    operator.write("HOT/kernel/.hid\x1b[31mden", b"x")

    ran = operator.run("gate", "--gate", "g0b", "--enforce")

    assert ran.status == 1
    assert "FAIL" in ran.out
    assert "\x1b" not in ran.out
    assert "no package owns this file" in ran.out


def test_what_is_not_applicable_is_no_failure(dev):
    assert gate(dev, "--gate", "G2", "--enforce").status == 0
    assert gate(dev, "--gate", "G0A", "--enforce").json["not_applicable"] == 1


def test_a_gate_that_there_is_not_is_a_usage_error(operator):
    ran = gate(operator, "--gate", "G7")

    assert (ran.status, ran.out) == (2, "")
    assert "G1-COMPLETE" in ran.err
    assert gate(operator, "--gate", "G1", "--all").status == 2


def test_a_project_has_no_gates(tmp_path):
    operator = operator_in(tmp_path)
    (tmp_path / "project").mkdir()

    assert operator.run("gate", here=tmp_path / "project").status == 2


# On record


def test_every_answer_is_on_record_in_governance(operator):
    gate(operator, "--gate", "G1")
    operator.write("HOT/kernel/x", b"x")
    gate(operator, "--gate", "G0B")

    first, second = operator.entries("governance", "GATE_RESULT")
    assert (first["decision"], first["agent"], first["metadata"]["gate"]) == (
        "allow", "operator", "G1",
    )  # fmt: skip
    assert (second["decision"], second["metadata"]["status"]) == ("deny", "fail")
    assert second["metadata"]["failures"] == [
        {"file": "HOT/kernel/x", "reason": "no package owns this file"}
    ]
    assert first["metadata"]["set_digest"].startswith("sha256:")


def test_where_governance_is_damaged_the_answer_is_given_all_the_same(operator):
    path = operator.plane / "HOT/ledger/governance.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))

    ran = gate(operator, "--gate", "G6", "--enforce")

    assert ran.status == 1
    assert ran.json["gates"][0]["failures"][0]["file"] == "HOT/ledger/governance.jsonl"


def test_another_ledger_in_the_place_of_one_is_found_by_its_key(operator, tmp_path):
    (tmp_path / "other").mkdir()
    other = operator_in(tmp_path / "other").make()
    for name in ("governance.jsonl", "governance.d"):
        target = operator.plane / "HOT/ledger" / name
        target.rename(target.with_name(f"{name}.old"))
        (other.plane / "HOT/ledger" / name).rename(target)
        target.with_name(f"{name}.old").rename(tmp_path / name)

    ran = gate(operator, "--gate", "G6")

    assert any("another key" in each["reason"] for each in ran.json["gates"][0]["failures"])


def restored(operator: Operator) -> Operator:
    """The plane as it was before it was last worked on."""
    kept = operator.base / "backup"
    shutil.copytree(operator.plane, kept, symlinks=True)
    operator.call("list_files")
    gate(operator, "--gate", "G1")
    shutil.rmtree(operator.plane)
    kept.rename(operator.plane)
    return operator


def test_a_plane_from_a_backup_fails_g6_until_an_operator_accepts_that(operator):
    gate(restored(operator), "--gate", "G1")

    ran = gate(operator, "--gate", "G6", "--enforce")
    assert ran.status == 1
    reasons = [each["reason"] for each in ran.json["gates"][0]["failures"]]
    assert all("paddock ledger accept-rollback" in reason for reason in reasons)
    assert operator.run("ledger", "accept-rollback", "--yes").status == 0
    assert status_of(operator, "G6") == "pass"
    assert operator.entries("governance", "ROLLBACK_ACCEPTED")


def note_of(operator: Operator) -> tuple[str, str]:
    (found,) = gate(operator, "--gate", "G6").json["gates"]
    return found["status"], found["note"]


def move_plane(operator: Operator) -> Operator:
    """The plane at another path, and nothing that is kept of it elsewhere."""
    base = operator.base / "elsewhere"
    base.mkdir()
    operator.plane.rename(base / "plane")
    (operator.base / "home").rename(base / "home")
    return Operator(base)


def test_a_plane_that_was_moved_passes_g6_with_a_note_that_nothing_is_known_of_it(operator):
    assert note_of(operator) == ("pass", "")
    moved = move_plane(operator)

    assert note_of(moved) == ("pass", NOTHING_OUTSIDE)
    assert moved.run("ledger", "verify").status == 0
    assert note_of(moved) == ("pass", NOTHING_OUTSIDE)


def test_a_fresh_development_plane_is_known_by_its_keys(dev):
    assert note_of(dev) == ("pass", "")


def test_a_plane_whose_key_is_lost_and_whose_anchor_stands_is_known(operator):
    operator.run("ledger", "checkpoint")
    shutil.rmtree(operator.environment().config_home / "keys")

    assert note_of(operator)[1] == ""


def test_a_plane_whose_signer_is_a_program_is_known_by_it(tmp_path):
    operator = operator_in(tmp_path)
    command = [*forked.command(forked.CONSOLE), "ledger", "signer", str(operator.home / "signer")]
    config = operator.environment().user_config
    config.parent.mkdir(parents=True)
    config.write_text(f"[ledger]\nsigner = {json.dumps(command)}\n")

    assert note_of(operator.make()) == ("pass", "")


def test_a_key_that_is_not_there_is_told_with_its_place_and_how_to_bring_it(operator):
    assert operator.run("ledger", "checkpoint").status == 0
    moved = move_plane(operator)
    keys = moved.environment().config_home / "keys"
    title = plane_name(moved.plane)

    ran = moved.run("ledger", "checkpoint")

    told = (
        "error[host]: the key cannot be read: No such file or directory\n"
        f"  where: '{keys}/{title}.governance.key'\n"
        "  hint:  keys are stored by the plane's path: move the plane back, or if it was moved on"
        f" purpose, rename its files in '{keys}', .key and .signed, to '{title}.*'\n"
    )
    assert (ran.status, ran.err[-len(told) :]) == (5, told)


@pytest.mark.parametrize(
    "ledger", ["HOT/ledger/governance", "HOT/ledger/packages", "HO1/ledger/ho1m"]
)
def test_a_ledger_that_was_taken_away_with_all_beside_it_is_missed(operator, ledger):
    with open_session(
        open_project(operator.plane, operator.environment()), SessionWish()
    ) as session:
        session.handle_turn("what files are in the kernel directory?")
    assert status_of(operator, "G6") == "pass"
    (operator.plane / f"{ledger}.jsonl").unlink()
    shutil.rmtree(operator.plane / f"{ledger}.d")

    assert gate(operator, "--gate", "G6").json["gates"][0]["status"] == "fail"


def test_a_plane_made_anew_where_one_stood_before_passes(operator):
    operator.call("list_files")
    gate(operator, "--gate", "G1")
    shutil.rmtree(operator.plane)

    operator.make()

    assert {name: status_of(operator, name) for name in QUICK} == dict.fromkeys(QUICK, "pass")
    assert operator.entries("governance", "ROLLBACK_ACCEPTED")[0]["metadata"]["by"] == "init"


def test_a_plane_made_where_none_stood_accepts_nothing(operator):
    assert operator.entries("governance", "ROLLBACK_ACCEPTED") == []


# While packages are being changed


def pending_of(operator: Operator) -> PendingChange:
    return PendingChange(open_project(operator.plane, operator.environment()).layout)


def gates_for_a_model(operator: Operator):
    return operator.call("gate_check", gate="G0B")


def test_a_model_is_not_told_of_a_plane_whose_packages_are_being_changed(operator):
    attic = pending_of(operator)
    with attic.locked():
        ran = gates_for_a_model(operator)

    told = {name: ran.json[name] for name in ("status", "code", "error", "hint")}
    assert (ran.status, told) == (
        5,
        {
            "status": "error",
            "code": "ledger.busy",
            "error": "packages of this plane are being changed right now; no gate ran",
            "hint": "try again when that is done",
        },
    )
    assert operator.entries("governance", "GATE_RESULT") == []
    ran = gates_for_a_model(operator)
    assert (ran.status, ran.json["passed"], ran.json["failed"]) == (0, 1, 0)
    assert len(operator.entries("governance", "GATE_RESULT")) == 1


def test_several_look_at_once(operator):
    attic = pending_of(operator)
    with attic.at_rest(), attic.try_at_rest() as is_at_rest:
        assert is_at_rest
        assert gates_for_a_model(operator).json["passed"] == 1
        assert status_of(operator, "G0B") == "pass"


def test_no_package_is_changed_while_somebody_looks(operator, monkeypatch):
    monkeypatch.setattr("paddock.limits.path_lock_timeout_s", 0.05)
    archive = packed(operator)
    attic = pending_of(operator)
    with attic.try_at_rest():
        ran = operator.run("package", "install", archive, "--dev")

    assert (ran.status, "locked by another process" in ran.err) == (5, True)
    assert operator.run("package", "install", archive, "--dev").status == 0


@pytest.mark.needs("stage")
def test_an_acceptance_command_that_a_gate_runs_may_ask_for_gates(operator):
    """Packages are at rest by then: whoever asks meanwhile is answered."""
    asked = []

    def ask(gate, step):
        if gate == "G4":
            asked.append(gates_for_a_model(operator).json["passed"])

    check_gates(open_project(operator.plane, operator.environment()), ["G4"], ask)

    assert asked[0] == 1


# Packages, approvals, signatures


def test_an_install_without_an_approval_fails_g2_and_g5_until_it_is_approved(operator):
    archive = packed(operator)
    assert operator.run("package", "install", archive, "--dev").status == 0

    found = {name: status_of(operator, name) for name in QUICK}
    assert [name for name in QUICK if found[name] == "fail"] == ["G2", "G5"]
    assert operator.run("package", "approve", archive).status == 0
    assert {name: status_of(operator, name) for name in QUICK} == dict.fromkeys(QUICK, "pass")


def test_or_until_it_is_uninstalled(operator):
    operator.run("package", "install", packed(operator), "--dev")
    assert operator.run("package", "uninstall", "PKG-MINE").status == 0

    assert {name: status_of(operator, name) for name in QUICK} == dict.fromkeys(QUICK, "pass")


def test_an_approved_install_leaves_a_plane_that_passes(operator):
    archive = packed(operator)
    operator.run("package", "approve", archive)
    assert operator.run("package", "install", archive).status == 0

    assert {name: status_of(operator, name) for name in QUICK} == dict.fromkeys(QUICK, "pass")


def test_a_colleagues_key_counts_once_an_operator_signed_the_set_again(operator, tmp_path):
    (tmp_path / "colleague").mkdir()
    colleague = operator_in(tmp_path / "colleague").make()
    keys = "HOT/registries/keys"
    (theirs,) = (colleague.plane / keys).iterdir()
    (operator.plane / keys / theirs.name).write_bytes(theirs.read_bytes())
    (operator.plane / keys / theirs.name).chmod(0o600)
    assert status_of(operator, "G5") == "fail"

    ran = operator.run("package", "sign", "--installed", "--json")

    assert ran.status == 0, ran.err
    assert len(ran.json["keys"]) == 2
    assert status_of(operator, "G5") == "pass"


def test_a_stranger_cannot_sign_the_set(operator, tmp_path):
    (tmp_path / "stranger").mkdir()
    stranger = operator_in(tmp_path / "stranger")
    ran = stranger.run(
        "--plane", str(operator.plane), "package", "sign", "--installed", here=tmp_path
    )

    assert (ran.status, ran.out) == (3, "")
    assert status_of(operator, "G5") == "pass"


@pytest.mark.parametrize("arguments", [(), ("x.tar.gz", "--installed")])
def test_what_is_to_be_signed_has_to_be_clear(operator, arguments):
    assert operator.run("package", "sign", *arguments).status == 2


# Configuration


def test_configuration_of_a_package_is_told_to_governance_when_a_gate_first_sees_it(operator):
    files = {"HOT/config/more.json": b'{"a": 1}\n'}
    path = operator.base / "more.tar.gz"
    content = archive_bytes(files, package_id="PKG-MORE", layer=5, config=tuple(files))
    path.write_bytes(content)
    operator.run("package", "approve", str(path))
    operator.run("package", "install", str(path))
    assert status_of(operator, "G0B") == "pass"

    operator.write("HOT/config/more.json", b'{"a": 2}\n')
    assert status_of(operator, "G0B") == "pass"
    operator.change(classify=False)
    assert status_of(operator, "G0B") == "pass"

    changed = [e["metadata"]["changed"] for e in operator.entries("governance", "CONFIG_CHANGED")]
    assert changed[1:] == [
        ["HOT/config/more.json"],
        ["HOT/config/more.json"],
        ["HOT/config/admin_config.json"],
    ]
    operator.write("HOT/config/more.json", b"{")
    assert status_of(operator, "G0B") == "fail"


# A disk that fails late


def replace_a_file(plane: Path, disk: Disk) -> None:
    """One file of a package by itself, as a set of changes that nobody waits for."""
    with ExitStack() as held:
        workspace = held.enter_context(Workspace.open(str(plane), disk=disk))
        store = held.enter_context(ObjectStore(f"{plane}/objects", bytes_max=1_000_000))
        journal = held.enter_context(Journal(f"{plane}/objects/journal", disk))
        entry = workspace.resolve_entry("HO2/kernel/README.md")
        state = entry_state(workspace, entry)
        content = (plane / entry.path.relative).read_bytes()
        old = AtVersion(state.version)
        change = WriteFile(entry.path, content, old, state.mode, overrides_read_only=True)
        commit_changes(workspace, [[change]], store, journal, label="test")


@pytest.mark.parametrize("asks", ["operator", "model"])
@pytest.mark.parametrize("steps_left", [4, 3, 2])
def test_what_a_set_left_in_the_tree_when_the_disk_failed_is_no_file_of_the_plane(
    dev, steps_left, asks
):
    counting = FaultyDisk()
    replace_a_file(dev.plane, counting)
    # The end of the record, its wait, and the removal of what was displaced.
    step = len(counting.calls) - steps_left
    project = open_project(dev.plane, dev.environment())
    replace_a_file(dev.plane, FaultyDisk(Fault(step, How.BEFORE, errno.EIO)))
    left = list(dev.plane.rglob(".paddock-*.set"))
    assert len(left) == 1
    if asks == "operator":
        assert status_of(dev, "G0B") == "pass"
    else:
        (found,) = check_gates_for_model(project, ["G0B"], "admin").results
        assert found.failures == ()
    assert not left[0].exists()


@pytest.mark.parametrize("how", ["emptied", "gone", "torn"])
@pytest.mark.parametrize("options", [("--all",), ("--gate", "G6")])
def test_a_plane_whose_governance_ledger_is_damaged_is_told_so_by_g6(operator, how, options):
    ledger = operator.plane / "HOT/ledger/governance.jsonl"
    if how == "gone":
        ledger.unlink()
    else:
        ledger.write_bytes(b"" if how == "emptied" else b'{"torn')
    ran = gate(operator, *options)
    failed = {row["gate"] for row in ran.json["gates"] if row["status"] == "fail"}
    assert (ran.status, "G6" in failed) == (1, True)
    assert operator.run("--plane", str(operator.plane), "tools").status == 4


@pytest.mark.parametrize("left", [None, (), ("packages",), ("packages", "governance.d")])
@pytest.mark.parametrize("options", [("--all",), ("--gate", "G6")])
def test_a_plane_without_its_governance_ledger_is_told_so_by_g6(operator, left, options):
    folder = operator.plane / "HOT/ledger"
    for each in folder.iterdir():
        if not each.name.startswith(left or ("nothing",)):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    if left is None:
        folder.rmdir()

    ran = gate(operator, *options)

    (found,) = [row for row in ran.json["gates"] if row["gate"] == "G6"]
    assert (ran.status, found["status"]) == (1, "fail")
    assert "HOT/ledger/governance.jsonl" in {each["file"] for each in found["failures"]}
    assert "this was not recorded: the ledger" in ran.err
    # No other ledger was begun in its place.
    assert not (folder / "governance.jsonl").exists()


def test_a_gate_that_passes_without_a_governance_ledger_is_no_pass(operator):
    for each in (operator.plane / "HOT/ledger").glob("governance*"):
        shutil.rmtree(each) if each.is_dir() else each.unlink()

    ran = gate(operator, "--gate", "G1")

    assert (ran.status, ran.out) == (4, "")
    assert "the ledger governance is gone" in ran.err


@pytest.mark.parametrize("folder", ["HO2/ledger", "HO1/ledger"])
def test_a_plane_whose_lower_ledgers_were_never_made_is_whole(operator, folder):
    (operator.plane / folder).rmdir()

    assert gate(operator, "--all", "--enforce").status == 0


def test_a_failed_gate_of_a_whole_ledger_ends_as_before(operator):
    (operator.plane / "HOT/kernel/orphan").write_text("x")
    assert gate(operator, "--gate", "G0B").status == 0
    assert gate(operator, "--gate", "G0B", "--enforce").status == 1
