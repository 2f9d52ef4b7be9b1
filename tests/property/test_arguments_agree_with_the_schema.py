"""The binder accepts what the schema accepts, and nothing else."""

from dataclasses import dataclass

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import InvalidArgumentsError
from paddock.tools.arguments import (
    ArgumentType,
    Binder,
    flag,
    needed_text,
    optional_integer,
    plain_text,
)
from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class Sample(ArgumentType):
    path: str = needed_text("A path.")
    new: str = plain_text("A text.")
    offset: int | None = optional_integer("A line.", None, minimum=1, maximum=9)
    whole: bool = flag("A flag.", default=True)


BINDER = Binder(Sample)
VALIDATOR = jsonschema.Draft202012Validator(BINDER.schema)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 12),
    st.text("ab\n é", max_size=3),
    st.lists(st.none()),
)
NAMES = st.sampled_from(["path", "new", "offset", "whole", "agent"])


@given(st.dictionaries(NAMES, VALUES))
def test_binder_and_schema_agree(given_arguments: dict[str, Json]) -> None:
    try:
        BINDER.bind(given_arguments)
        is_bound = True
    except InvalidArgumentsError:
        is_bound = False
    assert is_bound is VALIDATOR.is_valid(given_arguments)
