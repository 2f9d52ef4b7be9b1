"""`paddock ledger`."""

import argparse
import posixpath
import time
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.exits import EXIT_INTEGRITY
from paddock.apps.cli.ledger_content import add_content, add_erase, run_content, run_erase
from paddock.apps.cli.ledger_export import add_export, run_export
from paddock.apps.cli.ledger_proofs import (
    add_checkpoint,
    add_proof,
    add_rollback,
    run_checkpoint,
    run_proof,
    run_rollback,
)
from paddock.apps.cli.ledger_signer import add_signer, run_signer
from paddock.apps.cli.ledger_verify import add_verify, run_verify, unfinished
from paddock.apps.cli.options import Options, add_common
from paddock.apps.cli.project import find_project
from paddock.apps.cli.times import seconds_of
from paddock.assembly import Project
from paddock.assembly.agents import require_past_agent
from paddock.assembly.auditing import is_held_elsewhere
from paddock.errors import UsageError
from paddock.ledger.format_lines import StoredEntry
from paddock.ledger.presence import gone_error, is_known
from paddock.ledger.query import BadRow, Filter, query
from paddock.ledger.tail import find_torn_bytes, follow
from paddock.plane.layout import LedgerName
from paddock.runtime.records import clean
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import Entry
from paddock.values.events import APPROVAL_ANSWERED

NAMES: Final = (
    LedgerName.GOVERNANCE,
    LedgerName.HO2M,
    LedgerName.HO1M,
    LedgerName.PACKAGES,
)
_CHOICES: Final = tuple(name.value for name in NAMES)
"""As text: argparse shows its choices by `repr`."""
_POLL_S: Final = 0.25
_LAST: Final = 20


