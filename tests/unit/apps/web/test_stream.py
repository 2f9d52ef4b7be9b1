"""New entries, and what waits, reach every page that is open; and a ledger that is damaged says so."""

import os
import sqlite3
from contextlib import closing

import pytest

from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.project import find_site
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.values.entries import Entry
from tests.support.consoles import console_place, make_call, serving
from tests.support.mcp_servers import McpPlace

pytestmark = pytest.mark.loopback


def test_a_page_is_told_where_the_ledgers_end_and_then_each_new_entry(place: McpPlace, console):
    with console.stream() as one, console.stream() as other:
        seen = one.until("hello")["seen"]
        other.until("hello")
        made = make_call(place, "view", path="README.md")
        for stream in (one, other):
            asked = stream.until("entry", ledger="ho1m", event_type="TOOL_INTENT")
            ended = stream.until("entry", ledger="ho1m", event_type="TOOL_RESULT")
            assert asked["seq"] >= seen.get("ho1m", 0)
            assert (asked["call_id"], asked["state"], asked["target"]) == (
                made["call"],
                "running",
                "README.md",
            )
            assert (ended["call_id"], ended["state"]) == (made["call"], "done")


def test_each_entry_comes_once_and_in_order(place: McpPlace, console):
    with console.stream() as stream:
        stream.until("hello")
        calls = [make_call(place, "view", path="README.md")["call"] for _ in range(3)]
        numbers = []
        for name, value in stream.events():
            if name == "entry" and value["ledger"] == "ho1m":
                numbers.append(value["seq"])
                if (value["call_id"], value["state"]) == (calls[-1], "done"):
                    break
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_page_is_told_of_a_question_and_that_it_was_answered_at_the_terminal(place, console):
    with console.stream() as stream:
        stream.until("hello")
        kept = make_call(place, "create_file", path="asked/told", content="x")["approval"]
        assert kept in stream.until("inbox")["waiting"]
        assert place.run("approvals", "refuse", kept).returncode == 0
        assert kept not in stream.until("inbox")["waiting"]


def test_a_page_that_comes_later_is_told_what_waits(place: McpPlace, console):
    kept = make_call(place, "create_file", path="asked/later", content="x")["approval"]
    for _ in range(2):
        with console.stream() as stream:
            while kept not in stream.until("inbox")["waiting"]:
                pass


def test_a_server_that_is_ended_ends_its_streams(place: McpPlace):
    with serving(place) as server, server.stream() as stream:
        stream.until("hello")
        server.process.terminate()
        assert [name for name, _ in stream.events() if name == "entry"] == []


def test_a_ledger_that_is_damaged_while_it_is_watched_is_said_to_be(tmp_path):
    place = console_place(tmp_path)
    make_call(place, "view", path="README.md")
    with serving(place) as server, server.stream() as stream:
        stream.until("hello")
        with ledger_of(place, "ho1m").open("ab") as file:
            file.write(b"not an entry\n")
        told = stream.until("damaged", ledger="ho1m")
        assert told["error"]["code"] == "ledger.damaged"
        with server.stream() as later:
            assert later.until("damaged", ledger="ho1m") == told
        now = server.get("now").value
        assert [each["ledger"] for each in now["damaged"]] == ["ho1m"]
        assert server.get("timeline", ledger="ho2m").value["entries"]
        report = server.post("ledgers/verify", ledger="ho1m").value
        assert report["is_sound"] is False
        assert "DAMAGED" in report["text"][0]


def test_a_ledger_that_is_gone_is_said_to_be(tmp_path):
    place = console_place(tmp_path)
    make_call(place, "view", path="README.md")
    with serving(place) as server:
        os.unlink(ledger_of(place, "ho1m"))
        damaged = server.get("now").value["damaged"]
        assert [each["ledger"] for each in damaged] == ["ho1m"]
        assert "is gone" in damaged[0]["error"]["message"]


def ledger_of(place: McpPlace, name: str):
    import json
    from pathlib import Path

    return Path(json.loads(place.run("where", "--json").stdout)["ledgers"][name])


def test_a_search_waits_for_no_index_which_is_made_before_anybody_asks(tmp_path):
    place = console_place(tmp_path)
    make_call(place, "view", path="README.md")
    site = find_site(place.project, read_environment(place.variables), None)
    padding = {"padding": "x" * 8_000}
    entries = [Entry("PADDED", agent="somebody", metadata=padding) for _ in range(100)]
    with closing(PlaneLedger(site.layout, site.environment, LedgerName.HO1M).open()) as ledger:
        ledger.append(entries)
    index = ledger_of(place, "ho1m").with_suffix(".d") / "index.sqlite"
    with serving(place) as server:
        while not index.exists() or not index.stat().st_size:
            assert server.get("now").status == 200
        with closing(sqlite3.connect(index, timeout=60, isolation_level=None)) as busy:
            busy.execute("BEGIN EXCLUSIVE")
            found = server.get("timeline", ledger="ho1m", agent="main").value["entries"]
        assert {each["target"] for each in found} == {"README.md", ""}
        assert server.get("timeline", ledger="ho1m", agent="main").value["entries"] == found
