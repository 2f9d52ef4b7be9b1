import json
import os
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    InvalidArgumentsError,
    InvalidPatternError,
    PathError,
    PathNotFoundError,
    PathTraversalError,
    PermissionDeniedError,
    SpecialFileError,
)
from paddock.policy.settings import LoweredLimits
from paddock.text.show import quote
from paddock.tools.spec import StoppedCallError
from tests.support.disks import dig
from tests.support.users import give_to_plain_user, run_as_plain_user


def rows(desk, **arguments):
    return desk.run("grep", **arguments).content.split("\n")


def test_rows_tell_path_line_and_text_and_context_rows_look_different(desk):
    desk.write("src/a.py", b"one\ntwo needle\nthree\nfour\nfive\n")
    desk.write("b.txt", b"needle\n")
    output = desk.run("grep", pattern="needle", context=1)
    assert output.content == (
        "b.txt:1:needle\nsrc/a.py-1-one\nsrc/a.py:2:two needle\nsrc/a.py-3-three"
    )
    assert output.details == {
        "summary": "2 matches in 2 files",
        "count": 2,
        "truncated": False,
        "matches": [
            {"path": "b.txt", "line": 1, "text": "needle"},
            {"path": "src/a.py", "line": 2, "text": "two needle"},
        ],
    }


def test_no_match_says_so(desk):
    desk.write("a", b"x\n")
    output = desk.run("grep", pattern="needle")
    assert output.content == "No matches found."
    assert output.details == {
        "summary": "no matches",
        "count": 0,
        "truncated": False,
        "matches": [],
    }


def test_paths_are_relative_to_the_root_also_below_a_searched_directory_and_for_one_file(desk):
    desk.write("d/e/a", b"needle\n")
    expected = ["d/e/a:1:needle"]
    assert rows(desk, pattern="needle", path="d/e") == expected
    assert rows(desk, pattern="needle", path="d/e/a") == expected
    assert rows(desk, pattern="needle", path=f"{desk.root}/d") == expected


def test_the_order_is_that_of_the_paths_bytes_then_the_line(desk):
    for name in ("b/x", "b.py", "b-1", "a\u00e9", "B", "az"):
        desk.write(name, b"needle\nneedle\n")
    names = sorted(["b/x", "b.py", "b-1", "a\u00e9", "B", "az"], key=os.fsencode)
    expected = [f"{name}:{line}:needle" for name in names for line in (1, 2)]
    assert rows(desk, pattern="needle") == expected
    assert rows(desk, pattern="needle", limit=7)[:7] == expected[:7]


def test_the_limit_counts_over_the_whole_search_and_says_how_to_get_more(desk):
    for number in range(30):
        desk.write(f"f{number:02d}", b"needle\n" * 10)
    output = desk.run("grep", pattern="needle", limit=25)
    expected = [f"f{at // 10:02d}:{at % 10 + 1}:needle" for at in range(25)]
    notice = "[25 matches limit reached. Use limit=50 for more, or refine pattern.]"
    assert output.content.split("\n") == [*expected, notice]
    assert (output.details["count"], output.details["truncated"]) == (25, True)


def test_exactly_as_many_matches_as_the_limit_are_all_there_are(desk):
    desk.write("a", b"needle\n" * 5)
    output = desk.run("grep", pattern="needle", limit=5)
    assert output.content.split("\n")[-1] == "a:5:needle"
    assert output.details["truncated"] is False


def test_without_a_limit_a_hundred_matches_are_shown_and_five_hundred_at_most(desk):
    desk.write("a", b"needle\n" * 600)
    first = desk.run("grep", pattern="needle")
    assert first.content.endswith(
        "\na:100:needle\n[100 matches limit reached. Use limit=200 for more, or refine pattern.]"
    )
    most = desk.run("grep", pattern="needle", limit=500)
    assert most.content.endswith("\na:500:needle\n[500 matches limit reached. Refine pattern.]")


@pytest.mark.parametrize(
    ("name", "value"),
    [("limit", 0), ("limit", 501), ("context", -1), ("context", 11), ("limit", "5")],
)
def test_a_number_out_of_range_is_an_error_that_names_the_field(desk, name, value):
    with pytest.raises(InvalidArgumentsError, match=f"^{name} must be"):
        desk.plan("grep", pattern="x", **{name: value})


def test_a_missing_or_empty_pattern_is_an_error(desk):
    for arguments in ({}, {"pattern": ""}):
        with pytest.raises(InvalidArgumentsError, match="(?m)^pattern is required$"):
            desk.plan("grep", **arguments)


