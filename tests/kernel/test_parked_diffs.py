"""What a command left is kept with its question; a yes commits exactly that, and once."""

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.sandbox.changes.pending import unpark_set
from tests.support.forked import CONSOLE
from tests.support.mcp_servers import McpPlace, make_place

pytestmark = pytest.mark.needs("stage")

DIFF = """
[profiles.standard]
allow = ["tool:file:*"]
otherwise = { "tool:shell:*" = "ask" }
[shell]
approve = "diff"
"""
ANSWERED = "APPROVAL_ANSWERED"
COMMAND = (
    "mkdir -p made/below && printf 'new\\n' > made/below/a && printf 'changed\\n' > README.md "
    "&& rm gone && ln -s README.md link && date +%s%N > stamp && chmod 700 tool"
)


@pytest.fixture
def place(tmp_path) -> McpPlace:
    made = make_place(tmp_path, DIFF)
    (made.project / "gone").write_text("was here\n")
    (made.project / "tool").write_text("#!/bin/sh\n")
    return made


def call(place: McpPlace, tool: str, **arguments):
    ran = place.run("call", tool, json.dumps(arguments), "--no-input")
    return json.loads(ran.stdout)


def tree(place: McpPlace) -> dict[str, object]:
    found = {}
    for base, _, names in os.walk(place.project):
        for name in names:
            path = os.path.join(base, name)
            relative = os.path.relpath(path, place.project)
            if not relative.startswith(".git"):
                mode = os.lstat(path).st_mode & 0o777
                link = os.readlink(path) if os.path.islink(path) else None
                found[relative] = link or (Path(path).read_bytes(), mode)
    return found


def parked(place: McpPlace) -> dict:
    before = tree(place)
    refused = call(place, "run_shell", command=COMMAND)
    assert refused["code"] == "approval.unavailable", refused
    assert tree(place) == before
    (kept,) = place.waiting()
    assert (kept["id"], kept["has_changes"]) == (refused["approval"], True)
    return kept


def grant(place: McpPlace, identity: str) -> dict:
    return json.loads(place.run("approvals", "grant", identity, "--json").stdout)


def changes_shown(place: McpPlace, identity: str) -> list[str]:
    """The rows that a person is shown of what a command left."""
    rows = place.run("approvals", "show", identity).stdout.splitlines()
    shown = [row.removeprefix("    ") for row in rows[rows.index("  what it changed:") + 1 :]]
    said = json.loads(place.run("approvals", "show", identity, "--json").stdout)["diff"]
    assert shown == said.splitlines()
    return shown


def file_of(place: McpPlace, identity: str):
    (file,) = (place.home / ".local/state/paddock").rglob(f"{identity}.*.json")
    return file


def pins_of(place: McpPlace) -> set[str]:
    folders = (place.home / ".local/state/paddock").rglob("pins")
    return {name for folder in folders for name in os.listdir(folder)}


def test_a_yes_commits_exactly_what_was_shown_without_running_it_again(place):
    kept = parked(place)
    shown = place.run("approvals", "show", kept["id"]).stdout
    assert all(part in shown for part in ("+changed", "made/below/a", "gone", "stamp"))
    stamp = shown.split("stamp", 1)[1]
    committed = grant(place, kept["id"])
    assert committed["status"] == "ok", committed
    found = tree(place)
    assert found["README.md"][0] == b"changed\n"
    assert found["made/below/a"][0] == b"new\n"
    assert (found["link"], found["tool"][1]) == ("README.md", 0o700)
    assert "gone" not in found
    assert found["stamp"][0].decode().strip() in stamp
    assert place.waiting() == []
    assert place.run("approvals", "grant", kept["id"]).returncode == 2


