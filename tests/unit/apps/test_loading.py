"""What a command loads: it starts fast as long as it loads what it needs and nothing else."""

import os
import subprocess
import sys

import pytest

PROGRAM = """\
import sys
from paddock.apps.cli import entry
entry._load_libraries()
from paddock.apps.console import Console
from paddock.apps.cli.main import main
status = main(sys.argv[1:], Console.of_process())
print(*sys.modules, file=sys.stderr)
sys.exit(status)
"""
CALLS = ("paddock.tools.spec", "paddock.tools.toolsets", "paddock.runtime.runtime")
"""What a tool call needs, and a question about the plane does not."""
FILES = ("paddock.workspace.workspace", "paddock.storage.history")
WRITING = ("paddock.assembly.ledgers", "cryptography")
"""What writes to a ledger, and signs it."""
CHANGING = ("paddock.storage.objects", "paddock.storage.journal", "paddock.runtime.changes")
"""What a call that changes something needs, or who looks back at such calls."""

SCHEMAS = ("msgspec.inspect", "textwrap")
"""What makes a tool's schema, which a model is shown before it calls."""


@pytest.fixture
def project(tmp_path):
    """A project whose plane was made by a call, which stands in its ledgers."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "a").write_text("x", encoding="utf-8")
    loaded_by(project, "call", "view", '{"path": "a"}')
    return project


def loaded_by(project, *arguments: str) -> set[str]:
    """The modules that a process has loaded that ran this command."""
    environment = {"HOME": str(project.parent), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("arguments", "needless"),
    [
        (("where",), (*CALLS, *FILES, *WRITING)),
        (("agent", "list"), (*CALLS, *FILES)),
        (("policy", "lint"), (*CALLS, *FILES, *WRITING)),
        (("ledger", "verify"), (*CALLS, *FILES)),
        (("history",), ("paddock.tools.toolsets", "paddock.runtime.runtime")),
        (("ledger", "query", "--ledger", "ho1m"), (*CALLS, *FILES, *WRITING)),
        (("ledger", "signer", "keys", "last", "x"), ("paddock.policy", "paddock.assembly", *CALLS)),
        (("call", "view", '{"path": "a"}'), (*CHANGING, *SCHEMAS, "sqlite3")),
    ],
    ids=lambda part: " ".join(part[:2]),
)
def test_a_command_loads_nothing_that_it_does_not_need(project, arguments, needless):
    loaded = loaded_by(project, *arguments)

    assert "paddock.apps.cli.main" in loaded
    assert sorted(loaded & set(needless)) == []


def test_what_is_said_to_be_needless_is_what_a_call_loads(project):
    loaded = loaded_by(project, "call", "view", '{"path": "a"}')

    assert sorted({*CALLS, *FILES, *WRITING} - loaded) == []


def test_a_configuration_of_comments_alone_loads_nothing_that_reads_toml(project):
    loaded_by(project, "init")
    assert "tomllib" not in loaded_by(project, "call", "view", '{"path": "a"}')

    with (project / "paddock.toml").open("a", encoding="utf-8") as file:
        file.write('[paths]\nprotected = ["a"]\n')
    assert "tomllib" in loaded_by(project, "call", "view", '{"path": "a"}')
