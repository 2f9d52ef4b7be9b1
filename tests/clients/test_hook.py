"""The hook in front of the real clients: what it denies does not run, and the model is told.

Installed by `npm ci --prefix tests/clients`, or wherever PADDOCK_CLIENTS names; the model
is a server on this machine.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.plane.environment import read_environment
from tests.support.real_clients import ERRAND, TASK, Desk, broken_copy, desk, wants
from tests.support.trusting import record_trust
from tests.support.wire_words import Said, says

pytestmark = pytest.mark.loopback

ATTACKS = Path(__file__).parents[1] / "kernel" / "attacks.py"
ANSWERER = """
import json
from mcp.server.mcpserver import MCPServer

server = MCPServer("person")


@server.tool(structured_output=False)
def answer(tool_name: str, input: dict, tool_use_id: str = "") -> str:
    return json.dumps({"behavior": "allow", "updatedInput": input})


server.run()
"""
ACCEPT_EDITS = ("--permission-mode", "acceptEdits")


def turn_id(said: Said) -> str:
    return said.calls[0].id


@pytest.fixture
def here() -> Iterator[Desk]:
    with desk() as made:
        yield made


def trust(here: Desk, policy: str) -> None:
    path = here.project / "paddock.toml"
    path.write_text(policy)
    environment = read_environment({"HOME": str(here.home)})
    record_trust(path, policy.encode(), environment, datetime.now(UTC))


def entries(here: Desk) -> list[dict]:
    ran = here.paddock("ledger", "query", "--ledger", "ho1m", "--type", "HOOK_DECISION", "--json")
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.needs("claude")
def test_claude_code_asks_the_hook_in_one_persons_settings_of_the_project(here: Desk):
    here.paddock("hook", "install", "--yes", "--scope", "local")
    protected = wants("Write", file_path=str(here.project / ".git/x"), content="no")
    ran = here.claude(protected, says("done"), options=ACCEPT_EDITS)
    assert "Protected path: .git/x" in ran.answers()[turn_id(protected)]
    assert sorted(path.name for path in (here.project / ".git").iterdir()) == []


@pytest.mark.needs("claude")
def test_claude_code_honours_every_denial_and_the_model_reads_the_reason(here: Desk):
    here.paddock("hook", "install", "--yes")
    protected = wants("Write", file_path=str(here.project / ".git/x"), content="no")
    outside = wants("Write", file_path=str(here.base / "outside"), content="no")
    line = wants("Bash", command="echo x > .git/y", description="x")
    fine = wants("Write", file_path=str(here.project / "src/a.py"), content="x = 1\n")
    errand = wants("Agent", description="e", prompt="do it", subagent_type="general-purpose",
                   run_in_background=False)  # fmt: skip
    secret = wants("Write", file_path=str(here.project / ".env"), content="no")
    ran = here.claude(protected, outside, line, fine, errand, secret, says("sub"), says("done"),
                      options=ACCEPT_EDITS)  # fmt: skip

    told = ran.answers()
    assert "Protected path: .git/x cannot be modified via Write" in told[turn_id(protected)]
    assert f"Path outside project boundary: {here.base}/outside" in told[turn_id(outside)]
    assert ".git/y" in told[turn_id(line)]
    # In the sub-agent, too, and it is told so itself.
    assert "Protected path: .env cannot be modified via Write" in told[turn_id(secret)]
    assert "Writing to production path: src/a.py" in ran.seen()
    assert "Scratch work goes to agent_sandbox/" in ran.seen()
    assert sorted(path.name for path in (here.project / ".git").iterdir()) == []
    assert not (here.base / "outside").exists()
    assert not (here.project / ".env").exists()
    assert (here.project / "src/a.py").read_text() == "x = 1\n"
    found = {entry["call_id"]: (entry["agent"], entry["decision"]) for entry in entries(here)}
    assert found == {
        turn_id(protected): ("main", "deny"),
        turn_id(outside): ("main", "deny"),
        turn_id(line): ("main", "deny"),
        turn_id(fine): ("main", "allow"),
        turn_id(errand): ("main", "allow"),
        turn_id(secret): ("general-purpose", "deny"),
    }


FAULTS = """\
        if b"by-signal" in self.data:
            posix.kill(posix.getpid(), 9)
        if b"by-status" in self.data:
            posix._exit(1)
        if b"by-time" in self.data:
            __import__("_signal").alarm(1)
            time.sleep(60)
        if b"by-stop" in self.data:
            posix.kill(posix.getpid(), 15)