@pytest.mark.parametrize("more", [[], ["--resume"]], ids=["always", "and resume"])
def test_a_yes_for_good_commits_what_was_shown_and_saves_the_rule(place, more):
    (place.project / "make").write_text("date +%s%N > stamp\n")
    kept = call(place, "run_shell", command="sh make")["approval"]
    shown = changes_shown(place, kept)
    ran = place.run("approvals", "grant", kept, "--always", "--yes", "--json", *more)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert (said["status"], said["saved"], said["content"]) == (
        "ok",
        True,
        "committed 1 change\n  created 'stamp'",
    )
    assert f"+{(place.project / 'stamp').read_text().strip()}" in shown
    assert (place.waiting(), pins_of(place)) == ([], set())
    assert call(place, "run_shell", command="sh make")["status"] == "ok"
    answers = [e["metadata"]["answer"] for e in place.entries("governance", "--type", ANSWERED)]
    assert answers == ["kept", "granted", "used", "always"]


def test_a_yes_for_good_saves_no_rule_where_the_changes_cannot_be_brought_in(place):
    kept = call(place, "run_shell", command="touch made")["approval"]
    (place.project / "made").mkdir()
    ran = place.run("approvals", "grant", kept, "--always", "--yes")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (1, "not saved")
    assert "the workspace has changed since the command ran" in ran.stdout
    assert (place.project / "paddock.toml").read_text() == DIFF


def test_a_yes_for_good_saves_no_rule_for_changes_that_were_asked_about_under_another_policy(place):
    kept = call(place, "run_shell", command="touch made")["approval"]
    place.govern(DIFF + "# changed\n")
    before = tree(place)
    ran = place.run("approvals", "grant", kept, "--always", "--yes")
    assert (ran.returncode, "would count for no call: the policy has changed" in ran.stderr) == (
        1,
        True,
    )
    assert tree(place) == before


def test_a_grant_says_that_it_is_one_before_the_changes_are_brought_in(place):
    kept = call(place, "run_shell", command="touch made")["approval"]
    rows = place.run("approvals", "grant", kept).stdout.splitlines()
    assert rows[0].startswith(f"{kept} (granted, until ")
    assert rows[-3:] == [
        "granted: the command's changes are committed now",
        "committed 1 change",
        "  created 'made'",
    ]


def explained(place: McpPlace, identity: str) -> tuple[str, dict]:
    ran = [place.run("policy", "explain", identity, *how) for how in ([], ["--json"])]
    return ran[0].stdout, json.loads(ran[1].stdout)["waited"]


def test_a_command_and_the_call_that_landed_its_changes_name_each_other(place):
    kept = parked(place)
    request, command = kept["id"], kept["call_id"]
    said, waited = explained(place, command)
    assert waited == {"request": request, "answer": "", "by": "", "landed_by": ""}
    assert f"waited: its changes, as {request}: no answer is on record\n" in said
    assert grant(place, request)["status"] == "ok"
    landing = place.entries("ho1m", "--type", "TOOL_INTENT")[-1]["call_id"]
    said, waited = explained(place, command)
    by = waited["by"]
    assert by.startswith("operator ")
    expected = {"request": request, "answer": "granted", "by": by}
    assert waited == {**expected, "landed_by": landing}
    assert f"its changes, as {request}: granted by {by}; landed by {landing}\n" in said
    said, waited = explained(place, landing)
    assert waited == {**expected, "made_by": command}
    assert f"lands:  the changes of {command}, granted by {by} ({request})\n" in said


def test_changes_that_were_refused_name_no_call_that_landed_them(place):
    kept = parked(place)
    assert place.run("approvals", "refuse", kept["id"]).returncode == 0
    _, waited = explained(place, kept["call_id"])
    assert (waited["answer"], waited["landed_by"]) == ("refused", "")


@pytest.mark.parametrize("answer", ["grant", "refuse"])
def test_the_history_keeps_the_contents_until_somebody_has_answered(place, answer):
    kept = parked(place)
    assert pins_of(place) == {f"parked-{kept['id']}"}
    assert place.run("approvals", answer, kept["id"]).returncode == 0
    assert pins_of(place) == set()


def test_a_commit_is_undone_like_any_other_call(place):
    before = tree(place)
    kept = parked(place)
    assert grant(place, kept["id"])["status"] == "ok"
    done = place.entries("ho1m", "--type", "TOOL_INTENT")[-1]
    assert done["metadata"]["tool"] == "commit_parked"
    assert done["metadata"]["rule"]["text"] == "commit_parked"
    assert place.run("undo", done["call_id"]).returncode == 0
    assert tree(place) == before


