"""Find the smallest change that flips a decision, and try it before it is proposed.

All edits of the policy's files are applied to a copy of the policy, which then decides the call.
If a file is not trusted, the proposal includes trusting it if nothing flips without that. A
denial that no file can lift is explained without a trial.

For an approved call, plan the rules that allow exactly this call from now on. They are verified
before they are shown: with them these actions are allowed, and similar actions are decided as
before. If that cannot be shown, the plan is refused with the reason.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern
from paddock.policy.decide import decide, judge_for
from paddock.policy.engine import GUARDING_LISTS, Policy, PolicySource, load_policy
from paddock.policy.pathset import PathList, PathPattern
from paddock.policy.positions import BUILT_IN, PatternError, Place, quote_toml
from paddock.policy.profiles import UNREADABLE_REMEDY, CompiledProfile, Finding, Verdict, judge_line
from paddock.policy.rules import Profile, Rule, compile_rule, parse_concrete
from paddock.values.decisions import Action, AgentChain, Outcome

# Each profile that decides the action loses a rule or gets an exact one; each list of `[paths]`
# loses the patterns that close a path of the action. `Edits.apply` returns the changed policy.

DEFAULT_FILE: Final = "paddock.toml"
ANY_COMMAND: Final = "tool:shell:run *"
_GLOB: Final = lazy_pattern(r"[\\*?\[]")


class ProfileEdit(Struct, frozen=True):
    profile: Profile
    removed: tuple[Rule, ...]
    added: tuple[Rule, ...]

    @property
    def edited(self) -> Profile:
        kept = tuple(rule for rule in self.profile.rules if rule not in self.removed)
        return replace(self.profile, rules=kept + self.added)


class Edits(Struct, frozen=True):
    lists: dict[str, tuple[PathPattern, ...]]
    """The patterns that each list of `[paths]` loses."""
    profiles: tuple[ProfileEdit, ...]

    def apply(self, policy: Policy) -> Policy:
        lists = tuple(
            (kind, PathList((p for p in listed.patterns if p not in gone), listed.comparison))
            for kind, listed in policy.guards.lists
            for gone in [self.lists.get(kind, ())]
        )
        changed = replace(policy, guards=replace(policy.guards, lists=lists))
        for edit in self.profiles:
            changed = changed.with_profile(edit.edited)
        return changed

    def files(self, policy: Policy) -> frozenset[str]:
        profiles = (_file_of(policy, edit.profile.place) for edit in self.profiles)
        lists = (_file_of(policy, removed[0].place) for removed in self.lists.values())
        return frozenset((*profiles, *lists))

    def texts(self, policy: Policy) -> tuple[str, ...]:
        rules = "; ".join(edit_text(policy, edit) for edit in self.profiles)
        lists = tuple(_list_text(policy, *each) for each in self.lists.items())
        return (*lists, rules) if rules else lists


def exact_pattern(action: Action) -> str:
    if not action.target or action.target == ".":
        return action.head
    if not action.is_path:
        return f"{action.head} {action.target}"
    escaped = _GLOB.sub(r"\\\g<0>", action.target)
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    # Without a slash it would match at any depth; a leading # or ! has another meaning.
    is_plain = "/" in escaped and not escaped.startswith(("#", "!", "~"))
    return f"{action.head} {escaped if is_plain else '/' + escaped}"


def _removed(listed: PathList, paths: Sequence[str]) -> list[PathPattern]:
    kept = listed.patterns
    for path in paths:
        # If two patterns close the path, the second decides only once the first is removed.
        while (found := PathList(kept, listed.comparison).find(path)) is not None:
            kept = tuple(each for each in kept if each != found)
    # A list of only `!` patterns does not load.
    is_left = not all(pattern.negated for pattern in kept)
    return [each for each in listed.patterns if not is_left or each not in kept]


def _list_text(policy: Policy, name: str, removed: tuple[PathPattern, ...]) -> str:
    texts = ", ".join(dict.fromkeys(_string(pattern.text) for pattern in removed))
    place = removed[0].place
    if place.file == BUILT_IN:
        how = f"give {name} under [paths] in {_file_of(policy, place)}, without {texts}"
    else:
        places = ", ".join(dict.fromkeys(str(pattern.place) for pattern in removed))
        how = f"remove {texts} from [paths] {name}, {places}"
    return f"no rule can lift it, since {name} overrides every profile: {how}"


def _judging(policy: Policy, chain: AgentChain) -> dict[Profile, CompiledProfile]:
    profiles = {each.name: each for each in judge_for(policy, chain).profiles()}
    found = ((policy.find_profile(name), each) for name, each in profiles.items())
    return {profile: each for profile, each in found if profile is not None}


def _edit(profile: Profile, compiled: CompiledProfile, action: Action) -> ProfileEdit:
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
    return ProfileEdit(profile, tuple(removed.values()), tuple(added.values()))


def _parts(compiled: CompiledProfile, action: Action) -> Iterator[tuple[Action, Verdict]]:
    if action.category != "shell":
        yield action, compiled.judge(action)
        return
    line = judge_line(action)
    for command, verdict in line.verdicts(compiled):
        if command is not None and (not command.is_neutral or verdict.finding.rank == 0):
            yield action._replace(target=command.text), verdict
    for write in line.written():
        yield write, compiled.judge(write)


def edit_text(policy: Policy, edit: ProfileEdit) -> str:
    profile, parts = edit.profile, list[str]()
    for rule in edit.removed:
        parts.append(f"remove {_string(rule.pattern.text)} from {rule.source}, {rule.place}")
    for outcome in Outcome:
        texts = [_string(rule.pattern.text) for rule in edit.added if rule.outcome is outcome]
        if texts:
            parts.append(_added_text(policy, profile, outcome.word, ", ".join(texts)))
    if profile.place.file == BUILT_IN:
        parts.append(
            f"in {_file_of(policy, profile.place)}, with `extends = {_string(profile.name)}`: "
            "without it a profile in a file replaces the built-in one completely"
        )
    return ", ".join(parts)


def _added_text(policy: Policy, profile: Profile, word: str, texts: str) -> str:
    table, place = f"[profiles.{profile.name}]", _list_place(policy, profile, word)
    if place is None:
        where = "" if profile.place.file == BUILT_IN else f", in {profile.place}"
        return f"add `{word} = [{texts}]` to {table}{where}"
    # A second line with this key would make the file invalid.
    return f"add {texts} to the list {word} of {table}, {place}"


def _list_place(policy: Policy, profile: Profile, word: str) -> Place | None:
    for each in policy.documents:
        # The list may be empty, so the place of its rules cannot be used.
        if profile in each.profiles and word in each.document.values["profiles"][profile.name]:
            return each.document.place(("profiles", profile.name, word))
    return None


def _file_of(policy: Policy, place: Place) -> str:
    if place.file != BUILT_IN:
        return place.file
    return policy.documents[-1].file if policy.documents else DEFAULT_FILE


def _string(text: str) -> str:
    """Return the whole text as a TOML string, so that the text shown is the text tried."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = (char if char.isprintable() else f"\\U{ord(char):08X}" for char in quoted)
    return f'"{"".join(shown)}"'


