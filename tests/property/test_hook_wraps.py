"""A wrapped line, read by bash and by zsh: one argument, whatever it holds, and nothing besides."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.apps.hook.lean.flow import CommandWrapper, wrap_input
from paddock.apps.hook.lean.request import HookEvent

FIXTURES = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
PROGRAM = """\
#!/bin/sh
printf '%s\\0' "$@"
printf '%s' "$TOLD" >&3
exit 7
"""
pieces = st.sampled_from(
    ["'", '"', "'\"'", "''", "\\", "$(touch made)", "`touch made`", "; touch made;", "\n", "!", "!!",
     "#", "$$", "${x}", "<<EOF\n", "EOF\n", "{", "}", ")", "(", "~", "*", "é", "\t", " ", "-", "--",
     "a", "echo", "&", "|", ">made", "\r", "$'", "%s", "=", "[", "\x1b", "3>&1", "\u2028"]
)  # fmt: skip
SHELLS = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("bash", "zsh")]
commands = st.lists(pieces, min_size=1, max_size=12).map("".join)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("it's a program") / "say"
    made.write_text(PROGRAM)
    made.chmod(0o755)
    return made


@pytest.mark.parametrize("shell", SHELLS)
@FIXTURES
@given(command=commands, in_background=st.booleans())
def test_a_shell_hands_the_command_over_as_it_was(
    shell: str, program: Path, tmp_path: Path, command: str, in_background: bool
):
    asked = HookEvent("PreToolUse", "claude", {"tool_use_id": "toolu_'1"})
    asked.input = {"command": command, "timeout": 2000, "run_in_background": in_background}
    changed = json.loads(
        wrap_input(
            asked,
            CommandWrapper([str(program)], "/a b", "main", "E'x", "/w"),
            "sub dir",
            "/it's",
            "t1",
        )
    )
    line = f'{changed.pop("command")}\necho "$?" "$PWD" >&2'
    done = subprocess.run(
        [shell, "-c", line],
        cwd=tmp_path,
        env={"TOLD": "", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )

    given_words = done.stdout.decode().split("\0")[:-1]
    watched = [given_words.pop(-3) for _ in range(1 + in_background)]
    assert given_words == [
        *("--plane", "/a b", "--agent", "main", "--directory", "sub dir"),
        *(["--background"] * in_background),
        *("--limit-ms=2000", "--kind=E'x"),
        *("--call=toolu_'1", "--ticket=t1", "--session=/it's", "--", command),
    ]
    names, numbers = zip(*(each.split("=") for each in watched), strict=True)
    assert names == (*("--client",) * in_background, "--shell")
    assert all(each.isdigit() for each in numbers)
    assert done.stderr.decode() == f"7 {tmp_path}\n"
    assert changed == {"timeout": 2000, "run_in_background": in_background}
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["sub", "with space", "it's", "-", "$(touch made)", "line\nend\n"])
def test_the_shell_goes_where_the_command_ended(
    shell: str, name: str, program: Path, tmp_path: Path
):
    (tmp_path / name).mkdir()
    asked = HookEvent("PreToolUse", "claude", {})
    asked.input = {"command": "cd x"}
    changed = wrap_input(asked, CommandWrapper([str(program)], "/", "main", "", "/"), ".", "/s")
    line = f'{json.loads(changed)["command"]}; ended=$?\npwd -P >&2; exit "$ended"'
    done = subprocess.run(
        [shell, "-c", line],
        cwd=tmp_path,
        env={"TOLD": f"{tmp_path / name}/.", "PATH": "/usr/bin:/bin", "CDPATH": "/"},
        capture_output=True,
        check=False,
    )

    assert done.stderr.decode() == f"{tmp_path / name}\n"
    assert done.returncode == 7
    assert not (tmp_path / "made").exists()