def test_a_commit_that_replaced_a_file_without_write_bits_is_undone_and_that_undo_too(place):
    locked = place.project / "locked"
    locked.write_text("old\n")
    locked.chmod(0o444)
    before = tree(place)
    command = "rm -f locked && printf 'new\n' > locked && chmod 444 locked"
    refused = call(place, "run_shell", command=command)
    assert grant(place, refused["approval"])["status"] == "ok"
    after = tree(place)
    assert after["locked"] == (b"new\n", 0o444)
    for expected in (before, after, before):
        last = place.entries("ho1m", "--type", "TOOL_INTENT")[-1]
        assert place.run("undo", last["call_id"]).returncode == 0
        assert tree(place) == expected


def test_a_commit_of_more_than_an_entry_holds_is_on_record_and_undone(place):
    before = tree(place)
    refused = call(place, "run_shell", command="mkdir n; for i in $(seq 300); do echo > n/$i; done")
    committed = grant(place, refused["approval"])
    assert committed["status"] == "ok", committed
    assert len(tree(place)) == len(before) + 300
    done = place.entries("ho1m", "--type", "TOOL_INTENT")[-1]
    result = place.entries("ho1m", "--type", "TOOL_RESULT")[-1]
    assert (done["metadata"]["tool"], done["metadata"]["actions_total"]) == ("commit_parked", 301)
    assert len(result["metadata"]["effects"]) == 50
    assert result["metadata"]["effects_stored"]["total"] == 301
    assert place.run("undo", done["call_id"]).returncode == 0
    assert tree(place) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "README.md").write_text("somebody else's\n"),
        lambda root: (root / "made").mkdir(),
        lambda root: (root / "gone").unlink(),
        lambda root: (root / "stamp").write_text("x"),
    ],
    ids=["replaced", "appeared", "went", "stands there"],
)
def test_a_workspace_that_has_changed_is_a_conflict_and_nothing_lands(place, change):
    kept = parked(place)
    change(place.project)
    before = tree(place)
    refused = grant(place, kept["id"])
    assert refused["code"] == "approval.expired", refused
    assert (tree(place), pins_of(place)) == (before, set())


@pytest.mark.parametrize("command", ["touch tool", "chmod 755 tool"])
@pytest.mark.parametrize(
    "change",
    [lambda file: file.chmod(0o600), lambda file: os.utime(file, (5, 5))],
    ids=["mode", "time"],
)
def test_a_mode_or_time_that_somebody_set_since_is_a_conflict_and_stays(place, command, change):
    tool = place.project / "tool"
    kept = call(place, "run_shell", command=command)["approval"]
    change(tool)
    before = (tool.stat().st_mode, tool.stat().st_mtime_ns)
    refused = grant(place, kept)
    assert refused["code"] == "approval.expired", refused
    assert "another process changed 'tool'" in refused["content"]
    assert (tool.stat().st_mode, tool.stat().st_mtime_ns) == before
    again = call(place, "run_shell", command=command)["approval"]
    assert grant(place, again)["status"] == "ok"
    assert (tool.stat().st_mode, tool.stat().st_mtime_ns) != before


LINKS = {
    "a directory in a link's place": "rm d && mkdir d && echo x > d/x",
    "a file in a link's place": "rm d && echo x > d",
    "another link": "ln -sfn elsewhere d",
    "a link that goes": "rm d",
    "a link that goes with its directory": "rm -r in",
    "a link that only commands make": "ln -sfn elsewhere node_modules/.bin/d",
}