"""
WAYS_TO_FAIL = ("signal", "status", "time", "stop")


def install_broken(here: Desk, tmp_path: Path, *options: str) -> Path:
    """The hook as installed from a copy that fails when it is told to; its launcher."""
    launcher = broken_copy(tmp_path, FAULTS)
    here.paddock("hook", "install", "--yes", *options)
    settings = here.project / ".claude/settings.json"
    if options:
        settings = here.home / ".codex/config.toml"
    real = Path(__file__).parents[2] / "src/paddock/apps/hook/launch.py"
    text = settings.read_text()
    assert str(real) in text
    settings.write_text(text.replace(str(real), str(launcher)))
    return launcher


@pytest.mark.needs("claude")
def test_claude_code_runs_nothing_when_the_hook_fails(here: Desk, tmp_path: Path):
    launcher = install_broken(here, tmp_path)
    turns = {
        way: wants("Write", file_path=str(here.project / f"by-{way}"), content="no")
        for way in WAYS_TO_FAIL
    }
    fine = wants("Write", file_path=str(here.project / "fine"), content="yes")
    ran = here.claude(fine, *turns.values(), says("done"), options=ACCEPT_EDITS)

    assert (here.project / "fine").read_text() == "yes"
    assert [path.name for path in here.project.glob("by-*")] == []
    assert all("error" in ran.answers()[turn_id(turn)] for turn in turns.values())
    launcher.unlink()
    gone = wants("Write", file_path=str(here.project / "gone"), content="no")
    here.claude(gone, says("done"), options=ACCEPT_EDITS)
    assert not (here.project / "gone").exists()


@pytest.mark.needs("claude")
def test_claude_code_runs_nothing_when_nothing_can_be_decided_or_recorded(here: Desk):
    here.paddock("hook", "install", "--yes")
    (here.project / "paddock.toml").write_text("nonsense")
    first = wants("Write", file_path=str(here.project / "a"), content="no")
    ran = here.claude(first, says("done"), options=ACCEPT_EDITS)
    assert "paddock.toml" in ran.answers()[turn_id(first)]
    (here.project / "paddock.toml").unlink()
    second = wants("Write", file_path=str(here.project / "fine"), content="yes")
    here.claude(second, says("done"), options=ACCEPT_EDITS)
    (ledger,) = (here.home / ".local/state/paddock/planes").glob("*/HO1/ledger/ho1m.jsonl")
    ledger.unlink()
    ledger.mkdir()
    third = wants("Write", file_path=str(here.project / "b"), content="no")
    ran = here.claude(third, says("done"), options=ACCEPT_EDITS)

    assert "the call cannot be judged" in ran.answers()[turn_id(third)]
    assert sorted(path.name for path in here.project.iterdir() if path.is_file()) == ["fine"]


ORDINARY = [
    "ls -la",
    "git add -A && git status --short",
    "git -c user.name=a -c user.email=a@b commit -qm 'first: it works'",
    "mkdir -p src/deep && cd src/deep && pwd",
    "pwd",
    "cd ../.. && pwd",
    "cat > test_a.py <<'EOF'\nimport a\n\n\ndef test_a():\n    assert a.x == 1\nEOF",
    "echo 'x = 1' > a.py; python3 -c 'import a; print(a.x)'",
    "python3 -m unittest -q 2>&1 | tail -5",
    'for f in *.py; do wc -l "$f"; done',
    "grep -rn 'x' --include='*.py' . | head -3",
    "find . -name '*.pyc' -delete; find . -name '*.py' | sort",
    "sed -i s/1/2/ a.py && git diff --stat",
    "git checkout -qb topic && git add -A && git commit -qm second && git log --oneline | cat",
    "git stash list; git branch -a",
    "printf 'all:\\n\\techo built > out.txt\\n' > Makefile && make -s && cat out.txt",
    "test -f missing || echo none",
    'echo $(( 6 * 7 )) `echo nested` "$(date +%Y | cut -c1-2)"',
    "cp a.py b.py && mv b.py c.py && rm c.py",
    "tar cf - src | tar tf - | head -2",
]
"""What agents do all day; the status of each is 0."""
HOSTILE = [
    *("write_outside", "write_outside_by_dots", "read_outside", "read_the_private_home"),
    *("write_through_a_link_to_a_file", "write_through_a_link_to_a_directory"),
    *("write_through_a_hard_link_made_here", "truncate_outside", "chmod_outside"),
    *("rename_outside", "move_the_workspace_away", "read_a_hidden_name"),
    *("read_a_hidden_name_below", "read_a_hidden_name_by_a_moved_parent"),
    *("through_the_root_of_this_process", "through_the_working_directory_of_another"),
    *("the_environment_of_another", "secrets_in_the_environment", "signal_another"),
    *("trace_another", "make_a_user_namespace", "mount_a_file_system"),
]
"""Of `tests/kernel/attacks.py`: each reaches its goal without a sandbox, for root at least."""


@pytest.mark.needs("claude", "stage")
def test_claude_code_asks_nobody_about_twenty_ordinary_commands(here: Desk):
    (here.project / ".git").rmdir()
    subprocess.run(["git", "init", "-q", str(here.project)], check=True)
    here.paddock("hook", "install", "--yes")
    (here.home / ".gitconfig").write_text("[user]\nname = a\nemail = a@b\n")
    turns = [wants("Bash", command=each, description="x") for each in ORDINARY]
    told: list[str] = []
    for some in (turns[:7], turns[7:14], turns[14:]):
        ran = here.claude(*some, says("done"))
        told += [ran.answers()[turn_id(turn)] for turn in some]
        assert json.loads(ran.out)["permission_denials"] == []
    assert [each for each in told if "Exit code" in each or "paddock:" in each] == []
    # The client's shell goes where the command's went, and back.
    assert [told[3], told[4], told[5]] == [
        *[str(here.project / "src/deep")] * 2,
        str(here.project),
    ]
    assert (here.project / "out.txt").read_text() == "built\n"
    assert (here.project / "a.py").read_text() == "x = 2\n"
    found = [entry["metadata"] for entry in entries(here)]
    assert [(each["answer"], each["sandboxed"]) for each in found] == [("allow", True)] * 20


@pytest.mark.needs("claude", "stage")
def test_claude_code_s_commands_are_held_to_what_the_kernel_holds_any_to(here: Desk):
    outside = here.base / "outside"
    for folder in (outside, here.home / ".ssh", here.project / "deep/down"):
        folder.mkdir(parents=True)
    (here.home / ".ssh/id").write_text("private key")
    for name in ("secret", "file", "linked", "shared"):
        (outside / name).write_text(f"old {name}")
    for name in (".env", "deep/down/.env"):
        (here.project / name).write_text("token")
    shutil.copy(ATTACKS, here.project / "attacks.py")
    world = {"outside": str(outside), "workspace": str(here.project), "home": str(here.home)}
    world |= {"readable": str(outside), "victim": os.getpid()}
    (here.project / "world.json").write_text(json.dumps(world))
    here.paddock("hook", "install", "--yes")
    line = f"python3 -I -S attacks.py world.json {' '.join(HOSTILE)}"
    turn = wants("Bash", command=line, description="x")
    ran = here.claude(turn, says("done"))

    said = ran.answers()[turn_id(turn)]
    rows = [json.loads(row) for row in said.splitlines() if row.startswith("{")]
    assert [row["name"] for row in rows] == HOSTILE
    assert [row for row in rows if row["reached"]] == []
    assert {path.name: path.read_text() for path in outside.iterdir()} == {
        name: f"old {name}" for name in ("secret", "file", "linked", "shared")
    }
    assert not (here.project / "link-to-file").exists()


@pytest.mark.needs("claude", "stage")
def test_claude_code_runs_the_wrapped_command_and_the_sandbox_holds_it(here: Desk):
    here.paddock("hook", "install", "--yes")
    # What no reading of the line shows: only the kernel and the judge of changes see it.
    program = "open('.git/x', 'w').write('no'); open('seen', 'w').write('yes')"
    turn = wants("Bash", command=f'python3 -c "{program}"; echo from-the-sandbox', description="x")
    ran = here.claude(turn, says("done"))

    assert "from-the-sandbox" in ran.answers()[turn_id(turn)]
    assert (here.project / "seen").read_text() == "yes"
    assert not (here.project / ".git/x").exists()
    (entry,) = [each for each in entries(here) if each["call_id"] == turn_id(turn)]
    assert (entry["decision"], entry["metadata"]["sandboxed"]) == ("confine", True)
    # Said once, to the model and to the person.
    assert ran.seen().count("commands now run in its sandbox") > 0


SERVES = """
import http.server, threading, time
served = http.server.ThreadingHTTPServer(("", 8123), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=served.serve_forever, daemon=True).start()
open("made", "w").write("by the server")
print("serving", flush=True)
page = ""
while True:
    with open("page.html") as file:
        page, before = file.read(), page
    if page != before:
        print("page:", page, flush=True)
    time.sleep(0.01)
