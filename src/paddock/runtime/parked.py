"""A call that waits for somebody's answer: as its file keeps it, and as it is on record. Pure.

The arguments are kept whole, for the call may be resumed: the file is private to the
plane's owner (mode 0600), and ledgers hold only the digest.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

from msgspec import Meta, Struct

from paddock.plane.json_files import JsonFile, parse_file
from paddock.runtime.approvals import ApprovalRequest, shown_digest
from paddock.runtime.records import GRANTED, KEPT, REFUSED, USED
from paddock.text.json import Strict
from paddock.values.calls import Json
from paddock.values.entries import digest_of_json

FORMAT: Final = 1
State = Literal["waiting", "granted", "refused"]
_TIME_MAX: Final = 253_402_300_799
"""The end of the year 9999: no calendar here goes further."""


class Parked(Struct, frozen=True):
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
        return "" if self.changes is None else digest_of_json(self.changes)

    @property
    def pin(self) -> str:
        return pin_name(self.id)

    def is_expired(self, now: float) -> bool:
        return now >= self.expires_at

    def as_json(self) -> dict[str, Json]:
        request = self.request
        given = {"arguments": dict(request.arguments), "filled": dict(request.filled)}
        return {**self.summary(), **given, "diff": request.diff}

    def summary(self) -> dict[str, Json]:
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
    return f"parked-{identity}"


def write_parked(parked: Parked) -> bytes:
    members = {
        "format": FORMAT,
        **parked.as_json(),
        "changes": parked.changes,
    }
    # ASCII: an argument may hold what is no UTF-8, such as half of a surrogate pair.
    return json.dumps(members, ensure_ascii=True, indent=1).encode("ascii") + b"\n"


_Time = Annotated[int, Meta(ge=0, le=_TIME_MAX)]


class _ParkedFile(Strict, frozen=True, kw_only=True):
    format: int
    id: str
    state: State = "waiting"
    agent: str
    tool: str
    actions: tuple[str, ...]
    reason: str
    rule: str
    digest: str
    policy_digest: str
    target_digest: str
    call_id: str
    session_id: str
    parked_at: _Time
    expires_at: _Time
    answered_by: str
    note: str
    diff: str
    has_changes: Any = None
    # An older version says neither what policy warned of, nor what was filled in; its digest is
    # none of ours either.
    warnings: tuple[str, ...] = ()


_OF_THE_CALL: Final = ("arguments", "filled")


def parse_parked(content: bytes, file: str) -> Parked:
    given = parse_file(content, file)
    # What the call brought may hold half of a surrogate pair, and the rest not.
    brought = {name: given.members.get(name, {}) for name in (*_OF_THE_CALL, "changes")}
    rest = {name: each for name, each in given.members.items() if name not in brought}
    read = JsonFile(file, rest, content).convert(_ParkedFile)
    if read.format != FORMAT:
        raise given.error("format", "this Paddock does not know the format", "remove the file")
    for name in _OF_THE_CALL:
        if not isinstance(brought[name], dict) or "arguments" not in given.members:
            raise given.error(name, f"the {name} are no object", "remove the file")
    request = ApprovalRequest(
        **{
            name: getattr(read, name)
            for name in ApprovalRequest.__struct_fields__
            if name in read.__struct_fields__
        },
        **cast("Any", {name: brought[name] for name in _OF_THE_CALL}),
    )
    return Parked(
        id=read.id,
        request=request,
        parked_at=read.parked_at,
        expires_at=read.expires_at,
        state=read.state,
        answered_by=read.answered_by,
        note=read.note,
        changes=given.members.get("changes"),
    )


class Answers(Struct, frozen=True):
    rows: Sequence[Mapping[str, Json]]

    def is_kept(self, parked: Parked) -> bool:
        return any(_keeps(answer, parked) for answer in self._to(parked))

    def is_granted(self, parked: Parked, now: float) -> bool:
        # Threat: the file of a grant that was taken back is put in its place again.
        said = [row for row in self._to(parked) if row.get("answer") in (GRANTED, REFUSED)]
        return bool(said) and _counts(said[0], parked, now) and not self.is_used(parked)

    def is_used(self, parked: Parked) -> bool:
        return any(answer.get("answer") == USED for answer in self._to(parked))

    def _to(self, parked: Parked) -> Sequence[Mapping[str, Json]]:
        return [row for row in self.rows if row.get("request") == parked.id]


def _keeps(answer: Mapping[str, Json], parked: Parked) -> bool:
    shown = shown_digest(parked.request)
    return (
        answer.get("answer") == KEPT
        and answer.get("digest") == parked.request.digest
        and answer.get("changes", "") == parked.changes_digest
        # An earlier version recorded no digest of what is shown; such a request ends in a day.
        and answer.get("shown", shown) == shown
    )


def _counts(answer: Mapping[str, Json], parked: Parked, now: float) -> bool:
    until = answer.get("expires_at")
    return (
        answer.get("answer") == GRANTED
        and answer.get("digest") == parked.request.digest
        and type(until) is int
        and now < until
    )
