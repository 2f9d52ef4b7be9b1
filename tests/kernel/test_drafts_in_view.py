"""What stands in the workspace while changes land is no work of a command that sees it."""

from pathlib import Path

import pytest

from tests.support.shells import Terminal, Yard, refused, start, while_running

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash"), pytest.mark.needs("git")]

DRAFT = f".paddock-{'0' * 31}1.set"
MOVED = f".paddock-{'0' * 32}.tmp"
COMMITS = "git add -A && git commit -qm ours"


@pytest.fixture
def terminal(tmp_path: Path):
    files = {"a": "a\n", ".gitignore": "flags\npaddock.toml\n"}
    with Yard(tmp_path).make().committed(files).opened() as made:
        yield made


def land(yard: Yard) -> None:
    """What stands there in the moment in which a set of changes lands."""
    yard.write({DRAFT: "draft\n", f"new/{MOVED}": "draft\n", f"{DRAFT[:-4]}.at/in": "draft\n"})


def tracked(yard: Yard) -> list[str]:
    return yard.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()


def test_a_command_that_adds_everything_meanwhile_commits_its_own_work_alone(terminal: Terminal):
    yard = terminal.yard

    said = while_running(terminal, f"echo ours > ours; {COMMITS}", lambda: land(yard))

    assert (refused(said), said.get("conflict")) == ({}, None)
    assert tracked(yard) == [".gitignore", "a", "ours"]


def test_so_does_one_in_the_background(terminal: Terminal):
    yard = terminal.yard
    line = f"echo up; until ls -a | grep -q '{DRAFT}'; do sleep 0.02; done; echo o > o; {COMMITS}"
    process = start(terminal, line).until("up")

    land(yard)

    assert process.ended()["exit_code"] == 0
    assert tracked(yard) == [".gitignore", "a", "o"]


@pytest.mark.parametrize("name", [DRAFT, f"new/{MOVED}", f"{DRAFT[:-4]}.at/in"])
@pytest.mark.parametrize("version", [2, 4])
def test_a_draft_that_is_added_all_the_same_holds_up_the_commit(
    terminal: Terminal, name: str, version: int
):
    yard = terminal.yard
    line = f"git update-index --index-version {version}; git add -f '{name}'; git commit -qm ours"

    said = while_running(terminal, line, lambda: land(yard))

    assert any("is a temporary file of Paddock" in rule for rule in refused(said).values())
    assert tracked(yard) == [".gitignore", "a"]


@pytest.mark.parametrize("name", [".paddock-notes", DRAFT[:-4], f"{DRAFT}x", f"x{DRAFT}"])
def test_a_name_that_only_looks_like_one_is_committed(terminal: Terminal, name: str):
    said = terminal.run(f"echo ours > '{name}'; {COMMITS}")

    assert refused(said) == {}
    assert name in tracked(terminal.yard)
