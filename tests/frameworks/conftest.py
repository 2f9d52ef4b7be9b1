"""Tests of integrations, each in an environment of its own: `make frameworks`.

Where a framework is not installed, as in `.venv`, nothing of its folder is collected.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec import Struct

from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from tests.support.documents import run_document
from tests.support.places import Place, program_place
from tests.support.repository import ROOT

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

ASKS_ABOUT_CHANGES = f'{CONFINES}[shell]\napprove = "diff"\n'


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with program_place(monkeypatch) as made:
        yield made


@pytest.fixture
def write_policy(place: Place) -> Callable[[str], None]:
    def write(text: str) -> None:
        config = place.environment.user_config
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)

    write(CONFINES)
    return write


class Reader(Struct, frozen=True):
    """Somebody who follows a page, or tries an example, in a small project."""

    project: Path
    environment: dict[str, str]

    def follow(self, page: str) -> list[str]:
        """Run every block of the page; what went wrong."""
        return run_document(ROOT / "docs" / "use-with" / page, self.project, self.environment)

    def write_policy(self, text: str) -> None:
        config = Path(self.environment["HOME"], ".config", "paddock", "config.toml")
        config.parent.mkdir(parents=True)
        config.write_text(text)

    def run(self, example: str) -> str:
        """What the example prints."""
        program = [sys.executable, "-W", "error", str(ROOT / "examples" / example), "."]
        done = subprocess.run(
            program,
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    project = tmp_path / "widgets"
    for folder in ("src", ".git"):
        (project / folder).mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (project / "README.md").write_text("# Widgets\n\nWidgets for teh web.\n")
    (project / "src" / "widgets.py").write_text("SIZE = 3\n")
    (project / ".env").write_text("TOKEN=of-nobody\n")
    environment = {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
    }
    return Reader(project, environment)


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
