"""The ledgers themselves: verified, signed, exported, and the proof of one entry."""

from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Literal

from starlette.responses import Response, StreamingResponse

from paddock.apps.web.desk import HttpRefusal, PlaneDesk, error_json
from paddock.apps.web.timeline import Number, require_entry
from paddock.assembly.auditing import audit_ledger, ledger_page, report_json, report_rows
from paddock.assembly.ledgers import open_plane_ledger
from paddock.errors import PaddockError
from paddock.ledger.export import ExportedLines
from paddock.ledger.query import Filter, query
from paddock.ledger.read import find_genesis, stands
from paddock.ledger.tree import checkpoints_folder, find_signed, note_sizes, prove_inclusion
from paddock.plane.layout import LedgerName
from paddock.values.calls import Json


def list_ledgers(desk: PlaneDesk) -> dict[str, Json]:
    return {"ledgers": [_ledger_json(name, path) for name, path in desk.ledgers().items()]}


def _ledger_json(name: LedgerName, path: Path) -> dict[str, Json]:
    found: dict[str, Json] = {"name": name, "exists": path.exists(), "entries": 0, "bytes": 0}
    found |= {"newest": None, "checkpoints": 0, "checkpoint": None}
    try:
        if not stands(path):
            return found
        rows, signed = query(str(path), Filter(), last=1), find_signed(str(path))
        for newest in rows.entries:
            found |= {"entries": newest.seq + 1, "newest": newest.timestamp}
        found["bytes"] = path.stat().st_size
        found["checkpoints"] = len(note_sizes(checkpoints_folder(str(path))))
        if signed is not None:
            found["checkpoint"] = {"size": signed.checkpoint.size, "note": signed.note}
    except PaddockError as error:
        found["error"] = error_json(error)
    return found


def verify(desk: PlaneDesk, *, ledger: LedgerName) -> dict[str, Json]:
    desk.require_ledger(ledger)
    report = audit_ledger(desk.site.layout, desk.site.environment, ledger)
    told: list[Json] = [*report_rows(ledger, report)]
    return {**report_json(report), "text": told, "is_sound": report.is_whole}


def checkpoint(desk: PlaneDesk, *, ledger: LedgerName) -> dict[str, Json]:
    desk.require_ledger(ledger)
    with closing(open_plane_ledger(desk.site.layout, desk.site.environment, ledger)) as opened:
        signed = opened.seal()
    return {"status": "ok", "size": signed.checkpoint.size, "note": signed.note}


def prove(desk: PlaneDesk, *, ledger: LedgerName, seq: Number) -> dict[str, Json]:
    stored, path = require_entry(desk, ledger, seq), str(desk.ledgers()[ledger])
    signed, genesis = find_signed(path), find_genesis(path)
    if signed is None or signed.checkpoint.size <= seq:
        said = "no checkpoint covers this entry yet"
        raise HttpRefusal(409, "web.unsigned", said, "make a checkpoint, and ask again")
    proof = prove_inclusion(path, seq, signed)
    return {
        "ledger": ledger,
        "seq": seq,
        "size": proof.size,
        "leaf": proof.leaf.hex(),
        "line": b64encode(stored.line).decode(),
        "path": [each.hex() for each in proof.hashes],
        "root": signed.checkpoint.root.hex(),
        "note": proof.note,
        "key": "" if genesis is None else genesis.public_key,
    }


def export(
    desk: PlaneDesk,
    *,
    ledger: LedgerName,
    last: Number = 0,
    format_: Literal["jsonl", "html"] = "jsonl",
) -> Response:
    path = desk.require_ledger(ledger)
    if format_ == "html":
        made = ledger_page(path, ledger, None, last or None)
        return Response(made.content, media_type="text/html")
    lines = ExportedLines(str(path), None)
    return StreamingResponse((each + b"\n" for each in lines), media_type="application/jsonl")
