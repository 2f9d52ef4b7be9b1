"""Some lines of a file: right at every border, and never the whole file in memory."""

import hashlib
import os
import tracemalloc
from typing import Any

import pytest
from msgspec import Struct

from paddock.workspace import Window, Workspace
from paddock.workspace.read import (
    NOTHING_KNOWN,
    KnownFile,
    KnownFiles,
    OpenFile,
    WindowLine,
    whole_characters,
)
from paddock.workspace.workspace import READ_FILE, Resolution

WIDE = 100_000


@pytest.fixture
def window(ground):
    def read(content: bytes, first: int, count: int, bytes_max: int = WIDE):
        (ground.root / "file").write_bytes(content)
        with ground.workspace.open_file(ground.workspace.resolve_read("file")) as file:
            return file.window(first, count, bytes_max)

    return read


def texts(found) -> list[bytes]:
    return [line.content for line in found.lines]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\n", [b"a", b""]),
        (b"a\r\nb\rc\n", [b"a\r", b"b\rc"]),
        (b"\n\n\nend", [b"", b"", b"", b"end"]),
        (b"\xff\x00\n\xfe", [b"\xff\x00", b"\xfe"]),
    ],
)
def test_a_line_ends_with_a_line_feed_and_the_last_one_need_not(window, content, lines):
    found = window(content, 1, 100)
    assert (texts(found), found.lines_total, found.next_line, found.truncated) == (
        lines,
        len(lines),
        None,
        False,
    )


def test_every_window_of_a_small_file_has_its_lines(window):
    lines = [b"%d" % number for number in range(1, 8)]
    for content in (b"\n".join(lines), b"\n".join(lines) + b"\n"):
        for first in range(1, 10):
            for count in range(9):
                found = window(content, first, count)
                expected = lines[first - 1 : first - 1 + count]
                after = first + len(expected)
                assert (texts(found), found.lines_total) == (expected, 7)
                assert found.next_line == (after if after <= 7 else None)
                assert [line.number for line in found.lines] == list(
                    range(first, first + len(expected))
                )


def test_lines_across_the_chunks_of_reading_are_whole(window):
    chunk = 262_144
    for shift in (-2, -1, 0, 1, 2):
        first = b"a" * (chunk + shift)
        content = first + b"\nsecond\n" + b"c" * chunk * 2 + b"\nlast"
        assert texts(window(content, 1, 2, 2 * chunk)) == [first, b"second"]
        assert texts(window(content, 1, 2)) == [first[:100_000]]
        assert window(content, 1, 1).lines[0].length_bytes == len(first)
        assert texts(window(content, 2, 1)) == [b"second"]
        assert texts(window(content, 4, 1)) == [b"last"]
        assert window(content, 3, 1).lines == (WindowLine(3, b"c" * 100_000, chunk * 2),)


def test_a_long_line_is_cut_between_characters_and_says_its_length(window):
    content = "ab€€€\nnext\n".encode()
    for limit, kept in [(2, "ab"), (3, "ab"), (4, "ab"), (5, "ab€"), (6, "ab€"), (11, "ab€€€")]:
        found = window(content, 1, 2, limit)
        assert found.lines == (WindowLine(1, kept.encode(), 11),)
        assert (bool(found.cut_lines), found.cut_by_bytes) == (limit < 11, True)


def test_whole_lines_are_left_out_when_the_bytes_are_used_up(window):
    content = b"aaaa\nbbbb\ncccc\n"
    for limit, shown in [(1, [b"a"]), (4, [b"aaaa"]), (8, [b"aaaa"]), (9, [b"aaaa", b"bbbb"])]:
        found = window(content, 1, 3, limit)
        assert (texts(found), found.cut_by_bytes) == (shown, True)
        assert found.next_line == len(shown) + 1
    found = window(content, 1, 3, 14)
    assert (texts(found), found.cut_by_bytes, found.next_line) == (
        [b"aaaa", b"bbbb", b"cccc"],
        False,
        None,
    )
    # Nothing is left out if nothing more was asked for.
    assert not window(content, 1, 1, 4).cut_by_bytes


def test_a_window_behind_the_end_is_empty_and_tells_how_many_lines_there_are(window):
    found = window(b"a\nb\n", 3, 10)
    assert (found.lines, found.lines_total, found.next_line) == ((), 2, None)
    assert window(b"", 1, 10).lines_total == 0


def test_a_senseless_window_is_the_callers_defect(window):
    for first, count, bytes_max in [(0, 1, WIDE), (1, -1, WIDE), (1, 1, 0)]:
        with pytest.raises(ValueError, match="window"):
            window(b"a", first, count, bytes_max)


