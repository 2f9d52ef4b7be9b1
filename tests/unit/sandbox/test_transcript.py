"""What a running command printed, read piece by piece: each piece is text that can be shown."""

from hypothesis import given
from hypothesis import strategies as st

from paddock.sandbox.sessions.process import Transcript
from paddock.values.calls import NEVER


def told(transcript: Transcript, offset: int | None = None) -> str:
    return transcript.read(offset, 0, NEVER).text


def test_a_character_that_has_come_in_part_is_told_when_its_rest_has_come():
    transcript = Transcript()

    transcript.add("stdout", b"price: \xe2\x82")
    first = told(transcript)
    transcript.add("stdout", b"\xac\n")

    assert (first, told(transcript)) == ("price: ", "€\n")


def test_the_end_of_a_line_that_has_come_in_part_is_no_character_of_its_own():
    transcript = Transcript()

    transcript.add("stdout", b"one\r")
    first = told(transcript)
    transcript.add("stdout", b"\ntwo")

    assert (first, told(transcript)) == ("one", "\ntwo")


def test_what_stays_half_a_character_is_told_at_the_end():
    transcript = Transcript()
    transcript.add("stdout", b"a\xe2\x82")
    first = told(transcript)

    transcript.end()

    assert (first, told(transcript)) == ("a", "\N{REPLACEMENT CHARACTER}")


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf"))), st.data())
def test_text_that_is_read_in_any_pieces_is_told_whole(text: str, data: st.DataObject):
    transcript = Transcript()
    printed, said = text.encode(), ""
    while printed:
        size = data.draw(st.integers(1, 9))
        transcript.add("stdout", printed[:size])
        printed = printed[size:]
        said += told(transcript)
    transcript.end()

    assert said + told(transcript) == text
