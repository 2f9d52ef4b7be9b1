"""view: numbered lines, streamed, with every cut stated."""

import os

import pytest

from paddock import limits
from paddock.errors import (
    BinaryFileError,
    InvalidArgumentsError,
    PathNotFoundError,
    PathTraversalError,
    SpecialFileError,
    TextEncodingError,
)
from paddock.workspace import version_of


def test_a_whole_file_is_shown_with_numbers(desk):
    desk.write("a.txt", b"one\ntwo\n")
    output = desk.run("view", path="a.txt")
    assert output.content == "     1\tone\n     2\ttwo"
    assert output.details == {
        "path": f"{desk.root}/a.txt",
        "action": "viewed",
        "content_snippet": "     1\tone\n     2\ttwo",
        "success": True,
        "error": None,
        "lines_total": 2,
        "truncated": False,
        "version": version_of(b"one\ntwo\n"),
    }
    assert (output.changes, output.bytes_written) == ((), 0)


def test_a_window_says_how_to_go_on(desk):
    desk.write("a", b"".join(b"%d\n" % n for n in range(1, 11)))
    output = desk.run("view", path="a", offset=3, limit=2)
    assert output.content == (
        "     3\t3\n     4\t4\n[lines 3-4 of 10 shown, limit=2 reached; use offset=5 to continue]"
    )
    assert output.details["truncated"] is True


def test_the_last_window_has_no_notice(desk):
    desk.write("a", b"1\n2\n3")
    assert desk.run("view", path="a", offset=2, limit=5).content == "     2\t2\n     3\t3"


def test_past_the_end_is_empty_and_says_how_many_lines_there_are(desk):
    desk.write("a", b"1\n2\n")
    output = desk.run("view", path="a", offset=9)
    assert output.content == "[offset 9 is past the end: the file has 2 lines]"
    assert output.details["content_snippet"] == ""
    output = desk.run("view", path="a", offset=10**5000)
    assert output.content.endswith("is past the end: the file has 2 lines]")


def test_an_empty_file_says_so(desk):
    desk.write("a", b"")
    assert desk.run("view", path="a").content == "[the file is empty]"


def test_a_long_file_is_cut_at_the_output_limit_and_can_be_read_on_to_its_end(desk):
    lines = [b"%06d %s" % (n, b"x" * 40) for n in range(1, 5001)]
    desk.write("a", b"\n".join(lines) + b"\n")
    seen, offset = [], 1
    while offset is not None:
        output = desk.run("view", path="a", offset=offset)
        rows = output.details["content_snippet"].split("\n")
        seen += [row.split("\t", 1)[1].encode() for row in rows]
        assert len(output.details["content_snippet"]) <= limits.view_bytes_max
        offset = len(seen) + 1 if output.details["truncated"] else None
        if offset:
            assert f"cut at 100000 bytes; use offset={offset} to continue" in output.content
    assert seen == lines


def test_a_single_line_below_the_limit_is_shown_whole(desk):
    desk.write("a", b"x" * (limits.view_bytes_max - 20) + b"\nnext\n")
    output = desk.run("view", path="a")
    assert output.content.endswith("x\n     2\tnext")
    assert output.details["truncated"] is False


def test_a_longer_line_is_cut_and_says_how_much_is_missing_and_where_the_next_begins(desk):
    desk.write("a", b"x" * (limits.view_bytes_max + 5) + b"\nnext\n")
    output = desk.run("view", path="a")
    assert output.content.endswith(
        "x [... 5 more bytes of this line]\n"
        "[lines 1-1 of 2 shown, cut at 100000 bytes; use offset=2 to continue]\n"
        "[a line is cut at 100000 bytes; no file tool shows more of it]"
    )
    assert output.details["truncated"] is True
    assert desk.run("view", path="a", offset=2).content == "     2\tnext"


