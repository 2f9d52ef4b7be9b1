"""Pure: rules and an action → a decision. Text in, values out; no disk, no clock.

    load_policy(project, user, plane_kind)   files as text → `Policy`, or ConfigError
    decide(policy, chain, actions)           → `Decision`; total, the strictest wins
    shell_for(policy, chain, action)         → what a command may reach

For people: `paddock.policy.questions.explain`, `.lint`, `.examples` (imported from there,
since nothing else needs them). Grammars and the command parser are loaded when
a file or a command is first read.
"""

from paddock.policy.actions import parse_action
from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.grants import shell_for
from paddock.policy.guards import PathGuards, Writer
from paddock.policy.permissions import compile_permissions
from paddock.policy.settings import Settings, ShellSettings

__all__ = [
    "PathGuards",
    "Policy",
    "PolicySource",
    "Settings",
    "ShellSettings",
    "Writer",
    "compile_permissions",
    "decide",
    "load_policy",
    "parse_action",
    "shell_for",
]
