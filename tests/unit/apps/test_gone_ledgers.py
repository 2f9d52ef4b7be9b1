"""A ledger that was removed is never passed off as a past in which nothing happened."""

import shutil
from pathlib import Path

import pytest

READERS = {
    "history": ("ho1m", ("history",)),
    "history of a file": ("ho1m", ("history", "f")),
    "undo": ("ho1m", ("undo",)),
    "diff": ("ho1m", ("diff", "CALL-0123456789abcdef")),
    "policy replay": ("ho1m", ("policy", "replay")),
    "policy explain": ("ho1m", ("policy", "explain", "CALL-0123456789abcdef")),
    "session list": ("ho2m", ("session", "list")),
    "session show": ("ho2m", ("session", "show", "SES-0123456789abcdef")),
    "ledger content": ("ho1m", ("ledger", "content", "--call", "CALL-0123456789abcdef")),
    "ledger query": ("ho1m", ("ledger", "query", "--ledger", "ho1m")),
}
WITHOUT_A_TRACE = ("history", "undo", "session list")
"""Those that ask the ledger above as well."""


def ledger(user, name: str) -> Path:
    return Path(user.run("where", "--json").json["ledgers"][name])


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_a_ledger_that_is_gone_says_so(lived, reader):
    name, command = READERS[reader]
    before = lived.run(*command)
    assert "is gone" not in before.err
    ledger(lived, name).unlink()
    ran = lived.run(*command)
    assert (ran.status, ran.out, f"the ledger {name} is gone" in ran.err) == (4, "", True)


@pytest.mark.parametrize("reader", WITHOUT_A_TRACE)
def test_what_the_ledger_above_knows_of_is_gone_even_where_nothing_is_left(lived, reader):
    name, command = READERS[reader]
    assert lived.run("ledger", "checkpoint").status == 0
    path = ledger(lived, name)
    path.unlink()
    shutil.rmtree(path.with_suffix(".d"))
    ran = lived.run(*command)
    assert (ran.status, ran.out, f"the ledger {name} is gone" in ran.err) == (4, "", True)


@pytest.mark.parametrize(
    "command", [("history",), ("session", "list"), ("policy", "replay"), ("ledger", "query")]
)
def test_where_nothing_ever_happened_there_is_nothing_to_miss(user, command):
    ran = user.run(*command)
    assert (ran.status, "is gone" in ran.err) == (0, False)
