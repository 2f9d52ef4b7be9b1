"""What becomes of a command's changes: the policy's answer for each, and what no tool can make."""

import hashlib

import pytest

from paddock.policy.engine import PolicySource, load_policy
from paddock.sandbox.changes.differences import ChangeKind, CommandChange
from paddock.sandbox.changes.judgement import (
    JudgeContext,
    JudgedChange,
    judge_changes,
    settle_commit,
)
from paddock.sandbox.git.rules import GitDirectory, NodeKind
from paddock.values.decisions import Agent, Outcome, Permissions

OID = b"0123456789" * 4
INDEX = b"DIRC\0\0\0\x02\0\0\0\0"
INDEX += hashlib.sha1(INDEX).digest()
MAIN = (Agent("main", "standard"),)


def bench(text: str = "", chain=MAIN, git="safe", **more) -> JudgeContext:
    policy = load_policy(PolicySource("paddock.toml", text.encode()))
    return JudgeContext(policy, chain, git, "/work/ws", ("/usr", "/home/u/.pyenv"), **more)


def made(path, node=NodeKind.FILE, **more) -> CommandChange:
    return CommandChange(path, more.pop("kind", ChangeKind.CREATED), node, **more)


def gone(path, node=NodeKind.FILE) -> CommandChange:
    return CommandChange(path, ChangeKind.DELETED, node)


def judge(change: CommandChange, on: JudgeContext | None = None) -> JudgedChange:
    return judge_changes(on or bench(), [change])[0]


def codes(on: JudgeContext, *changes: CommandChange) -> list[tuple[str, str]]:
    return [(each.change.path, each.code) for each in judge_changes(on, changes) if not each.lands]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (made("src/a.py"), ""),
        (made("src/a.py", kind=ChangeKind.MODIFIED), ""),
        (made("src/a.py", kind=ChangeKind.MODE, mode=0o755), ""),
        (gone("src/a.py"), ""),
        (made("src", NodeKind.DIRECTORY, mode=0o755), ""),
        (made("node_modules/x/index.js"), ""),
        (made("src/new.key"), "policy.secret"),
        (made("src/deep/.env.local"), "policy.secret"),
        (made("src/a.key", kind=ChangeKind.MODIFIED), "policy.secret"),
        (made("src/a.pem", kind=ChangeKind.MODE, mode=0o600), "policy.protected"),
        (gone("src/a.pem"), "policy.protected"),
        (made("sub/paddock.toml"), "policy.protected"),
        (made("src/pipe", NodeKind.FIFO), "path.special_file"),
        (made("src/su", mode=0o4755), "policy.denied"),
        (made("src/sg", mode=0o2755), "policy.denied"),
        (made("src/shut", NodeKind.DIRECTORY, mode=0o000), "policy.denied"),
        (made("src", NodeKind.DIRECTORY, kind=ChangeKind.MODE, mode=0o500), "policy.denied"),
        (made("src/shut", mode=0o200), "policy.denied"),
        (made("src/read-only", mode=0o444), ""),
        (made("src/bad\nname"), "path.invalid"),
        (made("src/bad\udcff"), "path.invalid"),
        (made(".paddock-" + "0" * 32 + ".tmp"), "path.invalid"),
        (made("n" * 256), "path.invalid"),
    ],
)
def test_a_change_is_judged_as_a_file_tool_would_be(change, code):
    said = judge(change)
    assert (said.code, said.lands) == (code, not code), said.reason


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("l", "src/a.py", ""),
        ("a/b/l", "../../src", ""),
        ("l", "/work/ws/src", ""),
        ("l", "/usr/bin/python3", ""),
        (".venv/bin/python", "/home/u/.pyenv/versions/3.11/bin/python", ""),
        ("l", "nothing/there", ""),
        ("l", "/etc/passwd", "path.escapes_root"),
        ("l", "/work/ws-evil/x", "path.escapes_root"),
        ("l", "/usr/../etc/passwd", "path.escapes_root"),
        ("l", "../outside", "path.escapes_root"),
        ("a/l", "../../outside", "path.escapes_root"),
        ("l", "a/../../outside", "path.escapes_root"),
        ("l", ".env", "policy.secret"),
        ("a/l", "../sub/.env.local", "policy.secret"),
        ("a/x.key", "../src/a.py", "policy.secret"),
    ],
)
def test_a_link_stays_inside_and_leads_to_no_secret(path, text, code):
    assert judge(made(path, NodeKind.LINK, link_text=text)).code == code


def test_the_rule_that_refuses_is_named():
    said = judge(made("src/new.key"))
    assert said.rule is not None
    assert (said.rule.text, said.rule.source) == (
        "*.key",
        "paths.secret",
    )
    assert said.outcome is Outcome.DENY


