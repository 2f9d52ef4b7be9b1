"""move_file and delete_file: the entry itself, never over anything, never a link's target."""

import os

import pytest

from paddock.errors import (
    DirectoryNotEmptyError,
    FileChangedError,
    InvalidPathError,
    PathExistsError,
    PathNotFoundError,
    PathThroughLinkError,
    PathTraversalError,
    SpecialFileError,
)
from paddock.tools.spec import Change
from paddock.workspace import version_of


def test_a_file_moves_and_directories_on_the_way_are_made(desk):
    desk.write("a", b"x")
    output = desk.run("move_file", path="a", to="new/dir/b")
    assert desk.tree() == {"new/dir/b": b"x"}
    assert output.details == {
        "path": f"{desk.root}/a",
        "to": f"{desk.root}/new/dir/b",
        "action": "moved",
        "success": True,
        "error": None,
    }
    digest = version_of(b"x")
    assert output.changes == (
        Change("a", "moved", digest, digest, to="new/dir/b", made=("new", "new/dir")),
    )
    assert output.content == "moved a to new/dir/b"


def test_a_move_is_a_deletion_and_a_creation(desk):
    desk.write("a", b"x")
    assert desk.actions("move_file", path="a", to="b") == [
        "tool:file:delete a",
        "tool:file:create b",
    ]


def test_a_move_never_overwrites(desk):
    desk.write("a", b"x")
    desk.write("b", b"y")
    with pytest.raises(PathExistsError):
        desk.run("move_file", path="a", to="b")
    assert desk.tree() == {"a": b"x", "b": b"y"}


def test_a_link_moves_itself(desk):
    desk.write("real", b"x")
    (desk.root / "link").symlink_to("real")
    desk.run("move_file", path="link", to="other")
    assert desk.tree() == {"real": b"x", "other": "real"}


def test_a_link_that_leads_out_moves_itself_and_its_target_stays(desk):
    outside = desk.root.parent / "victim"
    outside.write_bytes(b"x")
    (desk.root / "link").symlink_to(outside)
    desk.run("move_file", path="link", to="other")
    assert (outside.read_bytes(), desk.tree()) == (b"x", {"other": str(outside)})


def test_an_empty_directory_moves_and_a_full_one_does_not(desk):
    (desk.root / "empty").mkdir()
    desk.write("full/a", b"x")
    desk.run("move_file", path="empty", to="moved")
    assert (desk.root / "moved").is_dir()
    with pytest.raises(DirectoryNotEmptyError):
        desk.run("move_file", path="full", to="moved2")
    assert desk.tree() == {"full/a": b"x"}


@pytest.mark.parametrize(
    ("path", "to", "error"),
    [
        ("a", "../b", PathTraversalError),
        ("../a", "b", PathTraversalError),
        ("nope", "b", PathNotFoundError),
        (".", "b", InvalidPathError),
        ("in/x", "b", PathThroughLinkError),
        ("a", "in/b", PathThroughLinkError),
        ("fifo", "b", SpecialFileError),
    ],
)
def test_a_move_that_may_not_be_is_refused_and_nothing_changes(desk, path, to, error):
    desk.write("a", b"x")
    desk.write("d/x", b"y")
    (desk.root / "in").symlink_to("d")
    os.mkfifo(desk.root / "fifo")
    before = desk.tree()
    with pytest.raises(error):
        desk.run("move_file", path=path, to=to)
    assert desk.tree() == before


def test_if_version_guards_a_move_on_both_sides(desk):
    desk.write("a", b"x")
    with pytest.raises(FileChangedError):
        desk.run("move_file", path="a", to="b", if_version=version_of(b"other"))
    assert desk.tree() == {"a": b"x"}
    desk.run("move_file", path="a", to="b", if_version=version_of(b"x"))
    assert desk.tree() == {"b": b"x"}


def test_a_file_is_deleted(desk):
    desk.write("a", b"x")
    (desk.root / "a").chmod(0o640)
    output = desk.run("delete_file", path="a")
    assert desk.tree() == {}
    assert output.details == {
        "path": f"{desk.root}/a",
        "action": "deleted",
        "success": True,
        "error": None,
    }
    assert output.changes == (Change("a", "deleted", version_of(b"x"), None, mode=0o640),)


