"""The files that a patch touches."""

import pytest

from paddock.apps.hook.lean.request import FILES_MAX, ShapeError, read_patch


def test_each_file_of_a_patch_is_an_operation():
    patch = (
        "*** Begin Patch\n*** Add File: a\n+x\n*** Update File: b\n*** Move to: c/d\n@@\n-x\n+y\n"
        "*** Delete File: e f\n*** End Patch\n"
    )

    assert read_patch(patch) == (
        ("create", "a"),
        ("str_replace", "b"),
        ("delete", "b"),
        ("create", "c/d"),
        ("delete", "e f"),
    )


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch\n*** Rename File: a\n*** End Patch",
        "*** Add File:   \n+x",
        "*** Add File: a\n" * (FILES_MAX + 1),
        "*** Add File: a\n***",
        "*** Add File: a\n*** add file: b",
    ],
)
def test_a_patch_that_is_not_understood_is_refused(patch):
    with pytest.raises(ShapeError):
        read_patch(patch)


def test_a_header_with_blanks_in_front_counts():
    assert read_patch("  *** Update File: .git/x\n") == (("str_replace", ".git/x"),)


@pytest.mark.parametrize(
    "end", ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029", "\0"]
)
def test_a_header_that_goes_on_behind_what_others_take_for_a_line_end_is_refused(end):
    with pytest.raises(ShapeError, match="control character"):
        read_patch(f"*** Add File: docs/x{end}/../../.env\n+x\n")
    with pytest.raises(ShapeError, match="control character"):
        read_patch(f"*** Update File: a\n*** Move to: docs/x{end}*** Add File: y\n")


def test_such_characters_in_the_text_of_a_file_are_only_text():
    assert read_patch("*** Add File: a\n+x\x0c*** Add File: b\u2028y\r\n") == (("create", "a"),)


def test_lines_may_end_in_a_carriage_return_too():
    patch = "*** Begin Patch\r\n*** Add File: a b\r\n+x\r\n*** End Patch\r\n"

    assert read_patch(patch) == (("create", "a b"),)


@pytest.mark.parametrize(
    "line", [" ***", " ***bold***", "  *** a list", "+***", "-*** Add File: b"]
)
def test_a_line_of_a_file_is_no_header(line):
    patch = f"*** Update File: a.md\n@@\n x\n{line}\n-d\n+e\n"

    assert read_patch(patch) == (("str_replace", "a.md"),)


def test_a_path_is_what_stands_behind_one_blank():
    assert read_patch("*** Add File:  a\n") == (("create", " a"),)
    assert read_patch("*** Add File: ~/a\n") == (("create", "./~/a"),)
    assert read_patch("*** Add File: ~\n") == (("create", "./~"),)
