"""What a command may reach: `[shell]` for one chain of agents and one line.

A child never exceeds its parent here either: of every member's settings the
strictest counts. A rule's `network` holds for just the commands that it
matches, so it opens the network of a line only where every command of the line
has it; an opening wants an exact match, a closing any reading.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final, TypeVar

from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy
from paddock.policy.lines import LineJudge, judge_line
from paddock.policy.profiles import CompiledProfile, Verdict
from paddock.policy.rules import Rule
from paddock.policy.settings import (
    COMMITS,
    ENFORCEMENTS,
    NETWORKS,
    ConfineMax,
    Git,
    Network,
    ShellSettings,
)
from paddock.policy.shell import covers
from paddock.values.decisions import Action, AgentChain, Outcome

Word = TypeVar("Word")

if TYPE_CHECKING:
    from paddock.policy.commands import SimpleCommand

GITS_STRICTEST_FIRST: Final[tuple[Git, ...]] = ("none", "read-only", "safe")
GITS_WHERE_UNPROTECTED: Final[tuple[Git, ...]] = ("read-only", "safe", "none")
"""`none` leaves `.git` to `protected`: the strictest where that names it, else the loosest."""
COMMITS_STRICTEST_FIRST: Final = tuple(reversed(COMMITS))


def shell_for(policy: Policy, chain: AgentChain, action: Action | None = None) -> ShellSettings:
    """Return `[shell]` as it holds for `chain`, and for the line of `action` if one is given.

    `approve` is the acting agent's own; everything else is the strictest of the
    chain. An empty chain has the settings of `[shell]` itself.
    """
    profiles = judge_for(policy, chain).profiles()
    if not profiles:
        return policy.settings.shell
    line = judge_line(action) if action is not None else None
    shells = [_profile_shell(policy, profile, line) for profile in profiles]
    is_protected = policy.guards.find_protected(".git/HEAD") is not None
    gits = GITS_STRICTEST_FIRST if is_protected else GITS_WHERE_UNPROTECTED
    git = _strictest(gits, *(shell.git for shell in shells))
    return replace(reduce(_stricter, shells), git=git)


def names_line(policy: Policy, chain: AgentChain, action: Action) -> bool:
    """Whether every profile lets each command of a line run by a rule that is not for all."""
    line = judge_line(action)
    return all(
        any(_names(rule) for rule in verdict.matched)
        for profile in judge_for(policy, chain).profiles()
        for _, verdict in line.verdicts(profile)
    )


def _names(rule: Rule) -> bool:
    return rule.outcome < Outcome.ASK and rule.command is not None and not rule.command.is_any


def _profile_shell(
    policy: Policy, profile: CompiledProfile, line: LineJudge | None
) -> ShellSettings:
    base = policy.settings.shell
    changes = profile.profile.shell
    shell = base if changes is None else changes.over(base)
    if line is None:
        return shell
    networks = [
        _command_network(verdict, command, shell.network)
        for command, verdict in line.verdicts(profile)
    ]
    return replace(shell, network=_strictest(NETWORKS, *networks) if networks else shell.network)


def _command_network(
    verdict: Verdict, command: "SimpleCommand | None", default: Network
) -> Network:
    given: list[Network] = [
        rule.network
        for rule in verdict.matched
        if rule.network is not None and _may_set(rule, rule.network, command, default)
    ]
    return _strictest(NETWORKS, *given) if given else default


def _may_set(
    rule: Rule, network: Network, command: "SimpleCommand | None", default: Network
) -> bool:
    if NETWORKS.index(network) <= NETWORKS.index(default):
        return True
    # Threat: `env X=1 npm install`, `npm install; curl …`: an ask matches any
    # reading, and what it was asked about must not decide what may be reached.
    if command is None:
        return False
    return rule.command is None or rule.command.is_any or rule.command.matches_exactly(command)


def _stricter(one: ShellSettings, other: ShellSettings) -> ShellSettings:
    """Return the strictest of both, key by key; `approve` and `git` of the first."""
    return ShellSettings(
        network=_strictest(NETWORKS, one.network, other.network),
        git=one.git,
        read=_common(one.read, other.read),
        write=_common(one.write, other.write),
        enforcement=_strictest(ENFORCEMENTS, one.enforcement, other.enforcement),
        approve=one.approve,
        commit=_strictest(COMMITS_STRICTEST_FIRST, one.commit, other.commit),
        confine_max=ConfineMax(
            files=min(one.confine_max.files, other.confine_max.files),
            mb=min(one.confine_max.mb, other.confine_max.mb),
            deleted=min(one.confine_max.deleted, other.confine_max.deleted),
        ),
        limits=one.limits.stricter(other.limits),
        env=tuple(dict.fromkeys((*_covered(one.env, other.env), *_covered(other.env, one.env)))),
        caches=one.caches and other.caches,
    )


def _strictest(order: tuple[Word, ...], *words: Word) -> Word:
    for word in order:
        if word in words:
            return word
    return words[0]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories that lie under both lists, each once."""
    inside = [path for path in one if _is_under(path, other)]
    inside += [path for path in other if _is_under(path, one)]
    return tuple(dict.fromkeys(inside))


def _covered(names: tuple[str, ...], patterns: tuple[str, ...]) -> Iterator[str]:
    return (name for name in names if any(covers(pattern, name) for pattern in patterns))


def _is_under(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)
