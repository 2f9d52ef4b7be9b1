"""What the ledgers say of a session: what its exchanges charged, and how it began."""

import pytest

from paddock.agent.session_log import RecordedSession, RecordedTurn, tokens_charged
from paddock.testing.memory_ledger import MemoryLedger
from paddock.values.entries import Entry
from tests.support.agents import SESSION, MemoryLedgers

USED = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4}


def charged(*metadata: dict, session_id: str = SESSION) -> int:
    ledger = MemoryLedger()
    ledger.append([Entry("LLM_CALL", session_id=session_id, metadata=each) for each in metadata])
    return tokens_charged(MemoryLedgers({"ho1m": ledger}), SESSION)


def test_a_sessions_exchanges_say_what_they_charged():
    assert charged({"charged_tokens": 100, "usage": USED}, {"charged_tokens": 20}) == 120


def test_older_exchanges_charged_what_they_used():
    assert charged({"usage": USED}, {"status": "error"}) == 10


def test_what_others_charged_is_theirs():
    assert charged({"charged_tokens": 100}, session_id="SES-0000000000000002") == 0


RECORDED = RecordedTurn(1, "first", "done", "success")
UNFINISHED = RecordedTurn(2, "second", "", "unfinished")


@pytest.mark.parametrize(
    ("turns", "unfinished", "first"),
    [
        ((), (), None),
        ((), (UNFINISHED,), "second"),
        ((RECORDED,), (), "first"),
        ((RECORDED,), (UNFINISHED,), "first"),
    ],
    ids=["none", "unfinished", "recorded", "both"],
)
def test_a_session_begins_with_its_first_message_whether_that_turn_ended_or_not(
    turns, unfinished, first
):
    session = RecordedSession(SESSION, "main", "2026-01-01", "", "builtin:", turns, unfinished)

    told = session.as_json()

    assert (told["first_message"], told["turns"], told["unfinished"]) == (
        first,
        len(turns),
        len(unfinished),
    )
