"""Explain a recorded call from its ledger entries alone, without loading a policy."""

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Final, TypeVar, cast, get_args

from msgspec import Struct, ValidationError, convert
from msgspec.structs import astuple, replace

from paddock.pattern import lazy_pattern
from paddock.policy.positions import BUILT_IN, place_text, quote_toml
from paddock.policy.profiles import judge_line
from paddock.policy.rules import NAMES_BY_OPERATION, OUTCOME_WORDS, is_normal_path
from paddock.text.json import canonical_json
from paddock.text.show import is_cut, show_name
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
from paddock.values.entries import (
    APPROVAL_ANSWERED,
    APPROVAL_ASKED,
    HOOK_DECISION,
    TOOL_DENIED,
    TOOL_INTENT,
    TOOL_RESULT,
    TOOL_STAGED,
    Entry,
)

# The ledger keeps the actions as they were decided, the agents with their profiles and
# permissions, and the decision. A call whose record is incomplete or cut, or that was not
# decided by policy, cannot be decided again: it becomes `Lost`, with the reason.

T = TypeVar("T")
U = TypeVar("U")

_PLACEHOLDERS: Final = ("salted_sha256", "redacted", "…")

DECIDED_EVENTS: Final = (TOOL_INTENT, TOOL_DENIED, TOOL_STAGED, HOOK_DECISION)

OPERATOR_SOURCE: Final = "operator"
# The last entry of a shortened list of actions.
_COUNTED: Final = lazy_pattern(r"\d+ more actions\Z")
# The hook's escape for characters that may not be in a line.
_ESCAPE: Final = lazy_pattern(r"\\u(0000|d[89a-f][0-9a-f]{2})")


class RecordedDoor(Enum):
    TOOL = "tool"
    HOOK = "hook"


class Why(StrEnum):
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
    Why.PERSON: "a person ran it, and policy applies only to agents",
    Why.BOUNDARY: "refused at the boundary of the workspace, which no policy changes",
    Why.HOOK: "decided by a setting of the hook, or by the client's working directory",
    Why.OUTSIDE: "names a path outside the workspace, for which the record is not enough",
    Why.CUT: "the record keeps the action cut or escaped",
    Why.INCOMPLETE: "the record lacks data that a decision needs",
    Why.WORKSPACE: "its agent no longer exists, so the root of its paths is not known",
    Why.OTHERWISE: "the same policy decided differently then, so something else had a part in it",
    Why.UNREADABLE: "the line is not a ledger entry",
}


class Recorded(Struct, frozen=True):
    seq: int
    time: str
    session_id: str
    call_id: str
    agent: str
    tool: str


class PastDecision(Struct, frozen=True):
    """`rule` decided then; if the call was approved, its `source` is the approver."""

    where: Recorded
    door: RecordedDoor
    actions: tuple[Action, ...]
    chain: AgentChain
    outcome: Outcome
    rule: RuleMatch | None
    policy_digest: str
    enforcement: Held = ""
    """How far the command of a `confine` decision was sandboxed; empty if not recorded."""


class Lost(Struct, frozen=True):
    where: Recorded
    why: Why
    detail: str = ""


def read_recorded(seq: int, time: str, entry: Entry) -> PastDecision | Lost | None:
    if entry.event_type not in DECIDED_EVENTS:
        return None
    metadata = entry.metadata
    code, outcome, tool = (_text(metadata, name) for name in ("code", "outcome", "tool"))
    where = Recorded(seq, time, entry.session_id, entry.call_id, entry.agent, tool)
    if "outcome" not in metadata:
        return Lost(where, Why.UNDECIDED, code)
    # Threat: an agent's list that cannot be read must not become the default, which allows all.
    actions = _kept(metadata.get("actions"), tuple[str, ...], ())
    agents = _kept(metadata.get("agents"), tuple[_KeptAgent, ...], ())
    chain = tuple(each.agent() for each in agents)
    door = RecordedDoor.HOOK if entry.event_type == HOOK_DECISION else RecordedDoor.TOOL
    reason = _obstacle(door, metadata, actions)
    if reason is not None:
        return Lost(where, reason, code)
    known = tuple(action for text in actions if (action := _parse(text)) is not None)
    if outcome not in OUTCOME_WORDS or not chain or not actions or len(known) < len(actions):
        return Lost(where, Why.INCOMPLETE)
    if door is RecordedDoor.TOOL:
        known = tuple(_with_arguments(action, metadata) for action in known)
    rule, digest = _rule_of(metadata), _text(metadata, "policy_digest")
    held: Held = next((each for each in get_args(Held) if each == metadata.get("enforcement")), "")
    found = PastDecision(where, door, known, chain, Outcome.parse(outcome), rule, digest, held)
    return Lost(where, Why.HOOK) if _was_asked_by_hook(found, entry.reason) else found


