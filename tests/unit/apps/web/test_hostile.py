"""Entries that say what no tool of ours writes: they are shown as text, and end no answer."""

import json
from contextlib import closing

import pytest

from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.project import find_site
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.values.entries import Entry
from tests.support.consoles import ConsoleServer, console_place, serving

pytestmark = pytest.mark.loopback
TEXT = "</script><img src=x onerror=alert(1)>\u202e\u200b\x1b]0;x\x07\r\n'\"`${}"
ODD = (None, 7, 1.5, True, [], {}, [[]], {"a": {}}, "", TEXT, [TEXT, 1, None])
MEMBERS = ("tool", "outcome", "actions", "arguments", "effects", "status", "host", "rule", "agents")
MEMBERS = (*MEMBERS, "matched", "output_kept", "intent", "effects_stored", "refused", "client_call")
EVENTS = ("TOOL_INTENT", "TOOL_RESULT", "TOOL_DENIED", "TOOL_STAGED", "HOOK_DECISION")
EVENTS = (*EVENTS, "NET_CONNECT", "NET_REFUSED", "UNHEARD_OF")


def hostile() -> list[Entry]:
    found = [
        Entry(event, TEXT, TEXT, TEXT, TEXT, TEXT, f"CALL-{name}-{number}", {name: odd})
        for event in EVENTS
        for name in MEMBERS
        for number, odd in enumerate(ODD)
    ]
    whole = dict.fromkeys(MEMBERS, TEXT)
    return [*found, *(Entry(event, *[TEXT] * 6, whole) for event in EVENTS)]


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return hostile()


@pytest.fixture(scope="module")
def console(tmp_path_factory, entries):
    place = console_place(tmp_path_factory.mktemp("hostile"))
    site = find_site(place.project, read_environment(place.variables), None)
    with serving(place) as server:
        at = (site.layout, site.environment, LedgerName.HO1M)
        with closing(PlaneLedger(*at).open()) as ledger:
            for begin in range(0, len(entries), 500):
                ledger.append(entries[begin : begin + 500])
        yield server


def test_every_one_of_them_is_listed_as_the_text_that_it_is(console: ConsoleServer, entries):
    found, before = [], ""
    while before is not None:
        asked = {"before": before} if before else {}
        answer = console.get("timeline", ledger="ho1m", limit=500, **asked)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.body.isascii()
        found += answer.value["entries"]
        before = answer.value["next"]
    found.reverse()
    shown = [each for each in found if each["event_type"] != "GENESIS"]
    assert [each["metadata"] for each in shown] == [dict(each.metadata) for each in entries]
    assert {each["agent"] for each in shown} == {TEXT}


@pytest.mark.parametrize("path", ["now", "files", "sessions", "inbox", "ledgers"])
def test_no_page_ends_at_them(console: ConsoleServer, path: str):
    assert console.get(path).status == 200


@pytest.mark.parametrize(
    "asked",
    [{"tool": "x"}, {"outcome": "failed"}, {"outcome": "ask"}, {"path": "x"}, {"host": "x"}],
)
def test_no_search_ends_at_them(console: ConsoleServer, asked):
    assert console.get("timeline", ledger="ho1m", **asked).status == 200


def test_each_of_them_opens(console: ConsoleServer, entries):
    # One of a kind: what a member may be, and every event.
    step = len(ODD) * len(MEMBERS) + 7
    for seq in (*range(1, len(entries), step), *range(1, len(MEMBERS) * len(ODD), 11)):
        answer = console.get("entry", ledger="ho1m", seq=seq)
        assert answer.status == 200, (seq, answer.body[:500])


def test_a_policy_is_tried_on_them_without_an_end(console: ConsoleServer):
    replay = console.post("policy/replay", text="")
    assert (replay.status, json.loads(replay.body)["not_replayable"] > 0) == (200, True)
