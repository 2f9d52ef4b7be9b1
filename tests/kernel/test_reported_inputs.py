"""Inputs from public reports of August to November 2026 about other agents' sandboxes and rules.

Each broke somebody's work, or went past somebody's rule, elsewhere.
"""

from pathlib import Path

import pytest

from tests.support.shells import Yard

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("git")]
IDENTITY = "[user]\n\tname = U\n\temail = u@example.org\n"
PYTHON = "/usr/bin/python3"

WAKE = """
import asyncio, threading
async def main():
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()
    threading.Thread(target=loop.call_soon_threadsafe, args=(waiting.set_result, "woken")).start()
    print(await asyncio.wait_for(waiting, 20))
asyncio.run(main())
"""
FORK_SERVER = """
import multiprocessing
def double(number): return 2 * number
if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        print(sum(pool.map(double, [1, 2, 3])))
"""
SEMAPHORES = """
from concurrent.futures import ProcessPoolExecutor
def double(number): return 2 * number
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(sum(pool.map(double, [1, 2, 3])))
"""
SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
client.sendall(b"served")
print(accepted.recv(6).decode())
"""
CHILD_INPUT = """
import subprocess
print(subprocess.run(["cat"], input="a prompt", capture_output=True, text=True).stdout)
"""
WORKS = {
    "wakes an event loop from a thread": (WAKE, "woken"),
    "starts a pool by a fork server": (FORK_SERVER, "12"),
    "makes semaphores for a pool": (SEMAPHORES, "12"),
    "serves on the loopback": (SERVER, "served"),
    "hands a child its input": (CHILD_INPUT, "a prompt"),
}


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    made = Yard(tmp_path, "").make()
    (made.home / ".gitconfig").write_text(IDENTITY)
    made.git("init", "-q", "-b", "main", ".")
    made.write({"a": "a\n", ".gitignore": "notes/\n", "notes/mine": "not in git\n"})
    made.git("add", ".")
    made.git("commit", "-qm", "first")
    return made


@pytest.mark.parametrize("name", WORKS)
def test_a_program_works_in_the_default_sandbox(yard: Yard, name: str):
    program, says = WORKS[name]
    yard.write({"p.py": program})
    with yard.opened() as terminal:
        said = terminal.run(f"{PYTHON} p.py")
    assert (said["exit_code"], said["stdout"].strip()) == (0, says), said["stderr"]


SHELL = {
    "a pipe at the end": ("echo hi | cat", "hi"),
    "a negation": ("! false && echo negated", "negated"),
    "quotes in a here-document": ("cat <<'EOF'\nit's `here`\nEOF", "it's `here`"),
    "the null device": ("echo x > /dev/null && echo written", "written"),
}


@pytest.mark.parametrize("name", SHELL)
def test_a_line_means_what_it_means_in_a_shell(yard: Yard, name: str):
    line, says = SHELL[name]
    with yard.opened() as terminal:
        said = terminal.run(line)
    assert (said["exit_code"], said["stdout"].strip()) == (0, says)


def test_a_worktree_where_a_client_makes_it_has_a_shell_and_commits(yard: Yard):
    yard.git("worktree", "add", "-q", ".claude/worktrees/task", "-b", "task")
    with yard.opened() as terminal:
        said = terminal.run(
            "cd .claude/worktrees/task && echo b > b && git add b && git commit -qm b"
        )
    assert said["exit_code"] == 0, said
    assert [yard.git("log", "-1", "--format=%s", name) for name in ("main", "task")] == [
        "first\n",
        "b\n",
    ]


def test_what_git_clean_took_after_the_ignore_file_went_comes_back_by_undo(yard: Yard):
    with yard.opened() as terminal:
        terminal.run("git checkout -q --orphan pages && git rm -rfq . && git clean -fdq")
    assert not (yard.root / "notes/mine").exists()
    call = yard.calls()[-1]["call"]
    undone = yard.cli("undo", call)
    assert undone.status == 0, undone
    assert (yard.root / "notes/mine").read_text() == "not in git\n"
    assert yard.git("status", "--short") == ""


RULES = """
[profiles.standard]
allow = ["tool:*", "tool:shell:run cat *", "tool:shell:run cd *", "tool:shell:run gh *"]
ask = ["tool:shell:run some-script *"]
deny = ["tool:shell:run git add -A *", "tool:shell:run *gcloud* *"]
"""
JUDGED = {
    "deny": [
        "git add -A",
        "timeout 5 git add -A",
        "gcloud -h",
        "cd /tmp && gcloud info",
        "echo a; /usr/bin/gcloud info",
    ],
    "ask": [
        "my-wrapper git add -A",
        "cat <<'EOF' | some-script\nx\nEOF",
        "sort <<EOF | some-script\nx\nEOF",
    ],
    "allow": [
        "git add a",
        "my-wrapper git add a",
        "cat <<'EOF' | sort\nsome-script\nEOF",
        "gh issue create --body \"$(cat <<'EOF'\ngit add -A\nEOF\n)\"",
    ],
}


@pytest.mark.parametrize(("outcome", "line"), [(o, line) for o in JUDGED for line in JUDGED[o]])
def test_a_rule_reaches_what_a_line_runs_and_not_what_it_says(yard: Yard, outcome: str, line: str):
    yard.govern(RULES)
    ran = yard.cli("policy", "check", f"tool:shell:run {line}", "--json")
    assert ran.json["outcome"] == outcome
