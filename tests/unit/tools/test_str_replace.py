"""str_replace: exactly one match or an error; no other byte changes."""

import pytest

from paddock.errors import (
    AmbiguousMatchError,
    BinaryFileError,
    FileChangedError,
    InvalidArgumentsError,
    PathNotFoundError,
    PathTraversalError,
    StringNotFoundError,
    TextEncodingError,
    TextTooLargeError,
    TextUnchangedError,
)
from paddock.tools.spec import Change
from paddock.workspace import version_of


def test_the_one_place_is_changed_and_shown_in_its_neighbourhood(desk):
    desk.write("a.py", b"1\n2\n3\n4\nold\n6\n7\n8\n9\n")
    output = desk.run("str_replace", path="a.py", old_str="old", new_str="new")
    assert desk.tree() == {"a.py": b"1\n2\n3\n4\nnew\n6\n7\n8\n9\n"}
    snippet = "     2\t2\n     3\t3\n     4\t4\n     5\tnew\n     6\t6\n     7\t7\n     8\t8"
    assert output.details == {
        "path": f"{desk.root}/a.py",
        "action": "edited",
        "content_snippet": snippet,
        "bytes_written": 20,
        "version": version_of(b"1\n2\n3\n4\nnew\n6\n7\n8\n9\n"),
        "success": True,
        "error": None,
    }
    assert output.content == f"edited a.py\n{snippet}"
    assert output.changes == (
        Change(
            "a.py",
            "edited",
            version_of(b"1\n2\n3\n4\nold\n6\n7\n8\n9\n"),
            version_of(b"1\n2\n3\n4\nnew\n6\n7\n8\n9\n"),
        ),
    )


def test_the_snippet_is_at_the_edit_even_where_the_new_text_stands_elsewhere_too(desk):
    desk.write("a", b"new\n" + b"x\n" * 20 + b"old\n")
    output = desk.run("str_replace", path="a", old_str="old", new_str="new")
    assert output.details["content_snippet"].endswith("    22\tnew")


def test_an_empty_new_text_deletes(desk):
    desk.write("a", b"keep drop keep2")
    desk.run("str_replace", path="a", old_str=" drop", new_str="")
    assert desk.tree() == {"a": b"keep keep2"}


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nold\r\nb\r\n", "old", "n1\nn2", b"a\r\nn1\r\nn2\r\nb\r\n"),
        (b"a\r\nold\nb\r\n", "old\nb", "new\nb", b"a\r\nnew\nb\r\n"),
        (b"a\rold\rb", "old", "new", b"a\rnew\rb"),
        (b"\xef\xbb\xbfold\n", "old", "new", b"\xef\xbb\xbfnew\n"),
        (b"x\nold", "old", "new", b"x\nnew"),
    ],
)
def test_line_ends_mark_and_missing_last_newline_survive(desk, before, old, new, after):
    desk.write("a", before)
    desk.run("str_replace", path="a", old_str=old, new_str=new)
    assert desk.tree() == {"a": after}


def test_a_missing_text_names_the_nearest_lines_and_changes_nothing(desk):
    desk.write("a.py", b"def f( a ):\n    pass\n")
    with pytest.raises(StringNotFoundError) as caught:
        desk.run("str_replace", path="a.py", old_str="def f(a):", new_str="def g(a):")
    assert caught.value.message == "old_str not found in 'a.py'"
    assert "line 1: def f( a ):" in caught.value.hint
    assert desk.tree() == {"a.py": b"def f( a ):\n    pass\n"}


def test_of_several_lines_the_hint_shows_the_one_that_differs(desk):
    desk.write("a.py", b"import os\ndef f():\n    a = 1\n    b = 2  \n    return a\n")
    with pytest.raises(StringNotFoundError) as caught:
        desk.run("str_replace", path="a.py", old_str="def f():\n    a = 1\n    b = 2\n", new_str="")
    assert caught.value.hint == (
        "copy the text exactly; the nearest lines are:\nline 4:     b = 2  "
    )


def test_a_text_that_goes_on_behind_the_end_of_the_file_is_told_so(desk):
    desk.write("a", b"one\ntwo\n")
    with pytest.raises(StringNotFoundError) as caught:
        desk.run("str_replace", path="a", old_str="one\ntwo\nthree", new_str="")
    assert caught.value.hint == (
        "copy the text exactly; the nearest lines are:\nline 2: two [... the file ends here]"
    )


def test_an_ambiguous_text_names_count_and_lines_and_changes_nothing(desk):
    desk.write("a", b"x\ny\nx\n")
    with pytest.raises(AmbiguousMatchError) as caught:
        desk.run("str_replace", path="a", old_str="x", new_str="z")
    assert caught.value.message == "old_str found 2 times in 'a', at lines 1, 3"
    assert desk.tree() == {"a": b"x\ny\nx\n"}


