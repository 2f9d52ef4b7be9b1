"""Decide a call: a policy, a chain of agents and actions → the strictest answer.

All of these are always evaluated, in this order, and the strictest decides:
  1. the path lists, which no profile can override;
  2. each agent's own permissions, which its profile cannot override;
  3. each agent's profile, and the one that `[agents]` gives it: the stricter;
  4. the same for every ancestor: a child never exceeds its parent;
  5. for a command line, each simple command, each part known only at run time,
     and each redirection as a write.
Total and deterministic: what is unknown is denied. Warnings are added last and change nothing.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import asdict, astuple, replace

from paddock.errors import PermissionDeniedError
from paddock.limits import agent_chain_max
from paddock.policy.engine import PATH_LISTS, Policy, Writer
from paddock.policy.pathset import AgentPermissions, compile_permissions
from paddock.policy.positions import BUILT_IN, quote_toml
from paddock.policy.profiles import (
    CompiledProfile,
    Finding,
    LineJudge,
    Verdict,
    judge_line,
    strictness,
)
from paddock.policy.rules import NAMES_BY_OPERATION, Rule, is_normal_path
from paddock.policy.settings import (
    COMMITS,
    ENFORCEMENTS,
    NETWORKS,
    ConfineMax,
    LoweredLimits,
    Network,
    ShellChanges,
    ShellSettings,
    covers,
)
from paddock.values.decisions import (
    OPERATIONS,
    PATH_CATEGORIES,
    Action,
    AgentChain,
    Decision,
    Outcome,
    RuleMatch,
)
from paddock.values.entries import digest_of

if TYPE_CHECKING:
    from paddock.policy.commands import SimpleCommand


CACHED_CHAINS: Final = 64

WARNING: Final = (
    "Writing to production path: {path}. Ensure this is intentional implementation work."
)


def decide(
    policy: Policy,
    chain: AgentChain,
    actions: Sequence[Action],
    writer: Writer = Writer.FILE_TOOL,
) -> Decision:
    """Return the decision for one call: the strictest over all its actions.

    `chain` is the acting agent, then its ancestors. `writer`: only commands may write `generated`
    paths. A redirection is resolved from the workspace root; a caller that runs the line elsewhere
    adds all its writes as actions. The answer is a denial without actions or an agent, for a chain
    longer than `agent_chain_max`, for an unknown head and for an unresolved path.
    """
    if not actions:
        return _refusal(policy, "", "the call names no action")
    return _combined(judge_for(policy, chain).decide_each(actions, writer))


_SAID: Final = "a command that was allowed to start may continue"
_CONTINUES: Final = Verdict(
    Finding(Outcome.ALLOW, RuleMatch(Outcome.ALLOW, _SAID, BUILT_IN, BUILT_IN, 0, _SAID), _SAID, 2)
)
"""For an action on a background command, if the profile only says that commands may run."""


def writer_of(actions: Sequence[Action]) -> Writer:
    return Writer.COMMAND if actions and actions[0].category == "shell" else Writer.FILE_TOOL


@lru_cache(maxsize=CACHED_CHAINS)
def judge_for(policy: Policy, chain: AgentChain) -> "ChainJudge":
    return ChainJudge(policy, chain)


class ChainJudge:
    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self.policy = policy
        self.chain = chain
        self._problem = ""
        if not chain:
            self._problem = "no agent is named"
        elif len(chain) > agent_chain_max:
            self._problem = f"{len(chain)} agents in a chain are more than {agent_chain_max}"
        self._permissions: list[tuple[str, AgentPermissions]] = []
        self._profiles: list[CompiledProfile] = []
        for position, agent in enumerate(() if self._problem else chain):
            title = f"the parent agent {quote_toml(agent.name)}: " if position else ""
            self._permissions.append((title, compile_permissions(agent)))
            self._profiles += policy.profiles_of(agent, title)

    def profiles(self) -> tuple[CompiledProfile, ...]:
        return tuple(self._profiles)

    def findings(
        self, action: Action, writer: Writer, added: frozenset[str] = frozenset()
    ) -> Iterator[Finding]:
        if action.is_line:
            yield from self._line_findings(action, added)
            return
        if action.is_path:
            path = action.target or "."
            for denial in self.policy.guards.denials(path, action.is_write, writer):
                yield Finding(Outcome.DENY, denial, denial.reason, -1)
            if action.operation == "link":
                for denial in self.policy.guards.link_denials(path):
                    yield Finding(Outcome.DENY, denial, denial.reason, -1)
            for title, permissions in self._permissions:
                for denial in permissions.denials(action):
                    yield Finding(Outcome.DENY, denial, title + denial.reason, -1)
        for _, verdict in self.verdicts(action):
            yield from verdict.findings()

    def all_findings(self, action: Action) -> tuple[Finding, ...]:
        if self._problem or _mistake(action):
            return ()
        return tuple(self.findings(action, Writer.FILE_TOOL))

    def verdicts(self, action: Action) -> Iterator[tuple[CompiledProfile, Verdict]]:
        for profile in self._profiles:
            verdict = profile.judge(action)
            is_unmatched = verdict.finding.rank == 2 and action.category == "shell"
            if is_unmatched and not profile.closes("shell", "run"):
                verdict = _CONTINUES
            yield profile, verdict

    def decide_each(self, actions: Sequence[Action], writer: Writer) -> list[Decision]:
        added = frozenset(each.target for each in actions if each.head == "tool:file:create")
        return [self.decide(each, writer, added) for each in actions]

    def decide_words(self, action: Action) -> Decision:
        """Decide without the line's writes, for a caller that determines them separately."""
        if problem := self._problem or _mistake(action):
            return _refusal(self.policy, str(action), problem)
        return self._decision(action, list(self._word_findings(action)))

    def _word_findings(self, action: Action) -> Iterator[Finding]:
        line = judge_line(action)
        if line.refusal:
            yield Finding(Outcome.DENY, None, line.refusal, 2)
            return
        for profile in self._profiles:
            yield from line.findings(profile)

    def _line_findings(self, action: Action, added: frozenset[str]) -> Iterator[Finding]:
        yield from self._word_findings(action)
        line = judge_line(action)
        if line.refusal:
            return
        for write in line.writes(added):
            if isinstance(write, Finding):
                yield write
            else:
                yield from self.findings(write, Writer.COMMAND)

    def decide(
        self,
        action: Action,
        writer: Writer = Writer.FILE_TOOL,
        added: frozenset[str] = frozenset(),
    ) -> Decision:
        if problem := self._problem or _mistake(action):
            return _refusal(self.policy, str(action), problem)
        return self._decision(action, list(self.findings(action, writer, added)))

    def _decision(self, action: Action, found: list[Finding]) -> Decision:
        deciding = min(found, key=strictness)
        matched = dict.fromkeys(finding.rule for finding in found if finding.rule is not None)
        rule = deciding.rule
        code = ""
        if deciding.outcome is Outcome.DENY:
            code = rule.code if rule is not None else PermissionDeniedError.code
        return Decision(
            outcome=deciding.outcome,
            action=str(action),
            reason=deciding.reason,
            rule=rule,
            code=code,
            policy_digest=self.policy.digest,
            matched=tuple(matched),
            warnings=() if deciding.outcome is Outcome.DENY else self._warnings(action),
        )

    def _warnings(self, action: Action) -> tuple[str, ...]:
        guards = self.policy.guards
        writes = [action] if action.is_write else []
        if action.is_line:
            writes = judge_line(action).written()
        warned = (each.target for each in writes if guards.find_warning(each.target) is not None)
        return tuple(WARNING.format(path=path) for path in warned)