def test_case_counts_unless_it_is_told_not_to(desk):
    desk.write("a", b"Needle\nneedle\n")
    assert rows(desk, pattern="needle") == ["a:2:needle"]
    assert rows(desk, pattern="needle", ignoreCase=True) == ["a:1:Needle", "a:2:needle"]


def test_a_literal_pattern_is_plain_text(desk):
    desk.write("a", b"a.b(\naxb\n")
    assert rows(desk, pattern="a.b(", literal=True) == ["a:1:a.b("]
    assert rows(desk, pattern="a.b") == ["a:1:a.b(", "a:2:axb"]


@pytest.mark.parametrize("literal", [True, False])
def test_a_pattern_or_path_that_begins_with_a_dash_is_a_pattern_or_a_path(desk, literal):
    desk.write("-e", b"--files\n")
    desk.write("--pre=sh/x", b"--files\n")
    assert rows(desk, pattern="--files", literal=literal) == [
        "--pre=sh/x:1:--files",
        "-e:1:--files",
    ]
    assert rows(desk, pattern="--files", path="-e") == ["-e:1:--files"]
    assert rows(desk, pattern="--files", path="--pre=sh") == ["--pre=sh/x:1:--files"]


def test_a_file_called_dash_is_a_file(desk):
    desk.write("-", b"needle\n")
    assert rows(desk, pattern="needle", path="-") == ["-:1:needle"]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "unclosed group"),
        ("a(?=b)", "look-around"),
        (r"(a)\1", "backreferences"),
        (r"\w{9999}", "size limit"),
        ("a\nb", "is not allowed"),
        ("a\0b", "NUL"),
        ("x" * 70_000, "over 65536"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_an_error_in_any_tree(desk, pattern, words):
    with pytest.raises(InvalidPatternError, match=re.escape(words)) as empty:
        desk.run("grep", pattern=pattern)
    desk.write("a", b"x\n")
    with pytest.raises(InvalidPatternError, match=re.escape(words)) as one:
        desk.run("grep", pattern=pattern)
    assert (empty.value.code, empty.value.message) == ("pattern.invalid", one.value.message)
    assert "rg" not in one.value.message.split()
    assert len(one.value.message) < 500


def test_a_pattern_that_backtracking_engines_choke_on_takes_no_time(desk):
    desk.write("a", b"a" * 50_000 + b"!\n")
    assert desk.run("grep", pattern="(a+)+$").content == "No matches found."


def test_a_dollar_stands_before_either_line_end(desk):
    desk.write("lf", b"end;\n")
    desk.write("crlf", b"end;\r\n")
    assert rows(desk, pattern=";$") == ["crlf:1:end;", "lf:1:end;"]


def test_the_first_line_begins_behind_a_byte_order_mark(desk):
    desk.write("a", b"\xef\xbb\xbfneedle\nneedle \xff\n")
    assert rows(desk, pattern="^needle")[:2] == ["a:1:needle", "a:2:needle \\xff"]


def test_a_glob_is_about_names_or_with_a_slash_about_paths(desk):
    for name in ("src/a.py", "src/b.txt", "c.py", "src/deep/d.py"):
        desk.write(name, b"needle\n")
    named = {
        "*.py": ["c.py", "src/a.py", "src/deep/d.py"],
        "src/*.py": ["src/a.py"],
        "src/**/*.py": ["src/a.py", "src/deep/d.py"],
        "*.{txt,md}": ["src/b.txt"],
        "!*.py": ["src/b.txt"],
    }
    for glob, names in named.items():
        expected = [f"{name}:1:needle" for name in names]
        assert rows(desk, pattern="needle", glob=glob) == expected
        if len(names) > 1:
            cut = rows(desk, pattern="needle", glob=glob, limit=1)
            assert cut[0] == expected[0]


def test_a_path_glob_is_taken_from_the_searched_directory(desk):
    desk.write("src/deep/d.py", b"needle\n")
    assert rows(desk, pattern="needle", path="src", glob="deep/*.py") == ["src/deep/d.py:1:needle"]
    assert rows(desk, pattern="needle", path="src", glob="other/**") == ["No matches found."]


@pytest.mark.parametrize(
    ("tool", "argument", "none"),
    [
        ("grep", "glob", "No matches found."),
        ("grep_dev", "glob", "No matches found."),
        ("find", "pattern", "No files found."),
    ],
)
def test_a_glob_that_names_the_searched_directory_again_is_told_what_to_be(
    desk, tool, argument, none
):
    desk.write("src/deep/d.py", b"needle\n")
    desk.write("twice/twice/d.py", b"needle\n")
    (desk.root / "link").symlink_to("src")

    def said(path, glob):
        given = {argument: glob} if tool == "find" else {"pattern": "needle", argument: glob}
        rows = desk.run(tool, path=path, **given).content.split("\n")
        return [row for row in rows if not row.endswith("searched.]")]

    notice = "[The glob is relative to 'src': write '**/*.py'.]"
    for glob in ("src/**/*.py", "/src/**/*.py"):
        assert said("src", glob) == [none, notice]
        assert said("link", glob) == [none, notice]
    assert said("link", "link/**/*.py") == [none, notice.replace("src", "link")]
    assert said("src/deep", "src/deep/*.py") == [
        none,
        "[The glob is relative to 'src/deep': write '*.py'.]",
    ]
    for path, glob in (
        ("src", "srcs/*.py"),
        ("src", "src/"),
        ("src", "!src/*.py"),
        (".", "src/*.txt"),
        ("src", "deep/*.txt"),
    ):
        assert not any("taken from" in row for row in said(path, glob))
    assert len(said("src", "**/*.py")) == len(said("twice", "twice/*.py")) == 1
    assert none not in said("src", "**/*.py") + said("twice", "twice/*.py")


def test_a_glob_that_can_match_nothing_is_an_error(desk):
    with pytest.raises(InvalidPatternError, match="invalid glob '{a'"):
        desk.plan("grep", pattern="x", glob="{a")


def test_a_glob_does_not_bring_back_what_gitignore_leaves_out(desk):
    desk.write(".gitignore", b"*.log\n")
    desk.write("a.log", b"needle\n")
    assert rows(desk, pattern="needle", glob="*.log") == ["No matches found."]


@pytest.mark.parametrize("limit", [1, 100])
def test_hidden_files_are_searched_and_git_and_node_modules_are_not(desk, limit):
    desk.write(".hidden/.a", b"needle\n")
    for name in (".git/config", "node_modules/x", "sub/node_modules/y", "sub/.git"):
        desk.write(name, b"needle\n" * 3)
    assert rows(desk, pattern="needle", limit=limit) == [".hidden/.a:1:needle"]


@pytest.mark.parametrize("limit", [2, 100])
def test_gitignore_is_honoured_nested_ones_and_without_a_repository(desk, limit):
    desk.write(".gitignore", b"*.log\nbuild/\n")
    desk.write("sub/.gitignore", b"!kept.log\n/local\n")
    for name in ("a.log", "build/x", "sub/local", "sub/kept.log", "sub/deep/local"):
        desk.write(name, b"needle\n")
    assert rows(desk, pattern="needle", limit=limit) == [
        "sub/deep/local:1:needle",
        "sub/kept.log:1:needle",
    ]


@pytest.mark.parametrize("limit", [1, 100])
def test_rules_above_the_searched_directory_count_and_those_above_the_root_do_not(desk, limit):
    (desk.root.parent / ".gitignore").write_bytes(b"*\n")
    desk.write(".gitignore", b"*.log\n/sub/anchored\n")
    desk.write("sub/.gitignore", b"other\n")
    for name in ("sub/a.log", "sub/anchored", "sub/deep/other", "sub/deep/kept"):
        desk.write(name, b"needle\n")
    found = rows(desk, pattern="needle", path="sub/deep", limit=limit)
    assert found == ["sub/deep/kept:1:needle"]
    assert rows(desk, pattern="needle", path="sub", limit=limit) == found


def test_a_directory_that_is_named_is_searched_though_a_rule_ignores_it(desk):
    desk.write(".gitignore", b"build/\n")
    desk.write("build/x", b"needle\n")
    desk.write("node_modules/y", b"needle\n")
    assert rows(desk, pattern="needle", path="build") == ["build/x:1:needle"]
    assert rows(desk, pattern="needle", path="node_modules") == ["node_modules/y:1:needle"]


def test_other_ignore_files_and_the_users_own_do_not_count(desk):
    for name in (".ignore", ".rgignore", ".git/info/exclude"):
        desk.write(name, b"a\n")
    desk.write("a", b"needle\n")
    assert rows(desk, pattern="needle") == ["a:1:needle"]


def test_the_users_configuration_of_ripgrep_is_not_read(desk, monkeypatch, tmp_path):
    configuration = tmp_path / "rc"
    configuration.write_text("--ignore-case\n--glob=!a\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(configuration))
    desk.write("a", b"needle\nNEEDLE\n")
    assert rows(desk, pattern="needle") == ["a:1:needle"]


def test_a_ripgrep_on_the_path_is_never_run(desk, monkeypatch, tmp_path):
    trap = tmp_path / "bin" / "rg"
    trap.parent.mkdir()
    trap.write_text("#!/bin/sh\necho './a\\0001:0:planted'\n")
    trap.chmod(0o755)
    monkeypatch.setenv("PATH", str(trap.parent))
    desk.write("a", b"needle\n")
    assert rows(desk, pattern="needle") == ["a:1:needle"]


def test_a_long_line_is_cut_and_costs_nothing_but_a_notice(desk):
    desk.write("a", b"x" * 200_000 + b"needle\nneedle\n")
    output = desk.run("grep", pattern="needle")
    first, second, notice = output.content.split("\n")
    missing = 65_536 - 8 - limits.search_line_chars_max
    assert re.fullmatch(r"a:1:x{500} \[\.\.\. (more than )?\d+ more characters\]", first)
    assert int(re.search(r"(\d+) more", first)[1]) >= missing
    assert second == "a:2:needle"
    assert notice == (
        "[1 line cut at 500 characters. "
        "Use view to see up to 100 kB of a line; file tools show no more.]"
    )


def test_a_line_that_view_shows_whole_is_cut_with_a_word_of_that(desk):
    desk.write("a", b"needle" + b"x" * 60_000 + b"\n")
    assert rows(desk, pattern="needle")[-1] == (
        "[1 line cut at 500 characters. Use view to see all of a line.]"
    )
    # A project may have lowered what a view shows.
    lowered = replace(desk.ports, limits=LoweredLimits(view_bytes_max=50_000))
    plan = desk.plan("grep", pattern="needle")
    output = desk.tool("grep").handler.run(plan, lowered)
    assert output.content.endswith(
        "\n[1 line cut at 500 characters. "
        "Use view to see up to 50 kB of a line; file tools show no more.]"
    )


def test_a_line_of_501_characters_is_cut_and_one_of_500_is_not(desk):
    desk.write("a", ("\u00e9" * 500 + "\n" + "\u00e9" * 501 + "\n").encode())
    shown = rows(desk, pattern="\u00e9")
    assert shown[0] == "a:1:" + "\u00e9" * 500
    assert shown[1] == "a:2:" + "\u00e9" * 500 + " [... 1 more characters]"


def test_all_rows_together_stay_below_the_output_limit_and_the_cut_is_said(desk):
    desk.write("a", (b"needle" + b"x" * 400 + b"\n") * 300)
    output = desk.run("grep", pattern="needle", limit=300)
    assert len(output.content.encode()) < limits.search_output_bytes_max + 200
    count = output.details["count"]
    assert output.details["truncated"] is True
    assert output.content.endswith(
        f"[50 kB limit reached: {count} of 300 matches shown. Refine pattern or path.]"
    )
    around = desk.run("grep", pattern="needle", limit=300, context=1)
    assert around.content.endswith("matches shown. Refine pattern or path, or lower context.]")


@pytest.mark.parametrize(
    ("tool", "limit", "context", "reader"),
    [
        ("grep", "limit", "context", "view"),
        ("grep_dev", "max_results", "context_lines", "read_file"),
    ],
)
def test_what_is_said_of_rows_counts_none_for_which_there_was_no_room(
    desk, tool, limit, context, reader
):
    desk.write("a", (b"needle \xff\x1b" + b"x" * 600 + b"\n") * 500)
    for asked, beside, told in (
        (100, 0, "more than 100 matches shown. Refine pattern or path.]"),
        (100, 1, f"more than 100 matches shown. Refine pattern or path, or lower {context}.]"),
    ):
        given = {limit: asked, context: beside}
        said = desk.run(tool, pattern="needl[e]", **given).content.split("\n")
        shown = [row for row in said if row.startswith("a")]
        lines = {re.split("[:-]", row)[1] for row in shown}
        matches = sum(row.startswith("a:") for row in shown)
        assert 20 < matches < 100
        assert said[len(shown) :][:4] == [
            f"[50 kB limit reached: {matches} of {told}",
            f"[{len(lines)} lines cut at 500 characters. Use {reader} to see all of a line.]",
            f"[{len(lines)} lines hold bytes that are not UTF-8, shown as \\xNN.]",
            f"[{len(lines)} control or direction characters shown as \\xNN or \\uNNNN.]",
        ]


def test_lines_that_are_not_utf8_are_rows_and_that_is_said(desk):
    desk.write("a", b"caf\xe9 needle\n")
    output = desk.run("grep", pattern="needle")
    assert output.content == (
        "a:1:caf\\xe9 needle\n[1 line holds bytes that are not UTF-8, shown as \\xNN.]"
    )
    json.dumps(output.details).encode("utf-8")


def test_binary_files_have_no_rows(desk):
    desk.write("nul", b"needle\0\nneedle\n")
    desk.write("utf16", "needle\n".encode("utf-16-le"))
    desk.write("text", b"needle\n")
    assert rows(desk, pattern="needle") == ["text:1:needle"]


def test_a_binary_file_that_is_named_is_told_to_be_one(desk):
    desk.write("nul", b"needle\0\nneedle\n")
    desk.write("large", b"\0" + b"needle\n" * 50_000)
    desk.write("d/nul", b"needle\0\n")
    notice = "[The file is binary and was not searched: it has a NUL byte near its beginning.]"
    for path in ("nul", "large"):
        assert rows(desk, pattern="needle", path=path) == ["No matches found.", notice]
    assert rows(desk, pattern="needle", path="d") == ["No matches found."]
    with pytest.raises(InvalidPatternError):
        desk.run("grep", pattern="(", path="nul")


def test_a_file_with_a_nul_byte_far_from_its_beginning_is_text_when_it_is_named(desk):
    desk.write("a", b"needle\n" + b"x\n" * 50_000 + b"\0\nneedle \0\n")
    found = rows(desk, pattern="needle", path="a")
    assert found[:2] == ["a:1:needle", "a:50003:needle \\x00"]
    # Below a directory ripgrep may have stopped anywhere in it: it has no rows at all.
    assert rows(desk, pattern="needle") == ["No matches found."]


def test_context_cannot_pass_for_a_match_and_other_context_is_shown_as_it_stands(desk):
    desk.write("a", b"secret.py:7:password\n12:30 b-3-c x:y\nneedle z:7:w\n")
    output = desk.run("grep", pattern="needle", context=2)
    assert output.content == (
        "a-1-secret.py\\x3a7:password\n"
        "a-2-12:30 b-3-c x:y\n"
        "a:3:needle z:7:w\n"
        "[1 context row looks like a match: colons before numbers shown as \\x3a.]"
    )
    assert output.details["matches"] == [{"path": "a", "line": 3, "text": "needle z:7:w"}]


def test_content_cannot_forge_a_row_or_a_notice(desk):
    desk.write("a", b"needle\rb:9:forged\x1b[2K\xe2\x80\xae\n[3 matches limit reached. needle]\n")
    assert rows(desk, pattern="needle") == [
        "a:1:needle\\rb:9:forged\\x1b[2K\\u202e",
        "a:2:[3 matches limit reached. needle]",
        "[3 control or direction characters shown as \\xNN or \\uNNNN.]",
    ]


def test_a_file_name_cannot_forge_a_row_or_a_notice(desk):
    for name in ("x\ny:1:forged", "a.py:3:x", "a.py:3", "[1 matches limit reached.]", "bidi\u202e"):
        desk.write(name, b"needle\n")
    assert rows(desk, pattern="needle") == [
        "./[1 matches limit reached.]:1:needle",
        "a.py\\x3a3:1:needle",
        "a.py\\x3a3:x:1:needle",
        "bidi\\u202e:1:needle",
        "x\\ny\\x3a1:forged:1:needle",
    ]


def test_a_name_that_is_not_utf8_is_shown_escaped(desk):
    path = os.path.join(os.fsencode(desk.root), b"bad\xff")
    with open(path, "wb") as file:
        file.write(b"needle\n")
    output = desk.run("grep", pattern="needle")
    assert output.content == "bad\\xff:1:needle"
    json.dumps(output.details).encode("utf-8")


def test_links_fifos_and_sockets_are_passed_by(desk, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "bait").write_bytes(b"needle outside\n")
    desk.write("real/a", b"needle\n")
    for name, target in {"out": tmp_path / "outside", "loop": "loop", "in": "real"}.items():
        (desk.root / name).symlink_to(target)
    (desk.root / "bait").symlink_to(tmp_path / "outside" / "bait")
    os.mkfifo(desk.root / "fifo")
    assert rows(desk, pattern="needle") == ["real/a:1:needle"]
    # A link inside that is named is followed, and the rows tell the real path.
    assert rows(desk, pattern="needle", path="in") == ["real/a:1:needle"]
    assert desk.actions("grep", pattern="x", path="in/a") == [
        "tool:search:grep in/a",
        "tool:search:grep real/a",
    ]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("../x", PathTraversalError),
        ("out", PathTraversalError),
        ("/etc", PathTraversalError),
        ("nope", PathNotFoundError),
        ("fifo", SpecialFileError),
    ],
)
def test_a_path_that_cannot_be_searched_is_refused(desk, path, error):
    (desk.root / "out").symlink_to("/etc")
    os.mkfifo(desk.root / "fifo")
    with pytest.raises(error):
        desk.run("grep", pattern="root", path=path)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_what_may_not_be_shown_or_viewed_has_no_rows_and_does_not_count(desk, limit):
    desk.write("a", b"needle\n")
    desk.write("closed/x", b"needle\n" * 200)
    desk.write("secret.txt", b"needle\n" * 200)
    output = desk.run("grep", pattern="needle", limit=limit)
    assert output.content == "a:1:needle"
    assert output.details["truncated"] is False


