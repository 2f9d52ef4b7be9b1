"""Objects of arguments from their text: one meaning, or none."""

import pytest

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.text.json import parse_object


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ('{"o": {"b": 1, "b": 2}}', "'b' is given twice"),
        ("[]", "the arguments are an array, not an object"),
        ("null", "the arguments are null, not an object"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": Infinity}', "Infinity is not a JSON number"),
        ('{"a": 1', "the arguments are not JSON: expecting ',' delimiter"),
        ("", "the arguments are not JSON: expecting value"),
        ("[" * 100_000, "the arguments are nested too deep"),
        (b"\xff", "the arguments are not UTF-8 at byte 0"),
        ('{"a": 1}'.encode("utf-16"), "the arguments are not UTF-8 at byte 0"),
        (
            '{"a": 1}'.encode("utf-16-le"),
            "the arguments are not JSON: expecting property name enclosed in double quotes",
        ),
    ],
)
def test_text_that_is_no_object_of_arguments_is_refused(source: str | bytes, said: str) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        parse_object(source)
    assert caught.value.message == said


def test_a_number_of_too_many_digits_is_refused() -> None:
    with pytest.raises(InvalidArgumentsError, match="not usable"):
        parse_object('{"a": ' + "9" * 5000 + "}")


def test_an_object_of_arguments_is_parsed() -> None:
    assert parse_object('{"path": "é", "n": 1}') == {"path": "é", "n": 1}


def test_more_than_is_allowed_is_not_even_read() -> None:
    with pytest.raises(InvalidArgumentsError, match="the arguments are too long"):
        parse_object(b"[" * (limits.argument_bytes_max + 1))


def test_the_subject_begins_every_message() -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        parse_object("7", "the answer is")
    assert caught.value.message == "the answer is an integer, not an object"
