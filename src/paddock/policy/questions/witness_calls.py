"""Calls that are worth putting to two policies: made from an item, alone and with others.

Where two patterns may meet, a text is made that both match. Nothing here knows what a
policy answers: whoever tries the calls asks it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from paddock.policy.actions import (
    CLOSED_TARGETS,
    MCP_PREFIX,
    NAMES_BY_OPERATION,
    TargetKind,
    is_normal_path,
    target_kind,
)
from paddock.policy.questions.replay import EVERYTHING, Item
from paddock.policy.questions.sampling import ANYTHING, PART_FILL, Parts, common_texts
from paddock.values.decisions import OPERATIONS, Action

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