def _rule_of(metadata: Mapping[str, Json]) -> RuleMatch | None:
    kept = _kept(metadata.get("rule"), _KeptRule, None)
    if kept is None:
        return None
    outcome, source = Outcome.parse(metadata["outcome"]), _text(metadata, "source")
    return RuleMatch(outcome, kept.text, source, kept.file, kept.line)


def _obstacle(
    door: RecordedDoor, metadata: Mapping[str, Json], actions: tuple[str, ...]
) -> Why | None:
    source, code = _text(metadata, "source"), _text(metadata, "code")
    if source == OPERATOR_SOURCE:
        return Why.PERSON
    is_cut_short = "actions_digest" in metadata  # written only with a shortened list
    if is_cut_short or any(_COUNTED.fullmatch(text) for text in actions):
        return Why.CUT
    if door is RecordedDoor.TOOL:
        return None
    if source.startswith("hook."):
        return Why.HOOK
    if code and not code.startswith("policy."):
        return Why.BOUNDARY if code.startswith("path.") else Why.UNDECIDED
    # Threat: an escaped name differs from the real one, and another rule may match it.
    if any(is_cut(text) or _ESCAPE.search(text) for text in actions):
        return Why.CUT
    files = (text.partition(" ")[2] for text in actions if text.startswith("tool:file:"))
    return None if all(map(is_normal_path, files)) else Why.OUTSIDE


def _was_asked_by_hook(past: PastDecision, reason: str) -> bool:
    """Decide, by no wording, for entries from before the source `hook.line`."""
    rule = past.rule
    is_question = past.door is RecordedDoor.HOOK and past.outcome is Outcome.ASK
    if rule is None or not is_question or {rule.file, rule.source} != {BUILT_IN}:
        return False
    # A reason of policy also names the rule that could match; in the oldest the line tells.
    is_explained = rule.text in reason and rule.text != reason
    lines = [action for action in past.actions if action.category == "shell"]
    return not is_explained and not any(judge_line(each).reasons for each in lines)


def _parse(text: str) -> Action | None:
    head, separator, target = text.partition(" ")
    parts = head.split(":", 2)
    if len(parts) != 3 or parts[0] != "tool":
        return None
    category, operation = parts[1], parts[2]
    if category in NAMES_BY_OPERATION:
        # A client chooses its tools' names, which may contain a space.
        return Action(category, f"{operation}{separator}{target}")
    if operation not in OPERATIONS.get(category, frozenset()):
        return None
    if category in PATH_CATEGORIES and target and not is_normal_path(target):
        return None
    return Action(category, operation, target)


def _with_arguments(action: Action, metadata: Mapping[str, Json]) -> Action:
    kept = _kept(metadata.get("arguments"), dict[str, Json], None)
    if action.head != "tool:mcp:call" or kept is None or not _is_kept_whole(kept):
        return action
    return action._replace(arguments=canonical_json(kept))


def _is_kept_whole(kept: Json) -> bool:
    """Return True if no value is replaced by a digest, a redaction mark or a cut."""
    if isinstance(kept, dict):
        members = cast("dict[str, Json]", kept)
        return members.keys().isdisjoint(_PLACEHOLDERS) and all(
            map(_is_kept_whole, members.values())
        )
    return not isinstance(kept, list) or all(map(_is_kept_whole, cast("list[Json]", kept)))


class _Lists(Struct):
    read: tuple[str, ...]
    write: tuple[str, ...]
    forbidden: tuple[str, ...]


class _KeptAgent(Struct):
    name: str
    profile: str
    permissions: _Lists | None = None

    def agent(self) -> Agent:
        lists = self.permissions
        own = Permissions() if lists is None else Permissions(*astuple(lists))
        return Agent(self.name, self.profile, permissions=own)


class _KeptRule(Struct):
    text: str = ""
    file: str = ""
    line: int = 0


def _kept(kept: Json, wanted: type[T], default: U) -> T | U:
    """Return a recorded value as a type; `default` if it does not fit completely."""
    try:
        return convert(kept, wanted)
    except ValidationError:
        return default


