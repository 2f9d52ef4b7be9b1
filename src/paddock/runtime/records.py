"""Build the ledger entries of a call, its decision, its outcome and its approvals.

From them a decision can be repeated and an effect checked. Content that a tool declares as
such, and any long text, is kept as a salted digest, which resists precomputed tables.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from paddock.errors import ApprovalRefusedError, CallCancelledError
from paddock.limits import command_bytes_max, effects_listed_max
from paddock.runtime.approvals import Approval, ApprovalRequest, shown_digest
from paddock.runtime.prepared import Begun, Caller, Contents, Failed, Judged, Prepared, Ran
from paddock.text.json import canonical_json
from paddock.text.show import cut, text_of
from paddock.tools.arguments import Argument
from paddock.tools.spec import Change, Tool, ToolOutput
from paddock.values.calls import (
    ClosedConnection,
    Json,
    LeftEffect,
    OpenedConnection,
    Refusal,
    RefusedConnection,
)
from paddock.values.decisions import match_in_brief, rule_in_brief
from paddock.values.entries import (
    APPROVAL_ANSWERED,
    APPROVAL_ASKED,
    NET_CLOSED,
    NET_CONNECT,
    NET_REFUSED,
    TOOL_DENIED,
    TOOL_INTENT,
    TOOL_RESULT,
    TOOL_STAGED,
    Entry,
    clean,
    digest_of,
    digest_of_json,
    is_plain,
)

if TYPE_CHECKING:
    from paddock.policy.settings import McpServer
    from paddock.runtime.inbox import Parked
    from paddock.storage.history import BlobStore
    from paddock.storage.notes import CallMark

_TEXT_KEPT_MAX: Final = 4096
"""In characters; a longer argument text is kept as a digest."""
_ACTION_CHARS_MAX: Final = command_bytes_max + _TEXT_KEPT_MAX
_ACTION_KEPT_MAX: Final = 16_384
"""Characters kept of a longer action (only a program's command is), with its full digest."""
_NAME_KEPT_MAX: Final = 200
_NAME_DIGITS: Final = 16
"""Hex digits of a cut name's digest, which distinguish it from another."""
_ARGUMENTS_KEPT_MAX: Final = 100
"""Arguments kept, so that every call fits in its entry; the rest are counted."""
_WHOLE_BYTES_MAX: Final = 65_536
"""Maximum for arguments that policy keeps whole; larger ones are kept as a digest."""
_SALT_BYTES: Final = 16
_UNDECLARED: Final[Mapping[str, Argument]] = {}


class DigestsAlone(Struct, frozen=True):
    """Keeps no content. The salt is in the entry: a short content can still be guessed."""

    randomness: Callable[[int], bytes]

    def stand_in(self, content: bytes) -> dict[str, Json]:
        salt = self.randomness(_SALT_BYTES)
        digest = hashlib.sha256(salt + content).hexdigest()
        return {"salted_sha256": digest, "salt": salt.hex(), "bytes": len(content)}

    def sync(self) -> None:
        pass


class KeptContents(Struct, frozen=True):
    blobs: "BlobStore"
    """Also keeps the salt: once both are erased the content cannot be guessed."""

    def stand_in(self, content: bytes) -> dict[str, Json]:
        return {"salted_sha256": self.blobs.put(content), "bytes": len(content)}

    def sync(self) -> None:
        self.blobs.sync()


class Recorder:
    def __init__(self, caller: Caller) -> None:
        self._agent = caller.agent
        self._session = caller.session_id
        self._chain = caller.chain_json()

    def intent(self, ready: Prepared) -> Entry:
        metadata: dict[str, Json] = {"tool": ready.call.tool, "arguments": ready.arguments}
        metadata |= _actions_json(ready.actions) | self._judgement(ready.judged)
        return self._entry(TOOL_INTENT, ready, "allow", ready.judged.decision.reason, metadata)

    def staged(self, ready: Prepared) -> Entry:
        return self.intent(ready)._replace(event_type=TOOL_STAGED, decision="ask")

    def outcome(self, ready: Prepared, ran: Ran, duration_us: int, intent: str = "") -> Entry:
        """`intent` is the id of the intent's entry, if it was recorded before the call ran."""
        reason = ""
        if isinstance(ran, Failed):
            reason, said, metadata = ran.refusal.error, ran.refusal.as_text(), _failed_json(ran)
        else:
            said, metadata = ran.content, _output_json(ran)
        metadata = {
            "tool": ready.call.tool,
            **metadata,
            "duration_us": duration_us,
            "result_digest": digest_of(said.encode("utf-8", "surrogatepass")),
        }
        if intent and (isinstance(ran, Failed) or ran.changes or ran.bytes_written):
            metadata["intent"] = intent
        return self._entry(TOOL_RESULT, ready, "allow", reason, metadata)

    def denied(
        self,
        call: Begun | Prepared,
        arguments: Mapping[str, Json],
        refusal: Refusal,
        frames: Sequence[str] = (),
    ) -> Entry:
        metadata: dict[str, Json] = {"tool": kept_name(call.call.tool), "arguments": arguments}
        metadata |= _actions_json(call.actions) | {"code": refusal.code}
        if refusal.code == CallCancelledError.code:
            metadata["effect"] = LeftEffect.NONE.value
        if frames:
            metadata["frames"] = list(frames)
        judged = call.judged
        metadata |= {"agents": self._chain} if judged is None else self._judgement(judged)
        return self._entry(TOOL_DENIED, call, "deny", refusal.error, metadata)

    def opened(self, ready: Prepared, event: OpenedConnection) -> Entry:
        return self._entry(NET_CONNECT, ready, "allow", event.rule, _connection_json(event))

    def closed(self, ready: Prepared, event: ClosedConnection) -> Entry:
        metadata: dict[str, Json] = {
            **_connection_json(event.opened),
            "server_name": clean(event.server_name),
            "sent_bytes": event.sent_bytes,
            "received_bytes": event.received_bytes,
            "duration_us": int(event.duration_s * 1_000_000),
        }
        return self._entry(NET_CLOSED, ready, "", event.ending, metadata)

    def unreached(self, ready: Prepared, event: RefusedConnection) -> Entry:
        metadata: dict[str, Json] = {"host": clean(event.host), "port": event.port}
        if event.count > 1:
            metadata["count"] = event.count
        return self._entry(NET_REFUSED, ready, "deny", event.why, metadata)

    def mark(self, ready: Prepared, intent: str) -> "CallMark":
        from paddock.storage.notes import CallMark  # noqa: PLC0415 - only for writes

        call = ready.call
        return CallMark(kept_name(call.id), call.tool, self._agent, self._session, intent)

    def _entry(
        self,
        event: str,
        call: Begun | Prepared,
        decision: str,
        reason: str,
        metadata: dict[str, Json],
    ) -> Entry:
        bounds = call.bounds
        if bounds.client_call:
            metadata["client_call"] = kept_name(bounds.client_call)
        if bounds.door:
            metadata["door"] = bounds.door
        call_id = kept_name(call.call.id)
        caller = (self._session, self._agent, call_id)
        return Entry(event, bounds.order_id, decision, clean(reason), *caller, metadata)

    def _judgement(self, judged: Judged) -> dict[str, Json]:
        decision, approved_by, approval_digest = judged
        rule, found = decision.rule, dict[str, Json]()
        if len(decision.matched) > 1:
            found["matched"] = [match_in_brief(match) for match in decision.matched]
        if decision.warnings:
            found["warnings"] = list(decision.warnings)
        if decision.enforcement:
            found["enforcement"] = decision.enforcement
        if approval_digest:
            found["approval"] = {"by": approved_by, "digest": approval_digest}
        return found | {
            "outcome": decision.outcome.word,
            "rule": rule_in_brief(rule),
            "source": approved_by or ("no rule" if rule is None else rule.source),
            "policy_digest": decision.policy_digest,
            "agents": self._chain,
        }


def _output_json(output: ToolOutput) -> dict[str, Json]:
    found: dict[str, Json] = {
        "status": "ok",
        "effects": [_change_json(change) for change in output.changes],
        "bytes_written": output.bytes_written,
    }
    if output.exit is not None:
        found["exit"] = output.exit.code
        if output.exit.timed_out:
            found["timed_out"] = True
        if output.exit.causes:
            found["fence"] = [clean(each) for each in output.exit.causes]
        if output.exit.kept:
            found["output_kept"] = {
                each.stream: {"digest": each.digest, "bytes": each.kept_bytes}
                for each in output.exit.kept
            }
    if output.stored is not None:
        stored = output.stored
        found["effects_stored"] = {"digest": stored.digest, "total": stored.total}
    if output.pending:
        found["pending"] = output.pending
    if output.refused:
        found["refused"] = [
            {"path": clean(path), "code": code, "rule": clean(rule)}
            for path, code, rule in output.refused[:effects_listed_max]
        ]
        found["refused_total"] = len(output.refused) + output.refused_more
    return found


def _failed_json(failed: Failed) -> dict[str, Json]:
    changes = [_change_json(change) for change in failed.changes]
    found: dict[str, Json] = {
        "status": "error",
        "code": failed.refusal.code,
        "effects": changes if failed.is_known else "unknown",
    }
    if failed.is_known and not changes:
        found["bytes_written"] = 0
    if failed.effect is not None:
        found["effect"] = failed.effect.value
    if failed.frames:
        found["frames"] = list(failed.frames)
    return found


def _connection_json(event: OpenedConnection) -> dict[str, Json]:
    return {
        "host": clean(event.host),
        "port": event.port,
        "address": event.address,
        "server_name": clean(event.server_name),
    }


def _actions_json(actions: Sequence[str]) -> dict[str, Json]:
    is_long = any(len(action) > _ACTION_CHARS_MAX for action in actions)
    if len(actions) <= effects_listed_max and not is_long:
        return {"actions": actions}
    found: dict[str, Json] = {}
    kept = [cut(action, _ACTION_KEPT_MAX) if is_long else action for action in actions]
    if len(actions) > effects_listed_max:
        more = f"{len(actions) - effects_listed_max} more actions"
        kept = [*kept[:effects_listed_max], more]
        found["actions_total"] = len(actions)
    return {**found, "actions": kept, "actions_digest": digest_of_json(list(actions))}


def _change_json(change: Change) -> dict[str, Json]:
    from paddock.tools.effects import change_json  # noqa: PLC0415 - only for writes

    kept = change_json(change)
    kept["path"] = clean(change.path)
    if change.to is not None:
        kept["to"] = clean(change.to)
    if change.made:
        kept["made"] = [clean(name) for name in change.made]
    return kept


def kept_arguments(
    given: Mapping[str, Json], tool: Tool[Any] | None, contents: Contents
) -> dict[str, Json]:
    """Return a call's arguments as a ledger entry keeps them.

    A text that the tool declares as content, of an unknown name, that is long, or that holds what a
    line must not (NUL, a lone surrogate) becomes the stand-in from `contents`; so does any nested
    value, as its JSON text. Raises: as `Contents.stand_in`.
    """
    if tool is not None and tool.spec.recording is not None:
        return _kept_as_policy_says(given, tool.spec.recording, contents)
    declared: Mapping[str, Argument] = _UNDECLARED if tool is None else tool.binder.declared
    kept: dict[str, Json] = {}
    members = given.items()
    if len(given) > _ARGUMENTS_KEPT_MAX:
        members = islice(members, _ARGUMENTS_KEPT_MAX)
    for name, value in members:
        argument = declared.get(name)
        if type(value) is str:
            is_content = argument is None or argument.is_content
            if not is_content and len(value) <= _TEXT_KEPT_MAX and is_plain(value):
                kept[name] = value
                continue
        elif value is None or type(value) is bool or (type(value) is int and abs(value) < 2**53):
            kept[kept_name(str(name))] = value
            continue
        text = value if isinstance(value, str) else text_of(value)
        stand_in = contents.stand_in(text.encode("utf-8", "surrogatepass"))
        kept[kept_name(str(name))] = stand_in
    if len(given) > _ARGUMENTS_KEPT_MAX:
        kept["…"] = f"{len(given) - _ARGUMENTS_KEPT_MAX} more arguments"
    return kept


def _kept_as_policy_says(
    given: Mapping[str, Json], server: "McpServer", contents: Contents
) -> dict[str, Json]:
    from paddock.ledger.format.line import encode_members  # noqa: PLC0415 - few tools need it
    from paddock.policy.arguments import redact  # noqa: PLC0415 - as above

    kept = redact(dict(given), server.redact)
    text = canonical_json(kept)
    try:
        encode_members({"metadata": {"arguments": kept}})
        is_whole = server.record == "whole" and len(text.encode()) <= _WHOLE_BYTES_MAX
    except ValueError:
        is_whole = False
    # Threat: a secret would be in the store if the text were taken before it is redacted.
    return kept if is_whole else {"…": contents.stand_in(text.encode("utf-8", "surrogatepass"))}


def kept_name(name: str) -> str:
    missing = len(name) - _NAME_KEPT_MAX
    if missing <= 0:
        return name if is_plain(name) else clean(name)
    # Threat: two long names with the same beginning would be recorded as one.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_NAME_DIGITS]
    return f"{clean(name[:_NAME_KEPT_MAX])}… ({missing} more characters, sha256 {digest})"


# The governance ledger's record of approvals is authoritative: a grant in the inbox is
# valid only if it is recorded there as granted, and not as used. It has the digest of a
# call, and never the arguments.

GRANTED: Final = "granted"
"""A kept request was granted; the grant waits for its call."""
REFUSED: Final = "refused"
ALWAYS: Final = "always"
"""A rule was written that allows it from now on."""
USED: Final = "used"
"""The grant was used up by the call that this entry names."""
KEPT: Final = "kept"
"""The request waits in the inbox, without an answer."""
DEFERRED: Final = "deferred"
"""The program puts the question to a person, then calls again with the answer."""


def approval_asked(request: ApprovalRequest) -> Entry:
    return _entry_of(APPROVAL_ASKED, request, "ask", {})._replace(reason=clean(request.reason))


def approval_answered(request: ApprovalRequest, approval: Approval) -> Entry:
    answer: dict[str, Json] = {"by": clean(approval.by), "note": clean(approval.note)}
    if not approval.is_granted:
        answer["code"] = approval.code
    if approval.request_id:
        answer["request"] = approval.request_id
        is_no = approval.code == ApprovalRefusedError.code
        answer["answer"] = USED if approval.is_granted else REFUSED if is_no else KEPT
    if answer.get("answer") == KEPT:
        # The digest of the question as asked, not as its file has it now.
        answer["shown"] = shown_digest(request)
    if approval.changes_digest:
        answer["changes"] = approval.changes_digest
    if approval.is_deferred and not approval.is_granted:
        return _entry_of(APPROVAL_ANSWERED, request, "ask", {**answer, "answer": DEFERRED})
    decision = "allow" if approval.is_granted else "deny"
    return _entry_of(APPROVAL_ANSWERED, request, decision, answer)


def answered_later(parked: "Parked", answer: str) -> Entry:
    members: dict[str, Json] = {
        "by": clean(parked.answered_by),
        "note": clean(parked.note),
        "request": parked.id,
        "answer": answer,
        "expires_at": parked.expires_at,
    }
    decision = "deny" if answer == REFUSED else "allow"
    return _entry_of(APPROVAL_ANSWERED, parked.request, decision, members)


def _entry_of(
    event: str, request: ApprovalRequest, decision: str, more: Mapping[str, Json]
) -> Entry:
    return Entry(
        event_type=event,
        decision=decision,
        session_id=request.session_id,
        agent=request.agent,
        call_id=kept_name(request.call_id),
        metadata={
            "digest": request.digest,
            "tool": request.tool,
            "actions": [clean(action) for action in request.actions],
            "rule": clean(request.rule),
            **more,
        },
    )
