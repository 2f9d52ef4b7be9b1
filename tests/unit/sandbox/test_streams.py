"""A command's output as text: safe characters, and cut in the middle where it is long."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.sandbox.streams import Decoding, LastLine, render_stream
from paddock.sandbox.values import Captured


def captured(content: bytes, kept: int) -> Captured:
    """As a capture keeps it: all of it, or its first and its last bytes."""
    if len(content) <= kept:
        return Captured(content, b"", len(content))
    half = kept // 2
    return Captured(content[:half], content[-half:], len(content))


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"", ""),
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"50%\r100%\n", "50%\\r100%\n"),
        (b"\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        (b"\xff\xfeok", "\ufffd\ufffdok"),
        ("a\u202eb\u2028c".encode(), "a\\u202eb\\u2028c"),
        (b"tab\there", "tab\there"),
        (b"\x00\x07", "\\x00\\x07"),
    ],
)
def test_output_is_shown_as_text_that_cannot_mislead(printed, shown):
    assert render_stream(captured(printed, 1000), 100) == (shown, False)


def test_what_is_as_long_as_the_limit_is_whole():
    assert render_stream(captured(b"x" * 100, 1000), 100) == ("x" * 100, False)


def test_one_character_more_is_cut():
    text, is_cut = render_stream(captured(b"a" * 50 + b"b" * 51, 1000), 100)

    assert is_cut
    assert text == "a" * 50 + "\n[TRUNCATED at 100 chars]\n" + "b" * 50


def test_escapes_count_as_the_characters_that_they_are_shown_as():
    text, is_cut = render_stream(captured(b"\x1b" * 60, 1000), 100)

    assert is_cut
    assert len(text) == 100 + len("\n[TRUNCATED at 100 chars]\n")


PRINTED = st.lists(st.sampled_from(["a", "\r\n", "\r", "\n", "\0", "\x1b", "é", "\u202e", "€"]))


@given(PRINTED, st.integers(1, 20))
def test_what_is_shown_does_not_depend_on_where_it_was_looked_at(pieces: list[str], half: int):
    content = "".join(pieces).encode()
    whole, _ = render_stream(captured(content, 10_000), 10_000)

    shown, is_cut = render_stream(captured(content, 10_000), 2 * half)

    assert is_cut == (len(whole) > 2 * half)
    head, _, tail = shown.partition(f"\n[TRUNCATED at {2 * half} chars]\n")
    assert (head, tail) == ((whole[:half], whole[-half:]) if is_cut else (whole, ""))


@given(st.text(), st.integers(1, 4))
def test_a_cut_never_splits_a_character(text: str, more: int):
    content = ("é" * 60 + text + "€" * 60).encode()
    shown, is_cut = render_stream(captured(content[: len(content)], 81 + more), 20)

    assert is_cut
    assert shown == "é" * 10 + "\n[TRUNCATED at 20 chars]\n" + "€" * 10


@given(st.binary(max_size=600), st.integers(2, 40))
def test_any_bytes_are_shown_within_the_limit(content: bytes, half: int):
    text, is_cut = render_stream(captured(content, 400), 2 * half)

    notice = f"\n[TRUNCATED at {2 * half} chars]\n"
    assert len(text) <= 2 * half + len(notice)
    assert is_cut == (notice in text)
    shown = text.replace("\n", "").replace("\t", "")
    assert not [one for one in shown if unicodedata.category(one) in {"Cc", "Cs", "Zl", "Zp"}]


@given(st.text(), st.text(), st.lists(st.integers(1, 7)))
def test_text_in_any_pieces_is_told_whole(out: str, error: str, sizes: list[int]):
    told: dict[str, list[str]] = {"stdout": [], "stderr": []}
    decoding = Decoding(lambda name, text: told[name].append(text))
    for name, text in (("stdout", out), ("stderr", error)):
        content = text.encode()
        for size in sizes:
            decoding(name, content[:size])
            content = content[size:]
        decoding(name, content)
    decoding.finish()

    assert ("".join(told["stdout"]), "".join(told["stderr"])) == (out, error)
    assert "" not in (*told["stdout"], *told["stderr"])


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b""], ""),
        ([b"one\ntw", b"o"], "two"),
        ([b"one\n\n  \n"], "one"),
        ([b"a\x1b[2Jb\xe2\x80\xae\n"], r"a\x1b[2Jb\u202e"),
        ([b"50 %\r75 %\r"], "75 %"),
        ([b"x" * 10_000], "x" * 200),
    ],
)
def test_the_last_line_is_safe_to_show(pieces: list[bytes], shown: str):
    line = LastLine()
    for piece in pieces:
        line("stdout", piece)

    assert line.text == shown
