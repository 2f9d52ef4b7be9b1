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
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import digest_of_json

FORMAT: Final = 1
State = Literal["waiting", "granted", "refused"]
_TIME_MAX: Final = 253_402_300_799
"""The end of the year 9999: no calendar here goes further."""
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
    changes: Json = None
    """What a command left, to be committed if somebody says yes; None of any other call."""

    @property
    def changes_digest(self) -> str:
        """What the ledger says of `changes`; empty where there are none."""
        return "" if self.changes is None else digest_of_changes(self.changes)

    @property
    def pin(self) -> str:
        """The name under which the history keeps the contents of `changes`."""
        return pin_name(self.id)

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
            "warnings": list(request.warnings),
            "digest": request.digest,
            "policy_digest": request.policy_digest,
            "target_digest": request.target_digest,
            "has_changes": self.changes is not None,
            "call_id": request.call_id,
            "session_id": request.session_id,
            "parked_at": self.parked_at,
            "expires_at": self.expires_at,
            "answered_by": self.answered_by,
            "note": self.note,
        }


def pin_name(identity: str) -> str:
    """The name for the contents of the request with this id."""
    return f"parked-{identity}"


def write_parked(parked: Parked) -> bytes:
    """The content of its file."""
    members = {
        "format": FORMAT,
        **parked.summary(),
        "arguments": dict(parked.request.arguments),
        "filled": dict(parked.request.filled),
        "diff": parked.request.diff,
        "changes": parked.changes,
    }
    # ASCII: an argument may hold what is no UTF-8, such as half of a surrogate pair.
    return json.dumps(members, ensure_ascii=True, indent=1).encode("ascii") + b"\n"


_KEYS: Final = frozenset(
    "format id state agent tool actions reason rule digest policy_digest target_digest call_id "
    "session_id parked_at expires_at answered_by note arguments filled diff changes "
    "has_changes warnings".split()
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
        arguments=_arguments(fields, "arguments"),
        actions=_texts(fields, "actions"),
        agent=fields.text("agent"),
        reason=fields.text("reason"),
        rule=fields.text("rule"),
        policy_digest=fields.text("policy_digest"),
        target_digest=fields.text("target_digest"),
        call_id=fields.text("call_id"),
        session_id=fields.text("session_id"),
        # Of an older version there are none, and its digest is none of ours either.
        filled=_arguments(fields, "filled") if "filled" in fields.members else {},
        # Nor does an older one say what policy warned of.
        warnings=_texts(fields, "warnings") if "warnings" in fields.members else (),
        diff=fields.text("diff"),
    )
    return Parked(
        id=fields.text("id"),
        request=request,
        parked_at=_time(fields, "parked_at"),
        expires_at=_time(fields, "expires_at"),
        state=fields.choice("state", STATES, "waiting"),
        answered_by=fields.text("answered_by"),
        note=fields.text("note"),
        changes=fields.members.get("changes"),
    )


def _time(fields: Fields, name: str) -> int:
    seconds = fields.number(name)
    if not 0 <= seconds <= _TIME_MAX:
        raise fields.error(
            name, f"{quote(name)} is no time: {quote(str(seconds))}", f"write 0 to {_TIME_MAX}"
        )
    return seconds


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    """As the call brought them: one may stand there twice."""
    value: Json = fields.members.get(name)
    if not isinstance(value, list):
        raise fields.error(name, f"{quote(name)} is not a list", "write a list of strings")
    texts = cast("list[Json]", value)
    found = tuple(text for text in texts if isinstance(text, str))
    if len(found) != len(texts):
        raise fields.error(name, f"{quote(name)} holds what is no text", "write strings alone")
    return found


def digest_of_changes(changes: Json) -> str:
    """SHA-256 over the changes' canonical JSON."""
    return digest_of_json(changes)


def _arguments(fields: Fields, name: str) -> Mapping[str, Json]:
    value: Json = fields.members.get(name)
    if not isinstance(value, dict):
        raise ConfigError(
            f"the {name} are no object", where=fields.place(name), hint="remove the file"
        )
    return cast("dict[str, Json]", value)
