"""Ledgers: search, one entry, its proof, verify, sign, export; and the state for the "now" page."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from heapq import nlargest
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from paddock.agent.session_log import list_sessions
from paddock.apps.command import seconds_of
from paddock.apps.web.inbox import requests_json
from paddock.apps.web.policy import reach
from paddock.apps.web.view import (
    NAMES,
    UNANSWERED,
    HttpRefusal,
    Number,
    ServedPlane,
    damage_of,
    entry_json,
    error_json,
    row_json,
    state_of,
)
from paddock.assembly.audit import audit_ledger, ledger_page, report_json, report_rows
from paddock.assembly.history import named_contents, read_output
from paddock.assembly.ledgers import ledger_of
from paddock.assembly.project import Project
from paddock.assembly.project_open import policy_notices
from paddock.assembly.questions import decided_now, recorded_calls
from paddock.assembly.sessions import sessions_of
from paddock.assembly.shells import STAGING
from paddock.assembly.undo import open_past
from paddock.errors import PaddockError, UsageError
from paddock.ledger.export import ExportedLines
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, find_numbered, query
from paddock.ledger.read import find_genesis, stands
from paddock.ledger.tree import checkpoints_folder, find_signed, note_sizes, prove_inclusion
from paddock.plane.layout import LedgerName
from paddock.runtime.undo import UndoStatus
from paddock.sandbox.backends import examine_host
from paddock.sandbox.values import BackendVerdict
from paddock.values import entries
from paddock.values.calls import Json

Row = tuple[LedgerName, StoredEntry]

_OF_CALLS: Final = (LedgerName.GOVERNANCE, LedgerName.HO1M)
_READ_MAX: Final = 200
_SESSIONS_MAX: Final = 10
_OUTPUT_CHARS_MAX: Final = 100_000
_OUTPUTS_MAX: Final = 20


def search(
    plane: ServedPlane,
    *,
    ledger: LedgerName | None = None,
    calls: bool = False,
    type_: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    call: str | None = None,
    tool: str | None = None,
    outcome: Literal["allow", "confine", "ask", "deny", "failed"] | None = None,
    path: str | None = None,
    host: str | None = None,
    since: str | None = None,
    until: str | None = None,
    before: str = "",
    limit: Annotated[int, Meta(ge=1, le=500)] = 100,
) -> dict[str, Json]:
    """Find the newest entries before a cursor; `calls`: only in the ledgers that have calls."""
    wanted = Filter(
        *(type_, session, call, agent),
        # Everything that was refused, also after a question.
        "deny" if outcome == "deny" else None,
        since=seconds_of(since, "since"),
        until=seconds_of(until, "until"),
        path=path,
        tool=tool,
        host=host,
        outcome={"failed": "error", "deny": None}.get(outcome or "", outcome),
    )
    pairs = [part.partition(":") for part in before.split(",") if part]
    if not all(at.isascii() and at.isdecimal() and len(at) < 17 for _, _, at in pairs):
        raise HttpRefusal(400, "args.invalid", "before: not a cursor of an earlier response")
    ends = {name: int(at) for name, _, at in pairs}
    among = _OF_CALLS if calls else NAMES
    rows, damaged = _newest(plane, wanted, limit + 1, ends, (ledger,) if ledger else among)
    shown = nlargest(limit, rows, key=_age)
    ends |= {name: row.seq for name, row in shown}
    cursor = ",".join(f"{name}:{seq}" for name, seq in ends.items())
    found = [row_json(*each) | {"state": state} for each, state in _with_states(plane, shown)]
    return {
        # A request that still waits for its answer is not refused.
        "entries": [each for each in found if outcome != "deny" or each["state"] == "refused"],
        "next": cursor if len(rows) > limit else None,
        "damaged": damaged,
    }


def _with_states(plane: ServedPlane, rows: list[Row]) -> Iterator[tuple[Row, str]]:
    """Yield each entry with its state; an unanswered request gets its later answer's state."""
    waiting = set[Json]()
    if any(state_of(row.entry) == UNANSWERED for _, row in rows):
        with suppress(PaddockError):  # reported where the inbox is shown
            kept = [each for each in requests_json(plane.project()) if not each["outdated"]]
            waiting = {each["call_id"] for each in kept if each["state"] == "waiting"}
    for each in rows:
        entry, state = each[1].entry, state_of(each[1].entry)
        if state == UNANSWERED and entry.call_id in waiting:
            state = "open"
        elif state == UNANSWERED:
            wanted = Filter(entries.APPROVAL_ANSWERED, entry.session_id or None, entry.call_id)
            answers, _ = _newest(plane, wanted, 1, among=(LedgerName.GOVERNANCE,))
            state = state_of(answers[0][1].entry) if answers else state
        yield each, state


