"""`run_shell` through the door: what it takes, what it answers, what is asked, what is on record."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paddock.apps.hook import wrapped
from paddock.assembly.history import open_history, open_journal
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project_open import open_project
from paddock.plane.environment import RISKY_TOOLS_VARIABLE, read_environment
from paddock.runtime.approvals import Approval, ApprovalRequest, NoApprover
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.prepared import Caller, PolicyJudge, Tools
from paddock.runtime.runtime import Runtime
from paddock.sandbox.changes.commit import CommitPlace
from paddock.sandbox.facts import collect_facts
from paddock.sandbox.shell import SandboxShell, ShellContext
from paddock.sandbox.values import BackendVerdict, Enforcement
from paddock.testing.memory_ledger import MemoryLedger
from paddock.tools.spec import Ports
from paddock.tools.toolsets import all_tools
from paddock.workspace import Workspace
from tests.support.disks import dig, tree
from tests.support.planes import operator_in
from tests.support.shells import (
    OPEN,
    Terminal,
    Yard,
    a_terminal,
    hide,
    processes,
    refused,
    wait_for,
)

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

FIELDS = {
    *("exit_code", "stdout", "stderr", "timed_out", "duration_seconds", "files_changed"),
    *("changes_refused", "sandbox", "shell"),
}
ASKING = '[profiles.standard]\nallow = ["tool:file:*"]\notherwise = { "tool:shell:*" = "ask" }\n'


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory):
    with a_terminal(tmp_path_factory.mktemp("yard")) as made:
        made.yard.write({"sub/deep/f": "f\n", "a": "a\n", ".env": "token"})
        (made.yard.root / "inner").symlink_to("sub")
        (made.yard.root / "out").symlink_to("/usr")
        yield made


# Arguments and answers


def test_the_fields_of_a_result(terminal: Terminal):
    said = terminal.run("echo out; echo err >&2; exit 3")

    assert set(said) == FIELDS
    assert said | {"duration_seconds": 0} == {
        "exit_code": 3,
        "stdout": "out\n",
        "stderr": "err\n",
        "timed_out": False,
        "duration_seconds": 0,
        "files_changed": [],
        "changes_refused": [],
        "sandbox": {"backend": "stage", "enforcement": "full", "gaps": []},
        "shell": "bash",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ({"command": ""}, "args.invalid", "command is required"),
        ({}, "args.invalid", "command is required"),
        ({"command": "a\0b"}, "args.invalid", "command has a NUL character"),
        ({"command": "true", "timeout": "5"}, "args.invalid", "timeout must be an integer"),
        ({"command": "true", "dry_run": "no"}, "args.invalid", "dry_run must be a boolean"),
        ({"command": "true", "shell": "sh"}, "args.unknown", "unknown argument 'shell'"),
        ({"command": "true", "cwd": ".."}, "path.escapes_root", "cwd: path escapes root"),
        ({"command": "true", "cwd": "/"}, "path.escapes_root", "cwd: path escapes root"),
        ({"command": "true", "cwd": "out"}, "path.escapes_root", "cwd: path escapes root"),
        ({"command": "true", "cwd": "a"}, "path.not_a_directory", "cwd is not a directory"),
        ({"command": "true", "cwd": "none"}, "path.not_a_directory", "cwd is not a directory"),
        ({"command": "true", "cwd": ".env"}, "path.not_a_directory", "cwd is not a directory"),
        ({"command": "true", "cwd": "a\nb"}, "path.invalid", "cwd: "),
        ({"command": "true", "cwd": ""}, "args.invalid", "cwd must not be empty"),
        ({"command": "  "}, "policy.denied", "contains no command"),
    ],
)
def test_what_is_no_command_is_refused_by_name(terminal: Terminal, arguments, code, error):
    result = terminal.call("run_shell", **arguments)

    assert (result.refusal.code, error in result.refusal.error) == (code, True), result.refusal


@pytest.mark.parametrize("cwd", ["sub/deep", "inner/deep", "./sub//deep/", "sub/../sub/deep"])
def test_a_command_runs_where_it_is_told(terminal: Terminal, cwd: str):
    said = terminal.run("cat f; pwd", cwd=cwd)

    assert said["stdout"] == f"f\n{terminal.yard.root}/sub/deep\n"
    absolute = terminal.run("pwd", cwd=str(terminal.yard.root / "sub"))
    assert absolute["stdout"] == f"{terminal.yard.root}/sub\n"


def test_a_redirection_is_judged_from_where_the_command_runs(tmp_path: Path):
    policy = OPEN.replace("]", ']\ndeny = ["tool:file:create /sub/no"]', 1)
    with a_terminal(tmp_path, policy) as terminal:
        (terminal.yard.root / "sub").mkdir()
        assert terminal.refuse("echo x > no", cwd="sub") == "policy.denied"
        assert terminal.run("echo x > no")["files_changed"] == ["no"]
        assert terminal.run("echo x > node_modules", cwd="sub")["files_changed"] == [
            "sub/node_modules"
        ]
        assert terminal.run("echo x > ../up", cwd="sub")["files_changed"] == ["up"]
        assert terminal.refuse("echo x > ../../out", cwd="sub") == "policy.denied"
        assert terminal.refuse("cd .. && echo x > ../out", cwd="sub") == "policy.denied"


def test_a_place_that_no_path_can_name_stops_no_command(tmp_path: Path):
    with a_terminal(tmp_path) as terminal:
        dig(terminal.yard.root, "d" * 200, 25)

        said = terminal.run("echo x > new; find . -name file")

        assert (said["stdout"], said["files_changed"]) == ("", ["new"])
        assert (terminal.yard.root / "new").read_bytes() == b"x\n"


@pytest.mark.parametrize(("given", "used"), [(0, 1), (-5, 1), (700, 600)])
def test_a_timeout_out_of_range_is_clamped_and_that_is_said(terminal: Terminal, given, used):
    result = terminal.call("run_shell", command="true", timeout=given)

    assert result.details["clamped"] == {"timeout": used}
    assert f"[clamped: timeout={used}]" in result.content


@pytest.mark.parametrize("given", [{}, {"timeout": 90}, {"timeout": 900}])
def test_a_policys_limit_lowers_the_timeout_and_that_is_said(tmp_path: Path, given):
    with a_terminal(tmp_path, OPEN + "[limits]\nshell_timeout_s = 1\n") as terminal:
        result = terminal.call("run_shell", command="sleep 60", **given)

    assert result.details["timed_out"] is True
    assert result.details["stderr"] == "Command timed out after 1 seconds"
    assert result.details["clamped"] == {"timeout": 1}
    assert result.content.endswith("[clamped: timeout=1]")


def test_a_command_that_times_out_leaves_what_it_said_and_no_process(terminal: Terminal):
    mark = f"31337.{os.getpid()}"
    said = terminal.run(
        f"echo before; echo kept > kept; (setsid nohup sleep {mark} & ) ; sleep {mark}", timeout=5
    )

    assert (said["timed_out"], said["exit_code"], said["stdout"]) == (True, -1, "before\n")
    assert said["stderr"].endswith("Command timed out after 5 seconds")
    assert said["files_changed"] == ["kept"]
    assert mark not in processes()


def test_a_background_child_holds_no_call_and_does_not_outlive_it(terminal: Terminal):
    mark = f"31338.{os.getpid()}"
    result = terminal.call("run_shell", command=f"(setsid sleep {mark} &) ; echo done", timeout=100)

    assert result.details["stdout"] == "done\n"
    assert result.details["timed_out"] is False
    assert "background processes were ended" in result.content
    assert mark not in processes()


def test_a_debugger_that_cannot_work_is_told_as_the_sandboxs_doing(terminal: Terminal):
    asks = "c = ctypes.CDLL(None, use_errno=True); c.ptrace(0, 0, 0, 0)"
    tells = "print('ptrace:', os.strerror(ctypes.get_errno()), file=sys.stderr)"

    traced = terminal.run(f'python3 -c "import ctypes, os, sys; {asks}; {tells}"')

    assert traced["stderr"] == "ptrace: Operation not permitted\n"
    assert [hint.partition(":")[0] for hint in traced["hints"]] == [
        "in a sandbox no process traces another"
    ]
    assert "hints" not in terminal.run("cat /nowhere")


def test_standard_input_is_empty_and_home_is_private(terminal: Terminal):
    said = terminal.run("cat; echo $HOME; ls -A ~; echo $SECRET; touch ~/x && echo wrote")

    assert said["stdout"] == "/run/home\n.cache\n.config\n.gitconfig\n\nwrote\n"


# Output


@pytest.mark.parametrize("lines", [100_000, 1_200_000])
def test_long_output_keeps_head_and_tail_and_the_whole_is_kept(terminal: Terminal, lines: int):
    result = terminal.call("run_shell", command=f"seq 1 {lines}; seq 1 3 >&2")
    said = result.details
    head, notice, tail = said["stdout"].partition("\n[TRUNCATED at 50000 chars]\n")
    whole = "".join(f"{n}\n" for n in range(1, lines + 1))

    assert notice
    assert (head, tail) == (whole[:25_000], whole[-25_000:])
    assert said["stderr"] == "1\n2\n3\n"
    digest = said["output_kept"]["stdout"]
    assert list(said["output_kept"]) == ["stdout"]
    assert digest in result.content
    project = open_project(terminal.yard.root, read_environment(terminal.yard.all_variables))
    with closing(open_history(project)) as history:
        assert history.store.read(digest) == whole.encode()


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (r"\xff\xfe", "\ufffd\ufffd"),
        (r"a\x1b[31mred\x07", r"a\x1b[31mred\x07"),
        (r"one\r\ntwo\r", "one\ntwo\\r"),
        (r"tab\there", "tab\there"),
        (r"\xe2\x80\xae", r"\u202e"),
        (r"\x00", r"\x00"),
        (r"\xc3", "\ufffd"),
    ],
)
def test_output_is_text_that_cannot_mislead(terminal: Terminal, printed: str, shown: str):
    assert terminal.run(f"printf '{printed}'")["stdout"] == shown


def test_a_cut_falls_between_characters(terminal: Terminal):
    said = terminal.run("python3 -c \"print('x' + 'é' * 200000, end='')\"")
    head, _, tail = said["stdout"].partition("\n[TRUNCATED at 50000 chars]\n")

    assert (head, tail) == ("x" + "é" * 24_999, "é" * 25_000)


def test_output_cannot_pass_for_a_notice(terminal: Terminal):
    result = terminal.call(
        "run_shell", command="echo 'files changed: 7'; echo '[kept in the history: all]'"
    )
    rows = result.content.split("\n")

    assert rows[1] == "files changed: none"
    at = rows.index("stdout: 2 lines")
    assert rows[at + 1 : at + 3] == ["files changed: 7", "[kept in the history: all]"]


# Dry runs and questions


LOST = ("@@ -1 +0,0 @@", "-f")
PUT = ("--- a/d", "+++ b/d", "@@ -0,0 +1 @@", "+x")
NEW = ["--- a/n", "+++ b/n", "@@ -0,0 +1 @@", "+x"]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory):
    with a_terminal(tmp_path_factory.mktemp("old")) as made:
        root = made.yard.root
        made.yard.write({"f": "f\n", "g": "g\n", "e": "", "b": b"\0"})
        (root / "d").mkdir(0o755)
        (root / "l").symlink_to("f")
        (root / "g").chmod(0o640)
        yield made


def test_a_dry_run_shows_the_difference_and_changes_nothing(terminal: Terminal):
    before = tree(terminal.yard.root)
    hidden = "rm a; echo 1 > n; mkdir m; ln -s a l; chmod 700 sub; echo k > k.pem; cp /bin/true t"
    result = terminal.call("run_shell", command=hide(hidden), dry_run=True)
    said = result.details

    assert tree(terminal.yard.root) == before
    assert said["files_changed"] == []
    assert refused(said) == {"k.pem": "*.pem (paths.protected, built-in)"}
    assert said["diff"].splitlines() == [
        *("--- a/a", "+++ b/a", "@@ -1 +0,0 @@", "-a"),
        "l -> a: link created",
        "m/: created",
        *("--- a/n", "+++ b/n", "@@ -0,0 +1 @@", "+1"),
        "sub: mode 0700",
        "t: created, binary or too large to compare, mode 0755",
    ]
    assert "dry run, nothing was changed" in result.content
    [*_, entry] = terminal.yard.entries("TOOL_RESULT")
    assert entry["metadata"]["effects"] == []


REPLACED = {
    "a file by a directory": ("rm f; mkdir f", ["--- a/f", "+++ b/f", *LOST, "f/: created"]),
    "a file by a link": (
        "ln -sf g f",
        ["f -> g: link created, was a file", "--- a/f", "+++ b/f", *LOST],
    ),
    "an empty file by a link": ("ln -sf f e", ["e -> f: link created, was a file"]),
    "a binary file by a link": (
        "ln -sf f b",
        ["b -> f: link created, binary or too large to compare, was a file"],
    ),
    "a link by a file": (
        "rm l; echo '#!/bin/sh' > l; chmod 777 l",
        [
            *("l: created, was a link -> f, mode 0777", "--- a/l", "+++ b/l"),
            *("@@ -0,0 +1 @@", "+#!/bin/sh"),
        ],
    ),
    "a link by another": ("ln -sf g l", ["l -> g: link created, was a link -> f"]),
    "a link by a directory": (
        "rm l; mkdir -m 700 l",
        ["l: link deleted", "l/: created, mode 0700"],
    ),
    "a directory by a file": ("rmdir d; echo x > d", ["d/: deleted", *PUT]),
}


@pytest.mark.parametrize("name", REPLACED)
def test_the_difference_shows_what_was_lost_where_another_kind_took_its_place(old: Terminal, name):
    line, rows = REPLACED[name]

    assert old.sneak(line, dry_run=True)["diff"].splitlines() == rows


MARKED = {
    "a new file that all write": ("echo x > n; chmod 666 n", ["n: created, mode 0666", *NEW]),
    "a usual new file": ("echo x > n; chmod 644 n", NEW),
    "an empty new program": (": > n; chmod 755 n", ["n: created, empty, mode 0755"]),
    "another content and mode": (
        "echo y >> f; chmod 755 f",
        ["f: modified, mode 0755", "--- a/f", "+++ b/f", "@@ -1 +1,2 @@", " f", "+y"],
    ),
    "another content under an unusual mode": (
        "echo y > g",
        ["--- a/g", "+++ b/g", "@@ -1 +1 @@", "-g", "+y"],
    ),
    "a time": ("touch f", ["f: time"]),
    "a mode": ("chmod 600 f", ["f: mode 0600"]),
    "a mode and a time": ("chmod 600 f; touch f", ["f: mode 0600, time"]),
    "a new directory that all write": ("mkdir -m 777 n", ["n/: created, mode 0777"]),
    "a mode of a directory": ("chmod 700 d", ["d: mode 0700"]),
}


@pytest.mark.parametrize("name", MARKED)
def test_the_difference_names_a_mode_and_a_time_that_are_new(old: Terminal, name: str):
    line, rows = MARKED[name]

    assert old.sneak(line, dry_run=True)["diff"].splitlines() == rows


def test_a_dry_run_only_reads_what_lies_outside_of_its_layers(tmp_path: Path):
    srv = tmp_path / "srv"
    srv.mkdir()
    (srv / "kept").write_text("kept\n")
    srv.chmod(0o755)
    policy = OPEN + f'[shell]\nnetwork = "host"\nwrite = ["{srv}"]\n'
    line = f"echo 1 > f; cat {srv}/kept; echo out > {srv}/new; rm {srv}/kept; cat /proc/net/dev"
    with a_terminal(tmp_path, policy) as terminal:
        said = terminal.sneak(line, dry_run=True)
        assert (os.listdir(srv), (terminal.yard.root / "f").exists()) == (["kept"], False)
        assert said["diff"].splitlines() == ["--- a/f", "+++ b/f", "@@ -0,0 +1 @@", "+1"]
        first, *interfaces = said["stdout"].splitlines()
        assert (first, [row.split(":")[0].strip() for row in interfaces[2:]]) == ("kept", ["lo"])

        terminal.sneak(line)
        assert (os.listdir(srv), (terminal.yard.root / "f").exists()) == (["new"], True)


class Asked:
    """An approver that remembers the question, and does something before it answers."""

    def __init__(self, yes: bool, act=lambda: None) -> None:
        self.yes = yes
        self.act = act
        self.requests: list[ApprovalRequest] = []

    def answer(self, request: ApprovalRequest) -> Approval:
        self.requests.append(request)
        self.act()
        return Approval(self.yes, "test")


@pytest.fixture
def asking(tmp_path: Path) -> Yard:
    yard = Yard(tmp_path, ASKING + '[shell]\napprove = "diff"\n').make()
    yard.write({"a": "old\n"})
    return yard


def test_an_ask_is_about_the_difference_and_a_yes_commits_just_it(asking: Yard):
    approver = Asked(True, lambda: approver.seen.append((asking.root / "a").read_text()))
    approver.seen = []
    with asking.opened(approver) as terminal:
        said = terminal.sneak("echo new > a; echo k > k.key; date +%N > /tmp/x")

    assert approver.seen == ["old\n"]
    assert (asking.root / "a").read_text() == "new\n"
    assert (said["files_changed"], list(refused(said))) == (["a"], ["k.key"])
    [request] = approver.requests
    # What is refused is named, and shown with nothing of what it holds.
    assert request.diff == (
        "[changes refused regardless of the answer: 1]\n"
        f"  k.key: {refused(said)['k.key']}\n"
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new"
    )
    events = [row["event_type"] for row in _all(asking)]
    assert events[-3:] == ["TOOL_STAGED", "TOOL_INTENT", "TOOL_RESULT"]


def test_what_policy_warns_of_in_the_difference_stands_in_the_question(tmp_path: Path):
    warned = '[paths]\nwarned = ["/a", "/b"]\nsafe = []\n'
    yard = Yard(tmp_path, ASKING + warned + '[shell]\napprove = "diff"\n').make()
    approver = Asked(False)
    with yard.opened(approver) as terminal:
        result = terminal.runtime.call("run_shell", {"command": "echo x | tee a c"})

    [request] = approver.requests
    said = "Writing to production path: a. Ensure this is intentional implementation work."
    assert request.warnings == (said,)
    assert result.details["warnings"] == [said]


def test_what_policy_warns_of_is_said_once_for_each_pattern(tmp_path: Path):
    policy = OPEN + '[paths]\nwarned = ["/src/**", "/lib/**"]\nsafe = []\n'
    with a_terminal(tmp_path, policy) as terminal:
        (terminal.yard.root / "src").mkdir()
        (terminal.yard.root / "lib").mkdir()
        line = "for n in 1 2 3 4; do echo > src/$n; done; echo > lib/x; echo > y"
        result = terminal.call("run_shell", command=hide(line))

    rows = [row for row in result.content.split("\n") if "[warning" in row]
    said = "Writing to production path: {}. Ensure this is intentional implementation work."
    assert rows == [
        f"[warning: {said.format('lib/x')}]",
        f"[warning: {said.format('src/1')} … and 3 more like it, by /src/**]",
    ]
    assert result.details["warnings"] == [
        said.format(path) for path in ("lib/x", "src/1", "src/2", "src/3", "src/4")
    ]


def _all(yard: Yard) -> list[dict]:
    ran = yard.cli("ledger", "query", "--ledger", "ho1m", "--last", "50", "--json")
    return [json.loads(line) for line in ran.out.splitlines()]


def test_a_no_lets_the_difference_go(asking: Yard):
    with asking.opened(Asked(False)) as terminal:
        assert terminal.refuse("echo new > a") == "approval.refused"
        assert terminal.runtime.call("view", {"path": "a"}).refusal is None

    assert (asking.root / "a").read_text() == "old\n"
    assert [row["event_type"] for row in _all(asking)][-4:-2] == ["TOOL_STAGED", "TOOL_DENIED"]
    staging = asking.home / ".local/state/paddock/staging"
    assert not [path for path in staging.rglob("*") if "stage-" in path.name]


def test_an_answer_counts_for_one_difference_alone(asking: Yard):
    with asking.opened(NoApprover()) as terminal:
        assert terminal.refuse("cat /proc/sys/kernel/random/uuid > a") == "approval.unavailable"
        assert terminal.refuse("echo same > a") == "approval.unavailable"
    waiting = asking.cli("approvals", "list", "--json").json
    rows = waiting["requests"] if isinstance(waiting, dict) else waiting
    same = next(row["id"] for row in rows if "echo same" in str(row["actions"]))
    other = next(row["id"] for row in rows if row["id"] != same)

    assert asking.cli("approvals", "grant", same).status == 0
    assert (asking.root / "a").read_text() == "same\n"
    assert asking.cli("approvals", "grant", other).status == 1
    assert (asking.root / "a").read_text() == "same\n"


def test_what_changed_while_the_question_was_open_is_a_conflict(asking: Yard):
    with asking.opened(Asked(True, lambda: (asking.root / "a").write_text("theirs\n"))) as terminal:
        said = terminal.run("echo new > a; echo n > n")

    assert (said["files_changed"], "'a'" in said["conflict"]) == ([], True)
    assert tree(asking.root) == {"a": b"theirs\n", "paddock.toml": asking.policy.encode()}


def test_a_change_that_hides_its_time_while_the_question_is_open_is_a_conflict(asking: Yard):
    def rewrite() -> None:
        path = asking.root / "a"
        look = path.stat()
        path.write_text("OLD\n")
        os.utime(path, ns=(look.st_atime_ns, look.st_mtime_ns))

    with asking.opened(Asked(True, rewrite)) as terminal:
        said = terminal.run("echo new > a")

    assert (said["files_changed"], "'a'" in said["conflict"]) == ([], True)
    assert (asking.root / "a").read_text() == "OLD\n"


@pytest.mark.parametrize("guess", ["hunter2", "hunter3"])
def test_a_guess_at_a_secret_is_refused_alike_whether_it_is_right(tmp_path: Path, guess: str):
    with a_terminal(tmp_path) as terminal:
        terminal.yard.write({".env": "hunter2"})
        said = terminal.sneak(f"printf {guess} > .env; touch -r paddock.toml .env; chmod 644 .env")
        dry = terminal.sneak(f"printf {guess} > .env", dry_run=True)

    for each in (said, dry):
        assert refused(each) == {".env": ".env (paths.secret, built-in)"}
        assert each["files_changed"] == []
    assert "hunter2" not in dry["diff"]


def test_a_dry_run_does_not_show_what_may_be_written_and_not_read(tmp_path: Path):
    policy = '[profiles.standard]\nallow = ["tool:*"]\ndeny = ["tool:file:view closed/**"]\n'
    with a_terminal(tmp_path, policy) as terminal:
        terminal.yard.write({"closed/a": "what it says\n"})
        said = terminal.sneak("cat closed/a; echo mine > closed/a", dry_run=True)

        assert said["diff"] == "closed/a: modified, and may not be read"
        assert "what it says" not in json.dumps(said)
        linked = terminal.sneak("ln -sf mine closed/a", dry_run=True)
        opened = terminal.sneak("echo > closed/a; chmod 777 closed/a", dry_run=True)

    assert linked["diff"] == "closed/a -> mine: link created"
    assert "what it says" not in json.dumps(linked)
    assert opened["diff"] == "closed/a: modified, and may not be read, mode 0777"


def test_a_question_about_the_difference_covers_what_policy_asks_about_in_it(tmp_path: Path):
    policy = ASKING.replace("otherwise", 'ask = ["tool:file:create asked*"]\notherwise')
    with (
        Yard(tmp_path, policy + '[shell]\napprove = "diff"\n')
        .make()
        .opened(Asked(True)) as terminal
    ):
        said = terminal.sneak("echo 1 > asked1")
        assert said["files_changed"] == ["asked1"]


@pytest.mark.parametrize("setting", ['network = "host"', 'write = ["/var/tmp"]'])
def test_where_a_command_can_act_elsewhere_the_question_is_about_the_command(tmp_path, setting):
    approver = Asked(False)
    yard = Yard(tmp_path, ASKING + f'[shell]\napprove = "diff"\n{setting}\n').make()
    with yard.opened(approver) as terminal:
        assert terminal.refuse("echo 1 > a") == "approval.refused"

    assert [request.diff for request in approver.requests] == [""]
    assert [row["event_type"] for row in _all(yard)][-1] == "TOOL_DENIED"
    assert "TOOL_STAGED" not in [row["event_type"] for row in _all(yard)]


def test_an_approval_of_a_command_is_bound_to_its_plan(tmp_path: Path):
    found = []
    for text in ("", '[shell]\nnetwork = "none"\n', "[shell]\nlimits = { cpu_s = 7 }\n"):
        approver = Asked(False)
        with Yard(tmp_path, ASKING + text).make().opened(approver) as terminal:
            terminal.refuse("true")
        found.append(approver.requests[0].target_digest)

    assert len(set(found)) == 3
    assert all(digest.startswith("sha256:") for digest in found)


# Policy


def test_a_line_is_decided_command_by_command(tmp_path: Path):
    policy = (
        '[profiles.standard]\nallow = ["tool:shell:run echo *", "tool:shell:run true"]\n'
        'deny = ["tool:shell:run git push *"]\n'
    )
    with a_terminal(tmp_path, policy) as terminal:
        assert terminal.run("echo 1 && true")["stdout"] == "1\n"
        for line in ("echo 1 && ls", "echo $(ls)", "true | cat", "git push", "X=1 echo 1"):
            assert terminal.refuse(line) in {"policy.denied", "approval.unavailable"}, line


def test_a_rule_opens_the_network_for_just_its_command(tmp_path: Path):
    policy = OPEN + (
        '[[profiles.standard.rules]]\naction = "tool:shell:run readlink *"\n'
        'outcome = "allow"\nnetwork = "host"\n'
    )
    ours = os.readlink("/proc/self/ns/net")
    with a_terminal(tmp_path, policy) as terminal:
        assert terminal.run("readlink /proc/self/ns/net")["stdout"].strip() == ours
        assert terminal.run("readlink /proc/self/ns/net; true")["stdout"].strip() != ours
        assert terminal.run("env X=1 readlink /proc/self/ns/net")["stdout"].strip() != ours


def test_what_a_rule_asks_about_does_not_open_the_network_for_another_reading(tmp_path: Path):
    policy = (
        '[[profiles.standard.rules]]\naction = "tool:shell:run readlink *"\n'
        'outcome = "ask"\nnetwork = "host"\n'
    )
    ours = os.readlink("/proc/self/ns/net")
    with Yard(tmp_path, policy).make().opened(Asked(True)) as terminal:
        assert terminal.run("readlink /proc/self/ns/net")["stdout"].strip() == ours
        assert terminal.run("env X=1 readlink /proc/self/ns/net")["stdout"].strip() != ours


def test_the_locked_profile_has_no_shell(tmp_path: Path):
    yard = Yard(tmp_path, '[agents.main]\nprofile = "locked"\n').make()
    with yard.opened() as terminal:
        assert terminal.refuse("true") == "tool.unknown"


# Backends


@contextmanager
def opened_where(yard: Yard, *verdicts: BackendVerdict) -> Generator[Terminal, None, None]:
    """An agent at work on a host where trying the backends finds these."""
    project = open_project(yard.root, read_environment(yard.all_variables))
    record = project.agents.read("main")
    chain, policy = (record.agent,), project.policy_for(record)
    judge, tools = PolicyJudge(policy, chain), Tools(all_tools())
    with (
        closing(open_history(project)) as history,
        Workspace.open(str(yard.root), keeper=history.keeper()) as workspace,
        open_journal(project) as journal,
    ):
        ground = ShellContext(
            chain,
            CommitPlace(workspace, history, lambda: journal, policy),
            lambda: collect_facts(policy, project.agents, "main", yard.all_variables),
            yard.base / "staging",
            attempt=lambda: verdicts,
        )
        with closing(SandboxShell(ground)) as shell:
            context = Context(
                tools=tools,
                judge=judge,
                ports=Ports(workspace, judge, shell=lambda: shell),
                ledger=MemoryLedger(),
                approver=NoApprover(),
                record_approval=partial(record_in_governance, project),
                caller=Caller(chain, "SES-1"),
                randomness=os.urandom,
                history=history,
            )
            runtime = Runtime(Dispatcher(context), tools, lambda: "CALL-1", lambda: None)
            yield Terminal(yard, runtime)


NO_STAGE = BackendVerdict("stage", Enforcement.NONE, (), "user namespaces are closed", "open them")
NO_LANDLOCK = BackendVerdict(
    "landlock", Enforcement.NONE, (), "this kernel has no Landlock", "newer kernel"
)


def test_without_a_backend_a_command_is_refused_with_the_remedy(tmp_path: Path):
    with opened_where(Yard(tmp_path).make(), NO_STAGE, NO_LANDLOCK) as terminal:
        result = terminal.call("run_shell", command="echo 1 > a")

    assert result.refusal.code == "sandbox.unavailable"
    assert "user namespaces are closed" in result.refusal.error
    assert "open them" in result.refusal.hint
    assert not (terminal.yard.root / "a").exists()


def test_best_effort_runs_it_and_says_that_nothing_holds_it(tmp_path: Path):
    yard = Yard(tmp_path, OPEN + '[shell]\nenforcement = "best-effort"\n').make()
    if os.geteuid() == 0:
        os.chown(yard.root, 65534, 65534)
        for path in (tmp_path, *tmp_path.parents[:3]):
            path.chmod(path.stat().st_mode | 0o011)
    mark = f"31339.{os.getpid()}"
    with opened_where(yard, NO_STAGE, NO_LANDLOCK) as terminal:
        said = terminal.run(f"(setsid nohup sleep {mark} &) ; echo 1 > a; id -u; echo $HOME")
        assert terminal.refuse("true", dry_run=True) == "sandbox.unavailable"

    assert said["sandbox"]["backend"] == "none"
    assert said["sandbox"]["enforcement"] == "none"
    assert said["sandbox"]["gaps"]
    assert (yard.root / "a").read_text() == "1\n"
    assert said["stdout"].splitlines()[0] != "0"
    assert said["files_changed"] == []
    assert mark not in processes()


@pytest.mark.needs("landlock")
def test_landlock_holds_where_stages_do_not_work(tmp_path: Path):
    yard = Yard(tmp_path).make()
    yard.write({"d/open": "o\n", ".env": "token"})
    if os.geteuid() == 0:
        for path in (yard.root, *yard.root.rglob("*")):
            os.chown(path, 65534, 65534)
        for path in (tmp_path, *tmp_path.parents[:3]):
            path.chmod(path.stat().st_mode | 0o011)
    works = BackendVerdict("landlock", Enforcement.PARTIAL, ("some",))
    with opened_where(yard, NO_STAGE, works) as terminal:
        said = terminal.sneak(
            "echo n > d/open; cat .env; echo x > /var/tmp/out; echo x >> paddock.toml"
        )

    assert said["sandbox"]["backend"] == "landlock"
    assert said["sandbox"]["enforcement"] == "partial"
    assert (yard.root / "d/open").read_text() == "n\n"
    assert (yard.root / "paddock.toml").read_text() == yard.policy
    assert "token" not in said["stdout"]
    assert not Path("/var/tmp/out").exists()


def test_a_launcher_that_is_killed_ends_its_commands_with_an_error(tmp_path: Path):
    mark = f"31340.{os.getpid()}"
    with a_terminal(tmp_path) as terminal:
        terminal.run("true")
        found = []
        thread = threading.Thread(
            target=lambda: found.append(
                terminal.call("run_shell", command=f"echo 1 > a; sleep {mark}")
            )
        )
        thread.start()
        wait_for(mark)
        launchers = subprocess.run(
            ["pgrep", "-P", str(os.getpid()), "-f", "inside/main.py"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        ours = [int(pid) for pid in launchers]
        for pid in ours:
            os.kill(pid, signal.SIGKILL)
        thread.join(30)
        [result] = found
        assert result.refusal.code == "sandbox.unavailable"
        assert not (terminal.yard.root / "a").exists()
        assert terminal.run("echo again")["stdout"] == "again\n"
        assert mark not in processes()


def test_a_call_that_is_cancelled_has_changed_nothing(tmp_path: Path):
    from paddock.runtime.prepared import Bounds
    from paddock.values.calls import ToolCall

    class Button:
        def __init__(self) -> None:
            self.is_cancelled = False
            self.callbacks = []

        def on_cancel(self, callback):
            self.callbacks.append(callback)
            return lambda: None

        def press(self) -> None:
            self.is_cancelled = True
            for callback in self.callbacks:
                callback()

    button, mark = Button(), f"31341.{os.getpid()}"
    with a_terminal(tmp_path) as terminal:
        found = []
        call = ToolCall("C-1", "run_shell", {"command": f"echo 1 > a; sleep {mark}"})
        dispatcher = terminal.runtime._dispatcher
        thread = threading.Thread(
            target=lambda: found.append(dispatcher.dispatch(call, Bounds(cancel=button)))
        )
        thread.start()
        wait_for(mark)
        button.press()
        thread.join(30)
        assert found[0].refusal.code == "call.cancelled"
        assert not (terminal.yard.root / "a").exists()
        [*_, entry] = terminal.yard.entries("TOOL_RESULT")
        assert entry["metadata"]["effect"] == "none"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("true", {"status": "ok", "exit": 0}),
        ("exit 7", {"status": "ok", "exit": 7}),
        ("kill -9 $$", {"status": "ok", "exit": 137}),
        ("sleep 60", {"status": "ok", "exit": -1, "timed_out": True}),
    ],
)
def test_how_a_command_ended_is_on_record(terminal: Terminal, command: str, kept: dict[str, Any]):
    terminal.run(command, timeout=1 if "timed_out" in kept else 60)
    [*_, entry] = terminal.yard.entries("TOOL_RESULT")

    shown = ("status", "exit", "timed_out")
    assert {name: entry["metadata"][name] for name in shown if name in entry["metadata"]} == kept


def test_how_a_command_ended_that_a_hook_wrapped_is_on_record(terminal: Terminal):
    yard = terminal.yard
    program = [sys.executable, "-I", str(Path(wrapped.__file__).with_name("exec.py"))]
    named = ["--plane", str(yard.root), "--agent", "main", "--", "exit 7"]
    ran = subprocess.run([*program, *named], cwd=yard.root, env=yard.all_variables, check=False)
    [*_, entry] = yard.entries("TOOL_RESULT")

    assert (ran.returncode, entry["metadata"]["exit"]) == (7, 7)


# The admin's


def test_the_admins_shell_is_the_same_behind_the_dual_gate(tmp_path: Path):
    operator = operator_in(tmp_path).make("--dev")
    path = {"PATH": os.environ["PATH"]}
    closed = operator.call("run_shell_dev", variables=path, command="true")
    assert closed.json["code"] == "tool.unknown"
    risky = {RISKY_TOOLS_VARIABLE: "1", **path}
    opened = operator.call(
        "run_shell_dev",
        variables=risky,
        command=hide(
            "echo 1 > HO2/scratch/x; echo 2 > HOT/config/policy.toml; echo > agents/admin/agent.json"
        ),
    )

    assert opened.status == 0, opened.out
    # The last of the three is refused by the kernel, and the failure says so.
    assert set(opened.json) == {"status", "content", "call", "fence", *FIELDS}
    assert opened.json["files_changed"] == ["HO2/scratch/x"]
    assert (operator.plane / "HO2/scratch/x").read_text() == "1\n"
    assert "HOT/config/policy.toml" in refused(opened.json)
    assert (operator.plane / "HOT/config/policy.toml").read_text() != "2\n"


@pytest.mark.needs("git")
def test_a_folder_of_files_is_no_repository_to_git_in_the_sandbox(terminal: Terminal):
    folder = terminal.yard.root / "taken"
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n"
        '\tfsmonitor = "touch ran; false"\n'
    )
    said = terminal.sneak("cd taken && git status")
    freely = subprocess.run(
        ["git", "status"], cwd=folder, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True, check=False,
    )  # fmt: skip

    assert "not a git repository" in said["stderr"] or "cannot use bare" in said["stderr"]
    assert said["files_changed"] == []
    # Without the sandbox it runs what the folder says.
    assert (freely.returncode, (folder / "ran").exists()) == (0, True)


def test_the_first_process_does_not_say_where_paddock_lies_on_the_host(terminal: Terminal):
    said = terminal.run("tr -d '\\0' < /proc/1/cmdline; echo end; tr '\\0' ' ' < /proc/$$/cmdline")
    assert said["stdout"].startswith("end\n")
    assert "cmdline" in said["stdout"]
