"""The hook in front of the real clients: what it denies does not run, and the model is told.

Installed by `npm ci --prefix tests/clients`, or wherever PADDOCK_CLIENTS names; the model
is a server on this machine.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock.plane.environment import read_environment
from tests.support.real_clients import ERRAND, Desk, broken_copy, desk, wants
from tests.support.trusting import record_trust
from tests.support.wire_words import Said, says

pytestmark = pytest.mark.loopback

ACCEPT_EDITS = ("--permission-mode", "acceptEdits")


def turn_id(said: Said) -> str:
    return said.calls[0].id


@pytest.fixture
def here() -> Iterator[Desk]:
    with desk() as made:
        yield made


def trust(here: Desk, policy: str) -> None:
    path = here.project / "paddock.toml"
    path.write_text(policy)
    environment = read_environment({"HOME": str(here.home)})
    record_trust(path, policy.encode(), environment, datetime.now(UTC))


def entries(here: Desk) -> list[dict]:
    ran = here.paddock("ledger", "query", "--ledger", "ho1m", "--type", "HOOK_DECISION", "--json")
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.needs("claude")
def test_claude_code_asks_the_hook_in_one_persons_settings_of_the_project(here: Desk):
    here.paddock("hook", "install", "--yes", "--scope", "local")
    protected = wants("Write", file_path=str(here.project / ".git/x"), content="no")
    ran = here.claude(protected, says("done"), options=ACCEPT_EDITS)
    assert "Protected path: .git/x" in ran.answers()[turn_id(protected)]
    assert sorted(path.name for path in (here.project / ".git").iterdir()) == []


@pytest.mark.needs("claude")
def test_claude_code_honours_every_denial_and_the_model_reads_the_reason(here: Desk):
    here.paddock("hook", "install", "--yes")
    protected = wants("Write", file_path=str(here.project / ".git/x"), content="no")
    outside = wants("Write", file_path=str(here.base / "outside"), content="no")
    line = wants("Bash", command="touch .git/y", description="x")
    fine = wants("Write", file_path=str(here.project / "src/a.py"), content="x = 1\n")
    errand = wants("Agent", description="e", prompt="do it", subagent_type="general-purpose",
                   run_in_background=False)  # fmt: skip
    secret = wants("Write", file_path=str(here.project / ".env"), content="no")
    ran = here.claude(protected, outside, line, fine, errand, secret, says("sub"), says("done"),
                      options=ACCEPT_EDITS)  # fmt: skip

    told = ran.answers()
    assert "Protected path: .git/x cannot be modified via Write" in told[turn_id(protected)]
    assert f"Path outside project boundary: {here.base}/outside" in told[turn_id(outside)]
    assert "Protected path: .git/y cannot be modified via Bash" in told[turn_id(line)]
    # In the sub-agent, too, and it is told so itself.
    assert "Protected path: .env cannot be modified via Write" in told[turn_id(secret)]
    assert "Writing to production path: src/a.py" in ran.seen()
    assert "Scratch work goes to agent_sandbox/" in ran.seen()
    assert sorted(path.name for path in (here.project / ".git").iterdir()) == []
    assert not (here.base / "outside").exists()
    assert not (here.project / ".env").exists()
    assert (here.project / "src/a.py").read_text() == "x = 1\n"
    found = {entry["call_id"]: (entry["agent"], entry["decision"]) for entry in entries(here)}
    assert found == {
        turn_id(protected): ("main", "deny"),
        turn_id(outside): ("main", "deny"),
        turn_id(line): ("main", "deny"),
        turn_id(fine): ("main", "allow"),
        turn_id(errand): ("main", "allow"),
        turn_id(secret): ("general-purpose", "deny"),
    }


FAULTS = """\
        if b"by-signal" in self.data:
            posix.kill(posix.getpid(), 9)
        if b"by-status" in self.data:
            posix._exit(1)
        if b"by-time" in self.data:
            __import__("_signal").alarm(1)
            time.sleep(60)
        if b"by-stop" in self.data:
            posix.kill(posix.getpid(), 15)
