"""The other commands: what they print and how they end."""

import fcntl
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from paddock.apps.cli.main import COMMANDS, load_command, main
from paddock.apps.console import Console
from paddock.values.entries import Entry
from tests.support import forked
from tests.support.ledgers import open_ledger
from tests.support.places import run_command

INTERRUPTIBLE = """
import signal
from paddock.apps.cli.main import console
# A shell starts what runs in the background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
console()
"""
PADDOCK = Path(sys.executable).parent / "paddock"
CAPTURED = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def in_bash(user, line: str, streams=CAPTURED, **variables: str):
    """What a shell makes of this line in the user's project."""
    env = {"HOME": str(user.home), "PATH": "/usr/bin:/bin", **variables}
    argv = ["bash", "-c", line]
    return subprocess.run(argv, cwd=user.project, env=env, text=True, check=False, **streams)


def test_the_ledger_is_asked_by_path(user):
    user.call("create_file", path="docs/a.md", content="x")
    user.call("view", path="README.md")

    def events(path):
        ran = user.run("ledger", "query", "--ledger", "ho1m", "--path", path, "--json")
        return [json.loads(line)["event_type"] for line in ran.out.splitlines()]

    assert events("README.md") == ["TOOL_INTENT"]
    for path in ("docs/a.md", "./docs//a.md", "docs/"):
        assert events(path) == ["TOOL_INTENT", "TOOL_RESULT"]
    assert (events("doc"), events("docs/\udce9.md")) == ([], [])
    assert user.run("ledger", "query", "--path", "").status == 2


def test_a_row_shows_the_path_that_was_asked_for_and_not_another_one_of_its_call(user):
    user.call("move_file", path="README.md", to="b.md")
    query = ("ledger", "query", "--ledger", "ho1m", "--path")

    for path in ("README.md", "b.md"):
        rows = user.run(*query, path).out.splitlines()
        assert len(rows) == 2
        assert all(f"  move_file {path}" in row for row in rows), rows


def test_the_ledger_is_asked_by_an_absolute_path_too(user, tmp_path):
    user.call("view", path="README.md")
    other = tmp_path / "named"
    other.symlink_to(user.project)

    def rows(path):
        ran = user.run("ledger", "query", "--ledger", "ho1m", "--path", str(path))
        assert ran.status == 0
        return len(ran.out.splitlines())

    (user.project / "READ").symlink_to("README.md")
    for root in (user.project, other, user.project / "src" / ".."):
        assert [rows(root), rows(root / "README.md"), rows(root / "READ")] == [1, 1, 0]
    assert rows(tmp_path / "README.md") == 0


def test_an_absolute_path_in_an_agents_own_workspace_is_relative_to_that(user):
    made = user.run("agent", "create", "reader", "--profile", "standard", "--json").json
    own = Path(made["agent"]["workspace"])
    assert user.call("create_file", "--agent", "reader", path="a.md", content="x").status == 0
    assert (own / "a.md").is_file()

    asked = ("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_RESULT")

    assert len(user.run(*asked, "--path", str(own / "a.md")).out.splitlines()) == 1
    assert user.run(*asked, "--path", str(own.parent / "a.md")).out == ""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("TOOL_DENY", "did you mean 'TOOL_DENIED'"),
        ("tool_denied", "did you mean 'TOOL_DENIED'"),
        ("WIDGET", "without --type each row shows its type, such as TOOL_DENIED"),
        ("", "without --type each row shows its type, such as TOOL_DENIED"),
    ],
)
@pytest.mark.parametrize("question", ["query", "export"])
def test_a_type_that_no_entry_can_have_is_an_error(user, question, given, meant):
    user.call("view", path=".env")

    ran = user.run("ledger", question, "--ledger", "ho1m", "--type", given)

    assert (ran.status, ran.out) == (2, "")
    assert f"no event type named '{given}', and no such entry in the ledger ho1m\n" in ran.err
    assert ran.err.endswith(f"  hint:  {meant}\n")


def test_a_type_that_this_version_knows_or_that_an_entry_has_is_asked_for(user):
    user.call("view", path=".env")
    asked = ("ledger", "query", "--ledger", "ho1m", "--type")

    assert len(user.run(*asked, "TOOL_DENIED").out.splitlines()) == 1
    none = user.run(*asked, "TOOL_STAGED")
    assert (none.status, none.err) == (0, "no entry of the ledger ho1m matches\n")

    (file,) = user.home.glob(".local/state/paddock/planes/*/HO1/ledger/ho1m.jsonl")
    with closing(open_ledger(file, create=None)) as ledger:
        ledger.append([Entry("OF_A_LATER_VERSION")])
    assert len(user.run(*asked, "OF_A_LATER_VERSION").out.splitlines()) == 1


def test_a_decision_is_one_of_four_words(user):
    user.call("view", path=".env")
    asked = ("ledger", "query", "--ledger", "ho1m", "--decision")

    assert len(user.run(*asked, "deny").out.splitlines()) == 1
    assert user.run(*asked, "ask").status == 0
    wrong = user.run(*asked, "denied")
    assert (wrong.status, wrong.out) == (2, "")
    assert "invalid choice: 'denied' (choose from 'allow', 'confine', 'ask', 'deny')" in wrong.err


