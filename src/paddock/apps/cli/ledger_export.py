"""`paddock ledger export`: lines as they are stored, or a page that verifies itself."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import paddock
from paddock import limits
from paddock.apps.cli.console import Console
from paddock.apps.cli.exits import EXIT_INTEGRITY
from paddock.apps.cli.ledger_wanted import (
    filter_of,
    ledger_that_is_there,
    require_known_type,
    unfinished,
)
from paddock.apps.cli.new_file import write_new_file
from paddock.apps.cli.options import Options
from paddock.assembly.past_agents import require_agent_of_site
from paddock.assembly.site import PlaneSite
from paddock.errors import PaddockError, UsageError
from paddock.ledger.export import Exported, ExportedLines, PageText, export_page, make_page
from paddock.ledger.format.lines import BadLine, inspect_line, parse_genesis
from paddock.ledger.format.notes import NoteError, parse_checkpoint, parse_note
from paddock.ledger.query import Filter, query_lines
from paddock.ledger.tree import checkpoints_folder, read_notes
from paddock.storage.atomic import read_file_through_links
from paddock.text.show import quote
from paddock.values.calls import Json


def run_export(site: PlaneSite, options: Options, console: Console) -> int:
    """Write it; exit 4 where lines hold no entry, and are left out or on the page for that.

    Raises: UsageError, LedgerDamagedError, HostError.
    """
    if options.agent is not None:
        require_agent_of_site(site, options.agent)
    path = ledger_that_is_there(site, options)
    require_known_type(options, path)
    if options.last < 0:
        raise UsageError(f"--last must not be negative: {options.last}", where="--last")
    if options.out is None and options.json:
        raise UsageError("--json tells about the file: name one with --out", where="--json")
    wanted = filter_of(options)
    wanted = None if wanted == Filter() else wanted
    if options.format == "html":
        return _export_page(path, wanted, options, console)
    if options.checkpoint:
        raise UsageError("--checkpoint goes with --format html", where="--checkpoint")
    if options.last:
        rows = query_lines(str(path), wanted or Filter(), last=options.last)
        chosen = [stored.line for stored in rows.entries]
        _write(chosen, options, console)
        return _remark(len(rows.bad) + rows.bad_omitted, rows.unfinished_bytes, console)
    lines = ExportedLines(str(path), wanted)
    _write(lines, options, console)
    return _remark(lines.bad, lines.torn_bytes, console)


def _write(lines: Iterable[bytes], options: Options, console: Console) -> None:
    if options.out is None:
        for line in lines:
            console.write_bytes(line + b"\n")
        return
    file = Path(console.directory / options.out)
    count = write_new_file(file, (line + b"\n" for line in lines))
    _told(file, {"ledger": options.ledger, "lines": count}, options, console)


def _remark(bad: int, torn_bytes: int, console: Console) -> int:
    if torn_bytes:
        console.warn(f"{unfinished(torn_bytes)} and are left out")
    if bad:
        console.warn(f"{bad} lines hold no entry and are left out: paddock ledger verify")
    return EXIT_INTEGRITY if bad else 0


def _export_page(path: Path, wanted: Filter | None, options: Options, console: Console) -> int:
    notes = _notes(path, options.checkpoint, console)
    sizes = [size for size in map(_size_of, notes) if size is not None]
    found = export_page(str(path), wanted, options.last or None, sizes)
    page = make_page(_page_text(path, found, notes, options), found.rows)
    if found.bad:
        console.warn(f"{found.bad} lines hold no entry: paddock ledger verify")
    if found.torn_bytes:
        console.warn(f"{unfinished(found.torn_bytes)} and are left out")
    status = EXIT_INTEGRITY if found.bad else 0
    if options.out is None:
        console.write_bytes(page)
        return status
    file = Path(console.directory / options.out)
    write_new_file(file, [page])
    counts: dict[str, Json] = {
        "ledger": options.ledger,
        "lines": found.lines,
        "shown": found.shown,
        "checkpoints": len(notes),
        "bad": found.bad,
    }
    _told(file, counts, options, console)
    return status


def _told(file: Path, counts: dict[str, Json], options: Options, console: Console) -> None:
    if options.json:
        console.write_json({"status": "ok", "file": str(file), **counts})
    else:
        shown = counts.get("shown", counts["lines"])
        console.say(f"exported {shown} entries of {counts['ledger']} to {file}")


def _notes(path: Path, given: list[str], console: Console) -> list[str]:
    """The newest checkpoint beside the ledger, and those that somebody holds."""
    notes = [note for _, note in read_notes(checkpoints_folder(str(path)))[-1:]]
    for name in given:
        content = read_file_through_links(
            console.directory / name, limits.checkpoint_note_bytes_max
        )
        if content is None:
            raise UsageError(f"there is no checkpoint {quote(name)}", where="--checkpoint")
        # What is no note is shown as such on the page.
        notes.append(content.decode(errors="replace"))
    return list(dict.fromkeys(notes))


def _size_of(note: str) -> int | None:
    try:
        return parse_checkpoint(parse_note(note).text).size
    except NoteError:
        return None


def _page_text(path: Path, found: Exported, notes: list[str], options: Options) -> PageText:
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    about = (
        f"{found.shown} of {found.lines} lines, exported {now} by Paddock {paddock.__version__}."
    )
    if found.torn_bytes:
        about += f" {found.torn_bytes} bytes after the last whole line were left out."
    return PageText(f"Ledger {options.ledger}", about, _key(found), notes)


def _key(found: Exported) -> str:
    first = found.rows[0] if found.rows else b""
    stored = inspect_line(first) if isinstance(first, bytes) else None
    if stored is None or isinstance(stored, BadLine):
        return ""
    try:
        return parse_genesis(stored).public_key
    except PaddockError:
        return ""