"""
FETCHES = """python3 -c '
import sys, time, urllib.request as u
found = "nothing"
for _ in range(int(sys.argv[2])):
    try:
        found = u.urlopen("http://localhost:8123/page.html").read().decode()
    except OSError:
        pass
    if found == sys.argv[1]:
        break
    time.sleep(0.02)
print(found)
'"""
"""Until the page is what the first argument says; the second says how often it is tried."""


@pytest.mark.needs("claude", "stage")
def test_claude_code_s_background_command_is_met_sees_edits_and_lands_when_stopped(here: Desk):
    here.paddock("hook", "install", "--yes")
    (here.project / "serve.py").write_text(SERVES)
    page = here.project / "page.html"
    page.write_text("first")
    start = wants("Bash", command="python3 serve.py", description="x", run_in_background=True)
    before, after, last = (
        wants("Bash", command=f"{FETCHES} {told}", description="x")
        for told in ("first 500", "second 500", "second 1")
    )
    edit = wants("Write", file_path=str(page), content="second")
    stop = wants("TaskStop", task_id=TASK)
    turns = start, before, wants("Read", file_path=str(page)), edit, after, stop, last
    ran = here.claude(*turns, says("done"), options=(*ACCEPT_EDITS, "--allowedTools", "TaskStop"))

    told = ran.answers()
    fetched = [told[turn_id(each)] for each in (before, after, last)]
    assert fetched == ["first", "second", "nothing"]
    assert "Successfully stopped" in told[turn_id(stop)]
    printed = re.search(r"written to: (\S+)\.", told[turn_id(start)])
    assert printed is not None
    said = Path(printed[1]).read_text()
    assert said.startswith("serving\npage: first\n")
    assert "page: second\n" in said
    assert (here.project / "made").read_text() == "by the server"
    found = [entry["metadata"] for entry in entries(here) if entry["call_id"] == turn_id(start)]
    assert [(each["answer"], each["sandboxed"]) for each in found] == [("allow", True)]


