"""Checkpoints, proofs and rollbacks at the command line, as an auditor uses them."""

import json
import shutil
from pathlib import Path

import pytest

from paddock import limits
from paddock.assembly.ledgers import HOOK_PACE
from paddock.ledger import tail
from tests.support import forked
from tests.support.planes import operator_in
from tests.support.sealed import load_verifier

other = load_verifier()


def ledger_path(user, name):
    return Path(user.run("where", "--json").json["ledgers"][name])


def verified(user, *options):
    ran = user.run("ledger", "verify", "--json", *options)
    return ran.status, ran.json


def kinds(report):
    return {each["kind"] for each in report["problems"]}


@pytest.fixture
def used(user):
    user.call("create_file", path="a", content="x")
    user.call("view", path="README.md")
    return user


def test_every_ledger_is_covered_when_a_command_has_ended(used):
    status, reports = verified(used)

    assert status == 0
    assert set(reports) == {"governance", "ho2m", "ho1m"}
    assert [each["uncovered_entries"] for each in reports.values()] == [0, 0, 0]


def test_checkpoints_go_up_tier_by_tier_and_out_to_the_anchor(used):
    def carried(name):
        rows = used.run("ledger", "query", "--ledger", name, "--type", "CHECKPOINT", "--json").out
        return [json.loads(row)["metadata"] for row in rows.splitlines()]

    below, middle = carried("ho2m")[-1], carried("governance")[-1]
    assert (below["ledger"], middle["ledger"]) == ("ho1m", "ho2m")
    signed = used.run("ledger", "checkpoint", "--ledger", "ho1m", "--json").json
    assert (below["size"], below["root"]) == (signed["size"], signed["root"])
    (anchor,) = (used.home / ".local/state/paddock/anchors").iterdir()
    notes = sorted((anchor / "governance").iterdir(), key=lambda each: int(each.name))
    assert notes[-1].read_text("utf-8").split("\n")[1] == notes[-1].name


def test_a_checkpoint_is_printed_or_written_and_verifies_later(used):
    printed = used.run("ledger", "checkpoint")
    written = used.run("ledger", "checkpoint", "--out", "kept")
    assert (printed.status, written.status, written.out) == (0, 0, "")
    assert (used.project / "kept").read_text("utf-8") == printed.out
    assert used.run("ledger", "checkpoint", "--out", "kept").status == 2
    used.call("view", path="README.md")

    status, reports = verified(used, "--checkpoint", "kept")

    assert status == 0
    assert {"source": "'kept'", "size": int(printed.out.split("\n")[1])} in reports["governance"][
        "checkpoints"
    ]


