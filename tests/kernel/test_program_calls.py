"""Bytes and commands for the embedding program: by the same door, policy and record."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock import errors
from paddock.runtime.program import EntryList, ListedEntry
from tests.support.shells import Terminal, a_terminal

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

ALL_BYTES = bytes(range(256))
CONFINED = """
[profiles.standard]
allow = ["tool:file:*"]
deny = ["tool:file:create locked/**", "tool:file:view locked/**", "tool:shell:run rm *"]
otherwise = { "tool:shell:*" = "confine" }
"""


@pytest.fixture
def terminal(tmp_path):
    with a_terminal(tmp_path, CONFINED) as made:
        made.yard.write({"a": "a\n", "locked/b": "b\n"})
        yield made


@pytest.mark.parametrize("where", ["new/deep/file", "{root}/new/file", "/tmp/deep/file", "a"])
def test_bytes_come_back_as_they_were_written(terminal: Terminal, where: str):
    path, runtime = where.format(root=terminal.yard.root), terminal.runtime

    runtime.write_bytes(path, ALL_BYTES)

    assert runtime.read_bytes(path) == ALL_BYTES


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("none", errors.PathNotFoundError),
        ("/tmp/none", errors.PathNotFoundError),
        ("locked", errors.PathNotAFileError),
        ("/tmp", errors.PathNotAFileError),
        ("../x", errors.PathTraversalError),
        ("/etc/shadow", errors.PathNotFoundError),
        ("locked/b", errors.PermissionDeniedError),
        (".env", errors.PermissionDeniedError),
    ],
)
def test_what_cannot_be_read_is_an_error_of_its_kind(terminal: Terminal, path: str, error):
    terminal.yard.write({".env": "S=1\n"})

    with pytest.raises(error):
        terminal.runtime.read_bytes(path)


def test_policy_refuses_a_write_and_lets_its_neighbour_pass(terminal: Terminal):
    with pytest.raises(errors.PermissionDeniedError):
        terminal.runtime.write_bytes("locked/b", b"\0")
    terminal.runtime.write_bytes("unlocked", b"\0")

    found = {name: (terminal.yard.root / name).read_bytes() for name in ("locked/b", "unlocked")}
    assert found == {"locked/b": b"b\n", "unlocked": b"\0"}


def test_more_than_the_limit_is_not_read(terminal: Terminal):
    terminal.runtime.write_bytes("/tmp/x", b"12345")
    for path in ("a", "/tmp/x"):
        with pytest.raises(errors.TextTooLargeError):
            terminal.runtime.read_bytes(path, limit=1)

    assert terminal.runtime.read_bytes("/tmp/x", limit=5) == b"12345"


def test_what_has_no_end_is_told_as_what_is_too_large(terminal: Terminal):
    with pytest.raises(errors.TextTooLargeError, match="over 10 bytes"):
        terminal.runtime.read_bytes("/dev/zero", limit=10)

    assert terminal.runtime.read_bytes("/dev/null", limit=0) == b""


@pytest.mark.parametrize("path", ["a", "/tmp/none"])
def test_a_limit_below_nothing_is_an_error(terminal: Terminal, path: str):
    with pytest.raises(errors.InvalidArgumentsError, match="limit"):
        terminal.runtime.read_bytes(path, limit=-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda it: it.read_bytes(Path("a")), "the path is PosixPath, and has to be text"),
        (lambda it: it.write_bytes("new", "text"), "the content is str, and has to be bytes"),
        (lambda it: it.exec("cat > new", stdin="text"), "stdin is str, and has to be bytes"),
        (lambda it: it.exec(["touch", "new", 5]), "a word of the command is int"),
        (lambda it: it.exec("touch new", env={"A": 5}), "the variable A is int"),
    ],
)
def test_what_is_no_text_or_no_bytes_is_a_usage_error_and_nothing_runs(
    terminal: Terminal, call: Callable[[Any], object], said: str
):
    with pytest.raises(errors.UsageError, match=said):
        call(terminal.runtime)
    assert not (terminal.yard.root / "new").exists()


def test_an_argv_without_words_is_an_error(terminal: Terminal):
    for command in ("", [], ()):
        with pytest.raises(errors.InvalidArgumentsError, match="command is required"):
            terminal.runtime.exec(command)


def test_content_may_be_any_bytes(terminal: Terminal):
    for content in (b"1", bytearray(b"2"), memoryview(b"3")):
        terminal.runtime.write_bytes("new", content)
        assert terminal.runtime.read_bytes("new") == bytes(content)


def test_mode_bits_count_whoever_runs_this(terminal: Terminal):
    runtime, root = terminal.runtime, terminal.yard.root
    terminal.yard.write({"dir/f": "f", "open/f": "f"})
    (root / "a").chmod(0o000)
    (root / "dir").chmod(0o600)
    try:
        for path in ("a", "dir/f"):
            with pytest.raises(errors.PathError):
                runtime.read_bytes(path)
            with pytest.raises(errors.PathError):
                runtime.write_bytes(path, b"x")
        with pytest.raises(errors.PathError):
            runtime.write_bytes("dir/new", b"x")
        runtime.write_bytes("open/new", b"x")
    finally:
        (root / "dir").chmod(0o700)

    assert sorted(os.listdir(root / "dir") + os.listdir(root / "open")) == ["f", "f", "new"]


def test_an_argv_is_one_literal_command(terminal: Terminal):
    words = ["it's", "$(id)", "a b", "*", "\n", "", "-n", "é"]

    done = terminal.runtime.exec(["printf", "%s\\0", *words])

    assert done.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("word", ["if", "A=1", "cd", "!", "echo hi"])
def test_the_first_word_names_a_program_and_nothing_of_the_shell(terminal: Terminal, word: str):
    assert terminal.runtime.exec([word, "x"]).exit_code == 127


def test_what_policy_says_of_a_line_it_says_of_an_argv(terminal: Terminal):
    for command in ("rm a", ["rm", "a"], ["sh", "-c", "rm a"]):
        with pytest.raises(errors.PermissionDeniedError):
            terminal.runtime.exec(command)

    assert terminal.runtime.exec(["cat", "a"]).stdout == b"a\n"


def test_a_command_gets_bytes_and_gives_bytes(terminal: Terminal):
    done = terminal.runtime.exec(["sh", "-c", "cat; cat a >&2; exit 3"], stdin=ALL_BYTES)

    assert (done.exit_code, done.stdout, done.stderr) == (3, ALL_BYTES, b"a\n")
    assert (done.timed_out, done.is_cut) == (False, False)


def test_what_is_printed_over_the_limit_is_dropped(terminal: Terminal):
    done = terminal.runtime.exec("head -c 100000 /dev/zero", output_limit=10)

    assert (done.stdout, done.is_cut, done.exit_code) == (b"\0" * 10, True, 0)


def test_commands_share_tmp_and_keep_no_state(terminal: Terminal):
    runtime = terminal.runtime
    runtime.exec("cd /tmp; export A=1; f() { :; }; echo kept >x")

    done = runtime.exec('pwd; echo "${A-unset}"; cat /tmp/x; type f')

    assert done.stdout.decode() == f"{terminal.yard.root}\nunset\nkept\n"


@pytest.mark.parametrize("cwd", ["/tmp", "/", "/usr/bin", "locked"])
def test_a_command_begins_in_any_directory_that_it_sees(terminal: Terminal, cwd: str):
    expected = cwd if cwd.startswith("/") else f"{terminal.yard.root}/{cwd}"

    assert terminal.runtime.exec(["pwd"], cwd=cwd).stdout.decode() == f"{expected}\n"


def test_a_directory_that_is_not_there_is_said(terminal: Terminal):
    done = terminal.runtime.exec(["pwd"], cwd="/nowhere")

    assert (done.exit_code, b"/nowhere" in done.stderr) == (127, True)
    assert done.notice == ""  # it is said once


def test_variables_are_set_and_their_names_checked(terminal: Terminal):
    value = "it's $HOME\n"

    assert (
        terminal.runtime.exec(["printenv", "A"], env={"A": value}).stdout.decode() == f"{value}\n"
    )
    with pytest.raises(errors.InvalidArgumentsError):
        terminal.runtime.exec(["true"], env={"A;rm x": "1"})


def test_policy_judges_which_variables_are_set_and_no_record_has_their_values(terminal: Terminal):
    terminal.runtime.exec(["true"], env={"TOKEN": "value-of-a-secret"})

    (intent,) = terminal.yard.entries("TOOL_INTENT")
    assert "TOKEN" in str(intent)
    assert "value-of-a-secret" not in str(intent)
    explained = terminal.yard.cli("policy", "explain", "tool:shell:run export PATH=x; rm a")
    assert "deny" in explained.out


def test_no_model_can_call_them(terminal: Terminal):
    for tool in ("exec", "read_bytes", "write_bytes"):
        result = terminal.call(tool, path="a", command="true")
        assert result.refusal is not None
        assert result.refusal.code == "tool.unknown"


def test_they_are_on_record_by_digest_and_can_be_taken_back(terminal: Terminal):
    terminal.runtime.write_bytes("a", b"\0new")
    terminal.runtime.exec("echo more >b", stdin=b"\xff")

    calls = terminal.yard.calls()
    assert {call["tool"] for call in calls} == {"write_bytes", "exec"}
    taken_back = [terminal.yard.cli("undo", call["call"]).status for call in calls]
    left = (terminal.yard.root / "a").read_text(), (terminal.yard.root / "b").exists()
    assert (taken_back, left) == ([0, 0], ("a\n", False))


def test_a_command_is_heard_while_it_runs(terminal: Terminal):
    heard: list[tuple[str, str]] = []
    terminal.runtime.exec(
        "printf a; printf é >&2", on_output=lambda stream, text: heard.append((stream, text))
    )

    assert sorted(heard) == [("stderr", "é"), ("stdout", "a")]


def test_what_the_fence_says_of_a_command_stands_behind_its_errors(terminal: Terminal):
    refused = terminal.runtime.exec("d=locked; echo oops >&2; echo c >$d/c")
    kept = terminal.runtime.exec("echo oops >&2; echo c >unlocked")

    assert refused.notice == (
        "paddock: not changed: locked/c: tool:file:create locked/** "
        "(profiles.standard.deny, paddock.toml:4)\n"
    )
    assert (refused.exit_status, kept.exit_status) == (0, 0)
    assert (refused.stderr, kept.stderr, kept.notice) == (b"oops\n", b"oops\n", "")


@pytest.fixture
def lister(tmp_path):
    with a_terminal(
        tmp_path, CONFINED.replace('"tool:file:*"', '"tool:file:*", "tool:search:*"')
    ) as made:
        made.yard.write({"d/deep/f": "12", ".hidden": "", ".git/x": "", ".gitignore": "d\n"})
        (made.yard.root / "d/link").symlink_to("deep")
        (made.yard.root / "d/out").symlink_to("/etc")
        yield made


def test_a_listing_tells_files_and_directories_apart(lister: Terminal):
    found = lister.runtime.list_entries("d", depth=2)
    top = lister.runtime.list_entries(str(lister.yard.root), depth=2)

    assert found == EntryList(
        "d",
        (
            ListedEntry("d/deep", is_directory=True, size_bytes=0),
            ListedEntry("d/deep/f", is_directory=False, size_bytes=2),
            ListedEntry("d/link", is_directory=True, size_bytes=0),
        ),
        is_cut=False,
    )
    paths = [entry.path for entry in top.entries]
    assert paths == [".git", ".gitignore", ".hidden", "d", "d/deep", "d/link", "paddock.toml"]


def test_what_no_listing_may_show_is_in_none(lister: Terminal):
    lister.yard.write({"e/.env": "S=1\n", "e/env": ""})

    found = lister.runtime.list_entries("e")

    assert [entry.path for entry in found.entries] == ["e/env"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("none", errors.PathNotFoundError),
        ("d/deep/f", errors.PathNotADirectoryError),
        ("/etc", errors.PathTraversalError),
    ],
)
def test_what_cannot_be_listed_is_an_error_of_its_kind(lister: Terminal, path: str, error):
    with pytest.raises(error):
        lister.runtime.list_entries(path)


def test_who_may_not_list_gets_no_listing(terminal: Terminal):
    with pytest.raises(errors.PermissionDeniedError):
        terminal.runtime.list_entries()


@pytest.mark.parametrize("path", ["new/file", "/tmp/new"])
def test_what_has_to_be_new_is_not_written_over(terminal: Terminal, path: str):
    terminal.runtime.write_bytes(path, b"1", is_new=True)
    with pytest.raises(errors.FileChangedError):
        terminal.runtime.write_bytes(path, b"2", is_new=True)

    assert terminal.runtime.read_bytes(path) == b"1"


def test_an_argv_of_a_megabyte_runs_and_is_on_record(terminal: Terminal):
    words = ["x" * 65_536, "it's", "é\n"] * 15

    done = terminal.runtime.exec(["printf", "%s", *words])

    (intent,) = terminal.yard.entries("TOOL_INTENT")
    assert (done.exit_code, done.stdout.decode()) == (0, "".join(words))
    assert intent["metadata"]["actions"][0].endswith(" more characters)")
    assert intent["metadata"]["actions_digest"].startswith("sha256:")


def test_a_line_that_is_no_argv_may_not_be_so_long(terminal: Terminal):
    with pytest.raises(errors.PermissionDeniedError, match="longer than 100000 characters"):
        terminal.runtime.exec(f"echo {'x' * 100_000}; true")
    with pytest.raises(errors.InvalidArgumentsError):
        terminal.runtime.exec(["echo", "x" * 2_000_000])


def test_a_command_that_policy_denies_is_denied_however_long_it_is(terminal: Terminal):
    terminal.yard.write({"kept": ""})
    with pytest.raises(errors.PermissionDeniedError):
        terminal.runtime.exec(["rm", "kept", "x" * 120_000])

    assert (terminal.yard.root / "kept").exists()
