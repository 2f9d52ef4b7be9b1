"""Parse the rules of a profile and the actions that people type.

A pattern is a head and, after a space, a target: `tool:file:create docs/**`. The head is
matched by segments; `*` matches one of them, and as the last one all that follow.
The target is a path pattern by gitignore's rules, a command by words, or a name in which
`*` matches any part. Without a target the pattern matches every target.

A category, an operation or a name that no call has is an error when a policy loads.
"""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property, lru_cache, partial, reduce
from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from paddock.errors import UsageError
from paddock.pattern import lazy_pattern
from paddock.policy.compiled import matches_wild
from paddock.policy.pathset import PathPattern, compile_target
from paddock.policy.positions import (
    BUILT_IN_PLACE,
    NonEmpty,
    PatternError,
    Place,
    Table,
    Text,
    quote_toml,
    suggest,
)
from paddock.policy.settings import Network, ShellChanges, lay_over, read_shell_changes
from paddock.text.json import BrokenJsonError, read_json
from paddock.values.calls import Json
from paddock.values.decisions import OPERATIONS, PATH_CATEGORIES, Action, Outcome, RuleMatch

if TYPE_CHECKING:
    from paddock.policy.arguments import When
    from paddock.policy.commands import CommandPattern
    from paddock.policy.network import NetPattern

# Threat: `deny = ["tool:client:Bash"]` reads as if it denied something. A client's Bash is
# judged as `tool:shell:run`, so nothing would ever match it.
#
# The layers above define what they judge; tests compare these lists with theirs.

JUDGED_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "Bash": ("tool:shell:run",),
    "Write": ("tool:file:create",),
    **dict.fromkeys(("Edit", "MultiEdit", "NotebookEdit"), ("tool:file:str_replace",)),
    **dict.fromkeys(("Read", "NotebookRead", "view_image"), ("tool:file:view",)),
    "apply_patch": ("tool:file:create", "tool:file:str_replace", "tool:file:delete"),
}
"""Tools of clients that are judged by their effect, so never as `tool:client:NAME`."""
_MCP_TARGET: Final = lazy_pattern(r"[a-z*][a-z0-9*-]{0,19}(?:(?<=\*)|/.+)", re.DOTALL)
_CALLED: Final = {"call": "TOOL", "read": "URI", "prompt": "PROMPT"}
MCP_PREFIX: Final = "mcp__"
"""A client's prefix for tools of its other MCP servers, judged as `tool:mcp:call NAME`."""

MEMORIES: Final = "/memories"
"""The root of an agent's memory in tool arguments."""

LEDGERS: Final = ("governance", "ho2m", "ho1m")
GATES: Final = ("all", "G0A", "G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6")

CLOSED_TARGETS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("ledger", "query"): LEDGERS,
    ("gate", "check"): GATES,
}


def find_judged_as(tool: str) -> tuple[str, ...]:
    if tool.startswith(MCP_PREFIX):
        return (f"tool:mcp:call {tool}",)
    return JUDGED_AS.get(tool, ())


ANY: Final = "*"
NAMES_BY_OPERATION: Final = frozenset({"client", "own"})
"""Categories that take any operation: it is a tool's name, which Paddock does not choose."""


class TargetKind(Enum):
    PATH = "path"
    COMMAND = "command"
    NAME = "name"
    NET = "net"


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
        named = (name for name, operations in OPERATIONS.items() if self.operation in operations)
        return frozenset(OPERATIONS if self.operation == ANY else (*named, *NAMES_BY_OPERATION))


class ActionPattern(Struct, frozen=True):
    """`path` or `net` is set by the target's kind; `policy.commands` compiles a command's text."""

    text: str
    head: HeadPattern
    target: str
    kind: TargetKind | None = None
    path: PathPattern | None = None
    net: "NetPattern | None" = None


def matches_widely(pattern: str, name: str) -> bool:
    return matches_wild(pattern.casefold(), name.casefold())


