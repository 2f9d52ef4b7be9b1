"""`[shell]` for a chain of agents: the strictest of all their profiles. Pure.

Each key is the stricter: the smaller limit, the narrower network, what both may read; of two
different presets for `.git`, neither within the other, `read-only`, which is within both.
"""

from collections.abc import Callable, Sequence
from functools import reduce

from msgspec import Struct

from paddock.errors import ConfigError
from paddock.policy.decide import ChainJudge, judge_for, shell_for
from paddock.policy.engine import Policy
from paddock.policy.profiles import CompiledProfile
from paddock.policy.settings import (
    COMMITS,
    ENFORCEMENTS,
    Commit,
    EnforcementMode,
    Git,
    Network,
    ShellLimits,
    ShellSettings,
)
from paddock.sandbox.host.host_facts import shared
from paddock.values.decisions import Action, AgentChain

Places = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Paths as a policy writes them → those that a plan may have, real and absolute."""


class ChainShell(Struct, frozen=True):
    network: Network
    git: Git
    commit: Commit
    enforcement: EnforcementMode
    limits: ShellLimits
    caches: bool
    read: tuple[str, ...]
    write: tuple[str, ...]


def shells_of(policy: Policy, chain: AgentChain) -> tuple[ShellSettings, ...]:
    """Return `[shell]` of every profile that has a say. Raises: ConfigError for a bad chain."""
    return tuple(_shell(policy, profile) for profile in _judge(policy, chain).profiles())


def strictest_git(policy: Policy, chain: AgentChain) -> Git:
    return _git([shell.git for shell in shells_of(policy, chain)])


def strictest_shell(
    policy: Policy, chain: AgentChain, readable: Places, writable: Places
) -> ChainShell:
    """Return the strictest of all, but for what a rule gives to a single command.

    Each agent's paths are sifted first: what is left out for a parent lets none in for its child.
    """
    shells = shells_of(policy, chain)
    read, write = readable(shells[0].read), writable(shells[0].write)
    for shell in shells[1:]:
        read = shared(read, readable(shell.read))
        write = shared(write, writable(shell.write))
    return ChainShell(
        network=line_network(policy, chain, None),
        git=_git([shell.git for shell in shells]),
        commit=COMMITS[max(COMMITS.index(shell.commit) for shell in shells)],
        enforcement=(
            "required"
            if any(shell.enforcement == "required" for shell in shells)
            else ENFORCEMENTS[-1]
        ),
        limits=reduce(ShellLimits.stricter, (shell.limits for shell in shells)),
        caches=all(shell.caches for shell in shells),
        read=read,
        write=write,
    )


def _judge(policy: Policy, chain: AgentChain) -> ChainJudge:
    judge = judge_for(policy, chain)
    if not judge.profiles():
        raise ConfigError(
            f"a chain of {len(chain)} agents has no plan for its commands",
            hint="name one agent, with its ancestors",
        )
    return judge


def _shell(policy: Policy, profile: CompiledProfile) -> ShellSettings:
    base = policy.settings.shell
    changes = profile.profile.shell
    return base if changes is None else changes.over(base)


def line_network(policy: Policy, chain: AgentChain, line: str | None) -> Network:
    # Threat: in `npm install && curl …` the second must not get what a rule gives to the first; nor
    # `env X=1 npm install` what a rule that asks about it gives.
    action = None if line is None else Action("shell", "run", line)
    return shell_for(policy, chain, action).network


def _git(presets: Sequence[Git]) -> Git:
    return presets[0] if len(set(presets)) == 1 else "read-only"
