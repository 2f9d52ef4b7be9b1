"""The files that a patch touches."""

import pytest

from paddock.apps.hook.lean.asked import ShapeError
from paddock.apps.hook.lean.patches import FILES_MAX, read_patch


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
    ],
)
def test_a_patch_that_is_not_understood_is_refused(patch):
    with pytest.raises(ShapeError):
        read_patch(patch)


def test_a_header_with_blanks_in_front_counts():
    assert read_patch("  *** Update File: .git/x\n") == (("str_replace", ".git/x"),)
