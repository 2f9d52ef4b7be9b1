"""edit_file_dev: exact text, once or everywhere, and no other byte."""

import pytest

from paddock.errors import (
    AmbiguousMatchError,
    BinaryFileError,
    FileChangedError,
    InvalidArgumentsError,
    PathNotFoundError,
    StringNotFoundError,
    TextTooLargeError,
    TextUnchangedError,
)
from paddock.tools.spec import Change
from paddock.workspace import version_of


def test_the_one_place_is_changed(desk):
    desk.write("a.py", b"1\nold\n3\n")
    output = desk.run("edit_file_dev", path="./a.py", old_string="old", new_string="newer")
    after = b"1\nnewer\n3\n"
    assert desk.tree() == {"a.py": after}
    assert output.details == {
        "path": "./a.py",
        "replacements": 1,
        "bytes_before": 8,
        "bytes_after": 10,
        "version": version_of(after),
    }
    assert output.content == "edited a.py (1 replacement)"
    assert output.changes == (
        Change("a.py", "edited", version_of(b"1\nold\n3\n"), version_of(after)),
    )


def test_every_place_is_changed_when_asked(desk):
    desk.write("a", b"x.x\r\nx")
    output = desk.run(
        "edit_file_dev", path="a", old_string="x", new_string="1\n2", replace_all=True
    )
    assert desk.tree() == {"a": b"1\r\n2.1\r\n2\r\n1\r\n2"}
    assert output.details["replacements"] == 3
    assert output.content == "edited a (3 replacements)"


def test_replace_all_of_one_place_is_one_replacement(desk):
    desk.write("a", b"x")
    output = desk.run("edit_file_dev", path="a", old_string="x", new_string="y", replace_all=True)
    assert (output.details["replacements"], desk.tree()) == (1, {"a": b"y"})


def test_nothing_is_a_pattern(desk):
    desk.write("a", b"a.c abc $1 \\1")
    desk.run("edit_file_dev", path="a", old_string="a.c", new_string="\\1 $1")
    assert desk.tree() == {"a": b"\\1 $1 abc $1 \\1"}


@pytest.mark.parametrize("replace_all", [False, True])
def test_a_text_that_does_not_stand_there_is_an_error_with_the_nearest_lines(desk, replace_all):
    desk.write("a", b"def f(x):\n    return  x\n")
    with pytest.raises(StringNotFoundError) as caught:
        desk.run(
            "edit_file_dev",
            path="a",
            old_string="return x",
            new_string="y",
            replace_all=replace_all,
        )
    assert caught.value.message == "old_string not found in file"
    assert "line 2:     return  x" in caught.value.hint
    assert desk.tree() == {"a": b"def f(x):\n    return  x\n"}


def test_several_places_are_an_error_with_count_and_lines(desk):
    desk.write("a", b"x\nx\n\nx\n")
    with pytest.raises(AmbiguousMatchError) as caught:
        desk.run("edit_file_dev", path="a", old_string="x", new_string="y")
    assert caught.value.message == (
        "old_string found 3 times; use replace_all=true or provide more context"
    )
    assert caught.value.hint == "it is in 'a' at lines 1, 2, 4"
    assert desk.tree() == {"a": b"x\nx\n\nx\n"}


def test_a_name_with_braces_is_only_a_name(desk):
    desk.write("{count}{x}", b"x x")
    with pytest.raises(AmbiguousMatchError) as caught:
        desk.run("edit_file_dev", path="{count}{x}", old_string="x", new_string="y")
    assert caught.value.hint == "it is in '{count}{x}' at lines 1, 1"


def test_what_cannot_be_edited_says_why(desk):
    desk.write("bin", b"a\0b")
    with pytest.raises(PathNotFoundError, match="(?m)^file not found$") as caught:
        desk.run("edit_file_dev", path="nope", old_string="a", new_string="b")
    assert caught.value.hint == "'nope' does not exist"
    with pytest.raises(BinaryFileError):
        desk.run("edit_file_dev", path="bin", old_string="a", new_string="c", replace_all=True)
    with pytest.raises(TextUnchangedError, match="are the same"):
        desk.run("edit_file_dev", path="bin", old_string="a", new_string="a")
    assert desk.tree() == {"bin": b"a\0b"}


def test_an_edit_that_would_grow_beyond_the_limit_is_refused_and_changes_nothing(desk):
    desk.write("a", b"x" * 1000)
    with pytest.raises(TextTooLargeError, match="256000000 are allowed"):
        desk.run(
            "edit_file_dev", path="a", old_string="x", new_string="y" * 256_001, replace_all=True
        )
    assert desk.tree() == {"a": b"x" * 1000}


def test_if_version_guards_the_edit_on_both_sides(desk):
    desk.write("a", b"one")
    desk.run(
        "edit_file_dev",
        path="a",
        old_string="one",
        new_string="two",
        if_version=version_of(b"one"),
    )
    with pytest.raises(FileChangedError):
        desk.run(
            "edit_file_dev",
            path="a",
            old_string="two",
            new_string="three",
            replace_all=True,
            if_version=version_of(b"one"),
        )
    assert desk.tree() == {"a": b"two"}


def test_a_pinned_plan_runs_only_on_what_was_there(desk):
    desk.write("a", b"one")
    handler = desk.tool("edit_file_dev").handler
    plan = desk.plan("edit_file_dev", path="a", old_string="o", new_string="0")
    pinned, version = handler.pin(plan, desk.ports)
    assert version == version_of(b"one")
    desk.write("a", b"ones")
    with pytest.raises(FileChangedError):
        handler.run(pinned, desk.ports)
    assert desk.tree() == {"a": b"ones"}


@pytest.mark.parametrize("replace_all", [False, True])
def test_a_file_that_may_not_be_viewed_is_not_shown_by_editing_it(desk, replace_all):
    # Threat: the nearest lines of a miss would be a way to read a closed file.
    desk.write("closed/a", b"the  password is x\n")
    with pytest.raises(StringNotFoundError) as caught:
        desk.run(
            "edit_file_dev",
            path="closed/a",
            old_string="the password",
            new_string="y",
            replace_all=replace_all,
        )
    assert "password" not in caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"new_string": "x"}, "path and old_string are required"),
        ({"path": "a", "old_string": "", "new_string": "x"}, "path and old_string are required"),
        ({"path": "", "old_string": "x", "new_string": "y"}, "path and old_string are required"),
        ({"path": "a", "old_string": "x"}, "new_string is required"),
        (
            {"path": "a", "old_string": "x", "new_string": "y", "replace_all": "false"},
            "replace_all must be a boolean",
        ),
    ],
)
def test_arguments_that_are_wrong_name_the_field(desk, arguments, message):
    with pytest.raises(InvalidArgumentsError, match=message):
        desk.plan("edit_file_dev", **arguments)


def test_it_is_judged_as_an_edit_of_the_real_path(desk):
    desk.write("a", b"")
    arguments = {"path": "./a", "old_string": "x", "new_string": "y"}
    assert desk.actions("edit_file_dev", **arguments) == ["tool:file:str_replace a"]
