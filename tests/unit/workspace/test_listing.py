"""What a directory holds: in order, cut aloud, links never followed."""

import os

import pytest

from paddock.errors import PathError, PathNotADirectoryError, PathNotFoundError
from paddock.workspace import EntryKind, Workspace
from paddock.workspace.listing import (
    DirectoryEntry,
    Listing,
    first_entries,
    list_directory,
)
from paddock.workspace.paths import unchecked_path
from tests.support.users import give_to_plain_user, run_as_plain_user

p = unchecked_path
TEMPORARY = ".paddock-" + "0" * 32 + ".tmp"


@pytest.fixture
def filled(ground):
    root = ground.root
    for folder in ("a/x", "a-b", "B", ".hidden"):
        (root / folder).mkdir(parents=True)
    for name in ("a/file", "a/x/deep", "a-b/file", ".hidden/file", "é", "z"):
        (root / name).write_bytes(b"12345")
    for name, target in {
        "to_file": "a/file",
        "to_dir": "a",
        "chain": "to_dir",
        "dangling": "a/nothing",
        "out": "../outside",
        "out_dangling": "../nothing",
        "loop": "loop",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    for folder in (".", "a"):
        (root / folder / TEMPORARY).write_bytes(b"draft")
    return ground


def listing(ground, path: str, depth: int = 1, entries_max: int = 1000, **more) -> Listing:
    return list_directory(
        ground.workspace, ground.workspace.resolve_read(path), depth, entries_max, **more
    )


def names(found: Listing) -> list[str]:
    return [entry.path.relative for entry in found.entries]


def test_one_level_in_byte_order_with_kinds_and_sizes(filled):
    file, directory = EntryKind.FILE, EntryKind.DIRECTORY
    assert listing(filled, ".") == Listing(
        entries=(
            DirectoryEntry(p(".hidden"), directory),
            DirectoryEntry(p("B"), directory),
            DirectoryEntry(p("a"), directory),
            DirectoryEntry(p("a-b"), directory),
            DirectoryEntry(p("chain"), EntryKind.LINK, 0, p("a"), directory),
            DirectoryEntry(p("dangling"), EntryKind.DANGLING_LINK, 0, p("a/nothing")),
            DirectoryEntry(p("fifo"), EntryKind.SPECIAL),
            DirectoryEntry(p("loop"), EntryKind.DANGLING_LINK),
            DirectoryEntry(p("out"), EntryKind.LINK_OUT),
            DirectoryEntry(p("out_dangling"), EntryKind.LINK_OUT),
            DirectoryEntry(p("to_dir"), EntryKind.LINK, 0, p("a"), directory),
            DirectoryEntry(p("to_file"), EntryKind.LINK, 0, p("a/file"), file),
            DirectoryEntry(p("z"), file, 5),
            DirectoryEntry(p("é"), file, 5),
        ),
        total=14,
    )


def test_depth_goes_down_directories_and_orders_by_the_whole_path(filled):
    assert names(listing(filled, ".", 2))[:8] == [
        ".hidden",
        ".hidden/file",
        "B",
        "a",
        "a-b",
        "a-b/file",
        "a/file",
        "a/x",
    ]
    assert "a/x/deep" not in names(listing(filled, ".", 2))
    assert "a/x/deep" in names(listing(filled, ".", 3))


def test_a_linked_directory_is_listed_by_its_real_names_and_links_are_not_entered(filled):
    assert names(listing(filled, "to_dir", 5)) == ["a/file", "a/x", "a/x/deep"]
    assert not any("to_dir/" in name or "out/" in name for name in names(listing(filled, ".", 5)))


def test_a_cut_is_told_by_the_total(filled):
    found = listing(filled, ".", 1, 3)
    assert (names(found), found.total) == ([".hidden", "B", "a"], 14)


class NoHidden:
    """Hides what begins with a dot, and looks into nothing named `a`."""

    def shows(self, path, *, is_directory):
        return not path.name.startswith(".") and (is_directory or path.name != "z")

    def enters(self, path):
        return path.name != "a"


def test_a_filter_decides_before_counting_and_cutting(filled):
    found = listing(filled, ".", 2, 4, about=NoHidden())
    # `.hidden` itself is not shown; entering is asked for separately.
    assert names(found) == [".hidden/file", "B", "a", "a-b"]
    assert found.total == 14


def test_temporary_files_are_not_there(filled):
    assert not any(TEMPORARY in name for name in names(listing(filled, ".", 5)))
    assert listing(filled, "a").total == 2


def test_names_that_are_not_utf_8_are_listed_as_the_disk_has_them(ground):
    with open(os.fsencode(ground.root) + b"/\xff\n", "wb"):
        pass
    assert names(listing(ground, ".")) == ["\udcff\n"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("z", PathNotADirectoryError),
        ("fifo", PathNotADirectoryError),
        ("to_file", PathNotADirectoryError),
        ("nothing", PathNotFoundError),
        ("dangling", PathNotFoundError),
        ("z/x", PathNotADirectoryError),
    ],
)
def test_what_is_no_directory_is_refused(filled, path, kind):
    with pytest.raises(kind):
        listing(filled, path)


def test_an_empty_directory_has_no_entries(filled):
    assert listing(filled, "B") == Listing((), 0)


@pytest.mark.needs("root")
def test_an_unreadable_directory_is_noted_and_the_rest_is_listed(filled, resolution):
    give_to_plain_user(filled.root)
    os.chmod(filled.root / "a", 0o000)

    def act() -> None:
        with Workspace.open(str(filled.root), resolution) as workspace:
            found = list_directory(workspace, workspace.resolve_read("."), 3, 1000)
            assert found.unreadable == (p("a"),)
            assert {"a", "a-b/file"} <= set(names(found))
            assert "a/file" not in names(found)

    run_as_plain_user(act)


@pytest.mark.needs("root")
def test_a_directory_that_can_be_read_and_not_entered_is_not_told_to_be_empty(filled, resolution):
    give_to_plain_user(filled.root)
    os.chmod(filled.root / "a", 0o444)

    def act() -> None:
        with Workspace.open(str(filled.root), resolution) as workspace:
            found = list_directory(workspace, workspace.resolve_read("."), 3, 1000)
            assert found.unreadable == (p("a"),)
            assert not any(name.startswith("a/") for name in names(found))
            a = workspace.resolve_read("a")
            with pytest.raises(PathError, match="not readable by this user"):
                list_directory(workspace, a, 1, 1000)
            with pytest.raises(PathError, match="not readable by this user"):
                first_entries(workspace, a, 10, lambda _: True)

    run_as_plain_user(act)


def test_entries_are_passed_over_and_counted_all_the_same(filled):
    whole = listing(filled, ".")
    cut = listing(filled, ".", 1, 2, skipped=1)
    assert (cut.entries, cut.total) == (whole.entries[1:3], whole.total)


def test_a_directory_that_becomes_a_link_during_the_walk_is_not_entered(filled):
    class Swap:
        """Swaps the directory for a link out at the last moment."""

        def shows(self, path, *, is_directory):
            return True

        def enters(self, path):
            if path.name == "a":
                (filled.root / "a").rename(filled.root / "kept")
                (filled.root / "a").symlink_to("../outside")
            return True

    found = listing(filled, ".", 5, about=Swap())
    assert found.unreadable == (p("a"),)
    assert not any(name.startswith("a/") for name in names(found))


def test_listing_leaves_no_descriptor_open(filled):
    before = os.listdir("/proc/self/fd")
    listing(filled, ".", 5)
    assert os.listdir("/proc/self/fd") == before
