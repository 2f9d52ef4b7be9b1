import json
import os

import pytest

from paddock import limits
from paddock.errors import (
    InvalidArgumentsError,
    InvalidPathError,
    InvalidPatternError,
    PathNotADirectoryError,
    PathNotFoundError,
    PathTraversalError,
)
from paddock.text.show import quote
from tests.support.users import give_to_plain_user, run_as_plain_user


def rows(desk, **arguments):
    return desk.run("find", **arguments).content.split("\n")


def test_files_are_found_by_name_at_any_depth_in_byte_order(desk):
    for name in ("b/x.py", "b.py", "b-1.py", "B.py", "b/y/z.py", "n.txt"):
        desk.write(name, b"")
    output = desk.run("find", pattern="*.py")
    expected = ["B.py", "b-1.py", "b.py", "b/x.py", "b/y/z.py"]
    assert output.content.split("\n") == expected
    assert output.details == {
        "summary": "5 entries",
        "count": 5,
        "truncated": False,
        "paths": expected,
    }


def test_directories_are_found_too_and_end_in_a_slash(desk):
    desk.write("src/src/a", b"")
    desk.write("lib/src", b"")
    assert rows(desk, pattern="src") == ["lib/src", "src/", "src/src/"]
    assert rows(desk, pattern="src/") == ["src/", "src/src/"]


def test_a_directory_without_a_file_that_counts_is_none(desk):
    desk.write(".gitignore", b"*.o\n")
    (desk.root / "empty").mkdir()
    desk.write("full/deep/x", b"")
    desk.write("objects/a.o", b"")
    assert rows(desk, pattern="*") == [".gitignore", "full/", "full/deep/", "full/deep/x"]


def test_a_pattern_with_a_slash_matches_the_path_below_the_searched_directory(desk):
    for name in ("src/a.ts", "src/x/b.ts", "c.ts", "lib/src/d.ts"):
        desk.write(name, b"")
    assert rows(desk, pattern="src/**/*.ts") == ["src/a.ts", "src/x/b.ts"]
    assert rows(desk, pattern="**/*.ts") == ["c.ts", "lib/src/d.ts", "src/a.ts", "src/x/b.ts"]
    assert rows(desk, pattern="/*.ts") == ["c.ts"]
    assert rows(desk, pattern="src/*", path="lib") == ["lib/src/d.ts"]
    assert rows(desk, pattern="*.{ts,js}", path="src/x") == ["src/x/b.ts"]


def test_nothing_found_says_so(desk):
    output = desk.run("find", pattern="*.py")
    assert output.content == "No files found."
    assert (output.details["count"], output.details["truncated"]) == (0, False)


def test_the_limit_cuts_in_order_and_says_how_to_get_more(desk):
    for number in range(20):
        desk.write(f"d{number % 3}/f{number:02d}", b"")
    everything = rows(desk, pattern="f*")
    assert everything == sorted(everything)
    output = desk.run("find", pattern="f*", limit=7)
    notice = "[7 results limit reached. Use limit=14 for more, or refine pattern.]"
    assert output.content.split("\n") == [*everything[:7], notice]
    assert (output.details["count"], output.details["truncated"]) == (7, True)
    assert rows(desk, pattern="f*", limit=20) == everything


def test_five_thousand_entries_are_the_most(desk):
    desk.write("d/x", b"")
    for number in range(5_001):
        (desk.root / "d" / f"f{number}").touch()
    assert rows(desk, pattern="f*")[-1] == (
        "[1000 results limit reached. Use limit=2000 for more, or refine pattern.]"
    )
    assert rows(desk, pattern="f*", limit=5_000)[-1] == (
        "[5000 results limit reached. Refine pattern.]"
    )


@pytest.mark.parametrize("limit", [0, 5_001, "1"])
def test_a_limit_out_of_range_is_an_error(desk, limit):
    with pytest.raises(InvalidArgumentsError, match="^limit must be"):
        desk.plan("find", pattern="*", limit=limit)


