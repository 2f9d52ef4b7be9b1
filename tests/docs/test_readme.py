"""What README.md shows is what happens."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.questions.lint import lint
from tests.support.forked import paddock_in
from tests.support.repository import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r'"(\w+)": "((?:[^"\\…]|\\.)*)')
"""A key of a result object with as much of its text as README shows before `"` or `…`."""
EXITS = {"ok": 0, "error": 1}


class Step(Struct, frozen=True, dict=True):
    """A command of a session, and the beginning of what it prints."""

    command: str
    shown: str


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(README) if kind == language]


def session() -> list[Step]:
    """The commands of README's session with `paddock`, in order."""
    steps = []
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            if command.startswith("paddock "):
                steps.append(Step(command, shown.strip()))
    return steps


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    paddock = paddock_in(tmp_path / "bin")
    programs = f"{paddock.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"HOME": str(tmp_path / "home"), "PATH": programs, "LC_ALL": "C.UTF-8"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What a clone could look like."""
    made = tmp_path / "path" / "to" / "project"
    (made / ".git" / "hooks").mkdir(parents=True)
    (made / "README.md").write_bytes(b"# Widgets\n\nWidgets for teh web.\n\nMore.\n")
    return made


@pytest.mark.needs("stage")
def test_the_session_prints_what_is_shown(project: Path, environment: dict[str, str]):
    steps = session()
    assert len(steps) >= 6
    for step in steps:
        command = step.command
        if "CALL-…" in command:
            command = command.replace("CALL-…", newest_change(project, environment))
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == "", step
        assert done.stdout != "", step
        if not step.shown:
            assert done.returncode == 0, step
            continue
        printed = json.loads(done.stdout)
        shown = {name: json.loads(f'"{text}"') for name, text in SHOWN.findall(step.shown)}
        assert {name: printed[name][: len(text)] for name, text in shown.items()} == shown
        assert done.returncode == EXITS[printed["status"]], step
    assert list((project / ".git" / "hooks").iterdir()) == []
    assert (project / "README.md").read_bytes() == b"# Widgets\n\nWidgets for the web.\n\nMore.\n"


def newest_change(project: Path, environment: dict[str, str]) -> str:
    """The id of the call that changed something last."""
    asked = ["paddock", "history", "--json"]
    shown = subprocess.run(asked, cwd=project, env=environment, capture_output=True, check=True)
    return json.loads(shown.stdout)["calls"][-1]["call"]


def test_what_it_says_of_other_tools_is_what_the_comparison_found():
    section = README.partition("## Beside other tools")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if re.match(r"\| [^|-]", line)]
    found = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 13
    for row in rows:
        case, *cells = row.strip("| ").split(" | ")
        # Both tables of the comparison may have a case of that name.
        same = [
            line.strip("| ").split(" | ")[1:] for line in found if line.startswith(f"| {case} |")
        ]
        assert any(all(map(str.startswith, each, cells)) for each in same), row


def test_the_commands_that_the_text_names_work_as_they_are_written(
    project: Path, environment: dict[str, str]
):
    prose = BLOCK.sub("", README)
    commands = [" ".join(named.split()) for named in re.findall(r"`(paddock\s[^`]+)`", prose)]
    assert len(commands) >= 10
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        # What asks first finds nobody here; `paddock trust` comes after `paddock init`.
        asks = "no terminal to ask on" in done.stderr
        assert done.returncode == 0 or asks, (command, done.stderr)


def test_the_question_that_the_text_asks_is_answered(project: Path, environment: dict[str, str]):
    (question,) = re.findall(r"`paddock run \"([^`]+)\"`", README)
    done = subprocess.run(
        ["paddock", "run", question],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Files:\n.git/\nREADME.md\n"), done.stderr


def test_the_python_that_is_shown_runs(project: Path, environment: dict[str, str], tmp_path: Path):
    (block,) = blocks("python")
    seen = "\nassert tools and result.status == 'ok' and 'Widgets' in result.content\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block + seen],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@pytest.mark.parametrize("block", blocks("toml"))
def test_the_policy_that_is_shown_loads_and_has_nothing_doubtful(block: str):
    shown = load_policy(PolicySource("paddock.toml", block.encode()))
    assert "standard" in shown.profiles
    assert lint(shown) == ()
