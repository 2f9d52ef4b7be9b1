"""`paddock ledger export`, as somebody runs it who hands a ledger on."""

import io
import os

import pytest

from paddock.apps.cli.main import main
from paddock.apps.console import Console
from paddock.values.entries import Entry
from tests.support.browsers import open_page
from tests.support.ledgers import open_ledger


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
    assert (again.status, "exists already" in again.err) == (2, True)
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
        (["--since", "yesterday"], "invalid time 'yesterday'"),
        (["--checkpoint", "x"], "--checkpoint needs --format html"),
        (["--format", "html", "--checkpoint", "gone"], "checkpoint file 'gone' not found"),
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
    assert "1 lines are not valid entries" in ran.err
    assert user.run("ledger", "export", "--ledger", "ho1m", "--out", "a.jsonl").status == 0
    assert (user.project / "a.jsonl").read_bytes() == path.read_bytes()


def damage_the_result(user):
    """One byte in the metadata of line 3, which still begins and ends as an entry does."""
    path = ledger(user)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b'"metadata":{"', b'"metadata":{"\xff')
    path.write_bytes(b"\n".join(lines))


@pytest.mark.parametrize("how", [["--agent", "main"], ["--last", "2"]])
def test_a_damaged_line_is_not_left_out_without_a_word(user, how):
    user.call("view", path="README.md")
    assert user.run("ledger", "export", "--ledger", "ho1m", *how).status == 0
    damage_the_result(user)

    lines = user.run("ledger", "export", "--ledger", "ho1m", *how)
    page = user.run(
        *("ledger", "export", "--ledger", "ho1m", *how, "--format", "html", "--out", "a", "--json")
    )

    assert (lines.status, page.status) == (4, 4)
    assert "1 lines are not valid entries and left out" in lines.err
    assert "1 lines are not valid entries" in page.err
    assert page.json["bad"] == 1


@pytest.mark.parametrize("how", [[], ["--last", "9"], ["--type", "TOOL_INTENT"]])
def test_what_follows_the_last_whole_line_is_left_out_and_told(user, how):
    user.call("view", path="README.md")
    path = ledger(user)
    whole = user.run("ledger", "export", "--ledger", "ho1m", *how)
    assert whole.err == ""
    path.write_bytes(path.read_bytes() + b'{"id"')

    torn = user.run("ledger", "export", "--ledger", "ho1m", *how)

    assert (torn.status, torn.out) == (0, whole.out)
    assert torn.err == "5 bytes follow the last whole line and are left out\n"


def test_what_an_entry_holds_makes_no_rows_of_its_own(user):
    user.call("view", path="README.md")
    forged = "allow\n   999  2026-11-22T23:59:59.000000Z  TOOL_DENIED"
    opened = open_ledger(ledger(user), create=None)
    opened.append([Entry("NOTE", decision=forged, agent="a\nb", reason="c\nd")])

    asked = user.run("ledger", "query", "--ledger", "ho1m", "--last", "1")

    [row] = asked.out.splitlines()
    assert r"NOTE            allow\n   999  2026" in row


@pytest.mark.parametrize("question", [["tail"], ["query"], ["proof", "1"], ["checkpoint"]])
def test_a_ledger_that_was_removed_is_told_by_every_question(user, question):
    user.call("view", path="README.md")
    os.unlink(ledger(user))

    ran = user.run("ledger", *question, "--ledger", "ho1m")

    assert (ran.status, ran.out, "the ledger ho1m is gone" in ran.err) == (4, "", True)


def test_a_question_says_that_an_entry_is_unfinished(user):
    user.call("view", path="README.md")
    path = ledger(user)
    path.write_bytes(path.read_bytes() + b'{"id"')

    asked = user.run("ledger", "query", "--ledger", "ho1m")

    assert (asked.status, len(asked.out.splitlines())) == (0, 3)
    assert asked.err == "5 bytes follow the last whole line and are not an entry yet\n"


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "ascii"])
def test_what_programs_read_is_the_same_whatever_the_terminals_encoding(user, encoding):
    (user.project / "na\u00efve\u2014file").write_text("x", encoding="utf-8")
    user.call("view", path="na\u00efve\u2014file")

    def printed(*arguments):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
        variables = {"HOME": str(user.home)}
        console = Console(io.StringIO(), out, io.StringIO(), variables, user.project)
        assert main(["ledger", *arguments], console) == 0
        out.flush()
        return out.buffer.getvalue()

    note = printed("checkpoint", "--ledger", "ho1m")
    assert printed("export", "--ledger", "ho1m") == ledger(user).read_bytes()
    assert printed("export", "--ledger", "ho1m", "--last", "9") == ledger(user).read_bytes()
    assert "na\u00efve\u2014file".encode() in printed(
        "export", "--ledger", "ho1m", "--format", "html"
    )
    assert "\n\n\u2014 ".encode() in note
    assert printed("proof", "1", "--ledger", "ho1m").endswith(note)


def test_more_of_the_last_than_any_page_holds_are_all(user):
    user.call("view", path="README.md")
    ran = user.run(
        "ledger", "export", "--ledger", "ho1m", "--format", "html", "--last", "9" * 20, "--out", "a"
    )
    assert (ran.status, ran.out.startswith("exported 3 entries of ho1m")) == (0, True)


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
