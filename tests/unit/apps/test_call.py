"""paddock call: one governed call, one JSON object, an honest exit status."""

import io
import json
import shlex
from pathlib import Path

import pytest

from paddock.apps.cli.call import ProgressLine
from paddock.apps.cli.main import main
from paddock.apps.console import Console
from tests.support.disks import file_bytes_at_most


def test_an_edit_needs_no_set_up_and_leaves_nothing_of_ours_in_the_project(user):
    ran = user.call("str_replace", path="README.md", old_str="teh", new_str="the")
    assert (ran.status, ran.json["status"], ran.err) == (0, "ok", "")
    assert (user.project / "README.md").read_bytes() == b"hello the world\n"
    assert user.files() == ["README.md"]


def test_a_refusal_is_one_json_object_and_exit_one(user):
    ran = user.call("create_file", path=".git/hooks/pre-commit", content="x")
    assert (ran.status, ran.json["code"]) == (1, "policy.protected")
    assert not (user.project / ".git/hooks").exists()


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ('{"path": "a", "path": "b"}', "args.invalid"),
        ("[1]", "args.invalid"),
        ("not json", "args.invalid"),
        ('{"pth": "a"}', "args.unknown"),
        ("{}", "args.invalid"),
    ],
)
def test_what_is_wrong_inside_the_json_is_one_and_on_record(user, source, code):
    ran = user.run("call", "view", source)
    assert (ran.status, ran.json["code"]) == (1, code)
    rows = user.run("ledger", "query", "--ledger", "ho1m", "--json").out.splitlines()
    assert json.loads(rows[-1])["event_type"] == "TOOL_DENIED"


def test_arguments_can_be_given_by_name(user):
    words = ("path=README.md", "old_str=teh", "new_str=a=b {}")
    ran = user.run("call", "str_replace", *words)
    assert (ran.status, ran.json["status"]) == (0, "ok")
    assert (user.project / "README.md").read_bytes() == b"hello a=b {} world\n"


def test_a_named_argument_has_the_type_that_the_tool_takes(user):
    assert user.run("call", "view", "path=README.md", "limit=1").json["lines_total"] == 1
    assert user.run("call", "create_file", "path=7", "content=true").status == 0
    assert (user.project / "7").read_bytes() == b"true"
    many = user.run("call", "view", "path=README.md", "--no-input", "limit=many")
    assert (many.status, many.json["code"]) == (1, "args.invalid")
    assert "limit must be an integer, not a string 'many'" in many.json["error"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("path=a", "path=b"), "args.invalid"),
        (("pth=a",), "args.unknown"),
        (("path=README.md", "limit=NaN"), "args.invalid"),
    ],
)
def test_what_is_wrong_with_named_arguments_is_one_and_on_record(user, words, code):
    ran = user.run("call", "view", *words)
    assert (ran.status, ran.json["code"]) == (1, code)
    rows = user.run("ledger", "query", "--ledger", "ho1m", "--json").out.splitlines()
    assert json.loads(rows[-1])["event_type"] == "TOOL_DENIED"


@pytest.mark.parametrize("words", [("path=a", "b"), ("{}", "path=a"), ("-", "path=a")])
def test_names_and_json_do_not_mix(user, words):
    ran = user.run("call", "view", *words)
    assert (ran.status, ran.out) == (2, "")
    assert f"unrecognized arguments: {words[1]}" in ran.err
    assert "give arguments as NAME=VALUE pairs or one JSON object" in ran.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "status", "shown"),
    [
        (("path=README.md",), 0, "     1\thello teh world\n"),
        (("path=README.md", "--json"), 0, '{"status": "ok", '),
        (("path=.env",), 1, "error["),
    ],
)
def test_a_person_at_a_terminal_reads_the_text(user, words, status, shown):
    out = Terminal()
    console = Console(io.StringIO(), out, io.StringIO(), {"HOME": str(user.home)}, user.project)
    assert main(["call", "view", *words], console) == status
    assert out.getvalue().startswith(shown)


def test_arguments_can_come_from_standard_input(user):
    ran = user.run("call", "view", "-", stdin='{"path": "README.md"}')
    assert (ran.status, ran.json["content"]) == (0, "     1\thello teh world")


def test_input_that_is_not_utf8_is_a_refusal(user):
    ran = user.run("call", "view", "-", stdin=b'{"path": "\xff"}')
    assert (ran.status, ran.json["code"]) == (1, "args.invalid")


def test_an_unknown_tool_is_a_refusal_that_names_the_tools(user):
    ran = user.run("call", "no_such_tool", "{}")
    assert (ran.status, ran.json["code"]) == (1, "tool.unknown")
    assert "str_replace" in ran.json["hint"]


