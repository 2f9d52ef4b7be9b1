import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import ConfigError
from paddock.text.json import DEPTH_MAX, remove_member, set_member

ENTRY = {"command": "paddock", "args": ["mcp"]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(), JSON, max_size=4),
    st.none() | st.dictionaries(st.text(), JSON, max_size=3),
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
)
def test_whatever_stands_in_the_file_one_member_is_set(others, servers, indent, is_ascii):
    values = dict(others)
    values.pop("mcpServers", None)
    if servers is not None:
        values["mcpServers"] = servers
    text = json.dumps(values, indent=indent, ensure_ascii=is_ascii)
    changed = set_member(text, ("mcpServers", "paddock"), ENTRY)
    wanted = {**values, "mcpServers": {**(servers or {}), "paddock": ENTRY}}
    assert json.loads(changed) == wanted
    assert list(json.loads(changed)) == list(wanted)


@given(
    st.dictionaries(st.text(), JSON, max_size=4),
    st.dictionaries(st.text(), JSON, min_size=1, max_size=3),
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
)
def test_what_was_set_behind_other_members_is_taken_out_byte_for_byte(
    others, servers, indent, is_ascii
):
    servers.pop("paddock", None)
    values = {**others, "mcpServers": {"x": 1, **servers}}
    text = json.dumps(values, indent=indent, ensure_ascii=is_ascii)
    way = ("mcpServers", "paddock")
    assert remove_member(set_member(text, way, ENTRY), way) == text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": {"b": 1, "c": 2} }', '{"a": {"c": 2} }'),
        ('{"a": {"c": 2,\n "b": 1 } }', '{"a": {"c": 2 } }'),
        ('{"a": {"c": 2 , "b": {"b": 1}, "d": 3}}', '{"a": {"c": 2, "d": 3}}'),
        ('{"a": { "b": 1 }, "b": 2}', '{"a": {}, "b": 2}'),
    ],
    ids=["first", "last", "between", "alone"],
)
def test_one_member_is_taken_out_wherever_it_stands(text, rest):
    assert remove_member(text, ("a", "b")) == rest


@pytest.mark.parametrize("text", ["{}", '{"a": {}}', '{"a": 1}', '{"b": 1}'])
def test_a_member_that_is_not_there_is_not_taken_out(text):
    with pytest.raises(ValueError, match="no way"):
        remove_member(text, ("a", "b"))


@pytest.mark.parametrize(
    "edit",
    [lambda text: set_member(text, ("a",), 1), lambda text: remove_member(text, ("b",))],
    ids=["set", "remove"],
)
def test_text_that_nests_as_deep_as_the_limit_is_edited_and_deeper_text_is_refused(edit):
    levels = DEPTH_MAX - 1
    assert edit(f'{{"b": {"[" * levels}{"]" * levels}}}')
    with pytest.raises(ConfigError, match="nested too deep") as refused:
        edit(f'{{"b":\n[{"[" * levels}{"]" * levels}]}}')
    assert refused.value.where == "line 2"