def test_a_missing_pattern_is_an_error(desk):
    with pytest.raises(InvalidArgumentsError, match="(?m)^pattern is required$"):
        desk.plan("find", pattern="")


@pytest.mark.parametrize("pattern", ["{a", "a}", "[", "a//b", "../**", "a\\"])
def test_a_glob_that_can_match_nothing_is_an_error(desk, pattern):
    with pytest.raises(InvalidPatternError) as refusal:
        desk.plan("find", pattern=pattern)
    assert refusal.value.code == "pattern.invalid"


def test_an_absolute_glob_is_refused_and_does_not_find_nothing(desk):
    desk.write("src/a.ts", b"x\n")
    pattern = f"{desk.root}/src/*.ts"
    given = {
        "find": {"pattern": pattern},
        "grep": {"pattern": "x", "glob": pattern},
        "grep_dev": {"pattern": "x", "glob": pattern},
    }
    for tool, arguments in given.items():
        with pytest.raises(InvalidPatternError) as refusal:
            desk.plan(tool, **arguments)
        assert refusal.value.hint.startswith("write it relative to the searched directory")
    assert rows(desk, pattern="/src/*.ts") == ["src/a.ts"]


def test_a_glob_of_many_stars_takes_no_time(desk):
    desk.write("a" * 200, b"")
    assert rows(desk, pattern="*a" * 60 + "*b") == ["No files found."]
    assert rows(desk, pattern="**/a*" * 20 + "*b") == ["No files found."]


def test_hidden_entries_are_found_and_git_and_node_modules_are_not(desk):
    for name in (".github/w.yml", ".git/w.yml", "node_modules/w.yml", "a/node_modules/b/w.yml"):
        desk.write(name, b"")
    assert rows(desk, pattern="w.yml") == [".github/w.yml"]
    assert rows(desk, pattern="node_modules") == ["No files found."]


def test_gitignore_is_honoured_nested_and_above_but_not_above_the_root(desk):
    (desk.root.parent / ".gitignore").write_bytes(b"*\n")
    desk.write(".gitignore", b"*.log\n/sub/no\n")
    desk.write("sub/.gitignore", b"!yes.log\n")
    for name in ("a.log", "sub/no", "sub/yes.log", "sub/deep/b.log", "sub/deep/c"):
        desk.write(name, b"")
    assert rows(desk, pattern="*", path="sub") == [
        "sub/.gitignore",
        "sub/deep/",
        "sub/deep/c",
        "sub/yes.log",
    ]


def test_links_and_special_files_are_not_found(desk, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.txt").write_bytes(b"")
    desk.write("x.txt", b"")
    for name, target in {"out": tmp_path / "outside", "l.txt": "x.txt", "loop": "loop"}.items():
        (desk.root / name).symlink_to(target)
    os.mkfifo(desk.root / "f.txt")
    assert rows(desk, pattern="*.txt") == ["x.txt"]
    assert rows(desk, pattern="*") == ["x.txt"]


def test_a_file_name_cannot_forge_a_row_or_a_notice(desk):
    notice = "[1000 results limit reached. Use limit=2000 for more, or refine pattern.]"
    for name in ("a\nb", notice, "No files found.", "bidi\u202e"):
        desk.write(name, b"")
    assert rows(desk, pattern="*") == ["./No files found.", f"./{notice}", "a\\nb", "bidi\\u202e"]


def test_a_name_that_is_not_utf8_is_shown_escaped_and_stands_in_byte_order(desk):
    for name in (b"bad\xff", "bad\u20ac".encode(), b"bad"):
        with open(os.path.join(os.fsencode(desk.root), name), "wb"):
            pass
    output = desk.run("find", pattern="bad*")
    assert output.content.split("\n") == ["bad", "bad\u20ac", "bad\\xff"]
    json.dumps(output.details).encode("utf-8")


@pytest.mark.parametrize("limit", [1, 1000])
def test_what_is_secret_is_not_found_and_does_not_count(desk, limit):
    desk.write("secret.txt", b"")
    desk.write("closed/open.txt", b"")
    output = desk.run("find", pattern="*.txt", limit=limit)
    # What may not be viewed keeps its name.
    assert output.content == "closed/open.txt"
    assert output.details["truncated"] is False


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("../x", PathTraversalError),
        ("out", PathTraversalError),
        ("nope", PathNotFoundError),
        ("file", PathNotADirectoryError),
    ],
)
def test_a_path_that_cannot_be_searched_is_refused(desk, path, error):
    desk.write("file", b"")
    (desk.root / "out").symlink_to("/etc")
    with pytest.raises(error):
        desk.run("find", pattern="*", path=path)


