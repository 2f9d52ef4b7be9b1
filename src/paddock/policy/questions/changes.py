"""The smallest change that would flip a decision, tried before it is proposed.

What a policy's files say is edited (`edits`), all of it together, and the policy that
this makes is asked: its outcome is part of the proposal. Where a file is not trusted,
the edits are those of what would hold if it were; that it is trusted too is part of
the proposal where nothing flips without it. What no file lifts is told untried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paddock.policy.decide import decide, judge_for
from paddock.policy.engine import Policy
from paddock.policy.lines import UNREADABLE_REMEDY, judge_line
from paddock.policy.places import BUILT_IN
from paddock.policy.problems import PatternError, quote_toml
from paddock.policy.profiles import Finding
from paddock.policy.questions.edits import (
    ANY_COMMAND,
    CLOSING_LISTS,
    Edits,
    ProfileEdit,
    edit_text,
    exact_pattern,
    find_edits,
    find_edits_for_any_command,
)
from paddock.policy.rules import Profile, compile_rule
from paddock.values.decisions import Action, AgentChain, Outcome

_TRUST: Final = "paddock trust"
_BESIDES: Final = "and besides: "
_APPROVAL: Final = "have it approved when it is asked about"


@dataclass(frozen=True, slots=True)
class Change:
    """What to do. `outcome` is what the changed policy answers, if that was tried.

    Where several are proposed, they belong together, and the last one has the outcome.
    """

    text: str
    outcome: Outcome | None = None
    approval: str = ""
    """What does as well where the door can ask a person."""

    @property
    def said(self) -> str:
        """The whole, for a person."""
        return f"{self.text}, or {self.approval}" if self.approval else self.text

    @property
    def was_tried(self) -> bool:
        return self.outcome is not None


@dataclass(frozen=True, slots=True)
class _Tried:
    """What edits come to. `trust` is said where they flip nothing without it."""

    outcome: Outcome
    trust: str = ""


def propose_changes(policy: Policy, chain: AgentChain, action: Action) -> tuple[Change, ...]:
    """Return what would flip the decision; nothing where no change of a policy can."""
    before = decide(policy, chain, (action,))
    if not chain or (before.rule is None and not before.matched and _is_mistake(policy, action)):
        return ()
    if before.outcome is Outcome.ALLOW:
        return _tightening(policy, chain, action)
    if policy.untrusted is not None:
        after = decide(policy.as_if_trusted(), chain, (action,))
        if after.outcome < before.outcome:
            file = policy.untrusted.file
            text = f"look at {file}, which is not trusted, and trust it: {_TRUST}"
            return (Change(text, after.outcome),)
    return _loosening(policy, chain, action, before.outcome)


def _loosening(
    policy: Policy, chain: AgentChain, action: Action, outcome: Outcome
) -> tuple[Change, ...]:
    """Return what makes the decision milder than `outcome`."""
    trusted = policy.as_if_trusted()
    every = judge_for(trusted, chain).all_findings(action)
    found = [finding for finding in every if finding.outcome >= outcome]
    edits = find_edits(trusted, chain, action, _closing(found))
    fixed = tuple(_fixed(found))
    if fixed:
        # What no file lifts cannot be tried, and the rest flips nothing without it.
        texts = [f"{_BESIDES}{text}" for text in edits.texts(trusted)]
        return (*fixed, *_together(texts, _trust_of(policy, edits)))
    tried = _tried(policy, chain, action, edits, outcome)
    if tried is not None:
        return _together(edits.texts(trusted), tried.trust, tried.outcome)
    if action.category == "shell":
        return _for_any_command(policy, chain, action, edits, outcome)
    return ()


def _for_any_command(
    policy: Policy, chain: AgentChain, action: Action, edits: Edits, outcome: Outcome
) -> tuple[Change, ...]:
    """Return what is said where a rule for this very line cannot be written."""
    trusted = policy.as_if_trusted()
    wide = find_edits_for_any_command(trusted, chain, edits)
    tried = _tried(policy, chain, action, wide, outcome)
    if tried is None:
        return ()
    # Not told as one of the edits: nobody should take it over for the sake of one line.
    said = f"only a rule for any command ({quote_toml(ANY_COMMAND)}) covers it"
    texts = (*edits.without_commands().texts(trusted), said)
    *others, last = _together(texts, tried.trust)
    return (*others, replace(last, approval=_APPROVAL if outcome is Outcome.ASK else ""))


def _together(
    texts: Sequence[str], trust: str, outcome: Outcome | None = None
) -> tuple[Change, ...]:
    """Return one change for each text, the last one with the trust and the outcome of all."""
    told = [text if number == 0 else f"{_BESIDES}{text}" for number, text in enumerate(texts)]
    if not told:
        return ()
    return (*map(Change, told[:-1]), Change(told[-1] + trust, outcome))


def _tried(
    policy: Policy, chain: AgentChain, action: Action, edits: Edits, outcome: Outcome
) -> _Tried | None:
    """Return what makes the decision milder than `outcome`: the edits, or these and trust."""
    if not _trust_of(policy, edits):
        after = decide(edits.made(policy), chain, (action,)).outcome
        if after < outcome:
            return _Tried(after)
    if policy.untrusted is None:
        return None
    after = decide(edits.made(policy.as_if_trusted()), chain, (action,)).outcome
    return _Tried(after, _then_trust(policy.untrusted.file)) if after < outcome else None


def _trust_of(policy: Policy, edits: Edits) -> str:
    """Return what is said of trust where the file that is not trusted is edited itself."""
    if policy.untrusted is None:
        return ""
    file = policy.untrusted.file
    return _then_trust(file) if file in edits.files(policy) else ""


def _then_trust(file: str) -> str:
    return f"; then trust {file}: {_TRUST}"


def _is_mistake(policy: Policy, action: Action) -> bool:
    return not any(profile.rules for profile in policy.profile_table) or (
        action.category == "shell" and bool(judge_line(action).refusal)
    )


def _tightening(policy: Policy, chain: AgentChain, action: Action) -> tuple[Change, ...]:
    profile = _closest(policy, judge_for(policy, chain).profiles()[0].name)
    if profile is None:
        return ()
    try:
        rule = compile_rule(exact_pattern(action), Outcome.DENY, f"profiles.{profile.name}.deny")
    except PatternError:
        return ()
    edit = ProfileEdit(profile, (), (rule,))
    after = decide(policy.with_profile(edit.edited), chain, (action,))
    if after.outcome is not Outcome.DENY:
        return ()
    return (Change(edit_text(policy, edit), after.outcome),)


def _closest(policy: Policy, name: str) -> Profile | None:
    """Return the profile of that name that stands in a file already, else the built-in one."""
    profile = policy.find_profile(name)
    if profile is None or profile.place.file != BUILT_IN or policy.untrusted is None:
        return profile
    # Written out besides, it would stand twice in the file that is not trusted.
    laid_over = (each for each in policy.untrusted.profiles if each.name == name)
    return next(laid_over, profile)


def _closing(found: Sequence[Finding]) -> tuple[str, ...]:
    sources = (finding.rule.source for finding in found if finding.rule is not None)
    names = (source.removeprefix("paths.") for source in sources if source.startswith("paths."))
    return tuple(name for name in dict.fromkeys(names) if name in CLOSING_LISTS)


def _fixed(found: Sequence[Finding]) -> Iterator[Change]:
    """Yield what no policy file lifts."""
    seen: set[str] = set()
    for finding in found:
        text = _fixed_text(finding)
        if text and text not in seen:
            seen.add(text)
            is_unreadable = finding.rule is not None and finding.rule.source == BUILT_IN
            yield Change(text, approval=_APPROVAL if is_unreadable else "")


def _fixed_text(finding: Finding) -> str:
    rule = finding.rule
    if rule is None:
        is_redirection = finding.reason.startswith("the redirection")
        return "redirect to a path inside the workspace" if is_redirection else ""
    if rule.source == BUILT_IN:
        return f"{rule.text}: {UNREADABLE_REMEDY}"
    if rule.source == "paths.own":
        return (
            f"cannot be lifted: {quote_toml(rule.text)} is one of Paddock's own files; "
            "operators change them, agents never"
        )
    if ".permissions." in rule.source:
        agent, _, name = rule.source.removeprefix("agents.").partition(".permissions.")
        where = rule.place if rule.file else f"the declaration of the agent {quote_toml(agent)}"
        verb = "remove what names the path from" if name == "forbidden" else "add the path to"
        return f"no profile lifts it: {verb} permissions.{name} in {where}"
    return ""
