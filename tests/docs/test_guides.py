"""What the guides show is what happens: every block of every guide is run."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.questions.lint import lint
from paddock.providers.scripted import parse_script
from tests.support.documents import Typed, blocks, run_document
from tests.support.forked import paddock_in
from tests.support.postgres import empty_database, running_server
from tests.support.registries import a_registry
from tests.support.repository import ROOT

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
WITH_A_DATABASE = "many-hosts"
WITH_A_REGISTRY = "network"
MARKS = {
    WITH_A_DATABASE: [pytest.mark.needs("postgresql")],
    WITH_A_REGISTRY: [pytest.mark.needs("git"), pytest.mark.loopback],
}
FOLLOWED = [pytest.param(path, id=path.stem, marks=MARKS.get(path.stem, ())) for path in GUIDES]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    paddock = paddock_in(tmp_path / "bin")
    programs = f"{paddock.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        "HOME": str(tmp_path / "home"),
        "PATH": programs,
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Path:
    """A small project under version control, as a reader's could be."""
    made = tmp_path / "widgets"
    (made / "src").mkdir(parents=True)
    (made / "README.md").write_text("# Widgets\n\nWidgets for teh web.\n")
    (made / "src" / "widgets.py").write_text("SIZE = 3\n")
    (made / ".env").write_text("TOKEN=of-nobody\n")
    subprocess.run(["git", "init", "-q", str(made)], env=environment, check=True)
    return made


@pytest.fixture
def collector() -> Iterator[str]:
    """An empty database of a server of its own."""
    with running_server() as socket:
        yield empty_database(socket)


@pytest.fixture
def registry(
    tmp_path: Path, project: Path, environment: dict[str, str]
) -> Iterator[dict[str, str]]:
    """What leads this host to a registry that is its own."""
    with a_registry(tmp_path / "site", Path(environment["HOME"]), project) as variables:
        yield variables


@pytest.mark.needs("stage")
@pytest.mark.parametrize("guide", FOLLOWED)
def test_a_guide_can_be_followed(
    guide: Path, project: Path, environment: dict[str, str], request: pytest.FixtureRequest
):
    if guide.stem == WITH_A_DATABASE:
        environment["PADDOCK_COLLECTOR"] = request.getfixturevalue("collector")
    if guide.stem == WITH_A_REGISTRY:
        environment |= request.getfixturevalue("registry")
    assert len(blocks(guide)) >= 3
    assert run_document(guide, project, environment) == []


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_a_policy_that_a_guide_shows_has_nothing_doubtful(guide: Path):
    for block in blocks(guide):
        if block.language == "toml":
            source = PolicySource(block.name, block.text.encode())
            is_users = block.name.startswith("~/")
            shown = load_policy(None, source) if is_users else load_policy(source)
            assert lint(shown) == ()


def words_of(wrong: str) -> set[str]:
    """The words that a script may hold where this one has a wrong one."""
    with pytest.raises(ConfigError) as caught:
        parse_script(wrong, "steps.json")
    return set(re.split("known keys: |one of: ", caught.value.hint)[1].split(", "))


def test_the_guide_names_every_word_of_a_script():
    text = (ROOT / "docs/guides/embed.md").read_text()
    section = text.split("## A scripted model")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    kinds = section.split("An error's `kind` is")[1]

    failing = words_of('{"error": {"kind": "server"}, "x": 1}')
    assert set(rows) == words_of('{"x": 1}') | failing
    assert named(rows["calls"]) == words_of('{"calls": [{"x": 1}]}')
    assert named(rows["error"]) == words_of('{"error": {"x": 1}}')
    assert named(rows["stop"]) == words_of('{"stop": "x"}')
    assert named(kinds) == words_of('{"error": {"kind": "x"}}')


def named(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def test_a_guide_that_shows_something_else_is_caught(
    tmp_path: Path, project: Path, environment: dict[str, str]
):
    guide = tmp_path / "wrong.md"
    guide.write_text(
        "```console\n$ echo error; false\nerror\n$ echo two\nthree\n$ false\n…\n```\n"
        "```python\nraise SystemExit(2)\n```\n```yaml\na: 1\n```\n"
    )

    assert [problem.split("\n")[0] for problem in run_document(guide, project, environment)] == [
        "wrong.md:1: $ echo two",
        "wrong.md:1: $ false",
        "wrong.md:9: ",
        "wrong.md:12: a block of yaml that nothing looks at",
    ]


def test_dots_stand_for_anything_and_nothing_else_does():
    assert Typed("x", "a … c", "a b\nb c", 0).problem == ""
    assert Typed("x", "a.c", "abc", 0).problem == "printed:\nabc"
