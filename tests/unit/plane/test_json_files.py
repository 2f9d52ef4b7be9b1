"""Files of JSON become typed values, or an error with file, line, field and what to do."""

import json
from typing import Annotated, Literal

import pytest
from msgspec import Meta, field

from paddock.errors import ConfigError
from paddock.plane.json_files import parse_file, write_object
from paddock.text.json import Strict


class Inner(Strict, frozen=True):
    word: Literal["on", "off"] = "on"
    count: Annotated[int, Meta(ge=1, le=9)] = 1


class Outer(Strict, frozen=True):
    name: Annotated[str, Meta(min_length=1)]
    inner: Inner = Inner()
    rows: tuple[Inner, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)


def refused(text: str) -> tuple[str, str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_file(text.encode(), "f.json").convert(Outer)
    return caught.value.message, caught.value.where, caught.value.hint


def test_what_is_written_is_read_again():
    value = Outer("é", Inner("off", 9), (Inner(), Inner("off")), {"a": "b"})

    assert parse_file(write_object(value), "f.json").convert(Outer) == value


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("{}", "'name' is missing", "line 1, field 'name'"),
        ('{"name": "a",\n"more": 1}', "unknown key 'more'", "line 2, field 'more'"),
        ('{"name": 1}', "'name' is the number '1', not text", "line 1, field 'name'"),
        (
            '{"name": ""}',
            "'name' is the text '', not text of length >= 1",
            "line 1, field 'name'",
        ),
        (
            '{"name": "a",\n"inner": {\n"count": 10}}',
            "'count' is the number '10', not a whole number <= 9",
            "line 3, field 'inner.count'",
        ),
        (
            '{"name": "a", "rows": [{},\n{"word": "On"}]}',
            "'On' is not a valid value of 'word'",
            "line 2, field 'rows[1].word'",
        ),
        (
            '{"name": "a", "rows": [{"count": 1.0}]}',
            "'count' is the number '1.0', not a whole number",
            "line 1, field 'rows[0].count'",
        ),
        (
            '{"name": "a", "rows": [true]}',
            "'rows' is true or false, not an object",
            "line 1, field 'rows'",
        ),
        (
            '{"name": "a", "texts": {"b": 1}}',
            "'texts' is an object, not text",
            "line 1, field 'texts'",
        ),
        (
            '{"name": "a",\n"inner": {"word": "\\ud800"}}',
            "a text contains half of a surrogate pair",
            "line 2, field 'inner.word'",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(text, message, place):
    assert refused(text)[:2] == (message, f"f.json, {place}")


def test_what_can_stand_there_is_told():
    assert refused('{"name": "a", "inner": {"word": "x"}}')[2] == "one of: off, on"
    assert refused('{"name": "a", "inner": {"wort": 1}}')[2] == "known keys: word, count"


@pytest.mark.parametrize("name", ["a` - at `$.rows[7].word", "`", "$.x", "\n", "[...]", "a.b[0]"])
def test_a_name_that_looks_like_a_place_is_a_name(name):
    message, where, _ = refused(json.dumps({"name": "a", name: 1}))

    assert message.startswith("unknown key ")
    assert where.startswith("f.json, line 1, field ")
