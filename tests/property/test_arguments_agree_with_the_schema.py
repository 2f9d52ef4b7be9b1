"""The binder accepts what the schema accepts, and nothing else."""

import math
import operator

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import InvalidArgumentsError
from paddock.tools.arguments import (
    ArgumentType,
    Binder,
    clamped_integer,
    content_text,
    filled_text,
    flag,
    needed_text,
    optional_integer,
    optional_text,
    plain_text,
    text_map,
)
from paddock.values.calls import Json


class Sample(ArgumentType):
    path: str = needed_text("A path.")
    new: str = plain_text("A text.")
    offset: int | None = optional_integer("A line.", None, minimum=1, maximum=9)
    depth: int = clamped_integer("A depth.", 3, minimum=1, maximum=5)
    note: str | None = optional_text("A note.")
    kind: str = filled_text("A kind.", "a")
    more: str = content_text("More.")
    env: dict[str, str] | None = text_map("Variables.")
    whole: bool = flag("A flag.", default=True)


BINDER = Binder(Sample)
VALIDATOR = jsonschema.Draft202012Validator(BINDER.schema)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 12),
    st.sampled_from([10**30, -(10**30), 0.5, math.nan, math.inf]),
    st.text("ab\n é", max_size=3),
    st.lists(st.none()),
    st.dictionaries(st.text("ab"), st.one_of(st.text("ab"), st.none()), max_size=2),
)
NAMES = st.sampled_from([*BINDER.declared, "agent"])
GOOD = st.fixed_dictionaries({"path": st.just("a"), "new": st.text("ab")})


@given(
    st.one_of(
        st.dictionaries(NAMES, VALUES),
        st.builds(operator.or_, GOOD, st.dictionaries(NAMES, VALUES, max_size=2)),
    )
)
def test_binder_and_schema_agree(given_arguments: dict[str, Json]) -> None:
    try:
        BINDER.bind(given_arguments)
        is_bound = True
    except InvalidArgumentsError:
        is_bound = False
    assert is_bound is VALIDATOR.is_valid(given_arguments)