def test_what_a_query_leaves_out_is_said_and_shown_by_last_0(user):
    for number in range(6):
        user.call("create_file", path=f"{number}.md", content="x")
    short = user.run("ledger", "query", "--ledger", "ho1m")
    for number in range(6, 10):
        user.call("create_file", path=f"{number}.md", content="x")

    cut = user.run("ledger", "query", "--ledger", "ho1m", "--json")
    whole = user.run("ledger", "query", "--ledger", "ho1m", "--json", "--last", "0")
    asked = user.run("ledger", "query", "--ledger", "ho1m", "--json", "--last", "3")
    said = "only the newest 20 matches are shown: --last 0 shows all\n"
    assert (short.err, cut.err, whole.err, asked.err) == ("", said, "", "")
    rows = whole.out.splitlines()
    assert len(rows) > 20
    assert (cut.out.splitlines(), asked.out.splitlines()) == (rows[-20:], rows[-3:])


def test_a_row_of_a_query_names_the_call(user):
    user.call("view", path=".env")
    asked = ("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_DENIED")
    (row,) = user.run(*asked).out.splitlines()
    call = json.loads(user.run(*asked, "--json").out)["call_id"]
    assert row.endswith(f"  ({call})")


def test_help_lists_every_command_and_exits_zero(user):
    ran = user.run("--help")
    assert ran.status == 0
    assert all(f"\n  {name} " in ran.out for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_examples_and_takes_json(user, name):
    ran = user.run(name, "--help")
    assert (ran.status, ran.err) == (0, "")
    assert "examples:" in ran.out
    assert "--json" in ran.out


def test_no_command_is_a_usage_error_that_shows_the_help(user):
    ran = user.run()
    assert (ran.status, "usage: paddock" in ran.out) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vew"], "unknown command 'vew'"),
        (["--plan", "x"], "unknown option '--plan'"),
        (["--plane"], "--plane needs a directory"),
        (["where", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["ledger"], "required"),
        (["ledger", "query", "--last", "-1"], "--last must not be negative: -1"),
        (["ledger", "query", "--since", "yesterday"], "invalid time 'yesterday'"),
        (["tools", "--provider", "acme"], "invalid choice"),
        (["agent", "create", "Bad Name"], "Bad Name"),
        (["agent", "show", "nobody"], "no agent is named"),
        (["policy", "explain", "file:view x"], "error[usage]"),
        (["--plane", "/no/such/dir", "where"], "/no/such/dir"),
        (["--plane", "", "where"], "--plane is empty"),
        (["--plane=", "where"], "--plane is empty"),
        (["where", "--plane", ""], "--plane is empty"),
        (["init", "--bare", ""], "DIR is empty"),
        (["init", ""], "DIR is empty"),
        (["trust", "--yes", ""], "DIR is empty"),
    ],
)
def test_a_mistake_on_the_command_line_is_two_with_a_reason_and_nothing_on_stdout(
    user, arguments, said
):
    user.call("view", path="README.md")
    ran = user.run(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_version_is_printed(user):
    assert user.run("--version").out == "paddock 0.1.0\n"


def test_where_names_everything_and_makes_nothing(user):
    shown = user.run("where", "--json").json
    assert shown["root"] == str(user.project)
    assert set(shown["ledgers"]) == {"governance", "packages", "ho2m", "ho1m"}
    assert shown["policy"] == []
    assert list(user.home.iterdir()) == []


def test_init_writes_one_file_and_a_second_time_nothing(user):
    first = user.run("init", "--json")
    assert (first.status, first.json["already"]) == (0, False)
    assert user.files() == ["README.md", "paddock.toml"]
    content = (user.project / "paddock.toml").read_bytes()
    second = user.run("init")
    assert (second.status, "already" in second.out) == (0, True)
    assert (user.project / "paddock.toml").read_bytes() == content


def test_init_says_what_it_trusts_and_only_when_it_does(user):
    said = (
        "trusted paddock.toml as written: it grants nothing beyond the defaults; "
        "after you edit it: paddock trust\n"
    )
    first = user.run("init")
    assert first.out.startswith("created ")
    assert first.out.endswith(said)
    assert "trusted" not in user.run("init").out
    assert user.run("init", "--json").json["trusted"] == []
    (user.project / "paddock.toml").unlink()
    file = str(user.project / "paddock.toml")
    assert user.run("init", "--json").json["trusted"] == [file]


def test_init_does_not_trust_a_file_that_was_there(user):
    (user.project / "paddock.toml").write_text(GREEDY)
    ran = user.run("init")
    assert (ran.status, "trusted" in ran.out) == (0, False)
    assert user.run("trust").status == 2


def test_what_init_wrote_is_trusted_and_changes_no_decision(user):
    before = user.run("policy", "check", "tool:file:create src/a.py", "--json").json["outcome"]
    user.run("init")
    ran = user.call("create_file", path="docs/a.md", content="x")
    assert (ran.status, ran.err) == (0, "")
    after = user.run("policy", "check", "tool:file:create src/a.py", "--json").json["outcome"]
    assert (before, after) == ("allow", "allow")


def test_a_directory_draws_no_row_of_its_own_by_its_name(user, tmp_path):
    # Threat: a clone whose name is a second line says where else its policy is.
    user.project = user.project.rename(tmp_path / "here\npolicy   mine.toml")

    made, where = user.run("init"), user.run("where")

    assert (made.status, where.status) == (0, 0)
    rows = [row for row in where.out.splitlines() if row.startswith("policy")]
    assert rows == [f"policy   {tmp_path}/here\\npolicy   mine.toml/paddock.toml"]
    assert made.out.splitlines()[0] == (
        f"created {tmp_path}/here\\npolicy   mine.toml/paddock.toml"
    )


GREEDY = '[paths]\nprotected = []\nsecret = []\n[profiles.standard]\nallow = ["tool:*"]\n'


def test_a_cloned_policy_that_grants_everything_gets_nothing_until_it_is_trusted(user):
    (user.project / "paddock.toml").write_text(GREEDY)
    (user.project / ".env").write_text("TOKEN=1\n")
    refused = user.call("create_file", path=".git/hooks/x", content="x")
    assert (refused.status, refused.json["code"]) == (1, "policy.protected")
    assert "not trusted" in refused.err
    assert user.call("view", path=".env").json["code"] == "policy.secret"
    assert user.run("policy", "check", "tool:mcp:call mcp__toy__add").status == 6
    assert "not trusted" not in user.call("view", path="README.md").err

    assert user.run("trust").status == 2
    trusted = user.run("trust", "--yes")
    assert (trusted.status, "trusted" in trusted.out) == (0, True)
    assert user.call("create_file", path=".git/hooks/x", content="x").status == 0
    assert user.call("view", path=".env").status == 0
    assert user.run("policy", "check", "tool:mcp:call mcp__toy__add").status == 0


def test_a_changed_policy_is_untrusted_again(user):
    (user.project / "paddock.toml").write_text(GREEDY)
    user.run("trust", "--yes")
    (user.project / "paddock.toml").write_text(GREEDY + "\n# more\n")
    assert user.call("create_file", path=".git/x", content="x").json["code"] == "policy.protected"


@pytest.mark.parametrize("question", ["lint", "test"])
def test_of_an_untrusted_policy_lint_and_test_say_that_it_is_untrusted(user, question):
    (user.project / "paddock.toml").write_text(GREEDY)
    assert "paddock.toml is not trusted" in user.run("policy", question).err
    user.run("trust", "--yes")
    assert user.run("policy", question).err == ""


def test_trust_shows_what_is_granted_before_it_asks(user):
    (user.project / "paddock.toml").write_text(GREEDY)
    ran = user.run("trust")
    assert "tool:*" in ran.out
    assert "no longer" in ran.out


def test_trust_lists_what_is_no_looser_under_a_heading_of_its_own(user):
    (user.project / "paddock.toml").write_text(
        '[profiles.standard]\nallow = ["tool:file:*", "tool:mcp:*"]\nask = ["tool:file:delete **"]\n'
    )
    assert user.run("trust", "--yes").out.splitlines() == [
        f"{user.project}/paddock.toml allows, beyond the defaults:",
        "  - profile standard allows tool:mcp:* (line 2)",
        "as strict as the defaults, or stricter:",
        (
            "  - profile standard replaces the built-in one: "
            "what it does not name is denied (line 1)"
        ),
        "  - profile standard asks about tool:file:delete ** (line 3)",
        "trusted",
    ]


def test_trust_shows_what_is_granted_whatever_the_form_of_the_answer(user):
    (user.project / "paddock.toml").write_text(GREEDY)
    ran = user.run("trust", "--json", "--yes")
    assert ran.json == {"status": "ok", "trusted": True}
    assert "tool:*" in ran.err


@pytest.mark.parametrize(
    ("action", "status", "outcome"),
    [
        ("tool:file:create docs/a.md", 0, "allow"),
        ("tool:file:create .git/config", 1, "deny"),
        ("tool:mcp:call mcp__toy__add", 6, "ask"),
    ],
)
def test_policy_check_answers_by_exit_status(user, action, status, outcome):
    ran = user.run("policy", "check", action)
    assert ran.status == status
    assert ran.out.startswith(f"{outcome}: ")
    assert user.run("policy", "check", action, "--json").json["outcome"] == outcome


@pytest.mark.needs("stage")
def test_policy_check_of_what_this_host_confines_ends_well(user):
    ran = user.run("policy", "check", "tool:shell:run git push origin main")
    assert (ran.status, ran.out.partition(":")[0]) == (0, "confine")
    shown = user.run("policy", "check", "tool:shell:run make", "--json").json
    assert [shown[name] for name in ("outcome", "enforcement", "here")] == [
        *("confine", "full", "confine")
    ]


@pytest.mark.parametrize("trusted", [True, False])
def test_lint_and_test_read_a_file_that_is_not_the_projects(user, trusted):
    broken = user.project / "paddock.toml"
    broken.write_text("x = 1")
    file = user.project.parent / "team.toml"
    rule = '[[profiles.team.rules]]\naction = "tool:file:view docs/**"\noutcome = "ask"\n'
    file.write_text(f'{rule}match = ["tool:file:view docs/a"]\n[shell]\ngit = "none"\n')
    if trusted:
        broken.write_text("")
        user.run("trust", "--yes")

    tested, linted = (user.run("policy", each, str(file)) for each in ("test", "lint"))
    assert (tested.status, tested.out.splitlines()[-1], tested.err) == (0, "1 passed, 0 failed", "")
    assert (linted.status, linted.err) == (1, "")
    assert "team.toml:6: lint.git_none: shell.git leaves" in linted.out
    # The one in force is another, and is not changed by that.
    assert user.run("policy", "test").status == (0 if trusted else 3)


@pytest.mark.parametrize("question", ["lint", "test"])
def test_a_file_that_does_not_load_and_one_that_is_not_there_are_told_apart(user, question):
    file = user.project / "team.toml"
    assert user.run("policy", question, str(file)).status == 2
    rule = '[[profiles.team.rules]]\naction = "tool:file:view docs/**"\noutcome = "ask"\n'
    file.write_text(f'{rule}match = ["tool:file:view src/a"]\n')
    ran = user.run("policy", question, "team.toml")
    assert (ran.status, "team.toml:4" in ran.err) == (3, True)


def test_policy_check_says_that_the_policy_does_not_load(user):
    (user.project / "paddock.toml").write_text("x = 1")
    assert user.run("policy", "check", "tool:file:create a").status == 3
    (user.project / "paddock.toml").unlink()
    assert user.run("policy", "check", "tool:nothing:create a").status == 2


def test_policy_check_says_why_a_rule_that_nearly_matches_does_not_count(user):
    (user.project / "paddock.toml").write_text(
        '[profiles.standard]\nallow = ["tool:shell:run git diff *"]\n'
        'otherwise = { "tool:shell:*" = "ask" }\n'
    )
    user.run("trust", "--yes")
    ran = user.run("policy", "check", "tool:shell:run git diff --output=x.sql")
    assert ran.status == 6
    assert ran.out.splitlines() == [
        (
            'ask: no rule matches "tool:shell:run git diff --output=x.sql", '
            'and "tool:shell:*" in profiles.standard.otherwise says ask'
        ),
        (
            "  nearly matched: tool:shell:run git diff * (profiles.standard.allow, "
            "paddock.toml:2): an allow matches only the exact command: "
            "'--output=x.sql' writes a file, and no word of the rule names it"
        ),
        "  rule: tool:shell:* (profiles.standard.otherwise, paddock.toml:3)",
    ]
    shown = user.run("policy", "check", "tool:shell:run git diff --output=x.sql", "--json").json
    assert shown["nearly_matched"] == {
        "rule": {
            "text": "tool:shell:run git diff *",
            "source": "profiles.standard.allow",
            "file": "paddock.toml",
            "line": 2,
        },
        "why": (
            "an allow matches only the exact command: "
            "'--output=x.sql' writes a file, and no word of the rule names it"
        ),
    }
    for line, outcome in (("git diff --stat", "allow"), ("make", "ask")):
        ran = user.run("policy", "check", f"tool:shell:run {line}")
        assert (ran.out.startswith(f"{outcome}: "), "nearly" in ran.out) == (True, False)
        shown = user.run("policy", "check", f"tool:shell:run {line}", "--json").json
        assert shown["nearly_matched"] is None


@pytest.mark.parametrize("action", ["nonsense", "tool:file:explode x", "tool:file:view ../x"])
def test_policy_check_of_what_is_no_action_is_two(user, action):
    ran = user.run("policy", "check", action)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error[")


@pytest.mark.parametrize("question", ["check", "explain"])
def test_a_question_about_one_action_says_what_to_type_where_none_is_given(user, question):
    ran = user.run("policy", question)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines()[:2] == ["error[usage]: no action given", "  where: ACTION"]
    typed = ran.err.split("hint:")[1].split("'")[0].split()
    assert user.run(*typed[1:], "tool:file:create docs/a.md").status == 0


def test_an_action_without_a_target_says_that_the_workspace_itself_is_judged(user):
    said = "note: no target given, so the workspace itself is judged: tool:file:view .\n"
    for question in ("check", "explain"):
        assert user.run("policy", question, "tool:file:view").err == said
        assert user.run("policy", question, "tool:file:view .").err == ""
        assert user.run("policy", question, "tool:gate:check").err == ""


@pytest.mark.parametrize("question", ["check", "explain"])
def test_a_question_about_a_name_that_no_call_has_says_how_it_is_judged(user, question):
    ran = user.run("policy", question, "tool:client:Bash")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        'error[usage]: no call is judged as "tool:client:Bash"',
        "  hint:  Bash is judged as tool:shell:run",
    ]
    assert user.run("policy", question, "tool:client:WebFetch").out != ""


def test_policy_explain_names_rule_place_and_the_change_that_would_flip_it(user):
    user.run("init")
    ran = user.run("policy", "explain", "tool:file:create .git/config")
    assert (ran.status, ".git/ (deny, paths.protected, built-in)" in ran.out) == (0, True)
    assert "to change it:" in ran.out
    (user.project / "paddock.toml").write_text('[paths]\nprotected = [".git/"]\n')
    user.run("trust", "--yes")
    ran = user.run("policy", "explain", "tool:file:create .git/config")
    assert ".git/ (deny, paths.protected, paddock.toml:2)" in ran.out


def test_agents_are_made_listed_shown_and_removed(user):
    user.run("agent", "create", "writer", "--profile", "locked", "--parent", "main")
    names = [row["name"] for row in user.run("agent", "list", "--json").json]
    assert names == ["main", "writer"]
    assert user.run("agent", "show", "writer", "--json").json["parent"] == "main"
    assert user.call("view", "--agent", "writer", path="README.md").json["code"] == "path.not_found"
    assert user.run("agent", "remove", "main").status == 2
    assert user.run("agent", "remove", "writer").status == 0
    assert [row["name"] for row in user.run("agent", "list", "--json").json] == ["main"]
    rows = user.run("ledger", "query", "--json").out.splitlines()
    events = [json.loads(row)["event_type"] for row in rows]
    # The view between the two went up as a checkpoint.
    assert events[-3:] == ["AGENT_CREATED", "CHECKPOINT", "AGENT_REMOVED"]


def test_an_agent_with_a_profile_that_does_not_exist_is_not_made(user):
    ran = user.run("agent", "create", "writer", "--profile", "godlike")
    assert (ran.status, ran.out) == (2, "")
    assert "locked" in ran.err
    assert user.run("agent", "show", "writer").status == 2


def test_tools_are_listed_for_people_and_providers(user):
    assert [row["name"] for row in user.run("tools", "--json").json] == [
        "create_file",
        "str_replace",
        "view",
        "move_file",
        "delete_file",
        "grep",
        "find",
        "ls",
        "write_output",
        "run_shell",
        "shell_output",
        "shell_input",
        "shell_stop",
        "shell_sync",
        "shell_list",
    ]
    assert "str_replace" in user.run("tools").out
    schemas = user.run("tools", "--provider", "anthropic").json
    assert set(schemas[0]) == {"name", "description", "input_schema"}


def test_the_ledger_is_queried_newest_last_and_cut_at_last(user):
    for _ in range(3):
        user.call("view", path="README.md")
    rows = user.run("ledger", "query", "--ledger", "ho1m", "--last", "2", "--json")
    seqs = [json.loads(row)["seq"] for row in rows.out.splitlines()]
    assert seqs == [5, 6]
    everything = user.run("ledger", "query", "--ledger", "ho1m", "--last", "0", "--json")
    assert len(everything.out.splitlines()) == 7


def test_a_ledger_that_does_not_exist_yet_has_no_entries(user):
    ran = user.run("ledger", "query", "--ledger", "ho2m", "--json")
    assert (ran.status, ran.out) == (0, "")


def test_verify_says_whole_and_what_a_checkpoint_covers(user):
    user.call("view", path="README.md")
    ran = user.run("ledger", "verify")
    assert ran.status == 0
    assert "ho1m: whole, 3 entries" in ran.out
    assert "entries 0 to 2 are as they were signed" in ran.out
    assert "covered by no exported checkpoint" not in ran.out


def test_verify_is_of_ledgers_by_name_and_says_what_verifies_a_copy(user):
    user.call("view", path="README.md")
    ran = user.run("ledger", "verify", "--ledger", "copy.jsonl")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error[usage]: no ledger named 'copy.jsonl'",
        "  where: --ledger",
        "  hint:  one of: governance, ho2m, ho1m, packages; to verify a copy: paddock-verify COPY.jsonl [CHECKPOINT]",
    ]
    assert user.run("ledger", "verify", "--ledger", "ho1m").status == 0