def test_an_agent_that_does_not_exist_is_a_usage_error_and_prints_no_object(user):
    ran = user.call("view", "--agent", "nobody", path="README.md")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("error[usage]: no agent is named")


ASKING = '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:delete **"]\n'


@pytest.mark.parametrize("options", [(), ("--no-input",)])
def test_an_ask_without_a_terminal_is_a_no(user, options):
    (user.project / "paddock.toml").write_text(ASKING)
    user.run("trust", "--yes")
    ran = user.call("delete_file", *options, path="README.md")
    assert (ran.status, ran.json["code"]) == (1, "approval.unavailable")
    assert (user.project / "README.md").exists()


def test_yes_answers_an_ask_and_is_recorded_as_such(user):
    (user.project / "paddock.toml").write_text(ASKING)
    user.run("trust", "--yes")
    ran = user.call("delete_file", "--yes", path="README.md")
    assert (ran.status, (user.project / "README.md").exists()) == (0, False)
    rows = user.run("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_INTENT", "--json")
    metadata = json.loads(rows.out.splitlines()[-1])["metadata"]
    assert (metadata["outcome"], metadata["source"]) == ("ask", "--yes")


@pytest.mark.needs("stage")
def test_a_command_of_which_changes_do_not_land_is_no_success(user):
    """Its own status is in the object; a dry run and a command that fails are calls like others."""
    landed = "touch a; exit 3", "touch b"
    assert [user.call("run_shell", command=line).status for line in landed] == [0, 0]

    lost = user.call("run_shell", command="touch c .env.local")
    assert (lost.status, lost.json["exit_code"], lost.json["files_changed"]) == (1, 0, ["c"])
    arguments = '{"command": "touch c .env.local", "dry_run": true}'
    assert user.run("call", "run_shell", arguments).status == 0

    (user.project / "paddock.toml").write_text('[shell]\napprove = "diff"\n')
    user.run("trust", "--yes")
    waiting = user.call("run_shell", "--no-input", command="touch d")
    assert (waiting.status, "pending" in waiting.json) == (1, True)


def test_yes_and_no_input_exclude_each_other(user):
    ran = user.call("view", "--yes", "--no-input", path="README.md")
    assert (ran.status, ran.out) == (2, "")


def test_a_policy_that_does_not_load_stops_the_call(user):
    (user.project / "paddock.toml").write_text('[profiles.standard]\nallwo = ["tool:*"]\n')
    ran = user.call("create_file", path="new", content="x")
    assert (ran.status, ran.out) == (3, "")
    assert "paddock.toml:2" in ran.err
    assert user.files() == ["README.md", "paddock.toml"]


def test_a_damaged_ledger_stops_the_call(user):
    user.call("view", path="README.md")
    path = user.run("where", "--json").json["ledgers"]["ho1m"]
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"XXXX")
    with open(path, "ab") as file:
        file.write(b"garbage\n")
    ran = user.call("create_file", path="new", content="x")
    assert (ran.status, ran.out) == (4, "")
    assert ran.err.startswith("error[ledger.damaged]: ")
    assert not (user.project / "new").exists()
    assert user.run("ledger", "verify").status == 4


def test_a_ledger_that_cannot_be_opened_is_one_json_object_and_exit_five(user):
    with file_bytes_at_most(1_500):
        ran = user.call("create_file", path="new", content="x")
    assert (ran.status, ran.json["status"], ran.json["code"]) == (5, "error", "ledger.full")
    assert not (user.project / "new").exists()
    assert user.call("create_file", path="new", content="x").status == 0
    assert (user.project / "new").read_bytes() == b"x"


def test_a_refusal_by_the_agents_own_list_shows_no_host_path(user):
    user.run("agent", "create", "w", "--workspace", ".")
    (plane,) = (user.home / ".local/state/paddock/planes").iterdir()
    file = plane / "agents/w/agent.json"
    declared = json.loads(file.read_text())
    declared["permissions"]["forbidden"] = ["closed/**"]
    text = json.dumps(declared, indent=2)
    file.write_text(text)
    ran = user.call("create_file", "--agent", "w", path="closed/a", content="x")
    assert ran.json["code"] == "policy.forbidden"
    assert str(user.home) not in ran.out
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "closed/**" in row)
    rule = {"text": "closed/**", "file": "agents/w/agent.json", "line": line}
    assert ran.json["rule"] == rule