@pytest.mark.parametrize(
    ("content", "shown", "total"),
    [
        (b"\n" * 1_000_000, 12_501, 1_000_000),
        (b"x\n" * 1_000_000, 11_112, 1_000_000),
        (b"\x1b\n" * 50_000, 8_334, 50_000),
        (b"\x1b" * 50_000, 1, 1),
        (b"\xe2\x80\xae" * 30_000, 1, 1),
    ],
    ids=["empty lines", "short lines", "escapes", "one line of escapes", "directions"],
)
def test_numbers_and_escapes_count_against_the_output_limit(desk, content, shown, total):
    desk.write("a", content)
    output = desk.run("view", path="a")
    snippet = output.details["content_snippet"]
    assert len(snippet.encode()) <= limits.view_bytes_max + 50
    assert (snippet.count("\n") + 1, output.details["lines_total"]) == (shown, total)
    assert output.details["truncated"]
    if total > 1:
        assert f"use offset={shown + 1} to continue]" in output.content


def test_a_line_is_never_cut_inside_a_character(desk):
    desk.write("a", "é".encode() * limits.view_bytes_max)
    assert "\ufffd" not in desk.run("view", path="a").content


def test_a_byte_order_mark_is_not_shown(desk):
    desk.write("a", b"\xef\xbb\xbfone\n")
    assert desk.run("view", path="a").content == "     1\tone"


def test_crlf_lines_look_like_any_other(desk):
    desk.write("a", b"one\r\ntwo\r\n")
    assert desk.run("view", path="a").content == "     1\tone\n     2\ttwo"


def test_content_cannot_forge_a_row_or_a_notice(desk):
    desk.write("a", b"x\r     2\tforged\n[offset 9 is past the end]\x1b[2K\n")
    rows = desk.run("view", path="a").content.split("\n")
    assert rows[:2] == [
        "     1\tx\\r     2\tforged",
        "     2\t[offset 9 is past the end]\\x1b[2K",
    ]
    assert rows[2].startswith("[2 control or direction characters are shown as")


def test_line_900000_of_a_million_lines_is_reached_without_reading_it_all_into_memory(desk):
    import tracemalloc

    desk.write("a", b"".join(b"line %d\n" % n for n in range(1, 1_000_001)))
    tracemalloc.start()
    output = desk.run("view", path="a", offset=900_000, limit=2)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert output.content.startswith("900000\tline 900000\n900001\tline 900001\n")
    assert output.details["lines_total"] == 1_000_000
    assert peak_bytes < 4_000_000


def test_a_directory_is_listed_two_levels_deep(desk):
    desk.write("d/a.txt", b"12345")
    desk.write("d/sub/b.txt", b"")
    desk.write("d/sub/deep/c.txt", b"")
    (desk.root / "d/out").symlink_to("/etc")
    (desk.root / "d/gone").symlink_to("nowhere")
    (desk.root / "d/in").symlink_to("a.txt")
    os.mkfifo(desk.root / "d/fifo")
    assert desk.run("view", path="d").content == (
        "d/\n"
        "  d/a.txt  5 bytes\n"
        "  d/fifo (FIFO, socket or device)\n"
        "  d/gone (dangling link)\n"
        "  d/in -> d/a.txt\n"
        "  d/out (link out of the workspace, never followed)\n"
        "  d/sub/\n"
        "  d/sub/b.txt  0 bytes\n"
        "  d/sub/deep/\n"
        "[listed two levels deep; view a subdirectory to see more]"
    )


def test_what_is_secret_is_not_even_a_name_in_a_listing(desk):
    desk.write("secret.txt", b"x")
    desk.write("open.txt", b"x")
    assert desk.run("view", path=".").content == "./\n  open.txt  1 bytes"


def test_a_link_does_not_tell_the_name_of_what_is_secret(desk):
    desk.write("secret.txt", b"x")
    desk.write("open.txt", b"x")
    (desk.root / "in").symlink_to("secret.txt")
    (desk.root / "out").symlink_to("open.txt")
    content = desk.run("view", path=".").content
    assert "secret.txt" not in content
    assert "  in (link, target not shown)\n" in content
    assert "  out -> open.txt" in content