def test_verify_finds_an_edited_byte_and_says_where(user):
    user.call("create_file", path="a", content="x")
    user.call("view", path="README.md")
    path = user.run("where", "--json").json["ledgers"]["ho1m"]
    with open(path, "r+b") as file:
        content = file.read()
        file.seek(content.index(b'"create_file"'))
        file.write(b'"create_fill"')
    ran = user.run("ledger", "verify", "--ledger", "ho1m", "--json")
    assert (ran.status, ran.json["ho1m"]["whole"]) == (4, False)
    assert ran.json["ho1m"]["problems"][0]["line"] == 2


def test_a_ledger_that_was_removed_is_damage_and_not_a_ledger_that_never_was(user):
    user.call("view", path="README.md")
    path = user.run("where", "--json").json["ledgers"]["ho1m"]
    os.unlink(path)
    for question in (["verify"], ["verify", "--ledger", "ho1m"], ["query", "--ledger", "ho1m"]):
        ran = user.run("ledger", *question)
        assert ran.status == 4
        assert "the ledger ho1m is gone" in ran.err
    refused = user.call("create_file", path="new", content="x")
    assert refused.status == 4
    assert not os.path.exists(path)
    assert not (user.project / "new").exists()


def test_an_intent_without_result_is_reported_as_unknown(user):
    user.call("view", path="README.md")
    ledger = Path(user.run("where", "--json").json["ledgers"]["ho1m"])
    directory = os.open(user.project, os.O_RDONLY)
    # The write waits for this lock, with its intent on record.
    fcntl.flock(directory, fcntl.LOCK_EX)
    call = subprocess.Popen(
        [*(sys.executable, "-c", INTERRUPTIBLE), *("call", "create_file", "path=a", "content=x")],
        cwd=user.project,
        env={"HOME": str(user.home), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while b'"create_file"' not in ledger.read_bytes():
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"it ended with {call.wait(timeout=0.02)}")
    call.send_signal(signal.SIGINT)
    assert (*call.communicate(), call.returncode) == ("", "interrupted\n", 130)
    os.close(directory)
    assert not (user.project / "a").exists()
    ran = user.run("ledger", "verify", "--ledger", "ho1m", "--json")
    assert (ran.status, ran.json["ho1m"]["unknown"][0]["tool"]) == (0, "create_file")


def test_doctor_says_what_the_host_can_enforce(user):
    names = [row["name"] for row in user.run("doctor", "--json").json["host"]]
    assert "openat2" in names
    assert "landlock" in names
    assert "openat2" in user.run("doctor").out


def test_doctor_says_which_backend_holds_commands_and_what_it_does_not_hold(user):
    said = user.run("doctor", "--json").json
    backends = {row["backend"]: row for row in said["backends"]}
    assert set(backends) == {"stage", "landlock"}
    for row in backends.values():
        works = row["enforcement"] != "none"
        assert bool(row["cause"]) is not works
        assert works or row["remedy"]
    assert backends["landlock"]["enforcement"] in {"partial", "none"}
    assert said["commands"].startswith(("held by ", "refused"))
    assert (said["workspace"] is None) == (backends["stage"]["enforcement"] == "none")
    assert f"commands: {said['commands']}" in user.run("doctor").out


CALLS_RUN = [
    {"name": "this project", "ok": True, "found": "its policy and agents load", "remedy": ""},
    {"name": "its records", "ok": True, "found": "can be written", "remedy": ""},
]


@pytest.mark.parametrize("is_used", [False, True])
def test_doctor_says_that_calls_run_here(user, is_used):
    if is_used:
        assert user.call("ls").status == 0

    said = user.run("doctor", "--json").json

    assert said["here"] == CALLS_RUN
    assert f"files: fenced. commands: {said['commands']}" in user.run("doctor").out


@pytest.mark.parametrize("is_there", [False, True])
def test_doctor_says_whether_credentials_have_their_values_and_never_which(user, is_there):
    config = user.home / ".config/paddock"
    config.mkdir(parents=True, mode=0o700)
    (config / "config.toml").touch(mode=0o600)
    (config / "config.toml").write_text(
        '[credentials.issues]\nhosts = ["api.example.org"]\nvariable = "ISSUES_TOKEN"\n'
        'from = { file = "~/.token" }\n'
    )
    if is_there:
        (user.home / ".token").write_text("of-nobody-at-all")

    ran = user.run("doctor", "--json")

    (row,) = (each for each in ran.json["here"] if each["name"] == "credentials")
    assert row["ok"] is is_there
    assert ("issues: each has a value" if is_there else "~/.token") in row["found"]
    assert "of-nobody" not in ran.out
    assert ran.json["commands"].startswith("refused; no call runs") is False


def test_doctor_says_why_no_call_runs_where_the_policy_does_not_load(user):
    (user.project / "paddock.toml").write_text("x =\n")
    assert user.call("ls").status == 3

    found, shown = user.run("doctor", "--json"), user.run("doctor")

    why = "not TOML: invalid value"
    row = {"name": "this project", "ok": False, "found": why}
    assert found.json["here"] == [
        {**row, "remedy": "paddock.toml:1: correct the syntax"},
        CALLS_RUN[1],
    ]
    verdict = "no call can run here until this is fixed: this project"
    assert found.json["commands"] == f"refused; {verdict}"
    assert (found.status, shown.status) == (0, 0)
    assert why in shown.out
    assert shown.out.splitlines()[-1] == verdict


def test_doctor_in_the_home_directory_says_to_work_in_a_project_below_it(user):
    home = user.home
    ran = run_command("doctor", "--json", variables={"HOME": str(home)}, here=home)

    row = ran.json["here"][0]
    assert (row["name"], row["ok"]) == ("this directory", False)
    assert f"state directory '{home}/.local/state/paddock' is inside '{home}'" in row["found"]
    verdict = "agents cannot work in this directory itself: change to a project below it"
    assert ran.json["commands"] == f"refused; {verdict}"
    shown = run_command("doctor", variables={"HOME": str(home)}, here=home)
    assert shown.out.splitlines()[-1] == verdict


def test_doctor_says_why_no_call_runs_where_an_agent_does_not_load(user):
    assert user.call("ls").status == 0
    (declared,) = user.home.glob(".local/state/paddock/planes/*/agents/main/agent.json")
    declared.write_text("{")
    assert user.call("ls").status == 3

    said = user.run("doctor", "--json").json

    assert [row["ok"] for row in said["here"]] == [False, True]
    assert said["commands"] == "refused; no call can run here until this is fixed: this project"


def test_doctor_says_why_no_call_runs_where_nothing_can_be_recorded(user):
    (user.home / ".local").write_text("a file where the state's directory would be")
    assert user.call("ls").status == 5

    said = user.run("doctor", "--json").json

    assert said["here"] == [
        CALLS_RUN[0],
        {
            "name": "its records",
            "ok": False,
            "found": f"cannot write in {user.home}/.local: Not a directory",
            "remedy": "make it writable for this user, or choose another place: PADDOCK_HOME=DIR",
        },
    ]
    assert said["commands"] == "refused; no call can run here until this is fixed: its records"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_every_command(user, shell):
    asked = user.run("completion", shell, "--", "")
    assert asked.out.split() == list(COMMANDS)
    assert f"paddock completion {shell} -- " in user.run("completion", shell).out


@pytest.mark.parametrize("name", [name for name in COMMANDS if load_command(name).parts])
def test_completion_knows_the_sub_commands_that_the_help_shows(user, name):
    parts = [part.name for part in load_command(name).parts]
    shown = user.run(name, "--help").out
    assert all(f"\n    {part} " in shown.replace("\n", " \n") for part in parts)
    asked = user.run("completion", "bash", "--", name, "")
    assert set(parts) <= set(asked.out.split())


ASKED_OF_BASH = [
    (["led"], ["ledger"]),
    (["ledger", "ver"], ["verify"]),
    (["ledger", "query", "--le"], ["--ledger"]),
    (["ledger", "query", "--ledger", ""], ["governance", "ho2m", "ho1m", "packages"]),
    (["ledger", "query", "--ledger", "=", "ho"], ["ho2m", "ho1m"]),
    (["ledger", "query", "--ledger", "="], ["governance", "ho2m", "ho1m", "packages"]),
    (["ledger", "query", "--decision", "a"], ["allow", "ask"]),
    (["ledger", "query", "--json", "--pl"], ["--plane"]),
    (["ledger", "export", "--format", "h"], ["html"]),
    (["call", "cre"], ["create_file"]),
    (["call", "view", "--no"], ["--no-input"]),
    (["tools", "--provider", "m"], ["mcp"]),
    (["completion", ""], ["bash", "fish", "zsh"]),
    # Nothing of ours: bash offers files then.
    (["ledger", "query", ""], []),
    (["ledger", "query", "--path", ""], []),
    (["ledger", "query", "--bogus.", "q"], []),
    (["call", "view", ""], []),
]


def test_bash_really_completes_commands_options_and_their_values(user):
    python = shlex.join(forked.command(forked.CONSOLE))
    asked = "".join(
        f"COMP_WORDS=(paddock {' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words)};"
        '_paddock; echo "${COMPREPLY[*]}"\n'
        for words, _ in ASKED_OF_BASH
    )
    script = f'paddock() {{ {python} "$@"; }}\n{user.run("completion", "bash").out}\n{asked}'

    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    answers = [line.split() for line in ran.stdout.splitlines()]
    assert list(zip([words for words, _ in ASKED_OF_BASH], answers, strict=True)) == ASKED_OF_BASH
    assert ran.stderr == ""


def test_the_demo_ends_as_it_should_and_touches_neither_project_nor_plane(user):
    ran = user.run("demo", "--json")
    assert ran.status == 0
    outcomes = [scene["outcome"] for scene in ran.json]
    assert outcomes[:4] == ["allowed", "allowed", "allowed", "asked"]
    assert outcomes[-1] == "caught"
    assert user.files() == ["README.md"]
    assert list(user.home.iterdir()) == []


@pytest.mark.needs("stage")
def test_the_demo_has_a_command_judged_one_held_one_only_shown_and_the_first_undone(user):
    scenes = {scene["title"]: scene for scene in user.run("demo", "--json").json}
    command = scenes["It runs a command; each change it makes is judged like a tool call"]
    assert command["outcome"] == "allowed"
    assert "  overwritten paddock-demo-list.md\nchanges refused: 1\n" in command["detail"]
    out = scenes["A command tries to leave the sandbox, and the kernel stops it"]
    assert (out["outcome"], "not for agents" in out["detail"]) == ("held", False)
    shown = scenes["A dry run only shows what a command would change"]
    assert (shown["outcome"], "-two\n+2\n" in shown["detail"]) == ("allowed", True)
    assert scenes["The changes of the first command are undone"]["outcome"] == "undone"


HELD = [
    {
        "paddock.toml": b'[profiles.standard]\nallow = ["tool:file:*"]\n',
        "shortcut": b"x",
        "paddock-demo-note.md": b"mine\n",
        "docs": b"no directory\n",
    },
    {
        "paddock.json": b'{"paths": {}}',
        "README.md": b"caf\xe9\n",
        ".env": b"KEY=1\n",
        "paddock-demo-shortcut": b"mine\n",
        ".gitignore": b"*\n",
    },
    {
        "paddock-demo-shortcut/diary.txt": b"mine\n",
        ".ignore": b"paddock-demo*\n",
        "README.md/README.md": b"a directory\n",
    },
]


@pytest.mark.parametrize("held", HELD, ids=[", ".join(each) for each in HELD])
def test_the_demo_ends_as_it_should_whatever_the_project_holds(user, held):
    (user.project / "README.md").unlink()
    for name, content in held.items():
        (user.project / name).parent.mkdir(exist_ok=True)
        (user.project / name).write_bytes(content)
    assert user.run("demo").status == 0
    assert {name: (user.project / name).read_bytes() for name in held} == held


def test_an_act_of_the_demo_that_shows_much_is_cut_and_says_so(user):
    (user.project / "README.md").write_text("long " * 20_000)
    ran = user.run("demo")
    assert ran.status == 0
    assert "more lines; --json shows them]" in ran.out
    assert all(len(row) <= 120 for row in ran.out.split("\n"))


@pytest.mark.needs("git")
def test_the_demo_starts_no_program_that_the_repository_names(user, tmp_path):
    planted = tmp_path / "planted"
    for words in (["init", "-q"], ["config", "core.fsmonitor", f"touch {planted}; false"]):
        subprocess.run(["git", *words], cwd=user.project, check=True)
    assert user.run("demo").status == 0
    assert not planted.exists()


def test_a_demo_is_kept_only_where_nothing_is(user):
    (user.project / "link").symlink_to("nowhere")
    (user.project / "file").write_bytes(b"")
    for place in ("link", "file", "file/below"):
        ran = user.run("demo", "--keep", place)
        assert (ran.status, ran.out) == (2, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("line", "read_by_nobody", "buffered", "cut_short"),
    [
        ("policy check 'tool:file:create .git/x'", "stdout", 1, 141),
        ("where", "stdout", 0, 141),
        ("undo nope", "stderr", 2, 2),
        ("policy check 'tool:file:create .git/x'", "stderr", 1, 1),
    ],
)
def test_what_nobody_reads_to_its_end_does_not_end_as_done(
    user, line, read_by_nobody, buffered, cut_short, unbuffered
):
    ours, theirs = os.pipe()
    os.close(ours)
    streams = CAPTURED | {read_by_nobody: theirs}
    ran = in_bash(user, f"{PADDOCK} {line}", streams, PYTHONUNBUFFERED=unbuffered)
    os.close(theirs)
    assert ran.returncode == (cut_short if unbuffered else buffered)


@pytest.mark.parametrize(
    "arguments",
    [
        ("call", "view", '{"path": "."}'),
        ("tools",),
        ("run", "hello"),
        ("policy", "check", "tool:file:view a"),
        ("sandbox", "plan"),
        ("mcp",),
    ],
)
def test_an_empty_name_is_no_agent(user, arguments):
    """As a script writes it whose variable is not set."""
    ran = user.run(*arguments, "--agent", "")
    assert (ran.status, ran.out) == (2, "")
    assert "'' is not an agent's name" in ran.err


def test_an_empty_workspace_is_not_the_current_directory(user):
    ran = user.run("agent", "create", "one", "--workspace", "")
    assert (ran.status, "--workspace is empty" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("where <&-", 0),
        ("where >&-", 5),
        ("--help >&-", 5),
        ("where --json >&-", 5),
        ("where 2>&-", 0),
        ("call view '{}' <&- >&- 2>&-", 5),
        ("where >/dev/full", 5),
        ("--help >/dev/full", 5),
        ("where | true", 0),
    ],
)
def test_no_stream_that_is_closed_or_full_ends_in_a_traceback(user, line, status):
    ran = in_bash(user, f"set -o pipefail; {PADDOCK} {line}")
    assert ran.returncode == status
    assert not {"Traceback", "Exception"} & set(re.findall(r"\w+", ran.stderr))


