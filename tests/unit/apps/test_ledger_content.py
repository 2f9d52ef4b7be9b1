"""Contents that a ledger names: kept apart, shown, and erased with every proof intact."""

import json

import pytest

SECRET = "a very personal sentence"


def written(user, text=SECRET):
    """The digest that the record of a write has in place of its content."""
    assert user.call("create_file", path="docs/a.md", content=text).status == 0
    line = user.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_INTENT", "--json").out
    entry = json.loads(line.splitlines()[-1])
    return entry["call_id"], entry["metadata"]["arguments"]["content"]


def stored(user, text=SECRET):
    """Files of the plane that hold the text."""
    return [
        path
        for path in user.home.rglob("*")
        if path.is_file() and text in path.read_bytes().decode("latin-1")
    ]


def test_an_entry_has_the_digest_alone_and_the_content_stands_apart(user):
    call, kept = written(user)
    assert sorted(kept) == ["bytes", "salted_sha256"]
    assert kept["bytes"] == len(SECRET)
    assert [path.name for path in stored(user)] == [kept["salted_sha256"]]
    shown = user.run("ledger", "content", kept["salted_sha256"])
    assert (shown.status, shown.out) == (0, f"{SECRET}\n")
    listed = user.run("ledger", "content", "--call", call, "--json").json
    assert [(row["argument"], row["kept"], row["bytes"]) for row in listed] == [
        ("content", True, len(SECRET))
    ]


def test_a_refused_call_keeps_no_content(user):
    user.call("create_file", path=".env", content=SECRET)
    assert stored(user) == []
    line = user.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_DENIED", "--json").out
    assert "salt" in json.loads(line)["metadata"]["arguments"]["content"]


def test_erasing_leaves_every_proof_intact_and_is_on_record(user):
    call, kept = written(user)
    digest = kept["salted_sha256"]
    before = user.run("ledger", "export", "--ledger", "ho1m").out
    ran = user.run(
        "ledger", "erase", "--call", call, "--yes", "--reason", "asked by letter", "--json"
    )
    assert (ran.status, ran.json["erased"]) == (0, [digest])
    assert stored(user) == []
    assert user.run("ledger", "export", "--ledger", "ho1m").out == before
    assert user.run("ledger", "verify").status == 0
    entry = json.loads(
        user.run("ledger", "query", "--type", "CONTENT_ERASED", "--json").out.splitlines()[-1]
    )
    assert (entry["reason"], entry["metadata"]) == ("asked by letter", {"digests": [digest]})
    gone = user.run("ledger", "content", digest)
    assert (gone.status, f"was erased: governance, seq {entry['seq']}" in gone.err) == (1, True)
    again = user.run("ledger", "erase", digest, "--yes")
    assert (again.status, "nothing to erase" in again.out) == (1, True)
    # The file that the call wrote is the user's, and stays.
    assert (user.project / "docs/a.md").read_text() == SECRET


def test_nothing_is_erased_where_nobody_was_asked(user):
    call, kept = written(user)
    ran = user.run("ledger", "erase", "--call", call)
    assert (ran.status, "no terminal to ask on" in ran.err) == (2, True)
    assert user.run("ledger", "content", kept["salted_sha256"]).status == 0


def test_the_bytes_come_out_as_they_are(user):
    _, kept = written(user, "\x1b[31mred\x1b[0m\n")
    digest = kept["salted_sha256"]
    assert "\x1b" not in user.run("ledger", "content", digest).out
    assert user.run("ledger", "content", digest, "--out", "raw").status == 0
    assert (user.project / "raw").read_bytes() == b"\x1b[31mred\x1b[0m\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["content"],
        ["content", "xyz"],
        ["content", "0" * 64, "--call", "CALL-1"],
        ["content", "--call", "CALL-none"],
        ["content", "--call", "CALL-none", "--out", "x"],
        ["erase"],
        ["erase", "0" * 63, "--yes"],
        ["erase", "--call", "CALL-none", "--yes"],
    ],
)
def test_what_names_no_content_is_a_usage_error(user, arguments):
    ran = user.run("ledger", *arguments)
    assert (ran.status, ran.out) == (2, "")


def test_a_content_that_was_never_here_is_a_no_and_makes_nothing(user):
    ran = user.run("ledger", "content", "0" * 64)
    assert (ran.status, "is not stored here" in ran.err) == (1, True)
    assert sorted(user.home.rglob("*")) == []


@pytest.mark.needs("stage")
def test_the_whole_output_of_a_command_is_named_by_its_result_and_printed(user):
    assert user.call("run_shell", "--yes", command="seq 1 30000").status == 0
    line = user.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_RESULT", "--json").out
    entry = json.loads(line.splitlines()[-1])
    whole = "".join(f"{number}\n" for number in range(1, 30_001))
    kept = entry["metadata"]["output_kept"]
    assert kept == {"stdout": {"digest": kept["stdout"]["digest"], "bytes": len(whole)}}

    shown = user.run("ledger", "content", kept["stdout"]["digest"], "--json").json
    assert (shown["status"], shown["content"]) == ("ok", whole)
    (row,) = user.run("ledger", "content", "--call", entry["call_id"], "--json").json
    assert (row["argument"], row["bytes"], row["kept"]) == ("stdout", len(whole), True)
    assert user.run("ledger", "erase", "--call", entry["call_id"], "--yes").status == 1
    assert user.run("ledger", "content", kept["stdout"]["digest"]).status == 0
    assert user.run("ledger", "content", "sha256:" + "0" * 64).status == 1
