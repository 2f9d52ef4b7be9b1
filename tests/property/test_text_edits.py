"""Every byte that an edit does not name is unchanged, whatever the line ends."""

from hypothesis import assume, given
from hypothesis import strategies as st

from paddock.text.edit import Span, Spliced, find_spans, snippet_around, splice, splice_all

PIECES = st.sampled_from(["a", "b", " ", "\t", "é", "\n", "\r\n", "\r", "\ufeff", "xyz"])
TEXTS = st.lists(PIECES, max_size=30).map("".join)
NEEDLES = st.lists(PIECES, min_size=1, max_size=6).map("".join)


def shown_as(content: bytes) -> bytes:
    """What a model sees of line ends: every CRLF is a newline."""
    return content.replace(b"\r\n", b"\n")


@given(front=TEXTS, old=NEEDLES, back=TEXTS, new=TEXTS)
def test_bytes_outside_the_place_never_change(front: str, old: str, back: str, new: str) -> None:
    content = (front + old + back).encode()
    for place in find_spans(content, old.encode()):
        changed = b"".join(splice(content, place, old.encode(), new.encode()).pieces)
        assert changed.startswith(content[: place.start])
        assert changed.endswith(content[place.end :])
        middle = changed[place.start : len(changed) - (len(content) - place.end)]
        assert shown_as(middle) == shown_as(new.encode())


@given(front=TEXTS, old=NEEDLES, back=TEXTS)
def test_what_stands_there_is_found_at_its_place(front: str, old: str, back: str) -> None:
    assume(not (front.endswith("\r") and old.startswith("\n")))
    content = (front + old + back).encode()
    starts = [span.start for span in find_spans(content, old.encode())]
    assert len(front.encode()) in starts


@given(lines=st.lists(st.text("abc", max_size=4), min_size=1, max_size=8), data=st.data())
def test_a_text_copied_from_a_view_of_a_crlf_file_is_found_and_keeps_its_style(
    lines: list[str], data: st.DataObject
) -> None:
    content = "\r\n".join(lines).encode()
    seen = "\n".join(lines)
    start = data.draw(st.integers(0, len(seen) - 1)) if seen else 0
    assume(seen != "")
    end = data.draw(st.integers(start + 1, len(seen)))
    old = seen[start:end].encode()
    new = data.draw(st.text("abc\n", max_size=6)).encode()
    place = next(iter(find_spans(content, old)))
    changed = b"".join(splice(content, place, old, new).pieces)
    assert b"\n" not in changed.replace(b"\r\n", b"") or b"\r\n" not in content


@given(front=TEXTS, old=NEEDLES, back=TEXTS)
def test_replacing_a_text_by_itself_changes_nothing(front: str, old: str, back: str) -> None:
    raw = (front + old + back).encode()
    for place in find_spans(raw, old.encode()):
        assert b"".join(splice(raw, place, old.encode(), old.encode()).pieces) == raw


PLAIN = st.lists(st.sampled_from(["a", "b", "ab", "\n", "é"]), max_size=5).map("".join)


@given(
    lines=st.lists(st.sampled_from(["a", "b", "ab", "aa", ""]), max_size=12),
    ends=st.lists(st.sampled_from(["\n", "\r\n"]), min_size=12, max_size=12),
    old=PLAIN.filter(bool),
    new=PLAIN,
)
def test_replacing_all_is_replacing_all_of_what_is_seen(
    lines: list[str], ends: list[str], old: str, new: str
) -> None:
    content = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    changed, count = splice_all(content, old.encode(), new.encode(), 10_000)
    seen = shown_as(content)
    assert shown_as(changed) == seen.replace(old.encode(), new.encode())
    assert count == seen.count(old.encode())
    if b"\n" not in content.replace(b"\r\n", b""):
        assert b"\n" not in changed.replace(b"\r\n", b"") or b"\r\n" not in content


@given(front=TEXTS, old=NEEDLES, back=TEXTS, new=TEXTS)
def test_replacing_all_of_one_is_replacing_one(front: str, old: str, back: str, new: str) -> None:
    content = (front + old + back).encode()
    places = list(find_spans(content, old.encode()))
    assume(len(places) == 1)
    one = b"".join(splice(content, places[0], old.encode(), new.encode()).pieces)
    assert splice_all(content, old.encode(), new.encode(), 10_000) == (one, 1)


@given(front=TEXTS, old=NEEDLES, back=TEXTS, new=TEXTS)
def test_a_snippet_of_pieces_is_that_of_the_joined_content(
    front: str, old: str, back: str, new: str
) -> None:
    content = (front + old + back).encode()
    for place in find_spans(content, old.encode()):
        spliced = splice(content, place, old.encode(), new.encode())
        joined = b"".join(spliced.pieces)
        start, length = spliced.replaced.start, len(spliced.inserted)
        whole = Spliced(joined, Span(start, start + length), spliced.inserted)
        assert snippet_around(spliced) == snippet_around(whole)
        assert spliced.changes_nothing is (joined == content)