FORGED = {
    "size": lambda text: text.replace(f"\n{text.split(chr(10))[1]}\n", "\n1\n"),
    "origin": lambda text: text.replace("/governance", "/other"),
    "nothing": lambda text: "",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_damage(used, name):
    note = used.run("ledger", "checkpoint").out
    (used.project / "forged").write_text(FORGED[name](note), encoding="utf-8")

    for named in ([], ["--ledger", "governance"]):
        assert used.run("ledger", "verify", "--checkpoint", "forged", *named).status == 4
    assert used.run("ledger", "verify", "--checkpoint", "missing").status == 2


def test_a_proof_convinces_a_stranger(used):
    path = ledger_path(used, "ho1m")
    line = path.read_bytes().split(b"\n")[2]
    key = json.loads(path.read_bytes().split(b"\n")[0])["metadata"]["public_key"]

    proof = used.run("ledger", "proof", "2", "--ledger", "ho1m", "--json").json
    grown = used.run("ledger", "proof", "--from", "2", "--ledger", "ho1m", "--json").json
    text = used.run("ledger", "proof", "2", "--ledger", "ho1m").out

    assert list(proof) == ["seq", "size", "leaf", "hashes", "note"]
    assert other.verify_proof(proof, key, line) == []
    assert other.verify_proof(grown, key) == []
    assert text.startswith("c2sp.org/tlog-proof@v1\nindex 2\n")
    assert text.endswith(proof["note"])


def test_a_call_is_proved_by_each_of_its_entries(used):
    path = ledger_path(used, "ho1m")
    lines = path.read_bytes().split(b"\n")
    key = json.loads(lines[0])["metadata"]["public_key"]
    call = json.loads(lines[1])["call_id"]

    ran = used.run("ledger", "proof", call, "--json")
    proofs = [json.loads(row) for row in ran.out.splitlines()]

    assert ran.err.splitlines() == ["entry 1: TOOL_INTENT", "entry 2: TOOL_RESULT"]
    assert [proof["seq"] for proof in proofs] == [1, 2]
    assert [other.verify_proof(proof, key, lines[proof["seq"]]) for proof in proofs] == [[], []]
    assert other.verify_proof(proofs[0], key, lines[2]) != []
    for proof in proofs:
        seq = str(proof["seq"])
        assert used.run("ledger", "proof", seq, "--ledger", "ho1m", "--json").json == proof
    texts = used.run("ledger", "proof", call).out.split("c2sp.org/tlog-proof@v1\n")
    assert [text.partition("\n")[0] for text in texts] == ["", "index 1", "index 2"]


def test_a_refused_call_is_proved_by_its_one_entry(used):
    used.call("delete_file", path=".git/config")
    call = used.run("ledger", "query", "--ledger", "ho1m", "--last", "1", "--json").json["call_id"]

    ran = used.run("ledger", "proof", call, "--json")

    assert (ran.status, ran.err) == (0, f"entry {ran.json['seq']}: TOOL_DENIED\n")


@pytest.mark.parametrize("nothing", ["", " "])
def test_an_empty_id_is_no_call_and_not_all_of_them(used, nothing):
    ran = used.run("ledger", "proof", nothing)

    assert (ran.status, ran.out) == (2, "")
    assert "empty; give" in ran.err
    assert used.run("policy", "explain", nothing).status == 2


def test_a_call_that_the_ledger_has_not_is_said_with_the_ledger(used):
    ran = used.run("ledger", "proof", "CALL-none")
    assert (ran.status, ran.out) == (2, "")
    assert "the ledger ho1m has no entry of the call 'CALL-none'" in ran.err


@pytest.mark.parametrize(
    "arguments", [["9" * 5000], ["99"], ["-1"], [], ["1", "--from", "1"], ["--from", "99"], ["x"]]
)
def test_what_cannot_be_proved_is_a_usage_error(used, arguments):
    assert used.run("ledger", "proof", *arguments, "--ledger", "ho1m").status == 2


def backup(user, name):
    folder = ledger_path(user, name).parent
    shutil.copytree(folder, user.home / f"backup-{name}")


def restore(user, name):
    folder = ledger_path(user, name).parent
    shutil.rmtree(folder)
    shutil.copytree(user.home / f"backup-{name}", folder)


@pytest.mark.parametrize(
    "names", [["governance"], ["ho1m"], ["ho2m"], ["governance", "ho2m", "ho1m"]]
)
def test_a_plane_restored_from_a_backup_fails_until_somebody_accepts(used, names):
    kept = used.run("ledger", "checkpoint", "--ledger", names[0]).out
    for name in names:
        backup(used, name)
    used.call("view", path="README.md")
    late = used.run("ledger", "checkpoint", "--ledger", names[0]).out
    for name in names:
        restore(used, name)

    status, reports = verified(used)
    assert status == 4
    assert {name for name in reports if not reports[name]["whole"]} == set(names)
    assert all("rolled_back" in kinds(reports[name]) for name in names)
    # It is used on, and still nobody signs it.
    assert used.call("view", path="README.md").status == 0
    assert verified(used)[0] == 4

    assert used.run("ledger", "accept-rollback").status == 2
    accepted = used.run("ledger", "accept-rollback", "--yes", "--json")
    assert accepted.status == 0
    assert set(json.loads(accepted.out)["ledgers"]) == set(names)

    status, reports = verified(used)
    assert (status, {name for name in reports if not reports[name]["whole"]}) == (0, set())
    assert [each["uncovered_entries"] for each in reports.values()] == [0, 0, 0]
    rows = used.run(
        "ledger", "query", "--ledger", names[0], "--type", "ROLLBACK_ACCEPTED", "--json"
    )
    assert json.loads(rows.out.splitlines()[-1])["metadata"]["by"] == "--yes"
    used.call("view", path="README.md")
    assert verified(used)[0] == 0
    # An auditor who kept a checkpoint of before still goes along; one of what is gone does not.
    (used.project / "kept").write_text(kept, encoding="utf-8")
    (used.project / "late").write_text(late, encoding="utf-8")
    ran = used.run("ledger", "verify", "--checkpoint", "kept")
    assert ran.status == 0
    assert "extends 'kept', which has " in ran.out
    assert used.run("ledger", "verify", "--checkpoint", "late").status == 4


def test_nothing_to_accept_changes_nothing(used):
    before = ledger_path(used, "governance").read_bytes()

    ran = used.run("ledger", "accept-rollback", "--yes", "--json")

    assert (ran.status, ran.json) == (0, {"status": "ok", "ledgers": []})
    assert ledger_path(used, "governance").read_bytes() == before


def test_another_fault_cannot_be_accepted(used):
    path = ledger_path(used, "ho1m")
    path.write_bytes(path.read_bytes().replace(b'"create_file"', b'"create_fill"', 1))

    assert used.run("ledger", "accept-rollback", "--yes").status == 4
    assert verified(used)[0] == 4


def test_a_ledger_that_was_replaced_whole_is_found(used):
    path = ledger_path(used, "ho1m")
    shutil.rmtree(path.with_suffix(".d"))
    path.unlink()
    key = next((used.home / ".config/paddock/keys").glob("*.ho1m.key"))
    aside = key.rename(key.with_suffix(".aside"))
    used.call("view", path="README.md")
    key.unlink()
    aside.rename(key)

    status, reports = verified(used, "--ledger", "ho1m")

    assert status == 4
    assert "checkpoint" in kinds(reports["ho1m"])


def test_the_anchor_of_the_users_configuration_is_used(used):
    config = used.home / ".config/paddock/config.toml"
    config.write_text(f'[ledger]\nanchor = "{used.home}/elsewhere"\n', encoding="utf-8")

    used.run("ledger", "checkpoint")

    (plane,) = (used.home / "elsewhere").iterdir()
    assert len(list((plane / "governance").iterdir())) == 1
    assert verified(used)[0] == 0


def test_an_anchor_that_lost_what_it_held_is_no_success(used):
    """As where its directory is not mounted: what it held would show a plane put back."""
    assert verified(used)[0] == 0
    shutil.rmtree(used.home / ".local/state/paddock/anchors")

    status, reports = verified(used)

    assert status == 4
    assert (kinds(reports["governance"]), kinds(reports["ho1m"])) == ({"anchor"}, set())
    used.run("ledger", "checkpoint")
    assert verified(used)[0] == 0


def test_somebody_may_accept_that_a_plane_went_back_and_its_anchor_is_lost(used, tmp_path):
    ledgers = ledger_path(used, "governance").parents[2]
    shutil.copytree(ledgers, tmp_path / "backup")
    used.call("create_file", path="b", content="x")
    shutil.rmtree(ledgers)
    shutil.copytree(tmp_path / "backup", ledgers)
    shutil.rmtree(used.home / ".local/state/paddock/anchors")
    assert kinds(verified(used)[1]["governance"]) == {"anchor", "rolled_back"}

    assert used.run("ledger", "accept-rollback", "--yes").status == 0

    assert verified(used)[0] == 0


@pytest.mark.parametrize("anchor", ['"/a\\u0000"', '{git = "/a\\u0000"}'])
def test_an_anchor_with_a_nul_is_refused_as_configuration(used, anchor):
    config = used.home / ".config/paddock/config.toml"
    config.write_text(f"[ledger]\nanchor = {anchor}\n", encoding="utf-8")

    assert used.run("ledger", "verify").status == 3


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_a_ledger_that_cannot_be_read_hides_no_damage_of_another(used, as_json):
    head = ledger_path(used, "ho1m").with_suffix(".d") / "head"
    head.unlink()
    head.mkdir()
    alone = used.run("ledger", "verify", *as_json)
    governance = ledger_path(used, "governance")
    governance.write_bytes(governance.read_bytes().replace(b'"agent":"', b'"agent":"evil', 1))

    both = used.run("ledger", "verify", *as_json)

    assert (alone.status, both.status) == (5, 4)
    assert alone.err.count("the ledger's head file cannot be read") == 1
    assert "the ledger's head file cannot be read" in both.err
    if as_json:
        assert both.json["ho1m"]["error"] == "the ledger's head file cannot be read: Is a directory"
        assert [each["whole"] for each in both.json.values()] == [False, True, False]
        assert kinds(both.json["governance"]) == {"changed"}
        assert alone.json["governance"]["whole"]
    else:
        said = [row.split(",")[0] for row in both.out.splitlines() if row[0] != " "]
        assert said == ["governance: DAMAGED", "ho2m: whole", "ho1m: NOT VERIFIED"]


def test_an_anchor_that_cannot_be_read_is_no_success(used):
    config = used.home / ".config/paddock/config.toml"
    (used.home / "file").write_bytes(b"")
    repository = used.home / "file" / "repository"
    config.write_text(f'[ledger]\nanchor = {{git = "{repository}"}}\n', encoding="utf-8")

    assert used.run("ledger", "verify").status == 5
    assert used.run("ledger", "checkpoint").status == 5
    # Nothing stops working for that.
    assert used.call("view", path="README.md").status == 0


def test_g6_fails_after_a_restore_until_somebody_accepts(tmp_path):
    operator = operator_in(tmp_path).make("--dev")
    ledgers = operator.plane / "HOT" / "ledger"

    def g6():
        (found,) = operator.run("gate", "--gate", "G6", "--json").json["gates"]
        return found["status"], [each["reason"] for each in found["failures"]]

    assert g6() == ("pass", [])
    shutil.copytree(ledgers, tmp_path / "backup")
    assert g6() == ("pass", [])
    shutil.rmtree(ledgers)
    shutil.copytree(tmp_path / "backup", ledgers)

    status, reasons = g6()
    assert status == "fail"
    assert any("the end is missing" in each or "not the entry" in each for each in reasons)
    assert operator.run("ledger", "accept-rollback", "--yes").status == 0
    assert g6() == ("pass", [])


def test_the_hooks_own_writer_leaves_what_is_due_to_the_one_that_signs():
    assert limits.checkpoint_entries_max == tail.CHECKPOINT_ENTRIES
    assert HOOK_PACE.entries < limits.checkpoint_entries_max


def test_a_signer_of_its_own_holds_the_keys_and_signs_one_history(user):
    keys = user.home / "signer"
    command = [*forked.command(forked.CONSOLE), "ledger", "signer", str(keys)]
    config = user.home / ".config/paddock/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[ledger]\nsigner = {json.dumps(command)}\n", encoding="utf-8")
    user.call("view", path="README.md")

    status, reports = verified(user)
    assert (status, [each["uncovered_entries"] for each in reports.values()]) == (0, [0, 0, 0])
    assert not (config.parent / "keys").exists()
    assert len(list(keys.glob("*.key"))) == 3

    backup(user, "ho1m")
    user.call("view", path="README.md")
    restore(user, "ho1m")
    assert verified(user)[0] == 4
    refused = user.run("ledger", "checkpoint", "--ledger", "ho1m")
    assert (refused.status, "was rolled back" in refused.err) == (5, True)
    assert user.run("ledger", "accept-rollback", "--yes").status == 0
    assert verified(user)[0] == 0


