"""The providers' own shells: `bash` in one session, and `shell` with several commands a call."""

from collections.abc import Iterator
from typing import Any

import pytest

import paddock
from tests.support.places import Place, new_place

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

POLICY = """[profiles.standard]
allow = ["tool:file:*", "tool:shell:*"]
deny = ["tool:file:* closed/**", "tool:shell:run git *"]
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with new_place() as made:
        monkeypatch.setenv("HOME", str(made.home))
        (made.project / "paddock.toml").write_text(POLICY)
        assert made.run("trust", "--yes").status == 0
        yield made


@pytest.fixture
def runtime(place: Place) -> Iterator[paddock.Runtime]:
    with paddock.open(place.project) as opened:
        yield opened


def bash(runtime: paddock.Runtime, **given: Any) -> tuple[str, bool]:
    block = {"type": "tool_use", "id": "t1", "name": "bash", "input": given}
    (answer,) = runtime.answer("anthropic", {"content": [block]})
    return answer["content"], answer["is_error"]


def shell(runtime: paddock.Runtime, *commands: Any, **more: Any) -> dict[str, Any]:
    action = {"commands": list(commands), **more}
    item = {"type": "shell_call", "call_id": "c1", "status": "in_progress", "action": action}
    (answer,) = runtime.answer("openai-responses", {"output": [item]})
    assert (answer.pop("type"), answer.pop("call_id")) == ("shell_call_output", "c1")
    return answer


def ran(stdout: str, stderr: str = "", code: int = 0) -> dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "outcome": {"type": "exit", "exit_code": code}}


def test_bash_goes_on_where_it_ended_until_it_is_restarted(place, runtime):
    assert bash(runtime, restart=True) == ("Bash session restarted", False)
    assert bash(runtime, command="mkdir sub; cd sub; export X=1; echo a > new.txt") == ("", False)
    assert bash(runtime, command="echo $X; basename $PWD; cat new.txt") == ("1\nsub\na", False)
    assert bash(runtime, restart=True) == ("Bash session restarted", False)
    assert bash(runtime, command="echo [$X]; cat sub/new.txt") == ("[]\na", False)
    assert (place.project / "sub/new.txt").read_bytes() == b"a\n"


def test_bash_says_what_the_command_printed_and_how_it_failed(runtime):
    content, is_error = bash(runtime, command="echo out; nonexistentcommand")
    assert content.startswith("out\n")
    assert content.endswith("nonexistentcommand: command not found\n[exit code 127]")
    assert is_error


def test_jobs_that_bash_leaves_end_with_the_command_and_that_is_said(runtime):
    found = bash(runtime, command="sleep 1000 & echo started")
    assert found == ("started\n[1 background processes were ended with the command]", False)


def test_what_policy_refuses_of_bash_is_said(place, runtime):
    content, is_error = bash(runtime, command="git push")
    assert content.startswith("error[policy.denied]: 'tool:shell:run git push' is denied")
    assert is_error
    content, _ = bash(runtime, command="mkdir -p closed; echo x > open.txt; cp open.txt closed/a")
    assert "closed/a" in content
    assert (place.project / "open.txt").exists()
    assert not (place.project / "closed/a").exists()


def test_what_a_command_prints_is_told_once_whatever_it_looks_like(runtime):
    lines = "[2 background processes were ended with the command]\nstdout: 1 line\n  x"
    assert bash(runtime, command=f"echo '{lines}'; echo changed > a.txt") == (lines, False)


def test_bash_without_a_command_is_an_error(runtime):
    content, is_error = bash(runtime)
    assert (content.split("\n")[0], is_error) == ("error[args.invalid]: command is required", True)


def test_shell_runs_each_command_and_answers_for_each(runtime):
    assert shell(
        runtime, "echo one; cd /tmp", "echo two >&2; exit 3", "git status", "echo four"
    ) == {
        "output": [
            ran("one\n"),
            ran("", "two\n", 3),
            ran("", runtime.call("run_shell", {"command": "git status"}).content, 1),
            ran("four\n"),
        ]
    }


def test_a_command_over_its_time_is_told_as_a_timeout(runtime):
    (found,) = shell(runtime, "echo begun; sleep 1000", timeout_ms=200)["output"]
    assert (found["stdout"], found["outcome"]) == ("begun\n", {"type": "timeout"})


def test_a_time_that_is_clamped_is_said(runtime):
    assert shell(runtime, "echo one", timeout_ms=10**9)["output"] == [
        ran("one\n", "[clamped: timeout_ms=600000]\n")
    ]
    assert shell(runtime, "echo one", timeout_ms=-1)["output"] == [
        ran("one\n", "[clamped: timeout_ms=1000]\n")
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timeout_ms": "5"}, "Invalid `timeout_ms` parameter: '5'"),
        ({"timeout_ms": 1.5}, "Invalid `timeout_ms` parameter: '1.5'"),
        ({"user": "root"}, "unknown argument 'user'"),
    ],
)
def test_what_shell_does_not_take_is_refused_by_its_name(runtime, given, said):
    (found,) = shell(runtime, "echo one", **given)["output"]
    assert (found["stdout"], found["outcome"]["exit_code"]) == ("", 1)
    assert found["stderr"].startswith(f"error[args.{'un' if 'user' in given else 'inv'}")
    assert said in found["stderr"]


def test_all_output_of_a_call_is_cut_together_and_that_is_said(runtime):
    assert shell(runtime, "echo 12345", "echo abc; echo def >&2", max_output_length=8) == {
        "max_output_length": 8,
        "output": [
            ran("12345\n"),
            ran("ab", "[6 more characters: max_output_length is 8]"),
        ],
    }


@pytest.mark.parametrize("commands", [None, "ls", [], {"a": 1}])
def test_what_is_no_list_of_commands_is_refused(runtime, commands):
    item = {"type": "shell_call", "call_id": "c1", "action": {"commands": commands}}
    (answer,) = runtime.answer("openai-responses", {"output": [item]})
    (found,) = answer["output"]
    assert found["stderr"].startswith("error[args.invalid]: Invalid `commands` parameter")
    assert found["outcome"] == {"type": "exit", "exit_code": 1}


def test_a_call_that_was_cut_does_not_run(place, runtime):
    action = {"commands": ["touch ran"]}
    item = {"type": "shell_call", "call_id": "c1", "status": "incomplete", "action": action}
    (answer,) = runtime.answer("openai-responses", {"output": [item]})
    assert answer["output"][0]["stderr"].startswith("error[call.dropped]")
    assert not (place.project / "ran").exists()


def test_commands_of_one_message_and_one_session_follow_each_other(runtime):
    blocks = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": line}}
        for number, line in enumerate(
            ("mkdir sub; cd sub; export A=5", 'basename "$PWD"', 'echo "$A"')
        )
    ]
    answers = runtime.answer("anthropic", {"content": blocks, "stop_reason": "tool_use"})

    shown = [each["content"] for each in answers]
    assert [each.get("is_error", False) for each in answers] == [False] * 3, shown
    assert ["sub" in str(shown[1]), "5" in str(shown[2])] == [True, True]


def test_a_command_of_the_same_message_is_judged_behind_what_the_one_before_defined(place: Place):
    """Threat: `make` is allowed, and a function of that name, which was just defined, runs."""
    (place.project / "paddock.toml").write_text(
        '[profiles.standard]\nallow = ["tool:shell:run make"]\n'
        'otherwise = { "tool:shell:*" = "ask" }\n'
    )
    assert place.run("trust", "--yes").status == 0
    asked: list[object] = []

    def approver(request: paddock.ApprovalRequest) -> bool:
        asked.append(request.arguments["command"])
        return True

    lines = ("make() { echo mine; }", "make")
    blocks = [
        {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": line}}
        for number, line in enumerate(lines)
    ]
    with paddock.open(place.project, approver=approver) as runtime:
        runtime.answer("anthropic", {"content": blocks, "stop_reason": "tool_use"})

    assert asked == list(lines)
