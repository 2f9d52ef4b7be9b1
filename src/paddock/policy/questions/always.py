"""From an approved call to the rules that let just this through from now on.

They are proved before anybody sees them: with them the very actions are allowed, and what is
nearly the same is decided as before. What cannot be proved is refused with the reason.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern
from paddock.policy.actions import parse_concrete
from paddock.policy.decide import decide, judge_for
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.places import BUILT_IN, PatternError, quote_toml
from paddock.policy.profiles import CompiledProfile
from paddock.policy.rules import Profile
from paddock.values.decisions import Action, AgentChain, Outcome

_ASKED: Final = (Outcome.CONFINE, Outcome.ASK)
"""What a person may be asked about; a command that is to be confined where no sandbox holds it."""
_GLOB: Final = lazy_pattern(r"[\\*?\[\]]")
_PLAIN_WORD: Final = lazy_pattern(r"[A-Za-z0-9_@%+=:,./-]+")
_BARE_KEY: Final = lazy_pattern(r"[A-Za-z0-9_-]+")


class Sources(Struct, frozen=True):
    project: PolicySource
    user: PolicySource | None


class Always(Struct, frozen=True):
    addition: str
    content: bytes


class _Wanted(Struct, frozen=True):
    profile: Profile
    action: str
    outcome: str
    example: str


def plan_always(
    policy: Policy, chain: AgentChain, actions: Sequence[str], sources: Sources, reason: str
) -> Always:
    """Return rules for these actions and nothing else; ConfigError where none can be proved."""
    if not sources.project.trusted:
        raise _refused("the project's policy is not trusted, so it allows nothing")
    if sources.project.name.endswith(".json"):
        raise _refused("rules are written to TOML files alone")
    parsed = [_parse(text) for text in actions]
    wanted = list(dict.fromkeys(_wanted(policy, chain, parsed)))
    if not wanted:
        raise _refused("policy does not ask about it")
    addition = "".join(_render(wanted, sources.project, reason))
    content = sources.project.text
    gap = b"" if not content else b"\n" if content.endswith(b"\n") else b"\n\n"
    changed = content + gap + addition.encode("utf-8")
    try:
        own = PolicySource(sources.project.name, changed)
        after = load_policy(own, sources.user, policy.plane_kind, policy.planes_below)
    except ConfigError as error:
        # Its examples are tests: a rule that does not match the call stops the load.
        raise _refused(error.message) from None
    _prove(policy, after, chain, parsed)
    return Always(addition, changed)


# The rules


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
    for action in actions:
        for profile in profiles.values():
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
            raise _refused(f"{quote_toml(target)} holds a *, which stands for anything in a rule")
        text = f"{action.head} {target}" if target else action.head
        yield _Wanted(profile.profile, text, "allow", str(action))
        return
    if target == ".":
        raise _refused("a rule for the root covers everything")
    pattern = "/" + _GLOB.sub(lambda found: f"\\{found[0]}", target)
    yield _Wanted(profile.profile, f"{action.head} {pattern}", "allow", str(action))
    # A path pattern covers what is below it too, should a directory stand there one day.
    below = Action(action.category, action.operation, f"{target}/x")
    if action.category != "search" and _outcome(policy, chain, below) is Outcome.ASK:
        text = f"{action.head} {pattern}/**"
        yield _Wanted(profile.profile, text, "ask", str(below))


def _for_line(profile: CompiledProfile, action: Action) -> Iterator[_Wanted]:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    line = parse_line(action.target)
    doubtful = (*line.problems, *line.runtime_only)
    if doubtful:
        raise _refused(f"what it runs is not certain: {doubtful[0]}")
    for command in line.wanted:
        if profile.judge_command(action, command).finding.outcome in _ASKED:
            text = " ".join(_word(word.text) for word in command.words)
            example = f"{action.head} {command.text}"
            yield _Wanted(profile.profile, f"{action.head} {text}", "allow", example)


def _word(text: str) -> str:
    if _PLAIN_WORD.fullmatch(text):
        return text
    if "'" not in text:
        return f"'{text}'"
    if '"' not in text:
        return f'"{text}"'
    raise _refused(f"the word {quote_toml(text)} cannot be written in a rule")


# The file


def _render(wanted: list[_Wanted], source: PolicySource, reason: str) -> Iterator[str]:
    for profile in dict.fromkeys(each.profile for each in wanted):
        if profile.place.file == BUILT_IN:
            key = _key(profile.name)
            yield f"[profiles.{key}]\nextends = {_text(profile.name)}\n\n"
        elif profile.place.file != source.name:
            rules = ", ".join(quote_toml(each.action) for each in wanted if each.profile is profile)
            raise _refused(
                f"the profile {quote_toml(profile.name)} stands in {profile.place.file}",
                f"add there what allows {rules}",
            )
        for each in wanted:
            if each.profile is profile:
                yield _rule(each, reason)


def _rule(wanted: _Wanted, reason: str) -> str:
    return (
        f"[[profiles.{_key(wanted.profile.name)}.rules]]\n"
        f"action  = {_text(wanted.action)}\n"
        f"outcome = {_text(wanted.outcome)}\n"
        f"reason  = {_text(reason)}\n"
        f"match   = [{_text(wanted.example)}]\n\n"
    )


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    """Write a TOML basic string; JSON's escapes are among its own, but for those of DEL."""
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


# The proof


def _prove(before: Policy, after: Policy, chain: AgentChain, actions: list[Action]) -> None:
    decision = decide(after, chain, actions)
    if decision.outcome is not Outcome.ALLOW:
        rule = decision.rule
        said = decision.reason if rule is None else f"{rule.text} ({rule.source}) asks all the same"
        raise _refused(f"no rule that allows can lift it: {said}", "change that rule by hand")
    for action in actions:
        for other in _neighbours(action):
            if _outcome(after, chain, other) < _outcome(before, chain, other):
                raise _refused(f"the rule would cover {quote_toml(str(other))} as well")


def _neighbours(action: Action) -> Iterator[Action]:
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
