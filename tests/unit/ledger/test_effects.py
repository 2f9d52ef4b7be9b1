import pytest

from paddock.errors import HostError
from paddock.ledger.query import Filter, find_declarations, find_effects, query_lines
from paddock.values.entries import Entry
from tests.support.ledgers import open_ledger

EFFECT = {"path": "a", "kind": "edited", "before": "x", "after": "y"}


def result(call: str, effects: object, tool: str = "edit") -> Entry:
    return Entry(
        "TOOL_RESULT",
        session_id="S",
        agent="main",
        call_id=call,
        metadata={"tool": tool, "status": "ok", "effects": effects},
    )


def intent(call: str, agent: str) -> Entry:
    return Entry("TOOL_INTENT", session_id="S", agent=agent, call_id=call, metadata={})


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.jsonl")


def fill(path, *entries):
    ledger = open_ledger(path)
    ledger.write(list(entries))
    ledger.close()


def calls(stored) -> list[str]:
    return [row.entry.call_id for row in stored]


def test_only_results_with_effects_are_found_newest_last(path):
    fill(
        path,
        result("one", [EFFECT]),
        result("reads", []),
        intent("two", "main"),
        result("two", "unknown"),
        result("three", [EFFECT]),
    )
    found = find_effects(path)
    assert (calls(found.results), found.intents, found.bad) == (["one", "two", "three"], (), ())


def test_the_intents_of_chosen_agents_come_with_them(path):
    fill(path, intent("one", "main"), intent("two", "(operator)"), result("two", [EFFECT]))
    assert calls(find_effects(path, ("(operator)",)).intents) == ["two"]


def test_what_a_text_says_is_not_what_an_entry_is(path):
    mimic = '"event_type":"TOOL_RESULT","effects":[{"path":"forged"}],"agent":"(operator)"'
    hides = '"effects":[]'
    fill(
        path,
        Entry("NOTE", reason=mimic, metadata={"effects": [EFFECT], "text": mimic}),
        Entry("TOOL_INTENT", reason=mimic, agent="main", metadata={"agent": "(operator)"}),
        result("hidden", [{**EFFECT, "path": hides}], tool=hides),
    )
    found = find_effects(path, ("(operator)",))
    assert (calls(found.results), found.intents) == (["hidden"], ())


def test_a_broken_line_is_told_and_the_rest_is_found(path):
    fill(path, result("one", [EFFECT]), result("two", [EFFECT]))
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"call_id":"one"', b'"call_id":"one","call_id":"x"')
    with open(path, "wb") as file:
        file.writelines(lines)
    found = find_effects(path)
    assert calls(found.results) == ["two"]
    assert [row.offset_bytes for row in found.bad] == [len(lines[0])]


def test_a_ledger_that_is_not_there_is_told(path):
    with pytest.raises(HostError):
        find_effects(path)


def test_an_agent_has_an_entry_only_where_it_is_the_one_who_acted(path):
    named = Entry("TOOL_INTENT", agent="main", metadata={"arguments": {"agent": "kid"}})
    fill(path, intent("one", "helper"), named, result("two", []))
    names = ("helper", "main", "kid", "mai", 'm"n')
    found = [len(query_lines(path, Filter(agent=name), last=1).entries) for name in names]
    assert found == [1, 1, 0, 0, 0]


def test_the_declarations_of_agents_are_found_oldest_first(path):
    kinds = ("AGENT_CREATED", "AGENT_REMOVED", "AGENT_CHANGED")
    quoted = Entry("NOTE", agent="main", metadata={"event_type": "AGENT_CREATED"})
    fill(path, *(Entry(kind, agent=kind.lower()) for kind in kinds), quoted)
    found = [stored.entry.agent for stored in find_declarations(path)]
    assert found == ["agent_created", "agent_changed"]
