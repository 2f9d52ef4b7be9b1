"""The page of the OpenAI Agents SDK can be followed, and its example runs."""

import pytest

from tests.frameworks.conftest import Reader

pytestmark = pytest.mark.needs("stage")


def test_the_page_can_be_followed(reader: Reader):
    assert reader.follow("openai-agents.md") == []


def test_the_example_runs(reader: Reader):
    assert reader.run("openai_agent.py").splitlines() == [
        "3 README.md",
        "paddock: a person can change it: paddock policy explain 'tool:file:view .env'",
        "README.md has three lines, and .env is not for me.",
        "exit code: 126",
        "I may read, and not change git.",
    ]
    assert list((reader.project / ".git").iterdir()) == []