def target_kind(category: str) -> TargetKind:
    if category in PATH_CATEGORIES:
        return TargetKind.PATH
    kinds = {"shell": TargetKind.COMMAND, "net": TargetKind.NET}
    return kinds.get(category, TargetKind.NAME)


def parse_head(text: str) -> HeadPattern:
    parts = text.split(":")
    if parts[0] not in ("tool", ANY) or (parts[0] == ANY and len(parts) > 1):
        hint = "write tool:<category>:<operation> <target>, as in tool:file:create docs/**"
        raise PatternError(f"{quote_toml(text)} does not begin with tool:", hint)
    if parts[-1] == ANY and len(parts) < 3:
        parts = ["tool", ANY, ANY]
    for part in parts:
        if ANY in part and part != ANY:
            message = f"{quote_toml(part)} in {quote_toml(text)} mixes * with text"
            raise PatternError(message, "* matches a whole segment")
    if len(parts) != 3 or not all(parts):
        message = f"{quote_toml(text)} can match nothing: a head has a category and an operation"
        raise PatternError(message, f"write {':'.join(parts[:2])}:* for all of a category")
    _check_known(text, parts[1], parts[2])
    return HeadPattern(text, parts[1], parts[2])


def parse_pattern(text: str) -> ActionPattern:
    head_text, _, target = text.strip().partition(" ")
    head = parse_head(head_text)
    target = target.strip() if head.category != "shell" else target.strip(" \t")
    if target in ("", ANY) and (target == "" or head.category not in ("shell", "net")):
        # `tool:file:create *` means every file, not only those in the root.
        return ActionPattern(text, head, target)
    kinds = {target_kind(category) for category in head.categories}
    if len(kinds) != 1:
        hint = "name the category: a path, a command and a name are compared differently"
        raise PatternError(f"the target {quote_toml(target)} fits more than one category", hint)
    kind = kinds.pop()
    if kind is TargetKind.PATH:
        return ActionPattern(text, head, target, kind, path=compile_target(target))
    if kind is TargetKind.NAME:
        _check_target(head, target)
        return ActionPattern(text, head, target, kind)
    if kind is TargetKind.NET:
        from paddock.policy.network import parse_target  # noqa: PLC0415 - late on purpose

        return ActionPattern(text, head, target, kind, net=parse_target(head.operation, target))
    return ActionPattern(text, head, target, kind)


def parse_action(text: str) -> Action:
    """Parse one action as people type it: `tool:file:view src/a.py`; else UsageError."""
    try:
        return parse_concrete(text)
    except PatternError as problem:
        raise UsageError(problem.message, hint=problem.hint) from problem


def format_action(category: str, operation: str, target: str = "") -> str:
    """Return an action in the form of rules and `check`: `tool:file:create docs/a.md`.

    Raises: UsageError: no call has it, or its text would name another target.
    """
    if target != target.strip():
        message = f"the target {quote_toml(target)} begins or ends with white space"
        raise UsageError(message, hint="as text it would name another; give check an Action")
    return str(parse_action(str(Action(category, operation, target))))


def parse_concrete(text: str) -> Action:
    head_text, _, target = text.strip().partition(" ")
    if not head_text.startswith("tool:"):
        parse_head(head_text)
    category, _, operation = head_text.removeprefix("tool:").partition(":")
    if ANY in head_text:
        message = f"{quote_toml(head_text)} matches many actions"
        raise PatternError(message, "name one: tool:<category>:<operation> <target>")
    head = parse_head(head_text)
    if target_kind(category) is TargetKind.PATH:
        return Action(category, operation, _normal_path(target))
    if target_kind(category) is TargetKind.NET:
        from paddock.policy.network import read_target  # noqa: PLC0415 - late on purpose

        return read_target(operation, target.strip()).as_action()
    if category == "mcp":
        target, brace, given = target.partition(" {")
        arguments = (brace + given).strip()
        if arguments and read_arguments(arguments) is None:
            message = f"{quote_toml(arguments)} is not a JSON object, or repeats a name"
            raise PatternError(message, 'write the arguments as {"limit": 5}')
        return Action(category, operation, _checked(head, target), arguments)
    if target_kind(category) is TargetKind.NAME:
        return Action(category, operation, _checked(head, target))
    return Action(category, operation, target.strip() if category != "shell" else target)


