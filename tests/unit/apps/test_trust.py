"""Which project is acted on, and that no trust holds that is not on record."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

import paddock
from paddock.ledger.query import Filter, query
from paddock.plane.environment import read_environment
from paddock.values.entries import digest_of
from tests.support.places import Ran, run_command
from tests.support.trusting import record_trust

GREEDY = '[profiles.standard]\nallow = ["tool:*"]\n'
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STRICT = '[paths]\nwarned = ["/src/**"]\n'


class Terminal:
    """A user in `here` whose shell has PADDOCK_PLANE set to `other`."""

    def __init__(self, base: Path) -> None:
        self.home, self.here, self.other = base / "home", base / "here", base / "other"
        for directory, policy in ((self.here, STRICT), (self.other, GREEDY)):
            directory.mkdir()
            (directory / "paddock.toml").write_text(policy)
        self.home.mkdir()
        self.plane: Path | None = self.other

    @property
    def variables(self) -> dict[str, str]:
        named = {} if self.plane is None else {"PADDOCK_PLANE": str(self.plane)}
        return {"HOME": str(self.home), **named}

    def run(self, *arguments: str) -> Ran:
        return run_command(*arguments, variables=self.variables, here=self.here)

    def trusted(self) -> list[str]:
        """The paths of the policies that this user trusts."""
        store = self.home / ".local/state/paddock/trust"
        records = sorted(store.iterdir()) if store.exists() else []
        return [json.loads(record.read_bytes())["path"] for record in records]

    def ledger(self, project: Path) -> Path:
        """Where the governance ledger of `project` stands."""
        found = run_command("where", "--json", variables={"HOME": str(self.home)}, here=project)
        return Path(found.json["ledgers"]["governance"])

    def on_record(self, project: Path) -> list[tuple[object, object, object]]:
        """What the governance ledger of `project` knows of trust: path, digest, by whom."""
        ledger = self.ledger(project)
        if not ledger.exists():
            return []
        told = [row.entry.metadata for row in query(str(ledger), Filter("POLICY_TRUSTED")).entries]
        return [(each["path"], each["digest"], each["by"]) for each in told]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def trust_in(file: Path, by: str) -> tuple[object, object, object]:
    return (str(file), digest_of(file.read_bytes()), by)


# A directory that is named wins over PADDOCK_PLANE


@pytest.mark.parametrize("named", [("trust", "{}", "--yes"), ("--plane", "{}", "trust", "--yes")])
def test_trust_shows_and_trusts_the_project_that_was_named(terminal, named):
    file = terminal.here / "paddock.toml"
    ran = terminal.run(*(each.format(terminal.here) for each in named))
    assert (ran.status, str(terminal.other) in ran.out) == (0, False)
    assert terminal.trusted() == [str(file)]
    assert terminal.on_record(terminal.here) == [trust_in(file, "--yes")]
    assert terminal.on_record(terminal.other) == []


def test_without_a_name_trust_is_about_what_paddock_plane_names(terminal):
    file = terminal.other / "paddock.toml"
    assert terminal.run("trust", "--yes").status == 0
    assert terminal.trusted() == [str(file)]
    assert terminal.on_record(terminal.other) == [trust_in(file, "--yes")]
    assert terminal.on_record(terminal.here) == []


def test_init_puts_its_trust_on_record_in_the_project_that_it_made(terminal, tmp_path):
    assert terminal.run("init", str(tmp_path / "new")).status == 0
    file = tmp_path / "new" / "paddock.toml"
    assert terminal.on_record(tmp_path / "new") == [trust_in(file, "init")]
    assert terminal.on_record(terminal.other) == []


def test_init_of_a_named_directory_does_not_need_what_paddock_plane_names(terminal, tmp_path):
    terminal.plane = tmp_path / "nowhere"
    ran = terminal.run("init", str(tmp_path / "new"))
    assert (ran.status, ran.err) == (0, "")


def test_init_inside_another_project_records_in_the_new_projects_own_ledger(terminal, tmp_path):
    terminal.plane = None
    outer, project = tmp_path / "outer", tmp_path / "outer" / "project"
    assert terminal.run("init", str(outer)).status == 0
    result = terminal.run("init", str(project), "--json")
    assert result.status == 0
    assert terminal.on_record(outer) == [trust_in(outer / "paddock.toml", "init")]
    assert terminal.on_record(project) == [trust_in(project / "paddock.toml", "init")]


def test_open_works_where_it_was_told_to(terminal, monkeypatch):
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "PADDOCK_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in terminal.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(terminal.here)
    with paddock.open(terminal.here) as runtime:
        assert runtime.call("create_file", {"path": "named", "content": "x"}).status == "ok"
    with paddock.open(".") as runtime:
        assert runtime.call("create_file", {"path": "also", "content": "x"}).status == "ok"
    with paddock.open_session(terminal.here) as session:
        assert "warned" in session.handle_turn("what is in paddock.toml?").response
    with paddock.open() as runtime:
        assert runtime.call("create_file", {"path": "unnamed", "content": "x"}).status == "ok"
    assert sorted(os.listdir(terminal.here)) == ["also", "named", "paddock.toml"]
    assert sorted(os.listdir(terminal.other)) == ["paddock.toml", "unnamed"]


# On record first


def test_a_trust_that_cannot_be_put_on_record_does_not_hold(terminal):
    terminal.plane = None
    file = terminal.here / "paddock.toml"
    assert terminal.run("call", "ls", "{}").status == 0
    ledger = terminal.ledger(terminal.here)
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.replace(b"{", b"x", 1))
    assert terminal.run("trust", "--yes").status == 4
    assert terminal.trusted() == []
    ledger.write_bytes(whole)
    assert terminal.run("trust", "--yes").status == 0
    assert terminal.trusted() == [str(file)]
    assert terminal.on_record(terminal.here) == [trust_in(file, "--yes")]


def test_a_trust_that_is_not_on_record_is_recorded_once_when_it_is_found(terminal):
    terminal.plane = None
    file = terminal.here / "paddock.toml"
    assert terminal.run("call", "ls", "{}").status == 0
    record_trust(file, file.read_bytes(), read_environment(terminal.variables), NOW)
    assert terminal.on_record(terminal.here) == []
    for _ in range(2):
        assert terminal.run("call", "ls", "{}").status == 0
    assert terminal.on_record(terminal.here) == [trust_in(file, "")]


def test_a_policy_that_is_not_trusted_is_not_recorded_as_trusted(terminal):
    terminal.plane = None
    assert terminal.run("call", "ls", "{}").status == 0
    assert terminal.on_record(terminal.here) == []


def test_a_bare_plane_is_registered_only_once_that_is_on_record(terminal, tmp_path):
    terminal.plane = None
    assert terminal.run("init", "--bare", str(tmp_path / "plane"), "--dev").status == 0
    moved = (tmp_path / "plane").rename(tmp_path / "moved")
    ledger = moved / "HOT/ledger/governance.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.replace(b"{", b"x", 1))
    registered = terminal.home / ".local/state/paddock/bare"
    before = os.listdir(registered)
    assert terminal.run("trust", str(moved), "--yes").status == 4
    assert os.listdir(registered) == before
    ledger.write_bytes(whole)
    assert terminal.run("trust", str(moved), "--yes").status == 0
    assert len(os.listdir(registered)) == len(before) + 1
    told = [row.entry.metadata for row in query(str(ledger), Filter("POLICY_TRUSTED")).entries]
    assert [each["path"] for each in told] == [str(moved / "HOT/config/admin_config.json")]
