"""Strands' page can be followed, and its example runs."""

import pytest

from tests.frameworks.conftest import Reader

pytestmark = pytest.mark.needs("stage")


def test_the_page_can_be_followed(reader: Reader):
    assert reader.follow("strands.md") == []


def test_the_example_runs(reader: Reader):
    said, _, counted, refused = reader.run("strands_agent.py").splitlines()
    assert said == "README.md has three lines, and .env is not for me."
    assert '"output": "3 README.md\\\\n"' in counted
    assert "policy refused reading .env" in refused
