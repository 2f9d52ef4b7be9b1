"""What of a policy's files would have to be written otherwise for one action, and how that is told.

A rule is removed, or an exact one added, in each profile that has a say; a list of
`[paths]` loses each pattern that closes a path of the action. Nothing here is tried:
`Edits.made` is the policy to ask.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy
from paddock.policy.lines import judge_line
from paddock.policy.patterns import Comparison, PathList, PathPattern
from paddock.policy.places import BUILT_IN, Place
from paddock.policy.problems import PatternError
from paddock.policy.profiles import CompiledProfile, Verdict
from paddock.policy.rules import Profile, Rule, compile_rule
from paddock.policy.tables import PathsTable
from paddock.values.decisions import Action, AgentChain, Outcome

DEFAULT_FILE: Final = "paddock.toml"
CLOSING_LISTS: Final = ("protected", "generated", "secret")
ANY_COMMAND: Final = "tool:shell:run *"


@dataclass(frozen=True, slots=True)
class ProfileEdit:
    """A profile without some of its rules and with some more."""

    profile: Profile
    removed: tuple[Rule, ...]
    added: tuple[Rule, ...]

    @property
    def edited(self) -> Profile:
        kept = tuple(rule for rule in self.profile.rules if rule not in self.removed)
        return replace(self.profile, rules=kept + self.added)

    def for_any_command(self) -> "ProfileEdit":
        """Return the edit with a rule for any command in place of those for this one."""
        source = f"profiles.{self.profile.name}.allow"
        rule = compile_rule(ANY_COMMAND, Outcome.ALLOW, source)
        return replace(self, added=(*self.others_than_commands(), rule))

    def others_than_commands(self) -> Iterator[Rule]:
        """Yield the added rules that are for no command."""
        return (rule for rule in self.added if rule.command is None)


@dataclass(frozen=True, slots=True)
class ListEdit:
    """The list `name` of `[paths]` without what closes a path."""

    name: str
    kept: tuple[PathPattern, ...]
    removed: tuple[PathPattern, ...]


@dataclass(frozen=True, slots=True)
class Edits:
    """What is to be written otherwise, all of it together."""

    lists: tuple[ListEdit, ...]
    profiles: tuple[ProfileEdit, ...]

    def made(self, policy: Policy) -> Policy:
        """Return `policy` with all of it: for a "what if"."""
        table = PathsTable(**{each.name: each.kept for each in self.lists})
        changed = policy.with_paths(table) if self.lists else policy
        for edit in self.profiles:
            changed = changed.with_profile(edit.edited)
        return changed

    def without_commands(self) -> "Edits":
        """Return the edits without the rules that they add for commands."""
        edits = (replace(edit, added=tuple(edit.others_than_commands())) for edit in self.profiles)
        return replace(self, profiles=tuple(edit for edit in edits if edit.removed or edit.added))

    def files(self, policy: Policy) -> frozenset[str]:
        profiles = (_file_of(policy, edit.profile.place) for edit in self.profiles)
        lists = (_file_of(policy, edit.removed[0].place) for edit in self.lists)
        return frozenset((*profiles, *lists))

    def texts(self, policy: Policy) -> tuple[str, ...]:
        """Return how it is told: each list by itself, then the rules."""
        rules = "; ".join(edit_text(policy, edit) for edit in self.profiles)
        lists = tuple(_list_text(policy, edit) for edit in self.lists)
        return (*lists, rules) if rules else lists


def find_edits(policy: Policy, chain: AgentChain, action: Action, closing: Iterable[str]) -> Edits:
    """Return what stands in the files against the action; `closing` are lists that deny it."""
    lists = (_list_edit(policy, action, name) for name in closing)
    closed = tuple(edit for edit in lists if edit.removed)
    return Edits(closed, tuple(_profile_edits(policy, chain, action)))


def find_edits_for_any_command(policy: Policy, chain: AgentChain, edits: Edits) -> Edits:
    """Return the edits with a rule for any command in each profile that has a say."""
    known = {edit.profile.name: edit for edit in edits.profiles}
    names = dict.fromkeys(each.name for each in judge_for(policy, chain).profiles())
    profiles = (policy.find_profile(name) for name in names)
    bare = (ProfileEdit(profile, (), ()) for profile in profiles if profile is not None)
    return replace(
        edits,
        profiles=tuple(known.get(edit.profile.name, edit).for_any_command() for edit in bare),
    )


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


def _list_edit(policy: Policy, action: Action, name: str) -> ListEdit:
    listed = kept = policy.path_list(name)
    for path in _paths(action):
        # Of two patterns that close the path, one decides only when the other is gone.
        while (found := PathList(kept, Comparison.GUARDING).find(path)) is not None:
            kept = tuple(each for each in kept if each != found)
    if all(pattern.negated for pattern in kept):
        # A list that only takes out does not load.
        kept = ()
    return ListEdit(name, kept, tuple(each for each in listed if each not in kept))


def _paths(action: Action) -> Iterator[str]:
    if action.is_path:
        yield action.target or "."
    elif action.category == "shell":
        for write in judge_line(action).writes():
            if isinstance(write, Action):
                yield write.target


def _list_text(policy: Policy, edit: ListEdit) -> str:
    texts = ", ".join(dict.fromkeys(_string(pattern.text) for pattern in edit.removed))
    place = edit.removed[0].place
    if place.file == BUILT_IN:
        how = f"give {edit.name} under [paths] in {_file_of(policy, place)}, without {texts}"
    else:
        places = ", ".join(dict.fromkeys(str(pattern.place) for pattern in edit.removed))
        how = f"remove {texts} from [paths] {edit.name}, {places}"
    return f"no rule lifts it, since {edit.name} stands above every profile: {how}"


def _profile_edits(policy: Policy, chain: AgentChain, action: Action) -> Iterator[ProfileEdit]:
    done: set[str] = set()
    for compiled in judge_for(policy, chain).profiles():
        profile = policy.find_profile(compiled.name)
        if profile is None or profile.name in done:
            continue
        done.add(profile.name)
        edit = _edit(profile, compiled.alone, action)
        if edit.removed or edit.added:
            yield edit


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
    """Yield each thing that the profile judged by itself, with its verdict."""
    if action.category != "shell":
        yield action, compiled.judge(action)
        return
    line = judge_line(action)
    for command, verdict in line.verdicts(compiled):
        if command is not None and (not command.is_neutral or verdict.finding.rank == 0):
            yield action._replace(target=command.text), verdict
    for write in line.writes():
        if isinstance(write, Action):
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
            "without it a profile in a file replaces the built-in one whole"
        )
    return ", ".join(parts)


def _added_text(policy: Policy, profile: Profile, word: str, texts: str) -> str:
    table, place = f"[profiles.{profile.name}]", _list_place(policy, profile, word)
    if place is None:
        where = "" if profile.place.file == BUILT_IN else f", in {profile.place}"
        return f"add `{word} = [{texts}]` to {table}{where}"
    # Written as a line of its own the key would stand there twice, and nothing load.
    return f"add {texts} to the list {word} of {table}, {place}"


def _list_place(policy: Policy, profile: Profile, word: str) -> Place | None:
    for each in policy.documents:
        # A list may be empty, and then no rule has its place.
        if profile in each.profiles and word in each.document.values["profiles"][profile.name]:
            return each.document.place(("profiles", profile.name, word))
    return None


def _file_of(policy: Policy, place: Place) -> str:
    if place.file != BUILT_IN:
        return place.file
    return policy.documents[-1].file if policy.documents else DEFAULT_FILE


def _string(text: str) -> str:
    """Return the whole text as TOML writes a string: what is shown is what was tried."""
    return f'"{"".join(_escaped(char) for char in text)}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    return char if char.isprintable() else f"\\U{ord(char):08X}"