def _text(metadata: Mapping[str, Json], name: str) -> str:
    return _kept(metadata.get(name), str, "")


def _table(kept: Json) -> dict[str, Json]:
    return _kept(kept, dict[str, Json], dict[str, Json]())


def _objects(kept: Json) -> list[dict[str, Json]]:
    return _kept(kept, list[dict[str, Json]], list[dict[str, Json]]())


def _texts(kept: Json) -> list[str]:
    return _kept(kept, list[str], list[str]())


CALL_EVENTS: Final = (*DECIDED_EVENTS, TOOL_RESULT)
_ASKED: Final = ("confine", "ask")
"""Outcomes that a person may have been asked about; `confine` if no sandbox was available."""
DENIED_UNASKED: Final = "denied to the client, which cannot ask a person"


class KeptCall(Struct, frozen=True):
    seq: int
    time: str
    entry: Entry


class Waited(Struct, frozen=True):
    """A command's changes that waited in the inbox, as one of the two calls has it."""

    request: str
    answer: str
    by: str
    other: str
    """The call that landed the changes, empty if none did; of that call, the command's."""
    is_landing: bool

    @property
    def said(self) -> str:
        answer = f"{self.answer} by {self.by}" if self.answer else "no answer is on record"
        if self.is_landing:
            return f"  lands:  the changes of {self.other}, {answer} ({self.request})"
        landed = f"; landed by {self.other}" if self.other else ""
        return f"  waited: its changes, as {self.request}: {answer}{landed}"

    def as_json(self) -> dict[str, Json]:
        of_landing = {"made_by": self.other} if self.is_landing else {"landed_by": self.other}
        return {"request": self.request, "answer": self.answer, "by": self.by, **of_landing}