def test_a_search_in_a_file_that_may_not_be_viewed_asks_to_view_it(desk):
    desk.write("closed/x", b"needle\n")
    desk.write("a", b"needle\n")
    asked = ["tool:search:grep closed/x", "tool:file:view closed/x"]
    assert desk.actions("grep", pattern="needle", path="closed/x") == asked
    # Decided on, it is searched.
    assert desk.run("grep", pattern="needle", path="closed/x").content == "closed/x:1:needle"
    for path in ("a", "closed", "closed/none", "."):
        whole = [f"tool:search:grep {path}"]
        assert desk.actions("grep", pattern="needle", path=path) == whole


def test_a_file_whose_viewing_nobody_decided_on_is_not_searched(desk):
    plan = desk.plan("grep", pattern="needle", path="closed/x")
    desk.write("closed/x", b"needle\n")
    with pytest.raises(PermissionDeniedError, match="'closed/x' may not be viewed"):
        desk.tool("grep").handler.run(plan, desk.ports)


def test_paddocks_temporary_files_are_not_searched(desk):
    desk.write(".paddock-" + "0" * 32 + ".tmp", b"needle\n")
    desk.write("a", b"needle\n")
    assert rows(desk, pattern="needle") == ["a:1:needle"]


@pytest.mark.parametrize("limit", [2, 100])
def test_an_unreadable_file_costs_a_warning_and_not_the_result(desk, limit):
    desk.write("a", b"needle\n")
    desk.write("shut", b"needle\n").chmod(0)
    desk.write("shut-dir/x", b"needle\n")
    desk.write("z", b"needle\n")
    (desk.root / "shut-dir").chmod(0)
    give_to_plain_user(desk.root)

    def search():
        assert rows(desk, pattern="needle", limit=limit) == [
            "a:1:needle",
            "z:1:needle",
            "[Not readable by this user: 'shut', 'shut-dir'.]",
        ]

    try:
        run_as_plain_user(search)
    finally:
        (desk.root / "shut-dir").chmod(0o755)