@pytest.mark.parametrize("command", LINKS.values(), ids=LINKS.keys())
def test_a_link_gives_way_and_comes_back_when_that_is_undone(place, command):
    links = [place.project / name for name in ("d", "in/d", "node_modules/.bin/d")]
    (place.project / "real").mkdir()
    for link in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to("real")
    before = tree(place)
    kept = call(place, "run_shell", command=command)["approval"]
    committed = grant(place, kept)
    assert committed["status"] == "ok", committed
    texts = [os.readlink(link) if link.is_symlink() else None for link in links]
    assert sorted(text == "real" for text in texts) == [False, True, True]
    done = place.entries("ho1m", "--type", "TOOL_INTENT")[-1]
    undone = place.run("undo", done["call_id"])
    assert (undone.returncode, tree(place)) == (0, before), undone.stderr
    assert [os.readlink(link) for link in links] == ["real"] * 3


def exchange(directory: Path) -> None:
    """Put another directory of the same name in its place."""
    directory.rename(directory.with_name(f"{directory.name}.old"))
    directory.mkdir()
    (directory / "stranger").write_text("other\n")


IN_A_DIRECTORY = {
    "a new file": "echo new > d/e/n",
    "another content": "echo new > d/e/f",
    "a removal": "rm d/e/f",
    "a mode": "chmod 700 d/e/f",
    "a new directory": "mkdir d/e/n && echo new > d/e/n/f",
}


@pytest.mark.parametrize("command", IN_A_DIRECTORY.values(), ids=IN_A_DIRECTORY.keys())
def test_what_belongs_in_one_directory_does_not_land_in_another_of_its_name(place, command):
    inner = place.project / "d/e"
    inner.mkdir(parents=True)
    (inner / "f").write_text("f\n")
    kept = call(place, "run_shell", command=command)["approval"]
    exchange(place.project / "d")
    (place.project / "d.old/e").rename(inner)
    before = tree(place)
    refused = grant(place, kept)
    assert (refused["code"], "another process changed 'd'" in refused["content"]) == (
        "approval.expired",
        True,
    )
    assert tree(place) == before


def test_what_others_put_into_the_same_directory_keeps_nothing_from_landing(place):
    (place.project / "d/e").mkdir(parents=True)
    kept = call(place, "run_shell", command="echo new > d/e/n")["approval"]
    for neighbour in ("theirs", "d/theirs", "d/e/theirs"):
        (place.project / neighbour).write_text("theirs\n")
    (place.project / "d").chmod(0o700)
    assert grant(place, kept)["status"] == "ok"
    assert sorted(os.listdir(place.project / "d/e")) == ["n", "theirs"]


def test_a_workspace_that_was_exchanged_gets_nothing(place):
    kept = call(place, "run_shell", command="echo new > n")["approval"]
    exchange(place.project)
    (place.project / "paddock.toml").write_text(DIFF)
    refused = grant(place, kept)
    assert (refused["code"], "another process changed '.'" in refused["content"]) == (
        "approval.expired",
        True,
    )
    assert not (place.project / "n").exists()


ARMING = "mkdir -p repo/hooks && echo x > repo/hooks/post-checkout && echo x > repo/config"
COMPLETING = "mkdir -p repo/objects repo/refs/heads && echo 'ref: refs/heads/main' > repo/HEAD"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["armed first", "completed first"])
def test_two_commands_that_wait_do_not_make_an_armed_repository_together(place, order):
    (place.project / "repo").mkdir()
    kept = [call(place, "run_shell", command=line)["approval"] for line in (ARMING, COMPLETING)]
    first, second = (grant(place, kept[each]) for each in order)
    assert (first["status"], second["code"]) == ("ok", "approval.expired"), second
    assert "is not committed by the git preset as the workspace is now" in second["content"]
    names = [{"config", "hooks"}, {"HEAD", "objects", "refs"}][order[0]]
    assert set(os.listdir(place.project / "repo")) == names


def test_two_commands_that_wait_make_a_repository_together_that_runs_nothing(place):
    (place.project / "repo").mkdir()
    lines = ("mkdir repo/objects repo/refs", "echo 'ref: refs/heads/main' > repo/HEAD")
    kept = [call(place, "run_shell", command=line)["approval"] for line in lines]
    assert [grant(place, each)["status"] for each in kept] == ["ok", "ok"]
    assert set(os.listdir(place.project / "repo")) == {"HEAD", "objects", "refs"}


