"""One command through the door: its output as it comes, its time, its input and variables."""

import json
import os
from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.load import Scope, read_policy
from paddock.policy.settings import Settings
from paddock.runtime.approvals import ApprovalRequest, CallbackApprover
from paddock.runtime.prepared import Bounds
from paddock.tools.toolsets import all_tools
from tests.support.shells import OPEN, Terminal, Yard, a_terminal, processes

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory):
    with a_terminal(tmp_path_factory.mktemp("yard")) as made:
        yield made


# Output as it comes


def test_output_is_heard_while_the_command_still_runs(terminal: Terminal):
    mark = f"2.{os.getpid()}"
    heard: list[tuple[str, str, bool]] = []
    line = f"echo ready; sleep {mark}; echo done >&2"

    terminal.runtime.run_shell(
        line, on_output=lambda name, text: heard.append((name, text, mark in processes()))
    )

    assert [(name, text) for name, text, _ in heard] == [
        ("stdout", "ready\n"),
        ("stderr", "done\n"),
    ]
    assert heard[0][2]


def test_a_character_that_comes_in_two_pieces_is_heard_as_one(terminal: Terminal):
    heard: list[tuple[str, str]] = []
    line = r"printf '\xc3'; sleep 0.2; printf '\xa9\xff'; sleep 0.2; printf '\xc3'"

    terminal.runtime.run_shell(line, on_output=lambda name, text: heard.append((name, text)))

    assert "".join(text for _, text in heard) == "é\ufffd\ufffd"
    assert all(text for _, text in heard)


def test_bytes_are_heard_as_they_were_printed_all_of_them_in_one_thread(terminal: Terminal):
    heard: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    bounds = Bounds(on_output=lambda name, chunk: heard[name].extend(chunk))
    line = "head -c 3000000 /dev/zero; printf '\\x1b[31m\\xff' >&2"

    result = terminal.runtime.call("run_shell", {"command": line}, bounds=bounds)

    assert result.refusal is None
    assert heard == {"stdout": bytearray(3_000_000), "stderr": bytearray(b"\x1b[31m\xff")}


def test_what_a_listener_raises_ends_the_command_and_nothing_lands(terminal: Terminal):
    class Enough(Exception):
        pass

    def refuse(stream: str, text: str) -> None:
        raise Enough(f"{stream}: {text}")

    result = terminal.runtime.call(
        "run_shell", {"command": "echo x > left; echo out; sleep 60"}, on_output=refuse
    )

    assert result.refusal is not None
    assert not (terminal.yard.root / "left").exists()
    assert terminal.run("echo still")["stdout"] == "still\n"


def test_a_question_about_a_difference_is_heard_while_it_runs_too(tmp_path: Path):
    policy = '[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:shell:*"]\n'
    policy += '[shell]\napprove = "diff"\n'
    heard: list[str] = []
    with a_terminal(tmp_path, policy) as terminal:
        terminal.runtime.call(
            "run_shell",
            {"command": "echo seen; echo x > f"},
            on_output=lambda _, text: heard.append(text),
        )

    assert heard == ["seen\n"]


# Time


@pytest.mark.parametrize(
    ("policy", "tool", "given", "used"),
    [
        ("", "run_shell", None, 120),
        ("", "run_shell", 599, 599),
        ("", "run_shell", 601, 600),
        ("shell_timeout_s = 86400", "run_shell", 3600, 3600),
        ("shell_timeout_s = 86400", "run_shell", 90_000, 86_400),
        ("shell_timeout_s = 86400", "run_shell", None, 120),
        ("shell_timeout_s = 50", "run_shell", 300, 50),
        ("shell_timeout_s = 50", "run_shell", None, 50),
        ("", "run_shell_dev", None, 30),
        ("", "run_shell_dev", 500, 120),
        ("shell_timeout_s = 86400", "run_shell_dev", 500, 120),
        ("shell_timeout_s = 50", "run_shell_dev", 500, 50),
    ],
)
def test_a_command_gets_its_time_as_policy_says(policy: str, tool: str, given, used: int):
    limits = read_policy(
        "paddock.toml", f"[limits]\n{policy}\n".encode(), Scope.PROJECT, Settings(), {}
    ).settings.limits
    binder = next(each for each in all_tools() if each.name == tool).binder
    arguments = {"command": "true"} | ({} if given is None else {"timeout": given})

    bound, clamped = binder.bind(arguments, limits.lowered())

    assert bound.timeout == used
    assert ("timeout" in clamped) is (given != used and (given is not None or used == 50))


def test_what_no_policy_may_raise_does_not_load():
    for key in ("shell_timeout_s = 86401", "shell_timeout_s = 0", "view_bytes_max = 100001"):
        with pytest.raises(ConfigError):
            read_policy("p.toml", f"[limits]\n{key}\n".encode(), Scope.USER, Settings(), {})


def test_a_command_ends_when_its_time_is_up(terminal: Terminal):
    said = terminal.run("echo begun; sleep 300", timeout=5)

    assert (said["timed_out"], said["stdout"]) == (True, "begun\n")
    assert said["stderr"] == "Command timed out after 5 seconds"


