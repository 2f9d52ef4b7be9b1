"""The schema of admin_config.json and our own reader accept and refuse the same values."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.assembly.bootstrap import bare_plane_blueprint
from paddock.errors import ConfigError
from paddock.plane.admin import (
    AdminTable,
    admin_config_schema,
    admin_config_schema_bytes,
    parse_admin_config,
)

SCHEMA = admin_config_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
WORDS = (
    "development",
    "production",
    "Development",
    "HOT",
    "hot",
    "tier",
    "ledger",
    "governance",
    "ho2m",
    "enforce",
    "off",
    "skip",
    "fail",
    "responses",
    "chat",
    "",
    "**",
    "x" * 64,
    "x" * 65,
    "x" * 200,
    "x" * 201,
    "https://host/v1",
    "https://",
    "ftp://host",
    "http://host/\n",
    "http://hö",
)
NAMES = (
    *AdminTable.__struct_fields__,
    "stages",
    "type",
    "max_entries",
    "event_type",
    "mode",
    "session_tokens",
    "provider",
    "name",
    "base_url",
    "api",
    "read",
    "forbidden",
    "tool_id",
    "package_id",
    "handler",
    "parameters",
    "fallback",
    "unknown",
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 100, 101, 2**53, 2**53 + 1, 1.0, 1.5, -0.0, 1e300]),
    st.sampled_from(WORDS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)


def ways(value: Any) -> list[tuple[str | int, ...]]:
    """The way to every value in a JSON value."""
    found: list[tuple[str | int, ...]] = [()]
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        found += [(key, *way) for way in ways(inner)]
    return found


WHOLE = json.loads(bare_plane_blueprint("development").config)
WHOLE["tools"] = [{"tool_id": "t", "description": "d", "handler": "h", "parameters": {"a": 1}}]
WHOLE["package_tools"] = [{"tool_id": "t", "package_id": "PKG-A"}]
WAYS = [way for way in ways(WHOLE) if way]


@st.composite
def nearly_right(draw: st.DrawFn) -> Any:
    """The whole configuration with some places changed, taken out or added."""
    config = copy.deepcopy(WHOLE)
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from(WAYS))
        place = config
        try:
            for key in way[:-1]:
                place = place[key]
            act = draw(st.sampled_from(["change", "drop", "add"]))
            if act == "drop":
                del place[way[-1]]
            elif act == "add" and isinstance(place, dict):
                place[draw(st.sampled_from(NAMES))] = draw(values)
            else:
                place[way[-1]] = draw(values)
        except (KeyError, IndexError, TypeError):
            continue  # a change before took the place away
    return config


def loads(value: Any) -> bool:
    try:
        parse_admin_config(json.dumps(value).encode(), Path("/admin_config.json"))
    except ConfigError:
        return False
    return True


@given(nearly_right() | values)
def test_reader_and_schema_give_one_verdict(value):
    assert loads(value) is VALIDATOR.is_valid(value)


def test_the_schema_is_one_and_the_new_planes_configuration_keeps_it():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(admin_config_schema_bytes()) == SCHEMA
    for profile in ("production", "development"):
        config = json.loads(bare_plane_blueprint(profile).config)
        assert config["tool_profile"] == profile
        VALIDATOR.validate(config)
        assert loads(config)


@pytest.mark.parametrize(
    ("value", "is_right"),
    [
        ({}, True),
        (WHOLE, True),
        (WHOLE | {"tool_profile": "Development"}, False),
        (WHOLE | {"tool_profile": None}, False),
        (WHOLE | {"risky": True}, False),
        (WHOLE | {"permissions": {"read": ["a", "a"]}}, False),
        (WHOLE | {"budget": {"turn_tokens": 5.0}}, True),
        (WHOLE | {"budget": {"turn_tokens": True}}, False),
        (WHOLE | {"model": {"base_url": "http://host/\n"}}, False),
        (WHOLE | {"model": {"base_url": None, "api": None, "name": None}}, True),
        (WHOLE | {"attention": {"stages": [{"type": "tier", "ledger": "ho2m"}]}}, False),
        (WHOLE | {"tools": [{"tool_id": "x", "description": ""}]}, False),
        ([], False),
    ],
)
def test_named_files_are_taken_or_refused_by_both(value, is_right):
    assert (loads(value), VALIDATOR.is_valid(value)) == (is_right, is_right)
