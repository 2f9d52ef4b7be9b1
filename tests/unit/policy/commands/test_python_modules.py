"""`python … -m MODULE` is judged as the module, whatever options stand before it."""

import pytest

from paddock.policy.commands import compile_command_pattern, parse_line

OPTIONS = ("", "-I ", "-bb ", "-X dev ", "-Xdev ", "-W error ", "-Werror ", "-Wc ", "-I -X dev ")


def is_allowed(rule, command):
    line = parse_line(command)
    pattern = compile_command_pattern(rule)
    doubts = line.problems or line.runtime_only or any(each.obstacles for each in line.commands)
    return not doubts and all(pattern.matches_exactly(each) for each in line.commands)


@pytest.mark.parametrize("options", [*OPTIONS, "--check-hash-based-pycs always "])
def test_what_a_module_loads_by_its_options_rides_on_no_rule(options):
    rule = f"python {options}-m pytest *"
    assert is_allowed(rule, f"python {options}-m pytest tests -q")
    assert not is_allowed(rule, f"python {options}-m pytest -p evil")
    assert not is_allowed(rule, f"python {options}-m pytest -c evil.ini")


@pytest.mark.parametrize("options", OPTIONS)
def test_a_module_in_the_word_of_its_option_is_in_doubt(options):
    rule = f"python {options}-mpytest *"
    assert not is_allowed(rule, f"python {options}-mpytest -p evil")
    assert not is_allowed(rule, f"python {options}-mpytest tests")


@pytest.mark.parametrize("line", ["python x.py -m pytest -p y", "python -c 'x' -m pytest -p y"])
def test_behind_a_script_or_a_text_there_is_no_module(line):
    assert parse_line(line).commands[0].starts == (0,)
