"""Setting a ledger aside and accepting a rollback, killed at every step: done again, all is on record."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.assembly import audit
from paddock.assembly.ledgers import PlaneLedger
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.values.decisions import PlaneKind
from tests.support.dying import run_until
from tests.support.places import Place, Ran, new_place

STRIDE = int(os.environ.get("PADDOCK_DYING_STRIDE", "3"))
"""Every so many-th step; 1 for all of them."""
NAMES = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M)
ABOVE = {LedgerName.HO1M: LedgerName.HO2M, LedgerName.HO2M: LedgerName.GOVERNANCE}


class Stage:
    """A plane whose ledger is as `spoil` left it, again before each kill."""

    def __init__(self, place: Place, name: LedgerName, spoil: Callable[[Path], None]) -> None:
        self.place, self.name = place, name
        for _ in range(2):
            assert place.run("call", "view", '{"path": "README.md"}').status == 0
            assert place.run("ledger", "checkpoint").status == 0
        self.root = Path(place.run("where", "--json").json["plane"])
        self.layout = PlaneLayout(self.root, PlaneKind.PROJECT)
        self.path = self.layout.ledger_paths()[name]
        spoil(self.path)
        self._kept = place.base / "kept"
        shutil.copytree(place.home, self._kept, symlinks=True)

    def again(self) -> None:
        shutil.rmtree(self.place.home)
        shutil.copytree(self._kept, self.place.home, symlinks=True)

    def run(self, action: str) -> Ran:
        return self.place.run("ledger", action, "--ledger", self.name, "--yes")

    def accepted(self, name: LedgerName) -> list[dict]:
        if not self.layout.ledger_paths()[name].exists():
            return []
        rows = self.place.run(
            "ledger", "query", "--ledger", name, "--type", "ROLLBACK_ACCEPTED", "--json"
        )
        found = [json.loads(row)["metadata"] for row in rows.out.splitlines()]
        return [each for each in found if each["ledger"] == self.name]

    def require_on_record(self, *named: str) -> None:
        places = [self.name, *filter(None, [ABOVE.get(self.name)])]
        assert all(any(set(named) <= each.keys() for each in self.accepted(at)) for at in places)
        verified = self.place.run("ledger", "verify", "--full")
        assert verified.status == 0, verified
        assert self.place.run("call", "view", '{"path": "README.md"}').status == 0


def edit(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"\n") + 20  # in the second line's id
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


@pytest.mark.parametrize("name", NAMES)
def test_a_set_aside_that_is_killed_goes_on_when_it_is_run_again(name):
    with new_place() as place:
        stage = Stage(place, name, edit)
        broken = stage.path.read_bytes()

        def act() -> None:
            audit.set_aside(PlaneLedger(stage.layout, place.environment, name), "--yes")

        for dies_at in itertools.count(NAMES.index(name) % STRIDE, STRIDE):
            stage.again()
            steps = run_until(dies_at, act)
            # Who opens the ledger meanwhile accepts nothing: what begins in its place fails.
            called = place.run("call", "view", '{"path": "README.md"}').status
            assert called == 4 or stage.path.exists() or name == LedgerName.HO2M
            is_recorded = [each for each in stage.accepted(name) if "kept" in each] != []
            assert is_recorded or place.run("ledger", "verify", "--full").status == 4
            ran = stage.run("set-aside")
            if (ran.status, "accept-rollback" in ran.err) == (2, True):
                # Only for the highest, whose new one the anchor does not know yet.
                assert (name, stage.accepted(name) != []) == (LedgerName.GOVERNANCE, True)
                ran = stage.run("accept-rollback")
            assert ran.status == 0 or f"the ledger {name} is whole" in ran.err, (dies_at, ran)
            folders = stage.root.glob("objects/set-aside/*")
            [kept] = (each for each in folders if any(each.iterdir()))
            assert (kept / stage.path.name).read_bytes().startswith(broken)
            assert (kept / f"{name}.d" / "head").exists()
            stage.require_on_record("kept", "good")
            if steps is not None:
                break
        assert dies_at > 20


def test_what_verify_advises_after_such_a_kill_keeps_the_evidence_too():
    with new_place() as place:
        stage = Stage(place, LedgerName.HO1M, edit)

        def act() -> None:
            audit.set_aside(PlaneLedger(stage.layout, place.environment, stage.name), "--yes")

        for dies_at in itertools.count():
            stage.again()
            run_until(dies_at, act)
            if stage.path.exists() and list(stage.root.glob("objects/set-aside/*/ho1m.d")):
                break
        told = place.run("ledger", "verify")
        assert (told.status, stage.accepted(stage.name)) == (4, [])
        assert "paddock ledger accept-rollback" in told.out

        ran = stage.run("accept-rollback")

        assert (ran.status, "entries were signed" in ran.out) == (0, True)
        stage.require_on_record("kept", "good", "signed")


@pytest.mark.parametrize("name", NAMES)
def test_an_acceptance_that_is_killed_is_on_record_or_still_to_be_given(name, tmp_path):
    def go_back(path: Path) -> None:
        shutil.rmtree(path.parent)
        shutil.copytree(tmp_path / "backup", path.parent)

    with new_place() as place:
        assert place.run("call", "view", '{"path": "README.md"}').status == 0
        assert place.run("ledger", "checkpoint").status == 0
        paths = place.run("where", "--json").json["ledgers"]
        shutil.copytree(Path(paths[name]).parent, tmp_path / "backup")
        stage = Stage(place, name, go_back)

        def act() -> None:
            [gone] = audit.find_rolled_back(stage.layout, place.environment, (name,))
            ledger = PlaneLedger(stage.layout, place.environment, name)
            audit.accept_rollback(ledger, gone, "--yes")

        for dies_at in itertools.count(NAMES.index(name) % STRIDE, STRIDE):
            stage.again()
            steps = run_until(dies_at, act)
            ran = stage.run("accept-rollback")
            assert ran.status == 0, (dies_at, ran)
            stage.require_on_record("by", "found")
            if steps is not None:
                break
        assert dies_at > 20
