"""The dual gate as a value: both halves, exactly, or it is closed."""

import pytest

from paddock.plane.environment import (
    RISKY_TOOLS_VARIABLE,
    DualGate,
    allows_risky_tools,
    read_environment,
)


@pytest.mark.parametrize(
    ("profile", "variable", "accepted", "is_open"),
    [
        ("development", True, True, True),
        ("development", True, False, False),
        ("development", False, True, False),
        ("development", False, False, False),
        ("production", True, True, False),
        ("production", True, False, False),
        ("production", False, True, False),
        ("production", False, False, False),
    ],
)
def test_it_is_open_only_where_everything_holds(profile, variable, accepted, is_open):
    gate = DualGate(profile, variable, accepted)
    assert gate.is_open is is_open
    assert (gate.missing == ()) is is_open
    assert str(gate).startswith("open:" if is_open else "closed:")


def test_nothing_said_is_closed():
    assert not DualGate().is_open


@pytest.mark.parametrize(
    "value", ["", "0", "2", "01", "1 ", " 1", "1\n", "+1", "1.0", "true", "True", "yes", "on", "１"]
)
def test_the_variable_counts_only_where_it_is_exactly_one(value):
    assert not allows_risky_tools({RISKY_TOOLS_VARIABLE: value})


def test_the_variable_counts_where_it_is_one():
    assert allows_risky_tools({RISKY_TOOLS_VARIABLE: "1"})
    assert not allows_risky_tools({})
    assert not allows_risky_tools({RISKY_TOOLS_VARIABLE.lower(): "1"})


def test_the_environment_brings_its_half_as_it_was_when_it_was_read(tmp_path):
    variables = {"HOME": str(tmp_path), RISKY_TOOLS_VARIABLE: "1"}
    environment = read_environment(variables)
    variables.pop(RISKY_TOOLS_VARIABLE)
    assert environment.risky_tools
    assert not read_environment(variables).risky_tools


def test_it_says_what_is_missing():
    assert DualGate("production", variable=False, accepted=False).as_json() == {
        "open": False,
        "tool_profile": "production",
        "variable": False,
        "accepted": False,
        "missing": [
            "tool_profile is production",
            "CP_ADMIN_ENABLE_RISKY_TOOLS is not 1",
            "this is not a bare plane that you named or registered",
        ],
    }
    assert str(DualGate("development", variable=True, accepted=True)) == (
        "open: development tools are on"
    )
