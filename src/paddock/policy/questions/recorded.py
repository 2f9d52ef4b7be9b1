"""A call that is on record, as policy can judge it again.

The ledger keeps the actions as they were decided, the agents with their profiles and
own permissions, and the decision. What is missing, cut, or was decided by something
that is no policy cannot be decided again: such a call is `Lost`, and says why.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, cast, get_args

from paddock.policy.actions import NAMES_BY_OPERATION, is_normal_path
from paddock.policy.lines import MAY_START, judge_line
from paddock.policy.places import BUILT_IN
from paddock.text.show import is_cut
from paddock.values.calls import Json
from paddock.values.decisions import (
    OPERATIONS,
    PATH_CATEGORIES,
    Action,
    Agent,
    AgentChain,
    Held,
    Outcome,
    Permissions,
    RuleMatch,
)
from paddock.values.entries import HOOK_DECISION, TOOL_DENIED, TOOL_INTENT, TOOL_STAGED, Entry

DECIDED_EVENTS: Final = (TOOL_INTENT, TOOL_DENIED, TOOL_STAGED, HOOK_DECISION)
"""Entries that hold a decision about a call."""

OPERATOR_SOURCE: Final = "operator"
_OUTCOMES: Final = tuple(outcome.word for outcome in Outcome)
# Of too many actions the first are kept, and then this.
_COUNTED: Final = re.compile(r"\d+ more actions\Z")
# The hook keeps what no line may hold as an escape.
_ESCAPE: Final = re.compile(r"\\u(0000|d[89a-f][0-9a-f]{2})")


class Door(Enum):
    """Who asked for the decision: the dispatcher, or the hook of a client."""

    TOOL = "tool"
    HOOK = "hook"


class Why(StrEnum):
    """Why a recorded call cannot be decided again. The value is a stable word."""

    UNDECIDED = "undecided"
    PERSON = "person"
    BOUNDARY = "boundary"
    HOOK = "hook"
    OUTSIDE = "outside"
    CUT = "cut"
    INCOMPLETE = "incomplete"
    WORKSPACE = "workspace"
    OTHERWISE = "otherwise"
    UNREADABLE = "unreadable"


MEANINGS: Final[Mapping[Why, str]] = {
    Why.UNDECIDED: "refused before policy was asked",
    Why.PERSON: "a person asked for it, and policy binds agents",
    Why.BOUNDARY: "refused at the edge of the workspace, which no policy moves",
    Why.HOOK: "decided by a setting of the hook, or by where the client stood",
    Why.OUTSIDE: "names a place outside the workspace, of which the record is not enough",
    Why.CUT: "the record keeps the action cut or escaped",
    Why.INCOMPLETE: "the record lacks what a decision needs",
    Why.WORKSPACE: "its agent is not there any more, so what its paths began at is not known",
    Why.OTHERWISE: "the very same policy decided otherwise then: something else had a say",
    Why.UNREADABLE: "the line holds no entry",
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a call stands in the ledger, and whose it is."""

    seq: int
    time: str
    session_id: str
    call_id: str
    agent: str
    tool: str


@dataclass(frozen=True, slots=True)
class PastDecision:
    """A recorded call with all that is needed to decide it again.

    `rule` is the one that decided then. Its `source` is who approved, where somebody did.
    """

    where: Recorded
    door: Door
    actions: tuple[Action, ...]
    chain: AgentChain
    outcome: Outcome
    rule: RuleMatch | None
    policy_digest: str
    enforcement: Held = ""
    """How far the command of a decision to confine was held; empty where that is not on record."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A recorded call that cannot be decided again. `detail` may be empty."""

    where: Recorded
    why: Why
    detail: str = ""


def read_recorded(seq: int, time: str, entry: Entry) -> PastDecision | Lost | None:
    """Return the call of an entry; None for an entry that decides about no call."""
    if entry.event_type not in DECIDED_EVENTS:
        return None
    metadata = entry.metadata
    where = Recorded(
        seq, time, entry.session_id, entry.call_id, entry.agent, _text(metadata, "tool")
    )
    outcome = _text(metadata, "outcome")
    if "outcome" not in metadata:
        return Lost(where, Why.UNDECIDED, _text(metadata, "code"))
    actions, chain = _actions(metadata.get("actions")), _chain(metadata.get("agents"))
    door = Door.HOOK if entry.event_type == HOOK_DECISION else Door.TOOL
    reason = _obstacle(door, metadata, actions)
    if reason is not None:
        return Lost(where, reason, _text(metadata, "code"))
    if outcome not in _OUTCOMES or not chain or not actions:
        return Lost(where, Why.INCOMPLETE)
    parsed = tuple(_parse(text) for text in actions)
    if None in parsed:
        return Lost(where, Why.INCOMPLETE)
    known = tuple(action for action in parsed if action is not None)
    found = PastDecision(
        where,
        door,
        known,
        chain,
        Outcome.parse(outcome),
        rule_of(metadata),
        _text(metadata, "policy_digest"),
        _held(metadata.get("enforcement")),
    )
    return Lost(where, Why.HOOK) if _was_asked_by_hook(found) else found