@pytest.mark.parametrize("pattern", ["needle", "n[e]+dle", "none"])
@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_directory_that_may_not_be_entered_is_refused_as_not_readable(desk, mode, pattern):
    desk.write("shut/a", b"needle\n")
    desk.write("open/a", b"needle\n")
    (desk.root / "shut").chmod(mode)
    (desk.root / "open").chmod(0o555)
    give_to_plain_user(desk.root)

    def search():
        words = "^cannot (read|list) 'shut': not readable by this user$"
        with pytest.raises(PathError, match=f"(?m){words}") as refusal:
            desk.run("grep", pattern=pattern, path="shut")
        assert refusal.value.code == "path.invalid"
        found = rows(desk, pattern=pattern, path="open")
        assert found == ["No matches found." if pattern == "none" else "open/a:1:needle"]

    try:
        run_as_plain_user(search)
    finally:
        for name in ("shut", "open"):
            (desk.root / name).chmod(0o755)


def test_a_root_that_may_be_listed_alone_is_refused_as_not_readable(desk):
    desk.write("a", b"needle\n")
    give_to_plain_user(desk.root)
    desk.root.chmod(0o444)

    def search():
        for tool in ("grep", "grep_dev"):
            with pytest.raises(
                PathError, match=r"(?m)^cannot read '\.': not readable by this user$"
            ):
                desk.run(tool, pattern="n[e]+dle")

    try:
        run_as_plain_user(search)
    finally:
        desk.root.chmod(0o755)


