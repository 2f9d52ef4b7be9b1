"""Schemas that are well-formed, and yet nothing could be checked against them."""

import pytest

from paddock.errors import ConfigError
from paddock.providers.structured import require_schema, schema_defect, schema_problem
from paddock.values.models import OutputSchema

STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "defect"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "no schema at '#/$defs/none'"),
        ({"properties": {"a": {"$ref": "#none"}}}, "no schema at '#none'"),
        (
            {"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}},
            "no schema at 'http://127.0.0.1:9/x'",
        ),
        (
            {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
            "no schema at 'file:///etc/passwd'",
        ),
        ({"$ref": "#"}, "it refers to itself without end"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "it refers to itself without end"),
        (
            {
                "$defs": {
                    "a": {"allOf": [{"$ref": "#/$defs/b"}]},
                    "b": {"not": {"$ref": "#/$defs/a"}},
                }
            },
            "it refers to itself without end",
        ),
        (
            {"$ref": "#/extra", "extra": {"type": 5}},
            "5 is not valid under any of the given schemas",
        ),
        (
            {"properties": {"a": {"pattern": "("}}},
            "'(' is not a 'regex'",
        ),
        (
            {"patternProperties": {"[": STRING}},
            "'[' is not a 'regex'",
        ),
        ({"$ref": "#/extra", "extra": {"pattern": "["}}, "'[' is not a 'regex'"),
        ({"$ref": "#/extra/a", "extra": {"a": {"$ref": "#/gone"}}}, "no schema at '#/gone'"),
    ],
)
def test_a_schema_that_cannot_be_applied_is_refused_before_anything_is_asked(schema, defect):
    assert schema_defect(schema) == defect
    with pytest.raises(ConfigError, match="the output schema .* cannot be used"):
        require_schema(OutputSchema("answer", {"type": "object", **schema}))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": STRING}, "additionalProperties": False},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": STRING}},
        # A tree: each step goes down into the value, which ends.
        {"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}},
        {
            "$defs": {"a": {"$anchor": "here", "type": "string"}},
            "properties": {"a": {"$ref": "#here"}},
        },
        {
            "$id": "https://example.org/s",
            "properties": {"a": {"$ref": "/s#/$defs/a"}},
            "$defs": {"a": STRING},
        },
        {"anyOf": [{"required": ["a"]}, True], "not": False},
        {"if": {"required": ["a"]}, "then": {"properties": {"a": STRING}}},
    ],
)
def test_a_schema_that_refers_within_itself_serves(schema):
    assert schema_defect(schema) == ""
    assert schema_problem(OutputSchema("answer", schema), {"a": "x"}) == ""
