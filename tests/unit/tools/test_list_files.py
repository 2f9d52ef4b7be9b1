"""list_files: names, types and sizes; the count is real and the cut is said."""

import os

import pytest

from paddock.errors import (
    InvalidArgumentsError,
    InvalidPatternError,
    PathNotADirectoryError,
    PathNotFoundError,
    PathTraversalError,
)


def test_a_tree_is_listed_with_types_and_sizes_in_byte_order(desk):
    desk.write("b/c.txt", b"123")
    desk.write("a.txt", b"1")
    desk.write("B.txt", b"")
    output = desk.run("list_files")
    assert output.details == {
        "root": ".",
        "count": 4,
        "files": [
            {"path": "B.txt", "type": "file", "size": 0},
            {"path": "a.txt", "type": "file", "size": 1},
            {"path": "b/", "type": "dir"},
            {"path": "b/c.txt", "type": "file", "size": 3},
        ],
        "truncated": False,
    }
    assert output.content == "B.txt  0 bytes\na.txt  1 bytes\nb/\nb/c.txt  3 bytes"


def test_hidden_directories_and_caches_are_left_out_and_hidden_files_are_not(desk):
    for name in (".git/config", ".cache/x", "__pycache__/m.pyc", "a/__pycache__/n", "a/.b/c"):
        desk.write(name, b"x")
    desk.write(".gitignore", b"x")
    desk.write("a/.keep", b"x")
    listed = [file["path"] for file in desk.run("list_files").details["files"]]
    assert listed == [".gitignore", "a/", "a/.keep"]


def test_what_may_not_be_shown_is_not_there(desk):
    desk.write("secret.txt", b"x")
    desk.write("open.txt", b"x")
    (desk.root / "alias").symlink_to("secret.txt")
    output = desk.run("list_files")
    assert [file["path"] for file in output.details["files"]] == ["open.txt"]
    assert "secret" not in output.content
    assert output.details["count"] == 1


def test_links_that_lead_out_or_nowhere_are_left_out_and_not_counted(desk, tmp_path):
    desk.write("real/file", b"x")
    links = {"in": "real", "file": "real/file", "out": tmp_path, "gone": "x", "proc": "/proc/self"}
    for name, target in links.items():
        (desk.root / name).symlink_to(target)
    os.mkfifo(desk.root / "fifo")
    output = desk.run("list_files")
    assert output.details["files"] == [
        {"path": "file", "type": "file"},
        {"path": "in/", "type": "dir"},
        {"path": "real/", "type": "dir"},
        {"path": "real/file", "type": "file", "size": 1},
    ]
    assert output.details["count"] == 4
    assert output.content == "file  link\nin/  link\nreal/\nreal/file  1 bytes"


def test_a_linked_directory_is_not_entered(desk):
    desk.write("real/deep/file", b"x")
    (desk.root / "real" / "loop").symlink_to("..")
    listed = [file["path"] for file in desk.run("list_files", max_depth=5).details["files"]]
    assert listed == ["real/", "real/deep/", "real/deep/file", "real/loop/"]


def test_the_glob_chooses_files_and_directories_stay(desk):
    for name in ("a/x.py", "a/x.md", "y.py", "z.PY"):
        desk.write(name, b"")
    output = desk.run("list_files", glob="*.py")
    assert [file["path"] for file in output.details["files"]] == ["a/", "a/x.py", "y.py"]
    with pytest.raises(InvalidPatternError, match="has a slash"):
        desk.run("list_files", glob="**/*.py")


@pytest.mark.parametrize(("asked", "used"), [(0, 1), (-3, 1), (1, 1), (5, 5), (6, 5), (99, 5)])
def test_the_depth_is_clamped_and_that_is_known(desk, asked, used):
    desk.write("1/2/3/4/5/6/file", b"")
    bound, clamped = desk.tool("list_files").binder.bind({"max_depth": asked})
    assert bound.max_depth == used
    assert clamped == ({} if asked == used else {"max_depth": used})
    deepest = desk.run("list_files", max_depth=asked).details["files"][-1]["path"]
    assert deepest == "/".join("12345"[:used]) + "/"


def test_three_levels_are_the_default(desk):
    desk.write("1/2/3/4", b"")
    listed = [file["path"] for file in desk.run("list_files").details["files"]]
    assert listed == ["1/", "1/2/", "1/2/3/"]


def test_five_hundred_are_listed_all_are_counted_and_the_cut_is_said(desk):
    for number in range(512):
        desk.write(f"f{number:04}", b"")
    (desk.root / "e-link-out").symlink_to("/")
    output = desk.run("list_files")
    assert len(output.details["files"]) == 500
    assert (output.details["count"], output.details["truncated"]) == (512, True)
    assert output.content.endswith(
        "f0499  0 bytes\n[500 of 512 entries listed; list a subdirectory, or use glob or max_depth]"
    )


def test_a_name_cannot_forge_a_row_or_a_notice(desk):
    desk.write("a\n[500 of 9 entries listed]\u202e", b"")
    output = desk.run("list_files")
    assert output.content == "a\\n[500 of 9 entries listed]\\u202e  0 bytes"


def test_a_links_name_passes_for_no_notice(desk):
    desk.write("a", b"")
    (desk.root / "[nothing to list]").symlink_to("a")
    assert desk.run("list_files").content == "./[nothing to list]  link\na  0 bytes"


def test_a_links_name_passes_for_no_file(desk):
    desk.write("z", b"12345")
    (desk.root / "y  5 bytes").symlink_to("z")
    assert desk.run("list_files").content == "y  5 bytes  link\nz  5 bytes"


def test_a_name_that_is_not_utf8_is_shown_escaped(desk):
    with open(os.fsencode(desk.root) + b"/caf\xe9", "wb"):
        pass
    [file] = desk.run("list_files").details["files"]
    assert file["path"] == "caf\\xe9"


def test_the_root_is_named_as_it_was_asked_for_and_paths_are_from_the_workspace(desk):
    desk.write("a/b", b"")
    for given in ("a", "./a/", f"{desk.root}/a"):
        details = desk.run("list_files", path=given).details
        assert details["root"] == given
        assert [file["path"] for file in details["files"]] == ["a/b"]


def test_an_empty_directory_says_so(desk):
    assert desk.run("list_files").content == "[nothing to list]"


def test_what_is_no_directory_is_refused(desk):
    desk.write("file", b"x")
    with pytest.raises(PathNotFoundError, match="(?m)^directory not found: 'nope'$"):
        desk.run("list_files", path="nope")
    with pytest.raises(PathNotADirectoryError, match="(?m)^directory not found: 'file'$"):
        desk.run("list_files", path="file")
    for path in ("..", "/", "/etc"):
        with pytest.raises(PathTraversalError, match="path escapes root"):
            desk.run("list_files", path=path)
    with pytest.raises(InvalidArgumentsError, match="path must not be empty"):
        desk.run("list_files", path="")


def test_it_is_judged_as_a_listing(desk):
    desk.write("a/b", b"")
    assert desk.actions("list_files") == ["tool:search:ls ."]
    assert desk.actions("list_files", path="./a/") == ["tool:search:ls a"]
