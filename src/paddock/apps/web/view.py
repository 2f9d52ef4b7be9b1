"""The served plane; entries, refusals and errors as JSON for the page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, cast

from msgspec import Meta, Struct
from starlette.responses import Response

from paddock.apps.command import fields, operator
from paddock.assembly.project import PlaneSite, Project, read_project
from paddock.assembly.project_open import open_root
from paddock.errors import (
    ApprovalExpiredError,
    ApprovalUnavailableError,
    ConfigError,
    LedgerDamagedError,
    PaddockError,
    PermissionDeniedError,
    UsageError,
)
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import BadRow
from paddock.ledger.read import stands
from paddock.plane.layout import LedgerName
from paddock.runtime.prepared import Bounds
from paddock.values import entries
from paddock.values.calls import Json

Number = Annotated[int, Meta(ge=0)]
NAMES: Final = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M, LedgerName.PACKAGES)
WEB: Final = Bounds(door="web")
_METADATA_CHARS_MAX: Final = 8_000
"""Of a row in a list; a single entry is shown whole."""


class ServedPlane(Struct, frozen=True):
    site: PlaneSite
    reads_only: bool
    """True if the requester may only read."""

    def project(self) -> Project:
        """Read the project as it is now: creates and records nothing."""
        return read_project(self.site.root, self.site.environment)

    def opened(self) -> Project:
        """Open the project for an act: news about the plane is recorded before it."""
        return open_root(self.site.root, self.site.environment)

    @property
    def by(self) -> str:
        return f"{operator()} (web)"

    def ledgers(self) -> Mapping[LedgerName, Path]:
        paths = self.site.layout.ledger_paths()
        return {name: paths[name] for name in NAMES}

    def require_ledger(self, name: LedgerName) -> Path:
        path = self.ledgers()[name]
        if not stands(path):
            raise HttpRefusal(404, "web.unknown", f"the ledger {name} does not exist yet")
        return path


def entry_json(ledger: str, stored: StoredEntry) -> dict[str, Json]:
    entry = stored.entry
    named = ("event_type", "submission_id", "decision", "reason", "session_id", "agent", "call_id")
    placed = {"ledger": ledger, **fields(stored, "id", "seq", "timestamp")}
    return {**placed, **fields(entry, *named), "metadata": dict(entry.metadata)}


def row_json(ledger: str, stored: StoredEntry) -> dict[str, Json]:
    """Return an entry for a list: shortened, with its tool, target, outcome and state."""
    metadata, row = stored.entry.metadata, entry_json(ledger, stored)
    row["tool"] = str(metadata.get("tool", ""))
    row["target"] = target_of(stored.entry)
    row["outcome"] = str(metadata.get("outcome") or stored.entry.decision)
    row["state"] = state_of(stored.entry)
    if len(stored.line) > _METADATA_CHARS_MAX:
        row |= {"metadata": None, "is_cut": True}
    return row


def target_of(entry: entries.Entry) -> str:
    actions = entry.metadata.get("actions")
    first = cast("list[Json]", actions)[:1] if isinstance(actions, list) else []
    host = entry.metadata.get("host")
    if isinstance(host, str):
        return f"{host}:{entry.metadata.get('port')}"
    return str(first[0]).partition(" ")[2] if first else ""


_STATES: Final = {
    entries.TOOL_INTENT: "running",
    entries.TOOL_STAGED: "running",
    entries.TOOL_DENIED: "refused",
    entries.NET_CONNECT: "running",
    entries.NET_CLOSED: "done",
    entries.NET_REFUSED: "refused",
    entries.APPROVAL_ASKED: "waiting",
}
UNANSWERED: Final = "unanswered"
_HOOK: Final = {"allow": "allowed", "deny": "refused", "ask": "waiting"}


def state_of(entry: entries.Entry) -> str:
    if entry.metadata.get("code") == ApprovalUnavailableError.code:
        return UNANSWERED
    if entry.event_type == entries.APPROVAL_ANSWERED:
        return "approved" if entry.decision == "allow" else "refused"
    if entry.event_type == entries.TOOL_RESULT:
        return "done" if entry.metadata.get("status") == "ok" else "failed"
    if entry.event_type == entries.HOOK_DECISION:
        return _HOOK.get(entry.decision, "said")
    return _STATES.get(entry.event_type, "said")


class HttpRefusal(Exception):
    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.where = status, code, ""
        self.message, self.hint = message, hint


_STATUSES: Final[tuple[tuple[type[PaddockError], int], ...]] = (
    (UsageError, 400),
    (PermissionDeniedError, 403),
    (ApprovalExpiredError, 409),
    (ConfigError, 409),
)


def damage_of(bad: BadRow) -> LedgerDamagedError:
    said = f"no valid entry at byte {bad.offset_bytes}: {bad.fault}: {bad.detail}"
    return LedgerDamagedError(said, hint="paddock ledger verify")


def error_json(error: PaddockError | HttpRefusal) -> dict[str, Json]:
    return fields(error, "code", "message", "where", "hint")


def refused(error: PaddockError | HttpRefusal) -> Response:
    known = (number for kind, number in _STATUSES if isinstance(error, kind))
    status = error.status if isinstance(error, HttpRefusal) else next(known, 500)
    return json_response({"error": error_json(error)}, status)


def json_response(value: Json, status: int = 200) -> Response:
    # ASCII: a call's argument may hold a lone surrogate.
    content = json.dumps(value, ensure_ascii=True).encode()
    return Response(content, status, media_type="application/json")
