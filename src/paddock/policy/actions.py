"""Actions as text: patterns of rules, and single actions as people type them.

A pattern is a head and, after a space, a target: `tool:file:create docs/**`. The head is
matched by segments; `*` stands for one of them, and as the last one for all that follow.
The target is a path pattern by gitignore's rules, a command by words, or a name in which
`*` stands for any part. Without a target the pattern matches every target.

A category, an operation or a name that no call has is a mistake when a policy loads.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from paddock.errors import UsageError
from paddock.policy.compiled import matches_text
from paddock.policy.pathset import PathPattern, compile_target
from paddock.policy.places import PatternError, quote_toml, suggest
from paddock.values.decisions import OPERATIONS, PATH_CATEGORIES, Action

# Pure.
#
# Threat: `deny = ["tool:client:Bash"]` reads as if it denied something. A client's Bash is
# judged as `tool:shell:run`, so nothing would ever match it.
#
# The layers above say what they judge; tests hold these lists against theirs.

JUDGED_AS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Bash": ("tool:shell:run",),
        "Write": ("tool:file:create",),
        "Edit": ("tool:file:str_replace",),
        "MultiEdit": ("tool:file:str_replace",),
        "NotebookEdit": ("tool:file:str_replace",),
        "Read": ("tool:file:view",),
        "NotebookRead": ("tool:file:view",),
        "view_image": ("tool:file:view",),
        "apply_patch": ("tool:file:create", "tool:file:str_replace", "tool:file:delete"),
    }
)
"""Tools of clients that are judged by what they do, so never as `tool:client:NAME`."""
MCP_PREFIX: Final = "mcp__"
"""Of a client's name for a tool of another MCP server, judged as `tool:mcp:call NAME`."""

LEDGERS: Final = ("governance", "ho2m", "ho1m")
GATES: Final = ("all", "G0A", "G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6")

CLOSED_TARGETS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        ("ledger", "query"): LEDGERS,
        ("gate", "check"): GATES,
    }
)


def find_judged_as(tool: str) -> tuple[str, ...]:
    if tool.startswith(MCP_PREFIX):
        return (f"tool:mcp:call {tool}",)
    return JUDGED_AS.get(tool, ())


ANY: Final = "*"
NAMES_BY_OPERATION: Final = frozenset({"client"})
"""Categories that take any operation: it is a name that somebody else gave."""


class TargetKind(Enum):
    PATH = "path"
    COMMAND = "command"
    NAME = "name"


class NamePattern(Struct, frozen=True):
    text: str

    def matches(self, name: str) -> bool:
        return matches_text(tuple(self.text.split(ANY)), name)

    def matches_widely(self, name: str) -> bool:
        return matches_text(tuple(self.text.casefold().split(ANY)), name.casefold())


class HeadPattern(Struct, frozen=True):
    text: str
    category: str
    operation: str

    def matches(self, category: str, operation: str) -> bool:
        return self.category in (ANY, category) and self.operation in (ANY, operation)

    @property
    def categories(self) -> frozenset[str]:
        if self.category != ANY:
            return frozenset({self.category})
        return frozenset(
            name
            for name, operations in OPERATIONS.items()
            if self.operation == ANY or name in NAMES_BY_OPERATION or self.operation in operations
        )


class ActionPattern(Struct, frozen=True):
    """`path` or `name` is set by the target's kind; `policy.commands` compiles a command's text."""

    text: str
    head: HeadPattern
    target: str
    kind: TargetKind | None = None
    path: PathPattern | None = None
    name: NamePattern | None = None

    @property
    def has_target(self) -> bool:
        return self.kind is not None


def target_kind(category: str) -> TargetKind:
    if category in PATH_CATEGORIES:
        return TargetKind.PATH
    return TargetKind.COMMAND if category == "shell" else TargetKind.NAME


def parse_head(text: str) -> HeadPattern:
    """Parse `tool:file:create`, `tool:file:*` or `tool:*`; PatternError where no call has it."""
    parts = text.split(":")
    if parts[0] not in ("tool", ANY) or (parts[0] == ANY and len(parts) > 1):
        hint = "write tool:<category>:<operation> <target>, as in tool:file:create docs/**"
        raise PatternError(f"{quote_toml(text)} does not begin with tool:", hint)
    if parts[-1] == ANY and len(parts) < 3:
        parts = ["tool", ANY, ANY]
    for part in parts:
        if ANY in part and part != ANY:
            raise PatternError(
                f"{quote_toml(part)} in {quote_toml(text)} mixes * with text",
                "* stands for a whole segment",
            )
    if len(parts) != 3 or not all(parts):
        raise PatternError(
            f"{quote_toml(text)} can match nothing: a head has a category and an operation",
            f"write {':'.join(parts[:2])}:* for all of a category",
        )
    _check_known(text, parts[1], parts[2])
    return HeadPattern(text, parts[1], parts[2])


