"""Options among a command's words: wherever they stand, they mean the same."""

import json

import pytest

SEES = '{"path": "README.md"}'


@pytest.mark.parametrize(
    "words",
    [
        ["view", SEES, "--agent", "main"],
        ["view", "--agent", "main", SEES],
        ["--agent", "main", "view", SEES],
        ["view", "--yes", SEES],
        ["view", "--no-input", SEES, "--json"],
        ["view", "--json", "--no-input", "--agent", "main", "--", SEES],
    ],
)
def test_an_option_of_a_call_may_stand_anywhere(user, words):
    ran = user.run("call", *words)

    assert (ran.status, ran.err, ran.json["status"]) == (0, "", "ok")
    assert "hello teh world" in ran.json["content"]


def test_what_is_written_behind_two_dashes_is_no_option(user):
    ran = user.run("call", "view", "--no-input", "--", "--yes")

    assert (ran.status, ran.json["code"]) == (1, "args.invalid")


def test_an_option_of_a_sub_command_may_stand_between_its_words(user):
    for name in ("a.toml", "b.toml"):
        (user.project / name).write_text("")
    files = ["a.toml", "b.toml"]

    first, between, last = (
        user.run("policy", "diff", *files[:place], "--json", *files[place:]) for place in range(3)
    )

    assert (first.status, first.json["old"], first.json["new"]) == (0, *files)
    assert first == between == last


def test_words_of_a_list_may_stand_around_an_option(user):
    user.call("view", path="README.md")
    digests = ["0" * 64, "1" * 64]
    together = user.run("ledger", "erase", *digests, "--yes")

    assert user.run("ledger", "erase", digests[0], "--yes", digests[1]) == together


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["view", "{}", "--yes", "more"], "unrecognized arguments: more"),
        (["view", "--bogus"], "unrecognized arguments: --bogus"),
        (["--yes"], "the following arguments are required: TOOL"),
        (["view", "--yes", "{}", "--no-input"], "not allowed with argument"),
    ],
)
def test_what_is_no_option_and_no_argument_is_refused_as_ever(user, words, message):
    ran = user.run("call", *words)

    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(
    ("name", "metavar", "listed"),
    [
        ("approvals", "ACTION", "list, show, grant, refuse"),
        ("policy", "COMMAND", "check, explain, test, lint, replay, diff"),
    ],
)
def test_a_command_without_its_sub_command_lists_them(user, name, metavar, listed):
    ran = user.run(name)

    assert (ran.status, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        f"error[usage]: the following arguments are required: {metavar}",
        f"  where: paddock {name}",
        f"  hint:  {metavar} is one of: {listed}; paddock {name} --help",
    ]
    assert user.run(name, "--help").status == 0


@pytest.mark.parametrize("words", [["where"], ["ledger", "verify"], ["tools"]])
def test_json_may_stand_before_the_command(user, words):
    user.call("view", path="README.md")
    before, after = user.run("--json", *words), user.run(*words, "--json")

    assert (before.status, json.loads(before.out)) == (after.status, json.loads(after.out))
    assert user.run("--json", "--plane", ".", *words).out == after.out
    assert user.run(*words).out != after.out
