"""A person's acts in a confined command, by whatever words: they run, and change nothing."""

import json
import sys
from pathlib import Path

import pytest

import paddock
from tests.support.disks import tree
from tests.support.shells import OPEN, Terminal, a_terminal

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

SOURCE = Path(paddock.__file__).parents[1]
READ = ["/usr", "/lib", "/lib64", "/bin", "/etc/ssl", sys.prefix, sys.base_prefix, str(SOURCE)]
POLICY = f"{OPEN}[shell]\nread = {json.dumps(READ)}\n"
ENTRY = f"{sys.executable} -c 'from paddock.apps.cli.main import console; console()'"


@pytest.fixture
def terminal(tmp_path: Path):
    with a_terminal(tmp_path, POLICY) as made:
        yield made


def outside(terminal: Terminal) -> dict[str, object]:
    """What a person's acts would change: trust, agents, approvals, hooks, policy."""
    home, root = terminal.yard.home, terminal.yard.root
    state = tree(home / ".local/state/paddock/trust")
    settings = (root / ".claude/settings.json").read_text()
    return {
        "trust": state,
        "agents": terminal.yard.cli("agent", "list", "--json").json,
        "approvals": terminal.yard.cli("approvals", "list", "--json").json,
        "hook": settings,
        "policy": (root / "paddock.toml").read_text(),
    }


def test_paddocks_own_command_line_runs_in_a_command_at_all(terminal: Terminal):
    said = terminal.sneak(f"{ENTRY} --version")
    assert (said["exit_code"], said["stdout"]) == (0, f"paddock {paddock.__version__}\n")


@pytest.mark.parametrize(
    "act",
    [
        "trust --yes",
        "hook uninstall --yes",
        "hook uninstall --scope user --yes",
        "agent create mole --profile admin",
        "approvals grant APR-0123456789abcdef",
    ],
)
def test_a_persons_act_in_a_confined_command_changes_nothing(terminal: Terminal, act: str):
    assert terminal.yard.cli("hook", "install", "--yes").status == 0
    parked = terminal.yard.cli("approvals", "list", "--json").json
    assert parked == []
    before = outside(terminal)

    refused = terminal.call("run_shell", command=f"paddock {act}")
    assert refused.refusal is not None
    assert "run it in a terminal of your own" in refused.refusal.error
    terminal.sneak(f"{ENTRY} {act}")
    terminal.sneak(f"env -i HOME={terminal.yard.home} {ENTRY} {act}")

    assert outside(terminal) == before
