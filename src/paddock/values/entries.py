"""Ledger entries before they have a place in the chain, and their event types."""

import json
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from paddock.values.calls import Json

_NO_METADATA: "Final[Mapping[str, Json]]" = MappingProxyType({})


class Entry(NamedTuple):
    """One record without its id, time and place, which the ledger adds.

    Strings are empty if a field does not apply. A named tuple is fast: every call makes two.
    """

    event_type: str
    submission_id: str = ""
    decision: str = ""
    reason: str = ""
    session_id: str = ""
    agent: str = ""
    call_id: str = ""
    metadata: "Mapping[str, Json]" = _NO_METADATA


def is_plain(value: str) -> bool:
    """Return True if a ledger line can hold the text: no NUL, no lone surrogates."""
    if value.isascii():
        return "\0" not in value
    return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def clean(value: str) -> str:
    """Escape the characters that a ledger line refuses."""
    if is_plain(value):
        return value
    return "".join(
        f"\\u{ord(c):04x}" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in value
    )


# An event type keeps its meaning once it was written. Names are upper case with underscores, and
# each is its own value. Readers accept unknown names.

GENESIS: Final = "GENESIS"
LEDGER_RECOVERED: Final = "LEDGER_RECOVERED"
"""A torn tail was cut off and quarantined; metadata has its size and place."""

TOOL_INTENT: Final = "TOOL_INTENT"
"""A call is about to run: bound arguments, actions, decision with its rule."""
TOOL_RESULT: Final = "TOOL_RESULT"
"""The result of that call; same `session_id` and `call_id`."""
TOOL_DENIED: Final = "TOOL_DENIED"
"""A call that did not run, with the code of its refusal."""

TOOL_STAGED: Final = "TOOL_STAGED"
"""A call runs on a stage, so that a person can approve its changes; none is applied yet.
An intent and a result follow, or a denial."""

NET_CONNECT: Final = "NET_CONNECT"
"""A command's connection is about to be opened: to which name, port and address, by which rule."""
NET_CLOSED: Final = "NET_CLOSED"
"""The end of that connection: bytes in both directions, duration, reason."""
NET_REFUSED: Final = "NET_REFUSED"
"""A name or connection that a command requested and was refused, and the reason."""

PLANE_CREATED: Final = "PLANE_CREATED"
POLICY_LOADED: Final = "POLICY_LOADED"
POLICY_GIVEN: Final = "POLICY_GIVEN"
"""A program opened the workspace with its own policy."""
POLICY_TRUSTED: Final = "POLICY_TRUSTED"
MCP_REVIEWED: Final = "MCP_REVIEWED"
"""A person reviewed the definitions of an MCP server; only these are offered from now on."""
CONFIG_CHANGED: Final = "CONFIG_CHANGED"
DUAL_GATE: Final = "DUAL_GATE"
APPROVAL_ASKED: Final = "APPROVAL_ASKED"
APPROVAL_ANSWERED: Final = "APPROVAL_ANSWERED"
GATE_RESULT: Final = "GATE_RESULT"
AGENT_CREATED: Final = "AGENT_CREATED"
AGENT_CHANGED: Final = "AGENT_CHANGED"
AGENT_REMOVED: Final = "AGENT_REMOVED"

SESSION_START: Final = "SESSION_START"
"""A session was opened or reopened: agent, model, tools, state of the dual gate."""
SESSION_END: Final = "SESSION_END"
TURN_RECORDED: Final = "TURN_RECORDED"
"""One turn, however it ended: message, response, outcome."""
WO_PLANNED: Final = "WO_PLANNED"
WO_DISPATCHED: Final = "WO_DISPATCHED"
WO_CHAIN_COMPLETE: Final = "WO_CHAIN_COMPLETE"
QUALITY_GATE: Final = "QUALITY_GATE"
ESCALATION: Final = "ESCALATION"
"""No result of a turn was accepted: a person has to check."""
DEGRADATION: Final = "DEGRADATION"
"""A turn continued without something, or its answer is incomplete."""

LLM_CALL: Final = "LLM_CALL"
"""One exchange with a model: request digest, model, usage, stop, latency."""
WO_COMPLETED: Final = "WO_COMPLETED"
WO_FAILED: Final = "WO_FAILED"
HOOK_DECISION: Final = "HOOK_DECISION"
"""A client's tool was judged; metadata has the answer to the client."""
HOOK_EVENT: Final = "HOOK_EVENT"
"""Another event that a client reported to its hook, as the end of a call or start of a session."""

CONTENT_ERASED: Final = "CONTENT_ERASED"
"""Contents that entries name by a salted digest were erased, with their salts."""

CHECKPOINT: Final = "CHECKPOINT"
"""The signed head of the tier below, once for each opening."""
CHECKPOINT_ACCEPTED: Final = "CHECKPOINT_ACCEPTED"
"""The signed head of another host's ledger, whose lines a collector accepted."""
ROLLBACK_ACCEPTED: Final = "ROLLBACK_ACCEPTED"
"""A person accepted the rollback of a ledger; earlier checkpoints no longer count."""
PACKAGE_INSTALLED: Final = "PACKAGE_INSTALLED"
PACKAGE_UNINSTALLED: Final = "PACKAGE_UNINSTALLED"
PACKAGE_APPROVED: Final = "PACKAGE_APPROVED"
"""An installed package without an approval got one."""
PACKAGE_SET_SIGNED: Final = "PACKAGE_SET_SIGNED"
"""An operator approved all installed packages, and set the keys that count from now on."""
OPERATOR_KEY_ENROLLED: Final = "OPERATOR_KEY_ENROLLED"
"""A public key may approve changes of the plane from now on."""

EVENT_TYPES: Final = frozenset(name for name, value in tuple(globals().items()) if name == value)
"""All known types. Any other name in a query may be a spelling mistake."""

DIGEST_PREFIX: Final = "sha256:"


def digest_of(*pieces: bytes | memoryview) -> str:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return DIGEST_PREFIX + digest.hexdigest()


def digest_of_json(value: "Json") -> str:
    """Return the digest of a value's canonical JSON: ASCII, members sorted by name, no white space.

    Raises: TypeError, ValueError: it is not a JSON value.
    """
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return digest_of(text.encode("ascii"))