def _newest(
    plane: ServedPlane,
    wanted: Filter,
    last: int,
    ends: dict[str, int] | None = None,
    among: Sequence[LedgerName] = NAMES,
) -> tuple[list[Row], list[Json]]:
    rows: list[Row] = []
    damaged: list[Json] = []
    for name, path in plane.ledgers().items():
        try:
            if name in among and stands(path):
                found = query(str(path), wanted, last=last, before=(ends or {}).get(name))
                rows += [(name, row) for row in found.entries]
                bad = map(damage_of, found.bad)
                damaged += [{"ledger": name, "error": error_json(each)} for each in bad]
        except PaddockError as error:
            damaged.append({"ledger": name, "error": error_json(error)})
    return rows, damaged


def _age(row: Row) -> tuple[str, int]:
    return row[1].timestamp, row[1].seq


def show_now(plane: ServedPlane) -> dict[str, Json]:
    root, (_, damaged) = plane.site.root.path, _newest(plane, Filter(), _READ_MAX)
    found: dict[str, Json] = {"root": str(root), "name": root.name}
    found |= {"read_only": plane.reads_only, "damaged": damaged}
    found |= {"notices": [], "sessions": [], "waiting": [], "walls": []}
    # If the policy or agents do not load, the rest is still shown, with the error.
    try:
        project = plane.project()
        found |= {"notices": list[Json](policy_notices(project)), "walls": _walls(project)}
        found["waiting"] = list[Json](requests_json(project))
        sessions = list_sessions(sessions_of(project), last=_SESSIONS_MAX)[::-1]
        found["sessions"] = [each.as_json() for each in sessions]
    except PaddockError as error:
        found["notices"] = [error.render()]
    return found


@lru_cache(maxsize=1)
def examined(paddock_home: Path) -> BackendVerdict:
    """Return how far this host confines a command: tested once, by running one."""
    return examine_host(paddock_home / STAGING)[0]


def _walls(project: Project) -> list[Json]:
    shell, own = project.policy.settings.shell, project.files.project
    best = examined(project.environment.paddock_home)
    held = {"full": "on", "partial": "partly"}.get(best.enforcement.value, "off")
    trusted = "the policy is in force"
    if own is not None and not own.trusted:
        trusted = f"the policy is not trusted and can only restrict: {own.reason}"
    gaps = best.cause or "; ".join(best.gaps) or "the kernel confines every command"
    walls = (
        ("files", "on" if trusted.endswith("force") else "partly", trusted),
        ("commands", held, gaps),
        ("network", "off" if shell.network == "host" else held, reach(project)),
        ("record", "on", "every call is recorded before it runs"),
    )
    return [{"name": name, "state": state, "said": said} for name, state, said in walls]


def require_entry(plane: ServedPlane, ledger: LedgerName, seq: int) -> StoredEntry:
    path = plane.require_ledger(ledger)
    found = find_numbered(str(path), seq)
    if found is None:
        raise HttpRefusal(404, "web.unknown", f"the ledger {ledger} has no entry {seq}")
    return found


def show_entry(plane: ServedPlane, *, ledger: LedgerName, seq: Number) -> dict[str, Json]:
    stored = require_entry(plane, ledger, seq)
    call = _call_json(plane, stored.entry) if stored.entry.call_id else None
    return {"entry": entry_json(ledger, stored), "call": call}


def _call_json(plane: ServedPlane, entry: entries.Entry) -> dict[str, Json]:
    wanted = Filter(call_id=entry.call_id, session_id=entry.session_id or None)
    rows = sorted(_newest(plane, wanted, _READ_MAX)[0], key=_age)
    found: dict[str, Json] = {"entries": [entry_json(*each) for each in rows]}
    found |= {"told": None, "now": None, "diff": None, "outputs": []}
    path, governance = plane.ledgers()[LedgerName.HO1M], plane.ledgers()[LedgerName.GOVERNANCE]
    calls, _ = recorded_calls(path, entry.call_id, governance, entry.session_id)
    if calls:
        now = decided_now(plane.project, calls[0])
        found |= {"told": calls[0].as_json(), "now": now.as_json()}
    # The record is shown even if the project no longer loads.
    with suppress(PaddockError):
        project = plane.project()
        of_call = [row for name, row in rows if name is LedgerName.HO1M]
        found["outputs"] = [*_outputs(project, of_call)]
        found |= _changes(project, of_call)
    return found


