"""Policy decisions, and the values needed to explain or replay them."""

from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from paddock.errors import PermissionDeniedError
from paddock.values.calls import Json


class Outcome(IntEnum):
    """Ordered by strictness: the strictest of several is their maximum."""

    ALLOW = 0
    CONFINE = 1
    """Only for commands: allowed if the sandbox enforces the whole policy, else `ask`."""
    ASK = 2
    DENY = 3

    @property
    def word(self) -> str:
        """`allow`, `confine`, `ask` or `deny`, as in files and messages."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> "Outcome":
        """Return the outcome of a lower-case word. Raises: KeyError."""
        return _BY_WORD[word]


Held = Literal["", "full", "partial", "none"]
"""How far the host enforces the policy on a command; empty if not checked."""
HELD_WHOLE: Final = "full"

_BY_WORD = {outcome.word: outcome for outcome in Outcome}

OPERATOR: Final = "(operator)"
"""The acting agent of a person's own request. No agent can have this name."""


class RuleMatch(Struct, frozen=True):
    """A rule that matched: its text and its place.

    `source` names its list or profile (`paths.protected`, `profiles.standard.deny`,
    `agents.writer.permissions.forbidden`); `file` is `built-in` for Paddock's own rules, and then
    `line` is 0.
    """

    outcome: Outcome
    text: str
    source: str
    file: str
    line: int
    reason: str = ""
    code: str = PermissionDeniedError.code
    """The refusal's code if this rule denies."""

    @property
    def place(self) -> str:
        """`FILE:LINE`, or only the file if there is no line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def said(self) -> str:
        """Its text and place, in one line for a person."""
        return f"{self.text} ({self.source}, {self.place})"


def rule_as_json(rule: RuleMatch | None) -> Json:
    """Return a rule as commands print it; None for no rule."""
    if rule is None:
        return None
    return {"text": rule.text, "source": rule.source, "file": rule.file, "line": rule.line}


def rule_in_full(rule: RuleMatch | None) -> Json:
    """Return a rule as explanations print it, with outcome and reason; None for no rule."""
    if rule is None:
        return None
    return {
        "text": rule.text,
        "outcome": rule.outcome.word,
        "source": rule.source,
        "file": rule.file,
        "line": rule.line,
        "reason": rule.reason,
    }


def rule_in_brief(rule: RuleMatch | None) -> Json:
    """Return a rule as ledger entries and refusals have it, without its source."""
    return None if rule is None else {"text": rule.text, "file": rule.file, "line": rule.line}


def match_in_brief(match: RuleMatch) -> Json:
    """Return a matching rule as ledger entries have it."""
    return {
        "outcome": match.outcome.word,
        "text": match.text,
        "file": match.file,
        "line": match.line,
    }


class Decision(Struct, frozen=True):
    """The decision for one call: the strictest over all its actions.

    `rule` decided; None means that no rule matched, which denies. `matched` has every rule that
    matched any action, including the deciding one. `warnings` are shown to the model and the user
    and never change the outcome. Only `confined` sets `enforcement`, for a decision to confine.
    """

    outcome: Outcome
    action: str
    reason: str
    rule: RuleMatch | None
    code: str
    policy_digest: str
    matched: tuple[RuleMatch, ...] = ()
    warnings: tuple[str, ...] = ()
    enforcement: Held = ""

    @property
    def comes_to(self) -> Outcome:
        """The effective outcome: `confine` becomes `ask` unless the host fully enforces it."""
        # Threat: a command would run unconfined because policy relied on a sandbox.
        if self.outcome is Outcome.CONFINE and self.enforcement != HELD_WHOLE:
            return Outcome.ASK
        return self.outcome

    @property
    def said(self) -> str:
        """Its outcome for a person: `confine (here: ask)` if the host does not enforce it."""
        word = self.outcome.word
        if self.comes_to is self.outcome or not self.enforcement:
            return word
        return f"{word} (here: {self.comes_to.word})"


def confined(decision: Decision, enforcement: Held) -> Decision:
    """Return a decision with the enforcement of its command, if it is to be confined.

    The outcome stays the policy's; `comes_to` is the effective one.
    """
    if decision.outcome is not Outcome.CONFINE:
        return decision
    found = replace(decision, enforcement=enforcement)
    if found.comes_to is Outcome.CONFINE:
        return found
    return replace(found, reason=f"{decision.reason}; {_UNHELD[enforcement]}")


_UNHELD: Final = {
    "": "it is unknown whether this host can confine it, so approval is needed",
    "partial": "the sandbox on this host is incomplete, so approval is needed",
    "none": "this host has no sandbox for it, so approval is needed",
}

OPERATIONS: Final = MappingProxyType(
    {
        "file": frozenset({"create", "str_replace", "view", "delete", "link", "mode"}),
        "search": frozenset({"grep", "find", "ls"}),
        "output": frozenset({"write"}),
        "memory": frozenset({"view", "create", "str_replace", "delete"}),
        "shell": frozenset({"run", "process", "input"}),
        "ledger": frozenset({"query"}),
        "package": frozenset({"list", "run"}),
        "gate": frozenset({"check"}),
        "mcp": frozenset({"call", "read", "prompt"}),
        "net": frozenset({"connect", "request"}),
        # A tool of a client, or of the embedding program, named by its operation: any name is
        # valid.
        "client": frozenset[str](),
        "own": frozenset[str](),
    }
)
"""Categories and their operations. `client` and `own` take any tool name as operation."""

PATH_CATEGORIES: Final = frozenset({"file", "search", "output"})
"""Categories whose target is a workspace-relative path."""

WRITING_OPERATIONS: Final = frozenset(
    {
        ("file", "create"),
        ("file", "str_replace"),
        ("file", "delete"),
        ("file", "link"),
        ("file", "mode"),
        ("output", "write"),
    }
)
"""Categories and operations whose call changes its path target."""


class Action(NamedTuple):
    """One thing that a call would do.

    `target` is a workspace-relative path with `/` between components and no
    leading slash (`.` is the root), a command line for `shell:run`, HOST:PORT or
    METHOD HOST:PORT/PATH for `net`, a name from `/memories` on for `memory`, a name otherwise;
    empty if there is no target.

    `arguments` are those of an `mcp` call, as the text of one JSON object; empty if unknown.
    """

    category: str
    operation: str
    target: str = ""
    arguments: str = ""

    @property
    def head(self) -> str:
        return f"tool:{self.category}:{self.operation}"

    @property
    def is_path(self) -> bool:
        """True if the target is a workspace-relative path."""
        return self.category in PATH_CATEGORIES

    @property
    def is_write(self) -> bool:
        """True if the call would change its path target."""
        return (self.category, self.operation) in WRITING_OPERATIONS

    @property
    def is_line(self) -> bool:
        """True if the target is a command line."""
        return self.category == "shell" and self.operation == "run"

    @property
    def told(self) -> str:
        """The action as people type it, with its arguments."""
        return f"{self} {self.arguments}" if self.arguments else str(self)

    def __str__(self) -> str:
        head = f"tool:{self.category}:{self.operation}"
        return f"{head} {self.target}" if self.target else head


_Patterns = Annotated[tuple[str, ...], Meta(extra_json_schema={"uniqueItems": True})]


class Permissions(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent's path lists, which deny paths whatever its profile allows.

    Patterns as in a policy's path lists. `forbidden` beats both others. An
    empty `read` or `write` permits nothing.
    """

    read: _Patterns = ("**",)
    write: _Patterns = ("**",)
    forbidden: _Patterns = ()


