"""Pydantic AI's page can be followed, and its example runs."""

from tests.frameworks.conftest import Reader


def test_the_page_can_be_followed(reader: Reader):
    assert reader.follow("pydantic-ai.md") == []


def test_the_example_runs(reader: Reader):
    reader.write_policy('[profiles.standard]\nask = ["tool:file:delete **"]\n')
    assert reader.run("pydantic_ai_agent.py").splitlines() == [
        "asked: delete_file src/widgets.py",
        "It is gone, and nobody gets to see .env.",
    ]
    assert not (reader.project / "src/widgets.py").exists()
