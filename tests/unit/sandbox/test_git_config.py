"""What a command has of git's configuration: files and variables, from facts of the host."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.sandbox.git_config import SAFE, VARIABLES, private_files, take_git
from paddock.sandbox.host.host_facts import GitFacts, GitFilter, LeftOut
from paddock.sandbox.values import GitConfig
from paddock.workspace.paths import TEMPORARY_GLOBS

REACH = ("/usr",)
HERE = (("/usr/bin/up",),)
"""Where the program of one line is: in reach."""


def values_of(facts: GitFacts) -> dict[str, str]:
    return dict(take_git(facts, REACH)[0].values)


def forced_of(facts: GitFacts) -> dict[str, str]:
    """What stands over the repository's own configuration."""
    said = dict(take_git(facts, REACH)[0].variables)
    count = int(said.get("GIT_CONFIG_COUNT", "0"))
    return {said[f"GIT_CONFIG_KEY_{n}"]: said[f"GIT_CONFIG_VALUE_{n}"] for n in range(count)}


def test_of_a_host_that_says_nothing_a_command_has_what_every_command_has():
    config, left_out = take_git(GitFacts(), REACH)

    assert (config.variables, left_out) == (VARIABLES, ())
    assert config.ignored.splitlines() == list(TEMPORARY_GLOBS)
    assert {key.split(".")[1] for key, _ in config.values} == {"lfs", "git-crypt"}


def test_a_filter_whose_program_is_there_is_taken_and_required():
    up = GitFilter("up", False, (("clean", "up -x"), ("smudge", "up -d")), HERE * 2)

    values = values_of(GitFacts(filters=(up,)))

    said = {key: value for key, value in values.items() if ".up." in key}
    assert said == {
        "filter.up.clean": "up -x",
        "filter.up.smudge": "up -d",
        "filter.up.required": "true",
    }


def test_a_filter_for_one_direction_leaves_the_other_as_it_is():
    up = GitFilter("up", False, (("clean", "up"),), HERE)

    assert values_of(GitFacts(filters=(up,)))["filter.up.smudge"] == "cat"


@pytest.mark.parametrize("programs", [((),), (("/home/u/bin/up",),), (("/usr-local/up",),)])
def test_a_filter_whose_program_is_not_in_reach_fails_both_ways(programs):
    up = GitFilter("up", False, (("clean", "up"),), programs)

    config, left_out = take_git(GitFacts(filters=(up,)), REACH)

    said = dict(config.values)
    assert said["filter.up.clean"] == said["filter.up.smudge"]
    assert said["filter.up.clean"].endswith("exit 1")
    assert said["filter.up.required"] == "true"
    assert [each.path for each in left_out] == ["git filter up"]


def test_what_the_repository_says_itself_is_only_made_to_hold():
    own = GitFilter("up", True, (("clean", "up"),), HERE)
    gone = GitFilter("gone", True, (("process", "gone"),), ((),))
    facts = GitFacts(filters=(own, gone), own_keys=("commit.gpgsign", "user.name"))

    forced = forced_of(facts)

    assert forced.pop("commit.gpgsign") == "false"
    assert {key: forced.pop(key) for key in list(forced) if ".up." in key} == {
        "filter.up.smudge": "cat",
        "filter.up.required": "true",
    }
    assert forced.pop("filter.gone.required") == "true"
    assert set(forced) == {"filter.gone.clean", "filter.gone.smudge", "filter.gone.process"}
    assert all(value.endswith("exit 1") for value in forced.values())
    assert not any(key.startswith(("filter.up", "filter.gone")) for key in values_of(facts))


def test_a_name_that_attributes_have_and_nobody_else_fails_on_the_way_in_alone():
    values = values_of(GitFacts(filter_names=("books", "lfs")))

    assert values["filter.books.clean"].endswith("exit 1")
    assert values["filter.books.smudge"] == values["filter.lfs.smudge"] == "cat"


def test_what_was_left_out_on_the_way_is_passed_on():
    said = LeftOut("/home/u/.config/git/ignore", "it is a secret")

    assert take_git(GitFacts(left_out=(said,)), REACH)[1] == (said,)


def test_the_files_of_a_private_home_name_only_each_other():
    config = GitConfig(ignored="*.swp\n", attributes="* text\n", values=(("user.name", "U"),))

    files = dict(private_files(config))

    assert files.keys() == {".gitconfig", ".config/git/ignore", ".config/git/attributes"}
    assert files[".config/git/ignore"] == b"*.swp\n"
    assert b'excludesFile = "~/.config/git/ignore"' in files[".gitconfig"]
    assert private_files(GitConfig())[0][0] == ".gitconfig"
    assert len(private_files(GitConfig())) == 1


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40)
names = st.from_regex(r"[A-Za-z0-9_.+@-]{1,12}", fullmatch=True)


@pytest.mark.needs("git")
@given(st.lists(st.tuples(names, texts), max_size=4))
def test_git_reads_every_value_as_it_was(tmp_path_factory, rows):
    entries = tuple((f"filter.{name}.clean", value) for name, value in rows)
    home = tmp_path_factory.mktemp("home")
    for name, content in private_files(GitConfig(values=entries)):
        (home / name).write_bytes(content)

    assert listed(home) == [*((key.lower(), value) for key, value in SAFE), *entries]


def listed(home: Path) -> list[tuple[str, str]]:
    done = subprocess.run(
        ["git", "config", "--file", home / ".gitconfig", "--null", "--list"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    )
    rows = [row.partition("\n") for row in done.stdout.decode().split("\0")[:-1]]
    return [(key, value) for key, _, value in rows]