class Agent(Struct, frozen=True):
    """A model's identity as the host knows it; never taken from arguments."""

    name: str
    profile: str
    toolsets: tuple[str, ...] = ("workspace", "search", "output", "shell")
    permissions: Permissions = field(default_factory=Permissions)
    parent: str | None = None
    source: str = ""
    """The file that declares it, for messages and for the rules made from it."""
    declaration: bytes = b""
    """That file's text, to look up a rule's line when a message needs it."""

    def as_json(self) -> dict[str, Json]:
        """Return the agent as ledger entries have it, enough to repeat a decision."""
        kept: dict[str, Json] = {"name": self.name, "profile": self.profile}
        if self.permissions != Permissions():
            kept["permissions"] = {
                "read": list(self.permissions.read),
                "write": list(self.permissions.write),
                "forbidden": list(self.permissions.forbidden),
            }
        return kept


AgentChain = tuple[Agent, ...]
"""The acting agent first, then its parent, up to the topmost ancestor."""


def client_kind(default: AgentChain, name: str) -> AgentChain:
    """Return the chain of a client's agent kind `name`: a child of the first agent of `default`.

    It is not declared, so it has all that its parent has. The limits that `[agents]` sets for its
    name apply in addition, in the policy: the chain is the same under every policy.
    """
    parent = default[0]
    return (replace(parent, name=name, parent=parent.name), *default)


class PlaneKind(StrEnum):
    """The kind of workspace, to which an agent's paths are relative.

    `PROJECT`: a project with its plane elsewhere, or any other workspace that is not a plane, such
    as `agents/NAME/workspace/` of a bare one. `BARE`: the root of a bare plane.
    """

    PROJECT = "project"
    BARE = "bare"
