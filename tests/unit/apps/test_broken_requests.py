"""A kept request that does not load, or does not say what was asked about, holds nobody up for ever."""

import json

import pytest

ASKING = b"""
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:file:create asked/**"]
"""
AGENT_CHANGED = (
    "the agent, its permissions, the tool or the kept request has changed since it was asked about"
)


def ask(user, *options, path="asked/a"):
    return user.call("create_file", *(options or ("--no-input",)), path=path, content="x")


def file_of(user, kept):
    (file,) = user.home.rglob(f"{kept}.*.json")
    return file


def change(file, **members):
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **members}))


BREAK = {
    "empty": lambda file: file.write_bytes(b""),
    "torn": lambda file: file.write_bytes(file.read_bytes()[:200]),
    "late": lambda file: change(file, expires_at=253_402_300_800),
    "later": lambda file: change(file, expires_at=10**30),
    "directory": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.fixture(params=BREAK)
def broken(asking, request):
    """The id of a request whose file does not load."""
    kept = ask(asking).json["approval"]
    BREAK[request.param](file_of(asking, kept))
    return kept


def test_a_list_names_what_does_not_load_and_the_rest_as_ever(asking, broken):
    file = file_of(asking, broken)
    kept = ask(asking, path="asked/b").json["approval"]
    ran = asking.run("approvals", "list")
    assert (ran.status, ran.out.split()[0]) == (3, kept)
    assert f"the request '{broken}' does not load: " in ran.err
    assert f"paddock approvals refuse {broken}" in ran.err
    ran = asking.run("approvals", "list", "--json")
    assert (ran.status, f"the request '{broken}' does not load: " in ran.err) == (3, True)
    (sound, other) = ran.json
    assert (sound["id"], sound["state"]) == (kept, "waiting")
    assert (other["id"], other["state"], other["file"]) == (broken, "broken", str(file))


@pytest.mark.parametrize("action", [["show"], ["grant"], ["grant", "--resume"]], ids="-".join)
def test_what_does_not_load_is_neither_shown_nor_granted(asking, broken, action):
    ran = asking.run("approvals", *action, broken)
    assert (ran.status, ran.out) == (3, "")
    assert f"error[config.invalid]: the request '{broken}' does not load: " in ran.err
    assert f"paddock approvals refuse {broken}" in ran.err


@pytest.mark.parametrize("option", ["--no-input", "--yes"])
def test_the_calls_refusal_says_which_request_does_not_load_and_no_place(asking, broken, option):
    refused = ask(asking, option).json
    assert refused["code"] == "approval.unavailable"
    assert f"the request {broken}, which may be for this call, does not load" in refused["error"]
    assert f"paddock approvals refuse {broken}" in refused["hint"]
    assert str(asking.home) not in json.dumps(refused)
    assert "asked/a" not in asking.files()


def test_what_does_not_load_is_moved_away_and_then_the_call_is_asked_about(asking, broken):
    file = file_of(asking, broken)
    ran = asking.run("approvals", "refuse", broken)
    assert (ran.status, "moved the request, which does not load" in ran.out) == (0, True), ran.err
    assert (file.exists(), file.with_name(f"{file.name}.broken").exists()) == (False, True)
    listed = asking.run("approvals", "list")
    assert (listed.status, listed.out) == (0, "no request waits for an approval\n")
    assert ask(asking).json["approval"] != broken
    assert ask(asking, "--yes").json["status"] == "ok"


def test_what_was_moved_away_is_told_to_a_program_too(asking, broken):
    aside = f"{file_of(asking, broken)}.broken"
    ran = asking.run("approvals", "refuse", broken, "--json")
    assert ran.json == {"status": "ok", "state": "broken", "moved_to": aside}


# --- a file that does not say what was asked about ------------------------------------


@pytest.mark.parametrize(
    "members",
    [
        {"tool": "unheard_of"},
        {"tool": "unheard_of", "arguments": {"path": "asked/b", "content": "x"}},
        {"arguments": {"path": "asked/b", "content": "x"}},
        {"actions": ["tool:file:create asked/b"]},
        {"agent": "other"},
    ],
    ids=["tool", "tool-and-arguments", "arguments", "actions", "agent"],
)
def test_a_request_whose_file_shows_another_call_is_not_granted(asking, members):
    assert asking.run("agent", "create", "other", "--workspace", str(asking.project)).status == 0
    kept = ask(asking).json["approval"]
    change(file_of(asking, kept), **members)
    ran = asking.run("approvals", "grant", kept)
    assert (ran.status, f"would count for no call: {AGENT_CHANGED}" in ran.err) == (1, True)