def test_overlapping_places_count_as_several(desk):
    desk.write("a", b"aaaa")
    with pytest.raises(AmbiguousMatchError, match="found 2 times"):
        desk.run("str_replace", path="a", old_str="aaa", new_str="b")
    assert desk.tree() == {"a": b"aaaa"}


def test_many_places_are_counted_and_the_list_is_cut_with_a_word(desk):
    desk.write("a", b"x\n" * 50)
    with pytest.raises(AmbiguousMatchError, match="(?m)found 50 times .* and 30 more places$"):
        desk.run("str_replace", path="a", old_str="x", new_str="z")


def test_places_beyond_counting_are_not_counted(desk):
    desk.write("a", b"a" * 10_000_000)
    with pytest.raises(
        AmbiguousMatchError, match="(?m)found over 1000 times .* and many more places$"
    ):
        desk.run("str_replace", path="a", old_str="a", new_str="b")


def test_equal_texts_are_refused(desk):
    desk.write("a", b"x")
    with pytest.raises(TextUnchangedError):
        desk.run("str_replace", path="a", old_str="x", new_str="x")


def test_line_ends_that_old_str_names_are_changed(desk):
    desk.write("run.sh", b"#!/bin/sh\r\necho a\r\nx\r\n")
    desk.run(
        "str_replace",
        path="run.sh",
        old_str="#!/bin/sh\r\necho a\r\n",
        new_str="#!/bin/sh\necho a\n",
    )
    assert desk.tree() == {"run.sh": b"#!/bin/sh\necho a\nx\r\n"}


def test_an_edit_that_comes_to_the_same_is_refused_and_says_why(desk):
    desk.write("a", b"x\r\ny\r\n")
    with pytest.raises(TextUnchangedError) as refusal:
        desk.run("str_replace", path="a", old_str="x\n", new_str="x\r\n")
    assert refusal.value.message == (
        "the edit does not change 'a': the texts differ only in line ends, and the file has the "
        "new ones already"
    )
    assert desk.tree() == {"a": b"x\r\ny\r\n"}


def test_a_text_with_other_line_ends_than_the_file_is_told_so(desk):
    desk.write("a", b"one\ntwo\n")
    with pytest.raises(StringNotFoundError) as refusal:
        desk.run("str_replace", path="a", old_str="one\r\ntwo", new_str="x")
    assert refusal.value.hint == (
        "the file has it with other line ends: write newlines without CR, which match any line end"
    )
    desk.run("str_replace", path="a", old_str="one\ntwo", new_str="x")
    assert desk.tree() == {"a": b"x\n"}


def test_an_empty_old_text_is_an_argument_error(desk):
    with pytest.raises(InvalidArgumentsError, match="(?m)^path and old_str are required$"):
        desk.plan("str_replace", path="a", old_str="", new_str="x")


def test_a_missing_file_is_not_found(desk):
    with pytest.raises(PathNotFoundError):
        desk.run("str_replace", path="nope", old_str="a", new_str="b")
    assert desk.tree() == {}


def test_a_binary_file_is_not_edited(desk):
    desk.write("a", b"old\0old2")
    with pytest.raises(BinaryFileError):
        desk.run("str_replace", path="a", old_str="old2", new_str="new")
    assert desk.tree() == {"a": b"old\0old2"}


def test_a_file_that_is_not_utf8_is_not_edited_and_the_place_is_named(desk):
    desk.write("a", b"old\n\xe9\n")
    with pytest.raises(TextEncodingError, match="byte 0xe9 at offset 4, line 2"):
        desk.run("str_replace", path="a", old_str="old", new_str="n\u00e9w")
    assert desk.tree() == {"a": b"old\n\xe9\n"}


LEGACY = {
    "cp1252": ("caf\u00e9 = \u00e9lan\r\nold = \u20ac\r\n", "old"),
    "within a word": ("\u00e9lan, caf\u00e9\n", "lan"),
    "gbk": ("\u4e2d\u6587 old \u6ce8\u91ca\n", "old"),
    "shift_jis": ("\u8868\u793a\u540d old\n\uff71\uff72\n", "old"),
    "big5": ("\u8a31\u529f\u84cb old\n", "old"),
    "euc_kr": ("\ud55c\uad6d\uc5b4 old\n", "old"),
    "koi8_r": ("\u043f\u0440\u0438\u0432\u0435\u0442\nold\n", "old"),
}


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("name", LEGACY)
def test_an_ascii_edit_leaves_the_encoding_of_a_file_as_it_is(desk, name, everywhere):
    text, old = LEGACY[name]
    encoding = "cp1252" if name == "within a word" else name
    desk.write("a", text.encode(encoding))
    if everywhere:
        edit = {"old_string": old, "new_string": "new", "replace_all": True}
        desk.run("edit_file_dev", path="a", **edit)
    else:
        desk.run("str_replace", path="a", old_str=old, new_str="new")
    assert desk.tree() == {"a": text.replace(old, "new").encode(encoding)}


