"""Looking into a large file: how far, and what happens when time ends."""

import pytest

from paddock.providers.failures import CancelToken
from paddock.workspace import Workspace
from paddock.workspace.paths import unchecked_path
from paddock.workspace.search.confirm import Content
from paddock.workspace.search.grep import Search
from paddock.workspace.search.request import Regex, Until, Wanted
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


def test_lines_are_found_however_far_they_are(file):
    content = Content(file, Until())
    lines = content.lines([], [1, 2, 3, 2_500_002, 2_500_003])
    assert {number: text[:4] for number, text in lines.items()} == {
        1: b"one",
        2: b"xxxx",
        3: b"pad",
        2_500_002: b"pad",
    }
    assert b"".join(content.pieces(4)) == TEXT[4:]
    assert not content.is_late


def test_when_time_ends_the_look_does_too_and_says_so(file):
    content = Content(file, over())
    # The end of the first line stands in what is read at once, that of the long one does not.
    assert (sorted(content.lines([], [1, 2])), content.is_late) == ([1, 2], False)
    assert (sorted(content.lines([], [1, 2, 3])), content.is_late) == ([1, 2], True)


def found(workspace, until, context=2, *, reads_past_nul=False):
    """What is shown of a file that ripgrep has a row of, and whether that is all."""
    wanted = Wanted(Regex("one"), context, 10)
    search = Search(workspace, Shows(), wanted, until, reads_past_nul=reads_past_nul)
    search.in_order(iter(["a"]))
    return [(lines.numbers, lines.matching) for lines in search.found.files], search.remarks.is_late


class EndsWith:
    """A token that is cancelled once a file is opened to be read again."""

    def __init__(self, workspace):
        self.root_fd = workspace.root_fd
        self.workspace = workspace
        self.token = CancelToken()

    def open_file(self, path):
        self.token.cancel()
        return self.workspace.open_file(path)


def test_a_file_of_which_nobody_knew_in_time_whether_it_is_text_has_no_rows(workspace):
    assert found(workspace, Until()) == ([([1, 2, 3], [1])], False)
    ends = EndsWith(workspace)
    assert found(ends, Until(ends.token)) == ([], True)
    # Named, it is read as far as its rows are, and what is missing is remarked.
    ends = EndsWith(workspace)
    assert found(ends, Until(ends.token), reads_past_nul=True) == ([([1, 2], [1])], True)