def _changes(project: Project, rows: list[StoredEntry]) -> dict[str, Json]:
    with open_past(project, rows) as past:
        ids = {row.id for row in rows}
        call = next((each for each in past.calls if each.entry_id in ids), None)
        if call is None:
            return {"can_undo": False, "standing": "", "entry_id": ""}
        found: dict[str, Json] = {"standing": past.undo_status(call), "entry_id": call.entry_id}
        found["can_undo"] = found["standing"] is UndoStatus.UNDOABLE
        with suppress(UsageError):  # its agent has another workspace now
            found["diff"] = past.diff(call).as_json()
        return found


def _outputs(project: Project, rows: list[StoredEntry]) -> Iterator[Json]:
    kept = (each for row in rows for each in named_contents(row.entry, row.seq))
    for each in islice((each for each in kept if each.is_output), _OUTPUTS_MAX):
        content = read_output(project, each.digest) or b""
        text = content.decode("utf-8", "backslashreplace")
        is_cut = len(text) > _OUTPUT_CHARS_MAX or len(content) < each.size_bytes
        named = {"stream": each.argument, "digest": each.digest, "bytes": each.size_bytes}
        yield {**named, "text": text[:_OUTPUT_CHARS_MAX], "is_cut": is_cut}


def list_ledgers(plane: ServedPlane) -> dict[str, Json]:
    return {"ledgers": [_ledger_json(name, path) for name, path in plane.ledgers().items()]}


def _ledger_json(name: LedgerName, path: Path) -> dict[str, Json]:
    found: dict[str, Json] = {"name": name, "exists": path.exists(), "entries": 0, "bytes": 0}
    found |= {"newest": None, "checkpoints": 0, "checkpoint": None}
    try:
        if not stands(path):
            return found
        signed = find_signed(str(path))
        for newest in query(str(path), Filter(), last=1).entries:
            found |= {"entries": newest.seq + 1, "newest": newest.timestamp}
        kept = len(note_sizes(checkpoints_folder(str(path))))
        found |= {"bytes": path.stat().st_size, "checkpoints": kept}
        if signed is not None:
            found["checkpoint"] = {"size": signed.checkpoint.size, "note": signed.note}
    except PaddockError as error:
        found["error"] = error_json(error)
    return found


def verify(plane: ServedPlane, *, ledger: LedgerName) -> dict[str, Json]:
    plane.require_ledger(ledger)
    report = audit_ledger(ledger_of(plane.site, ledger))
    text: list[Json] = [*report_rows(ledger, report)]
    return {**report_json(report), "text": text, "is_sound": report.is_whole}


def checkpoint(plane: ServedPlane, *, ledger: LedgerName) -> dict[str, Json]:
    plane.require_ledger(ledger)
    with closing(ledger_of(plane.site, ledger).open()) as opened:
        signed = opened.seal()
    return {"status": "ok", "size": signed.checkpoint.size, "note": signed.note}


def prove(plane: ServedPlane, *, ledger: LedgerName, seq: Number) -> dict[str, Json]:
    stored, path = require_entry(plane, ledger, seq), str(plane.ledgers()[ledger])
    signed, genesis = find_signed(path), find_genesis(path)
    if signed is None or signed.checkpoint.size <= seq:
        said = "no checkpoint covers this entry yet"
        raise HttpRefusal(409, "web.unsigned", said, "create a checkpoint, then try again")
    proof = prove_inclusion(path, seq, signed)
    found: dict[str, Json] = {"ledger": ledger, "seq": seq, "size": proof.size}
    found |= {"leaf": proof.leaf.hex(), "line": b64encode(stored.line).decode()}
    found |= {"path": [each.hex() for each in proof.hashes], "root": signed.checkpoint.root.hex()}
    return {**found, "note": proof.note, "key": "" if genesis is None else genesis.public_key}


def export(
    plane: ServedPlane,
    *,
    ledger: LedgerName,
    last: Number = 0,
    format_: Literal["jsonl", "html"] = "jsonl",
) -> Response:
    path = plane.require_ledger(ledger)
    if format_ == "html":
        page = ledger_page(path, ledger, None, last or None).content
        return Response(page, media_type="text/html")
    lines = (each + b"\n" for each in ExportedLines(str(path), None))
    return StreamingResponse(lines, media_type="application/jsonl")