def _checked(head: HeadPattern, target: str) -> str:
    if target.strip():
        _check_target(head, target.strip())
    return target.strip()


@lru_cache(maxsize=2)
def read_arguments(text: str) -> Json:
    """Parse an action's arguments strictly; None if they are unknown or not one object."""
    try:
        found = read_json(text) if text else None
    except BrokenJsonError:
        return None
    return cast("Json", found) if isinstance(found, dict) else None


def is_normal_path(path: str) -> bool:
    if path == ".":
        return True
    if not path or path.startswith("/") or path.endswith("/") or "\0" in path or "//" in path:
        return False
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
        message = f"{quote_toml(text)} names the unknown category {quote_toml(category)}"
        raise PatternError(message, suggest(category, OPERATIONS))
    judged_as = find_judged_as(operation) if category == "client" else ()
    if judged_as:
        hint = f"{operation} is judged as {_listed(judged_as)}"
        raise PatternError(f"no call is judged as {quote_toml(text)}", hint)
    if operation == ANY or category in NAMES_BY_OPERATION:
        return
    every = frozenset[str]().union(*OPERATIONS.values())
    known = every if category == ANY else OPERATIONS[category]
    if operation not in known:
        message = f"{quote_toml(text)} names the unknown operation {quote_toml(operation)}"
        raise PatternError(message, suggest(operation, known))


def _check_target(head: HeadPattern, target: str) -> None:
    categories = (head.categories - NAMES_BY_OPERATION) or head.categories
    heads = [
        (category, operation)
        for category in sorted(categories)
        for operation in sorted(OPERATIONS[category]) or (head.operation,)
        if head.operation in (ANY, operation)
    ]
    problems = [_target_problem(category, operation, target) for category, operation in heads]
    if all(problems):
        text = quote_toml(f"{head.text} {target}")
        raise PatternError(f"no call is judged as {text}", problems[0])


def _target_problem(category: str, operation: str, name: str) -> str:
    head = f"tool:{category}:{operation}"
    if category in NAMES_BY_OPERATION or (category, operation) == ("package", "list"):
        return f"it has no target: write {head}" if name.strip(ANY) else ""
    if category == "mcp":
        text = name.casefold()
        lead, star, _ = text.partition(ANY)
        is_client_name = lead.startswith(MCP_PREFIX) or (star and MCP_PREFIX.startswith(lead))
        if _MCP_TARGET.fullmatch(text) or (is_client_name and operation == "call"):
            return ""
        hint = f"its target is SERVER/{_CALLED[operation]}, as in {head} issues/*"
        of_client = f", or for a client's own server {MCP_PREFIX}server__*"
        return hint + of_client if operation == "call" else hint
    if category == "memory":
        lead, star, _ = name.partition(ANY)
        may_be = lead.startswith(MEMORIES) or (star != "" and MEMORIES.startswith(lead))
        return "" if may_be else f"its target begins with {MEMORIES}, as in {head} {MEMORIES}/*"
    if (category, operation) == ("package", "run"):
        may_be = ANY in name or "/" in name
        return "" if may_be else f"its target is PACKAGE/TOOL, as in {head} {name}/*"
    known = CLOSED_TARGETS[category, operation]
    return "" if any(matches_widely(name, each) for each in known) else suggest(name, known)


def _listed(heads: tuple[str, ...]) -> str:
    *others, last = heads
    return f"{', '.join(others)} and {last}" if others else last


OutcomeWord = Literal["allow", "confine", "ask", "deny"]
OUTCOME_WORDS: Final = get_args(OutcomeWord)


