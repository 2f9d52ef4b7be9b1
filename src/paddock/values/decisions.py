"""What policy answers, and everything needed to explain or replay it."""

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
    """Of commands alone: allowed where the sandbox holds it whole, else `ask`."""
    ASK = 2
    DENY = 3

    @property
    def word(self) -> str:
        """`allow`, `confine`, `ask` or `deny`, as in files and messages."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> "Outcome":
        """The outcome of a lower-case word; `KeyError` for anything else."""
        return _BY_WORD[word]


Held = Literal["", "full", "partial", "none"]
"""How far the host holds a command to the policy; empty where nobody looked."""
HELD_WHOLE: Final = "full"

_BY_WORD = {outcome.word: outcome for outcome in Outcome}

OPERATOR: Final = "(operator)"
"""The acting agent of what a person asked for. No agent can have this name."""


class RuleMatch(Struct, frozen=True):
    """A rule that had a say: what it says, where it stands.

    `source` names the list or profile it belongs to (`paths.protected`,
    `profiles.standard.deny`, `agents.writer.permissions.forbidden`); `file` is
    `built-in` for what Paddock brings itself, and then `line` is 0.
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
        """Where it stands: `FILE:LINE`, or what it comes from where there is no line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def said(self) -> str:
        """What it says and where it stands, in one line for a person."""
        return f"{self.text} ({self.source}, {self.place})"


def rule_as_json(rule: RuleMatch | None) -> Json:
    """What a rule says and where it stands, as commands print it; null for none."""
    if rule is None:
        return None
    return {"text": rule.text, "source": rule.source, "file": rule.file, "line": rule.line}


def rule_in_full(rule: RuleMatch | None) -> Json:
    """As an explanation prints it: also what it decides and why; null for none."""
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
    """As an entry of the ledger and a refusal keep it, without its source; null for none."""
    return None if rule is None else {"text": rule.text, "file": rule.file, "line": rule.line}


def match_in_brief(match: RuleMatch) -> Json:
    """As an entry of the ledger keeps one of several rules that matched."""
    return {
        "outcome": match.outcome.word,
        "text": match.text,
        "file": match.file,
        "line": match.line,
    }


class Decision(Struct, frozen=True):
    """The answer for one call: the strictest over all its actions.

    `rule` decided; None means that nothing matched and unknown is no. `matched`
    is every rule that matched any action, the deciding one included.
    `warnings` are shown to model and user and never change the outcome. `enforcement`
    is set by `confined` alone, of a decision to confine.
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
        """What it is for whoever calls: `confine` where the command is not held whole is `ask`."""
        # Threat: a command that nothing holds runs because policy counted on a sandbox.
        if self.outcome is Outcome.CONFINE and self.enforcement != HELD_WHOLE:
            return Outcome.ASK
        return self.outcome

    @property
    def said(self) -> str:
        """Its outcome for a person: `confine (here: ask)` where the host does not hold it."""
        word = self.outcome.word
        if self.comes_to is self.outcome or not self.enforcement:
            return word
        return f"{word} (here: {self.comes_to.word})"


def confined(decision: Decision, enforcement: Held) -> Decision:
    """Return a decision with how far its command would be held, where it is to be confined.

    The outcome stays policy's; `comes_to` is what it is with that.
    """
    if decision.outcome is not Outcome.CONFINE:
        return decision
    found = replace(decision, enforcement=enforcement)
    if found.comes_to is Outcome.CONFINE:
        return found
    return replace(found, reason=f"{decision.reason}; {_UNHELD[enforcement]}")


_UNHELD: Final = {
    "": "whether this host holds it is not known, so it is asked about",
    "partial": "its sandbox here is not whole, so it is asked about",
    "none": "nothing holds it here, so it is asked about",
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
        # A tool of a client, or of the program that embeds us, named by its operation: any name
        # is known here.
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
"""Heads whose path target is changed by the call."""


class Action(NamedTuple):
    """One thing that a call would do.

    `target` is a workspace-relative path with `/` between components and no
    leading slash (`.` is the root), a command line for `shell:run`, HOST:PORT or
    METHOD HOST:PORT/PATH for `net`, a name from `/memories` on for `memory`, a name otherwise;
    empty where there is no target.

    `arguments` are those of a call of `mcp`, as the text of one JSON object; empty: not known.
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
        """Whether the target is a workspace-relative path."""
        return self.category in PATH_CATEGORIES

    @property
    def is_write(self) -> bool:
        """Whether the call would change what the path target names."""
        return (self.category, self.operation) in WRITING_OPERATIONS

    @property
    def is_line(self) -> bool:
        """Whether the target is a command line."""
        return self.category == "shell" and self.operation == "run"

    @property
    def told(self) -> str:
        """As people type it, with what it is given."""
        return f"{self} {self.arguments}" if self.arguments else str(self)

    def __str__(self) -> str:
        head = f"tool:{self.category}:{self.operation}"
        return f"{head} {self.target}" if self.target else head


_Patterns = Annotated[tuple[str, ...], Meta(extra_json_schema={"uniqueItems": True})]


class Permissions(Struct, frozen=True, forbid_unknown_fields=True):
    """An agent's own path lists, judged above any profile.

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
    """That file's text: where a rule stands is looked up when there is something to say."""

    def as_json(self) -> dict[str, Json]:
        """The agent as entries of the ledger keep it: enough to decide again."""
        kept: dict[str, Json] = {"name": self.name, "profile": self.profile}
        if self.permissions != Permissions():
            kept["permissions"] = {
                "read": list(self.permissions.read),
                "write": list(self.permissions.write),
                "forbidden": list(self.permissions.forbidden),
            }
        return kept


AgentChain = tuple[Agent, ...]
"""The acting agent first, then its parent, up to the eldest ancestor."""


def client_kind(default: AgentChain, name: str) -> AgentChain:
    """The chain of a client's kind of agent `name`: a child of the agent at the head of `default`.

    It is declared nowhere, so it has all that its parent has. What `[agents]` gives to its
    name is the policy's, which holds it besides: the chain is the same under every policy.
    """
    parent = default[0]
    return (replace(parent, name=name, parent=parent.name), *default)


class PlaneKind(StrEnum):
    """What is worked on, and what the paths of an agent are relative to.

    `PROJECT`: a project, whose plane lies elsewhere, or any other workspace that is no plane,
    also `agents/NAME/workspace/` of a bare one. `BARE`: the root of a bare plane itself.
    """

    PROJECT = "project"
    BARE = "bare"