_TRUST: Final = "paddock trust"
_BESIDES: Final = "and besides: "
_APPROVAL: Final = "have it approved when it is asked about"


class ProposedChange(Struct, frozen=True):
    """`outcome`: the changed policy's answer; of changes that belong together, the last has it."""

    text: str
    outcome: Outcome | None = None
    approval: str = ""
    """An alternative, if a person can be asked."""

    @property
    def said(self) -> str:
        return f"{self.text}, or {self.approval}" if self.approval else self.text

    @property
    def word(self) -> str | None:
        return None if self.outcome is None else self.outcome.word

    @property
    def shown(self) -> str:
        return self.said if self.outcome is None else f"{self.said} (then: {self.word})"

    @property
    def was_tried(self) -> bool:
        return self.outcome is not None


def propose_changes(
    policy: Policy, chain: AgentChain, action: Action
) -> tuple[ProposedChange, ...]:
    before = decide(policy, chain, (action,))
    is_mistake = not any(profile.rules for profile in policy.profile_table) or (
        action.category == "shell" and bool(judge_line(action).refusal)
    )
    if not chain or (before.rule is None and not before.matched and is_mistake):
        return ()
    if before.outcome is Outcome.ALLOW:
        return _tightening(policy, chain, action)
    if policy.untrusted is not None:
        after = _outcome(policy.as_if_trusted(), chain, action)
        if after < before.outcome:
            file = policy.untrusted.file
            text = f"review {file}, which is not trusted, and trust it: {_TRUST}"
            return (ProposedChange(text, after),)
    return _loosening(policy, chain, action, before.outcome)


