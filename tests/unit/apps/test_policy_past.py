"""`paddock policy replay`, `diff` and `explain CALL-ID`, as an operator runs them."""

import json
import os
from pathlib import Path

import pytest

from paddock.policy.questions.compare import NO_PARENT
from paddock.runtime.records import kept_name
from paddock.values.entries import Entry
from tests.support.hooks import Client
from tests.support.ledgers import open_ledger
from tests.support.places import new_place
from tests.support.planes import Operator

ASKING = """[profiles.standard]
allow = ["tool:file:*"]
otherwise = { "tool:shell:*" = "ask" }
"""
NEW = """[profiles.standard]
allow = ["tool:file:view", "tool:shell:run git status"]
ask = ["tool:file:create src/**"]
"""


def new_policy(user, text=NEW):
    (user.project / "new.toml").write_text(text)
    return "new.toml"


def newest_call(user, event):
    rows = user.run("ledger", "query", "--ledger", "ho1m", "--type", event, "--json").out
    return json.loads(rows.splitlines()[-1])["call_id"]


def state(user):
    """Every file below, with its bytes: what nothing here may change."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for root in (user.home, user.project)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_the_same_policy_decides_the_history_as_it_did(user):
    user.call("create_file", path="src/a.py", content="x")
    user.call("create_file", path=".env", content="x")
    user.call("run_shell", "--no-input", command="git status")
    user.call("view", path="README.md")
    shown = user.run("policy", "replay", "--json").json
    assert (shown["replayed"], shown["unchanged"], shown["not_replayable"]) == (4, 4, 0)
    assert shown["groups"] == []


def test_another_policy_shows_what_changes_and_nothing_is_run_or_written(user):
    user.call("create_file", path="src/a.py", content="x")
    user.call("run_shell", "--no-input", command="git status")
    user.call("delete_file", path="src/a.py")
    user.call("view", pth="README.md")
    name = new_policy(user)
    before = state(user)
    ran = user.run("policy", "replay", "--policy", name, "--json")
    assert state(user) == before
    shown = ran.json
    assert ran.status == 0
    counts = {key: value for key, value in shown.items() if isinstance(value, int)}
    assert counts == {
        "replayed": 3,
        "unchanged": 0,
        "newly_denied": 1,
        "newly_asked": 1,
        "newly_confined": 0,
        "newly_allowed": 1,
        "not_replayable": 1,
    }
    denied = shown["groups"][0]
    assert (denied["kind"], denied["agent"]) == ("newly denied", "main")
    assert denied["was"]["rule"]["text"] == "tool:file:*"
    assert denied["now"] == {
        "outcome": "deny",
        "rule": None,
        "reason": denied["now"]["reason"],
    }
    example = denied["examples"][0]
    assert (example["action"], example["tool"]) == ("tool:file:delete src/a.py", "delete_file")
    assert example["call_id"].startswith("CALL-")
    assert shown["lost"][0]["why"] == "undecided"
    said = user.run("policy", "replay", "--policy", name).out
    assert "no tool was run" in said
    assert "newly denied: agent main, 1 call" in said


def test_replay_looks_only_at_what_is_asked_for(user):
    user.call("view", path="README.md")
    assert user.run("agent", "create", "other").status == 0
    assert user.run("policy", "replay", "--agent", "other", "--json").json["replayed"] == 0
    assert user.run("policy", "replay", "--until", "2001-01-01", "--json").json["replayed"] == 0
    assert user.run("policy", "replay", "--since", "2001-01-01", "--json").json["replayed"] == 1
    assert user.run("policy", "replay", "--ledger", "ho2m", "--json").json["replayed"] == 0


def test_replay_of_a_damaged_ledger_says_so_and_is_four(user):
    user.call("view", path="README.md")
    path = next(user.home.rglob("ho1m.jsonl"))
    content = path.read_bytes()
    path.write_bytes(content + b"garbage\n")
    ran = user.run("policy", "replay", "--json")
    assert ran.status == 4
    assert ran.json["lost"][0]["why"] == "unreadable"
    assert "paddock ledger verify" in ran.err


def test_replay_reads_a_ledger_from_elsewhere(user, tmp_path):
    user.call("create_file", path="docs/a.md", content="x")
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(next(user.home.rglob("ho1m.jsonl")).read_bytes())
    name = new_policy(user)
    shown = user.run("policy", "replay", "--ledger", str(copy), "--policy", name, "--json").json
    assert shown["newly_denied"] == 1
    text = copy.read_text().replace('"agent":"main"', '"agent":"theirs"')
    (tmp_path / "other.jsonl").write_text(text)
    other = ("policy", "replay", "--ledger", str(tmp_path / "other.jsonl"), "--agent")
    assert (user.run(*other, "theirs").status, user.run(*other, "nobody").status) == (0, 2)
    ran = user.run("policy", "replay", "--ledger", "none.jsonl")
    assert (ran.status, "ledger 'none.jsonl' not found" in ran.err) == (2, True)
    assert user.run("policy", "replay", "--ledger", "nonsense").status == 2


def test_a_policy_that_is_none_stops_the_question(user):
    user.call("view", path="README.md")
    assert user.run("policy", "replay", "--policy", "gone.toml").status == 2
    assert user.run("policy", "diff", new_policy(user), "gone.toml").status == 2
    assert user.run("policy", "replay", "--policy", new_policy(user, "[nonsense]\n")).status == 3
    assert user.run("policy", "diff", "new.toml", "new.toml").status == 3


def test_what_the_hook_decided_is_replayed_too():
    with new_place() as place:
        client = Client(place)
        client.ask("Bash", tool_input={"command": "git push"})
        client.ask("Write", tool_input={"file_path": "{root}/src/b.py", "content": "x"})
        client.ask("Write", tool_input={"file_path": "{root}/../outside/b", "content": "x"})
        (place.project / "new.toml").write_text(NEW)
        shown = place.run("policy", "replay", "--policy", "new.toml", "--json").json
        assert (shown["newly_denied"], shown["newly_asked"]) == (1, 1)
        assert [lost["why"] for lost in shown["lost"]] == ["boundary"]
        same = place.run("policy", "replay", "--json").json
        assert (same["replayed"], same["unchanged"]) == (2, 2)


def test_what_the_hook_asks_for_reasons_of_its_own_is_no_decision_of_policy():
    """The neighbour: a question of policy about the same kind of line."""
    with new_place() as place:
        client = Client(place)
        client.reads_commands()
        client.write_policy('[profiles.standard]\nallow = ["tool:*"]\n')
        assert client.ask("Bash", tool_input={"command": "rm $x"}).word == "ask"
        client.write_policy(
            '[profiles.standard]\nallow = ["tool:*"]\ndeny = ["tool:shell:run git push *"]\n'
        )
        assert client.ask("Bash", tool_input={"command": "$x push"}).word == "ask"
        (place.project / "new.toml").write_text(NEW)
        shown = place.run("policy", "replay", "--policy", "new.toml", "--json").json
        assert [lost["why"] for lost in shown["lost"]] == ["hook"]
        assert shown["replayed"] == 1


def test_on_a_bare_plane_each_agent_meets_the_policy_of_its_own_workspace(tmp_path):
    operator = Operator(tmp_path)
    operator.home.mkdir()
    operator.make("--dev")
    operator.call("read_file", path="HOT/config/policy.toml")
    shown = operator.run("policy", "replay", "--json").json
    assert (shown["replayed"], shown["unchanged"]) == (1, 1)
    for action in ("create", "remove"):
        assert operator.run("agent", action, "gone").status == 0
    assert operator.run("policy", "replay", "--agent", "gone", "--json").json["replayed"] == 0


def test_diff_shows_calls_that_two_files_decide_differently(user):
    old = user.project / "old.toml"
    old.write_text(NEW + 'deny = ["tool:file:view *.pem"]\n')
    new = new_policy(user)
    shown = user.run("policy", "diff", "old.toml", new, "--json").json
    found = {
        (each["action"], each["old"]["outcome"], each["new"]["outcome"])
        for each in shown["witnesses"]
    }
    assert found == {("tool:file:view example.pem", "deny", "allow")}
    assert shown["witnesses"][0]["old"]["rule"]["file"] == "old.toml"
    said = user.run("policy", "diff", "old.toml", new)
    assert (
        said.status,
        "newly allowed (deny → allow): tool:file:view example.pem" in said.out,
    ) == (
        0,
        True,
    )
    alike = user.run("policy", "diff", new, new)
    assert (alike.status, "every call has the same answer" in alike.out) == (0, True)


OWN = '[paths]\nprotected = [".git/", "*.pem", "/db/"]\n'


def test_diff_alone_shows_what_the_projects_own_file_changes(user):
    (user.project / "paddock.toml").write_text(OWN)
    user.run("trust", "--yes")
    ran = user.run("policy", "diff")
    assert (ran.status, ran.err) == (0, "")
    first, second, *_ = ran.out.splitlines()
    assert first == "old: built-in, new: paddock.toml"
    assert second.startswith("newly denied (allow → deny): tool:file:create db, and ")
    shown = user.run("policy", "diff", "--json").json
    assert (shown["old"], shown["new"]) == ("built-in", "paddock.toml")
    assert shown == user.run("policy", "diff", "built-in", "paddock.toml", "--json").json
    user.run("init")
    (user.project / "paddock.toml").unlink()
    user.run("init")
    assert "the policies decide alike" in user.run("policy", "diff").out


def test_diff_of_one_file_compares_the_projects_own_with_it(user):
    (user.project / "paddock.toml").write_text(OWN)
    (user.project / "built-in").write_text(OWN)
    new_policy(user, OWN)
    alike = user.run("policy", "diff", "new.toml").out.splitlines()
    assert alike[0] == "old: new.toml, new: paddock.toml"
    assert alike[1].startswith("the policies decide alike")
    # The word is no file; a file of that name is meant by its path.
    assert len(user.run("policy", "diff", "built-in", "--json").json["witnesses"]) == 10
    assert user.run("policy", "diff", "./built-in", "--json").json["alike"] is True
    assert user.run("policy", "diff", "new.toml", "built-in", "--json").json["alike"] is False


def test_diff_is_over_the_users_own_configuration_on_both_sides(user):
    user.run("init")
    configuration = Path(user.run("where", "--json").json["user_config"])
    configuration.write_text('[profiles.standard]\nallow = ["tool:file:view"]\n')
    assert user.run("policy", "check", "tool:file:create a").status == 1
    assert user.run("policy", "diff", "--json").json["alike"] is True


def test_diff_of_what_is_not_trusted_says_so_and_compares_it_all_the_same(user):
    (user.project / "paddock.toml").write_text(NEW)
    ran = user.run("policy", "diff")
    assert ran.err == (
        "note: paddock.toml is not trusted (it was never trusted); "
        "it is compared as if it were: paddock trust\n"
    )
    assert "newly allowed (confine → allow): tool:shell:run git status" in ran.out


def test_diff_without_a_file_of_the_project_says_what_to_name(user):
    for words in ([], ["built-in"]):
        ran = user.run("policy", "diff", *words)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err == (
            "error[usage]: the project has no policy file\n"
            "  hint:  name a file; or write one with paddock init\n"
        )
    assert user.run("policy", "diff", "built-in", "built-in").status == 0
    assert user.run("policy", "diff", "").status == 3
    assert user.run("policy", "diff", "gone.toml").status == 2


EXPLORE = '[agents."Explore"]\nprofile = "{}"\n'


@pytest.mark.parametrize(
    ("first", "then"),
    [("locked", ""), ("", "locked"), ("open", "locked"), ("", "open"), ("locked", "standard")],
)
def test_replay_tells_of_a_kind_of_agent_what_the_hook_says_under_that_policy(first, then):
    first, then = (EXPLORE.format(each) if each else "" for each in (first, then))
    with new_place() as place:
        client = Client(place)
        explore = {"tool_input": {"file_path": "{root}/new"}, "agent_type": "Explore"}
        client.write_policy(first)
        client.ask("Write", **explore)
        (place.project / "then.toml").write_text(then)
        same = place.run("policy", "replay", "--json").json
        shown = place.run("policy", "replay", "--policy", "then.toml", "--json").json
        client.write_policy(then)
        client.ask("Write", **explore)
        was, now = (entry.decision for entry in client.entries())
        assert (same["replayed"], same["unchanged"]) == (1, 1)
        assert (shown["replayed"], shown["unchanged"]) == (1, int(was == now))
        assert [group["now"]["outcome"] for group in shown["groups"]] == [now] * (was != now)


def test_of_a_kind_of_agent_that_is_recorded_without_its_parent_nothing_is_guessed():
    with new_place() as place:
        client = Client(place)
        client.write_policy(EXPLORE.format("locked"))
        place.run("agent", "create", "reviewer", "--profile", "locked")
        for name in ("Explore", "reviewer", "main"):
            call = {"tool_input": {"file_path": "{root}/new"}, "tool_use_id": f"call-{name}"}
            client.ask("Write", **call, agent_type=name)
        parent = ',{"name":"main","profile":"standard"}]'
        text = client.ledger.read_text()
        assert text.count(f'"agents":[{{"name":"Explore","profile":"standard"}}{parent}') == 1
        older = place.project / "older.jsonl"
        older.write_text(text.replace(f'"standard"}}{parent}', '"locked"}]'))
        shown = place.run("policy", "replay", "--ledger", "./older.jsonl", "--json").json
        assert (shown["replayed"], shown["unchanged"], shown["not_replayable"]) == (2, 2, 1)
        assert [(lost["agent"], lost["why"], lost["detail"]) for lost in shown["lost"]] == [
            ("Explore", "incomplete", NO_PARENT)
        ]
        asked = ("policy", "explain", "call-Explore", "--json")
        told = place.run(*asked, "--ledger", "./older.jsonl").json
        assert told["now"]["note"] == "the record lacks data that a decision needs"
        assert place.run(*asked).json["now"]["note"] == ""


def test_diff_tries_a_binding_for_the_agent_that_the_hook_judges(user):
    (user.project / "paddock.toml").write_text(EXPLORE.format("locked"))
    user.run("trust", "--yes")
    # No plane was made yet: the agent is the one that it would be made with.
    shown = user.run("policy", "diff", "--json").json["witnesses"]
    assert {(each["old"]["outcome"], each["new"]["outcome"]) for each in shown} == {
        ("allow", "deny"),
        ("ask", "deny"),
        ("confine", "deny"),
    }
    for each in shown:
        for name, side in (("main", "old"), ("Explore", "new")):
            told = user.run("policy", "check", each["action"], "--agent", name, "--json").json
            assert told["outcome"] == each[side]["outcome"]

    (user.project / "paddock.toml").write_text(EXPLORE.format("open"))
    assert user.run("policy", "diff", "--json").json["witnesses"] == []


def test_diff_tries_a_binding_of_an_agent_of_the_plane_for_that_agent(user):
    (user.project / "new.toml").write_text('[agents.keeper]\nprofile = "locked"\n')
    assert user.run("agent", "create", "keeper", "--profile", "admin").status == 0
    shown = user.run("policy", "diff", "built-in", "new.toml", "--json").json["witnesses"]
    assert ("tool:package:list *", "allow", "deny") in {
        (each["action"], each["old"]["outcome"], each["new"]["outcome"]) for each in shown
    }
    (agent,) = user.home.rglob("agents/keeper/agent.json")
    agent.write_text("{}")
    ran = user.run("policy", "diff", "built-in", "new.toml")
    assert (ran.status, ran.out) == (3, "")
    assert str(agent) in ran.err
    # Nothing asks for it where no binding differs.
    assert user.run("policy", "diff", "new.toml", "new.toml").status == 0


CHANGED = "the policy has changed since; for the current one: paddock policy explain ACTION"
UNLOADABLE = "no policy is in force now: not TOML: expected '=' after a key in a key/value pair"


def nothing_told(note):
    return {"note": note, "actions": [], "actions_left_off": 0}


def test_a_recorded_call_is_explained_from_its_record_alone(user):
    user.run("init")
    user.call("create_file", path=".env", content="x")
    call = newest_call(user, "TOOL_DENIED")
    before = user.run("policy", "explain", call, "--json").json
    assert (before["outcome"], before["code"]) == ("deny", "policy.secret")
    assert before["rule"]["text"] == ".env"
    assert before["actions"] == ["tool:file:create .env"]
    assert before["result"] is None
    (user.project / "paddock.toml").unlink()
    # Threat: a policy that came later must not rewrite why it was decided so.
    notes = []
    for text in ("[paths]\nprotected = []\nsecret = []\n", "this is no policy"):
        (user.project / "paddock.toml").write_text(text)
        later = user.run("policy", "explain", call, "--json").json
        notes.append(later["now"])
        assert {**later, "now": before["now"]} == before
    assert notes == [nothing_told(CHANGED), nothing_told(UNLOADABLE)]
    said = user.run("policy", "explain", call).out
    assert "deny: create_file" in said
    assert ".env (deny, paths.secret" in said


def test_an_approved_call_says_who_approved_and_what_came_of_it(user):
    (user.project / "paddock.toml").write_text(ASKING)
    user.run("trust", "--yes")
    user.call("run_shell", "--yes", command="true")
    call = newest_call(user, "TOOL_INTENT")
    shown = user.run("policy", "explain", call, "--json").json
    assert (shown["outcome"], shown["decision"], shown["approval"]["by"]) == (
        "ask",
        "allow",
        "--yes",
    )
    assert shown["result"]["status"] in {"ok", "error"}
    said = user.run("policy", "explain", call).out
    assert "ask, granted: run_shell" in said
    assert "rule:   tool:shell:* (ask, paddock.toml:3)" in said
    assert 'approved by: "--yes"' in said


NEAR = """[profiles.standard]
allow = ["tool:file:view", "tool:file:create Docs/*"]
ask = ["tool:file:create docs/**"]
"""


def test_what_nearly_matched_a_recorded_call_and_what_would_change_it_is_told(user):
    (user.project / "paddock.toml").write_text(NEAR)
    user.run("trust", "--yes")
    user.call("create_file", path="src/a.md", content="x")
    denied = newest_call(user, "TOOL_DENIED")
    user.call("create_file", "--no-input", path="docs/a.md", content="x")
    asked = newest_call(user, "TOOL_DENIED")
    user.call("view", path="README.md")
    allowed = newest_call(user, "TOOL_INTENT")
    for call, action in (
        (denied, "tool:file:create src/a.md"),
        (asked, "tool:file:create docs/a.md"),
        (allowed, "tool:file:view README.md"),
    ):
        live = user.run("policy", "explain", action, "--json").json
        told = user.run("policy", "explain", call, "--json").json["now"]
        kept = {name: live[name] for name in ("near_misses", "near_misses_left_off", "changes")}
        assert told == {"note": "", "actions": [{"action": action, **kept}], "actions_left_off": 0}
        assert live["changes"] != []
    rows = user.run("policy", "explain", asked).out.splitlines()
    assert "\n".join(rows[-2:]) == (
        "  nearly matched: tool:file:create Docs/* (allow, profiles.standard.allow, paddock.toml:2):"
        " letter case or Unicode form differs, and an allow compares exactly\n"
        '  to change it: remove "tool:file:create docs/**" from profiles.standard.ask, '
        'paddock.toml:3, add "tool:file:create docs/a.md" to the list allow of '
        "[profiles.standard], paddock.toml:2 (then: allow)"
    )
    (user.project / "paddock.toml").write_text(NEAR + "# more\n")
    user.run("trust", "--yes")
    rows = user.run("policy", "explain", asked).out.splitlines()
    assert rows[-1] == f"  to change it: not known: {CHANGED}"


def test_a_call_that_nobody_granted_is_told_with_why_it_was_asked_about(user):
    (user.project / "paddock.toml").write_text(ASKING)
    user.run("trust", "--yes")
    user.call("run_shell", "--no-input", command="true")
    call = newest_call(user, "TOOL_DENIED")
    shown = user.run("policy", "explain", call, "--json").json
    assert shown["reason"] == (
        'no rule matches "tool:shell:run true", and "tool:shell:*" in profiles.standard.otherwise'
        " says ask"
    )
    assert shown["answer"].startswith("'tool:shell:run true' needs an approval, and was not")
    rows = user.run("policy", "explain", call).out.splitlines()
    assert f"  reason: {shown['reason']}" in rows
    assert f"  answer: {shown['answer']}" in rows
    said = '  answered by: "nobody" (not granted), bound to sha256:'
    assert any(row.startswith(said) for row in rows)
    assert not any(row.startswith("  approved by:") for row in rows)
    user.call("run_shell", "--yes", command="true")
    granted = user.run("policy", "explain", newest_call(user, "TOOL_INTENT"), "--json").json
    assert (granted["reason"], granted["answer"]) == (shown["reason"], "")


def test_a_recorded_call_has_its_agent_and_none_is_named_for_it(user):
    user.call("view", path="README.md")
    call = newest_call(user, "TOOL_INTENT")
    ran = user.run("policy", "explain", call, "--agent", "main")
    assert (ran.status, ran.out) == (2, "")
    assert f"error[usage]: --agent is only for an action; '{call}' is a recorded call" in ran.err
    assert user.run("policy", "explain", call).status == 0
    assert user.run("policy", "explain", "tool:file:view a", "--agent", "main").status == 0


def test_a_call_without_a_result_is_unknown_and_one_before_policy_says_so(user, tmp_path):
    user.call("create_file", path="docs/a.md", content="x")
    path = next(user.home.rglob("ho1m.jsonl"))
    lines = path.read_bytes().splitlines(keepends=True)
    copy = tmp_path / "cut.jsonl"
    copy.write_bytes(b"".join(lines[:-1]))
    call = newest_call(user, "TOOL_INTENT")
    shown = user.run("policy", "explain", call, "--ledger", os.fspath(copy), "--json").json
    assert shown["result"] == {"status": "unknown"}
    user.call("view", pth="a")
    refused = newest_call(user, "TOOL_DENIED")
    shown = user.run("policy", "explain", refused, "--json").json
    assert (shown["outcome"], shown["code"]) == (None, "args.unknown")
    assert "policy was not asked" in user.run("policy", "explain", refused).out


def test_a_call_that_is_not_there_is_a_usage_error(user):
    ran = user.run("policy", "explain", "CALL-0000")
    assert (ran.status, ran.out) == (2, "")
    assert "call 'CALL-0000' not found" in ran.err


def test_explain_of_a_call_makes_nothing(user, tmp_path: Path):
    user.run("policy", "explain", "CALL-0000")
    assert sorted(user.home.rglob("*")) == []


def staged(event, decision, **more):
    """An entry of a call that was held back for a question, or of its end."""
    metadata = {
        "tool": "run_shell",
        "arguments": {"command": "make"},
        "actions": ["tool:shell:run make"],
        "outcome": "ask",
        "rule": {"text": "tool:shell:*", "file": "built-in", "line": 0},
        "source": "profiles.standard.otherwise",
        "policy_digest": "sha256:0",
        "agents": [{"name": "main", "profile": "standard"}],
        **more,
    }
    return Entry(event, "", decision, "", "SES-1", "main", "CALL-1", metadata)


@pytest.mark.parametrize("call", ["c" * 300, "CALL-1"])
def test_a_call_is_found_by_the_id_that_its_entries_have(user, tmp_path, call):
    path = tmp_path / "long.jsonl"
    kept = kept_name(call)
    ledger = open_ledger(path)
    ledger.append([staged("TOOL_INTENT", "allow")._replace(call_id=kept)])
    ledger.close()
    found = user.run("policy", "explain", kept, "--ledger", str(path), "--json")
    assert (found.status, found.json["call_id"]) == (0, kept)


@pytest.mark.parametrize(
    "entries",
    [
        [staged("TOOL_STAGED", "ask")],
        [staged("TOOL_STAGED", "ask"), staged("TOOL_INTENT", "allow")],
        [staged("TOOL_STAGED", "ask"), staged("TOOL_DENIED", "deny", code="approval.refused")],
    ],
)
def test_a_call_that_was_held_back_for_a_question_counts_once(user, tmp_path, entries):
    path = tmp_path / "held.jsonl"
    ledger = open_ledger(path)
    ledger.append(entries)
    ledger.close()
    name = new_policy(user)
    shown = user.run("policy", "replay", "--ledger", str(path), "--policy", name, "--json").json
    assert (shown["replayed"], shown["newly_denied"]) == (1, 1)
