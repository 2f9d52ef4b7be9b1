"""The ledgers themselves: verified, signed, exported, and the proof of one entry."""

from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from paddock.apps.web.desk import Desk, HttpRefusal, error_json
from paddock.apps.web.timeline import EntryAsked, require_entry
from paddock.assembly.auditing import audit_ledger, ledger_page
from paddock.assembly.ledgers import open_plane_ledger
from paddock.errors import PaddockError
from paddock.ledger.export import ExportedLines
from paddock.ledger.query import Filter, query
from paddock.ledger.read import find_genesis, stands
from paddock.ledger.tree import checkpoints_folder, find_signed, note_sizes, prove_inclusion
from paddock.plane.layout import LedgerName
from paddock.text.json import Strict
from paddock.values.calls import Json


class LedgersAsked(Strict, frozen=True):
    pass


class LedgerAsked(Strict, frozen=True):
    ledger: LedgerName


class ExportAsked(LedgerAsked, frozen=True):
    last: Annotated[int, Meta(ge=0)] = 0
    format: Literal["jsonl", "html"] = "jsonl"


def list_ledgers(desk: Desk, asked: LedgersAsked) -> dict[str, Json]:
    return {"ledgers": [_ledger_json(name, path) for name, path in desk.ledgers().items()]}


def _ledger_json(name: LedgerName, path: Path) -> dict[str, Json]:
    found: dict[str, Json] = {
        "name": name,
        "exists": path.exists(),
        "entries": 0,
        "bytes": 0,
        "newest": None,
        "checkpoints": 0,
        "checkpoint": None,
    }
    try:
        if not stands(path):
            return found
        rows = query(str(path), Filter(), last=1)
        newest = rows.entries[-1] if rows.entries else None
        signed = find_signed(str(path))
        found["entries"] = 0 if newest is None else newest.seq + 1
        found["newest"] = None if newest is None else newest.timestamp
        found["bytes"] = path.stat().st_size
        found["checkpoints"] = len(note_sizes(checkpoints_folder(str(path))))
        if signed is not None:
            found["checkpoint"] = {"size": signed.checkpoint.size, "note": signed.note}
    except PaddockError as error:
        found["error"] = error_json(error)
    return found


def verify(desk: Desk, asked: LedgerAsked) -> dict[str, Json]:
    _require(desk, asked.ledger)
    report = audit_ledger(desk.site.layout, desk.site.environment, asked.ledger)
    told: list[Json] = [*report.rows(asked.ledger)]
    return {**report.as_json(), "text": told, "is_sound": report.is_whole}


def checkpoint(desk: Desk, asked: LedgerAsked) -> dict[str, Json]:
    _require(desk, asked.ledger)
    at = (desk.site.layout, desk.site.environment, asked.ledger)
    with closing(open_plane_ledger(*at)) as ledger:
        signed = ledger.seal()
    return {"status": "ok", "size": signed.checkpoint.size, "note": signed.note}


def prove(desk: Desk, asked: EntryAsked) -> dict[str, Json]:
    stored = require_entry(desk, asked)
    path = str(desk.ledgers()[asked.ledger])
    signed, genesis = find_signed(path), find_genesis(path)
    if signed is None or signed.checkpoint.size <= asked.seq:
        said = "no checkpoint covers this entry yet"
        raise HttpRefusal(409, "web.unsigned", said, "make a checkpoint, and ask again")
    proof = prove_inclusion(path, asked.seq, signed)
    return {
        "ledger": asked.ledger,
        "seq": proof.seq,
        "line": b64encode(stored.line).decode(),
        "leaf": proof.leaf.hex(),
        "size": proof.size,
        "path": [each.hex() for each in proof.hashes],
        "root": signed.checkpoint.root.hex(),
        "note": proof.note,
        "key": "" if genesis is None else genesis.public_key,
    }


def export(desk: Desk, asked: ExportAsked) -> Response:
    path = _require(desk, asked.ledger)
    if asked.format == "html":
        made = ledger_page(path, asked.ledger, None, asked.last or None)
        return Response(made.content, media_type="text/html")
    lines = ExportedLines(str(path), None)
    return StreamingResponse((each + b"\n" for each in lines), media_type="application/jsonl")


def _require(desk: Desk, name: LedgerName) -> Path:
    path = desk.ledgers()[name]
    if not stands(path):
        raise HttpRefusal(404, "web.unknown", f"the ledger {name} does not exist yet")
    return path
