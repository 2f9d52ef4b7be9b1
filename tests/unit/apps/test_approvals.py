"""`paddock approvals`: what nobody could answer is kept, answered later, and runs once."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.apps.cli.approvals import operator

ASKING = b"""
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:file:create asked/**"]
"""

OUTPUT_ASKED = b"""
[profiles.standard]
ask = ["tool:output:*"]
"""
PADDOCK = "from paddock.apps.cli.main import console; console()"


def ask(user, content="x", path="asked/a", **options):
    return user.call("create_file", "--no-input", path=path, content=content, **options)


def ask_as(user, agent):
    arguments = json.dumps({"path": "asked/a", "content": "x"})
    return user.run("call", "create_file", arguments, "--no-input", "--agent", agent)


def waiting(user):
    return user.run("approvals", "list", "--json").json


def file_of(user, identity):
    (file,) = (user.home / ".local/state/paddock").rglob(f"{identity}.*.json")
    return file


def answers(user):
    ran = user.run("ledger", "query", "--type", "APPROVAL_ANSWERED", "--json")
    entries = [json.loads(line) for line in ran.out.splitlines()]
    return [(entry["decision"], entry["metadata"].get("answer")) for entry in entries]


def calls(user):
    """The decisions of the calls, oldest first."""
    ran = user.run("ledger", "query", "--ledger", "ho1m", "--json")
    entries = [json.loads(line) for line in ran.out.splitlines()]
    return [each for each in entries if each["event_type"] in ("TOOL_DENIED", "TOOL_INTENT")]


def test_what_nobody_could_answer_is_kept_and_the_refusal_says_how_to_answer_it(asking):
    refused = ask(asking).json
    (kept,) = waiting(asking)
    assert (refused["code"], refused["approval"]) == ("approval.unavailable", kept["id"])
    assert f"paddock approvals show {kept['id']}" in refused["hint"]
    assert (kept["state"], kept["agent"], kept["tool"]) == ("waiting", "main", "create_file")
    assert kept["actions"] == ["tool:file:create asked/a"]
    assert "asked/a" not in asking.files()


def test_the_same_question_is_kept_once(asking):
    ids = {ask(asking).json["approval"] for _ in range(3)}
    assert ids == {kept["id"] for kept in waiting(asking)}


def test_what_was_answered_otherwise_is_not_listed_any_more(asking):
    other = ask(asking, path="asked/b").json["approval"]
    kept = ask(asking).json["approval"]
    ran = asking.call("create_file", "--yes", path="asked/a", content="x")
    assert ran.json["status"] == "ok"
    assert [each["id"] for each in waiting(asking)] == [other]
    # It left no grant behind either.
    os.unlink(asking.project / "asked/a")
    assert asking.run("approvals", "grant", kept).status == 2
    assert ask(asking).json["code"] == "approval.unavailable"


def test_after_a_grant_the_same_call_runs_once_and_then_is_asked_about_again(asking):
    kept = ask(asking).json["approval"]
    assert asking.run("approvals", "grant", kept).status == 0
    assert "asked/a" not in asking.files()
    assert ask(asking).json["status"] == "ok"
    assert (asking.project / "asked/a").read_bytes() == b"x"
    os.unlink(asking.project / "asked/a")
    assert ask(asking).json["code"] == "approval.unavailable"
    assert answers(asking) == [
        ("deny", "kept"),
        ("allow", "granted"),
        ("allow", "used"),
        ("deny", "kept"),
    ]


def test_a_row_of_the_ledger_says_who_answered_what_of_which_call(asking):
    refused = ask(asking).json
    kept = refused["approval"]
    assert asking.run("approvals", "grant", kept).status == 0
    ran = ask(asking).json
    assert ran["status"] == "ok"
    asked, done = (each["call_id"] for each in calls(asking))
    rows = asking.run("ledger", "query", "--type", "APPROVAL_ANSWERED").out.splitlines()
    said = [row.rpartition("create_file asked/a  ")[2] for row in rows]
    by = operator()
    assert said == [
        f"kept by nobody: there is no approver; it is kept as {kept}  ({asked})",
        f"granted by {by}  ({asked})",
        f"used by {by}  ({done})",
    ]


@pytest.mark.parametrize("change", [{"content": "y"}, {"path": "asked/b"}], ids=["content", "path"])
def test_a_grant_does_not_count_for_another_call(asking, change):
    kept = ask(asking).json["approval"]
    asking.run("approvals", "grant", kept)
    assert ask(asking, **change).json["code"] == "approval.unavailable"
    assert ask(asking).json["status"] == "ok"


def test_a_grant_does_not_count_when_the_target_has_changed(asking):
    kept = ask(asking).json["approval"]
    asking.run("approvals", "grant", kept)
    (asking.project / "asked").mkdir()
    (asking.project / "asked/a").write_bytes(b"somebody else's")
    assert ask(asking).json["code"] == "approval.unavailable"
    assert (asking.project / "asked/a").read_bytes() == b"somebody else's"


def test_a_grant_does_not_count_when_the_policy_has_changed(asking):
    kept = ask(asking).json["approval"]
    asking.run("approvals", "grant", kept)
    (asking.project / "paddock.toml").write_bytes(ASKING + b"# more\n")
    asking.run("trust", "--yes")
    assert ask(asking).json["code"] == "approval.unavailable"


def test_a_grant_of_one_agent_is_none_of_another(asking):
    asking.run("agent", "create", "other", "--workspace", str(asking.project))
    kept = ask(asking).json["approval"]
    asking.run("approvals", "grant", kept)
    assert ask_as(asking, "other").json["code"] == "approval.unavailable"
    assert ask(asking).json["status"] == "ok"


def test_a_grant_that_is_put_back_after_its_use_does_not_count_again(asking):
    kept = ask(asking).json["approval"]
    asking.run("approvals", "grant", kept)
    file = file_of(asking, kept)
    granted = file.read_bytes()
    assert ask(asking).json["status"] == "ok"
    os.unlink(asking.project / "asked/a")
    file.write_bytes(granted)
    assert ask(asking).json["code"] == "approval.unavailable"
    assert not (asking.project / "asked/a").exists()


def test_a_grant_that_was_taken_back_does_not_count_where_its_file_is_put_back(asking):
    kept = ask(asking).json["approval"]
    assert asking.run("approvals", "grant", kept).status == 0
    file = file_of(asking, kept)
    granted = file.read_bytes()
    assert asking.run("approvals", "refuse", kept).status == 0
    file.write_bytes(granted)
    assert ask(asking).json["code"] == "approval.unavailable"
    assert "asked/a" not in asking.files()


def test_a_refusal_that_was_taken_back_is_a_grant(asking):
    kept = ask(asking).json["approval"]
    for answer in ("grant", "refuse", "grant"):
        assert asking.run("approvals", answer, kept).status == 0
    assert ask(asking).json["status"] == "ok"


@pytest.mark.parametrize("name", ["state", "digest"])
def test_a_file_that_says_granted_counts_for_nothing_without_the_record(asking, name):
    first, other = ask(asking).json["approval"], ask(asking, content="y").json["approval"]
    state = asking.home / ".local/state/paddock"
    (file,) = state.rglob(f"{other}.*.json")
    members = json.loads(file.read_bytes())
    if name == "digest":
        # A grant for one call, given to another.
        asking.run("approvals", "grant", other)
        members = json.loads(file.read_bytes())
        (wanted,) = state.rglob(f"{first}.*.json")
        members["digest"] = json.loads(wanted.read_bytes())["digest"]
        file = file.with_name(f"{other}.{wanted.name.split('.')[1]}.json")
        os.unlink(wanted)
    members["state"] = "granted"
    file.write_text(json.dumps(members))
    content = "x" if name == "digest" else "y"
    assert ask(asking, content=content).json["code"] == "approval.unavailable"
    assert "asked/a" not in asking.files()


def test_a_resumed_call_runs_now_and_its_grant_is_used(asking):
    kept = ask(asking).json["approval"]
    ran = asking.run("approvals", "grant", kept, "--resume", "--json")
    assert (ran.status, ran.json["status"]) == (0, "ok")
    assert (asking.project / "asked/a").read_bytes() == b"x"
    assert waiting(asking) == []
    assert answers(asking)[-1] == ("allow", "used")


def test_a_resumed_call_is_shown_as_granted_before_its_result(asking):
    kept = ask(asking).json["approval"]
    rows = asking.run("approvals", "grant", kept, "--resume").out.splitlines()
    assert rows[0].startswith(f"{kept} (granted, until ")
    at = rows.index("granted: the call runs now")
    assert rows[at + 1 :] == ["created asked/a (1 bytes)", "     1\tx"]


# --- what has changed ----------------------------------------------------------------


@pytest.fixture
def warned(user):
    """What is asked about is warned of, too."""
    govern(user, ASKING + b'[paths]\nwarned = ["/asked/**"]\n')
    return user


POLICY_CHANGED = "the policy has changed since it was asked about"
AGENT_CHANGED = (
    "the agent, its permissions, the tool or the kept request has changed since it was asked about"
)
TARGET_CHANGED = "the target of the call has changed since it was asked about"
DENIED = f"{POLICY_CHANGED}, and now denies the call: "
RULE = 'rule "tool:file:create asked/**" in profiles.standard.deny'
ANEW = "make the call again: it is then asked about again"


def govern(user, policy):
    (user.project / "paddock.toml").write_bytes(policy)
    assert user.run("trust", "--yes").status == 0


def change_policy(user):
    govern(user, ASKING + b"# more\n")


def deny(user):
    govern(user, ASKING.replace(b"ask =", b"deny ="))


def allow(user):
    govern(user, ASKING.replace(b"asked/**", b"elsewhere/**"))


def change_target(user):
    (user.project / "asked").mkdir()
    (user.project / "asked/a").write_bytes(b"somebody else's")


def take_tools_away(user):
    plane = Path(user.run("where", "--json").json["plane"])
    file = plane / "agents/main/agent.json"
    declared = json.loads(file.read_bytes())
    file.write_text(json.dumps({**declared, "toolsets": ["search"]}))


CHANGES = {
    "tool": (take_tools_away, "the agent no longer has the tool", "once the agent has it again"),
    "policy": (change_policy, POLICY_CHANGED, ANEW),
    "denied": (deny, DENIED + RULE, "no answer lifts a denial: change the policy"),
    "allowed": (allow, f"{POLICY_CHANGED}, and now allows the call", "it needs no grant"),
    "target": (change_target, TARGET_CHANGED, "make the call again"),
}


@pytest.mark.parametrize("more", [[], ["--resume"], ["--json"]], ids=["grant", "resume", "json"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_can_count_no_more_is_not_granted_and_the_refusal_says_why(asking, name, more):
    change, why, hint = CHANGES[name]
    kept = ask(asking).json["approval"]
    change(asking)
    before = asking.files()

    ran = asking.run("approvals", "grant", kept, *more)

    assert ran.status == 1
    assert (
        f"error[approval.expired]: an answer to '{kept}' would count for no call: {why}" in ran.err
    )
    assert hint in ran.err
    assert (asking.files(), answers(asking)) == (before, [("deny", "kept")])


@pytest.mark.parametrize("name", CHANGES)
def test_what_can_count_no_more_is_marked_and_the_rest_is_not(asking, name):
    change, why, _ = CHANGES[name]
    kept = ask(asking).json["approval"]
    assert waiting(asking)[0]["outdated"] == ""
    assert asking.run("approvals", "list").out.split()[:2] == [kept, "waiting"]
    assert "outdated" not in asking.run("approvals", "show", kept).out
    change(asking)

    (row,) = waiting(asking)

    assert row["outdated"].startswith(why)
    assert asking.run("approvals", "list").out.split()[:2] == [kept, "outdated"]
    assert f"  outdated: {row['outdated']}\n" in asking.run("approvals", "show", kept).out
    assert asking.run("approvals", "show", kept, "--json").json["outdated"] == row["outdated"]


OTHER_FILE = "its file does not match the recorded request"


@pytest.mark.parametrize(
    ("name", "value"),
    [("reason", "a"), ("rule", "a"), ("warnings", []), ("diff", "+a"), ("filled", {"b": "a"})],
)
@pytest.mark.parametrize("more", [[], ["--resume"], ["--always", "--yes"]])
def test_a_request_that_is_shown_otherwise_than_it_was_asked_is_not_granted(
    warned, name, value, more
):
    kept = ask(warned).json["approval"]
    file = file_of(warned, kept)
    asked = file.read_text()
    file.write_text(json.dumps({**json.loads(asked), name: value}))
    assert [row["outdated"] for row in waiting(warned)] == [OTHER_FILE]
    assert f"  outdated: {OTHER_FILE}\n" in warned.run("approvals", "show", kept).out
    ran = warned.run("approvals", "grant", kept, *more)
    assert (ran.status, f"would count for no call: {OTHER_FILE}" in ran.err) == (1, True), ran.err
    assert answers(warned) == [("deny", "kept")]

    # As it was asked it counts.
    file.write_text(asked)
    assert [row["outdated"] for row in waiting(warned)] == [""]
    assert warned.run("approvals", "grant", kept).status == 0
    assert ask(warned).json["status"] == "ok"


def test_a_file_that_was_changed_gets_no_record_of_its_own_and_the_call_is_kept_anew(asking):
    kept = ask(asking).json["approval"]
    file = file_of(asking, kept)
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "reason": "a"}))
    anew = ask(asking).json["approval"]
    marked = {row["id"]: row["outdated"] for row in waiting(asking)}
    assert marked == {kept: OTHER_FILE, anew: ""}


def test_a_refusal_holds_whatever_its_file_shows(asking):
    kept = ask(asking).json["approval"]
    file = file_of(asking, kept)
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "reason": "a"}))
    said = asking.run("approvals", "refuse", kept).out
    assert said == f"refused {kept}: the same call is refused until the request expires\n"
    assert ask(asking).json["code"] == "approval.refused"


def test_a_target_that_is_gone_is_said_in_the_words_of_the_call(asking):
    govern(asking, ASKING.replace(b"create asked/**", b"delete **"))
    kept = asking.call("delete_file", "--no-input", path="README.md").json["approval"]
    os.unlink(asking.project / "README.md")
    ran = asking.run("approvals", "grant", kept)
    why = "the call cannot be made any more: cannot inspect 'README.md': no such file or directory"
    assert (ran.status, f"would count for no call: {why}" in ran.err) == (1, True), ran.err


def test_of_several_only_those_are_marked_whose_target_has_changed(asking):
    changed, other = ask(asking).json["approval"], ask(asking, path="asked/b").json["approval"]
    change_target(asking)
    marked = {row["id"]: row["outdated"] for row in waiting(asking)}
    assert marked == {changed: TARGET_CHANGED, other: ""}


def test_a_policy_that_is_as_it_was_again_makes_a_request_count_again(asking):
    kept = ask(asking).json["approval"]
    change_policy(asking)
    assert asking.run("approvals", "grant", kept).status == 1
    govern(asking, ASKING)
    assert asking.run("approvals", "grant", kept).status == 0
    assert ask(asking).json["status"] == "ok"


def test_a_grant_that_was_given_before_is_marked_as_well(asking):
    kept = ask(asking).json["approval"]
    assert asking.run("approvals", "grant", kept).status == 0
    assert asking.run("approvals", "list").out.split()[:2] == [kept, "granted"]
    change_policy(asking)
    assert asking.run("approvals", "list").out.split()[:2] == [kept, "outdated"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda file: file.unlink(), "the call cannot be made any more: no agent is named 'other'"),
        (
            lambda file: file.write_text(file.read_text().replace('"standard"', '"readonly"')),
            AGENT_CHANGED,
        ),
    ],
    ids=["gone", "changed"],
)
def test_a_request_of_an_agent_that_has_changed_is_not_granted(asking, change, why):
    created = asking.run("agent", "create", "other", "--workspace", str(asking.project), "--json")
    assert created.status == 0
    kept = ask_as(asking, "other").json["approval"]
    (file,) = asking.home.rglob("other/agent.json")
    change(file)
    ran = asking.run("approvals", "grant", kept)
    assert (ran.status, f"would count for no call: {why}" in ran.err) == (1, True), ran.err
    assert [row["outdated"] for row in waiting(asking)] == [why]


def test_a_refusal_that_holds_for_no_call_any_more_says_so(asking):
    first, second = ask(asking).json["approval"], ask(asking, path="asked/b").json["approval"]
    said = asking.run("approvals", "refuse", first).out
    assert said == f"refused {first}: the same call is refused until the request expires\n"
    change_policy(asking)
    said = asking.run("approvals", "refuse", second).out
    assert said == f"refused {second}: it applies to no call any more: {POLICY_CHANGED}\n"


def test_a_refused_call_is_refused_again_with_what_the_operator_said(asking):
    kept = ask(asking).json["approval"]
    assert asking.run("approvals", "refuse", kept, "--note", "use b").status == 0
    for _ in range(2):
        refused = ask(asking).json
        assert (refused["code"], refused["status"]) == ("approval.refused", "error")
        assert "use b" in refused["error"]
    assert "asked/a" not in asking.files()


def test_a_request_is_private_and_its_content_is_in_no_ledger(asking):
    secret = "SECRET-" * 700
    kept = ask(asking, content=secret).json["approval"]
    state = asking.home / ".local/state/paddock"
    (file,) = state.rglob(f"{kept}.*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_bytes())["arguments"]["content"] == secret
    for ledger in state.rglob("*.jsonl"):
        assert b"SECRET-" not in ledger.read_bytes()


def test_what_is_shown_is_whole_and_cannot_forge_a_line(asking):
    content = "x" * 5000 + "\n  agent: somebody else\u202e"
    kept = ask(asking, content=content).json["approval"]
    shown = asking.run("approvals", "show", kept).out
    assert "x" * 5000 + "\\n  agent: somebody else\\u202e" in shown
    assert [row for row in shown.splitlines() if row.startswith("  agent:")] == ["  agent: main"]


@pytest.mark.parametrize("action", ["show", "grant", "refuse"])
@pytest.mark.parametrize("wanted", ["APR-ffff", "nonsense", "../x", ""])
def test_a_request_that_is_not_there_is_a_usage_error(asking, action, wanted):
    assert asking.run("approvals", action, wanted).status == 2


def test_of_two_processes_with_one_grant_exactly_one_runs(asking):
    (asking.project / "paddock.toml").write_bytes(OUTPUT_ASKED)
    asking.run("trust", "--yes")
    kept = asking.call("write_output", "--no-input", name="b", content="x").json["approval"]
    asking.run("approvals", "grant", kept)
    call = [sys.executable, "-c", PADDOCK, "call", "write_output", '{"name": "b", "content": "x"}']
    kept_names = ("PATH", "PYTHONPATH")
    environment = {name: os.environ[name] for name in kept_names if name in os.environ}
    environment["HOME"] = str(asking.home)
    running = [
        subprocess.Popen(
            [*call, "--no-input"],
            cwd=asking.project,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    results = [json.loads(process.communicate()[0]) for process in running]
    assert sorted(result["status"] for result in results) == ["error", "error", "error", "ok"]
    assert [f for f in asking.files() if f.startswith("outputs/b")] == ["outputs/b.md"]


# --- always ------------------------------------------------------------------------

OTHERWISE = b'[profiles.standard]\notherwise = { "tool:file:*" = "ask" }\n'


@pytest.fixture
def unsure(user):
    (user.project / "paddock.toml").write_bytes(OTHERWISE)
    os.chmod(user.project / "paddock.toml", 0o640)
    assert user.run("trust", "--yes").status == 0
    return user


def test_always_writes_a_rule_that_was_shown_and_trusts_just_that(unsure):
    kept = ask(unsure).json["approval"]
    ran = unsure.run("approvals", "grant", kept, "--always", "--yes")
    assert (ran.status, 'action  = "tool:file:create asked/a"' in ran.out) == (0, True), ran.err
    written = (unsure.project / "paddock.toml").read_bytes()
    assert written.startswith(OTHERWISE)
    assert stat.S_IMODE(os.stat(unsure.project / "paddock.toml").st_mode) == 0o640
    for _ in range(2):
        assert ask(unsure).json["status"] == "ok"
    assert ask(unsure, path="asked/b").json["code"] == "approval.unavailable"
    assert [w["actions"] for w in waiting(unsure)] == [["tool:file:create asked/b"]]
    assert ("allow", "always") in answers(unsure)
    assert unsure.run("trust").out.endswith("trusted already\n")


def test_always_is_asked_about_and_without_a_terminal_nothing_is_saved(unsure):
    kept = ask(unsure).json["approval"]
    assert unsure.run("approvals", "grant", kept, "--always").status == 2
    assert (unsure.project / "paddock.toml").read_bytes() == OTHERWISE
    assert ask(unsure).json["code"] == "approval.unavailable"


def test_always_lifts_no_rule_that_asks(asking):
    kept = ask(asking).json["approval"]
    ran = asking.run("approvals", "grant", kept, "--always", "--yes")
    assert (ran.status, "still asks" in ran.err) == (3, True)
    assert (asking.project / "paddock.toml").read_bytes() == ASKING


def test_always_and_resume_runs_the_kept_call_under_the_new_rule(unsure):
    kept = ask(unsure).json["approval"]
    ran = unsure.run("approvals", "grant", kept, "--always", "--resume", "--yes", "--json")
    assert (ran.status, ran.json["status"]) == (0, "ok")
    assert (unsure.project / "asked/a").read_bytes() == b"x"


def test_always_is_for_a_trusted_policy_alone(unsure):
    kept = ask(unsure).json["approval"]
    # Of a policy that nobody has trusted the asks are in force all the same.
    untrusted = OTHERWISE + b'ask = ["tool:file:create **"]\n'
    (unsure.project / "paddock.toml").write_bytes(untrusted)
    ran = unsure.run("approvals", "grant", kept, "--always", "--yes")
    assert (ran.status, "the project's policy is not trusted" in ran.err) == (3, True), ran.err
    assert (unsure.project / "paddock.toml").read_bytes() == untrusted


def test_always_is_for_requests_from_before_the_policy_changed_too_if_they_are_asked_yet(unsure):
    first, second = ask(unsure).json["approval"], ask(unsure, path="asked/b").json["approval"]
    assert unsure.run("approvals", "grant", first, "--always", "--yes").status == 0
    ran = unsure.run("approvals", "grant", second, "--always", "--yes")
    assert (ran.status, f"  outdated: {POLICY_CHANGED}\n" in ran.out) == (0, True), ran.err
    assert ask(unsure, path="asked/b").json["status"] == "ok"


@pytest.mark.parametrize("name", ["denied", "allowed"])
def test_always_makes_no_rule_for_what_policy_decides_by_now(asking, name):
    change, why, hint = CHANGES[name]
    kept = ask(asking).json["approval"]
    change(asking)
    before = (asking.project / "paddock.toml").read_bytes()
    ran = asking.run("approvals", "grant", kept, "--always", "--yes")
    assert (ran.status, why in ran.err, hint in ran.err) == (1, True, True), ran.err
    assert (asking.project / "paddock.toml").read_bytes() == before


WARNED = b"""
[paths]
warned = ["/asked/**"]
safe = ["/asked/safe/**"]
"""
WARNING = "Writing to production path: asked/a. Ensure this is intentional implementation work."


def test_what_policy_warns_of_reaches_whoever_is_asked_and_whoever_called(user):
    (user.project / "paddock.toml").write_bytes(ASKING + WARNED)
    assert user.run("trust", "--yes").status == 0
    refused = ask(user).json
    (kept,) = waiting(user)
    assert (refused["code"], refused["warnings"]) == ("approval.unavailable", [WARNING])
    assert refused["content"].splitlines()[-1] == f"[warning: {WARNING}]"
    assert kept["warnings"] == [WARNING]
    rows = user.run("approvals", "show", kept["id"]).out.splitlines()
    why = next(number for number, row in enumerate(rows) if row.startswith("  why asked: "))
    assert rows[why + 1] == f"  warning: {WARNING}"


def test_what_policy_does_not_warn_of_is_asked_about_without_a_warning(user):
    (user.project / "paddock.toml").write_bytes(ASKING + WARNED)
    assert user.run("trust", "--yes").status == 0
    refused = ask(user, path="asked/safe/a").json
    (kept,) = waiting(user)
    assert ("warnings" in refused, kept["warnings"]) == (False, [])
    assert "warning" not in user.run("approvals", "show", kept["id"]).out