@pytest.mark.parametrize("pattern", ["needle", "n[e]+dle"])
def test_a_file_is_searched_as_deep_as_a_path_may_be_and_no_deeper_at_any_limit(desk, pattern):
    deepest = "/".join("d" * (limits.path_depth_max - 1))
    for name in ("a", f"{deepest}/f", f"{deepest}/d/f", f"{deepest}/d/d/d/f", "z"):
        desk.write(name, b"needle\n")
    notice = f"[Not searched (256 directories deep): {quote(f'{deepest}/d')}.]"
    expected = ["a:1:needle", f"{deepest}/f:1:needle", "z:1:needle"]
    for limit in (1, 2, 3, 100):
        found = rows(desk, pattern=pattern, limit=limit)
        assert [row for row in found if not row.startswith("[")] == expected[:limit]
    assert found == [*expected, notice]
    account = "[3 files searched.]"
    assert desk.run("grep_dev", pattern=pattern).content.split("\n") == [*found, account]
    for tool in ("grep", "grep_dev"):
        none = desk.run(tool, pattern=pattern, path=f"{deepest}/d").content.split("\n")
        assert none[:2] == ["No matches found.", notice]


def test_a_place_that_no_path_can_name_costs_a_warning_and_not_the_result(desk):
    desk.write("a", b"needle\n")
    dig(desk.root, "d" * 200, 25)

    found = rows(desk, pattern="needle")

    assert found[0] == "a:1:needle"
    assert found[1].startswith("[Not readable by this user: 'dddd")
    assert len(found) == 2


