import os

import pytest

from paddock.errors import (
    InvalidArgumentsError,
    PathNotADirectoryError,
    PathNotFoundError,
    PathTraversalError,
)


def rows(desk, **arguments):
    return desk.run("ls", **arguments).content.split("\n")


def test_entries_stand_one_a_line_without_regard_to_case(desk):
    for name in ("b", "A", "a", "C/x", ".hidden", "\u00c4", "\u00e4b"):
        desk.write(name, b"")
    output = desk.run("ls")
    assert output.content.split("\n") == [".hidden", "A", "a", "b", "C/", "\u00c4", "\u00e4b"]
    assert output.details == {
        "count": 7,
        "truncated": False,
        "entries": [".hidden", "A", "a", "b", "C/", "\u00c4", "\u00e4b"],
    }


def test_an_empty_directory_says_so(desk):
    assert desk.run("ls").content == "Directory is empty."


def test_links_are_shown_as_what_they_lead_to(desk):
    desk.write("d/x", b"")
    desk.write("f", b"")
    os.mkfifo(desk.root / "fifo")
    targets = {
        "to-dir": "d",
        "to-file": "f",
        "to-fifo": "fifo",
        "dangling": "nowhere",
        "loop": "loop",
        "out": "/etc",
        "out-file": "/etc/passwd",
        "chain": "to-dir",
    }
    for name, target in targets.items():
        (desk.root / name).symlink_to(target)
    out = "(link out of the workspace, never followed)"
    assert rows(desk) == [
        "chain/",
        "d/",
        "dangling (dangling link)",
        "f",
        "fifo (FIFO, socket or device)",
        "loop (dangling link)",
        f"out {out}",
        f"out-file {out}",
        "to-dir/",
        "to-fifo",
        "to-file",
    ]


def test_the_limit_cuts_in_order_and_says_how_to_get_more(desk):
    names = [f"{letter}{number:03d}" for number in range(300) for letter in "aB"]
    for name in names:
        desk.write(name, b"")
    ordered = sorted(names, key=str.casefold)
    output = desk.run("ls")
    notice = (
        "[500 entries limit reached. Use limit=1000 for more, or use find with a pattern, or view "
        "with an offset.]"
    )
    assert output.content.split("\n") == [*ordered[:500], notice]
    assert (output.details["count"], output.details["truncated"]) == (500, True)
    assert rows(desk, limit=600) == ordered
    assert rows(desk, limit=1)[0] == "a000"


def test_two_thousand_entries_are_the_most(desk):
    for number in range(2_001):
        (desk.root / f"{number:04d}").touch()
    assert rows(desk, limit=2_000)[-1] == (
        "[2000 entries limit reached. Use find with a pattern, or view with an offset.]"
    )


@pytest.mark.parametrize("limit", [0, 2_001, "1"])
def test_a_limit_out_of_range_is_an_error(desk, limit):
    with pytest.raises(InvalidArgumentsError, match="^limit must be"):
        desk.plan("ls", limit=limit)


def test_a_file_is_no_directory(desk):
    desk.write("f", b"")
    with pytest.raises(PathNotADirectoryError) as refusal:
        desk.run("ls", path="f")
    assert refusal.value.message == "Not a directory: 'f'"
    assert refusal.value.code == "path.not_a_directory"


@pytest.mark.parametrize(
    ("path", "error"),
    [("../x", PathTraversalError), ("out", PathTraversalError), ("nope", PathNotFoundError)],
)
def test_a_path_that_cannot_be_listed_is_refused(desk, path, error):
    (desk.root / "out").symlink_to("/etc")
    with pytest.raises(error):
        desk.run("ls", path=path)


@pytest.mark.parametrize("limit", [1, 500])
def test_what_is_secret_is_not_listed_and_does_not_count(desk, limit):
    desk.write("secret.txt", b"")
    desk.write("z", b"")
    (desk.root / "a-link").symlink_to("secret.txt")
    listed = ["a-link (link, target not shown)", "z"]
    assert rows(desk, limit=2) == listed
    (desk.root / "a-link").unlink()
    output = desk.run("ls", limit=limit)
    assert output.content == "z"
    assert output.details["truncated"] is False


def test_many_hidden_names_do_not_take_the_place_of_others(desk):
    for number in range(60):
        desk.write(f".paddock-{number:032x}.tmp", b"")
    desk.write("z1", b"")
    desk.write("z2", b"")
    assert rows(desk, limit=1)[0] == "z1"
    assert rows(desk, limit=2) == ["z1", "z2"]


def test_a_file_name_cannot_forge_a_row_or_a_notice(desk):
    for name in ("a\nb/", "[500 entries limit reached.]", "Directory is empty."):
        desk.write(name.rstrip("/"), b"")
    assert rows(desk) == [
        *("./[500 entries limit reached.]", "a\\nb", "./Directory is empty."),
        (
            "[1 name has control or direction characters, shown as \\xNN or \\uNNNN; in a path, "
            "give the characters themselves]"
        ),
    ]


def test_a_name_cannot_pass_for_a_link_and_what_is_said_of_it(desk):
    remarks = (
        "(FIFO, socket or device)",
        "(link out of the workspace, never followed)",
        "(dangling link)",
        "(link, target not shown)",
    )
    for remark in remarks:
        desk.write(f"b {remark}", b"")
    desk.write("b (dangling link) at all", b"")
    (desk.root / "a").symlink_to("nowhere")
    output = desk.run("ls")
    assert output.content.split("\n") == [
        "a (dangling link)",
        "b \\x28dangling link)",
        "b (dangling link) at all",
        "b \\x28FIFO, socket or device)",
        "b \\x28link out of the workspace, never followed)",
        "b \\x28link, target not shown)",
    ]
    assert output.details["entries"][1] == "b (dangling link)"


def test_an_action_names_the_resolved_path(desk):
    assert desk.actions("ls") == ["tool:search:ls ."]
    assert desk.actions("ls", path="x/../d") == ["tool:search:ls d"]