def _loosening(
    policy: Policy, chain: AgentChain, action: Action, outcome: Outcome
) -> tuple[ProposedChange, ...]:
    trusted = policy.as_if_trusted()
    every = judge_for(trusted, chain).all_findings(action)
    found = [finding for finding in every if finding.outcome >= outcome]
    writes = judge_line(action).written() if action.category == "shell" else ()
    paths = [action.target or "."] if action.is_path else [each.target for each in writes]
    layers = {name: trusted.guards.layers(name) for name in _closing(found)}
    lists = {
        name: tuple(each for listed in own for each in _removed(listed, paths))
        for name, own in layers.items()
    }
    profiles = (_edit(each, it, action) for each, it in _judging(trusted, chain).items())
    edits = Edits(
        {name: removed for name, removed in lists.items() if removed},
        tuple(each for each in profiles if each.removed or each.added),
    )
    fixed = _fixed(found).values()
    if fixed:
        # What no file can lift cannot be tried, and the rest flips nothing without it.
        texts = [f"{_BESIDES}{text}" for text in edits.texts(trusted)]
        return (*fixed, *_together(texts, _trust_of(policy, edits)))
    tried = _tried(policy, chain, action, edits, outcome)
    if tried is not None:
        after, trust = tried
        return _together(edits.texts(trusted), trust, after)
    if action.category == "shell":
        return _for_any_command(policy, chain, action, edits, outcome)
    return ()


def _for_any_command(
    policy: Policy, chain: AgentChain, action: Action, edits: Edits, outcome: Outcome
) -> tuple[ProposedChange, ...]:
    trusted = policy.as_if_trusted()
    bare = {
        each.profile: replace(each, added=tuple(r for r in each.added if r.command is None))
        for each in edits.profiles
    }
    wide = [bare.get(each, ProfileEdit(each, (), ())) for each in _judging(trusted, chain)]
    for number, each in enumerate(wide):
        source = f"profiles.{each.profile.name}.allow"
        rule = compile_rule(ANY_COMMAND, Outcome.ALLOW, source)
        wide[number] = replace(each, added=(*each.added, rule))
    tried = _tried(policy, chain, action, Edits(edits.lists, tuple(wide)), outcome)
    if tried is None:
        return ()
    # Not proposed as an edit: nobody should add it because of one line.
    message = f"only a rule for any command ({quote_toml(ANY_COMMAND)}) covers it"
    rest = Edits(edits.lists, tuple(each for each in bare.values() if each.removed or each.added))
    *others, last = _together((*rest.texts(trusted), message), tried[1])
    return (*others, replace(last, approval=_APPROVAL if outcome is Outcome.ASK else ""))


def _together(
    texts: Sequence[str], trust: str, outcome: Outcome | None = None
) -> tuple[ProposedChange, ...]:
    lines = [text if number == 0 else f"{_BESIDES}{text}" for number, text in enumerate(texts)]
    if not lines:
        return ()
    return (*map(ProposedChange, lines[:-1]), ProposedChange(lines[-1] + trust, outcome))


def _tried(
    policy: Policy, chain: AgentChain, action: Action, edits: Edits, outcome: Outcome
) -> tuple[Outcome, str] | None:
    """Return the outcome after the edits, and the trust that it needs; None if not milder."""
    if not _trust_of(policy, edits):
        after = _outcome(edits.apply(policy), chain, action)
        if after < outcome:
            return after, ""
    if policy.untrusted is None:
        return None
    after = _outcome(edits.apply(policy.as_if_trusted()), chain, action)
    return (after, _then_trust(policy)) if after < outcome else None


def _trust_of(policy: Policy, edits: Edits) -> str:
    file = "" if policy.untrusted is None else policy.untrusted.file
    return _then_trust(policy) if file in edits.files(policy) else ""


def _then_trust(policy: Policy) -> str:
    return "" if policy.untrusted is None else f"; then trust {policy.untrusted.file}: {_TRUST}"


