"""The hook started by another Python than the environment's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.apps.hook.settings.claude import Program
from paddock.apps.hook.settings.interpreters import choose_program, find_programs, own_program
from tests.support.hooks import LAUNCHER, Client, Said

BARE = os.path.realpath(sys.executable)
"""The interpreter without this environment, and so without its library."""


def start(client: Client, data: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [BARE, "-I", "-S", str(LAUNCHER), "--client", "claude", *options],
        input=data, env=client.environment, cwd=client.root, capture_output=True, check=False,
    )  # fmt: skip


def started(client: Client, data: bytes, own: str = sys.executable) -> Said:
    done = start(client, data, "--python", own)
    assert (done.returncode, done.stderr) == (0, b"")
    return Said(done.stdout)


def images(client: Client) -> int:
    return len(list((client.place.home / ".local/state/paddock/hook").glob("*.image")))


def test_the_environments_own_python_goes_on_where_the_lean_path_cannot(client: Client):
    write = client.event("Write", tool_input={"file_path": "{root}/.git/x"}, tool_use_id="T-1")
    first = started(client, write)
    made = images(client)
    second = started(client, write)

    assert "Protected path: .git/x" in first.reason
    assert (first.raw, made) == (second.raw, 1)
    assert [(entry.call_id, entry.decision) for entry in client.entries()] == [("T-1", "deny")] * 2


def test_without_it_what_needs_the_environments_library_is_refused(client: Client):
    client.write_policy('[profiles.standard]\nallow = ["tool:file:*"]\n')
    write = client.event("Write", tool_input={"file_path": "{root}/docs/a.md"})

    assert Said(start(client, write).stdout).word == "deny"
    assert started(client, write).word == "none"
    assert Said(start(client, write).stdout).word == "none"


@pytest.mark.parametrize("own", ["/gone/python", "/etc/passwd", "relative"])
def test_an_environment_that_is_gone_is_a_refusal_that_names_the_repair(own, client: Client):
    said = started(client, client.event("Write", tool_input={"file_path": "{root}/a"}), own)

    assert (said.word, "paddock hook install" in said.reason) == ("deny", True)


def test_the_whole_input_goes_along(client: Client):
    content = "x" * 5_000_000
    tool_input = {"file_path": "{root}/docs/a.md", "content": content}
    write = client.event("Write", tool_input=tool_input)

    assert started(client, write).word == "none"
    assert [entry.decision for entry in client.entries()] == ["allow"]


def test_the_process_that_the_client_started_and_waits_for_has_the_answer(client: Client):
    child = subprocess.Popen(
        [BARE, "-I", "-S", str(LAUNCHER), "--python", sys.executable],
        env=client.environment, cwd=client.root,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with child:
        out, _ = child.communicate(client.event("Write", tool_input={"file_path": "{root}/.env"}))

    assert (child.returncode, Said(out).word) == (0, "deny")


def test_an_entry_names_the_own_interpreter_where_it_starts_another():
    own = own_program()
    other = Program("/usr/bin/python3", own.launcher, own.python)

    assert own.arguments("claude") == ("-I", "-S", own.launcher, "--client", "claude")
    assert other.arguments("codex") == (
        *("-I", "-S", own.launcher, "--client", "codex", "--python", own.python),
    )


def test_only_the_distributions_python_of_the_same_version_is_another(tmp_path: Path):
    own = own_program()
    mine = tmp_path / "python3"
    mine.symlink_to(BARE)
    older = tmp_path / "older"
    older.write_text("#!/bin/sh\necho cpython-310\n")
    older.chmod(0o755)

    assert find_programs(str(tmp_path / "none")) == (own,)
    assert find_programs(str(older)) == (own,)
    assert find_programs(str(mine)) == (own,)
    assert find_programs(sys.executable) == (own,)


def script(path: Path, line: str) -> str:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def test_the_quickest_start_is_chosen_and_what_does_not_start_never(tmp_path: Path):
    slow = Program(script(tmp_path / "slow", f"{sys.executable} -c pass; exit 0"), "launch")
    quick = Program(script(tmp_path / "quick", "exit 0"), "launch", slow.python)
    broken = Program(script(tmp_path / "broken", "exit 1"), "launch", slow.python)

    assert choose_program((slow,)) == slow
    assert choose_program((slow, quick)) == quick
    assert choose_program((quick, slow)) == quick
    assert choose_program((slow, broken)) == slow
