"""`paddock ledger export`, as somebody runs it who hands a ledger on."""

import os

import pytest

from tests.support.browsers import open_page


def ledger(user, name="ho1m"):
    return next(user.home.rglob(f"{name}.jsonl"))


def test_without_anything_the_lines_come_out_as_they_are_stored(user):
    user.call("view", path="README.md")
    user.call("view", path="nothing")
    ran = user.run("ledger", "export", "--ledger", "ho1m")
    assert (ran.status, ran.out.encode()) == (0, ledger(user).read_bytes())


def test_a_file_is_made_whole_and_an_old_one_is_never_replaced(user):
    user.call("view", path="README.md")
    ran = user.run("ledger", "export", "--ledger", "ho1m", "--out", "a.jsonl", "--json")
    file = user.project / "a.jsonl"
    assert ran.json == {"status": "ok", "file": str(file), "ledger": "ho1m", "lines": 3}
    assert file.read_bytes() == ledger(user).read_bytes()
    again = user.run("ledger", "export", "--ledger", "ho1m", "--out", "a.jsonl")
    assert (again.status, "is there already" in again.err) == (2, True)
    assert file.read_bytes() == ledger(user).read_bytes()
    nowhere = user.run("ledger", "export", "--ledger", "ho1m", "--out", "no/such/a.jsonl")
    assert nowhere.status == 5


def test_what_is_asked_for_alone_is_exported(user):
    user.call("view", path="README.md")
    user.call("view", pth="README.md")
    denied = user.run("ledger", "export", "--ledger", "ho1m", "--type", "TOOL_DENIED").out
    assert denied.encode() in ledger(user).read_bytes()
    assert len(denied.splitlines()) == 1
    newest = user.run("ledger", "export", "--ledger", "ho1m", "--last", "2").out
    assert newest.splitlines() == ledger(user).read_text().splitlines()[-2:]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--last", "-1"], "--last must not be negative: -1"),
        (["--since", "yesterday"], "'yesterday' is no time"),
        (["--checkpoint", "x"], "--checkpoint goes with --format html"),
        (["--format", "html", "--checkpoint", "gone"], "there is no checkpoint 'gone'"),
        (["--ledger", "packages"], "the ledger packages does not exist yet"),
    ],
)
def test_a_mistake_is_two_and_makes_no_file(user, options, said):
    user.call("view", path="README.md")
    ran = user.run("ledger", "export", "--ledger", "ho1m", "--out", "x", *options)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert not (user.project / "x").exists()


def test_json_tells_about_a_file_and_so_needs_one(user):
    user.call("view", path="README.md")
    ran = user.run("ledger", "export", "--ledger", "ho1m", "--json")
    assert (ran.status, ran.out, "name one with --out" in ran.err) == (2, "", True)


def test_a_ledger_that_was_removed_is_no_empty_export(user):
    user.call("view", path="README.md")
    os.unlink(ledger(user))
    ran = user.run("ledger", "export", "--ledger", "ho1m")
    assert (ran.status, ran.out) == (4, "")
    assert "is gone" in ran.err


def test_damage_is_exported_as_it_is_and_told(user):
    user.call("view", path="README.md")
    path = ledger(user)
    path.write_bytes(path.read_bytes() + b"\xffgarbage\n")
    ran = user.run("ledger", "export", "--ledger", "ho1m", "--format", "html", "--out", "a.html")
    assert ran.status == 4
    assert "1 lines hold no entry" in ran.err
    assert user.run("ledger", "export", "--ledger", "ho1m", "--out", "a.jsonl").status == 0
    assert (user.project / "a.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.needs("chromium")
def test_the_page_of_a_real_ledger_verifies_and_an_edit_in_it_is_found(user, tmp_path):
    user.call("create_file", path="docs/a.md", content="x")
    user.call("create_file", path=".env", content="x")
    ran = user.run(
        "ledger", "export", "--ledger", "ho1m", "--format", "html", "--out", "a.html", "--json"
    )
    assert (ran.status, ran.json["lines"], ran.json["shown"]) == (0, 4, 4)
    page = (user.project / "a.html").read_bytes()
    seen = open_page(page, tmp_path)
    assert seen.verdict in {"whole", "partly"}
    assert "create_file" in seen.dom
    edited = open_page(page.replace(b"docs/a.md", b"docs/b.md"), tmp_path)
    assert edited.verdict == "broken"
    assert edited.problems[0].startswith("line 3 (seq 2)")