# Input and variables


def test_input_larger_than_any_pipe_is_read_to_its_end(terminal: Terminal):
    text = "0123456789é\n" * 760_000
    size = len(text.encode())
    result = terminal.call("run_shell", command="wc -c; sleep 0", stdin=text)
    unread = terminal.call("run_shell", command="head -c 3", stdin=text)
    named = terminal.call("run_shell", command="cat /dev/stdin | wc -c", stdin=text)

    assert (result.details["stdout"], unread.details["stdout"]) == (f"{size}\n", "012")
    assert named.details["stdout"] == f"{size}\n"
    too_large = terminal.call("run_shell", command="cat", stdin="x" * 10_000_001)
    assert too_large.refusal.code == "args.invalid"
    assert terminal.run("cat; echo end")["stdout"] == "end\n"
    assert terminal.run("cat; echo end", stdin="")["stdout"] == "end\n"


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.ftruncate(0, 1 << 30)",
        "import os; os.write(os.open('/proc/self/fd/0', os.O_WRONLY), b'more')",
    ],
)
def test_a_command_cannot_make_its_input_longer(terminal: Terminal, code: str):
    said = terminal.run(f'python3 -c "{code}"; cat', stdin="x")

    assert said["stdout"] == "x"
    assert "Error" in said["stderr"]


def test_variables_that_policy_names_are_set_and_no_others(tmp_path: Path):
    policy = OPEN + '[shell]\nenv = ["CI", "PYTEST_*"]\n'
    with a_terminal(tmp_path, policy) as terminal:
        env = {"CI": "a b$HOME\n", "PYTEST_ADDOPTS": "-q", "PYTEST_": ""}
        said = terminal.run('printf "%s|%s" "$CI" "$PYTEST_ADDOPTS"', env=env)
        assert said["stdout"] == "a b$HOME\n|-q"
        for name in ("CIRCLE", "C", "ci", "PYTEST", "PATH", "LD_PRELOAD", "GIT_DIR", "HOME"):
            refused = terminal.call("run_shell", command="true > made", env={name: "x"})
            assert refused.refusal.code == "args.invalid", name
            assert '[shell] env = ["NAME"]' in refused.refusal.hint
            assert not (terminal.yard.root / "made").exists()
        for env in (
            {"A=B": "x"},
            {"": "x"},
            {"CI": 1},
            {"CI": "a\0b"},
            {"CI": "x" * 40_000},
            ["CI"],
        ):
            assert (
                terminal.call("run_shell", command="true", env=env).refusal.code == "args.invalid"
            )


def test_no_variable_is_set_where_policy_names_none(terminal: Terminal):
    assert terminal.refuse("true", env={"CI": "1"}) == "args.invalid"
    assert terminal.run("true", env={})["exit_code"] == 0


@pytest.mark.parametrize(
    "pattern",
    [
        *("PATH", "LD_PRELOAD", "LD_*", "L*", "*", "BASH_ENV", "BASH_*", "GIT_DIR", "GIT_*", "G*"),
        *("NODE_OPTIONS", "NODE_*", "PYTHONPATH", "PYTHON*", "PY*", "P*", "ENV", "SHELLOPTS"),
        *("A-B", "1A", "*_X", "A*B", "A=B", "", "HOME", "XDG_CONFIG_HOME"),
    ],
)
def test_a_pattern_that_covers_what_changes_what_runs_does_not_load(pattern: str):
    text = f"[shell]\nenv = [{json.dumps(pattern)}]\n".encode()
    with pytest.raises(ConfigError, match="env in"):
        read_policy("p.toml", text, Scope.USER, Settings(), {})


def test_patterns_beside_those_load_and_an_untrusted_file_adds_none():
    names = ["CI", "PYTEST_*", "NODE_ENV", "PATHS", "LDFLAGS", "PYTES*", "LD", "GITHUB_*", "_X"]
    text = f"[shell]\nenv = {json.dumps(names)}\n".encode()

    trusted = load_policy(PolicySource("paddock.toml", text))
    untrusted = load_policy(PolicySource("paddock.toml", text, trusted=False))

    assert trusted.settings.shell.env == tuple(names)
    assert untrusted.settings.shell.env == ()


def test_input_and_variables_stand_in_the_record_and_bind_an_approval(tmp_path: Path):
    asks = '[profiles.standard]\nask = ["tool:shell:*"]\n[shell]\nenv = ["CI"]\n'
    seen: list[str] = []

    def answer(request: ApprovalRequest) -> bool:
        seen.append(request.digest)
        return False

    with Yard(tmp_path, asks).make().opened(CallbackApprover(answer)) as terminal:
        for more in (
            {},
            {"stdin": "x"},
            {"stdin": "y"},
            {"env": {"CI": "1"}},
            {"env": {"CI": "2"}},
        ):
            assert terminal.refuse("true", **more) == "approval.refused"
    entries = terminal.yard.entries("TOOL_DENIED")

    assert len(set(seen)) == 5
    assert len({json.dumps(each["metadata"]["arguments"]) for each in entries}) == 5
