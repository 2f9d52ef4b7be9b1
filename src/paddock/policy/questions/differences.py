"""What differs between two policies, and calls that are worth putting to both.

An item is a rule, an entry or a path pattern. A pattern is a row of parts (components, words, one
name), a part a row of pieces; `**` stands for any number of parts. Where two patterns may meet,
their rows are walked side by side, and a text is made that both match: found, not guessed.
Nothing here knows what a policy answers: whoever tries the calls asks it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from paddock.policy.compiled import fold
from paddock.policy.engine import PATH_LISTS, Policy
from paddock.policy.globs import DEPTH, RUN, CharClass, Glob, Piece, Segment, Wild
from paddock.policy.pathset import PathList
from paddock.policy.places import Place
from paddock.policy.rules import (
    CLOSED_TARGETS,
    MCP_PREFIX,
    NAMES_BY_OPERATION,
    ActionPattern,
    HeadPattern,
    Profile,
    TargetKind,
    is_normal_path,
    parse_head,
    target_kind,
)
from paddock.values.decisions import (
    OPERATIONS,
    Action,
)

PART_FILL: Final = "example"
CHAR_FILL: Final = "x"
_PRINTABLE: Final = "xyzabcdefghijklmnopqrstuvwXYZABC0123456789-_."

Parts = tuple[Segment, ...]
ANYTHING: Final[Parts] = (DEPTH,)

_Item = TypeVar("_Item")
_At = tuple[int, int, bool, bool]
"""Where both rows are walked to, whether the second is asked first, whether stars were filled."""
_Way = tuple[int, int, tuple[str, ...]]
"""How many items of each row a step takes, and what it puts."""


def path_parts(glob: Glob) -> Parts:
    return (DEPTH, *glob.segments) if glob.anywhere else glob.segments


def word_parts(target: str) -> Parts:
    words = target.split()
    if words and words[-1] == "*":
        return (*(_starred(word) for word in words[:-1]), DEPTH)
    return tuple(_starred(word) for word in words)


def name_parts(target: str) -> Parts:
    return (_starred(target),)


def common_texts(one: Parts, other: Parts) -> tuple[tuple[str, ...], ...]:
    """Return the shortest, and longer ones: they tell `docs/*` from `docs/**`."""
    found: dict[tuple[str, ...], None] = {}
    for ends in ((), (DEPTH,)):
        for extra in (0, 1, 2):
            row = common_row(one + ends, other + ends, extra)
            if row:
                found[row] = None
    return tuple(found)


@lru_cache(maxsize=65_536)
def common_row(one: Parts, other: Parts, extra: int = 0) -> tuple[str, ...] | None:
    def of_two_stars(is_filled: bool) -> tuple[_Way, ...]:
        fill = () if is_filled else (PART_FILL,) * extra
        return (1, 0, fill), (0, 1, fill)

    # `**` gives way at once, or takes one part of the other row and is asked again.
    return _meet(one, other, DEPTH, RUN, of_two_stars, common_part)


def common_part(one: Segment, other: Segment) -> str | None:
    if one == RUN and other == RUN:
        return PART_FILL
    found = _pieces(_single(one), _single(other))
    if found == "":
        return CHAR_FILL if RUN in (one, other) else None
    return found


@lru_cache(maxsize=65_536)
def _pieces(one: Segment, other: Segment) -> str | None:
    def of_two_stars(_is_filled: bool) -> tuple[_Way, ...]:
        # A star that stands for something reads better than one that stands for nothing.
        return (1, 1, (CHAR_FILL,)), (1, 0, ()), (0, 1, (CHAR_FILL,))

    found = _meet(one, other, Wild.RUN, Wild.ONE, of_two_stars, _common_char)
    return None if found is None else "".join(found)


def _meet(
    one: Sequence[_Item],
    other: Sequence[_Item],
    star: _Item,
    any_one: _Item,
    of_two_stars: Callable[[bool], tuple[_Way, ...]],
    common: Callable[[_Item, _Item], str | None],
) -> tuple[str, ...] | None:
    """Walk both rows to their ends; without recursion, since there may be thousands of items."""

    def steps(at: _At) -> Iterator[tuple[_At, tuple[str, ...]]]:
        left, right, is_turned, is_filled = at
        rows = [one[left : left + 1], other[right : right + 1]]
        first, second = reversed(rows) if is_turned else rows
        stars = [bool(row) and row[0] == star for row in (first, second)]
        ways: list[_Way] = []
        if all(stars):
            ways += of_two_stars(is_filled)
            is_filled = True
        elif stars[0]:
            ways.append((1, 0, ()))
            text = common(any_one, second[0]) if second else None
            ways += [] if text is None else [(0, 1, (text,))]
        elif stars[1]:
            yield from steps((left, right, not is_turned, is_filled))
        elif first and second:
            text = common(first[0], second[0])
            ways += [] if text is None else [(1, 1, (text,))]
        for some, others, texts in ways:
            after = (others, some) if is_turned else (some, others)
            yield (left + after[0], right + after[1], is_turned, is_filled), texts

    seen: set[_At] = set()
    at: _At = (0, 0, False, False)
    ways = [steps(at)]
    put: list[tuple[str, ...]] = []
    while at[:2] != (len(one), len(other)):
        after = next(ways[-1], None)
        if after is None:
            ways.pop()
            if not ways:
                return None
            put.pop()
        elif after[0] not in seen:
            at = after[0]
            seen.add(at)
            ways.append(steps(at))
            put.append(after[1])
    return tuple(text for texts in put for text in texts)


def _single(segment: Segment) -> Segment:
    out: list[Piece] = []
    for piece in segment:
        if isinstance(piece, str):
            out.extend(piece)
        else:
            out.append(Wild.RUN if piece is Wild.DEPTH else piece)
    return tuple(out)


def _common_char(one: Piece, other: Piece) -> str | None:
    for char in (*_literal(one), *_literal(other), *_first_of(one), *_first_of(other), *_PRINTABLE):
        if _takes(one, char) and _takes(other, char):
            return char
    return None


def _literal(piece: Piece) -> str:
    return piece if isinstance(piece, str) else ""


def _first_of(piece: Piece) -> Sequence[str]:
    if not isinstance(piece, CharClass):
        return ()
    return [low for low, _ in piece.ranges]


def _takes(piece: Piece, char: str) -> bool:
    if isinstance(piece, str):
        return fold(piece) == fold(char)
    if isinstance(piece, CharClass):
        inside = any(low <= char <= high for low, high in piece.ranges)
        return inside is not piece.negated and char != "/"
    # A part of a path has no slash that it could be asked about; a word of a command may.
    return True


def _starred(word: str) -> Segment:
    pieces: list[Piece] = []
    for number, text in enumerate(word.split("*")):
        if number:
            pieces.append(Wild.RUN)
        if text:
            pieces.append(text)
    return tuple(pieces)


# A call that none of these patterns matches, in a profile that both bind alike, meets the
# same rules in both policies, and so the same answer: witnesses are looked for here alone.

EVERYTHING: Final = parse_head("tool:*")
UNTRUSTED: Final = "untrusted"
CLOSES: Final = f"{UNTRUSTED} deny of all else"
ENDS: Final = "deny of all that no rule names"


class Item(Struct, frozen=True):
    """`profile` is empty for a path list, `kind` None where every target is meant."""

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


class SettingChange(Struct, frozen=True):
    key: str
    old: str
    new: str


class Differences(Struct, frozen=True):
    """What differs. `common` are items of both: what a witness may have to match besides."""

    removed: tuple[Item, ...]
    added: tuple[Item, ...]
    common: tuple[Item, ...]
    bound: tuple[str, ...]
    """Agents that `[agents]` or missing trust hold to other profiles."""
    settings: tuple[SettingChange, ...]

    @property
    def can_decide(self) -> bool:
        return bool(self.removed or self.added or self.bound)


def find_differences(old: Policy, new: Policy) -> Differences:
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
        parts = path_parts(pattern.glob)
        yield Item("", pattern.text, says, pattern.place, EVERYTHING, TargetKind.PATH, parts)


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
        says = "+".join((rule.outcome.word, *rule.extras))
        pattern, parts = rule.pattern, _parts(rule.pattern)
        yield Item(profile.name, pattern.text, says, rule.place, pattern.head, pattern.kind, parts)
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
    if isinstance(value, Struct):
        for field in fields(value):
            name = f"{key}.{field.name}" if key else field.name
            yield from _flat(name, getattr(value, field.name))
        return
    yield key, "not given" if value is None else str(value)


_GENERAL_HEADS: Final = (
    ("file", "create"),
    ("file", "view"),
    ("search", "grep"),
    ("output", "write"),
)
_SAFE_IN_SHELL: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
)
_SAMPLE_COMMANDS: Final = ("example-program", "example-program --flag", 'eval "$given"')
_SAMPLE_NAMES: Final = {
    "ledger": "governance",
    "package": "*",
    "gate": "all",
    "mcp": f"{MCP_PREFIX}{PART_FILL}",
}
_CLIENT_TOOL: Final = "ExampleTool"


def may_meet(item: Item, other: Item) -> bool:
    if item.profile and other.profile and item.profile != other.profile:
        return False
    return _is_kind_shared(item, other)


def may_meet_across(item: Item, other: Item) -> bool:
    return item.profile != other.profile and _is_kind_shared(item, other)


def _is_kind_shared(item: Item, other: Item) -> bool:
    return item.kind is None or other.kind is None or item.kind is other.kind


def calls_for(item: Item, partners: Sequence[Item]) -> Iterator[Action]:
    yield from _met(item, None)
    for partner in partners:
        if partner is not item:
            yield from _met(item, partner)


def _met(item: Item, partner: Item | None) -> Iterator[Action]:
    kind = item.kind or (None if partner is None else partner.kind)
    kinds = tuple(TargetKind) if kind is None else (kind,)
    other = ANYTHING if partner is None or partner.kind is None else partner.parts
    head = EVERYTHING if partner is None else partner.head
    for each in kinds:
        heads = [
            (category, operation)
            for category, operation in _heads(item, partner, each)
            if item.head.matches(category, operation) and head.matches(category, operation)
        ]
        if each is TargetKind.PATH:
            yield from _path_actions(item, other, heads)
        elif each is TargetKind.COMMAND:
            yield from _command_actions(item, other, heads)
        elif each is TargetKind.NET:
            yield from _net_actions(item, partner)
        else:
            yield from _name_actions(item, partner, heads)


def _heads(item: Item, partner: Item | None, kind: TargetKind) -> list[tuple[str, str]]:
    named = [each.head for each in (item, partner) if each is not None]
    found: list[tuple[str, str]] = []
    for category, operations in OPERATIONS.items():
        if target_kind(category) is not kind:
            continue
        known = sorted(operations)
        if category in NAMES_BY_OPERATION:
            known = [head.operation for head in named if head.operation != "*"] or [_CLIENT_TOOL]
        found += [
            (category, operation)
            for operation in known
            if kind is not TargetKind.PATH
            or (category, operation) in _GENERAL_HEADS
            or any(head.operation == operation for head in named)
        ]
    return found


def _path_actions(item: Item, other: Parts, heads: list[tuple[str, str]]) -> Iterator[Action]:
    for row in common_texts(item.parts, other):
        path = "/".join(row)
        if not is_normal_path(path):
            continue
        for category, operation in heads:
            yield Action(category, operation, path)
        if not item.profile and _SAFE_IN_SHELL.issuperset(path):
            # What a command writes, a file tool may not: `generated`.
            yield Action("shell", "run", f"echo x > {path}")


def _command_actions(item: Item, other: Parts, heads: list[tuple[str, str]]) -> Iterator[Action]:
    lines = [" ".join(row) for row in common_texts(item.parts, other)]
    if item.kind is None:
        lines = [*_SAMPLE_COMMANDS, *lines]
    else:
        lines += _as_written(item)
    for category, operation in heads:
        for line in lines:
            yield Action(category, operation, line)


def _net_actions(item: Item, partner: Item | None) -> Iterator[Action]:
    from paddock.policy.network import sample_actions  # noqa: PLC0415 - late on purpose

    both = (item,) if partner is None else (item, partner)
    yield from sample_actions([each.text for each in both if each.kind is TargetKind.NET])


def _as_written(item: Item) -> list[str]:
    """A quoted word with a space in it is no row of words: take the rule's own text."""
    _, _, target = item.text.partition(" ")
    line = target.removesuffix("*").strip(" ")
    return [line, f"{line} {PART_FILL}"] if line else []


def _name_actions(
    item: Item, partner: Item | None, heads: list[tuple[str, str]]
) -> Iterator[Action]:
    other = ANYTHING if partner is None or partner.kind is None else partner.parts
    names = ["".join(row) for row in common_texts(item.parts, other) if len(row) == 1]
    is_open = item.kind is None and (partner is None or partner.kind is None)
    for category, operation in heads:
        if category in NAMES_BY_OPERATION:
            yield Action(category, operation)
            continue
        known = CLOSED_TARGETS.get((category, operation), names)
        if is_open:
            known = (_SAMPLE_NAMES[category],)
        for name in known:
            yield Action(category, operation, name)