def two_lines(workspace: Workspace, first_line: int) -> Window:
    """Two lines of `file`."""
    with workspace.open_file(workspace.resolve_read("file")) as opened:
        return opened.window(first_line, 2, 1000)


@pytest.mark.parametrize("size", [1_000, 5_000_000])
def test_the_version_of_a_window_is_that_of_the_whole_content(ground, size):
    content = b"0123456789abcde\n" * (size // 16)
    (ground.root / "file").write_bytes(content)
    found = two_lines(ground.workspace, 3)
    assert texts(found) == [b"0123456789abcde"] * 2
    assert found.lines_total == len(content) // 16
    assert found.version == "sha256:" + hashlib.sha256(content).hexdigest()


def test_a_late_line_of_a_large_file_costs_little_memory(ground):
    with open(ground.root / "file", "wb") as file:
        file.writelines(
            b"".join(b"%070d\n" % number for number in range(start, start + 1000))
            for start in range(0, 400_000, 1000)
        )
    path = ground.workspace.resolve_read("file")
    tracemalloc.start()
    try:
        with ground.workspace.open_file(path) as opened:
            found = opened.window(399_000, 100, WIDE)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.lines[0].content == b"%070d" % 398_999
    assert found.lines_total == 400_000
    assert peak_bytes < 2_000_000
    assert os.path.getsize(ground.root / "file") > 28_000_000


def test_an_unfinished_character_is_left_out_and_nothing_else():
    whole = "aé€😀".encode()
    for end in range(len(whole) + 1):
        cut = whole_characters(whole[:end])
        assert whole[:end].startswith(cut)
        assert cut.decode() == whole[:end].decode(errors="ignore")
    assert whole_characters(b"\x80\x80\x80\x80\x80") == b"\x80\x80\x80\x80\x80"


LARGE = b"".join(b"%07d\n" % number for number in range(400_000))


class Reading(Struct, dict=True):
    """Files are read anew each time, with what is known of them and a clock of their own."""

    ground: Any
    resolution: Resolution
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.known = KnownFiles(lambda: self.now_ns)

    def open(self) -> OpenFile:
        workspace = self.ground.workspace
        path = workspace.resolve_read("file").real
        fd = self.resolution.open(workspace.root_fd, path.relative, READ_FILE)
        return OpenFile(path, fd, self.known)

    def window(self, first_line: int) -> Window:
        with self.open() as opened:
            return opened.window(first_line, 2, 1000)

    def version(self) -> str:
        with self.open() as opened:
            return opened.version()

    def remembered(self) -> KnownFile:
        """Its lines are another object where they were counted again."""
        with self.open() as opened:
            return self.known.find(opened.status)


def test_what_is_known_of_a_large_file_is_used_until_it_changes(ground, resolution):
    file = ground.root / "file"
    file.write_bytes(LARGE)
    # As if it had been written long ago: the clock of the readings is moved, not the file's.
    ahead_ns = os.stat(file).st_ctime_ns + 3_600 * 1_000_000_000
    reading = Reading(ground, resolution, ahead_ns)
    assert reading.remembered() == NOTHING_KNOWN
    reading.window(1)
    counted = reading.remembered().lines
    assert counted is not None

    for first in (1, 200_000, 399_999, 400_001):
        found = reading.window(first)
        assert texts(found) == [b"%07d" % n for n in range(first - 1, first + 1) if n < 400_000]
        assert found.version == "sha256:" + hashlib.sha256(LARGE).hexdigest()
        assert found.lines_total == 400_000
        assert reading.remembered().lines is counted
    with open(file, "r+b") as writer:
        writer.write(b"\n")
    assert texts(reading.window(1)) == [b"", b"000000"]
    assert reading.window(1).version != found.version
    assert reading.remembered().lines not in (None, counted)


def test_nothing_is_remembered_of_a_file_that_changed_just_now(ground, resolution):
    file = ground.root / "file"
    file.write_bytes(LARGE)
    changed_ns = os.stat(file).st_ctime_ns
    # Within one tick of the clock it could be rewritten, and its status would not show it.
    reading = Reading(ground, resolution, changed_ns + 900_000_000)
    version = reading.version()
    assert version == "sha256:" + hashlib.sha256(LARGE).hexdigest()
    assert reading.remembered() == NOTHING_KNOWN
    reading.now_ns = changed_ns + 1_000_000_000
    assert reading.version() == version
    assert reading.remembered() == KnownFile(version, None)
