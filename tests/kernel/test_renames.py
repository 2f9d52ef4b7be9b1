"""A rename is one change: where one half of it may not land, the other does not either."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.disks import tree
from tests.support.shells import Terminal, Yard, clear, refused

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

ASKING = """[profiles.standard]
allow = ["tool:*"]
ask = ["tool:file:delete *"]
deny = ["tool:file:create closed/**"]
"""
FILES = {
    "a": "a\n",
    "empty": "",
    "d/x": "x\n",
    "d/e/y": "y\n",
    "d/e/none": "",
    "d/like": "like\n",
    "other": "like\n",
    "closed/k": "k\n",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Terminal]:
    with Yard(tmp_path_factory.mktemp("yard"), ASKING).make().opened() as terminal:
        yield terminal


@pytest.fixture
def terminal(shared: Terminal) -> Terminal:
    root = shared.yard.root
    clear(root)
    shared.yard.write(FILES)
    (root / "link").symlink_to("a")
    (root / "d/hollow").mkdir()
    return shared


def lay(root: Path) -> dict[str, object]:
    return tree(root)


HALVES = {
    "a file": ("mv a b", {"a", "b"}),
    "a file into a directory that is new": ("mkdir n && mv a n/b", {"a", "n/b", "n"}),
    "a file over another": ("mv -f a d/x", {"a", "d/x"}),
    "a file that is then closed": ("mv a b && chmod 0 b", {"a", "b"}),
    "an empty file": ("mv empty b", {"empty", "b"}),
    "a link": ("mv link b", {"link", "b"}),
    "an empty directory": ("mv d/hollow b", {"d/hollow", "b"}),
    "a copy and a removal": ("cp a b && rm a", {"a", "b"}),
    "to where nothing may be created": ("mv a closed/b", {"a", "closed/b"}),
    "a directory": (
        "mv d D",
        {
            *("d", "d/x", "d/e", "d/e/y", "d/e/none", "d/like", "d/hollow"),
            *("D", "D/x", "D/e", "D/e/y", "D/e/none", "D/like", "D/hollow"),
        },
    ),
}


@pytest.mark.parametrize("name", HALVES)
def test_nothing_of_a_rename_lands_where_a_rule_asks_about_the_old_name(
    terminal: Terminal, name: str
):
    line, halves = HALVES[name]
    before = lay(terminal.yard.root)

    said = terminal.sneak(line)

    assert lay(terminal.yard.root) == before
    assert (said["files_changed"], set(refused(said))) == ([], halves)


def test_the_result_names_the_two_names_and_why_neither_changed(terminal: Terminal):
    said = refused(terminal.sneak("mv a b"))

    rule = "tool:file:delete * (profiles.standard.ask, paddock.toml:3)"
    assert said["a"] == rule
    assert said["b"].startswith("it is one rename with 'a', which does not land: policy asks first")
    assert "tool:file:delete *" in said["b"]


def test_the_old_name_stays_where_the_new_one_may_not_be_created(tmp_path: Path):
    policy = ASKING.replace('ask = ["tool:file:delete *"]\n', "")
    with Yard(tmp_path, policy).make().opened() as terminal:
        terminal.yard.write(FILES)
        before = lay(terminal.yard.root)

        said = refused(terminal.sneak("mv a closed/a; mv d closed/d"))

        assert lay(terminal.yard.root) == before
        assert said["a"].startswith("it is one rename with 'closed/a', which does not land: ")


LANDS = {
    "a copy": ("cp a b", ["b"]),
    "a copy that keeps its times": ("cp -a d D", None),
    "a copy beside a rename": ("cp other b; mv d/like c", ["b"]),
    "a rename of what is new": ("echo n > n; mv n m; mkdir o; echo o > o/o; mv o p", None),
    "a new file beside a rename": ("mv a b; echo n > n", ["n"]),
    "an empty file beside the removal of one": ("rm empty; touch n", ["n"]),
    "a directory of its own in a renamed one": ("mv d D; mkdir D/own", ["D", "D/own"]),
    "a file of its own in a renamed directory": ("mv d D; echo o > D/own", ["D", "D/own"]),
    "a file over one that is new": ("echo n > n; mv -f n a", ["a"]),
}


@pytest.mark.parametrize("name", LANDS)
def test_what_is_no_rename_of_what_was_there_lands(terminal: Terminal, name: str):
    line, landed = LANDS[name]
    said = terminal.sneak(line)

    assert said["exit_code"] == 0, said
    if landed is None:
        assert refused(said) == {}
    else:
        assert said["files_changed"] == landed, said


@pytest.mark.parametrize("line", [line for line, _ in HALVES.values() if "closed" not in line])
def test_a_rename_lands_where_nothing_asks(tmp_path: Path, line: str):
    with Yard(tmp_path).make().opened() as terminal:
        terminal.yard.write(FILES)
        (terminal.yard.root / "link").symlink_to("a")
        (terminal.yard.root / "d/hollow").mkdir()
        said = terminal.sneak(line)

        assert {path: rule for path, rule in refused(said).items() if "closed" not in rule} == {}


def test_a_guess_of_a_hidden_files_content_is_told_by_no_refusal(terminal: Terminal):
    """Threat: the removal of its directory is refused; a right guess would be taken for a rename."""
    terminal.yard.write({"s/.env": "TOKEN=1\n"})
    said = terminal.sneak("rm -r s; printf 'TOKEN=1\\n' > guess; echo n > wrong")

    assert said["files_changed"] == ["guess", "wrong"], said
    assert (terminal.yard.root / "s/.env").read_text() == "TOKEN=1\n"


@pytest.mark.needs("root")
def test_neither_is_a_guess_of_what_only_root_could_read(terminal: Terminal):
    terminal.yard.write({"p/private": "TOKEN=1\n"})
    os.chown(terminal.yard.root / "p/private", 4711, 4711)
    os.chmod(terminal.yard.root / "p/private", 0o600)

    said = terminal.sneak("rm -f p/private; printf 'TOKEN=1\n' > guess")

    assert said["files_changed"] == ["guess"], said
    assert set(refused(said)) == {"p/private"}


def test_of_huge_files_an_equal_size_makes_a_rename(terminal: Terminal):
    """Threat: content to compare, which is huge and costs a command nothing."""
    os.truncate(terminal.yard.root / "a", 600_000_000)

    said = terminal.sneak("truncate -s 600000000 b; rm a; echo n > n")

    assert (said["files_changed"], set(refused(said))) == (["n"], {"a", "b"})