def test_a_signer_is_told_of_a_name_that_is_no_text(user, tmp_path):
    ran = user.run("ledger", "signer", str(tmp_path / "keys"), "key", "\udcff")

    assert (ran.status, ran.out, "is not UTF-8" in ran.err) == (2, "", True)


def test_a_signer_without_a_directory_makes_no_key_here(user):
    before = user.files()
    ran = user.run("ledger", "signer", "", "key", "x")

    assert (ran.status, ran.out, "DIR is empty" in ran.err) == (2, "", True)
    assert user.files() == before


def test_a_signer_that_a_project_names_is_refused(user):
    (user.project / "paddock.toml").write_text('[ledger]\nsigner = ["x"]\n', encoding="utf-8")

    refused = user.call("view", path="README.md")

    assert refused.status == 3
    assert "allowed only in the user's own configuration" in refused.err


def test_an_entry_that_is_not_there_is_told_with_how_many_there_are(used):
    rows = used.run("ledger", "query", "--ledger", "ho1m", "--last", "0", "--json").out
    count = len(rows.splitlines())
    ran = used.run("ledger", "proof", "999", "--ledger", "ho1m")
    assert (ran.status, ran.out) == (2, "")
    said = f"the ledger ho1m has {count} entries, 0 to {count - 1}, and no entry 999"
    assert ran.err.startswith(f"error[usage]: {said}\n")
    assert used.run("ledger", "proof", str(count - 1), "--ledger", "ho1m").status == 0


@pytest.mark.parametrize("named", [[], ["--ledger", "ho1m"]])
def test_a_plane_that_was_removed_and_made_anew_is_accepted_at_once(used, named):
    assert used.run("plane", "remove", str(used.project), "--yes").status == 0
    used.call("view", path="README.md")
    assert verified(used)[0] == 4
    if named:
        assert used.run("ledger", "accept-rollback", "--ledger", "governance", "--yes").status == 0

    accepted = used.run("ledger", "accept-rollback", *named, "--yes", "--json")

    assert accepted.status == 0, accepted.err
    ledgers = ["ho2m", "ho1m"] if named else ["governance", "ho2m", "ho1m"]
    assert accepted.json["ledgers"] == ledgers
    assert "ho2m: the ledger is missing: " in accepted.err
    assert verified(used)[0] == 0


def test_a_ledger_whose_folder_was_left_is_no_rollback(used):
    ledger_path(used, "ho2m").unlink()

    ran = used.run("ledger", "accept-rollback", "--yes")

    assert (ran.status, "the ledger ho2m is gone" in ran.err) == (4, True)
    assert not ledger_path(used, "ho2m").exists()