def test_a_profile_and_the_agents_own_lists_have_their_say():
    text = '[profiles.careful]\nallow = ["tool:file:*"]\nask = ["tool:file:create docs/**"]\ndeny = ["tool:file:delete"]\n'
    permissions = Permissions(write=("docs/**", "src/**"))
    on = bench(text, (Agent("main", "careful", permissions=permissions),))
    said = judge_changes(on, [made("docs/a"), gone("src/a"), made("src/a"), made("top")])
    assert [each.outcome for each in said] == [
        Outcome.ASK,
        Outcome.DENY,
        Outcome.ALLOW,
        Outcome.DENY,
    ]


def test_a_child_changes_nothing_that_its_parent_may_not():
    parent = Agent("lead", "standard", permissions=Permissions(forbidden=("src/",)))
    child = Agent("main", "open", parent="lead")
    assert codes(bench(chain=(child, parent)), made("src/a"), made("b")) == [
        ("src/a", "policy.forbidden")
    ]


def test_a_new_directory_is_made_for_what_lands_in_it():
    on = bench(chain=(Agent("main", "standard", permissions=Permissions(write=("docs/**",))),))
    said = judge_changes(
        on,
        [
            made("docs", NodeKind.DIRECTORY, mode=0o000),
            made("docs/a"),
            made("other", NodeKind.DIRECTORY, mode=0o755),
            made("other/b"),
        ],
    )
    assert [each.lands for each in said] == [True, True, False, False]
    assert said[0].change.mode == 0o755


def test_a_directory_stays_while_something_in_it_stays():
    said = judge_changes(
        bench(),
        [
            gone("sub", NodeKind.DIRECTORY),
            gone("sub/a"),
            gone("sub/.env"),
            gone("x", NodeKind.DIRECTORY),
        ],
    )
    assert [(each.lands, each.code) for each in said] == [
        (False, "path.not_empty"),
        (True, ""),
        (False, "policy.secret"),
        (True, ""),
    ]
    assert [each.rule is None for each in said] == [True, False, False, False]


def test_git_directories_have_their_preset_and_nothing_else_of_the_kind():
    changes = [
        made(".git/objects/ab/" + "0" * 38, mode=0o444),
        made(".git/refs/heads/main", content=OID + b"\n", kind=ChangeKind.MODIFIED),
        made(".git/hooks/pre-commit", mode=0o755),
        made(".git/config", kind=ChangeKind.MODIFIED),
    ]
    assert codes(bench(), *changes) == [
        (".git/hooks/pre-commit", "policy.protected"),
        (".git/config", "policy.protected"),
    ]
    assert len(codes(bench(git="read-only"), *changes)) == 4
    assert len(codes(bench(git="none"), *changes)) == 4
    unprotected = bench("[paths]\nprotected = []\n", git="none")
    assert codes(unprotected, *changes) == []


def test_an_agents_own_lists_deny_in_a_git_directory_too():
    on = bench(chain=(Agent("main", "standard", permissions=Permissions(forbidden=(".git/",))),))
    change = made(".git/index", kind=ChangeKind.MODIFIED, content=INDEX)
    assert codes(on, change) == [(".git/index", "policy.forbidden")]
    assert codes(bench(), change) == []


def test_changes_of_a_git_directory_are_judged_one_by_one():
    changes = [
        made(".git/index", kind=ChangeKind.MODIFIED, content=INDEX),
        made(".git/refs/heads/main", content=b"#!/bin/sh\n"),
        made("sub/.git/index", content=INDEX),
        made("a"),
    ]
    assert [path for path, _ in codes(bench(), *changes)] == [".git/refs/heads/main"]


def test_a_bare_repository_is_judged_as_one_where_it_is_known():
    change = made("store.git/hooks/pre-commit", mode=0o755)
    assert judge(change).lands
    on = bench(repositories=(GitDirectory("store.git"),))
    assert not judge(change, on).lands


def test_phases_order_a_git_directory():
    on = bench()
    changes = [
        made(".git/HEAD", content=b"ref: refs/heads/x\n", kind=ChangeKind.MODIFIED),
        made(".git/objects/ab/" + "0" * 38, mode=0o444),
        made(".git/refs/heads/x", content=OID),
    ]
    said = judge_changes(on, changes)
    ordered = sorted(said, key=lambda each: each.phase)
    assert [each.change.path.split("/")[1] for each in ordered] == ["objects", "refs", "HEAD"]


def test_all_or_nothing_takes_one_refusal_for_the_whole():
    said = judge_changes(bench(), [made("a"), made("b.key"), gone("c")])
    assert [each.lands for each in settle_commit(said, "each")] == [True, False, True]
    assert [each.lands for each in settle_commit(said, "all")] == [False, False, False]
    fine = judge_changes(bench(), [made("a"), gone("c")])
    assert settle_commit(fine, "all") == fine