class LedgerCommand:
    """Questions to the ledgers, and what makes their checkpoints."""

    summary = (
        "Query, follow, verify and export the ledgers; make checkpoints and proofs of them.\n"
        "Entries are written by what happens alone, but for those of accept-rollback and erase."
    )
    examples = (
        "  paddock ledger query --ledger ho1m --type TOOL_DENIED --last 5\n"
        "  paddock ledger query --ledger ho1m --call CALL-1f2e --json\n"
        "  paddock ledger tail --ledger ho1m\n"
        "  paddock ledger verify\n"
        "  paddock ledger checkpoint --out governance.checkpoint\n"
        "  paddock ledger verify --checkpoint governance.checkpoint\n"
        "  paddock ledger proof 17 --ledger ho1m --json\n"
        "  paddock ledger proof CALL-1f2e3d4c5b6a7988 --json\n"
        "  paddock ledger accept-rollback\n"
        "  paddock ledger export --ledger ho1m --format html --out ho1m.html"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The sub-commands."""
        actions = parser.add_subparsers(dest="question", required=True, metavar="QUESTION")
        asked = actions.add_parser("query", help="entries, newest last", allow_abbrev=False)
        asked.add_argument("--ledger", choices=_CHOICES, default=LedgerName.GOVERNANCE.value)
        asked.add_argument("--type", metavar="T", help="event type, such as TOOL_DENIED")
        asked.add_argument(
            "--last", type=int, metavar="N", help=f"the newest so many; 0: all (default: {_LAST})"
        )
        asked.add_argument("--session", metavar="ID")
        asked.add_argument("--call", metavar="ID")
        asked.add_argument("--agent", metavar="NAME")
        asked.add_argument("--decision", metavar="D", help="allow or deny")
        asked.add_argument(
            "--path", metavar="PATH", help="in a workspace: entries that name it, or what is below"
        )
        asked.add_argument("--since", metavar="T", help="RFC 3339, such as 2026-01-31T00:00:00Z")
        asked.add_argument("--until", metavar="T", help="likewise")
        followed = actions.add_parser("tail", help="follow as it grows", allow_abbrev=False)
        followed.add_argument("--ledger", choices=_CHOICES, default=LedgerName.GOVERNANCE.value)
        followed.add_argument("--last", type=int, default=10, metavar="N")
        followed.add_argument(
            "-f", "--follow", action="store_true", help="as tail(1) is told; it follows anyway"
        )
        checked = actions.add_parser("verify", help="read and check whole", allow_abbrev=False)
        add_verify(checked, _CHOICES)
        signed = actions.add_parser(
            "checkpoint", help="sign what is there, and print the note", allow_abbrev=False
        )
        add_checkpoint(signed, _CHOICES)
        proved = actions.add_parser(
            "proof", help="prove an entry to an outsider", allow_abbrev=False
        )
        add_proof(proved, _CHOICES)
        accepted = actions.add_parser(
            "accept-rollback", help="go on after a restore from a backup", allow_abbrev=False
        )
        add_rollback(accepted, _CHOICES)
        signing = actions.add_parser(
            "signer", help="hold the keys for another user: [ledger] signer", allow_abbrev=False
        )
        add_signer(signing)
        exported = actions.add_parser(
            "export", help="lines as they are stored, or a page", allow_abbrev=False
        )
        add_export(exported, _CHOICES)
        shown = actions.add_parser(
            "content", help="print what an entry names by a salted digest", allow_abbrev=False
        )
        add_content(shown)
        erased = actions.add_parser(
            "erase",
            help="erase such a content and its salt for good; recorded, and proofs stay",
            allow_abbrev=False,
        )
        add_erase(erased)
        parsers = (asked, followed, checked, exported, signed, proved, accepted, shown, erased)
        for parsed in parsers:
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        """Answer the question."""
        if options.question == "signer":
            return run_signer(options, console)
        project = find_project(options, console)
        if options.question == "query":
            return self._query(project, options, console)
        if options.question == "tail":
            return self._tail(project, options, console)
        if options.question == "content":
            return run_content(project, options, console)
        if options.question == "erase":
            return run_erase(project, options, console)
        if options.question == "export":
            return self._export(project, options, console)
        if options.question == "checkpoint":
            return run_checkpoint(project, options, console)
        if options.question == "proof":
            return run_proof(project, options, console)
        paths = project.layout.ledger_paths()
        known = [
            name
            for name in NAMES
            if is_known(paths[name]) or is_held_elsewhere(project.layout, project.environment, name)
        ]
        named = [LedgerName(options.ledger)] if options.ledger else known
        if options.question == "accept-rollback":
            return run_rollback(project, tuple(named), options, console)
        return run_verify(project, named, known, options, console)

    def _query(self, project: Project, options: Options, console: Console) -> int:
        if options.last is not None and options.last < 0:
            raise UsageError(f"--last must not be negative: {options.last}", where="--last")
        if options.agent is not None:
            require_past_agent(project, options.agent)
        path = project.layout.ledger_paths()[LedgerName(options.ledger)]
        if not is_known(path):
            return _nothing_yet(options, console)
        if not path.exists():
            raise gone_error(path, options.ledger)
        wanted = Filter(
            event_type=options.type,
            session_id=options.session,
            call_id=options.call,
            agent=options.agent,
            decision=options.decision,
            since=seconds_of(options.since, "--since"),
            until=seconds_of(options.until, "--until"),
            path=_path_of(options.path),
        )
        # One more than is shown by itself tells whether there are more.
        last = _LAST + 1 if options.last is None else options.last or None
        rows = query(str(path), wanted, last=last)
        is_cut = options.last is None and len(rows.entries) > _LAST
        for stored in rows.entries[1:] if is_cut else rows.entries:
            _show(stored, options, console)
        if is_cut:
            console.warn(f"older entries than these {_LAST} match, too: --last 0 shows all")
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

    def _tail(self, project: Project, options: Options, console: Console) -> int:
        if options.last < 0:
            raise UsageError(f"--last must not be negative: {options.last}", where="--last")
        path = project.layout.ledger_paths()[LedgerName(options.ledger)]
        if not path.exists():
            if is_known(path):
                raise gone_error(path, options.ledger)
            raise UsageError(
                f"the ledger {options.ledger} does not exist yet",
                hint="it is made with its first entry",
            )
        torn_bytes = find_torn_bytes(str(path))
        if torn_bytes:
            console.warn(f"{unfinished(torn_bytes)} and are no entry yet")
        for stored in follow(str(path), last=options.last, poll=_wait):
            _show(stored, options, console)
            console.stdout.flush()
        return 0

    def _export(self, project: Project, options: Options, console: Console) -> int:
        if options.agent is not None:
            require_past_agent(project, options.agent)
        path = project.layout.ledger_paths()[LedgerName(options.ledger)]
        if not path.exists():
            if is_known(path):
                raise gone_error(path, options.ledger)
            raise UsageError(f"the ledger {options.ledger} does not exist yet", where="--ledger")
        return run_export(path, options, console)


def _path_of(given: str | None) -> str | None:
    """As entries write it. Raises: UsageError."""
    if given == "":
        raise UsageError("--path is empty, and names no path", hint="for any path, write .")
    return None if given is None else clean(posixpath.normpath(given))


def _nothing_yet(options: Options, console: Console) -> int:
    if not options.json:
        console.warn(f"the ledger {options.ledger} has no entries yet")
    return 0


def _wait() -> bool:
    time.sleep(_POLL_S)
    return True


def _show(stored: StoredEntry, options: Options, console: Console) -> None:
    if options.json:
        console.write_json(entry_json(stored))
        return
    entry = stored.entry
    subject = entry.metadata.get("tool", "")
    call = f"({show_name(entry.call_id)})" if entry.call_id else ""
    parts = [
        f"{stored.seq:>6}",
        stored.timestamp,
        f"{entry.event_type:<14}",
        f"{show_name(entry.decision):<6}",
        f"{show_name(entry.agent):<10}",
        show_name(str(subject)),
        show_name(entry.reason) or _answered(entry),
        call,
    ]
    console.say("  ".join(part for part in parts if part).rstrip())


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


COMMAND = LedgerCommand()
