"""The smallest change that would flip a decision, tried before it is proposed.

What stands above every profile is named with the line to remove; a rule is
removed, or an exact one added, on a changed policy, and the outcome that this
policy gives is part of the proposal. Where a file is not trusted, all is tried
on what would hold if it were: a rule that stands in it need not be added.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from paddock.policy.decide import decide, judge_for
from paddock.policy.engine import Policy
from paddock.policy.lines import UNREADABLE_REMEDY, judge_line
from paddock.policy.places import BUILT_IN, Place
from paddock.policy.problems import PatternError, quote
from paddock.policy.profiles import CompiledProfile, Finding, Verdict
from paddock.policy.rules import Profile, Rule, compile_rule
from paddock.values.actions import Action
from paddock.values.agents import AgentChain
from paddock.values.decisions import Outcome, RuleMatch

DEFAULT_FILE: Final = "paddock.toml"
_TRUST: Final = "paddock trust"
_APPROVAL: Final = "have it approved when it is asked about"


@dataclass(frozen=True, slots=True)
class Change:
    """What to do. `outcome` is what the changed policy answers, if that was tried."""

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
    if policy.untrusted is None:
        return _loosening(policy, chain, action, before.outcome)
    trusted, file = policy.as_if_trusted(), policy.untrusted.file
    after = decide(trusted, chain, (action,))
    if after.outcome < before.outcome:
        return (
            Change(f"look at {file}, which is not trusted, and trust it: {_TRUST}", after.outcome),
        )
    return _loosening(trusted, chain, action, before.outcome, file)


def _loosening(
    policy: Policy, chain: AgentChain, action: Action, outcome: Outcome, untrusted: str = ""
) -> tuple[Change, ...]:
    """Return what makes the decision milder than `outcome`; `untrusted` is a file to trust then."""
    fixed = tuple(_fixed(policy, chain, action, outcome))
    edits = tuple(_edits(policy, chain, action))
    if not edits:
        return fixed
    changed = policy
    for edit in edits:
        changed = changed.with_profile(edit.edited)
    after = decide(changed, chain, (action,))
    text = "; ".join(_edit_text(policy, edit) for edit in edits)
    if untrusted in (_file_of(policy, edit.profile) for edit in edits):
        text += f"; then trust {untrusted}: {_TRUST}"
    if after.outcome < outcome:
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
    return f"no rule lifts it, since {name} stands above every profile: {how}"


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
    profile, parts = edit.profile, list[str]()
    for rule in edit.removed:
        parts.append(f"remove {_string(rule.pattern.text)} from {rule.source}, {rule.place}")
    for outcome in Outcome:
        texts = [_string(rule.pattern.text) for rule in edit.added if rule.outcome is outcome]
        if texts:
            parts.append(_added_text(policy, profile, outcome.word, ", ".join(texts)))
    if profile.place.file == BUILT_IN:
        parts.append(
            f"in {_file_of(policy, profile)}, with the rest of the built-in profile "
            f"{quote(profile.name)} written out there, "
            "since a profile in a file replaces it whole"
        )
    return ", ".join(parts)


def _added_text(policy: Policy, profile: Profile, word: str, texts: str) -> str:
    table, place = f"[profiles.{profile.name}]", _list_place(policy, profile, word)
    if place is None:
        where = "" if profile.place.file == BUILT_IN else f", in {profile.place}"
        return f"add `{word} = [{texts}]` to {table}{where}"
    # Written as a line of its own the key would stand there twice, and nothing load.
    where = "" if place.file == BUILT_IN else f", {place}"
    return f"add {texts} to the list {word} of {table}{where}"


def _list_place(policy: Policy, profile: Profile, word: str) -> Place | None:
    """Return where the profile has a list of that outcome already."""
    source = f"profiles.{profile.name}.{word}"
    if profile.place.file == BUILT_IN:
        return profile.place if any(each.source == source for each in profile.rules) else None
    for each in policy.documents:
        # A list may be empty, and then no rule has its place.
        if profile in each.profiles and word in each.document.values["profiles"][profile.name]:
            return each.document.place(("profiles", profile.name, word))
    return None


def _file_of(policy: Policy, profile: Profile) -> str:
    """Return the file to change: the profile's own, or the one that it is written out in."""
    if profile.place.file != BUILT_IN:
        return profile.place.file
    return policy.documents[-1].file if policy.documents else DEFAULT_FILE


def _string(text: str) -> str:
    """Return the whole text as TOML writes a string: what is shown is what was tried."""
    return f'"{"".join(_escaped(char) for char in text)}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08X}"