def _tightening(policy: Policy, chain: AgentChain, action: Action) -> tuple[ProposedChange, ...]:
    profile = _closest(policy, judge_for(policy, chain).profiles()[0].name)
    if profile is None:
        return ()
    try:
        rule = compile_rule(exact_pattern(action), Outcome.DENY, f"profiles.{profile.name}.deny")
    except PatternError:
        return ()
    edit = ProfileEdit(profile, (), (rule,))
    if _outcome(policy.with_profile(edit.edited), chain, action) is not Outcome.DENY:
        return ()
    return (ProposedChange(edit_text(policy, edit), Outcome.DENY),)


def _closest(policy: Policy, name: str) -> Profile | None:
    profile = policy.find_profile(name)
    if profile is None or profile.place.file != BUILT_IN or policy.untrusted is None:
        return profile
    # Edit the overlay: a second table would repeat the profile in the untrusted file.
    laid_over = (each for each in policy.untrusted.profiles if each.name == name)
    return next(laid_over, profile)


def _closing(found: Sequence[Finding]) -> tuple[str, ...]:
    sources = (finding.rule.source for finding in found if finding.rule is not None)
    names = (source.removeprefix("paths.") for source in sources if source.startswith("paths."))
    return tuple(name for name in dict.fromkeys(names) if name in GUARDING_LISTS)


def _fixed(found: Sequence[Finding]) -> dict[str, ProposedChange]:
    fixed: dict[str, ProposedChange] = {}
    for finding in found:
        if text := _fixed_text(finding):
            is_unreadable = finding.rule is not None and finding.rule.source == BUILT_IN
            fixed.setdefault(text, ProposedChange(text, approval=_APPROVAL * is_unreadable))
    return fixed


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
            "only operators change them"
        )
    if ".permissions." in rule.source:
        agent, _, name = rule.source.removeprefix("agents.").partition(".permissions.")
        where = rule.place if rule.file else f"the declaration of the agent {quote_toml(agent)}"
        verb = "remove what names the path from" if name == "forbidden" else "add the path to"
        return f"no profile lifts it: {verb} permissions.{name} in {where}"
    return ""


_ASKED: Final = (Outcome.CONFINE, Outcome.ASK)
"""Outcomes that a person may be asked about; `confine` if no sandbox is available."""
_PLAIN_WORD: Final = lazy_pattern(r"[A-Za-z0-9_@%+=:,./-]+")
_BARE_KEY: Final = lazy_pattern(r"[A-Za-z0-9_-]+")


class Always(Struct, frozen=True):
    addition: str
    content: bytes


class _Wanted(Struct, frozen=True):
    profile: Profile
    action: str
    example: str
    outcome: str = "allow"


def plan_always(
    policy: Policy,
    chain: AgentChain,
    actions: Sequence[str],
    project: PolicySource,
    user: PolicySource | None,
    reason: str,
) -> Always:
    """Return rules for these actions and nothing else; ConfigError if they cannot be verified."""
    if not project.trusted:
        raise _refused("the project's policy is not trusted, so it allows nothing")
    if project.name.endswith(".json"):
        raise _refused("rules can only be written to TOML files")
    parsed = [_parse(text) for text in actions]
    wanted = list(dict.fromkeys(_wanted(policy, chain, parsed)))
    if not wanted:
        raise _refused("policy does not ask about it")
    addition = "\n".join(_render(wanted, project, reason))
    content = project.text
    changed = appended(content, addition)
    try:
        own = PolicySource(project.name, changed)
        kind, below = policy.plane_kind, policy.planes_below
        after = load_policy(own, user, kind, below, policy.packages)
    except ConfigError as error:
        # The examples are tests: a rule that does not match the call stops the load.
        raise _refused(error.message) from None
    _prove(policy, after, chain, parsed)
    return Always(addition, changed)


def appended(content: bytes, addition: str) -> bytes:
    """Return the content of a TOML file with the addition after one empty line."""
    gap = b"" if not content or content.endswith(b"\n\n") else b"\n"
    return content + (gap if content.endswith(b"\n") else 2 * gap) + addition.encode("utf-8")


def _parse(text: str) -> Action:
    try:
        action = parse_concrete(text)
    except PatternError as problem:
        raise _refused(problem.message) from None
    if str(action) != text:
        raise _refused(f"{quote_toml(text)} cannot be written as an action")
    return action