def _mistake(action: Action) -> str:
    known = OPERATIONS.get(action.category)
    if known is None or (
        action.operation not in known and action.category not in NAMES_BY_OPERATION
    ):
        return f"unknown action {quote_toml(action.head)}, so it is denied"
    # Threat: a path that was not resolved could name a forbidden file by another name.
    if action.is_path and action.target and not is_normal_path(action.target):
        return f"{quote_toml(action.target)} is not a resolved path of the workspace"
    return ""


def _refusal(policy: Policy, action: str, reason: str) -> Decision:
    return Decision(Outcome.DENY, action, reason, None, PermissionDeniedError.code, policy.digest)


def _combined(decisions: list[Decision]) -> Decision:
    deciding = max(decisions, key=lambda each: (each.outcome, each.rule is not None))
    matched: dict[RuleMatch, None] = {}
    warnings: dict[str, None] = {}
    for decision in decisions:
        matched.update(dict.fromkeys(decision.matched))
        warnings.update(dict.fromkeys(decision.warnings))
    shown = () if deciding.outcome is Outcome.DENY else tuple(warnings)
    return replace(deciding, matched=tuple(matched), warnings=shown)


# A child never exceeds its parent here either: each setting is the strictest of all
# members. A rule's `network` holds only for the commands that it matches, so it opens the
# network of a line only if every command of the line has it; to open it, the match must be
# exact, to close it any reading is enough.

Word = TypeVar("Word")


