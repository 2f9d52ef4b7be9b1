"""`query_ledger`, `list_packages`, `gate_check`: report ledgers, packages and gates."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.gates.results import (
    ALL_GATES,
    PLANE_GATES,
    GateResult,
    Status,
    count_of,
    not_applicable,
)
from paddock.ledger.format.line import TIMESTAMP_SECONDS_MAX
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, Rows
from paddock.packages.rows import Failure, PackageRow, State
from paddock.plane.layout import LedgerName
from paddock.text.show import quote, show_name
from paddock.tools import arguments as fields
from paddock.tools.spec import READS, GivenPlan, Ports, Shown, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.values.entries import CHECKPOINT

LEDGERS: Final = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M)
_ENTRIES_DEFAULT: Final = 10


class QueryLedgerArguments(fields.ArgumentType):
    ledger: str = fields.filled_text(
        "The ledger to query.", LEDGERS[0].value, (ledger.value for ledger in LEDGERS)
    )
    event_type: str | None = fields.optional_text(
        "Only entries of this type, such as TURN_RECORDED; by default, all but CHECKPOINT."
    )
    max_entries: int = fields.optional_integer(
        "Maximum number of entries, newest first; 0 means none.",
        _ENTRIES_DEFAULT,
        minimum=0,
        limit="ledger_entries_listed_max",
    )
    since: str | None = fields.optional_text(
        "Only entries from this time, such as 2026-01-31T12:00:00Z."
    )
    until: str | None = fields.optional_text("Only entries up to this time.")
    session_id: str | None = fields.optional_text("Only entries of this session.")
    offset: int = fields.optional_integer("Number of newest entries to skip.", 0, minimum=0)


class QueryLedgerPlan(Struct, frozen=True):
    given: QueryLedgerArguments
    wanted: Filter
    actions: tuple[Action, ...]


class QueryLedger:
    def resolve(self, arguments: QueryLedgerArguments, ports: Ports) -> QueryLedgerPlan:
        del ports
        ledger = _known("ledger", arguments.ledger, LEDGERS)
        wanted = Filter(
            event_type=arguments.event_type,
            without=None if arguments.event_type else CHECKPOINT,
            session_id=arguments.session_id,
            since=_seconds("since", arguments.since),
            until=_seconds("until", arguments.until),
        )
        return QueryLedgerPlan(arguments, wanted, (Action("ledger", "query", ledger),))

    def run(self, plan: QueryLedgerPlan, ports: Ports) -> ToolOutput:
        name, count, offset = plan.given.ledger, plan.given.max_entries, plan.given.offset
        rows = Rows((), (), 0, 0)
        if count and ports.ledgers is not None:
            rows = ports.ledgers.query(LedgerName(name), plan.wanted, count, offset)
        found = rows.entries
        shown = _fitting(found)
        content = shown or [f"[no entries in {name}]"]
        if len(shown) < len(found):
            said = f"{len(shown)} newest of {len(found)} entries shown"
            content.append(f"[{said}; use offset={offset + len(shown)} for older ones]")
        bad = len(rows.bad) + rows.bad_omitted
        if bad:
            content.append(f"[{bad} lines of {name} are not valid entries: verify this ledger]")
        entries: list[Json] = [_entry(stored) for stored in found]
        details: dict[str, Json] = {"source": name, "count": len(found), "entries": entries}
        return ToolOutput("\n".join(content), details)


def _known(argument: str, name: str, valid: Sequence[str]) -> str:
    """Return the name if it is valid. Raises: InvalidArgumentsError."""
    if name in valid:
        return name
    shown = show_name(name[: limits.message_value_chars_max])
    raise InvalidArgumentsError(
        f"Unknown {argument}: {shown}. Valid: {', '.join(valid)}",
        where=argument,
        hint=f"give one of these, or leave {argument} out for {valid[0]}",
    )


def _seconds(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        seconds = -1.0
    if not 0 <= seconds < TIMESTAMP_SECONDS_MAX:
        raise InvalidArgumentsError(
            f"{name} is not a time: {quote(text)}",
            where=name,
            hint="give a time such as 2026-01-31T12:00:00Z",
        )
    return seconds


def _fitting(found: Sequence[StoredEntry]) -> list[str]:
    shown: list[str] = []
    left = limits.ledger_rows_bytes_max
    for stored in reversed(found):
        row = _row(stored)
        left -= len(row.encode("utf-8", "surrogatepass")) + 1
        if left < 0 and shown:
            break
        shown.insert(0, row)
    return shown


def _row(stored: StoredEntry) -> str:
    # Threat: an entry holds text of models and file names; as ASCII JSON it stays one row.
    entry = _entry(stored)
    del entry["metadata_keys"]
    return json.dumps({name: value for name, value in entry.items() if value != ""})


def _entry(stored: StoredEntry) -> dict[str, Json]:
    entry = stored.entry
    return {
        "id": stored.id,
        "event_type": entry.event_type,
        "submission_id": entry.submission_id,
        "decision": entry.decision,
        "reason": entry.reason,
        "timestamp": stored.timestamp,
        "metadata_keys": sorted(entry.metadata),
        "metadata": dict(entry.metadata),
    }


QUERY_LEDGER: Final = Tool(
    ToolSpec(
        name="query_ledger",
        title="Query ledger",
        description=(
            "Return the newest entries of a ledger, newest last. Ledgers: governance has system "
            "actions, ho2m has sessions and turns (TURN_RECORDED), ho1m has model and tool calls."
        ),
        toolset="core",
        arguments=QueryLedgerArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "source": {"enum": [name.value for name in LEDGERS]},
                "count": {"type": "integer", "description": "Number of entries returned."},
                "entries": fields.rows_schema(
                    {
                        "id": fields.TEXT,
                        "event_type": fields.TEXT,
                        "timestamp": fields.TEXT,
                        "metadata": {"type": "object"},
                    },
                    optional={
                        "submission_id": fields.TEXT,
                        "decision": fields.TEXT,
                        "reason": fields.TEXT,
                        "metadata_keys": fields.TEXTS,
                    },
                ),
            }
        ),
    ),
    QueryLedger(),
)


class ListPackagesArguments(fields.ArgumentType):
    pass


class ListPackages:
    def resolve(
        self, arguments: ListPackagesArguments, ports: Ports
    ) -> GivenPlan[ListPackagesArguments]:
        del ports
        return GivenPlan(arguments, (Action("package", "list", "*"),))

    def run(self, plan: GivenPlan[ListPackagesArguments], ports: Ports) -> ToolOutput:
        del plan
        rows = () if ports.packages is None else ports.packages()
        content = "\n".join(map(_line, rows)) or "[no packages are installed]"
        listed: list[Json] = [
            {
                "package_id": row.package_id,
                "version": row.version,
                "tier": row.tier,
                "framework": row.framework_id,
                "spec": row.spec_id,
                "state": row.state,
            }
            for row in rows
        ]
        return ToolOutput(content, {"count": len(rows), "packages": listed})


def _line(row: PackageRow) -> str:
    # Threat: a package's author writes its title; only fields of a fixed form are shown.
    if not row.version:
        return f"{show_name(row.package_id)}  {row.state}"
    parts = (row.package_id, row.version, row.tier, row.framework_id, row.spec_id, row.state)
    changed = f"  {len(row.failures)} files" if row.failures else ""
    return "  ".join(parts) + changed


LIST_PACKAGES: Final = Tool(
    ToolSpec(
        name="list_packages",
        title="List packages",
        description=(
            "List the installed packages: id, version, tier, framework, spec and state. The state "
            "is installed, changed (a file differs from the package's), changing (an install is "
            "in progress) or damaged."
        ),
        toolset="core",
        arguments=ListPackagesArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "count": {"type": "integer", "description": "Number of packages."},
                "packages": fields.rows_schema(
                    {
                        **dict.fromkeys(
                            ("package_id", "version", "tier", "framework", "spec"), fields.TEXT
                        ),
                        "state": {"enum": [str(state) for state in State]},
                    }
                ),
            }
        ),
    ),
    ListPackages(),
)


ALL: Final = "all"
_WORDS: Final = {
    Status.PASS: "pass",
    Status.FAIL: "FAIL",
    Status.NOT_APPLICABLE: "not applicable",
}


class GateCheckArguments(fields.ArgumentType):
    gate: str = fields.filled_text("The gate to check, or all.", ALL, (ALL, *PLANE_GATES))


class GateCheck:
    """Checks each gate now, without running acceptance commands."""

    def resolve(self, arguments: GateCheckArguments, ports: Ports) -> GivenPlan[GateCheckArguments]:
        del ports
        name = _known("gate", arguments.gate, (ALL, *ALL_GATES))
        return GivenPlan(arguments, (Action("gate", "check", name),))

    def run(self, plan: GivenPlan[GateCheckArguments], ports: Ports) -> ToolOutput:
        names = PLANE_GATES if plan.given.gate == ALL else (plan.given.gate,)
        if ports.gates is None:
            results = tuple(not_applicable(name, "this is not a bare plane") for name in names)
        else:
            results = ports.gates(names)
        counts: dict[str, Json] = {
            "passed": count_of(results, Status.PASS),
            "failed": count_of(results, Status.FAIL),
            "not_applicable": count_of(results, Status.NOT_APPLICABLE),
        }
        rows = [_gate_text(result, ports.shown) for result in results]
        rows.append(", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items()))
        gates: list[Json] = [
            {
                "name": result.gate,
                "status": result.status,
                "passed": result.status is Status.PASS,
                "checks": result.checks,
                "failures": [
                    {"file": each.file, "reason": each.reason}
                    for each in _shown_failures(result, ports.shown)
                ],
                "note": result.note,
            }
            for result in results
        ]
        return ToolOutput("\n".join(rows), {"gates": gates, **counts})


def _shown_failures(result: GateResult, shown: Shown) -> list[Failure]:
    """Return the failures without those of files that the agent may not see."""
    return [each for each in result.failures if not each.file or shown.is_shown(each.file)]


def _gate_text(result: GateResult, shown: Shown) -> str:
    failures = _shown_failures(result, shown)
    note = f"  {show_name(result.note)}" if result.note else ""
    lines = [f"{result.gate}  {_WORDS[result.status]}  {result.checks} checks{note}"]
    listed = failures[: limits.gate_failures_listed_max]
    lines += [f"  {show_name(str(failure))}" for failure in listed]
    more, hidden = len(failures) - len(listed), len(result.failures) - len(failures)
    if more:
        lines.append(f"  [{more} more failures are not listed]")
    if hidden:
        lines.append(f"  [{hidden} failures of files that are not shown]")
    return "\n".join(lines)


GATE_CHECK: Final = Tool(
    ToolSpec(
        name="gate_check",
        title="Check gates",
        description=(
            "Check the plane's gates: files and ownership (G0B), specs and frameworks (G1, "
            "G1-COMPLETE), approvals (G2), dependencies (G3), acceptance (G4, from its last run), "
            "signatures (G5), ledgers (G6). Each passes, fails with files and reasons, or is not "
            "applicable, which does not count as a pass."
        ),
        toolset="core",
        arguments=GateCheckArguments,
        effects=READS,
        output_schema=fields.result_schema(
            {
                "passed": fields.INTEGER,
                "failed": fields.INTEGER,
                "not_applicable": fields.INTEGER,
                "gates": fields.rows_schema(
                    {
                        "name": fields.TEXT,
                        "status": {"enum": [str(status) for status in Status]},
                        "passed": fields.BOOLEAN,
                        "checks": fields.INTEGER,
                        "failures": fields.rows_schema(
                            {"file": fields.TEXT, "reason": fields.TEXT}
                        ),
                        "note": fields.TEXT,
                    }
                ),
            }
        ),
    ),
    GateCheck(),
)