class RecordedCall(Struct, frozen=True):
    decided: KeptCall
    result: KeptCall | None
    asked_because: str = ""
    """The reason of the rule that asked, if the entry has the reason of the answer instead."""
    waited: Waited | None = None

    @property
    def is_denied_unasked(self) -> bool:
        return is_denied_unasked(self.decided.entry)

    @property
    def _answer(self) -> str:
        if self.asked_because:
            return self.decided.entry.reason
        return DENIED_UNASKED if self.is_denied_unasked else ""

    @property
    def has_refused_changes(self) -> bool:
        return self.result is not None and bool(self.result.entry.metadata.get("refused"))

    @property
    def is_unknown(self) -> bool:
        return self.decided.entry.event_type == TOOL_INTENT and self.result is None

    def as_json(self) -> dict[str, Json]:
        entry, metadata = self.decided.entry, self.decided.entry.metadata
        rule = _table(metadata.get("rule")) or None
        if rule is not None:
            rule = {**rule, **{name: metadata.get(name) for name in ("outcome", "source")}}
        agents = _objects(metadata.get("agents"))
        return {
            "call_id": entry.call_id,
            "session_id": entry.session_id,
            "seq": self.decided.seq,
            "time": self.decided.time,
            "event_type": entry.event_type,
            "agent": entry.agent,
            **{name: metadata.get(name) for name in ("tool", "arguments", "actions", "outcome")},
            "decision": entry.decision,
            "code": metadata.get("code", ""),
            "reason": self.asked_because or entry.reason,
            "answer": self._answer,
            "rule": rule,
            "source": metadata.get("source"),
            "matched": metadata.get("matched", [] if rule is None else [rule]),
            "warnings": metadata.get("warnings", []),
            "approval": metadata.get("approval"),
            **({} if self.waited is None else {"waited": self.waited.as_json()}),
            "agents": [agent.get("name") for agent in agents],
            "profiles": list(dict.fromkeys(str(agent.get("profile")) for agent in agents)),
            "policy_digest": metadata.get("policy_digest"),
            "result": self._result_json(),
        }

    def _result_json(self) -> Json:
        if self.result is None:
            return {"status": "unknown"} if self.is_unknown else None
        metadata = self.result.entry.metadata
        return {
            "seq": self.result.seq,
            "time": self.result.time,
            "status": metadata.get("status"),
            "exit": metadata.get("exit"),
            "timed_out": metadata.get("timed_out", False),
            "code": metadata.get("code", ""),
            "effects": metadata.get("effects", []),
            "refused": metadata.get("refused", []),
        }

    def render(self) -> str:
        entry, metadata = self.decided.entry, self.decided.entry.metadata
        outcome = metadata.get("outcome")
        tool = metadata.get("tool") or "?"
        lines = [f"{_verdict(self)}: {tool} (call {entry.call_id or '-'})"]
        lines.append(f"  when:   {self.decided.time}, seq {self.decided.seq}")
        if entry.session_id:
            lines.append(f"  session: {entry.session_id}")
        lines += [f"  action: {action}" for action in _texts(metadata.get("actions"))]
        told = (self.asked_because or entry.reason, self._answer, metadata.get("code"))
        names = ("reason:", "answer:", "code:  ")
        lines += [f"  {name} {text}" for name, text in zip(names, told, strict=True) if text]
        rule = "policy was not asked" if outcome is None else _rule_text(metadata)
        lines.append(f"  rule:   {rule}")
        lines += [
            f"  also matched: {each.get('text')} ({each.get('outcome')}, {_place(each)})"
            for each in _objects(metadata.get("matched"))
            if not _is_same(each, metadata.get("rule"))
        ]
        lines += [f"  warning: {warning}" for warning in _texts(metadata.get("warnings"))]
        lines += _approval_lines(entry)
        lines += [] if self.waited is None else [self.waited.said]
        agents = _objects(metadata.get("agents"))
        named = (f"{each.get('name')} (profile {each.get('profile')})" for each in agents)
        lines.append(f"  agents: {', '.join(named)}")
        lines.append(f"  policy: {metadata.get('policy_digest', 'none was asked')}")
        lines.append(f"  result: {self._result_text()}")
        lines += self._refused_lines()
        # Threat: an action, a name or a reason with line breaks could forge rows.
        return "\n".join(map(show_name, lines))

    def _result_text(self) -> str:
        if self.result is None:
            if self.is_unknown:
                return "unknown: the record has the intent and no result"
            return "none on record"
        metadata = self.result.entry.metadata
        said = f"{metadata.get('status')}, seq {self.result.seq}"
        if metadata.get("timed_out"):
            said += ", timed out"
        elif metadata.get("exit") is not None:
            said += f", exit {metadata['exit']}"
        for cause in cast("list[str]", metadata.get("fence", [])):
            said += f", the fence refused {cause}"
        if metadata.get("code"):
            said += f", {metadata['code']}"
        effects = metadata.get("effects")
        if effects == "unknown":
            return f"{said}; what it changed is unknown"
        if effects:
            count = len(_objects(effects))
            said += f"; {count} effect{'' if count == 1 else 's'} on record"
        return said

    def _refused_lines(self) -> list[str]:
        if self.result is None:
            return []
        metadata = self.result.entry.metadata
        refused = _objects(metadata.get("refused"))
        lines = [f"  refused: {each.get('path')}: {each.get('rule')}" for each in refused]
        total = metadata.get("refused_total")
        more = total - len(refused) if isinstance(total, int) else 0
        return [*lines, f"  refused: {more} more"] if more > 0 else lines


def is_denied_unasked(entry: Entry) -> bool:
    metadata = entry.metadata
    is_hooks = entry.event_type == HOOK_DECISION and "outcome" in metadata
    return is_hooks and metadata.get("answer") == "deny" != metadata["outcome"]


def find_recorded_calls(kept: Iterable[KeptCall], call_id: str) -> tuple[RecordedCall, ...]:
    """Return the calls of an id, newest first: an id may repeat, each decided entry is a call."""
    calls: list[RecordedCall] = []
    for row in kept:
        entry = row.entry
        if call_id not in (entry.call_id, entry.metadata.get("client_call")):
            continue
        before = calls[-1] if calls and _is_one(calls[-1], entry) else None
        if entry.event_type == TOOL_RESULT:
            if before is not None:
                calls[-1] = RecordedCall(before.decided, row)
        elif before is not None and before.decided.entry.event_type == TOOL_STAGED:
            calls[-1] = RecordedCall(row, None)
        elif entry.event_type in DECIDED_EVENTS:
            calls.append(RecordedCall(row, None))
    return tuple(reversed(calls))


def with_question(call: RecordedCall, asked: Iterable[Entry]) -> RecordedCall:
    """Add the reason of the rule that asked; a refused entry has only the reason of the answer."""
    entry = call.decided.entry
    digest = _text(_table(entry.metadata.get("approval")), "digest")
    is_ask = entry.decision == "deny" and entry.metadata.get("outcome") in _ASKED
    if not is_ask or not digest or _is_granted(entry):
        return call
    wanted = (APPROVAL_ASKED, entry.call_id, entry.session_id, digest)
    for each in asked:
        if (each.event_type, each.call_id, each.session_id, each.metadata.get("digest")) == wanted:
            return replace(call, asked_because=each.reason)
    return call


