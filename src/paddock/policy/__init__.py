"""Pure: rules and an action → a decision. Text in, values out; no disk, no clock.

    actions, names, rules    actions and rules as text, each with its place
    document, reader, places, tables, problems    a policy file read strictly, or what is wrong
    settings, shell, presets    the tables that are no rules; what holds without any file
    engine       files → `Policy`                decide        a call → the strictest answer
    profiles, matching, permissions    rules compiled for judging, and what agents lay over them
    globs, patterns, path_index, own_places, guards    paths by gitignore's rules, and closed ones
    lines        a command line in a decision    grants        what a command may reach
    openness     what an agent may never do, whatever the target
    commands/    lines of shell, taken apart     questions/    why, what if, what differs

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