def shell_for(policy: Policy, chain: AgentChain, action: Action | None = None) -> ShellSettings:
    """Return the `[shell]` settings of `chain`, for the line of `action` if it is given.

    `approve` is the acting agent's; everything else is the strictest of the chain. An empty
    chain has the settings of `[shell]` itself.
    """
    profiles = judge_for(policy, chain).profiles()
    if not profiles:
        return policy.settings.shell
    line = judge_line(action) if action is not None else None
    # An untrusted file's overlay of a profile does not set shell or network.
    shells = [_profile_shell(policy, each, line) for each in profiles if not each.is_overlay]
    return reduce(_stricter, shells)


def combine_policies(policy: Policy, given: Policy) -> Policy:
    """Combine two policies into one that gives the stricter answer; `given` is a program's.

    Path lists are joined, `[shell]` and `[limits]` are the stricter of both, and each agent has
    its profiles of both. The tables that decide nothing are those of `policy`.
    """
    # `policy` already lists Paddock's own files and state.
    lists = (each for each in given.guards.lists if each[0] in PATH_LISTS)
    joined = policy.guards.plus(lists)
    both, others = policy.settings, given.settings
    return replace(
        _with_whole_shells(policy),
        digest=digest_of(f"{policy.digest} {given.digest}".encode()),
        guards=joined,
        settings=replace(
            both,
            shell=_stricter(both.shell, others.shell),
            limits=LoweredLimits(*map(min, astuple(both.limits), astuple(others.limits))),
        ),
        given=replace(_with_whole_shells(given), note="the policy given by the program"),
    )


def _with_whole_shells(policy: Policy) -> Policy:
    """Write the whole `[shell]` into each profile, so that no other policy's defaults apply."""
    base = policy.settings.shell
    table = tuple(
        replace(each, shell=ShellChanges(**asdict(each.shell.over(base) if each.shell else base)))
        for each in policy.profile_table
    )
    return replace(policy, profile_table=table)


def names_line(policy: Policy, chain: AgentChain, action: Action) -> bool:
    def names(rule: Rule) -> bool:
        return rule.outcome < Outcome.ASK and rule.command is not None and not rule.command.is_any

    line = judge_line(action)
    return all(
        any(map(names, verdict.matched))
        for profile in judge_for(policy, chain).profiles()
        if not profile.is_overlay
        for _, verdict in line.verdicts(profile)
    )


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
    given: list[Network] = []
    for rule in verdict.matched:
        if rule.network is None:
            continue
        # Threat: `env X=1 npm install`, `npm install; curl …`: an ask matches any
        # reading, and such a match must not open the network for the other commands.
        is_exact = command is not None and (
            rule.command is None or rule.command.is_any or rule.command.matches_exactly(command)
        )
        if is_exact or NETWORKS.index(rule.network) <= NETWORKS.index(default):
            given.append(rule.network)
    return _strictest(NETWORKS, *given) if given else default


def _stricter(one: ShellSettings, other: ShellSettings) -> ShellSettings:
    return ShellSettings(
        network=_strictest(NETWORKS, one.network, other.network),
        # `safe` and `none` are not comparable; `read-only` is stricter than both.
        git=one.git if one.git == other.git else "read-only",
        read=_common(one.read, other.read),
        write=_common(one.write, other.write),
        enforcement=_strictest(ENFORCEMENTS, one.enforcement, other.enforcement),
        approve=one.approve,
        commit=_strictest(COMMITS[::-1], one.commit, other.commit),
        confine_max=ConfineMax(*map(min, astuple(one.confine_max), astuple(other.confine_max))),
        limits=one.limits.stricter(other.limits),
        env=tuple(dict.fromkeys((*_covered(one.env, other.env), *_covered(other.env, one.env)))),
        caches=one.caches and other.caches,
    )


def _strictest(order: tuple[Word, ...], *words: Word) -> Word:
    return next((word for word in order if word in words), words[0])


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    inside = [path for path in one if _is_under(path, other)]
    inside += [path for path in other if _is_under(path, one)]
    return tuple(dict.fromkeys(inside))


def _covered(names: tuple[str, ...], patterns: tuple[str, ...]) -> Iterator[str]:
    return (name for name in names if any(covers(pattern, name) for pattern in patterns))


def _is_under(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def may_ever(policy: Policy, chain: AgentChain, category: str, operation: str) -> bool:
    """Return True if some target could be allowed or asked about; errs on the side of True."""
    profiles = judge_for(policy, chain).profiles()
    if not profiles or any(profile.closes(category, operation) for profile in profiles):
        return False
    if category not in PATH_CATEGORIES:
        return True
    is_write = Action(category, operation, ".").is_write
    return all(agent.permissions.write if is_write else agent.permissions.read for agent in chain)
