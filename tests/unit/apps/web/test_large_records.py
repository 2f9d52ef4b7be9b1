"""What a page needs at first does not grow with the record: counted in bytes that are read."""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from paddock import limits
from paddock.apps.web import changes, inbox, policy, record
from paddock.apps.web.view import ServedPlane
from paddock.assembly.ledgers import PlaneLedger
from paddock.assembly.project import find_site
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.values.entries import SESSION_START, TOOL_INTENT, TOOL_RESULT, TURN_RECORDED, Entry
from tests.support.consoles import console_place, make_call

FIRST: dict[str, Callable[[ServedPlane], dict[str, Any]]] = {
    "now": record.show_now,
    "inbox": inbox.show,
    "timeline": lambda plane: record.search(plane, limit=200),
    "files": lambda plane: changes.list_files(plane, newest=500),
    "policy": policy.show,
    "sessions": changes.list_recorded,
    "ledgers": record.list_ledgers,
}
SESSIONS = 800
"""More than a page lists."""
DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def planes(tmp_path_factory) -> list[ServedPlane]:
    """One with so many sessions, and one with six times as many."""
    return [_plane(tmp_path_factory.mktemp("record"), SESSIONS * times) for times in (1, 6)]


def _plane(base: Path, sessions: int) -> ServedPlane:
    place = console_place(base)
    make_call(place, "create_file", path="asked/guide.md", content="# Guide\n")
    site = find_site(place.project, read_environment(place.variables), None)
    for name, made in ((LedgerName.HO2M, _talk), (LedgerName.HO1M, _calls)):
        with closing(PlaneLedger(site.layout, site.environment, name).open()) as ledger:
            entries = (entry for at in range(sessions) for entry in made(f"SES-{at:016x}"))
            while batch := [*islice(entries, limits.ledger_batch_entries_max)]:
                ledger.append(batch)
    return ServedPlane(site, reads_only=False)


def _talk(session: str) -> Iterator[Entry]:
    said = {"turn": 1, "outcome": "success", "user_message": session, "response": "done"}
    for kind, facts in ((SESSION_START, {}), (TURN_RECORDED, said)):
        yield Entry(kind, session_id=session, agent="main", metadata=facts)


def _calls(session: str) -> Iterator[Entry]:
    about = {"session_id": session, "agent": "main", "call_id": f"CALL-{session}"}
    facts = {"tool": "create_file", "actions": [f"tool:file:create {session}.md"]}
    made = {"path": f"{session}.md", "kind": "created", "before": None, "after": DIGEST}
    # A program's own tool may have an argument of that name, which says nothing of its workspace.
    asked = {**facts, "arguments": {"agent": "another"}}
    yield Entry(TOOL_INTENT, decision="allow", metadata=asked, **about)
    yield Entry(TOOL_RESULT, metadata={**facts, "status": "ok", "effects": [made]}, **about)


def _bytes_read(act: Callable[[], object]) -> int:
    def so_far() -> int:
        return int(Path("/proc/thread-self/io").read_text().split()[1])

    before = so_far()
    idle = so_far() - before
    before = so_far()
    act()
    return so_far() - before - idle


@pytest.mark.parametrize("name", FIRST)
def test_a_page_reads_no_more_of_a_larger_record(planes: list[ServedPlane], name: str) -> None:
    for plane in planes:
        FIRST[name](plane)  # what a process reads once, such as the program of a new module
    small, large = (_bytes_read(lambda: FIRST[name](plane)) for plane in planes)  # noqa: B023 - called in this turn
    assert large <= small + limits.ledger_scan_chunk_bytes  # a ledger is read in such pieces


def test_the_newest_changes_come_first_and_all_of_them_when_asked(planes) -> None:
    found = changes.list_files(planes[0], newest=20)
    whole = changes.list_files(planes[0])
    assert (found["is_part"], len(found["files"])) == (True, 10)
    assert (whole["is_part"], len(whole["files"])) == (False, SESSIONS)
    assert found["calls"] == whole["calls"][:10]
    every = changes.list_files(planes[0], newest=10**6)
    assert every == whole


def test_the_newest_sessions_are_those_of_the_whole_list(planes) -> None:
    listed = changes.list_recorded(planes[0])["sessions"]
    assert [each["session_id"] for each in listed] == [
        f"SES-{at:016x}" for at in range(SESSIONS - 1, SESSIONS - 501, -1)
    ]


def test_a_call_is_compared_by_its_session_as_by_the_whole_record(planes) -> None:
    call = changes.list_files(planes[1])["calls"][0]
    named = changes.show_diff(planes[1], call=call["entry"], session=call["session"])
    assert named == changes.show_diff(planes[1], call=call["entry"])
    assert named["paths"][0]["path"] == f"{call['session']}.md"
