"""write_file_dev: whole or not at all, in bytes, and parents only when asked."""

import pytest

from paddock import limits
from paddock.errors import (
    BinaryFileError,
    FileChangedError,
    InvalidArgumentsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    PathThroughLinkError,
    PathTraversalError,
    TextTooLargeError,
)
from paddock.tools.spec import Change
from paddock.workspace import version_of


def test_a_file_is_written_and_its_bytes_are_counted(desk):
    output = desk.run("write_file_dev", path="./a.txt", content="é\n")
    assert output.details == {
        "path": "./a.txt",
        "bytes_written": 3,
        "created_dirs": False,
        "version": version_of("é\n".encode()),
    }
    assert output.content == "created a.txt (3 bytes)"
    assert output.changes == (Change("a.txt", "created", None, version_of("é\n".encode())),)
    assert output.bytes_written == 3
    assert desk.tree() == {"a.txt": "é\n".encode()}


def test_an_existing_file_is_replaced_and_keeps_its_mode(desk):
    desk.write("a", b"old").chmod(0o640)
    output = desk.run("write_file_dev", path="a", content="")
    assert output.content == "overwritten a (0 bytes)"
    assert desk.tree() == {"a": b""}
    assert (desk.root / "a").stat().st_mode & 0o777 == 0o640


def test_a_missing_parent_is_an_error_unless_it_is_to_be_made(desk):
    with pytest.raises(PathNotFoundError, match="the directory of 'x/y/a' does not exist"):
        desk.run("write_file_dev", path="x/y/a", content="1")
    assert list(desk.root.iterdir()) == []
    output = desk.run("write_file_dev", path="x/y/a", content="1", create_dirs=True)
    assert output.details["created_dirs"] is True
    assert output.changes == (
        Change("x/y/a", "created", None, version_of(b"1"), made=("x", "x/y")),
    )
    assert desk.tree() == {"x/y/a": b"1"}
    again = desk.run("write_file_dev", path="x/y/b", content="1", create_dirs=True)
    assert again.details["created_dirs"] is False


@pytest.mark.parametrize("text", ["x", "é"])
def test_over_a_megabyte_of_utf8_is_refused_and_a_megabyte_is_not(desk, text):
    size = len(text.encode())
    most = text * (limits.dev_content_bytes_max // size)
    assert desk.run("write_file_dev", path="a", content=most).details["bytes_written"] == 1_000_000
    with pytest.raises(TextTooLargeError, match="(?m)^content exceeds 1MB limit$"):
        desk.run("write_file_dev", path="a", content=most + text)
    assert desk.tree()["a"] == most.encode()


def test_what_cannot_be_written_leaves_everything_as_it_was(desk, tmp_path):
    desk.write("file", b"kept")
    (desk.root / "dir").mkdir()
    (desk.root / "linked").symlink_to("dir")
    (desk.root / "out").symlink_to(tmp_path)
    before = desk.tree()
    for path, error in (
        ("dir", PathNotAFileError),
        (".", PathNotAFileError),
        ("new/", PathNotAFileError),
        ("file/x", PathNotADirectoryError),
        ("linked/x", PathThroughLinkError),
        ("out/x", PathTraversalError),
        ("../x", PathTraversalError),
    ):
        with pytest.raises(error):
            desk.run("write_file_dev", path=path, content="1", create_dirs=True)
    with pytest.raises(BinaryFileError):
        desk.run("write_file_dev", path="file", content="a\0")
    assert desk.tree() == before
    assert not (tmp_path / "x").exists()


def test_if_version_guards_the_write_on_both_sides(desk):
    desk.write("a", b"one")
    desk.run("write_file_dev", path="a", content="two", if_version=version_of(b"one"))
    with pytest.raises(FileChangedError):
        desk.run("write_file_dev", path="a", content="three", if_version=version_of(b"one"))
    with pytest.raises(FileChangedError):
        desk.run("write_file_dev", path="a", content="three", if_version="absent")
    assert desk.tree() == {"a": b"two"}
    desk.run("write_file_dev", path="b", content="new", if_version="absent")
    assert desk.tree() == {"a": b"two", "b": b"new"}


def test_a_pinned_plan_runs_only_on_what_was_there(desk):
    handler = desk.tool("write_file_dev").handler
    plan, version = handler.pin(desk.plan("write_file_dev", path="a", content="x"), desk.ports)
    assert version == "absent"
    desk.write("a", b"came meanwhile")
    with pytest.raises(FileChangedError):
        handler.run(plan, desk.ports)
    assert desk.tree() == {"a": b"came meanwhile"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"content": "x"}, "path is required"),
        ({"path": "", "content": "x"}, "path is required"),
        ({"path": "a"}, "content is required"),
        ({"path": "a", "content": None}, "content must be a string, not null"),
        ({"path": "a", "content": "", "create_dirs": "true"}, "create_dirs must be a boolean"),
        ({"path": "a", "content": "", "mode": "0777"}, "unknown argument 'mode'"),
    ],
)
def test_arguments_that_are_wrong_name_the_field(desk, arguments, message):
    with pytest.raises(InvalidArgumentsError, match=message):
        desk.plan("write_file_dev", **arguments)


def test_it_is_judged_as_creating_the_real_path(desk):
    desk.write("real", b"")
    (desk.root / "link").symlink_to("real")
    assert desk.actions("write_file_dev", path="a/./b", content="") == ["tool:file:create a/b"]
    assert desk.actions("write_file_dev", path="link", content="") == [
        "tool:file:create link",
        "tool:file:create real",
    ]