class Rule(Struct, frozen=True, dict=True):
    """One rule of a profile; a policy with a false example (`match`, `not_match`) does not load.

    `network` holds only for the commands it matches. `addresses`: networks that a name may resolve
    to besides public ones. `commands`: the only command lines it counts for; empty: all.
    """

    pattern: ActionPattern
    outcome: Outcome
    source: str
    place: Place = BUILT_IN_PLACE
    reason: str = ""
    network: Network | None = None
    match: tuple[Text, ...] = ()
    not_match: tuple[Text, ...] = ()
    addresses: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    when: "When | None" = None

    @cached_property
    def command(self) -> "CommandPattern | None":
        return _command_of(self.pattern, self.outcome)

    @property
    def examples(self) -> tuple[tuple[Text, bool], ...]:
        wanted = ((each, True) for each in self.match)
        return (*wanted, *((each, False) for each in self.not_match))

    @property
    def is_for_every_call(self) -> bool:
        """Return True if the rule matches every call that its head names."""
        return self.pattern.kind is None and self.when is None

    @property
    def extras(self) -> tuple[str, ...]:
        network = () if self.network is None else (self.network,)
        when = () if self.when is None else (self.when.said,)
        return (*network, *self.addresses, *self.commands, *when)

    @property
    def shown(self) -> RuleMatch:
        file, line = self.place.file, self.place.line
        return RuleMatch(self.outcome, self.pattern.text, self.source, file, line, self.reason)

    @property
    def said(self) -> str:
        return self.reason or f"rule {quote_toml(self.pattern.text)} in {self.source}"


class Otherwise(Struct, frozen=True):
    head: HeadPattern
    outcome: Outcome
    source: str
    place: Place = BUILT_IN_PLACE

    def as_match(self) -> RuleMatch:
        place = self.place
        return RuleMatch(self.outcome, self.head.text, self.source, place.file, place.line)


class Profile(Struct, frozen=True):
    name: str
    rules: tuple[Rule, ...] = ()
    otherwise: tuple[Otherwise, ...] = ()
    shell: ShellChanges | None = None
    place: Place = BUILT_IN_PLACE
    extends: tuple[str, ...] = ()
    """The profiles that it was joined with; its own name means the one that it replaces."""

    def joined(self, bases: Sequence["Profile"]) -> "Profile":
        """Join lists and merge tables; what one base denies stays denied, also in `otherwise`."""
        rules = {(rule.shown, rule.extras): rule for each in (*bases, self) for rule in each.rules}
        own = {entry.head.text for entry in self.otherwise}
        kept = (
            entry
            for base in bases
            for entry in base.otherwise
            if entry.head.text not in own or entry.outcome is Outcome.DENY
        )
        shells = [each.shell for each in (*bases, self) if each.shell is not None]
        return replace(
            self,
            rules=tuple(rules.values()),
            otherwise=tuple(dict.fromkeys((*kept, *self.otherwise))),
            shell=reduce(lay_over, shells) if shells else None,
        )


def compile_rule(text: str, outcome: Outcome, source: str, place: Place = BUILT_IN_PLACE) -> Rule:
    pattern = parse_pattern(text)
    check_confined(pattern.head, outcome)
    if pattern.head.category == "net" and outcome is not Outcome.DENY:
        from paddock.policy.network import check_opening  # noqa: PLC0415 - late on purpose

        check_opening(text, pattern.net)
    rule = Rule(pattern, outcome, source, place)
    # Raise now for a pattern that no command can match, not at the first command.
    _ = rule.command
    return rule


def parse_otherwise(
    text: str, outcome: Outcome, source: str, place: Place = BUILT_IN_PLACE
) -> Otherwise:
    head = parse_head(text)
    check_confined(head, outcome)
    return Otherwise(head, outcome, source, place)


def check_confined(head: HeadPattern, outcome: Outcome) -> None:
    # Threat: an action that runs in no sandbox is answered as if one confined it.
    if outcome is Outcome.CONFINE and head.category != "shell":
        message = f"confine has no effect on {quote_toml(head.text)}: only commands are confined"
        raise PatternError(message, "write tool:shell:…, or use allow, ask or deny")


