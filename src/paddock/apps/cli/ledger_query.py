"""`paddock ledger query`, `tail` and `export`: entries as text, JSON or a page."""

import posixpath
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final, cast

from paddock import limits
from paddock.apps.cli.ledger import QUERY_LAST
from paddock.apps.command import Options, fields, find_site, nearest, seconds_of, write_new_file
from paddock.apps.console import EXIT_INTEGRITY, Console
from paddock.assembly.project import PlaneSite
from paddock.assembly.questions import require_agent_of_site
from paddock.errors import UsageError
from paddock.ledger.export import ExportedLines
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, named_paths, query, query_lines
from paddock.ledger.read import follow, gone_error, is_known, unfinished
from paddock.plane.discover import name_of_root
from paddock.plane.layout import LedgerName
from paddock.storage.atomic import read_file_through_links
from paddock.text.show import cut, quote, show_name
from paddock.values.calls import Json
from paddock.values.entries import APPROVAL_ANSWERED, EVENT_TYPES, NET_REFUSED, Entry, clean


def require_ledger(site: PlaneSite, name: LedgerName) -> Path:
    """Return the path of an existing ledger. Raises: UsageError, LedgerDamagedError."""
    path = site.layout.ledger_paths()[name]
    if path.exists():
        return path
    if is_known(path):
        raise gone_error(path, name)
    raise UsageError(
        f"the ledger {name} does not exist yet",
        where="--ledger",
        hint="it is created with its first entry",
    )


def _require_known_type(options: Options, ledger: Path) -> None:
    given = options.type
    if given is None or given in EVENT_TYPES:
        return
    if query(str(ledger), Filter(event_type=given), last=1).entries:
        return
    raise UsageError(
        f"no event type named {quote(given)}, and no such entry in the ledger {options.ledger}",
        where="--type",
        hint=nearest(given.upper(), sorted(EVENT_TYPES))
        or "without --type each row shows its type, such as TOOL_DENIED",
    )


def _filter_of(options: Options, path: str | None = None) -> Filter:
    return Filter(
        event_type=options.type,
        session_id=options.session,
        call_id=options.call,
        agent=options.agent,
        decision=options.decision,
        since=seconds_of(options.since, "--since"),
        until=seconds_of(options.until, "--until"),
        path=path,
    )


_POLL_S: Final = 0.25
_REFUSED_SHOWN: Final = 3


def run_query(options: Options, console: Console) -> int:
    site = find_site(options, console)
    if options.last is not None and options.last < 0:
        raise UsageError(f"--last must not be negative: {options.last}", where="--last")
    if options.agent is not None:
        require_agent_of_site(site, options.agent)
    path = site.layout.ledger_paths()[LedgerName(options.ledger)]
    if not is_known(path):
        if not options.json:
            console.warn(f"the ledger {options.ledger} has no entries yet")
        return 0
    if not path.exists():
        raise gone_error(path, options.ledger)
    _require_known_type(options, path)
    wanted = _filter_of(options, _path_of(site, options.path))
    # One more than is shown, to know whether there are more.
    last = QUERY_LAST + 1 if options.last is None else options.last or None
    rows = query(str(path), wanted, last=last)
    is_cut = options.last is None and len(rows.entries) > QUERY_LAST
    for stored in rows.entries[1:] if is_cut else rows.entries:
        _show(stored, options, console, wanted.path)
    if is_cut:
        console.warn(f"only the newest {QUERY_LAST} matches are shown: --last 0 shows all")
    if not rows.entries and not rows.bad:
        calls = (
            "; calls are in ho1m: --ledger ho1m" if options.ledger == LedgerName.GOVERNANCE else ""
        )
        console.warn(f"no entry of the ledger {options.ledger} matches{calls}")
    if rows.unfinished_bytes:
        console.warn(f"{unfinished(rows.unfinished_bytes)} and are not an entry yet")
    for bad in rows.bad:
        console.warn(f"error[ledger.damaged]: byte {bad.offset_bytes}: {bad.fault}: {bad.detail}")
    if rows.bad:
        console.advise(
            f"{len(rows.bad) + rows.bad_omitted} lines are not valid entries: paddock ledger verify"
        )
    return EXIT_INTEGRITY if rows.bad else 0