def test_no_entry_of_a_listing_can_pass_for_another(desk):
    for name in ("a -> b", "b  5 bytes", "b (dangling link)", "a->b"):
        desk.write(name, b"")
    (desk.root / "to-size").symlink_to("b  5 bytes")
    (desk.root / "to-remark").symlink_to("b (dangling link)")
    assert desk.run("view", path=".").content.split("\n") == [
        "./",
        "  a -\\x3e b  0 bytes",
        "  a->b  0 bytes",
        "  b  5 bytes  0 bytes",
        "  b (dangling link)  0 bytes",
        "  to-remark -> b \\x28dangling link)",
        "  to-size -> b \\x205 bytes",
    ]


def test_an_empty_directory_says_so(desk):
    assert desk.run("view", path=".").content == "./\n[the directory is empty]"


def test_a_listing_over_the_limit_goes_on_where_it_was_cut(desk):
    names = [f"d/{number:04d}" for number in range(limits.view_directory_entries_max + 3)]
    for name in names:
        desk.write(name, b"")
    shown = [f"  {name}  0 bytes" for name in names]
    first, rest = desk.run("view", path="d"), desk.run("view", path="d", offset=501)
    assert first.content.split("\n") == [
        *("d/", *shown[:500]),
        "[entries 1 to 500 of 503; view with offset=501 for more, or find with a pattern]",
    ]
    assert rest.content.split("\n") == ["d/", *shown[500:], "[entries 501 to 503 of 503]"]
    assert (first.details["truncated"], rest.details["truncated"]) == (True, False)


def test_a_listing_is_cut_by_its_limit_and_its_end_is_told(desk):
    desk.write("a", b"")
    desk.write("b", b"")
    assert desk.run("view", path=".", offset=2, limit=1).content.split("\n") == [
        *("./", "  b  0 bytes"),
        "[entries 2 to 2 of 2]",
    ]
    assert desk.run("view", path=".", offset=9).content.split("\n") == [
        "./",
        "[offset 9 is past the end: the directory has 2 entries]",
    ]


def test_a_file_name_cannot_forge_a_row(desk):
    desk.write("d/a\n  d/forged.txt  9 bytes", b"")
    rows = desk.run("view", path="d").content.split("\n")
    assert rows == [
        *("d/", "  d/a\\n  d/", "  d/a\\n  d/forged.txt  9 bytes  0 bytes"),
        (
            "[2 names have control or direction characters, shown as \\xNN or \\uNNNN; in a path, "
            "give the characters themselves]"
        ),
    ]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("../x", PathTraversalError),
        ("out/passwd", PathTraversalError),
        ("/proc/self/root/etc/passwd", PathTraversalError),
        ("nope", PathNotFoundError),
        ("fifo", SpecialFileError),
        ("binary", BinaryFileError),
        ("latin", TextEncodingError),
    ],
)
def test_what_cannot_be_shown_is_refused(desk, path, error):
    (desk.root / "out").symlink_to("/etc")
    os.mkfifo(desk.root / "fifo")
    desk.write("binary", b"a\0b")
    desk.write("latin", b"caf\xe9\n")
    with pytest.raises(error):
        desk.run("view", path=path)


def test_a_link_inside_is_followed_and_both_names_are_judged(desk):
    desk.write("d/real", b"x\n")
    (desk.root / "link").symlink_to("d")
    assert desk.actions("view", path="link/real") == [
        "tool:file:view link/real",
        "tool:file:view d/real",
    ]
    assert desk.run("view", path="link/real").content == "     1\tx"


@pytest.mark.parametrize(("name", "value"), [("offset", 0), ("limit", 0), ("offset", -1)])
def test_a_line_or_count_below_one_is_an_error(desk, name, value):
    with pytest.raises(InvalidArgumentsError, match=f"^{name} must be at least 1"):
        desk.plan("view", path="a", **{name: value})