def test_an_unreadable_directory_costs_a_warning_and_not_the_result(desk):
    desk.write("a", b"")
    desk.write("shut/x", b"")
    (desk.root / "shut").chmod(0)
    give_to_plain_user(desk.root)

    def search():
        assert rows(desk, pattern="*") == ["a", "[Not readable by this user: 'shut'.]"]

    try:
        run_as_plain_user(search)
    finally:
        (desk.root / "shut").chmod(0o755)


def test_an_action_names_the_resolved_path(desk):
    desk.write("d/x", b"")
    (desk.root / "l").symlink_to("d")
    assert desk.actions("find", pattern="*", path="l") == [
        "tool:search:find l",
        "tool:search:find d",
    ]


def test_a_turned_round_glob_leaves_out_a_directory_with_all_in_it(desk):
    for name in ("b.py", "d/src/x.py", "d/y.py", "e/src/x.py", "src/a.py"):
        desk.write(name, b"")
    # Of e nothing is left, so it is not there.
    assert rows(desk, pattern="!src") == ["b.py", "d/", "d/y.py"]
    assert rows(desk, pattern="!/src") == [
        *("b.py", "d/", "d/src/", "d/src/x.py", "d/y.py"),
        *("e/", "e/src/", "e/src/x.py"),
    ]


def test_a_file_is_found_as_deep_as_a_path_may_be_and_no_deeper(desk):
    deepest = "/".join("d" * (limits.path_depth_max - 1))
    for name in ("f", f"{deepest}/f", f"{deepest}/d/f", f"{deepest}/d/d/d/f", f"{deepest}/e/g"):
        desk.write(name, b"needle\n")
    notice = "[Not searched (256 directories deep): {}.]"
    below = notice.format(quote(f"{deepest}/d"))
    both = notice.format(f"{quote(f'{deepest}/d')}, {quote(f'{deepest}/e')}")
    found = desk.run("find", pattern="[fg]")
    assert found.content.split("\n") == [f"{deepest}/f", "f", both]
    assert found.details["truncated"] is False
    assert desk.run("view", path=f"{deepest}/f").content == "     1\tneedle"
    with pytest.raises(InvalidPathError, match="257 components deep, over 256"):
        desk.run("view", path=f"{deepest}/d/f")
    cut = "[1 results limit reached. Use limit=2 for more, or refine pattern.]"
    assert rows(desk, pattern="[fg]", limit=1) == [f"{deepest}/f", cut]
    assert rows(desk, pattern="[fg]", path=f"{deepest}/d") == ["No files found.", below]
    desk.write(".gitignore", b"e/\n")
    assert rows(desk, pattern="[fg]") == [f"{deepest}/f", "f", below]


def test_a_line_of_braces_in_gitignore_is_passed_over(desk):
    desk.write(".gitignore", b"{" * 1000 + b"a" + b"}" * 1000 + b"\n*.log\n")
    desk.write("a.log", b"")
    desk.write("a.txt", b"")
    assert rows(desk, pattern="a*") == ["a.txt"]


@pytest.mark.parametrize("braces", [17, 1000, 10_000])
def test_a_pattern_of_a_great_many_braces_is_an_error(desk, braces):
    with pytest.raises(InvalidPatternError) as refusal:
        desk.plan("find", pattern="{" * braces + "a" + "}" * braces)
    assert refusal.value.code == "pattern.invalid"