def _held(word: Json) -> Held:
    return next((each for each in get_args(Held) if each == word), "")


def rule_of(metadata: Mapping[str, Json]) -> RuleMatch | None:
    """Return the rule that decided, as an entry's metadata keeps it; None for none."""
    rule = metadata.get("rule")
    word = _text(metadata, "outcome")
    if not isinstance(rule, dict) or word not in _OUTCOMES:
        return None
    kept = cast("dict[str, Json]", rule)
    line = kept.get("line")
    return RuleMatch(
        Outcome.parse(word),
        _text(kept, "text"),
        _text(metadata, "source"),
        _text(kept, "file"),
        line if type(line) is int else 0,
    )


def _obstacle(door: Door, metadata: Mapping[str, Json], actions: tuple[str, ...]) -> Why | None:
    source, code = _text(metadata, "source"), _text(metadata, "code")
    if source == OPERATOR_SOURCE:
        return Why.PERSON
    if any(_COUNTED.fullmatch(text) for text in actions):
        return Why.CUT
    if door is Door.TOOL:
        return None
    if source.startswith("hook."):
        return Why.HOOK
    if code and not code.startswith("policy."):
        return Why.BOUNDARY if code.startswith("path.") else Why.UNDECIDED
    if any(is_cut(text) for text in actions):
        return Why.CUT
    # Threat: an escaped name is another name, and another rule may match it.
    if any(_ESCAPE.search(text) for text in actions):
        return Why.CUT
    if any(_is_outside(text) for text in actions):
        return Why.OUTSIDE
    return None


def _is_outside(text: str) -> bool:
    head, _, target = text.partition(" ")
    return head.startswith("tool:file:") and not is_normal_path(target)


def _was_asked_by_hook(past: PastDecision) -> bool:
    """Whether the hook asked for a reason of its own, which no policy knows."""
    rule = past.rule
    if past.door is not Door.HOOK or rule is None or past.outcome is not Outcome.ASK:
        return False
    if rule.file != BUILT_IN or rule.source != BUILT_IN:
        return False
    lines = [action for action in past.actions if action.category == "shell"]
    is_ours = rule.text.endswith(MAY_START)
    return not is_ours and not any(rule.text in judge_line(action).reasons for action in lines)


def _parse(text: str) -> Action | None:
    """Return the action of its own text, the target to the last character as it stood."""
    head, separator, target = text.partition(" ")
    parts = head.split(":", 2)
    if len(parts) != 3 or parts[0] != "tool":
        return None
    category, operation = parts[1], parts[2]
    if category in NAMES_BY_OPERATION:
        # A client's names are its own: a space is part of them.
        return Action(category, f"{operation}{separator}{target}")
    if operation not in OPERATIONS.get(category, frozenset()):
        return None
    if category in PATH_CATEGORIES and target and not is_normal_path(target):
        return None
    return Action(category, operation, target)


def _actions(kept: Json) -> tuple[str, ...]:
    if not isinstance(kept, list):
        return ()
    texts = cast("list[Json]", kept)
    return tuple(texts) if all(isinstance(text, str) for text in texts) else ()


def _chain(kept: Json) -> AgentChain:
    if not isinstance(kept, list):
        return ()
    agents = [_agent(each) for each in cast("list[Json]", kept)]
    return tuple(agent for agent in agents if agent is not None) if None not in agents else ()


def _agent(kept: Json) -> Agent | None:
    if not isinstance(kept, dict):
        return None
    fields = cast("dict[str, Json]", kept)
    name, profile, lists = fields.get("name"), fields.get("profile"), fields.get("permissions")
    if not isinstance(name, str) or not isinstance(profile, str):
        return None
    if lists is None:
        return Agent(name, profile)
    # Threat: a list that was not understood must not become the default, which is everything.
    if not isinstance(lists, dict):
        return None
    given = cast("dict[str, Json]", lists)
    read, write, forbidden = (_texts(given.get(key)) for key in ("read", "write", "forbidden"))
    if read is None or write is None or forbidden is None:
        return None
    return Agent(name, profile, permissions=Permissions(read, write, forbidden))


def _texts(kept: Json) -> tuple[str, ...] | None:
    if not isinstance(kept, list):
        return None
    texts = cast("list[Json]", kept)
    return tuple(texts) if all(isinstance(text, str) for text in texts) else None


def _text(metadata: Mapping[str, Json], name: str) -> str:
    found = metadata.get(name)
    return found if isinstance(found, str) else ""
