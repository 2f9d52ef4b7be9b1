"""List the differences of two policies, and sample calls with which to compare them.

An item is a rule, an entry or a path pattern. Nothing is decided here: the caller tries the calls.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from math import isfinite
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct
from msgspec.structs import fields, replace

from paddock.policy.compiled import OWN, source_of
from paddock.policy.engine import PATH_LISTS, Policy
from paddock.policy.globs import split_lead
from paddock.policy.pathset import PathList
from paddock.policy.positions import Place
from paddock.policy.questions.lint import path_samples
from paddock.policy.rules import (
    ANY,
    CLOSED_TARGETS,
    MCP_PREFIX,
    MEMORIES,
    NAMES_BY_OPERATION,
    ActionPattern,
    Profile,
    TargetKind,
    is_normal_path,
    parse_concrete,
    parse_pattern,
    target_kind,
)
from paddock.policy.settings import McpSettings, describe_server
from paddock.text.json import canonical_json
from paddock.values.calls import Json
from paddock.values.decisions import OPERATIONS, Action

if TYPE_CHECKING:
    from paddock.policy.arguments import ArgumentCondition, When

EVERYTHING: Final = parse_pattern("tool:*")
UNTRUSTED: Final = "untrusted"
CLOSES: Final = f"{UNTRUSTED} deny of all else"
ENDS: Final = "deny of all that no rule names"


class Item(Struct, frozen=True):
    """`profile` is empty for a path list."""

    profile: str
    says: str
    place: Place
    pattern: ActionPattern
    examples: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """Samples for which its `when` holds, and samples for which it does not."""

    @property
    def text(self) -> str:
        return self.pattern.text

    @property
    def key(self) -> tuple[str, str, str]:
        """Identify equal items of two policies; their places do not count."""
        return self.profile, self.text, self.says

    def render(self) -> str:
        return f"{self.says} {self.text} ({self.place})"


class SettingChange(Struct, frozen=True):
    key: str
    old: str
    new: str


class Differences(Struct, frozen=True):
    removed: tuple[Item, ...]
    added: tuple[Item, ...]
    common: tuple[Item, ...]
    bound: tuple[str, ...]
    """Agents to which `[agents]`, or an untrusted file, gives other profiles."""
    settings: tuple[SettingChange, ...]

    @property
    def can_decide(self) -> bool:
        return bool(self.removed or self.added or self.bound)


def find_differences(old: Policy, new: Policy) -> Differences:
    before = (*list_items(old), *_profiles_without(old, new))
    after = (*list_items(new), *_profiles_without(new, old))
    reordered = _reordered_lists(old, new)
    old_keys, new_keys = {item.key for item in before}, {item.key for item in after}
    removed = tuple(i for i in before if i.key not in new_keys or i.says in reordered)
    added = tuple(i for i in after if i.key not in old_keys or i.says in reordered)
    common = tuple(i for i in after if i.key in old_keys and i.says not in reordered)
    return Differences(removed, added, common, _bound(old, new), tuple(_settings(old, new)))


def list_items(policy: Policy) -> Iterator[Item]:
    lists = sorted(policy.guards.lists, key=lambda each: each[0] == OWN)
    for kind, listed in lists:
        says = source_of(kind)
        for each in listed.patterns:
            pattern = ActionPattern(each.text, EVERYTHING.head, "", TargetKind.PATH, each)
            yield Item("", says, each.place, pattern)
    for profile in policy.profile_table:
        yield from _profile_items(profile)
    for overlay in policy.overlays:
        # An equal rule in the profile below does not replace the untrusted file's.
        for item in _profile_items(overlay):
            yield replace(item, says=f"{UNTRUSTED} {item.says}")
        # It denies everything it does not name, whatever the profile below allows.
        yield Item(overlay.name, CLOSES, overlay.place, EVERYTHING)


def _profiles_without(policy: Policy, other: Policy) -> Iterator[Item]:
    for profile in policy.profile_table:
        if profile.name not in other.profiles:
            yield Item(profile.name, ENDS, profile.place, EVERYTHING)


def _profile_items(profile: Profile) -> Iterator[Item]:
    for rule in profile.rules:
        says = "+".join((rule.outcome.word, *rule.extras))
        examples = tuple(each.text for each, _ in rule.examples)
        given = () if rule.when is None else tuple(_sample_arguments(rule.when))
        yield Item(profile.name, says, rule.place, rule.pattern, examples, given)
    for entry in profile.otherwise:
        says = f"otherwise {entry.outcome.word}"
        pattern = ActionPattern(entry.head.text, entry.head, "")
        yield Item(profile.name, says, entry.place, pattern)


def _reordered_lists(old: Policy, new: Policy) -> frozenset[str]:
    """Return lists with a `!`, in which the order of the patterns matters."""
    found: set[str] = set()
    for name in PATH_LISTS:
        before, after = (_texts(each.guards.layers(name)) for each in (old, new))
        has_negation = any(text.startswith("!") for layer in (*before, *after) for text in layer)
        if before != after and (has_negation or len(before) != len(after)):
            found.add(f"paths.{name}")
    return frozenset(found)


def _texts(layers: Iterable[PathList]) -> list[list[str]]:
    return [[pattern.text for pattern in layer.patterns] for layer in layers]


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
            # Agents are compared by `_bound`; providers hold commands that fetch keys.
            continue
        one, other = before.get(key, "not given"), after.get(key, "not given")
        if one != other:
            yield SettingChange(key, one, other)


def _flat(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, McpSettings):
        # Without the environment: the value of a variable may be a secret.
        for server in value.servers:
            yield f"{key}.servers.{server.name}", describe_server(replace(server, env=()))
        value = replace(value, servers=())
    if isinstance(value, Struct):
        for each in fields(value):
            name = f"{key}.{each.name}" if key else each.name
            yield from _flat(name, getattr(value, each.name))
        return
    yield key, "not given" if value is None else str(value)


FILL: Final = "example"
_FILLS: Final = (FILL, "x", "")
_GENERAL_HEADS: Final = frozenset(
    {("file", "create"), ("file", "view"), ("search", "grep"), ("output", "write")}
)
_SAFE_IN_SHELL: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
)
_SAMPLE_COMMANDS: Final = (FILL, f"{FILL} --flag", 'eval "$given"')
_SAMPLE_NAMES: Final = {
    "package": (ANY, f"{FILL}/{FILL}"),
    "mcp": (f"{MCP_PREFIX}{FILL}", f"{FILL}/{FILL}"),
    "memory": (f"{MEMORIES}/{FILL}",),
}
_CLIENT_TOOL: Final = "ExampleTool"


def find_calls(changed: Sequence[Item], common: Sequence[Item], most: int) -> tuple[Action, ...]:
    items = (*changed, *common)
    kinds = {item.pattern.kind for item in changed}
    found: dict[Action, None] = {}
    for kind in TargetKind:
        if kind in kinds or None in kinds:
            own = [item.pattern for item in items if item.pattern.kind is kind]
            found |= dict.fromkeys(islice(_calls_of[kind](own, _heads(kind, items)), most))
    for item in items:
        found |= dict.fromkeys(map(parse_concrete, item.examples))
    called = [each for each in found if each.category == "mcp"]
    given = dict.fromkeys(text for item in items for text in item.arguments)
    tries = (each._replace(arguments=text) for each, text in product(called, given))
    found |= dict.fromkeys(islice(tries, most))
    return tuple(found)


_Heads = list[tuple[str, str]]
_Targets = Sequence[ActionPattern]


def _heads(kind: TargetKind, items: Sequence[Item]) -> _Heads:
    named = {(each.pattern.head.category, each.pattern.head.operation) for each in items}
    found: _Heads = []
    for category, operations in OPERATIONS.items():
        if target_kind(category) is not kind:
            continue
        known = sorted(operations)
        if category in NAMES_BY_OPERATION:
            given = sorted(operation for each, operation in named if each == category)
            known = [_CLIENT_TOOL, *(each for each in given if each != ANY)]
        found += [(category, each) for each in known]
    if kind is TargetKind.PATH:
        return [each for each in found if each in _GENERAL_HEADS or each in named]
    return found


def _path_calls(targets: _Targets, heads: _Heads) -> Iterator[Action]:
    patterns = [each.path for each in targets if each.path is not None]
    samples = [path_samples(each, _FILLS) for each in patterns]
    leads = dict.fromkeys(split_lead(each.glob.segments)[0] for each in patterns)
    names = [own[0] for each, own in zip(patterns, samples, strict=True) if each.glob.anywhere]
    below = (f"{own[0]}/{FILL}" for own in samples)
    # A pattern for a name and one for a directory both match the name in that directory.
    placed = (f"{lead}/{name}" for lead, name in product(filter(None, leads), names))
    for path in filter(is_normal_path, chain((FILL,), *samples, below, placed)):
        for category, operation in heads:
            yield Action(category, operation, path)
        if _SAFE_IN_SHELL.issuperset(path):
            # A command may write `generated` paths, which a file tool may not.
            yield Action("shell", "run", f"echo x > {path}")


def _command_calls(targets: _Targets, heads: _Heads) -> Iterator[Action]:
    lines = dict.fromkeys(_SAMPLE_COMMANDS)
    for each in targets:
        bare = each.target.removesuffix(ANY).rstrip(" ")
        for line in (bare.replace(ANY, fill) for fill in _FILLS if bare):
            lines |= dict.fromkeys((line, f"{line} {FILL}"))
    for (category, operation), line in product(heads, lines):
        yield Action(category, operation, line)


def _name_calls(targets: _Targets, heads: _Heads) -> Iterator[Action]:
    for category, operation in heads:
        if category in NAMES_BY_OPERATION:
            yield Action(category, operation)
            continue
        own = [each.target for each in targets if each.head.category in (ANY, category)]
        named = (text.replace(ANY, fill) for text in own for fill in (FILL, ""))
        known = CLOSED_TARGETS.get((category, operation))
        for name in known or (*_SAMPLE_NAMES[category], *named):
            yield Action(category, operation, name)


def _sample_arguments(when: "When") -> Iterator[str]:
    """Yield arguments that meet every condition, then variants that change one value each."""
    values = {each.way: _sample_values(each) for each in when.conditions}
    fitting = {way: found[0] for way, found in values.items()}
    for way, found in values.items():
        for value in (*found, None):
            yield _arguments({**fitting, way: value})
    yield _arguments({**fitting, (FILL,): FILL})


def _sample_values(condition: "ArgumentCondition") -> list[Json]:
    wanted = condition.wanted
    if condition.kind == "range":
        low, high = (each for each in wanted)
        inside = low if isfinite(low) else high
        return [inside, *(each for each in (high, low - 1, high + 1) if isfinite(each)), FILL]
    if condition.kind == "in":
        return [*wanted, FILL]
    if condition.kind == "glob":
        return [wanted.replace("?", "x").replace(ANY, fill) for fill in _FILLS] + [f"{FILL} ", 0]
    return [*path_samples(wanted, _FILLS), f"{FILL}/{FILL}", "..", 0]


def _arguments(given: Mapping[tuple[str, ...], Json]) -> str:
    whole: dict[str, Json] = {}
    for way, value in given.items():
        here = whole
        for step in way[:-1]:
            below = here.setdefault(step, {})
            here = cast("dict[str, Json]", below) if isinstance(below, dict) else {}
        if value is not None:
            here[way[-1]] = value
    return canonical_json(whole)


def _net_calls(targets: _Targets, heads: _Heads) -> Iterator[Action]:
    from paddock.policy.network import sample_actions  # noqa: PLC0415 - late on purpose

    patterns = [each.net for each in targets if each.net is not None]
    return (call for own in ([], *([each] for each in patterns)) for call in sample_actions(own))


_calls_of: Final[
    dict[TargetKind, Callable[[Sequence[ActionPattern], _Heads], Iterator[Action]]]
] = {
    TargetKind.PATH: _path_calls,
    TargetKind.COMMAND: _command_calls,
    TargetKind.NAME: _name_calls,
    TargetKind.NET: _net_calls,
}
