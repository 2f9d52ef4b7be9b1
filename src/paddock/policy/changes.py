"""The smallest change that would flip a decision, tried before it is proposed.

What stands above every profile is named with the line to remove; a rule is
removed, or an exact one added, on a changed policy, and the outcome that this
policy gives is part of the proposal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from paddock.policy.decide import decide, judge_for
from paddock.policy.engine import Policy
from paddock.policy.lines import judge_line
from paddock.policy.places import BUILT_IN
from paddock.policy.problems import PatternError, quote
from paddock.policy.profiles import CompiledProfile, Finding, Verdict
from paddock.policy.rules import Profile, Rule, compile_rule
from paddock.values.actions import Action
from paddock.values.agents import AgentChain
from paddock.values.decisions import Outcome, RuleMatch

DEFAULT_FILE: Final = "paddock.toml"


@dataclass(frozen=True, slots=True)
class Change:
    """What to do. `outcome` is what the changed policy answers, if that was tried."""

    text: str
    outcome: Outcome | None = None

    @property
    def was_tried(self) -> bool:
        """Whether a policy with the change was asked."""
        return self.outcome is not None


@dataclass(frozen=True, slots=True)
class _Edit:
    """A profile without some of its rules and with some more."""

    profile: Profile
    removed: tuple[Rule, ...]
    added: tuple[Rule, ...]

    @property
    def edited(self) -> Profile:
        kept = tuple(rule for rule in self.profile.rules if rule not in self.removed)
        return replace(self.profile, rules=kept + self.added)


def propose_changes(policy: Policy, chain: AgentChain, action: Action) -> tuple[Change, ...]:
    """Return what would flip the decision; nothing where no change of a policy can."""
    before = decide(policy, chain, (action,))
    if not chain or (before.rule is None and not before.matched and _is_mistake(policy, action)):
        return ()
    if before.outcome is Outcome.ALLOW:
        return _tightening(policy, chain, action)
    fixed = (
        *_fixed(policy, chain, action, before.outcome),
        *_untrusted(policy, chain, action, before.outcome),
    )
    edits = tuple(_edits(policy, chain, action))
    if not edits:
        return fixed
    changed = policy
    for edit in edits:
        changed = changed.with_profile(edit.edited)
    after = decide(changed, chain, (action,))
    text = "; ".join(_edit_text(policy, edit) for edit in edits)
    if after.outcome < before.outcome:
        return (*fixed, Change(text, after.outcome))
    # Shown only where something above the profile stands in the way besides.
    return (*fixed, Change(f"and besides: {text}")) if fixed else ()


def exact_pattern(action: Action) -> str:
    """Return the pattern that matches this action, and as little else as can be written."""
    if not action.target or action.target == ".":
        return action.head
    if action.is_path:
        escaped = "".join("\\" + char if char in "\\*?[" else char for char in action.target)
        if escaped.endswith(" "):
            escaped = escaped[:-1] + "\\ "
        # Without a slash it would match at any depth; # and ! would mean something else.
        is_plain = "/" in escaped and not escaped.startswith(("#", "!", "~"))
        return f"{action.head} {escaped if is_plain else '/' + escaped}"
    return f"{action.head} {action.target}"


def _is_mistake(policy: Policy, action: Action) -> bool:
    return not any(profile.rules for profile in policy.profile_table) or (
        action.category == "shell" and bool(judge_line(action).refusal)
    )


def _tightening(policy: Policy, chain: AgentChain, action: Action) -> tuple[Change, ...]:
    profile = policy.find_profile(judge_for(policy, chain).profiles()[0].name)
    if profile is None:
        return ()
    try:
        rule = compile_rule(exact_pattern(action), Outcome.DENY, f"profiles.{profile.name}.deny")
    except PatternError:
        return ()
    edit = _Edit(profile, (), (rule,))
    after = decide(policy.with_profile(edit.edited), chain, (action,))
    if after.outcome is Outcome.ALLOW:
        return ()
    return (Change(_edit_text(policy, edit), after.outcome),)


def _fixed(policy: Policy, chain: AgentChain, action: Action, outcome: Outcome) -> Iterator[Change]:
    """Yield what stands above every profile, or outside them."""
    seen: set[str] = set()
    for finding in judge_for(policy, chain).all_findings(action):
        text = _fixed_text(finding)
        if finding.outcome >= outcome and text and text not in seen:
            seen.add(text)
            yield Change(text)


def _untrusted(
    policy: Policy, chain: AgentChain, action: Action, outcome: Outcome
) -> Iterator[Change]:
    """Yield what an untrusted file lays over the profiles: no rule in them lifts it."""
    overlays = [profile.overlay for profile in judge_for(policy, chain).profiles()]
    for overlay in filter(None, overlays):
        said = [verdict.finding.outcome for _, verdict in _parts(overlay, action)]
        if max(said, default=Outcome.ALLOW) >= outcome:
            place = overlay.profile.place
            yield Change(
                f"{place.file} is not trusted, and its [profiles.{overlay.name}] "
                f"({place}) says {max(said).word}: change it there, "
                "or look at the file and trust it: paddock trust"
            )


def _fixed_text(finding: Finding) -> str:
    rule = finding.rule
    if rule is None:
        is_redirection = finding.reason.startswith("the redirection")
        return "redirect to a path inside the workspace" if is_redirection else ""
    if rule.source == BUILT_IN:
        return (
            f"{rule.text}: write the command so that all of it stands in the line, "
            "or have it approved when it is asked about"
        )
    if rule.source == "paths.own":
        return (
            f"cannot be lifted: {quote(rule.text)} is one of Paddock's own files; "
            "operators change them, agents never"
        )
    if rule.source.startswith("paths."):
        return _path_text(rule)
    if ".permissions." in rule.source:
        agent, _, name = rule.source.removeprefix("agents.").partition(".permissions.")
        where = rule.place if rule.file else f"the declaration of the agent {quote(agent)}"
        verb = "remove what names the path from" if name == "forbidden" else "add the path to"
        return f"no profile lifts it: {verb} permissions.{name} in {where}"
    return ""


def _path_text(rule: RuleMatch) -> str:
    name = rule.source.removeprefix("paths.")
    if rule.file == BUILT_IN:
        how = f"give {name} under [paths] in {DEFAULT_FILE}, without {quote(rule.text)}"
    else:
        place = rule.place
        how = f"remove {quote(rule.text)} from [paths] {name}, {place}"
    return f"cannot be lifted: {name} stands above any profile; {how}"


def _edits(policy: Policy, chain: AgentChain, action: Action) -> Iterator[_Edit]:
    done: set[str] = set()
    for compiled in judge_for(policy, chain).profiles():
        profile = policy.find_profile(compiled.name)
        if profile is None or profile.name in done:
            continue
        done.add(profile.name)
        edit = _edit(profile, compiled.alone, action)
        if edit.removed or edit.added:
            yield edit


def _edit(profile: Profile, compiled: CompiledProfile, action: Action) -> _Edit:
    removed: dict[str, Rule] = {}
    added: dict[str, Rule] = {}
    for target, verdict in _parts(compiled, action):
        if verdict.finding.outcome is Outcome.ALLOW:
            continue
        strict = [rule for rule in verdict.matched if rule.outcome is not Outcome.ALLOW]
        removed.update({str(rule.shown): rule for rule in strict})
        if len(strict) == len(verdict.matched):
            pattern = exact_pattern(target)
            source = f"profiles.{profile.name}.allow"
            try:
                added[pattern] = compile_rule(pattern, Outcome.ALLOW, source)
            except PatternError:
                continue
    return _Edit(profile, tuple(removed.values()), tuple(added.values()))


def _parts(compiled: CompiledProfile, action: Action) -> Iterator[tuple[Action, Verdict]]:
    """Yield each thing that the profile judged by itself, with its verdict."""
    if action.category != "shell":
        yield action, compiled.judge(action)
        return
    line = judge_line(action)
    for command, verdict in zip(line.commands, line.verdicts(compiled), strict=True):
        if command is not None:
            yield action._replace(target=command.text), verdict
    for write in line.writes():
        if isinstance(write, Action):
            yield write, compiled.judge(write)


def _edit_text(policy: Policy, edit: _Edit) -> str:
    name, parts = edit.profile.name, list[str]()
    for rule in edit.removed:
        parts.append(f"remove {_string(rule.pattern.text)} from {rule.source}, {rule.place}")
    for outcome in Outcome:
        texts = [_string(rule.pattern.text) for rule in edit.added if rule.outcome is outcome]
        if texts:
            parts.append(f"add `{outcome.word} = [{', '.join(texts)}]` to [profiles.{name}]")
    place = edit.profile.place
    if place.file == BUILT_IN:
        file = policy.documents[-1].file if policy.documents else DEFAULT_FILE
        parts.append(
            f"in {file}, with the rest of the built-in profile {quote(name)} written out there, "
            "since a profile in a file replaces it whole"
        )
    elif edit.added:
        parts.append(f"in {place}")
    return ", ".join(parts)


def _string(text: str) -> str:
    """Return the whole text as TOML writes a string: what is shown is what was tried."""
    return f'"{"".join(_escaped(char) for char in text)}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08X}"