def run_tail(options: Options, console: Console) -> int:
    if options.last < 0:
        raise UsageError(f"--last must not be negative: {options.last}", where="--last")
    path = require_ledger(find_site(options, console), LedgerName(options.ledger))
    torn_bytes = query_lines(str(path), Filter(), last=0).unfinished_bytes
    if torn_bytes:
        console.warn(f"{unfinished(torn_bytes)} and are not an entry yet")
    for stored in follow(str(path), last=options.last, poll=partial(console.wait, _POLL_S)):
        _show(stored, options, console)
        console.stdout.flush()
    return 0


def _path_of(site: PlaneSite, given: str | None) -> str | None:
    if given is None:
        return None
    if given == "":
        raise UsageError("--path is empty: expected a path", hint="for any path, write .")
    plain = posixpath.normpath(given)
    inside = _inside(site, Path(plain)) if posixpath.isabs(plain) else None
    return clean(plain if inside is None else inside)


def _inside(site: PlaneSite, path: Path) -> str | None:
    """Return the path relative to an agent's workspace or the root; None for one outside.

    The hook records absolute paths outside. Threat: an agent that swaps a symlink could
    redirect the search, so nothing below the root is resolved.
    """
    agents = name_of_root(path, site.layout.agents)
    if path.is_relative_to(agents) and path != agents:
        name, *below = path.relative_to(agents).parts
        if below[:1] == [site.layout.agent_workspace(name).name]:
            return "/".join(below[1:]) or "."
    root = name_of_root(path, site.root.path)
    return str(path.relative_to(root)) if path.is_relative_to(root) else None


def _show(stored: StoredEntry, options: Options, console: Console, path: str | None = None) -> None:
    if options.json:
        said = ("event_type", "submission_id", "decision", "reason", "session_id", "agent")
        named = fields(stored.entry, *said, "call_id", "metadata")
        console.write_json(
            {**fields(stored, "id", "timestamp"), **named, **fields(stored, "seq", "prev")}
        )
        return
    entry = stored.entry
    actions = entry.metadata.get("actions")
    first = next(iter(cast("list[object]", actions)), "") if isinstance(actions, list) else ""
    target = str(first).partition(" ")[2] or _host(entry)
    if path is not None:
        target = next(named_paths(entry, path), target)
    subject = " ".join(filter(None, (str(entry.metadata.get("tool", "")), target)))
    outcome = entry.metadata.get("outcome")
    decision = {"confine": "confined", "ask": "asked"}.get(str(outcome), "")
    if entry.metadata.get("answer") == "none":
        decision = "left to the client"
    decision = f"{decision}, {entry.decision}" if decision else entry.decision
    call = f"({show_name(entry.call_id)})" if entry.call_id else ""
    parts = [
        f"{stored.seq:>6}",
        stored.timestamp,
        f"{entry.event_type:<14}",
        f"{show_name(decision):<6}",
        f"{show_name(entry.agent):<10}",
        show_name(cut(subject, limits.message_value_chars_max)),
        show_name(entry.reason) or _answered(entry) or _ended(entry),
        call,
    ]
    console.say("  ".join(part for part in parts if part).rstrip())


def _host(entry: Entry) -> str:
    """Return `HOST:PORT` of a refused connection, whose reason names no rule's host."""
    host, port = (entry.metadata.get(key, "") for key in ("host", "port"))
    if entry.event_type != NET_REFUSED or not host:
        return ""
    return f"{host}:{port}" if port else str(host)


def _ended(entry: Entry) -> str:
    code, refused = entry.metadata.get("exit"), entry.metadata.get("fence", [])
    said = [] if code is None else [f"exit {code}"]
    said += [f"refused {show_name(str(each))}" for each in cast("list[object]", refused)]
    return ", ".join(filter(None, [*said, _changes_refused(entry)]))


