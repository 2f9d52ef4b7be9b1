"""`query_ledger`: the newest entries of one ledger, newest last."""

import pytest
from msgspec.structs import replace

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.testing.memory_ledger import MemoryLedger
from paddock.values.entries import Entry
from tests.support.agents import MemoryLedgers


@pytest.fixture
def ledger(desk):
    made = MemoryLedger(clock=_Clock())
    made.append(
        [
            Entry("NOTE", session_id=f"SES-{n % 2}", reason=f"number {n}", metadata={"n": n})
            for n in range(20)
        ]
    )
    made.append([Entry("TURN_RECORDED", session_id="SES-1", metadata={"b": 1, "a": 2})])
    return made


class _Clock:
    """One hour an append: the rows at 01:00, the turn at 02:00."""

    def __init__(self):
        self.hours = 0

    def __call__(self):
        self.hours += 1
        return (self.hours - 1) * 3600.0


@pytest.fixture
def query(desk, ledger):
    ports = replace(desk.ports, ledgers=MemoryLedgers({"ho2m": ledger}))
    asking = replace(desk, ports=ports)
    return lambda **arguments: asking.run("query_ledger", **{"ledger": "ho2m", **arguments})


def numbers(output):
    return [entry["metadata"].get("n") for entry in output.details["entries"]]


def test_usually_the_ten_newest_entries_are_shown_newest_last(query):
    output = query(event_type="NOTE")

    assert numbers(output) == list(range(10, 20))
    assert (output.details["source"], output.details["count"]) == ("ho2m", 10)


def test_an_entry_has_all_its_fields(query, ledger):
    output = query(event_type="TURN_RECORDED")

    assert output.details["entries"] == [
        {
            "id": ledger.entries[-1].id,
            "event_type": "TURN_RECORDED",
            "submission_id": "",
            "decision": "",
            "reason": "",
            "timestamp": "1970-01-01T02:00:00.000000Z",
            "metadata_keys": ["a", "b"],
            "metadata": {"b": 1, "a": 2},
        }
    ]


@pytest.mark.parametrize(("count", "offset", "found"), [(0, 0, []), (2, 0, [18, 19])])
def test_as_many_as_were_asked_for(query, count, offset, found):
    assert numbers(query(event_type="NOTE", max_entries=count, offset=offset)) == found


@pytest.mark.parametrize(("offset", "found"), [(2, [16, 17]), (19, [0]), (20, []), (10**15, [])])
def test_an_offset_passes_over_the_newest(query, offset, found):
    assert numbers(query(event_type="NOTE", max_entries=2, offset=offset)) == found


def test_one_session_can_be_asked_for(query):
    assert numbers(query(event_type="NOTE", session_id="SES-1", max_entries=2)) == [17, 19]


@pytest.mark.parametrize(
    ("window", "count"),
    [
        ({"since": "1970-01-01T01:30:00Z"}, 1),
        ({"since": "1970-01-01T02:30:00+01:00"}, 1),
        ({"until": "1970-01-01T01:00:00"}, 10),
        ({"since": "2026-01-01"}, 0),
    ],
)
def test_a_window_of_time_can_be_asked_for(query, window, count):
    assert query(**window).details["count"] == count


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "99999-01-01", "0001-01-01"])
def test_what_is_no_time_is_refused(query, name, text):
    with pytest.raises(InvalidArgumentsError) as refused:
        query(**{name: text})
    assert refused.value.where == name


@pytest.mark.parametrize("name", ["packages", "HO2M", "../ho2m", "ho2m.jsonl"])
def test_an_unknown_ledger_is_refused(query, name):
    with pytest.raises(InvalidArgumentsError) as refused:
        query(ledger=name)
    assert refused.value.message == f"Unknown ledger: {name}. Valid: governance, ho2m, ho1m"


@pytest.mark.parametrize("count", [-1, limits.ledger_entries_listed_max + 1])
def test_a_count_out_of_range_is_refused(query, count):
    with pytest.raises(InvalidArgumentsError):
        query(max_entries=count)


def test_a_ledger_that_is_not_there_yet_has_no_entries(query):
    output = query(ledger="governance")

    assert output.details == {"source": "governance", "count": 0, "entries": []}
    assert output.content == "[no entries in governance]"


def test_a_reason_stands_there_whole_and_on_one_row(query, ledger):
    reason = "line one\nLED-fake\x1b[2J \u202e" + "x" * 5_000
    ledger.append([Entry("LONG", reason=reason)])

    output = query(event_type="LONG")

    assert output.details["entries"][0]["reason"] == reason
    assert "\n" not in output.content
    assert output.content.isascii()


def test_rows_over_the_limit_are_counted_and_the_way_on_is_named(query, ledger):
    ledger.append([Entry("BIG", metadata={"text": "x" * 40_000, "n": n}) for n in range(5)])

    output = query(event_type="BIG")

    assert output.details["count"] == 5
    assert output.content.endswith("[2 newest of 5 entries shown; use offset=2 for older ones]")


def test_policy_judges_the_ledger_by_its_name(desk):
    assert desk.actions("query_ledger", ledger="ho1m") == ["tool:ledger:query ho1m"]


@pytest.mark.parametrize(
    ("arguments", "types"),
    [
        ({}, ["NOTE", "NOTE", "TURN_RECORDED"]),
        ({"session_id": "SES-1"}, ["NOTE", "NOTE", "TURN_RECORDED"]),
        ({"event_type": "CHECKPOINT"}, ["CHECKPOINT"] * 3),
        ({"event_type": "TURN_RECORDED"}, ["TURN_RECORDED"]),
    ],
)
def test_bookkeeping_is_left_out_unless_it_is_asked_for(query, ledger, arguments, types):
    ledger.append([Entry("CHECKPOINT", session_id="SES-1") for _ in range(12)])
    shown = query(**arguments, max_entries=3).details["entries"]
    assert [entry["event_type"] for entry in shown] == types


@pytest.mark.parametrize(("tool", "field"), [("query_ledger", "ledger"), ("gate_check", "gate")])
def test_what_may_be_named_stands_in_the_schema(desk, tool, field):
    shown = desk.tool(tool).binder.schema["properties"][field]
    assert shown["enum"][0] in ("governance", "all")
    assert shown["default"] in shown["enum"]