def _wanted(policy: Policy, chain: AgentChain, actions: list[Action]) -> Iterator[_Wanted]:
    profiles = {each.name: each for each in judge_for(policy, chain).profiles()}
    for action, profile in product(actions, profiles.values()):
        if action.category == "shell":
            yield from _for_line(profile, action)
        elif profile.judge(action).finding.outcome is Outcome.ASK:
            yield from _for_target(policy, chain, profile, action)


def _for_target(
    policy: Policy, chain: AgentChain, profile: CompiledProfile, action: Action
) -> Iterator[_Wanted]:
    target = action.target
    if not action.is_path:
        if "*" in target:
            raise _refused(f"{quote_toml(target)} contains a *, which is a wildcard in a rule")
        yield _Wanted(profile.profile, exact_pattern(action), str(action))
        return
    if target == ".":
        raise _refused("a rule for the root covers everything")
    yield _Wanted(profile.profile, exact_pattern(action), str(action))
    # A path pattern would also cover files below it, if the path becomes a directory.
    below = Action(action.category, action.operation, f"{target}/x")
    if action.category != "search" and _outcome(policy, chain, below) is Outcome.ASK:
        yield _Wanted(profile.profile, f"{exact_pattern(action)}/**", str(below), "ask")


def _for_line(profile: CompiledProfile, action: Action) -> Iterator[_Wanted]:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    line = parse_line(action.target)
    doubtful = (*line.problems, *line.runtime_only)
    if doubtful:
        raise _refused(f"it is not certain which commands run: {doubtful[0]}")
    for command in line.wanted:
        if profile.judge_command(action, command).finding.outcome in _ASKED:
            text = " ".join(_word(word.text) for word in command.words)
            example = f"{action.head} {command.text}"
            yield _Wanted(profile.profile, f"{action.head} {text}", example)


def _word(text: str) -> str:
    if _PLAIN_WORD.fullmatch(text):
        return text
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    raise _refused(f"the word {quote_toml(text)} cannot be written in a rule")


def _render(wanted: list[_Wanted], source: PolicySource, reason: str) -> Iterator[str]:
    for profile in dict.fromkeys(each.profile for each in wanted):
        if profile.place.file == BUILT_IN:
            key = _key(profile.name)
            yield f"[profiles.{key}]\nextends = {_string(profile.name)}\n"
        elif profile.place.file != source.name:
            rules = ", ".join(quote_toml(each.action) for each in wanted if each.profile is profile)
            message = f"the profile {quote_toml(profile.name)} is in {profile.place.file}"
            raise _refused(message, f"add a rule there that allows {rules}")
        for each in wanted:
            if each.profile is profile:
                yield (
                    f"[[profiles.{_key(profile.name)}.rules]]\n"
                    f"action  = {_string(each.action)}\n"
                    f"outcome = {_string(each.outcome)}\n"
                    f"reason  = {_string(reason)}\n"
                    f"match   = [{_string(each.example)}]\n"
                )


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _prove(before: Policy, after: Policy, chain: AgentChain, actions: list[Action]) -> None:
    decision = decide(after, chain, actions)
    if decision.outcome is not Outcome.ALLOW:
        rule = decision.rule
        message = decision.reason if rule is None else f"{rule.text} ({rule.source}) still asks"
        raise _refused(f"an allow rule cannot lift it: {message}", "change that rule by hand")
    for action in actions:
        for other in _neighbours(action):
            if _outcome(after, chain, other) < _outcome(before, chain, other):
                raise _refused(f"the rule would cover {quote_toml(str(other))} as well")


def _neighbours(action: Action) -> Iterator[Action]:
    if action.category == "net":
        yield action._replace(target=f"x.{action.target}")
    endings = [" x", "x", "; id", " && id"] if action.category == "shell" else ["x"]
    if action.is_path and action.category != "search":
        endings.append("/x")
    for ending in endings:
        yield action._replace(target=action.target + ending)
    if action.is_path:
        yield action._replace(target=f"x/{action.target}")


def _outcome(policy: Policy, chain: AgentChain, action: Action) -> Outcome:
    return decide(policy, chain, [action]).outcome


def _refused(message: str, hint: str = "") -> ConfigError:
    return ConfigError(
        f"no rule was made: {message}", hint=hint or "grant it this once, or edit the policy"
    )