@pytest.mark.parametrize(
    ("content", "old", "error"),
    [
        ("\u8868\u793a\n".encode("shift_jis"), "\\", TextEncodingError),
        ("\u8a31\u529f\u84cb\n".encode("big5"), "\\", TextEncodingError),
        ("\u4e02A\n".encode("gbk"), "@", TextEncodingError),
        ("\u20ac\U00020000\n".encode("gb18030"), "2", TextEncodingError),
        ("x\u4e2d".encode("gbk") * 3000 + b"old\n", "old", TextEncodingError),
        (b"\xff\xfe" + "\u6f22old\n".encode("utf-16-le"), "old", BinaryFileError),
        (b"\xe9\n" + b"x\n" * 9000 + b"\0\nold\n", "old", BinaryFileError),
    ],
    ids=["sjis", "big5", "gbk", "gb18030", "far", "utf-16", "a NUL byte far away"],
)
@pytest.mark.parametrize("everywhere", [False, True])
def test_an_edit_never_begins_within_a_character(desk, content, old, error, everywhere):
    desk.write("a", content)
    tool, edit = ("str_replace", {"old_str": old, "new_str": "new"})
    if everywhere:
        tool, edit = "edit_file_dev", {"old_string": old, "new_string": "n", "replace_all": True}
    with pytest.raises(error):
        desk.run(tool, path="a", **edit)
    assert desk.tree() == {"a": content}


def test_the_hint_of_another_encoding_keeps_it(desk):
    desk.write("a", b"caf\xe9\n")
    for tool, given in (("view", {}), ("str_replace", {"old_str": "\u00e9", "new_str": "e"})):
        with pytest.raises(TextEncodingError) as refused:
            desk.run(tool, path="a", **given)
        assert "do not convert it" in str(refused.value.hint)


def test_a_file_over_the_limit_is_not_edited(desk):
    path = desk.write("a", b"old\n")
    with path.open("r+b") as file:
        file.truncate(256_000_001)
    with pytest.raises(TextTooLargeError):
        desk.run("str_replace", path="a", old_str="old", new_str="new")


def test_a_hard_linked_file_gets_a_copy_of_its_own_and_says_so(desk):
    outside = desk.root.parent / "outside.txt"
    outside.write_bytes(b"old")
    (desk.root / "a").hardlink_to(outside)
    output = desk.run("str_replace", path="a", old_str="old", new_str="new")
    assert (desk.tree(), outside.read_bytes()) == ({"a": b"new"}, b"old")
    assert "is now a separate file" in output.content


def test_an_edit_through_a_link_changes_the_target_and_judges_both(desk):
    desk.write("real", b"old")
    (desk.root / "link").symlink_to("real")
    assert desk.actions("str_replace", path="link", old_str="old", new_str="new") == [
        "tool:file:str_replace link",
        "tool:file:str_replace real",
    ]
    desk.run("str_replace", path="link", old_str="old", new_str="new")
    assert desk.tree() == {"real": b"new", "link": "real"}


def test_a_path_that_leads_out_is_refused_and_the_target_is_untouched(desk):
    outside = desk.root.parent / "victim"
    outside.write_bytes(b"old")
    (desk.root / "link").symlink_to(outside)
    with pytest.raises(PathTraversalError):
        desk.run("str_replace", path="link", old_str="old", new_str="new")
    assert outside.read_bytes() == b"old"


def test_if_version_guards_the_edit_on_both_sides(desk):
    desk.write("a", b"old")
    with pytest.raises(FileChangedError):
        desk.run("str_replace", path="a", old_str="old", new_str="new", if_version="sha256:0")
    assert desk.tree() == {"a": b"old"}
    desk.run("str_replace", path="a", old_str="old", new_str="new", if_version=version_of(b"old"))
    assert desk.tree() == {"a": b"new"}


def test_a_pinned_plan_runs_only_on_what_was_there(desk):
    desk.write("a", b"old")
    from paddock.tools.replace import StrReplace

    plan = desk.plan("str_replace", path="a", old_str="old", new_str="new")
    plan, digest = StrReplace().pin(plan, desk.ports)
    assert digest == version_of(b"old")
    desk.write("a", b"old, and changed")
    with pytest.raises(FileChangedError):
        StrReplace().run(plan, desk.ports)
    assert desk.tree() == {"a": b"old, and changed"}


def test_a_file_that_may_not_be_viewed_is_not_shown_by_editing_it(desk):
    desk.write("closed/a", b"hidden text\nold\n")
    output = desk.run("str_replace", path="closed/a", old_str="old", new_str="new")
    assert desk.tree() == {"closed/a": b"hidden text\nnew\n"}
    assert "hidden" not in output.content
    with pytest.raises(StringNotFoundError) as caught:
        desk.run("str_replace", path="closed/a", old_str="hiddentext", new_str="x")
    assert "hidden text" not in caught.value.hint