"""
WAYS_TO_FAIL = ("signal", "status", "time", "stop")


def install_broken(here: Desk, tmp_path: Path, *options: str) -> Path:
    """The hook as installed from a copy that fails when it is told to; its launcher."""
    launcher = broken_copy(tmp_path, FAULTS)
    here.paddock("hook", "install", "--yes", *options)
    settings = here.project / ".claude/settings.json"
    if options:
        settings = here.home / ".codex/config.toml"
    real = Path(__file__).parents[2] / "src/paddock/apps/hook/launch.py"
    text = settings.read_text()
    assert str(real) in text
    settings.write_text(text.replace(str(real), str(launcher)))
    return launcher


@pytest.mark.needs("claude")
def test_claude_code_runs_nothing_when_the_hook_fails(here: Desk, tmp_path: Path):
    launcher = install_broken(here, tmp_path)
    turns = {
        way: wants("Write", file_path=str(here.project / f"by-{way}"), content="no")
        for way in WAYS_TO_FAIL
    }
    fine = wants("Write", file_path=str(here.project / "fine"), content="yes")
    ran = here.claude(fine, *turns.values(), says("done"), options=ACCEPT_EDITS)

    assert (here.project / "fine").read_text() == "yes"
    assert [path.name for path in here.project.glob("by-*")] == []
    assert all("error" in ran.answers()[turn_id(turn)] for turn in turns.values())
    launcher.unlink()
    gone = wants("Write", file_path=str(here.project / "gone"), content="no")
    here.claude(gone, says("done"), options=ACCEPT_EDITS)
    assert not (here.project / "gone").exists()


@pytest.mark.needs("claude")
def test_claude_code_runs_nothing_when_nothing_can_be_decided_or_recorded(here: Desk):
    here.paddock("hook", "install", "--yes")
    (here.project / "paddock.toml").write_text("nonsense")
    first = wants("Write", file_path=str(here.project / "a"), content="no")
    ran = here.claude(first, says("done"), options=ACCEPT_EDITS)
    assert "paddock.toml" in ran.answers()[turn_id(first)]
    (here.project / "paddock.toml").unlink()
    second = wants("Write", file_path=str(here.project / "fine"), content="yes")
    here.claude(second, says("done"), options=ACCEPT_EDITS)
    (ledger,) = (here.home / ".local/state/paddock/planes").glob("*/HO1/ledger/ho1m.jsonl")
    ledger.unlink()
    ledger.mkdir()
    third = wants("Write", file_path=str(here.project / "b"), content="no")
    ran = here.claude(third, says("done"), options=ACCEPT_EDITS)

    assert "nothing can be decided" in ran.answers()[turn_id(third)]
    assert sorted(path.name for path in here.project.iterdir() if path.is_file()) == ["fine"]


@pytest.mark.needs("claude", "stage")
def test_claude_code_runs_the_wrapped_command_and_the_sandbox_holds_it(here: Desk):
    trust(here, '[hook]\non_allow = "approve"\nsandbox_shell = true\n'
                '[profiles.standard]\nallow = ["tool:*"]\n')  # fmt: skip
    here.paddock("hook", "install", "--yes")
    # What no reading of the line shows: only the kernel and the judge of changes see it.
    program = "open('.git/x', 'w').write('no'); open('seen', 'w').write('yes')"
    turn = wants("Bash", command=f'python3 -c "{program}"; echo from-the-sandbox', description="x")
    ran = here.claude(turn, says("done"))

    assert "from-the-sandbox" in ran.answers()[turn_id(turn)]
    assert (here.project / "seen").read_text() == "yes"
    assert not (here.project / ".git/x").exists()
    (entry,) = [each for each in entries(here) if each["call_id"] == turn_id(turn)]
    assert (entry["decision"], entry["metadata"]["sandboxed"]) == ("allow", True)


@pytest.mark.needs("codex")
def test_codex_honours_every_denial_and_a_question_is_one(here: Desk):
    here.paddock("hook", "install", "--yes", "--client", "codex", "--scope", "user")
    protected = wants("exec_command", cmd="touch .git/x")
    asked = wants("exec_command", cmd="touch $NAME asked")
    fine = wants("exec_command", cmd="touch fine")
    ran = here.codex(protected, asked, fine, says("done"))

    told = ran.answers()
    assert "Protected path: .git/x cannot be modified via Bash" in told[turn_id(protected)]
    assert "approval" in told[turn_id(asked)]
    assert [path.name for path in (here.project / ".git").iterdir()] == []
    assert sorted(path.name for path in here.project.iterdir() if path.is_file()) == ["fine"]


@pytest.mark.needs("codex")
def test_codex_honours_a_denial_in_a_sub_agent(here: Desk):
    here.paddock("hook", "install", "--yes", "--client", "codex", "--scope", "user")
    errand = wants("spawn_agent", message=f"{ERRAND}touch a file")
    protected = wants("exec_command", cmd="touch .git/x")
    fine = wants("exec_command", cmd="touch fine")
    ran = here.codex(protected, fine, says("report"), errand=errand)

    assert "Protected path: .git/x cannot be modified via Bash" in ran.answers()[turn_id(protected)]
    assert [path.name for path in (here.project / ".git").iterdir()] == []
    assert (here.project / "fine").exists()
    agents = {entry["call_id"]: entry["agent"] for entry in entries(here)}
    assert (agents[turn_id(errand)], agents[turn_id(protected)]) == ("main", "default")


@pytest.mark.needs("codex")
def test_codex_runs_nothing_when_the_hook_fails_while_a_shell_sees_it(here: Desk, tmp_path: Path):
    launcher = install_broken(here, tmp_path, "--client", "codex", "--scope", "user")
    turns = {way: wants("exec_command", cmd=f"touch by-{way}") for way in WAYS_TO_FAIL}
    fine = wants("exec_command", cmd="touch fine")
    here.codex(fine, *turns.values(), says("done"))

    assert sorted(path.name for path in here.project.iterdir() if path.is_file()) == ["fine"]
    launcher.unlink()
    config = here.home / ".codex/config.toml"
    config.write_text(config.read_text().replace(config_url(config), "@URL@"))
    here.codex(wants("exec_command", cmd="touch gone"), says("done"))
    assert not (here.project / "gone").exists()


def config_url(config: Path) -> str:
    (row,) = [row for row in config.read_text().splitlines() if row.startswith("base_url")]
    return row.split('"')[1].removesuffix("/v1")
