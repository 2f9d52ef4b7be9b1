"""A call that waits for somebody's answer, as its file keeps it. Pure.

The arguments are kept whole, for the call may be resumed: the file is private to the
plane's owner (mode 0600), and ledgers hold only the digest.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from paddock.errors import ConfigError
from paddock.plane.strict_json import Fields, parse_object
from paddock.runtime.approvals import ApprovalRequest
from paddock.values.calls import Json

FORMAT: Final = 1
State = Literal["waiting", "granted", "refused"]
STATES: Final[tuple[State, ...]] = ("waiting", "granted", "refused")


@dataclass(frozen=True, slots=True)
class Parked:
    """A request of the inbox. Times are whole seconds since 1970."""

    id: str
    request: ApprovalRequest
    parked_at: int
    expires_at: int
    """Of a request that waits: when it is forgotten; of a grant: when it counts no more."""
    state: State = "waiting"
    answered_by: str = ""
    note: str = ""

    def is_expired(self, now: float) -> bool:
        """Whether its time is over."""
        return now >= self.expires_at

    def summary(self) -> dict[str, Json]:
        """What a list shows of it: all but the arguments."""
        request = self.request
        return {
            "id": self.id,
            "state": self.state,
            "agent": request.agent,
            "tool": request.tool,
            "actions": list(request.actions),
            "reason": request.reason,
            "rule": request.rule,
            "digest": request.digest,
            "policy_digest": request.policy_digest,
            "target_digest": request.target_digest,
            "call_id": request.call_id,
            "session_id": request.session_id,
            "parked_at": self.parked_at,
            "expires_at": self.expires_at,
            "answered_by": self.answered_by,
            "note": self.note,
        }


def write_parked(parked: Parked) -> bytes:
    """The content of its file."""
    members = {
        "format": FORMAT,
        **parked.summary(),
        "arguments": dict(parked.request.arguments),
    }
    # ASCII: an argument may hold what is no UTF-8, such as half of a surrogate pair.
    return json.dumps(members, ensure_ascii=True, indent=1).encode("ascii") + b"\n"


_KEYS: Final = frozenset(
    "format id state agent tool actions reason rule digest policy_digest target_digest call_id "
    "session_id parked_at expires_at answered_by note arguments".split()
)


def parse_parked(content: bytes, file: str) -> Parked:
    """The request that a file holds; `file` is for messages.

    Raises: ConfigError: it is none.
    """
    fields = parse_object(content, file)
    fields.require_only(_KEYS)
    if fields.number("format") != FORMAT:
        raise fields.error("format", "this Paddock does not know the format", "remove the file")
    request = ApprovalRequest(
        digest=fields.text("digest"),
        tool=fields.text("tool"),
        arguments=_arguments(fields),
        actions=fields.texts("actions", ()),
        agent=fields.text("agent"),
        reason=fields.text("reason"),
        rule=fields.text("rule"),
        policy_digest=fields.text("policy_digest"),
        target_digest=fields.text("target_digest"),
        call_id=fields.text("call_id"),
        session_id=fields.text("session_id"),
    )
    return Parked(
        id=fields.text("id"),
        request=request,
        parked_at=fields.number("parked_at"),
        expires_at=fields.number("expires_at"),
        state=fields.choice("state", STATES, "waiting"),
        answered_by=fields.text("answered_by"),
        note=fields.text("note"),
    )


def _arguments(fields: Fields) -> Mapping[str, Json]:
    value: Json = fields.members.get("arguments")
    if not isinstance(value, dict):
        raise ConfigError(
            "the arguments are no object", where=fields.place("arguments"), hint="remove the file"
        )
    return cast("dict[str, Json]", value)
