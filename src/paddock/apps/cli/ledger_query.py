"""`paddock ledger query` and `tail`: entries, as people and programs read them."""

import posixpath
from functools import partial
from pathlib import Path
from typing import Final, cast

from paddock import limits
from paddock.apps.cli.console import Console
from paddock.apps.cli.exits import EXIT_INTEGRITY
from paddock.apps.cli.ledger_options import QUERY_LAST
from paddock.apps.cli.ledger_wanted import (
    filter_of,
    ledger_that_is_there,
    require_known_type,
    unfinished,
)
from paddock.apps.cli.options import Options
from paddock.assembly.past_agents import require_agent_of_site
from paddock.assembly.site import PlaneSite
from paddock.errors import UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.presence import gone_error, is_known
from paddock.ledger.query import BadRow, query
from paddock.ledger.tail import find_torn_bytes, follow
from paddock.plane.discover import name_of_root
from paddock.plane.layout import LedgerName
from paddock.text.show import cut, show_name
from paddock.values.calls import Json
from paddock.values.entries import APPROVAL_ANSWERED, Entry, clean

_POLL_S: Final = 0.25


def run_query(site: PlaneSite, options: Options, console: Console) -> int:
    """Print the entries that match, newest last; exit 4 where a line holds none.

    Raises: UsageError, LedgerDamagedError, HostError.
    """
    if options.last is not None and options.last < 0:
        raise UsageError(f"--last must not be negative: {options.last}", where="--last")
    if options.agent is not None:
        require_agent_of_site(site, options.agent)
    path = site.layout.ledger_paths()[LedgerName(options.ledger)]
    if not is_known(path):
        return _nothing_yet(options, console)
    if not path.exists():
        raise gone_error(path, options.ledger)
    require_known_type(options, path)
    wanted = filter_of(options, _path_of(site, options.path))
    # One more than is shown by itself tells whether there are more.
    last = QUERY_LAST + 1 if options.last is None else options.last or None
    rows = query(str(path), wanted, last=last)
    is_cut = options.last is None and len(rows.entries) > QUERY_LAST
    for stored in rows.entries[1:] if is_cut else rows.entries:
        _show(stored, options, console)
    if is_cut:
        console.warn(f"older entries than these {QUERY_LAST} match, too: --last 0 shows all")
    if not rows.entries and not rows.bad:
        calls = (
            "; calls stand in ho1m: --ledger ho1m"
            if options.ledger == LedgerName.GOVERNANCE
            else ""
        )
        console.warn(f"no entry of the ledger {options.ledger} matches{calls}")
    if rows.unfinished_bytes:
        console.warn(f"{unfinished(rows.unfinished_bytes)} and are no entry yet")
    for bad in rows.bad:
        console.warn(_bad(bad))
    if rows.bad:
        console.warn(
            f"{len(rows.bad) + rows.bad_omitted} lines hold no entry: paddock ledger verify"
        )
    return EXIT_INTEGRITY if rows.bad else 0


def run_tail(site: PlaneSite, options: Options, console: Console) -> int:
    """Print what is appended until it is interrupted.

    Raises: UsageError, LedgerDamagedError, HostError.
    """
    if options.last < 0:
        raise UsageError(f"--last must not be negative: {options.last}", where="--last")
    path = ledger_that_is_there(site, options)
    torn_bytes = find_torn_bytes(str(path))
    if torn_bytes:
        console.warn(f"{unfinished(torn_bytes)} and are no entry yet")
    for stored in follow(str(path), last=options.last, poll=partial(console.wait, _POLL_S)):
        _show(stored, options, console)
        console.stdout.flush()
    return 0


def _path_of(site: PlaneSite, given: str | None) -> str | None:
    """As entries write it: relative to its workspace. Raises: UsageError."""
    if given is None:
        return None
    if given == "":
        raise UsageError("--path is empty, and names no path", hint="for any path, write .")
    plain = posixpath.normpath(given)
    inside = _inside(site, Path(plain)) if posixpath.isabs(plain) else None
    return clean(plain if inside is None else inside)


def _inside(site: PlaneSite, path: Path) -> str | None:
    """Relative to an agent's own workspace or to the root; None outside: the hook names such.

    Threat: an agent that swaps a link would have another path looked for. By whatever name
    the root was reached, nothing below it is resolved.
    """
    agents = name_of_root(path, site.layout.agents)
    if path.is_relative_to(agents) and path != agents:
        name, *below = path.relative_to(agents).parts
        if below[:1] == [site.layout.agent_workspace(name).name]:
            return "/".join(below[1:]) or "."
    root = name_of_root(path, site.root.path)
    return str(path.relative_to(root)) if path.is_relative_to(root) else None


def _nothing_yet(options: Options, console: Console) -> int:
    if not options.json:
        console.warn(f"the ledger {options.ledger} has no entries yet")
    return 0


def _show(stored: StoredEntry, options: Options, console: Console) -> None:
    if options.json:
        console.write_json(entry_json(stored))
        return
    entry = stored.entry
    subject = " ".join(filter(None, (str(entry.metadata.get("tool", "")), _target(entry))))
    outcome = entry.metadata.get("outcome")
    decision = {"confine": "confined", "ask": "asked"}.get(str(outcome), "")
    decision = f"{decision}, {entry.decision}" if decision else entry.decision
    call = f"({show_name(entry.call_id)})" if entry.call_id else ""
    parts = [
        f"{stored.seq:>6}",
        stored.timestamp,
        f"{entry.event_type:<14}",
        f"{show_name(decision):<6}",
        f"{show_name(entry.agent):<10}",
        show_name(cut(subject, limits.message_value_chars_max)),
        show_name(entry.reason) or _answered(entry),
        call,
    ]
    console.say("  ".join(part for part in parts if part).rstrip())


def _target(entry: Entry) -> str:
    """The path, command or other target of a call, of its first action."""
    actions = entry.metadata.get("actions")
    first = next(iter(cast("list[object]", actions)), "") if isinstance(actions, list) else ""
    return str(first).partition(" ")[2]


def _answered(entry: Entry) -> str:
    """Who answered a question, and what; empty where none was answered."""
    answered = entry.metadata
    if entry.event_type != APPROVAL_ANSWERED or not answered.get("by"):
        return ""
    usual = "granted" if entry.decision == "allow" else "refused"
    answer, by = (show_name(str(each)) for each in (answered.get("answer", usual), answered["by"]))
    note = f": {show_name(str(answered['note']))}" if answered.get("note") else ""
    return f"{answer} by {by}{note}"


def entry_json(stored: StoredEntry) -> dict[str, Json]:
    """One entry as `--json` prints it, in the order of the line."""
    entry = stored.entry
    return {
        "id": stored.id,
        "timestamp": stored.timestamp,
        "event_type": entry.event_type,
        "submission_id": entry.submission_id,
        "decision": entry.decision,
        "reason": entry.reason,
        "session_id": entry.session_id,
        "agent": entry.agent,
        "call_id": entry.call_id,
        "metadata": dict(entry.metadata),
        "seq": stored.seq,
        "prev": stored.prev,
    }


def _bad(bad: BadRow) -> str:
    return f"error[ledger.damaged]: byte {bad.offset_bytes}: {bad.fault}: {bad.detail}"