@contextmanager
def files_of_at_most(size_bytes: int):
    """What is started meanwhile writes no larger file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_is_in_the_way_of_a_grant_is_said_as_it_is_and_what_to_do(place):
    command = "echo other > README.md; head -c 3000000 /dev/zero > big"
    kept = call(place, "run_shell", command=command)["approval"]
    before = tree(place)
    with files_of_at_most(2_000_000):
        # A program of its own, which has the limit from us.
        argv = [sys.executable, "-c", CONSOLE, "approvals", "grant", kept, "--json"]
        ran = subprocess.run(
            argv, env=place.variables, cwd=place.project, capture_output=True, check=False
        )
    refused = json.loads(ran.stdout)
    assert refused["code"] == "storage.full"
    assert refused["hint"] == (
        "nothing was changed, and the grant is used up: remove the obstacle, then run "
        "the command again"
    )
    assert "'big': larger than this host allows" in refused["content"]
    assert (tree(place), place.waiting(), pins_of(place)) == (before, [], set())
    again = call(place, "run_shell", command=command)["approval"]
    assert grant(place, again)["status"] == "ok"
    assert (place.project / "big").stat().st_size == 3_000_000


def test_changes_that_were_exchanged_are_not_committed(place):
    kept = parked(place)
    file = file_of(place, kept["id"])
    members = json.loads(file.read_bytes())
    text = json.dumps(members["changes"]).replace("made/below/a", "made/below/b")
    members["changes"] = json.loads(text)
    file.write_text(json.dumps(members))
    before = tree(place)
    assert place.run("approvals", "grant", kept["id"]).returncode != 0
    assert tree(place) == before


def test_a_difference_that_was_exchanged_is_not_committed(place):
    kept = parked(place)
    file = file_of(place, kept["id"])
    asked = file.read_text()
    file.write_text(asked.replace("+changed", "+nothing"))
    before = tree(place)
    (row,) = place.waiting()
    assert row["outdated"].startswith("its file does not match the recorded request")
    assert place.run("approvals", "grant", kept["id"]).returncode == 1
    assert tree(place) == before
    file.write_text(asked)
    assert grant(place, kept["id"])["status"] == "ok"


def test_a_policy_that_has_changed_voids_the_answer(place):
    kept = parked(place)
    place.govern(DIFF + "# changed\n")
    before = tree(place)
    assert place.run("approvals", "grant", kept["id"]).returncode != 0
    assert tree(place) == before


def test_what_policy_denies_is_not_among_the_changes_and_is_named_to_everybody(place):
    (place.project / "both").write_text("echo x > .env; echo x >> .git/config; echo y > fine\n")
    (place.project / ".git/config").write_text("[core]\n")
    refused = call(place, "run_shell", command="sh both")
    assert refused["code"] == "approval.unavailable"
    shown = changes_shown(place, refused["approval"])
    committed = grant(place, refused["approval"])
    assert committed["status"] == "ok"
    assert "fine" in tree(place)
    assert ".env" not in tree(place)
    assert (place.project / ".git/config").read_text() == "[core]\n"
    rules = {row["path"]: row["rule"] for row in committed["changes_refused"]}
    assert sorted(rules) == [".env", ".git/config"]
    rows = [f"  {path}: {rule}" for path, rule in sorted(rules.items())]
    said = "[changes refused regardless of the answer: 2]"
    assert shown[:3] == [said, *rows]
    assert committed["content"].splitlines() == [
        "committed 1 change",
        "  created 'fine'",
        "changes refused: 2",
        *rows,
    ]
    result = place.entries("ho1m", "--type", "TOOL_RESULT")[-1]["metadata"]
    assert result["refused_total"] == 2
    assert {row["path"]: row["rule"] for row in result["refused"]} == rules


def test_where_nothing_is_refused_nothing_is_said_of_it(place):
    refused = call(place, "run_shell", command="echo y > fine")
    assert changes_shown(place, refused["approval"])[:2] == ["--- a/fine", "+++ b/fine"]
    committed = grant(place, refused["approval"])
    assert (committed["content"], committed["changes_refused"]) == (
        "committed 1 change\n  created 'fine'",
        [],
    )


@pytest.mark.parametrize(
    ("command", "heading"),
    [
        ("echo half > f; exit 3", "[Command ended with exit code 3]"),
        (
            "echo half > f; sleep 60",
            "[Command timed out after 3 seconds: its changes may be incomplete]",
        ),
    ],
)
def test_how_a_command_ended_that_did_not_end_well_is_shown_with_its_changes(
    place, command, heading
):
    refused = call(place, "run_shell", command=command, timeout=3)
    assert changes_shown(place, refused["approval"])[:2] == [heading, "--- a/f"]
    (kept,) = place.waiting()
    well = call(place, "run_shell", command="echo half > f")
    other = next(each for each in place.waiting() if each["id"] == well["approval"])
    assert other["target_digest"] != kept["target_digest"]


def test_a_model_is_told_that_a_yes_brings_the_changes_in_and_not_to_call_again(place):
    kept = parked(place)
    refused = call(place, "run_shell", command=COMMAND.replace("date +%s%N", "echo"))
    assert refused["hint"] == (
        "it has run, and its changes wait: ask a person to review and answer them: paddock "
        f"approvals show {refused['approval']}, then grant or refuse; a grant commits exactly what "
        "is shown there, so do not repeat the call"
    )
    assert refused["approval"] != kept["id"]
    place.govern(DIFF.replace('approve = "diff"', 'approve = "command"'))
    other = call(place, "run_shell", command=COMMAND)
    assert other["hint"].endswith("after a grant, repeat exactly the same call")


def test_a_set_of_an_earlier_version_is_refused_and_says_what_to_do(place):
    refused = call(place, "run_shell", command="echo y > fine")
    kept = json.loads(file_of(place, refused["approval"]).read_bytes())["changes"]
    assert (sorted(kept), [row[0] for row in kept["above"]]) == (
        ["above", "phases", "refused", "refused_more"],
        ["."],
    )
    assert unpark_set(kept).phases != []
    old = {name: value for name, value in kept.items() if name != "above"}
    for earlier in (old, kept["phases"]):
        with pytest.raises(ConfigError) as error:
            unpark_set(earlier)
        assert (error.value.message, error.value.hint) == (
            "the changes were kept by an earlier version, without their directories",
            "run the command again",
        )
    for other in (
        {**kept, "refused": [["a", 1, "b"]]},
        {**kept, "refused_more": "0"},
        {**kept, "above": [["."]]},
        {**kept, "above": [[".", "1", 2]]},
        {},
        "x",
        1,
    ):
        with pytest.raises(ConfigError, match="the kept changes do not load: "):
            unpark_set(other)


def test_a_refused_difference_stays_refused(place):
    kept = parked(place)
    assert place.run("approvals", "refuse", kept["id"]).returncode == 0
    assert "README.md" in tree(place)
    assert tree(place)["README.md"][0] == b"hello\n"


def test_a_yes_that_was_committed_is_used_whatever_becomes_of_its_file(place):
    command = "printf 'changed\\n' > README.md"
    before = tree(place)
    refused = call(place, "run_shell", command=command)
    file = file_of(place, refused["approval"])
    waiting = file.read_text()
    assert grant(place, refused["approval"])["status"] == "ok"
    done = place.entries("ho1m", "--type", "TOOL_INTENT")[-1]
    assert place.run("undo", done["call_id"]).returncode == 0
    file.write_text(waiting.replace('"state": "waiting"', '"state": "granted"'))
    again = call(place, "run_shell", command=command)
    # The very same question, and it is put anew.
    digests = {e["metadata"]["digest"] for e in place.entries("governance", "--type", ANSWERED)}
    assert (again["code"], len(digests)) == ("approval.unavailable", 1)
    assert tree(place) == before
    used = [e["metadata"]["answer"] for e in place.entries("governance", "--type", ANSWERED)]
    assert used == ["kept", "granted", "used", "kept"]