LANDING_TOOL: Final = "commit_parked"


def landed_request(entry: Entry) -> str:
    """Return the request whose changes this call lands; empty if it is another call."""
    # Threat: an agent's tool may have the same name; only the operator's has this source.
    of_operator = _text(entry.metadata, "source") == OPERATOR_SOURCE
    is_landing = of_operator and _text(entry.metadata, "tool") == LANDING_TOOL
    return _text(_table(entry.metadata.get("arguments")), "request") if is_landing else ""


def with_waited(
    call: RecordedCall, answers: Iterable[Entry], landings: Iterable[Entry]
) -> RecordedCall:
    """Add how the changes of this call waited, or those that it landed."""
    own = call.decided.entry
    asked = [each for each in answers if each.event_type == APPROVAL_ANSWERED]
    request = landed_request(own) or next(
        (_text(e.metadata, "request") for e in asked if _waits(e, own)), ""
    )
    said = [each for each in asked if request and each.metadata.get("request") == request]
    if not said:
        return call
    given = [each for each in said if each.metadata.get("answer") in ("granted", "refused")]
    answer, by = (_text(given[0].metadata, name) if given else "" for name in ("answer", "by"))
    is_landing = bool(landed_request(own))
    other = said[0].call_id if is_landing else _landed_by(request, landings)
    return replace(call, waited=Waited(request, answer, by, other, is_landing))


def _waits(answer: Entry, own: Entry) -> bool:
    is_own = (answer.call_id, answer.session_id) == (own.call_id, own.session_id)
    return is_own and "changes" in answer.metadata


def _landed_by(request: str, landings: Iterable[Entry]) -> str:
    """Return the call that landed them; one that was refused landed nothing."""
    entries = list(landings)
    tried = {each.call_id for each in entries if landed_request(each) == request}
    ended = (e.call_id for e in entries if e.metadata.get("status") == "ok")
    return next((each for each in ended if each in tried), "")


def _is_one(before: RecordedCall, entry: Entry) -> bool:
    own, other = ((e.session_id, e.metadata.get("tool")) for e in (before.decided.entry, entry))
    return before.result is None and own == other


def _verdict(call: RecordedCall) -> str:
    entry = call.decided.entry
    outcome = entry.metadata.get("outcome")
    if outcome is None:
        return "refused"
    if call.is_denied_unasked:
        return f"{outcome}, answered with a denial"
    is_answered = isinstance(entry.metadata.get("approval"), dict)
    if outcome != "ask" and not is_answered:
        return str(outcome)
    word = "ask" if outcome == "ask" else f"{outcome} (here: ask)"
    if outcome in _ASKED and entry.event_type == TOOL_INTENT:
        return f"{word}, granted"
    if outcome in _ASKED and entry.decision == "deny":
        granted = "granted, then refused" if _is_granted(entry) else "not granted"
        return f"{word}, {granted}"
    return str(outcome)


def _rule_text(metadata: Mapping[str, Json]) -> str:
    kept = _table(metadata.get("rule"))
    if not kept:
        return "none matched, so it was denied"
    said = [str(metadata.get("outcome")), _place(kept)]
    # For an approved call `source` is the approver, not the place of a rule.
    if not isinstance(metadata.get("approval"), dict):
        said.insert(1, str(metadata.get("source")))
    return f"{kept.get('text')} ({', '.join(said)})"


def _place(rule: Mapping[str, Json]) -> str:
    return place_text(str(rule.get("file", "")), _kept(rule.get("line"), int, 0))


def _is_same(match: Mapping[str, Json], rule: Json) -> bool:
    names, kept = ("text", "file", "line"), _table(rule)
    return bool(kept) and all(match.get(name) == kept.get(name) for name in names)


def _approval_lines(entry: Entry) -> list[str]:
    kept = _table(entry.metadata.get("approval"))
    if not kept:
        return []
    how, said = ("approved by", "") if _is_granted(entry) else ("answered by", " (not granted)")
    return [f"  {how}: {quote_toml(kept.get('by'))}{said}, bound to {kept.get('digest')}"]


def _is_granted(entry: Entry) -> bool:
    has_answer = isinstance(entry.metadata.get("approval"), dict)
    return has_answer and not str(entry.metadata.get("code", "")).startswith("approval.")
