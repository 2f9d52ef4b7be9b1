"""No character that moves a cursor, ends a line or turns the direction of text is shown raw."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from paddock.text.show import number_line, show_line, show_name

TURNING = {"RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI"}
SIGNS = st.sampled_from("\r\n\t\x1b\x9b\u2028\u202e\u2066\ufeff")
# A list and not `st.text`, which would merge both alphabets into one and draw a sign hardly ever.
TEXTS = st.lists(st.one_of(st.characters(), SIGNS)).map("".join)


def misleading(text: str) -> set[str]:
    return {
        character
        for character in text
        if unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"}
        or unicodedata.bidirectional(character) in TURNING
    }


@given(name=TEXTS)
def test_a_name_shows_none_of_them(name: str):
    assert misleading(show_name(name)) == set()


@given(line=TEXTS)
def test_a_line_shows_none_of_them_but_tabs(line: str):
    assert misleading(show_line(line)[0]) <= {"\t"}


@given(raw=st.one_of(st.binary(), TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_a_numbered_row_is_one_row(raw: bytes):
    row, _ = number_line(7, raw.decode("utf-8", "surrogateescape"))

    assert row.splitlines() == [row]
    assert row.startswith("     7\t")
