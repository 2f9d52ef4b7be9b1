"""Prompt contracts: strict to load, pure to render."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.agent.contracts import (
    CLASSIFY,
    EXECUTE,
    SYNTHESIZE,
    Boundary,
    load_contracts,
    parse_contract,
)
from paddock.errors import ConfigError

GOOD = {
    "contract_id": "PRC-SUMMARY-001",
    "description": "A summary.",
    "input_schema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "tone": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
    "output_schema": None,
    "template": "Summarise{{tone}}:\n{{text}}",
    "boundary": {"max_tokens": 500, "temperature": 0.5, "structured_output": False},
}
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}


def parse(**changes):
    return parse_contract(json.dumps(GOOD | changes).encode(), "PRC-SUMMARY-001.json")


def test_a_contract_loads_with_all_that_it_says():
    contract = parse()

    assert contract.contract_id == "PRC-SUMMARY-001"
    assert contract.boundary == Boundary(500, 0.5, structured_output=False)
    assert contract.variables == ["tone", "text"]
    assert contract.digest.startswith("sha256:")
    assert contract.output is None


def test_values_are_put_in_and_what_may_be_left_out_is_empty():
    assert parse().render({"text": "hello"}) == "Summarise:\nhello"
    assert parse().render({"text": {"a": [1]}, "tone": " softly"}) == (
        'Summarise softly:\n{"a": [1]}'
    )


@given(st.text(), st.text())
def test_a_value_is_never_looked_at_again(text, tone):
    rendered = parse().render({"text": f"{{{{tone}}}}{text}", "tone": f"{{{{text}}}}{tone}"})

    assert rendered == f"Summarise{{{{text}}}}{tone}:\n{{{{tone}}}}{text}"


@pytest.mark.parametrize(
    "template", ["{{ text }}", "{{Text}}", "{{}}", "{{text", "text}}", "{{te xt}}"]
)
def test_two_braces_that_are_no_variable_do_not_load(template):
    with pytest.raises(ConfigError) as refused:
        parse(template=template)
    assert "'template'" in refused.value.where


def test_a_single_brace_is_text():
    assert parse(template='{"a": {{text}} }').render({"text": "1"}) == '{"a": 1 }'


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"template": "{{other}}"}, "template"),
        ({"contract_id": "SUMMARY"}, "contract_id"),
        ({"contract_id": "PRC-../../x"}, "contract_id"),
        ({"input_schema": {"type": "array"}}, "input_schema"),
        ({"input_schema": {"type": "object", "properties": 7}}, "input_schema"),
        ({"output_schema": {"type": "nonsense"}}, "output_schema"),
        ({"output_schema": SCHEMA}, "boundary"),
        ({"boundary": {"structured_output": True}}, "boundary"),
        ({"boundary": {"max_tokens": 0}}, "max_tokens"),
        ({"boundary": {"temperature": "hot"}}, "temperature"),
        ({"boundary": {"temperature": True}}, "temperature"),
        ({"boundary": {"temperature": 3}}, "temperature"),
        ({"boundary": {"top_p": 1}}, "top_p"),
        ({"handler": "os.system"}, "handler"),
        ({"template": 7}, "template"),
    ],
)
def test_what_is_not_understood_does_not_load(changes, field):
    with pytest.raises(ConfigError) as refused:
        parse(**changes)
    assert f"{field}'" in refused.value.where


@pytest.mark.parametrize("name", ["contract_id", "input_schema", "template"])
def test_what_is_missing_does_not_load(name):
    members = {key: value for key, value in GOOD.items() if key != name}

    with pytest.raises(ConfigError):
        parse_contract(json.dumps(members).encode(), "x.json")


def test_an_object_is_asked_for_under_a_name_that_providers_take():
    contract = parse(output_schema=SCHEMA, boundary={"structured_output": True})

    assert (contract.output.name, contract.output.schema) == ("prc_summary_001", SCHEMA)


def test_without_a_directory_there_are_those_that_paddock_brings(tmp_path):
    for contracts in (load_contracts(None), load_contracts(tmp_path / "none")):
        assert all(contracts.get(each) for each in (CLASSIFY, SYNTHESIZE, EXECUTE))


def test_a_planes_contract_takes_the_place_of_the_one_that_paddock_brings(tmp_path):
    own = GOOD | {"contract_id": CLASSIFY, "template": "{{text}}"}
    (tmp_path / f"{CLASSIFY}.json").write_text(json.dumps(own))
    (tmp_path / "README.md").write_text("no contract")

    assert load_contracts(tmp_path)[CLASSIFY].render({"text": "mine"}) == "mine"


def test_a_file_is_called_by_its_contracts_id(tmp_path):
    (tmp_path / "PRC-OTHER-001.json").write_text(json.dumps(GOOD))

    with pytest.raises(ConfigError):
        load_contracts(tmp_path)


def test_a_contract_behind_a_link_does_not_load(tmp_path):
    (tmp_path / "elsewhere").write_text(json.dumps(GOOD))
    (tmp_path / "plane").mkdir()
    (tmp_path / "plane/PRC-SUMMARY-001.json").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConfigError):
        load_contracts(tmp_path / "plane")
