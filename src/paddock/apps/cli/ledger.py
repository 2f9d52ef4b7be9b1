"""`paddock ledger`."""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.ledger_export import add_export, run_export
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import find_project
from paddock.assembly import Project
from paddock.errors import LedgerDamagedError, UsageError
from paddock.ledger.format_lines import StoredEntry
from paddock.ledger.query import BadRow, Filter, query
from paddock.ledger.tail import follow
from paddock.ledger.verify import Verification, verify
from paddock.text.show import show_name
from paddock.values.calls import Json

NAMES: Final = ("governance", "ho2m", "ho1m", "packages")
_POLL_S: Final = 0.25
_LAST: Final = 20
_EXIT_INTEGRITY: Final = 4


class LedgerCommand:
    """Questions to the ledgers; nothing is written."""

    summary = "Query, follow, verify and export the ledgers. Nothing here writes to one."
    examples = (
        "  paddock ledger query --ledger ho1m --type TOOL_DENIED --last 5\n"
        "  paddock ledger query --ledger ho1m --call CALL-1f2e --json\n"
        "  paddock ledger tail --ledger ho1m\n"
        "  paddock ledger verify\n"
        "  paddock ledger export --ledger ho1m --format html --out ho1m.html"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The sub-commands."""
        actions = parser.add_subparsers(dest="question", required=True, metavar="QUESTION")
        asked = actions.add_parser("query", help="entries, newest last", allow_abbrev=False)
        asked.add_argument("--ledger", choices=NAMES, default="governance")
        asked.add_argument("--type", metavar="T", help="event type, such as TOOL_DENIED")
        asked.add_argument("--last", type=int, default=_LAST, metavar="N", help="0: all")
        asked.add_argument("--session", metavar="ID")
        asked.add_argument("--call", metavar="ID")
        asked.add_argument("--agent", metavar="NAME")
        asked.add_argument("--decision", metavar="D", help="allow or deny")
        asked.add_argument("--since", metavar="T", help="RFC 3339, such as 2026-01-31T00:00:00Z")
        asked.add_argument("--until", metavar="T", help="likewise")
        followed = actions.add_parser("tail", help="follow as it grows", allow_abbrev=False)
        followed.add_argument("--ledger", choices=NAMES, default="governance")
        followed.add_argument("--last", type=int, default=10, metavar="N")
        checked = actions.add_parser("verify", help="read and check whole", allow_abbrev=False)
        checked.add_argument("--ledger", choices=NAMES, help="default: all that there are")
        checked.add_argument("--full", action="store_true", help="read every line (so far, always)")
        exported = actions.add_parser(
            "export", help="lines as they are stored, or a page", allow_abbrev=False
        )
        add_export(exported, NAMES)
        for parsed in (asked, followed, checked, exported):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        """Answer the question."""
        project = find_project(options, console)
        if options.question == "query":
            return self._query(project, options, console)
        if options.question == "tail":
            return self._tail(project, options, console)
        if options.question == "export":
            return self._export(project, options, console)
        return self._verify(project, options, console)

    def _query(self, project: Project, options: Options, console: Console) -> int:
        if options.last < 0:
            raise UsageError(f"--last must not be negative: {options.last}", where="--last")
        path = project.layout.ledger_paths()[options.ledger]
        if not _is_known(path):
            return _nothing_yet(options, console)
        if not path.exists():
            raise _gone(path, options.ledger)
        wanted = Filter(
            event_type=options.type,
            session_id=options.session,
            call_id=options.call,
            agent=options.agent,
            decision=options.decision,
            since=_seconds(options.since, "--since"),
            until=_seconds(options.until, "--until"),
        )
        rows = query(str(path), wanted, last=options.last or None)
        for stored in rows.entries:
            _show(stored, options, console)
        if not rows.entries and not rows.bad:
            console.warn(f"no entry of the ledger {options.ledger} matches")
        for bad in rows.bad:
            console.warn(_bad(bad))
        if rows.bad:
            console.warn(
                f"{len(rows.bad) + rows.bad_omitted} lines hold no entry: paddock ledger verify"
            )
        return _EXIT_INTEGRITY if rows.bad else 0

    def _tail(self, project: Project, options: Options, console: Console) -> int:
        if options.last < 0:
            raise UsageError(f"--last must not be negative: {options.last}", where="--last")
        path = project.layout.ledger_paths()[options.ledger]
        if not path.exists():
            raise UsageError(
                f"the ledger {options.ledger} does not exist yet",
                hint="it is made with its first entry",
            )
        for stored in follow(str(path), last=options.last, poll=_wait):
            _show(stored, options, console)
            console.stdout.flush()
        return 0

    def _export(self, project: Project, options: Options, console: Console) -> int:
        path = project.layout.ledger_paths()[options.ledger]
        if not path.exists():
            if _is_known(path):
                raise _gone(path, options.ledger)
            raise UsageError(f"the ledger {options.ledger} does not exist yet", where="--ledger")
        return run_export(path, options, console)

    def _verify(self, project: Project, options: Options, console: Console) -> int:
        paths = project.layout.ledger_paths()
        names = [options.ledger] if options.ledger else [n for n in NAMES if _is_known(paths[n])]
        # Threat: a ledger that was removed whole has no line left to complain of.
        gone = [name for name in names if _is_known(paths[name]) and not paths[name].exists()]
        reports = {name: _verify_one(paths[name], name) for name in names if name not in gone}
        if options.json:
            console.write_json({name: _report_json(report) for name, report in reports.items()})
        else:
            for name, report in reports.items():
                _say_report(name, report, console)
            if not names:
                console.say("there is no ledger yet")
        for name in gone:
            console.report(_gone(paths[name], name))
        if gone:
            return _EXIT_INTEGRITY
        return 0 if all(report.is_whole for report in reports.values()) else _EXIT_INTEGRITY


def _nothing_yet(options: Options, console: Console) -> int:
    if not options.json:
        console.warn(f"the ledger {options.ledger} has no entries yet")
    return 0


def _is_known(path: Path) -> bool:
    """Whether there is this ledger, or the folder that only a ledger has."""
    return path.exists() or path.with_suffix(".d").exists()


def _gone(path: Path, name: str) -> LedgerDamagedError:
    return LedgerDamagedError(
        f"the ledger {name} is gone: what is kept beside it says that there was one",
        where=str(path),
        hint="restore it from a backup",
    )


def _verify_one(path: Path, name: str) -> Verification:
    if not path.exists():
        raise UsageError(f"the ledger {name} does not exist yet", where="--ledger")
    return verify(str(path))


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text[:80]!r} is no time", where=option, hint="such as 2026-01-31T12:00:00Z"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _wait() -> bool:
    time.sleep(_POLL_S)
    return True


def _show(stored: StoredEntry, options: Options, console: Console) -> None:
    if options.json:
        console.write_json(entry_json(stored))
        return
    entry = stored.entry
    subject = entry.metadata.get("tool", "")
    parts = [
        f"{stored.seq:>6}",
        stored.timestamp,
        f"{entry.event_type:<14}",
        f"{entry.decision:<6}",
        f"{show_name(entry.agent):<10}",
        show_name(str(subject)),
        show_name(entry.reason),
    ]
    console.say("  ".join(parts).rstrip())


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


def _say_report(name: str, report: Verification, console: Console) -> None:
    state = "whole" if report.is_whole else "DAMAGED"
    head = "" if report.head is None else f", head {report.head.seq} {report.head.hash[:16]}"
    console.say(f"{name}: {state}, {report.entries} entries{head}")
    for problem in report.problems:
        console.say(
            f"  line {problem.line} (seq {problem.seq}, byte {problem.offset_bytes}): "
            f"{problem.kind}: {problem.detail}"
        )
    if report.problems_omitted:
        console.say(f"  {report.problems_omitted} more problems are not shown")
    for open_ in report.unanswered:
        call = f"{show_name(open_.tool)} (call {show_name(open_.call_id)}, seq {open_.seq})"
        console.say(f"  unknown outcome: {call}")
    if report.torn_bytes:
        torn = f"{report.torn_bytes} bytes follow the last whole line"
        console.say(f"  {torn}" + ("; the next append sets them aside" if report.is_whole else ""))
    if report.uncovered:
        console.say(f"  {report.uncovered}")


def _report_json(report: Verification) -> dict[str, Json]:
    return {
        "whole": report.is_whole,
        "entries": report.entries,
        "head": None if report.head is None else {"seq": report.head.seq, "hash": report.head.hash},
        "problems": [
            {
                "line": problem.line,
                "seq": problem.seq,
                "offset_bytes": problem.offset_bytes,
                "kind": str(problem.kind),
                "detail": problem.detail,
            }
            for problem in report.problems
        ],
        "problems_omitted": report.problems_omitted,
        "unknown": [
            {"seq": open_.seq, "call_id": open_.call_id, "tool": open_.tool}
            for open_ in report.unanswered
        ],
        "torn_bytes": report.torn_bytes,
        "uncovered": report.uncovered,
    }


COMMAND = LedgerCommand()