def test_a_directory_that_was_removed_is_a_usage_error(user):
    ran = in_bash(user, f"mkdir gone; cd gone; rmdir ../gone; {PADDOCK} where")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error[usage]: directory ")


def test_a_tail_shows_the_newest_entries_until_nobody_waits_any_more(user):
    user.call("view", path="README.md")
    user.call("create_file", path="a", content="x")
    newest = user.run("ledger", "query", "--last", "2", "--json")
    ran = user.run("ledger", "tail", "--last", "2", "--json")
    assert (ran.status, ran.err, ran.out) == (0, "", newest.out)
    assert len(ran.out.splitlines()) == 2


def test_a_tail_of_less_than_nothing_is_a_usage_error(user):
    assert user.run("ledger", "tail", "--last", "-1").status == 2


class Breaking(io.StringIO):
    """A standard output with a defect."""

    def write(self, text: str) -> int:
        raise RuntimeError("boom")


def test_a_defect_is_seventy_with_an_id_and_a_file_and_no_traceback(user):
    out, err = Breaking(), io.StringIO()
    console = Console(io.StringIO(), out, err, {"HOME": str(user.home)}, user.project)
    assert main(["where"], console) == 70
    assert out.getvalue() == ""
    assert "Traceback" not in err.getvalue()
    (report,) = (user.home / ".local/state/paddock/defects").iterdir()
    assert report.stem in err.getvalue()
    assert "boom" in report.read_text()


