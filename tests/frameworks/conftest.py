"""Tests of integrations, each in an environment of its own: `make frameworks`.

Where a framework is not installed, as in `.venv`, nothing of its folder is collected.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from tests.support.places import Place, new_place

MODULES = {
    "claude_agent_sdk": "claude_agent_sdk",
    "deepagents": "deepagents",
    "inspect_ai": "inspect_ai",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "strands": "strands",
}
"""Folder → the module that its framework is imported by."""

collect_ignore = [folder for folder, module in MODULES.items() if find_spec(module) is None]

CONFINES = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*", "tool:output:*"]
deny = ["tool:file:create locked/**"]
otherwise = { "tool:shell:*" = "confine" }
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with new_place() as made:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "PADDOCK_HOME", "PADDOCK_PLANE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(made.home))
        yield made


@pytest.fixture
def write_policy(place: Place) -> Callable[[str], None]:
    def write(text: str) -> None:
        config = place.environment.user_config
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)

    write(CONFINES)
    return write


@pytest.fixture
def recorded(place: Place) -> Callable[[], list[tuple[str, str, str]]]:
    """Event, tool and decision of each entry, oldest first, from a ledger that verifies."""

    def read() -> list[tuple[str, str, str]]:
        path = place.run("where", "--json").json["ledgers"]["ho1m"]
        assert verify(path).problems == ()
        entries = [row.entry for row in query(path, Filter()).entries]
        return [
            (each.event_type, each.metadata.get("tool", ""), each.decision)
            for each in entries
            if each.call_id
        ]

    return read