def read_profile(table: Table, name: str) -> Profile:
    source = f"profiles.{name}"
    wanted = NonEmpty if table.is_text("extends") else tuple[NonEmpty, ...]
    extends: str | tuple[str, ...] = table.read("extends", wanted, ())
    rules: list[Rule] = []
    for outcome in Outcome:
        parse = partial(_short_rule, outcome, f"{source}.{outcome.word}")
        rules += table.parsed(outcome.word, parse)
    found = (_long_rule(each, f"{source}.rules") for each in table.tables("rules"))
    rules += [rule for rule in found if rule is not None]
    otherwise = _read_otherwise(table, source)
    shell_table = table.table("shell")
    shell = read_shell_changes(shell_table) if shell_table is not None else None
    table.finish()
    place = table.report.document.place(table.key)
    extends = (extends,) if isinstance(extends, str) else extends
    return Profile(name, tuple(rules), otherwise, shell, place, extends)


def _short_rule(outcome: Outcome, source: str, given: Text) -> Rule:
    return compile_rule(given.text, outcome, source, given.place)


def _command_of(pattern: ActionPattern, outcome: Outcome) -> "CommandPattern | None":
    if pattern.kind is not TargetKind.COMMAND:
        return None
    # Only a policy that has such a rule loads the command parser.
    from paddock.policy.commands import compile_command_pattern  # noqa: PLC0415 - late on purpose

    command = compile_command_pattern(pattern.target)
    bar = command.find_bar() if outcome is Outcome.ALLOW else ""
    if bar:
        hint = "let it ask, or remove it: only an allow of any command can cover it"
        raise PatternError(f"an allow of {quote_toml(pattern.target)} matches nothing: {bar}", hint)
    return command


class _Terms(Struct, frozen=True):
    reason: NonEmpty = ""
    network: Network | None = None
    match: tuple[Text, ...] = ()
    not_match: tuple[Text, ...] = ()
    addresses: tuple[NonEmpty, ...] = ()
    commands: tuple[NonEmpty, ...] = ()


def _long_rule(table: Table, source: str) -> Rule | None:
    has_when = any([table.has("when"), table.has("only")])
    action: str = table.read("action", NonEmpty, "")
    word: OutcomeWord | None = table.read("outcome", OutcomeWord)
    terms = table.fill(_Terms(), {"match": Table.texts, "not_match": Table.texts})
    for name in ("action", "outcome"):
        if not table.has(name):
            table.problem(name, f"a rule in {source} has no {name}", f"add {name} = …")
    if not action or word is None:
        return None
    place, outcome = table.place("action"), Outcome.parse(word)
    try:
        rule = replace(compile_rule(action, outcome, source, place), **asdict(terms))
    except PatternError as problem:
        table.report.add_at(place, problem)
        return None
    is_shell = rule.pattern.head.category == "shell"
    if rule.network is not None and (not is_shell or outcome is Outcome.DENY):
        table.problem(
            "network",
            f"network is set in a rule for {quote_toml(action)} that runs no command",
            "only a rule that allows or asks for tool:shell:run sets the network",
        )
    if table.has("addresses") or table.has("commands"):
        from paddock.policy.network import check_extras  # noqa: PLC0415 - late on purpose

        check_extras(table, rule)
    if has_when:
        from paddock.policy.arguments import read_when  # noqa: PLC0415 - late on purpose

        rule = replace(rule, when=read_when(table, rule.pattern.head.category, outcome))
    return rule


def _read_otherwise(table: Table, source: str) -> tuple[Otherwise, ...]:
    entries = table.table("otherwise")
    if entries is None:
        return ()
    found: list[Otherwise] = []
    for head_text in entries.names():
        outcome = Outcome.parse(entries.read(head_text, OutcomeWord, "deny"))
        place = entries.place(head_text)
        try:
            found.append(parse_otherwise(head_text, outcome, f"{source}.otherwise", place))
        except PatternError as problem:
            hint = problem.hint
            if " " in head_text.strip():
                hint = "otherwise takes heads without a target; write a rule for the target"
            entries.problem(head_text, problem.message, hint)
    return tuple(found)
