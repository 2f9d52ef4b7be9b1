"""create_file: a whole file, atomically, where it is allowed to stand."""

import os

import pytest

from paddock import limits
from paddock.errors import (
    BinaryFileError,
    FileChangedError,
    InvalidPathError,
    PathNotAFileError,
    PathThroughLinkError,
    PathTraversalError,
    ReadOnlyPathError,
    SpecialFileError,
    TextTooLargeError,
)
from paddock.tools.spec import Change
from paddock.workspace import version_of


def test_a_new_file_is_created_with_its_parents(desk):
    output = desk.run("create_file", path="a/b/c.txt", content="one\ntwo\n")
    assert desk.tree() == {"a/b/c.txt": b"one\ntwo\n"}
    assert output.details == {
        "path": f"{desk.root}/a/b/c.txt",
        "action": "created",
        "content_snippet": "     1\tone\n     2\ttwo",
        "bytes_written": 8,
        "version": version_of(b"one\ntwo\n"),
        "success": True,
        "error": None,
    }
    assert output.changes == (
        Change("a/b/c.txt", "created", None, version_of(b"one\ntwo\n"), made=("a", "a/b")),
    )
    assert output.content == "created a/b/c.txt (8 bytes)\n     1\tone\n     2\ttwo"


def test_an_existing_file_is_overwritten_and_the_diff_is_shown(desk):
    desk.write("a.txt", b"old\nsame\n")
    output = desk.run("create_file", path="a.txt", content="new\nsame\n")
    assert desk.tree() == {"a.txt": b"new\nsame\n"}
    assert output.details["action"] == "overwritten"
    assert output.details["content_snippet"] == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-old\n+new\n same"
    )
    assert output.changes[0].before == version_of(b"old\nsame\n")


def test_a_binary_file_can_be_overwritten_and_no_diff_is_invented(desk):
    desk.write("a.bin", os.urandom(200_000))
    output = desk.run("create_file", path="a.bin", content="text\n")
    assert desk.tree() == {"a.bin": b"text\n"}
    assert output.details["content_snippet"].startswith("[no diff")


def test_bytes_are_counted_as_utf8(desk):
    assert desk.run("create_file", path="a", content="é€").details["bytes_written"] == 5


def test_an_empty_file_can_be_created(desk):
    output = desk.run("create_file", path="empty", content="")
    assert (desk.tree(), output.content) == ({"empty": b""}, "created empty (0 bytes)")


def test_the_whole_answer_is_relative_to_the_root(desk):
    output = desk.run("create_file", path=str(desk.root / "a.txt"), content="x")
    assert str(desk.root) not in output.content
    assert desk.tree() == {"a.txt": b"x"}


def test_the_action_is_creating_the_resolved_path(desk):
    assert desk.actions("create_file", path="./a//b.txt", content="") == [
        "tool:file:create a/b.txt"
    ]


def test_a_write_to_a_link_goes_to_its_target_and_both_are_judged(desk):
    desk.write("real.txt", b"old")
    (desk.root / "link.txt").symlink_to("real.txt")
    assert desk.actions("create_file", path="link.txt", content="new") == [
        "tool:file:create link.txt",
        "tool:file:create real.txt",
    ]
    desk.run("create_file", path="link.txt", content="new")
    assert desk.tree() == {"real.txt": b"new", "link.txt": "real.txt"}


def test_mode_bits_survive_an_overwrite(desk):
    path = desk.write("run.sh", b"#!/bin/sh\n")
    path.chmod(0o755)
    desk.run("create_file", path="run.sh", content="#!/bin/bash\n")
    assert path.stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("../out.txt", PathTraversalError),
        ("a/../../out.txt", PathTraversalError),
        ("/etc/out.txt", PathTraversalError),
        ("out/file.txt", PathTraversalError),
        ("in/file.txt", PathThroughLinkError),
        ("to-outside", PathTraversalError),
        ("a\0b", InvalidPathError),
        ("a\nb", InvalidPathError),
        ("dir", PathNotAFileError),
        ("fifo", SpecialFileError),
        ("readonly.txt", ReadOnlyPathError),
    ],
)
def test_a_path_that_may_not_be_written_is_refused_and_nothing_changes(desk, path, error):
    outside = desk.root.parent / "outside"
    outside.mkdir()
    (outside / "victim").write_bytes(b"untouched")
    desk.write("dir/inner.txt", b"inner")
    (desk.root / "out").symlink_to(outside)
    (desk.root / "to-outside").symlink_to(outside / "victim")
    (desk.root / "in").symlink_to("dir")
    os.mkfifo(desk.root / "fifo")
    desk.write("readonly.txt", b"fixed").chmod(0o444)
    before = desk.tree()
    with pytest.raises(error):
        desk.run("create_file", path=path, content="gotcha")
    assert desk.tree() == before
    assert sorted(path.name for path in outside.iterdir()) == ["victim"]
    assert (outside / "victim").read_bytes() == b"untouched"


def test_a_sibling_whose_name_begins_like_the_root_is_outside(desk):
    evil = desk.root.parent / "work-evil"
    evil.mkdir()
    with pytest.raises(PathTraversalError, match="path escapes root"):
        desk.run("create_file", path=str(evil / "x"), content="x")
    assert list(evil.iterdir()) == []


def test_a_percent_encoded_name_is_a_plain_file_name(desk):
    desk.run("create_file", path="%2e%2e/x", content="x")
    assert desk.tree() == {"%2e%2e/x": b"x"}


def test_content_with_a_nul_is_refused_and_leaves_no_directory(desk):
    with pytest.raises(BinaryFileError):
        desk.run("create_file", path="new/a.txt", content="a\0b")
    assert list(desk.root.iterdir()) == []


def test_content_over_the_limit_is_refused(desk):
    with pytest.raises(TextTooLargeError):
        desk.run("create_file", path="a", content="x" * (limits.content_bytes_max + 1))
    assert desk.tree() == {}


def test_if_version_that_holds_lets_the_write_through(desk):
    desk.write("a", b"one")
    desk.run("create_file", path="a", content="two", if_version=version_of(b"one"))
    assert desk.tree() == {"a": b"two"}


def test_if_version_that_does_not_hold_is_refused_and_the_file_stands(desk):
    desk.write("a", b"other")
    with pytest.raises(FileChangedError):
        desk.run("create_file", path="a", content="two", if_version=version_of(b"one"))
    assert desk.tree() == {"a": b"other"}


def test_absent_as_version_creates_and_never_overwrites(desk):
    desk.run("create_file", path="a", content="one", if_version="absent")
    with pytest.raises(FileChangedError):
        desk.run("create_file", path="a", content="two", if_version="absent")
    assert desk.tree() == {"a": b"one"}


def test_a_pinned_plan_runs_only_on_what_was_there(desk):
    desk.write("a", b"one")
    from paddock.tools.write import CreateFile

    plan, digest = CreateFile().pin(desk.plan("create_file", path="a", content="two"), desk.ports)
    assert digest == version_of(b"one")
    desk.write("a", b"changed meanwhile")
    with pytest.raises(FileChangedError):
        CreateFile().run(plan, desk.ports)
    assert desk.tree() == {"a": b"changed meanwhile"}


def test_a_file_that_may_not_be_viewed_is_not_shown_by_overwriting_it(desk):
    desk.write("closed/a", b"hidden text\n")
    output = desk.run("create_file", path="closed/a", content="new\n")
    assert desk.tree() == {"closed/a": b"new\n"}
    assert "hidden" not in output.content
    assert "hidden" not in str(output.details)
