"""Nothing in a question is invisible, reordered or out of sight."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.apps.admin.question import Revealed, reveal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("git push", "git push"),
        ("a\tb", "a\\tb"),
        ("a\rb", "a\\rb"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\x9b31mb", "a\\x9b31mb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("a\u200bb", "a\\u200bb"),
        ("a\u00adb", "a\\xadb"),
        ("a\u3164b", "a\\u3164b"),
        ("a\u2800b", "a\\u2800b"),
        ("a\ufe0fb", "a\\ufe0fb"),
        ("a\u00a0b", "a\\xa0b"),
        ("a\u2003b", "a\\u2003b"),
        ("a\U000e0041b", "a\\U000e0041b"),
        ("a\ud800b", "a\\ud800b"),
    ],
)
def test_what_is_not_seen_is_shown(text, shown):
    found = reveal(text)
    assert found.rows == (shown,)
    assert bool(found.notices) is (shown != text)


def test_padding_is_counted_and_indentation_is_left():
    text = "    if x:\n        y" + " " * 80 + "; rm -rf /\n" + " " * 60 + "z"
    assert reveal(text) == Revealed(
        ("    if x:", "        y⟨80 spaces⟩; rm -rf /", "⟨60 spaces⟩z"),
        ("2 runs of spaces are shown as ⟨N spaces⟩",),
    )


def test_letters_of_another_alphabet_are_named():
    assert reveal("p\u0430yp\u0430l.com").notices == (
        "non-ASCII characters: 2 × U+0430 cyrillic small letter a",
    )
    many = reveal("".join(map(chr, range(0x430, 0x440)))).notices
    assert many[0].endswith("and 10 more kinds")


@given(st.text(max_size=200))
def test_every_row_is_printable_and_no_line_is_lost(text):
    revealed = reveal(text)
    assert len(revealed.rows) == text.count("\n") + 1
    for row in revealed.rows:
        assert row.isprintable()
        assert not any(unicodedata.category(each) in {"Cf", "Cc", "Cs", "Co"} for each in row)
        assert not any(unicodedata.bidirectional(each) in {"RLO", "LRO", "RLE"} for each in row)
