"""`query_ledger`: what stands in a ledger of the plane."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.ledger.format.encoding import TIMESTAMP_SECONDS_MAX
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, Rows
from paddock.plane.layout import LedgerName
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, filled_text, optional_integer, optional_text
from paddock.tools.outputs import result_schema
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.actions import Action
from paddock.values.calls import Json
from paddock.values.events import CHECKPOINT

LEDGERS: Final = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M)
_ENTRIES_DEFAULT: Final = 10


_NOTHING: Final = Rows((), (), 0, 0)


@dataclass(frozen=True, slots=True)
class QueryLedgerArguments(ArgumentType):
    """Arguments of `query_ledger`."""

    ledger: str = filled_text(
        "Which ledger.", LEDGERS[0].value, (ledger.value for ledger in LEDGERS)
    )
    event_type: str | None = optional_text(
        "Only entries of this type, such as TURN_RECORDED; without it all but CHECKPOINT."
    )
    max_entries: int = optional_integer(
        "How many of the newest entries; 0 means none.",
        _ENTRIES_DEFAULT,
        minimum=0,
        limit="ledger_entries_listed_max",
    )
    since: str | None = optional_text("Only from this time on, such as 2026-01-31T12:00:00Z.")
    until: str | None = optional_text("Only up to this time.")
    session_id: str | None = optional_text("Only entries of this session.")
    offset: int = optional_integer("How many of the newest entries to pass over.", 0, minimum=0)


@dataclass(frozen=True, slots=True)
class QueryLedgerPlan:
    """What will be looked for."""

    ledger: LedgerName
    wanted: Filter
    count: int
    offset: int
    actions: tuple[Action, ...]


class QueryLedger:
    """Entries as they stand there, newest last."""

    def resolve(self, arguments: QueryLedgerArguments, ports: Ports) -> QueryLedgerPlan:
        """Raises: InvalidArgumentsError for a ledger or a time that there is not."""
        del ports
        if arguments.ledger not in LEDGERS:
            shown = show_name(arguments.ledger[: limits.message_value_chars_max])
            raise InvalidArgumentsError(
                f"Unknown ledger: {shown}. Valid: {', '.join(LEDGERS)}",
                where="ledger",
                hint=f"give one of these, or leave ledger out for {LEDGERS[0]}",
            )
        ledger = LedgerName(arguments.ledger)
        wanted = Filter(
            event_type=arguments.event_type,
            without=None if arguments.event_type else CHECKPOINT,
            session_id=arguments.session_id,
            since=_seconds("since", arguments.since),
            until=_seconds("until", arguments.until),
        )
        actions = (Action("ledger", "query", ledger),)
        return QueryLedgerPlan(ledger, wanted, arguments.max_entries, arguments.offset, actions)

    def run(self, plan: QueryLedgerPlan, ports: Ports) -> ToolOutput:
        """Raises: HostError where the ledger cannot be read."""
        if plan.count == 0:
            return _output(plan, [], _NOTHING)
        rows = _NOTHING
        if ports.ledgers is not None:
            rows = ports.ledgers.query(plan.ledger, plan.wanted, plan.count + plan.offset)
        end = len(rows.entries) - plan.offset
        found = list(rows.entries[max(0, end - plan.count) : max(0, end)])
        return _output(plan, found, rows)


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
            f"{name} is no time: {quote(text)}", where=name, hint="such as 2026-01-31T12:00:00Z"
        )
    return seconds


def _output(plan: QueryLedgerPlan, found: list[StoredEntry], rows: Rows) -> ToolOutput:
    shown: list[str] = []
    left = limits.ledger_rows_bytes_max
    # The newest are kept where not all fit.
    for stored in reversed(found):
        row = _row(stored)
        left -= len(row.encode("utf-8", "surrogatepass")) + 1
        if left < 0 and shown:
            break
        shown.insert(0, row)
    content = shown or [f"[no entries in {plan.ledger}]"]
    if len(shown) < len(found):
        said = f"{len(shown)} newest of {len(found)} entries shown"
        content.append(f"[{said}; offset={plan.offset + len(shown)} goes on with older ones]")
    bad = len(rows.bad) + rows.bad_omitted
    if bad:
        content.append(f"[{bad} lines of {plan.ledger} hold no entry: it has to be verified]")
    details: dict[str, Json] = {
        "source": plan.ledger,
        "count": len(found),
        "entries": [_entry(stored) for stored in found],
    }
    return ToolOutput("\n".join(content), details)


def _row(stored: StoredEntry) -> str:
    # Threat: an entry holds what a model or a file name said; as ASCII JSON it stays one row.
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


_TEXT: Final[Json] = {"type": "string"}

SPEC: Final = ToolSpec(
    name="query_ledger",
    title="Query ledger",
    description=(
        "Return the newest entries of a ledger, newest last. governance holds what the system "
        "did, ho2m sessions and turns (TURN_RECORDED), ho1m model and tool calls."
    ),
    toolset="core",
    arguments=QueryLedgerArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "source": {"enum": [name.value for name in LEDGERS]},
            "count": {"type": "integer", "description": "How many entries there are here."},
            "entries": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": _TEXT,
                        "event_type": _TEXT,
                        "submission_id": _TEXT,
                        "decision": _TEXT,
                        "reason": _TEXT,
                        "timestamp": _TEXT,
                        "metadata_keys": {"type": "array", "items": _TEXT},
                        "metadata": {"type": "object"},
                    },
                    "required": ["id", "event_type", "timestamp", "metadata"],
                    "additionalProperties": False,
                },
            },
        }
    ),
)


def query_ledger_tool() -> Tool[QueryLedgerArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, QueryLedger())
