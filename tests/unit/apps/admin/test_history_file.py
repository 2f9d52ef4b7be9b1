"""What was typed is kept for its user alone."""

import os

import pytest

from paddock.apps.admin.history import FILE, HistoryFile
from paddock.errors import ConfigError


@pytest.fixture
def history(tmp_path) -> HistoryFile:
    return HistoryFile(tmp_path / "state")


def test_lines_come_back_oldest_first_whatever_is_in_them(history, tmp_path):
    assert history.load() == []
    typed = ["hello", "two\nlines", 'quotes " and \\', "日本語 \u202e", "\x1b[2J"]
    for text in typed:
        history.add(text)
    assert HistoryFile(tmp_path / "state").load() == typed
    file = tmp_path / "state" / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes().isascii()


@pytest.mark.parametrize("text", [" a secret", "", "   ", "\n", "x" * 10_001])
def test_some_lines_are_not_kept(history, tmp_path, text):
    history.add(text)
    assert not (tmp_path / "state" / FILE).exists()


def test_what_is_no_line_of_ours_is_passed_over(history, tmp_path):
    history.add("one")
    with (tmp_path / "state" / FILE).open("ab") as file:
        file.write(b'\n[1]\n{"a": 1}\nnot json\n\xff\n"two"\n"torn')
    assert history.load() == ["one", "two"]


def test_the_oldest_lines_give_way(history, tmp_path):
    history.add("x")
    file = tmp_path / "state" / FILE
    file.write_text("".join(f'"line {number}"\n' for number in range(5_000)))
    found = history.load()
    assert (len(found), found[-1]) == (2_000, "line 4999")
    assert len(file.read_text().splitlines()) == 1_000
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o606])
def test_a_file_that_others_can_read_or_write_is_not_used(history, tmp_path, mode):
    history.add("one")
    file = tmp_path / "state" / FILE
    file.chmod(mode)
    with pytest.raises(ConfigError, match="is not private to you"):
        history.load()
    file.chmod(0o600)
    assert history.load() == ["one"]


def test_a_link_is_neither_read_nor_written(history, tmp_path):
    other = tmp_path / "other"
    other.write_text('"planted"\n')
    other.chmod(0o600)
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / FILE).symlink_to(other)
    with pytest.raises(ConfigError):
        history.load()
    with pytest.raises(Exception, match="writing"):
        history.add("x")
    assert other.read_text() == '"planted"\n'


def test_a_directory_that_others_can_write_is_not_used(history, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        history.load()
    os.chmod(tmp_path / "state", 0o700)
    assert history.load() == []
