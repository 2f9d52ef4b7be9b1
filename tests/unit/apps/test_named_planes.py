"""The commands that are printed work as they are printed, also where `--plane` named the plane."""

import shlex

import pytest

from tests.support.places import run_command


def printed(text: str) -> list[str]:
    """The words of the last command that a hint names, up to the sentence around it."""
    command = text[text.rindex("paddock ") :].partition("\n")[0]
    for end in (" lists", " shows", " says", ";", ","):
        command = command.partition(end)[0]
    return shlex.split(command)[1:]


@pytest.mark.parametrize(
    "words",
    [
        ["diff", "CALL-none"],
        ["agent", "show", "nobody"],
        ["session", "show", "SES-none"],
        ["ledger", "proof", "900"],
        ["history", "README.md"],
    ],
)
@pytest.mark.parametrize("position", ["before", "after"])
def test_a_command_in_a_hint_names_the_plane_that_was_named(user, tmp_path, words, position):
    user.project = user.project.rename(tmp_path / "it's a project")
    user.call("view", path="README.md")
    named = ["--plane", "it's a project"]
    given = [*named, *words] if position == "before" else [*words, *named]
    variables = {"HOME": str(user.home)}

    told = run_command(*given, variables=variables, here=tmp_path).err
    command = printed(told)

    assert command[:2] == named
    assert run_command(*command, variables=variables, here=tmp_path).status == 0


def test_without_a_named_plane_a_hint_is_as_short_as_it_was(user):
    assert "hint:  paddock history lists" in user.run("diff", "CALL-none").err
    assert "--plane" not in user.run("diff", "CALL-none").err


def test_what_a_gate_advises_names_the_plane(operator):
    ran = operator.run("--plane", str(operator.plane), "gate", "--gate", "G0A", here=operator.base)

    assert f"paddock --plane {operator.plane} package verify ARCHIVE" in ran.out


def test_what_is_shown_for_an_answer_or_as_a_record_keeps_its_words(user):
    # Threat: a command to be approved, or one on record, that is shown otherwise than it is.
    user.call("run_shell", "--no-input", command="paddock trust --yes")
    here = str(user.project)

    asked = user.run("--plane", here, "approvals", "list")
    told = user.run("--plane", here, "ledger", "query", "--ledger", "ho1m")

    assert "paddock trust --yes" in told.out
    assert f"--plane {here}" not in asked.out + told.out


def test_a_hint_for_another_host_names_no_plane_of_this_one(user):
    user.call("view", path="README.md")
    wrong = ["collector", "enroll", "web1", "--key", "x", "--dsn", "host=/nowhere"]

    told = user.run("--plane", str(user.project), *wrong).err

    assert "--plane" not in told