def test_an_action_names_the_resolved_path(desk):
    assert desk.actions("grep", pattern="x", path="./a/../b") == ["tool:search:grep b"]


class Cancelled:
    """A token of a call that nobody waits for any more, from the given look at it on."""

    def __init__(self, look: int = 1) -> None:
        self.look = look
        self.looks = 0

    @property
    def is_cancelled(self) -> bool:
        self.looks += 1
        return self.looks >= self.look

    def on_cancel(self, callback):
        callback()
        return callback


@pytest.mark.parametrize("name", ["grep", "find"])
def test_a_search_that_is_cancelled_ends_without_an_answer(desk, name):
    desk.write("a", b"needle\n")
    plan = desk.plan(name, pattern="n[e]*dle")
    with pytest.raises(StoppedCallError, match="(?m)^the call was cancelled$"):
        desk.tool(name).handler.run(plan, replace(desk.ports, cancel=Cancelled()))


@pytest.mark.parametrize(
    ("name", "pattern"), [("grep", "n[e]*dle"), ("grep", "needle"), ("find", "**/f*")]
)
def test_a_search_that_runs_ends_soon_after_it_is_cancelled_and_leaves_no_process(
    desk, name, pattern
):
    for number in range(400):
        desk.write(f"d{number % 7}/f{number}", b"a needle\n" * 3)
    plan = desk.plan(name, pattern=pattern)
    handler = desk.tool(name).handler
    whole = Cancelled(look=10**9)
    handler.run(plan, replace(desk.ports, cancel=whole))
    for look in range(1, whole.looks):
        token = Cancelled(look)
        try:
            handler.run(plan, replace(desk.ports, cancel=token))
        except StoppedCallError:
            assert token.looks >= look
        else:
            assert token.looks < look  # How often it is looked depends on how fast ripgrep is.
        # Every layer looks once more on its way out, and none begins anything.
        assert token.looks <= look + 12
    assert _ripgreps() == []


