"""What stands in one policy and not in the other: rules, path patterns, bindings, settings.

A call that none of these patterns matches, in a profile that both bind alike, meets the
same rules in both policies, and so the same answer: witnesses are looked for here alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Final

from paddock.policy.actions import ActionPattern, HeadPattern, TargetKind, parse_head
from paddock.policy.engine import Policy
from paddock.policy.patterns import PathList
from paddock.policy.places import Place
from paddock.policy.questions.sampling import ANYTHING, Parts, name_parts, path_parts, word_parts
from paddock.policy.rules import Profile

EVERYTHING: Final = parse_head("tool:*")
UNTRUSTED: Final = "untrusted"
"""What a rule of an untrusted file says begins so."""
CLOSES: Final = f"{UNTRUSTED} deny of all else"
ENDS: Final = "deny of all that no rule names"
"""How a profile ends, also one without a rule."""
PATH_LISTS: Final = ("protected", "generated", "secret", "warned", "safe")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that can decide: a rule, an entry of `otherwise`, a pattern of a list.

    `profile` is empty for a path list. `kind` is None where every target is meant.
    """

    profile: str
    text: str
    says: str
    place: Place
    head: HeadPattern
    kind: TargetKind | None
    parts: Parts

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes items of two policies one; where they stand does not count."""
        return self.profile, self.text, self.says

    def render(self) -> str:
        return f"{self.says} {self.text} ({self.place})"


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that differs: no single decision shows it."""

    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Differences:
    """What differs. `common` are items of both: what a witness may have to match besides."""

    removed: tuple[Item, ...]
    added: tuple[Item, ...]
    common: tuple[Item, ...]
    bound: tuple[str, ...]
    """Agents that `[agents]` or missing trust hold to other profiles."""
    settings: tuple[SettingChange, ...]

    @property
    def can_decide(self) -> bool:
        """Whether any call could be decided otherwise."""
        return bool(self.removed or self.added or self.bound)


def find_differences(old: Policy, new: Policy) -> Differences:
    """Compare two policies item by item."""
    before = (*_items(old), *_profiles_without(old, new))
    after = (*_items(new), *_profiles_without(new, old))
    reordered = _reordered_lists(old, new)
    old_keys, new_keys = {item.key for item in before}, {item.key for item in after}
    removed = tuple(i for i in before if i.key not in new_keys or i.says in reordered)
    added = tuple(i for i in after if i.key not in old_keys or i.says in reordered)
    common = tuple(i for i in after if i.key in old_keys and i.says not in reordered)
    return Differences(removed, added, common, _bound(old, new), tuple(_settings(old, new)))


def _items(policy: Policy) -> Iterator[Item]:
    guards = policy.guards
    for name in PATH_LISTS:
        for layer in getattr(guards, name):
            yield from _listed(layer, f"paths.{name}")
    yield from _listed(guards.own, "paths.own")
    for name in policy.profiles:
        compiled = policy.compiled_profile(name)
        yield from _profile_items(compiled.profile)
        if compiled.overlay is not None:
            yield from _overlay_items(compiled.overlay.profile)


def _listed(layer: PathList, says: str) -> Iterator[Item]:
    for pattern in layer.patterns:
        yield Item(
            "",
            pattern.text,
            says,
            pattern.place,
            EVERYTHING,
            TargetKind.PATH,
            path_parts(pattern.glob),
        )


def _overlay_items(profile: Profile) -> Iterator[Item]:
    """Items of an untrusted file: a twin in the profile below does not stand for them."""
    for item in _profile_items(profile):
        yield replace(item, says=f"{UNTRUSTED} {item.says}")
    # What it does not name it denies, whatever the profile below says.
    yield Item(profile.name, "tool:*", CLOSES, profile.place, EVERYTHING, None, ANYTHING)


def _profiles_without(policy: Policy, other: Policy) -> Iterator[Item]:
    for name in policy.profiles:
        if name not in other.profiles:
            place = policy.compiled_profile(name).profile.place
            yield Item(name, "tool:*", ENDS, place, EVERYTHING, None, ANYTHING)


def _profile_items(profile: Profile) -> Iterator[Item]:
    for rule in profile.rules:
        says = rule.outcome.word if rule.network is None else f"{rule.outcome.word}+{rule.network}"
        pattern = rule.pattern
        yield Item(
            profile.name,
            pattern.text,
            says,
            rule.place,
            pattern.head,
            pattern.kind,
            _parts(pattern),
        )
    for entry in profile.otherwise:
        says = f"otherwise {entry.outcome.word}"
        yield Item(profile.name, entry.head.text, says, entry.place, entry.head, None, ANYTHING)


def _parts(pattern: ActionPattern) -> Parts:
    if pattern.path is not None:
        return path_parts(pattern.path.glob)
    if pattern.kind is TargetKind.COMMAND:
        return word_parts(pattern.target)
    if pattern.kind is TargetKind.NAME:
        return name_parts(pattern.target)
    return ANYTHING


def _reordered_lists(old: Policy, new: Policy) -> frozenset[str]:
    """Lists with a `!` in which later wins: there the order, and each neighbour, decides."""
    found: set[str] = set()
    for name in PATH_LISTS:
        before = [_texts(layer) for layer in getattr(old.guards, name)]
        after = [_texts(layer) for layer in getattr(new.guards, name)]
        has_negation = any(text.startswith("!") for layer in (*before, *after) for text in layer)
        if before != after and (has_negation or len(before) != len(after)):
            found.add(f"paths.{name}")
    return frozenset(found)


def _texts(layer: PathList) -> list[str]:
    return [pattern.text for pattern in layer.patterns]


def _bound(old: Policy, new: Policy) -> tuple[str, ...]:
    names = {binding.name for policy in (old, new) for binding in policy.settings.agents}
    names |= {binding.name for policy in (old, new) for binding in policy.also_bound}
    return tuple(sorted(name for name in names if _binding(old, name) != _binding(new, name)))


def _binding(policy: Policy, name: str) -> tuple[str | None, ...]:
    also = (binding.profile for binding in policy.also_bound if binding.name == name)
    return policy.settings.profile_for(name), *also


def _settings(old: Policy, new: Policy) -> Iterator[SettingChange]:
    before, after = dict(_flat("", old.settings)), dict(_flat("", new.settings))
    for name in dict.fromkeys((*old.profiles, *new.profiles)):
        for policy, table in ((old, before), (new, after)):
            profile = policy.find_profile(name)
            if profile is None:
                table[f"profiles.{name}"] = "none"
            else:
                table.update(_flat(f"profiles.{name}.shell", profile.shell))
    for key in dict.fromkeys((*before, *after)):
        if key.startswith(("agents", "providers")):
            # The former decide, and are looked at; the latter hold commands that fetch keys.
            continue
        one, other = before.get(key, "not given"), after.get(key, "not given")
        if one != other:
            yield SettingChange(key, one, other)


def _flat(key: str, value: object) -> Iterator[tuple[str, str]]:
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            name = f"{key}.{field.name}" if key else field.name
            yield from _flat(name, getattr(value, field.name))
        return
    yield key, "not given" if value is None else str(value)