@pytest.mark.needs("claude", "stage")
def test_what_a_rule_asks_about_runs_in_the_sandbox_after_a_yes_in_the_client(here: Desk):
    trust(here, '[profiles.standard]\nallow = ["tool:*"]\nask = ["tool:shell:run touch *"]\n')
    here.paddock("hook", "install", "--yes")
    (here.base / "answerer.py").write_text(ANSWERER)
    server = {"command": sys.executable, "args": [str(here.base / "answerer.py")],
              "env": {"PYTHONPATH": os.pathsep.join(sys.path)}}  # fmt: skip
    servers = here.base / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"person": server}}))
    yes = ("--mcp-config", str(servers), "--permission-prompt-tool", "mcp__person__answer")
    line = f"touch made {here.base}/outside; touch .env"
    turn, again = (wants("Bash", command=line, description="x") for _ in range(2))
    ran = here.claude(turn, says("done"), options=yes)

    assert (here.project / "made").exists()
    assert not (here.base / "outside").exists()
    assert "paddock: not changed: .env" in ran.answers()[turn_id(turn)]
    assert not (here.project / ".env").exists()
    # Where nobody can be asked it is refused.
    (here.project / "made").unlink()
    ran = here.claude(again, says("done"))
    assert "approved, it still runs in Paddock's sandbox" in ran.answers()[turn_id(again)]
    assert not (here.project / "made").exists()