def parse_pattern(text: str) -> ActionPattern:
    """Parse a rule's pattern; PatternError where the head or the target can match nothing."""
    head_text, _, target = text.strip().partition(" ")
    head = parse_head(head_text)
    target = target.strip() if head.category != "shell" else target.strip(" \t")
    if target in ("", ANY) and (target == "" or head.category != "shell"):
        # `tool:file:create *` is every file, not every file in the root alone.
        return ActionPattern(text, head, target)
    kinds = {target_kind(category) for category in head.categories}
    if len(kinds) != 1:
        raise PatternError(
            f"the target {quote_toml(target)} is for more than one category",
            "name the category: a path, a command and a name are compared differently",
        )
    kind = kinds.pop()
    if kind is TargetKind.PATH:
        return ActionPattern(text, head, target, kind, path=compile_target(target))
    if kind is TargetKind.NAME:
        _check_target(head, target)
        return ActionPattern(text, head, target, kind, name=NamePattern(target))
    return ActionPattern(text, head, target, kind)


def parse_action(text: str) -> Action:
    """Parse one action as people type it: `tool:file:view src/a.py`, the path from the root.

    Raises:
        UsageError: no action, a `*` in its head, unknown, or a path outside the workspace.
    """
    try:
        return parse_concrete(text)
    except PatternError as problem:
        raise UsageError(problem.message, hint=problem.hint) from problem


def parse_concrete(text: str) -> Action:
    head_text, _, target = text.strip().partition(" ")
    if not head_text.startswith("tool:"):
        parse_head(head_text)
    category, _, operation = head_text.removeprefix("tool:").partition(":")
    if ANY in head_text:
        raise PatternError(
            f"{quote_toml(head_text)} stands for many actions",
            "name one: tool:<category>:<operation> <target>",
        )
    head = parse_head(head_text)
    if target_kind(category) is TargetKind.PATH:
        return Action(category, operation, _normal_path(target))
    if target_kind(category) is TargetKind.NAME and target.strip():
        _check_target(head, target.strip())
    return Action(category, operation, target.strip() if category != "shell" else target)


def is_normal_path(path: str) -> bool:
    if path == ".":
        return True
    if not path or path.startswith("/") or path.endswith("/") or "\0" in path or "//" in path:
        return False
    if "./" not in path and not path.endswith(("/.", "/..")) and path != "..":
        return True
    return not any(part in (".", "..") for part in path.split("/"))


def _normal_path(target: str) -> str:
    parts = [part for part in target.strip().split("/") if part not in ("", ".")]
    if target.strip().startswith("/") or ".." in parts or "\0" in target:
        raise PatternError(
            f"the path {quote_toml(target)} is not a resolved path of the workspace",
            "write it from the workspace root, without a leading slash and without ..",
        )
    return "/".join(parts) or "."


def _check_known(text: str, category: str, operation: str) -> None:
    if category != ANY and category not in OPERATIONS:
        raise PatternError(
            f"{quote_toml(text)} names the category {quote_toml(category)}, and there is none",
            suggest(category, OPERATIONS),
        )
    judged_as = find_judged_as(operation) if category == "client" else ()
    if judged_as:
        raise PatternError(
            f"no call is judged as {quote_toml(text)}",
            f"{operation} is judged as {_listed(judged_as)}",
        )
    if operation == ANY or category in NAMES_BY_OPERATION:
        return
    every = frozenset[str]().union(*OPERATIONS.values())
    known = every if category == ANY else OPERATIONS[category]
    if operation not in known:
        raise PatternError(
            f"{quote_toml(text)} names the operation {quote_toml(operation)}, and there is none",
            suggest(operation, known),
        )


def _check_target(head: HeadPattern, target: str) -> None:
    name = NamePattern(target)
    categories = (head.categories - NAMES_BY_OPERATION) or head.categories
    heads = [
        (category, operation)
        for category in sorted(categories)
        for operation in sorted(OPERATIONS[category]) or (head.operation,)
        if head.operation in (ANY, operation)
    ]
    if not any(_may_be_target(category, operation, name) for category, operation in heads):
        said = quote_toml(f"{head.text} {target}")
        raise PatternError(f"no call is judged as {said}", _target_hint(*heads[0], name))


def _may_be_target(category: str, operation: str, name: NamePattern) -> bool:
    if category in NAMES_BY_OPERATION or (category, operation) == ("package", "list"):
        return not name.text.strip(ANY)
    if category == "mcp":
        lead, star, _ = name.text.casefold().partition(ANY)
        return lead.startswith(MCP_PREFIX) or (star != "" and MCP_PREFIX.startswith(lead))
    if (category, operation) == ("package", "run"):
        return ANY in name.text or "/" in name.text
    return any(map(name.matches_widely, CLOSED_TARGETS[category, operation]))


def _target_hint(category: str, operation: str, name: NamePattern) -> str:
    head = f"tool:{category}:{operation}"
    if category in NAMES_BY_OPERATION or (category, operation) == ("package", "list"):
        return f"it has no target: write {head}"
    if category == "mcp":
        return f"its target begins with {MCP_PREFIX}, as in {head} {MCP_PREFIX}server__*"
    if (category, operation) == ("package", "run"):
        return f"its target is PACKAGE/TOOL, as in {head} {name.text}/*"
    return suggest(name.text, CLOSED_TARGETS[category, operation])


def _listed(heads: tuple[str, ...]) -> str:
    *others, last = heads
    return f"{', '.join(others)} and {last}" if others else last