def test_deleting_a_link_leaves_its_target(desk):
    outside = desk.root.parent / "victim"
    outside.write_bytes(b"x")
    (desk.root / "link").symlink_to(outside)
    desk.run("delete_file", path="link")
    assert (outside.read_bytes(), desk.tree()) == (b"x", {})


def test_an_empty_directory_is_deleted_and_a_full_one_is_not(desk):
    (desk.root / "empty").mkdir()
    desk.write("full/a", b"x")
    desk.run("delete_file", path="empty")
    assert not (desk.root / "empty").exists()
    with pytest.raises(DirectoryNotEmptyError):
        desk.run("delete_file", path="full")
    assert desk.tree() == {"full/a": b"x"}


@pytest.mark.parametrize(
    ("path", "error"),
    [("../a", PathTraversalError), ("nope", PathNotFoundError), (".", InvalidPathError)],
)
def test_a_deletion_that_may_not_be_is_refused(desk, path, error):
    desk.write("a", b"x")
    with pytest.raises(error):
        desk.run("delete_file", path=path)
    assert desk.tree() == {"a": b"x"}


def test_if_version_guards_a_deletion_on_both_sides(desk):
    desk.write("a", b"x")
    with pytest.raises(FileChangedError):
        desk.run("delete_file", path="a", if_version=version_of(b"other"))
    assert desk.tree() == {"a": b"x"}
    desk.run("delete_file", path="a", if_version=version_of(b"x"))
    assert desk.tree() == {}


@pytest.mark.parametrize("tool", ["move_file", "delete_file"])
def test_a_pinned_plan_runs_only_on_what_was_there(desk, tool):
    from paddock.tools.toolsets import all_tools

    handler = next(t for t in all_tools() if t.name == tool).handler
    desk.write("a", b"one")
    given = {"path": "a", "to": "b"} if tool == "move_file" else {"path": "a"}
    plan, digest = handler.pin(desk.plan(tool, **given), desk.ports)
    assert digest == version_of(b"one")
    desk.write("a", b"two")
    with pytest.raises(FileChangedError):
        handler.run(plan, desk.ports)
    assert desk.tree() == {"a": b"two"}


@pytest.mark.parametrize("tool", ["move_file", "delete_file"])
def test_a_pinned_plan_runs_on_nothing_of_another_kind(desk, tool):
    from paddock.tools.toolsets import all_tools

    handler = next(t for t in all_tools() if t.name == tool).handler
    desk.write("a", b"one")
    given = {"path": "a", "to": "b"} if tool == "move_file" else {"path": "a"}
    plan, _ = handler.pin(desk.plan(tool, **given), desk.ports)
    os.unlink(desk.root / "a")
    (desk.root / "a").symlink_to("one")
    with pytest.raises(FileChangedError):
        handler.run(plan, desk.ports)
    assert os.readlink(desk.root / "a") == "one"
    plan, digest = handler.pin(desk.plan(tool, **given), desk.ports)
    assert digest == f"link {version_of(b'one')}"
    handler.run(plan, desk.ports)
    assert not os.path.lexists(desk.root / "a")


@pytest.mark.parametrize("tool", ["move_file", "delete_file"])
def test_only_the_version_that_the_caller_wants_is_pinned(desk, tool):
    from paddock.tools.toolsets import all_tools

    handler = next(t for t in all_tools() if t.name == tool).handler
    desk.write("a", b"one")
    given = {"path": "a", "to": "b"} if tool == "move_file" else {"path": "a"}
    wanted = desk.plan(tool, **given, if_version=version_of(b"one"))
    assert handler.pin(wanted, desk.ports)[1] == version_of(b"one")
    with pytest.raises(FileChangedError):
        handler.pin(desk.plan(tool, **given, if_version=version_of(b"two")), desk.ports)


def test_a_move_to_where_a_file_may_be_viewed_asks_to_view_it(desk):
    desk.write("closed/a", b"hidden")
    source = "tool:file:delete closed/a"
    out = desk.actions("move_file", path="closed/a", to="open")
    assert out == [source, "tool:file:create open", "tool:file:view closed/a"]
    within = desk.actions("move_file", path="closed/a", to="closed/b")
    assert within == [source, "tool:file:create closed/b"]