@pytest.mark.parametrize(("profile", "writes"), [("locked", False), ("standard", True)])
def test_what_would_be_denied_at_every_call_is_offered_at_no_door(user, profile, writes):
    user.run("agent", "create", "other", "--profile", profile, "--workspace", str(user.project))
    listed = {row["name"] for row in user.run("tools", "--agent", "other", "--json").json}
    told = user.run("tools", "--agent", "other", "--provider", "anthropic").json
    assert {tool["name"] for tool in told} == listed
    assert {"view", "grep"} <= listed
    assert ({"create_file", "str_replace", "delete_file", "run_shell"} & listed != set()) == writes
    # Called all the same, it is denied by its rule and not unknown.
    arguments = '{"path": "a", "content": "x"}'
    ran = user.run("call", "create_file", arguments, "--agent", "other", "--json", "--no-input")
    assert (ran.json["status"] == "ok") == writes
    assert writes or ran.json["code"] == "policy.denied"


def test_a_row_of_the_ledger_says_what_a_call_was_about_and_how_it_was_decided(user):
    user.run("call", "create_file", '{"path": "notes.txt", "content": "x"}')
    user.run("call", "create_file", '{"path": ".git/x", "content": "x"}', "--no-input")
    out = user.run("ledger", "query", "--ledger", "ho1m").out
    allowed = next(row for row in out.splitlines() if "TOOL_INTENT" in row)
    assert "create_file notes.txt" in allowed
    denied = next(row for row in out.splitlines() if "TOOL_DENIED" in row)
    assert "create_file .git/x" in denied


@pytest.mark.needs("stage")
def test_a_row_of_the_ledger_names_a_confined_command_as_one(user):
    user.run("call", "run_shell", '{"command": "echo hi"}', "--yes")
    row = user.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_INTENT").out
    assert "confined, allow" in row
    assert "run_shell echo hi" in row


@pytest.mark.parametrize(
    ("path", "is_warned"),
    [
        ("plugins/a/agents/x.md", True),
        ("plugins/a/b/agents/x.md", True),
        ("plugins/a/b/c/agents/x.md", True),
        ("plugins/a/b/x.md", False),
        ("agents/x.md", False),
    ],
)
def test_agents_of_plugins_are_warned_of_however_deep(user, path, is_warned):
    said = user.call("create_file", path=path, content="x").json
    assert ("Writing to production path" in str(said.get("warnings"))) == is_warned
