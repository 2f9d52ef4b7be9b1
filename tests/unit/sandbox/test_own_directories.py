"""A bare plane's own directories before commands: what is committed, what is open and hidden."""

import pytest
from msgspec.structs import replace

from paddock.policy.engine import load_policy
from paddock.sandbox.changes.differences import ChangeKind, CommandChange
from paddock.sandbox.changes.judgement import JudgeContext, judge_changes
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.plan import Closing, ReadJudge, WriteJudge
from paddock.values.decisions import Agent, PlaneKind

ADMIN = (Agent("admin", "admin"),)
POLICIES = {kind: load_policy(None, None, kind) for kind in PlaneKind}
OWN = ("HOT", "HO2", "HO1", "agents", "agents/kid", "HO2/scratch", "HOT/kernel")


def codes(kind: PlaneKind, *changes: CommandChange) -> list[str]:
    bench = JudgeContext(POLICIES[kind], ADMIN, "safe", "/work/ws", ("/usr",))
    return [each.code for each in judge_changes(bench, changes)]


@pytest.mark.parametrize("path", OWN)
def test_a_command_neither_removes_replaces_links_nor_opens_an_own_directory(path):
    changes = (
        CommandChange(path, ChangeKind.DELETED, NodeKind.DIRECTORY),
        CommandChange(path, ChangeKind.CREATED, NodeKind.LINK, link_text="x"),
        CommandChange(path, ChangeKind.CREATED, NodeKind.FILE),
        CommandChange(path, ChangeKind.MODE, NodeKind.DIRECTORY, mode=0o777),
        CommandChange(path, ChangeKind.MODE, NodeKind.DIRECTORY, mode=0o755),
    )
    for change in changes:
        assert codes(PlaneKind.BARE, change) == ["policy.protected"], change
        assert codes(PlaneKind.PROJECT, change) == [""], change
        below = replace(change, path=f"HO2/scratch/{path}")
        assert codes(PlaneKind.BARE, below) == [""], below


def test_a_link_to_what_paddock_keeps_is_refused_and_one_beside_it_is_not():
    link = CommandChange("HO2/scratch/o", ChangeKind.CREATED, NodeKind.LINK, link_text="")
    for text, code in (("../../objects/ab", "policy.secret"), ("../kernel/ab", "")):
        change = CommandChange(link.path, link.kind, link.node, link_text=text)
        assert codes(PlaneKind.BARE, change) == [code]


def test_a_workspace_of_an_agent_is_made_on_the_way_and_its_directory_with_it():
    changes = (
        CommandChange("agents/kid", ChangeKind.CREATED, NodeKind.DIRECTORY, mode=0o777),
        CommandChange("agents/kid/workspace", ChangeKind.CREATED, NodeKind.DIRECTORY, mode=0o755),
        CommandChange("agents/kid/workspace/a", ChangeKind.CREATED, NodeKind.FILE),
    )
    bench = JudgeContext(POLICIES[PlaneKind.BARE], ADMIN, "safe", "/work/ws", ("/usr",))
    assert [(each.lands, each.change.mode) for each in judge_changes(bench, changes)] == [
        (True, 0o755),
        (True, 0o755),
        (True, 0o644),
    ]


def test_what_paddock_keeps_is_hidden_from_commands_and_nothing_else_of_a_plane():
    judge = ReadJudge(POLICIES[PlaneKind.BARE], ADMIN)
    asked = ("objects", "HOT/ledger/governance.jsonl.d", "HOT", "agents", "HO2/scratch")
    assert [judge.judge(path, True) for path in asked] == [
        *(Closing.SEALED, Closing.SEALED),
        *(Closing.OPEN, Closing.OPEN, Closing.OPEN),
    ]
    assert ReadJudge(POLICIES[PlaneKind.PROJECT], ADMIN).judge("objects", True) is Closing.OPEN


def test_no_right_to_write_reaches_what_could_come_to_stand_above_own_files():
    judge = WriteJudge(POLICIES[PlaneKind.BARE], (Agent("admin", "open"),))
    said = {
        path: judge.judge(path, True).value
        for path in ("agents", "agents/kid", "HO2", "HO2/scratch", "HO1/contracts", "objects")
    }
    assert said == {
        "agents": "closed",
        "agents/kid": "closed",
        "HO2": "closed",
        "HO2/scratch": "open",
        "HO1/contracts": "sealed",
        "objects": "sealed",
    }
    assert judge.judge("agents/kid/workspace", True) is Closing.OPEN