@pytest.mark.needs("claude", "stage")
def test_what_wants_out_of_the_sandbox_runs_outside_after_a_yes_alone(here: Desk):
    here.paddock("hook", "install", "--yes")
    line = f"python3 -c \"open('{here.base}/outside', 'w')\""
    turn = wants("Bash", command=line, description="x", dangerouslyDisableSandbox=True)
    ran = here.claude(turn, says("done"))

    assert "asks to run outside any sandbox" in ran.answers()[turn_id(turn)]
    assert not (here.base / "outside").exists()


@pytest.mark.needs("codex", "stage")
def test_codex_behaves_as_the_status_says(here: Desk):
    # A trial in its own sandbox, which reads alone as it is set up here, shows that ours fails.
    here.paddock("hook", "install", "--yes", "--client", "codex", "--scope", "user")
    (said,) = [
        row
        for row in here.paddock("hook", "status", "--client", "codex").stdout.splitlines()
        if "commands" in row
    ]
    assert "not confined (Codex runs commands in its own sandbox: the wrapper failed" in said
    turn = wants("exec_command", cmd="touch fine")
    here.codex(turn, says("done"))
    assert (here.project / "fine").exists()
    (entry,) = entries(here)
    assert (entry["metadata"]["answer"], "sandboxed" in entry["metadata"]) == ("none", False)


@pytest.mark.needs("codex")
def test_codex_honours_every_denial_and_a_question_is_one(here: Desk):
    here.paddock("hook", "install", "--yes", "--client", "codex", "--scope", "user")
    protected = wants("exec_command", cmd="touch .git/x")
    asked = wants("exec_command", cmd="touch $NAME asked")
    fine = wants("exec_command", cmd="touch fine")
    ran = here.codex(protected, asked, fine, says("done"))

    told = ran.answers()
    assert "Protected path: .git/x cannot be modified via Bash" in told[turn_id(protected)]
    assert "approval" in told[turn_id(asked)]
    assert [path.name for path in (here.project / ".git").iterdir()] == []
    assert sorted(path.name for path in here.project.iterdir() if path.is_file()) == ["fine"]


@pytest.mark.needs("codex")
def test_codex_honours_a_denial_in_a_sub_agent(here: Desk):
    here.paddock("hook", "install", "--yes", "--client", "codex", "--scope", "user")
    errand = wants("spawn_agent", message=f"{ERRAND}touch a file")
    protected = wants("exec_command", cmd="touch .git/x")
    fine = wants("exec_command", cmd="touch fine")
    ran = here.codex(protected, fine, says("report"), errand=errand)

    assert "Protected path: .git/x cannot be modified via Bash" in ran.answers()[turn_id(protected)]
    assert [path.name for path in (here.project / ".git").iterdir()] == []
    assert (here.project / "fine").exists()
    agents = {entry["call_id"]: entry["agent"] for entry in entries(here)}
    assert (agents[turn_id(errand)], agents[turn_id(protected)]) == ("main", "default")


@pytest.mark.needs("codex")
def test_codex_runs_nothing_when_the_hook_fails_while_a_shell_sees_it(here: Desk, tmp_path: Path):
    launcher = install_broken(here, tmp_path, "--client", "codex", "--scope", "user")
    turns = {way: wants("exec_command", cmd=f"touch by-{way}") for way in WAYS_TO_FAIL}
    fine = wants("exec_command", cmd="touch fine")
    here.codex(fine, *turns.values(), says("done"))

    assert sorted(path.name for path in here.project.iterdir() if path.is_file()) == ["fine"]
    launcher.unlink()
    config = here.home / ".codex/config.toml"
    config.write_text(config.read_text().replace(config_url(config), "@URL@"))
    here.codex(wants("exec_command", cmd="touch gone"), says("done"))
    assert not (here.project / "gone").exists()


def config_url(config: Path) -> str:
    (row,) = [row for row in config.read_text().splitlines() if row.startswith("base_url")]
    return row.split('"')[1].removesuffix("/v1")
