"""A tool whose every call would be denied is known as such, and no other."""

import pytest

from paddock.policy.decide import may_ever
from paddock.policy.engine import PolicySource, load_policy
from paddock.tools.toolsets import HEADS, all_tools
from paddock.values.decisions import Agent, Permissions

MAIN = (Agent("main", "mine"),)


def policy(text: str, *, trusted: bool = True):
    return load_policy(PolicySource("paddock.toml", text.encode(), trusted))


def mine(rules: str):
    return policy(f"[profiles.mine]\n{rules}\n")


@pytest.mark.parametrize(
    ("rules", "head", "is_open"),
    [
        ('allow = ["tool:file:*"]', ("file", "create"), True),
        ('allow = ["tool:file:create docs/**"]', ("file", "create"), True),
        ('ask = ["tool:file:create"]', ("file", "create"), True),
        ('otherwise = { "tool:file:*" = "ask" }', ("file", "create"), True),
        ("", ("file", "create"), False),
        ('allow = ["tool:file:view"]', ("file", "create"), False),
        ('otherwise = { "tool:file:*" = "deny" }', ("file", "create"), False),
        ('allow = ["tool:*"]\ndeny = ["tool:file:create"]', ("file", "create"), False),
        ('allow = ["tool:*"]\ndeny = ["tool:file:create **"]', ("file", "create"), False),
        ('allow = ["tool:*"]\ndeny = ["tool:file:create src/**"]', ("file", "create"), True),
        # What stands at the top is in no directory.
        ('allow = ["tool:*"]\ndeny = ["tool:file:create */**"]', ("file", "create"), True),
        ('allow = ["tool:*"]\ndeny = ["tool:file:create **/*"]', ("file", "create"), False),
        ('allow = ["tool:*"]\ndeny = ["tool:shell:run *"]', ("shell", "run"), False),
        ('allow = ["tool:*"]\ndeny = ["tool:shell:run git *"]', ("shell", "run"), True),
        ('allow = ["tool:shell:run git status"]', ("shell", "run"), True),
    ],
)
def test_a_head_is_closed_if_no_target_could_be_allowed_or_asked_about(rules, head, is_open):
    assert may_ever(mine(rules), MAIN, *head) is is_open


def test_a_parent_closes_for_its_child():
    loaded = policy(
        '[profiles.mine]\nallow = ["tool:*"]\n[profiles.less]\nallow = ["tool:file:view"]'
    )
    child = (Agent("child", "mine", parent="main"), Agent("main", "less"))
    assert not may_ever(loaded, child, "file", "create")
    assert may_ever(loaded, child, "file", "view")


def test_an_empty_permission_closes():
    nothing = (Agent("main", "mine", permissions=Permissions(write=())),)
    assert not may_ever(mine('allow = ["tool:*"]'), nothing, "file", "create")
    assert may_ever(mine('allow = ["tool:*"]'), nothing, "file", "view")


def test_an_untrusted_file_can_close():
    loaded = policy(
        '[profiles.open]\nask = ["tool:file:*"]\ndeny = ["tool:file:create"]', trusted=False
    )
    assert not may_ever(loaded, (Agent("main", "open"),), "file", "create")
    assert may_ever(loaded, (Agent("main", "open"),), "file", "view")
    # What it does not name, and what it opens and was closed, are closed.
    assert not may_ever(loaded, (Agent("main", "open"),), "shell", "run")
    opening = policy('[profiles.locked]\nallow = ["tool:*"]', trusted=False)
    assert not may_ever(opening, (Agent("main", "locked"),), "file", "create")
    assert may_ever(opening, (Agent("main", "locked"),), "file", "view")


def test_nobody_may_do_nothing():
    assert not may_ever(mine('allow = ["tool:*"]'), (), "file", "view")


def test_every_tool_says_which_actions_it_takes():
    assert {tool.name for tool in all_tools()} <= set(HEADS)
