"""Why a call was decided as it was, from its record alone.

No policy is loaded and nothing is decided: what the ledger kept is told. A policy that
was changed since changes nothing here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

from paddock.policy.problems import place_text, quote_toml
from paddock.policy.questions.recorded import DECIDED_EVENTS
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import (
    APPROVAL_ASKED,
    HOOK_DECISION,
    TOOL_INTENT,
    TOOL_RESULT,
    TOOL_STAGED,
    Entry,
)

TOLD_EVENTS: Final = (*DECIDED_EVENTS, TOOL_RESULT)
"""Entries from which a call is told."""
_ASKED: Final = ("confine", "ask")
"""Outcomes that a person may have been asked about: nothing held the command whole."""
DENIED_UNASKED: Final = "denied to the client, which cannot ask a person"


@dataclass(frozen=True, slots=True)
class Kept:
    seq: int
    time: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call: the entry that decided it, and the one that says what came of it."""

    decided: Kept
    result: Kept | None
    asked_because: str = ""
    """The reason of the rule that asked, where the entry has that of the answer instead."""

    @property
    def is_denied_unasked(self) -> bool:
        """Whether a client was answered with a denial because it could not ask a person."""
        return is_denied_unasked(self.decided.entry)

    @property
    def _answer(self) -> str:
        if self.asked_because:
            return self.decided.entry.reason
        return DENIED_UNASKED if self.is_denied_unasked else ""

    @property
    def is_unknown(self) -> bool:
        """Whether it may have run and nothing says how it ended."""
        return self.decided.entry.event_type == TOOL_INTENT and self.result is None

    def as_json(self) -> dict[str, Json]:
        entry, metadata = self.decided.entry, self.decided.entry.metadata
        rule = metadata.get("rule")
        if isinstance(rule, dict):
            rule = {
                **cast("dict[str, Json]", rule),
                "outcome": metadata.get("outcome"),
                "source": metadata.get("source"),
            }
        agents = _objects(metadata.get("agents"))
        return {
            "call_id": entry.call_id,
            "session_id": entry.session_id,
            "seq": self.decided.seq,
            "time": self.decided.time,
            "event_type": entry.event_type,
            "agent": entry.agent,
            "tool": metadata.get("tool"),
            "arguments": metadata.get("arguments"),
            "actions": metadata.get("actions"),
            "outcome": metadata.get("outcome"),
            "decision": entry.decision,
            "code": metadata.get("code", ""),
            "reason": self.asked_because or entry.reason,
            "answer": self._answer,
            "rule": rule,
            "source": metadata.get("source"),
            "matched": metadata.get("matched", [] if rule is None else [rule]),
            "warnings": metadata.get("warnings", []),
            "approval": metadata.get("approval"),
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
        """The call as text for a person."""
        entry, metadata = self.decided.entry, self.decided.entry.metadata
        outcome = metadata.get("outcome")
        tool = metadata.get("tool") or "?"
        lines = [f"{_verdict(self)}: {tool} (call {entry.call_id or '-'})"]
        lines.append(f"  when:   {self.decided.time}, seq {self.decided.seq}")
        if entry.session_id:
            lines.append(f"  session: {entry.session_id}")
        lines += [f"  action: {action}" for action in _texts(metadata.get("actions"))]
        reason = self.asked_because or entry.reason
        lines += [f"  reason: {reason}"] if reason else []
        lines += [f"  answer: {self._answer}"] if self._answer else []
        if metadata.get("code"):
            lines.append(f"  code:   {metadata['code']}")
        if outcome is None:
            lines.append("  rule:   policy was not asked")
        else:
            lines.append(f"  rule:   {_rule_text(metadata)}")
        lines += [
            f"  also matched: {_match_text(match)}"
            for match in _objects(metadata.get("matched"))
            if not _is_same(match, metadata.get("rule"))
        ]
        lines += [f"  warning: {warning}" for warning in _texts(metadata.get("warnings"))]
        lines += _approval_lines(entry)
        lines.append(f"  agents: {_agents_text(metadata)}")
        lines.append(f"  policy: {metadata.get('policy_digest', 'none was asked')}")
        lines.append(f"  result: {self._result_text()}")
        lines += self._refused_lines()
        # Threat: an action, a name or a reason with line breaks would draw rows of its own.
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
        """What a command changed and policy did not let stand."""
        if self.result is None:
            return []
        metadata = self.result.entry.metadata
        refused = _objects(metadata.get("refused"))
        lines = [f"  refused: {each.get('path')}: {each.get('rule')}" for each in refused]
        total = metadata.get("refused_total")
        more = total - len(refused) if isinstance(total, int) else 0
        return [*lines, f"  refused: {more} more"] if more > 0 else lines


def is_denied_unasked(entry: Entry) -> bool:
    """Whether policy did not deny it, and a client was told no: it could not ask a person."""
    metadata = entry.metadata
    is_hooks = entry.event_type == HOOK_DECISION and "outcome" in metadata
    return is_hooks and metadata.get("answer") == "deny" != metadata["outcome"]


def tell_calls(kept: Iterable[Kept], call_id: str) -> tuple[RecordedCall, ...]:
    """Return the calls of that id, newest first; `kept` are its entries, oldest first.

    An id is a client's and may come again: each decided entry is a call of its own.
    """
    calls: list[RecordedCall] = []
    for row in kept:
        entry = row.entry
        if call_id not in (entry.call_id, entry.metadata.get("client_call")):
            continue
        before = calls[-1] if calls else None
        is_same = before is not None and before.result is None and _is_one(before, entry)
        if entry.event_type == TOOL_RESULT:
            if before is not None and is_same:
                calls[-1] = RecordedCall(before.decided, row)
        elif before is not None and is_same and before.decided.entry.event_type == TOOL_STAGED:
            calls[-1] = RecordedCall(row, None)
        elif entry.event_type in DECIDED_EVENTS:
            calls.append(RecordedCall(row, None))
    return tuple(reversed(calls))


def with_question(call: RecordedCall, asked: Iterable[Entry]) -> RecordedCall:
    """Return the call with the reason of the rule that asked; `asked` are entries of questions.

    The entry of a call that was not granted says why not, and not why it was asked about.
    """
    entry = call.decided.entry
    digest = _approval_digest(entry)
    is_ask = entry.decision == "deny" and entry.metadata.get("outcome") in _ASKED
    if not is_ask or not digest or _is_granted(entry):
        return call
    for question in asked:
        is_its = (question.call_id, question.session_id, question.metadata.get("digest")) == (
            entry.call_id,
            entry.session_id,
            digest,
        )
        if question.event_type == APPROVAL_ASKED and is_its:
            return replace(call, asked_because=question.reason)
    return call


def _approval_digest(entry: Entry) -> str:
    approval = entry.metadata.get("approval")
    if not isinstance(approval, dict):
        return ""
    digest = cast("dict[str, Json]", approval).get("digest")
    return digest if isinstance(digest, str) else ""


def _is_one(before: RecordedCall, entry: Entry) -> bool:
    decided = before.decided.entry
    return decided.session_id == entry.session_id and decided.metadata.get(
        "tool"
    ) == entry.metadata.get("tool")


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
    rule = metadata.get("rule")
    if not isinstance(rule, dict):
        return "none matched, and unknown is no"
    kept = cast("dict[str, Json]", rule)
    said = [str(metadata.get("outcome")), _place(kept)]
    # Of an approved call the record keeps the approver there, who is no place of a rule.
    if not isinstance(metadata.get("approval"), dict):
        said.insert(1, str(metadata.get("source")))
    return f"{kept.get('text')} ({', '.join(said)})"


def _match_text(match: Mapping[str, Json]) -> str:
    return f"{match.get('text')} ({match.get('outcome')}, {_place(match)})"


def _place(rule: Mapping[str, Json]) -> str:
    line = rule.get("line")
    return place_text(str(rule.get("file", "")), line if type(line) is int else 0)


def _is_same(match: Mapping[str, Json], rule: Json) -> bool:
    if not isinstance(rule, dict):
        return False
    kept = cast("dict[str, Json]", rule)
    return all(match.get(name) == kept.get(name) for name in ("text", "file", "line"))


def _approval_lines(entry: Entry) -> list[str]:
    approval = entry.metadata.get("approval")
    if not isinstance(approval, dict):
        return []
    kept = cast("dict[str, Json]", approval)
    how, said = ("approved by", "") if _is_granted(entry) else ("answered by", " (not granted)")
    return [f"  {how}: {quote_toml(kept.get('by'))}{said}, bound to {kept.get('digest')}"]


def _is_granted(entry: Entry) -> bool:
    """Whether the answer was yes; of a call that was stopped or not recorded after it, too."""
    has_answer = isinstance(entry.metadata.get("approval"), dict)
    return has_answer and not str(entry.metadata.get("code", "")).startswith("approval.")


def _agents_text(metadata: Mapping[str, Json]) -> str:
    agents = _objects(metadata.get("agents"))
    return ", ".join(f"{each.get('name')} (profile {each.get('profile')})" for each in agents)


def _objects(kept: Json) -> list[dict[str, Json]]:
    if not isinstance(kept, list):
        return []
    return [each for each in cast("list[Json]", kept) if isinstance(each, dict)]


def _texts(kept: Json) -> list[str]:
    if not isinstance(kept, list):
        return []
    return [each for each in cast("list[Json]", kept) if isinstance(each, str)]