def _changes_refused(entry: Entry) -> str:
    kept = entry.metadata.get("refused")
    paths = [each.get("path") for each in cast("list[dict[str, Json]]", kept or [])]
    total = entry.metadata.get("refused_total")
    count = total if isinstance(total, int) else len(paths)
    if not paths:
        return ""
    shown = [show_name(str(each)) for each in paths[:_REFUSED_SHOWN]]
    more = [f"and {count - len(shown)} more"] if count > len(shown) else []
    noun = "change" if count == 1 else "changes"
    return f"{count} {noun} refused: {', '.join([*shown, *more])}"


def _answered(entry: Entry) -> str:
    answered = entry.metadata
    if entry.event_type != APPROVAL_ANSWERED or not answered.get("by"):
        return ""
    usual = "granted" if entry.decision == "allow" else "refused"
    answer, by = (show_name(str(each)) for each in (answered.get("answer", usual), answered["by"]))
    note = f": {show_name(str(answered['note']))}" if answered.get("note") else ""
    return f"{answer} by {by}{note}"


def run_export(options: Options, console: Console) -> int:
    site = find_site(options, console)
    if options.agent is not None:
        require_agent_of_site(site, options.agent)
    path = require_ledger(site, LedgerName(options.ledger))
    _require_known_type(options, path)
    if options.last < 0:
        raise UsageError(f"--last must not be negative: {options.last}", where="--last")
    if options.out is None and options.json:
        raise UsageError("--json reports about the file: name one with --out", where="--json")
    wanted = _filter_of(options)
    wanted = None if wanted == Filter() else wanted
    if options.format == "html":
        return _export_page(path, wanted, options, console)
    if options.checkpoint:
        raise UsageError("--checkpoint needs --format html", where="--checkpoint")
    if options.last:
        rows = query_lines(str(path), wanted or Filter(), last=options.last)
        chosen = [stored.line for stored in rows.entries]
        _write(chosen, options, console)
        bad, torn_bytes = len(rows.bad) + rows.bad_omitted, rows.unfinished_bytes
    else:
        lines = ExportedLines(str(path), wanted)
        _write(lines, options, console)
        bad, torn_bytes = lines.bad, lines.torn_bytes
    if torn_bytes:
        console.warn(f"{unfinished(torn_bytes)} and are left out")
    if bad:
        console.advise(f"{bad} lines are not valid entries and left out: paddock ledger verify")
    return EXIT_INTEGRITY if bad else 0


def _write(lines: Iterable[bytes], options: Options, console: Console) -> None:
    if options.out is None:
        for line in lines:
            console.write_bytes(line + b"\n")
        return
    file = Path(console.directory / options.out)
    count = write_new_file(file, (line + b"\n" for line in lines))
    _report(file, {"ledger": options.ledger, "lines": count}, options, console)


def _export_page(path: Path, wanted: Filter | None, options: Options, console: Console) -> int:
    from paddock.assembly.audit import ledger_page

    # The page reports a file that is not a checkpoint.
    others = [read_note(name, console) for name in options.checkpoint]
    made = ledger_page(path, options.ledger, wanted, options.last or None, others)
    found, notes, page = made.found, made.notes, made.content
    if found.bad:
        console.advise(f"{found.bad} lines are not valid entries: paddock ledger verify")
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
    _report(file, counts, options, console)
    return status


def _report(file: Path, counts: dict[str, Json], options: Options, console: Console) -> None:
    if options.json:
        console.write_json({"status": "ok", "file": str(file), **counts})
    else:
        shown = counts.get("shown", counts["lines"])
        console.say(f"exported {shown} entries of {counts['ledger']} to {file}")


def read_note(name: str, console: Console) -> str:
    """Return the content of a file given with --checkpoint. Raises: UsageError."""
    content = read_file_through_links(console.directory / name, limits.checkpoint_note_bytes_max)
    if content is None:
        raise UsageError(f"checkpoint file {quote(name)} not found", where="--checkpoint")
    return content.decode(errors="replace")
