"""Looking into a large file: how far, and what happens when time ends."""

import pytest

from paddock.providers.failures import CancelToken
from paddock.workspace import Workspace
from paddock.workspace.paths import unchecked_path
from paddock.workspace.search.asked import Regex, Wanted
from paddock.workspace.search.confirm import Content
from paddock.workspace.search.engine import SearchEngine
from paddock.workspace.search.until import Until
from tests.support.shown import Shows

LONG = b"x" * 3_000_000
TEXT = b"one\n" + LONG + b"\n" + b"pad\n" * 2_500_000
"""More than is held in memory, with a long line in it."""
END_OF_LONG = 4 + len(LONG)


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "a").write_bytes(TEXT)
    with Workspace.open(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def file(workspace):
    with workspace.open_file(unchecked_path("a")) as opened:
        yield opened


def over():
    token = CancelToken()
    token.cancel()
    return Until(token)


def test_the_ends_of_a_line_are_found_however_far_they_are(file):
    content = Content(file, Until())
    assert (content.next_end(0), content.next_end(4)) == (3, END_OF_LONG)
    assert (content.previous_begin(3), content.previous_begin(END_OF_LONG)) == (0, 4)
    assert content.next_end(len(TEXT)) == len(TEXT)
    assert b"".join(content.pieces(4)) == TEXT[4:]
    assert not content.is_late


def test_when_time_ends_the_look_does_too_and_says_so(file):
    content = Content(file, over())
    assert (content.next_end(0), content.previous_begin(3), content.is_late) == (3, 0, False)
    assert 4 < content.next_end(4) < END_OF_LONG
    assert content.is_late
    assert Content(file, over()).previous_begin(END_OF_LONG) == -1


def confirmed(workspace, until, *, reads_past_nul=False):
    wanted = Wanted(Regex("one"), 1, 10)
    engine = SearchEngine(workspace, Shows(), wanted, until, reads_past_nul=reads_past_nul)
    files = list(engine.confirm({"a": [b"1:one"]}, 10))
    return [(lines.numbers, lines.matching) for lines in files], engine.remarks.is_late


class EndsAfter:
    """A token that is cancelled after it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def is_cancelled(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def on_cancel(self, callback):
        return callback


def test_a_file_of_which_nobody_knew_in_time_whether_it_is_text_has_no_rows(workspace):
    assert confirmed(workspace, Until()) == ([([1, 2], [1])], False)
    assert confirmed(workspace, Until(EndsAfter(1))) == ([], True)
    # Named, it is read as far as its rows are, and what is missing is remarked.
    named = confirmed(workspace, Until(EndsAfter(1)), reads_past_nul=True)
    assert named == ([([1, 2], [1])], True)
