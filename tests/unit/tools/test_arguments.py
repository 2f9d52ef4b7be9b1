"""Arguments are validated, never coerced, and an error names the field."""

from dataclasses import dataclass

import jsonschema
import pytest

from paddock.errors import InvalidArgumentsError, UnknownArgumentError
from paddock.tools.arguments import (
    Argument,
    ArgumentType,
    Binder,
    clamped_integer,
    flag,
    made_type,
    needed_text,
    optional_integer,
    optional_text,
    plain_text,
)
from paddock.values.calls import Json


class Sample(ArgumentType):
    path: str = needed_text("A path.")
    old: str = needed_text("An old text.")
    new: str = plain_text("A new text.")
    note: str | None = optional_text("A note.")
    offset: int | None = optional_integer("A line.", None, minimum=1)
    depth: int = clamped_integer("A depth.", 3, minimum=1, maximum=5)
    whole: bool = flag("Whole words.", default=False)


BINDER = Binder(Sample)
GOOD: dict[str, Json] = {"path": "a", "old": "b", "new": ""}


def test_good_arguments_become_a_typed_value_with_defaults() -> None:
    assert BINDER.bind(GOOD) == (Sample("a", "b", "", None, None, 3, False), {})


def test_every_argument_can_be_given() -> None:
    given = {**GOOD, "note": "n", "offset": 7, "depth": 5, "whole": True}
    assert BINDER.bind(given) == (Sample("a", "b", "", "n", 7, 5, True), {})


@pytest.mark.parametrize("missing", ["path", "old"])
def test_texts_that_must_not_be_empty_are_named_together(missing: str) -> None:
    without = {name: value for name, value in GOOD.items() if name != missing}
    for given in (without, {**GOOD, missing: ""}):
        with pytest.raises(InvalidArgumentsError) as caught:
            BINDER.bind(given)
        assert caught.value.message == "path and old are required"
        assert caught.value.hint == f"{missing} is missing or empty"


def test_a_missing_text_that_may_be_empty_is_named() -> None:
    with pytest.raises(InvalidArgumentsError, match="(?m)^new is required$"):
        BINDER.bind({"path": "a", "old": "b"})


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (str, "give it; it may be empty"),
        (int, "give it; it is an integer"),
        (bool, "give it; it is a boolean"),
        (list[str], "give it as its schema says"),
    ],
)
def test_the_hint_of_a_missing_argument_says_what_it_is(kind: type, hint: str) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        Binder(made_type("One", {"it": Argument(kind, "It.")})).bind({})
    assert (caught.value.message, caught.value.hint) == ("it is required", hint)


def test_an_unknown_argument_is_named_with_what_there_is() -> None:
    with pytest.raises(UnknownArgumentError) as caught:
        BINDER.bind({**GOOD, "agent": "admin"})
    assert caught.value.message == "unknown argument 'agent'"
    assert caught.value.hint.startswith("the arguments are: path, old, new")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", "false", "whole must be a boolean, not a string 'false'"),
        ("whole", 0, "whole must be a boolean, not an integer 0"),
        ("path", None, "path must be a string, not null"),
        ("path", ["a"], "path must be a string, not an array '['a']'"),
        ("offset", "abc", "offset must be an integer, not a string 'abc'"),
        ("offset", "7", "offset must be an integer, not a string '7'"),
        ("offset", True, "offset must be an integer, not a boolean True"),
        ("offset", 1.0, "offset must be an integer, not a number 1.0"),
        ("offset", 0, "offset must be at least 1, not 0"),
        ("note", "", "note must not be empty"),
        ("path", "\ud800", "path has half of a surrogate pair at position 0"),
    ],
)
def test_nothing_is_coerced(name: str, value: Json, said: str) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        BINDER.bind({**GOOD, name: value})
    assert (caught.value.message, caught.value.where) == (said, name)


@pytest.mark.parametrize(("given", "used"), [(0, 1), (-3, 1), (9, 5), (2**70, 5)])
def test_a_clamped_number_is_clamped_and_said(given: int, used: int) -> None:
    arguments, clamped = BINDER.bind({**GOOD, "depth": given})
    assert (arguments.depth, clamped) == (used, {"depth": used})


def test_the_schema_is_closed_and_every_field_is_described() -> None:
    schema = BINDER.schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["path", "old", "new"]
    assert all(field["description"] for field in schema["properties"].values())


def test_a_data_class_of_before_is_told_what_to_do() -> None:
    with pytest.raises(TypeError, match="Late is an argument type: declare it without @dataclass"):

        @dataclass(frozen=True, slots=True)
        class Late(ArgumentType):
            path: str = needed_text("A path.")