@pytest.mark.parametrize("command", ["curl 'a b'", "cat <<E\nx\nE"])
def test_the_command_that_a_refusal_by_no_rule_names_answers_why(user, command):
    allowed = '["tool:file:*", "tool:shell:run make test"]'
    (user.project / "paddock.toml").write_text(f"[profiles.standard]\nallow = {allowed}\n")
    user.run("trust", "--yes")
    refused = user.call("run_shell", command=command)
    assert (refused.status, refused.json["code"]) == (1, "policy.denied")
    _, _, typed = refused.json["hint"].partition("ask a person to look: paddock ")
    why = user.run(*shlex.split(typed))
    assert (why.status, why.out.split(":")[0], why.err) == (0, "deny", "")
    assert "so it is denied" in why.out
    assert user.call("view", path="README.md").status == 0


def test_an_agent_whose_own_list_cannot_be_used_is_a_configuration_error(user):
    user.run("agent", "create", "w", "--workspace", ".")
    (plane,) = (user.home / ".local/state/paddock/planes").iterdir()
    file = plane / "agents/w/agent.json"
    declared = json.loads(file.read_text())
    declared["permissions"]["forbidden"] = [""]
    file.write_text(json.dumps(declared))
    ran = user.call("view", "--agent", "w", path="README.md")
    assert (ran.status, ran.out) == (3, "")
    assert "agents/w/agent.json" in ran.err


def test_output_is_ascii_so_that_no_terminal_is_misled(user):
    (user.project / "a.txt").write_text("\u202egnp.exe\n", encoding="utf-8")
    ran = user.call("view", path="a.txt")
    assert ran.out.isascii()


def test_a_long_command_says_on_a_terminal_how_far_it_is():
    stderr = io.StringIO()
    console = Console(io.StringIO(), io.StringIO(), stderr, {}, Path())
    progress = ProgressLine(console)
    progress.wipe()
    assert stderr.getvalue() == ""
    progress(3.2, 12_345_678)
    progress.wipe()
    assert stderr.getvalue() == "\r\x1b[Krunning 3 s, 12,346 kB of output\r\x1b[K"


def test_absolute_paths_by_the_name_that_the_user_has_for_the_root_are_inside(user):
    link = user.project.parent / "by-link"
    link.symlink_to(user.project)
    for name in (link, user.project):
        given = json.dumps({"path": f"{name}/README.md"})
        ran = user.run("call", "--plane", str(link), "view", given)
        assert (ran.status, ran.json["path"]) == (0, f"{link}/README.md")
    ran = user.call("view", path=f"{link}/README.md")
    assert (ran.status, ran.json["code"]) == (1, "path.escapes_root")


@pytest.mark.parametrize("closed", ['deny = ["tool:shell:*"]', ""], ids=["denied", "unnamed"])
def test_an_agent_whose_policy_knows_no_command_has_no_run_shell(user, closed):
    assert "run_shell" in user.run("tools").out
    text = f'[profiles.standard]\nallow = ["tool:file:*"]\n{closed}\n'
    (user.project / "paddock.toml").write_text(text)
    assert user.run("trust", "--yes").status == 0

    assert "run_shell" not in user.run("tools").out
    assert user.call("run_shell", "--yes", command="true").json["code"] == "tool.unknown"


def test_an_agent_whose_policy_asks_about_one_command_has_run_shell(user):
    text = '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:shell:run make test"]\n'
    (user.project / "paddock.toml").write_text(text)
    assert user.run("trust", "--yes").status == 0

    assert "run_shell" in user.run("tools").out
    assert user.call("run_shell", "--yes", command="true").json["code"] == "policy.denied"


@pytest.mark.parametrize(
    ("closed", "named", "sees_lines", "sees_names"),
    [
        ('[profiles.standard]\nallow = ["tool:*"]\ndeny = ["tool:search:* docs/"]', 1, True, True),
        (
            '[profiles.standard]\nallow = ["tool:*"]\ndeny = ["tool:file:view docs/"]',
            0,
            False,
            True,
        ),
        ('[paths]\nsecret = ["docs/"]', 1, False, False),
    ],
)
def test_what_a_search_from_above_finds_is_judged_as_viewing_it(
    user, closed, named, sees_lines, sees_names
):
    (user.project / "docs").mkdir()
    (user.project / "docs/a").write_bytes(b"needle\n")
    (user.project / "paddock.toml").write_text(closed)
    user.run("trust", "--yes")
    assert ("docs/a:1:needle" in user.call("grep", pattern="needle").out) is sees_lines
    assert ("docs/a" in user.call("find", pattern="*").out) is sees_names
    assert user.call("grep", pattern="needle", path="docs").status == named