def _ripgreps() -> list[str]:
    """Programs of that name that this process has started and not ended."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = file.read_text().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        if name == "rg" and int(rest.split()[1]) == os.getpid():
            found.append(rest)
    return found


LINES = [b"alpha", b"end;", b"", b"tail  ", b"10% 50% done", b"price$ 3 end"]
LINES += [b"if (x) {", b"while (y) {", b"int a = 1;", b"return a"]
LINE_ENDS = {
    "alpha$": [1],
    "^$": [3],
    "[^;]$": [1, 4, 5, 6, 7, 8, 10],
    ".*$": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    r"\s+$": [4],
    "10%.*done$": [5],
    r"price\$.*end": [6],
    r"\w+pha[^;]$": [],
    "[$]": [6],
    # ripgrep looks for one of such literals first, and matches the lines by themselves.
    "(if|while).*[^{]$": [],
    "(if|while).*[{]$": [7, 8],
    r"(if|while).*\s$": [],
    r"\b(int|return)\b.*[^;]$": [10],
    r"^(alpha|tail)(\s+|$)": [1, 4],
    r"\A(if|while).*[^{]$": [],
    r"(alpha|done)$\W": [],
}


@pytest.mark.parametrize("pattern", LINE_ENDS)
def test_patterns_of_line_ends_find_the_same_lines_of_lf_crlf_and_mixed_files(desk, pattern):
    mixed = b"".join(line + (b"\r\n" if at % 2 else b"\n") for at, line in enumerate(LINES))
    desk.write("crlf", b"\r\n".join(LINES) + b"\r\n")
    desk.write("lf", b"\n".join(LINES) + b"\n")
    desk.write("mixed", mixed)
    found = desk.run("grep", pattern=pattern, limit=500).details["matches"]
    assert [(match["path"], match["line"]) for match in found] == [
        (name, line) for name in ("crlf", "lf", "mixed") for line in LINE_ENDS[pattern]
    ]


@pytest.mark.parametrize("pattern", [r"\r$", r"\x0d$", r"\x{d}$", r"\u000d$", "\r$", r"e\r?$"])
def test_a_pattern_that_names_cr_finds_it(desk, pattern):
    desk.write("crlf", b"one\r\n")
    desk.write("lf", b"two\n")
    assert rows(desk, pattern=pattern) == ["crlf:1:one"]


def test_a_lone_cr_is_a_character_but_for_a_pattern_with_a_dollar(desk):
    desk.write("a", b"10%\r50%\rdone\n")
    found = rows(desk, pattern="10%.*done")
    assert found[0] == "a:1:10%\\r50%\\rdone"
    assert rows(desk, pattern="^50%") == ["No matches found."]
    # It ends a line for ripgrep where `$` is to stand before CRLF.
    assert rows(desk, pattern="^10%$") == rows(desk, pattern="^50%$") == found
    assert rows(desk, pattern="10%.*done$") == ["No matches found."]


@pytest.mark.parametrize("size", [0, 2_000_000, 9_000_000], ids=["split", "held", "in pieces"])
@pytest.mark.parametrize("end", [b"", b"\r", b"\r\r", b"\n", b"\r\n"])
def test_a_last_line_is_found_by_its_end_with_and_without_a_line_end(desk, size, end):
    desk.write("a", b"pad\r\n" * (size // 5) + b"one end" + end)
    desk.write("b", b"two end" + end)
    number = size // 5 + 1
    for limit in (2, 100):
        found = desk.run("grep", pattern="(one|two) [^x]*d$", limit=limit).details["matches"]
        assert [(match["path"], match["line"]) for match in found] == [("a", number), ("b", 1)]
        assert rows(desk, pattern="(one|two).*[^d]$", limit=limit) == ["No matches found."]


def test_a_last_line_as_long_as_a_row_may_be_is_found_by_its_end(desk):
    for length in range(limits.search_row_bytes_max - 6, limits.search_row_bytes_max + 3):
        desk.write("a", b"x" * (length - 1) + b"y")
        assert len(desk.run("grep", pattern="xy$").details["matches"]) == 1


def test_a_turned_round_glob_leaves_out_a_directory_with_all_in_it_at_any_limit(desk):
    for name in ("b.py", "d/src/x.py", "d/y.py", "src/a.py", "src/deep/a.py"):
        desk.write(name, b"foo bar(1)\n" * 3)
    for glob, names in {
        "!src": ["b.py", "d/y.py"],
        "!src/": ["b.py", "d/y.py"],
        "!/src": ["b.py", "d/src/x.py", "d/y.py"],
        "!src/deep": ["b.py", "d/src/x.py", "d/y.py", "src/a.py"],
    }.items():
        expected = [f"{name}:{line}:foo bar(1)" for name in names for line in (1, 2, 3)]
        for limit in (1, len(expected), 100):
            shown = rows(desk, pattern="foo bar.1", glob=glob, limit=limit)
            assert shown[:limit] == expected[:limit]
        assert len(rows(desk, pattern="foo bar.1", glob=glob)) == len(expected)


@pytest.mark.parametrize(
    ("rules", "ignored"),
    [
        ("# b\u00e2timent\nbuild/\n".encode("latin-1"), "build/gen.py"),
        (b"tmp[[:digit:]]*/\n", "tmp12/gen.py"),
        (b"/none/xxxxxxxxxxxxxxxxxxxxxx\n" * 12_000 + b"*.log\n", "a.log"),
        (b"{" * 1000 + b"a" + b"}" * 1000 + b"\n*.log\n", "a.log"),
    ],
)
def test_rules_that_ripgrep_reads_otherwise_count_as_git_reads_them_at_any_limit(
    desk, rules, ignored
):
    desk.write(".gitignore", rules)
    desk.write(ignored, b"foo bar(1)\n")
    desk.write("z.py", b"foo bar(1)\n" * 2)
    expected = ["z.py:1:foo bar(1)", "z.py:2:foo bar(1)"]
    for limit in (1, 2, 100):
        assert rows(desk, pattern="foo bar.1", limit=limit)[:limit] == expected[:limit]
    assert rows(desk, pattern="foo bar.1") == expected


def test_a_glob_of_a_great_many_braces_is_an_error(desk):
    for glob in ("{" * 1000 + "a" + "}" * 1000, "{" * 200 + "a," * 120_000 + "}" * 200):
        with pytest.raises(InvalidPatternError) as refusal:
            desk.plan("grep", pattern="x", glob=glob)
        assert refusal.value.code == "pattern.invalid"
        assert len(refusal.value.message) < 500
