"""What the ledgers say of a session: what its exchanges charged."""

from paddock.agent.recorded import tokens_charged
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
