import json

import pytest

from paddock.errors import UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import FoundEffects
from paddock.runtime.changes import PastCall, ended_notes, find_call, past_calls, undos_in_effect
from paddock.storage.notes import CallMark, Doing, Note
from paddock.tools.effects import change_json
from paddock.tools.spec import Change
from paddock.values.entries import Entry

EFFECT = {"path": "a", "kind": "edited", "before": "sha256:1", "after": "sha256:2"}
EDIT = Change("a", "edited", "sha256:1", "sha256:2")


def stored(seq: int, event: str, call: str, agent: str = "main", **metadata: object) -> StoredEntry:
    entry = Entry(event, session_id="S", agent=agent, call_id=call, metadata=metadata)
    return StoredEntry(seq, "", f"LED-{seq}", f"2026-01-01T00:00:{seq:02d}.000000Z", entry, b"")


def result(seq: int, call: str, effects: object = (EFFECT,), status: str = "ok", **more: str):
    kept = list(effects) if isinstance(effects, tuple) else effects
    return stored(seq, "TOOL_RESULT", call, tool="edit", status=status, effects=kept, **more)


def note(call: str, at_s: float = 2_000_000_000.0, path: str = "b") -> Note:
    return Note(at_s, CallMark(call, "create_file", "main", "S"), Doing(path, "created"))


def past(*results: StoredEntry, notes=(), intents=()) -> tuple[PastCall, ...]:
    return past_calls(FoundEffects(tuple(results), tuple(intents), ()), notes)


def test_a_result_is_a_call_that_is_done():
    assert past(result(1, "c1")) == (
        PastCall(
            call_id="c1",
            entry_id="LED-1",
            timestamp="2026-01-01T00:00:01.000000Z",
            agent="main",
            workspace_of="main",
            session_id="S",
            tool="edit",
            outcome="done",
            changes=(EDIT,),
        ),
    )


def test_a_note_counts_only_while_there_is_no_good_result():
    notes = (note("c1"), note("c2"), note("c3", path="x"), note("c3", path="y"))
    calls = past(result(1, "c1"), result(2, "c2", "unknown", "error"), notes=notes)
    assert [(c.call_id, c.outcome, [change.path for change in c.changes]) for c in calls] == [
        ("c1", "done", ["a"]),
        ("c2", "failed", ["b"]),
        ("c3", "unknown", ["x", "y"]),
    ]
    found = FoundEffects((result(1, "c1"), result(2, "c2", "unknown", "error")), (), ())
    assert ended_notes(found, notes) == {notes[0]}


def test_a_call_that_was_stopped_half_way_is_known_by_what_its_result_names():
    (call,) = past(result(1, "c1", status="error"), notes=(note("c1"),))
    assert (call.outcome, call.changes) == ("failed", (EDIT,))


def test_a_failed_call_without_a_note_changed_nothing():
    assert past(result(1, "c1", "unknown", "error")) == ()


def test_a_note_of_the_same_call_id_in_another_session_is_another_call():
    other = Note(2e9, CallMark("c1", "tool", "main", "other"), Doing("b", "created"))
    assert [c.outcome for c in past(result(1, "c1"), notes=(other,))] == ["done", "unknown"]


def test_an_undo_names_what_it_undid_and_whose_workspace_that_was():
    undo = stored(1, "TOOL_INTENT", "u1", "(operator)", arguments={"call": "c1", "agent": "helper"})
    done = stored(2, "TOOL_RESULT", "u1", "(operator)", tool="undo", status="ok", effects=[EFFECT])
    (call,) = past(done, intents=(undo,))
    assert (call.agent, call.workspace_of, call.undoes) == ("(operator)", "helper", "c1")


@pytest.mark.parametrize("effects", [({"path": 3},), ("text",), ({"kind": "burnt"},)])
def test_a_record_that_this_version_does_not_know_is_told_as_such(effects):
    (call,) = past(result(1, "c1", effects))
    assert (call.outcome, call.changes) == ("unreadable", ())


@pytest.mark.parametrize(
    ("path", "touched"),
    [("a", True), ("a/b", False), (".", True), ("to", True), ("to/dir", True), ("t", False)],
)
def test_a_call_touches_its_paths_and_what_is_above_them(path, touched):
    change = Change("a", "moved", None, None, to="to/dir/x")
    (call,) = past(result(1, "c1"))
    moved = PastCall(**{**{n: getattr(call, n) for n in call.__slots__}, "changes": (change,)})
    assert moved.touches(path) is touched


def every(call: PastCall, change: Change) -> bool:
    return True


def test_a_call_is_found_by_either_id_and_never_guessed():
    calls = past(result(1, "same"), result(2, "same"), result(3, "c3"))
    assert (
        find_call(calls, "c3", every).entry_id
        == find_call(calls, "LED-3", every).entry_id
        == "LED-3"
    )
    assert find_call(calls, "LED-2", every).entry_id == "LED-2"
    with pytest.raises(UsageError, match="2 calls have the id") as refused:
        find_call(calls, "same", every)
    assert refused.value.hint == (
        "name one of them by its ledger entry; the newest:"
        "\n    LED-1  2026-01-01T00:00:01Z  edit: edited a"
        "\n    LED-2  2026-01-01T00:00:02Z  edit: edited a"
    )
    for wanted in ("", "LED-", "nothing"):
        with pytest.raises(UsageError, match="no call"):
            find_call(calls, wanted, every)


def test_calls_of_one_id_are_told_apart_without_a_name_that_is_not_shown():
    moved = {"path": "a", "kind": "moved", "before": None, "after": None, "to": "secret"}
    calls = past(result(1, "same", (moved, EFFECT)), result(2, "same", (EFFECT,) * 5))

    with pytest.raises(UsageError) as refused:
        find_call(calls, "same", lambda call, change: change.to != "secret")

    first, second = refused.value.hint.splitlines()[1:]
    assert first.endswith("edit: moved a secret path, edited a")
    assert second.endswith("edit: edited a, edited a, edited a, and 2 more")


def undoing(seq: int, call: str, undone: str, status: str = "ok"):
    intent = stored(seq, "TOOL_INTENT", call, "(operator)", arguments={"call": undone})
    return intent, result(seq, call, status=status, intent=intent.id)


def standing(*rows) -> dict[str, str]:
    """Of rows that are results, or an undo's intent and its result."""
    pairs = [row if isinstance(row, tuple) else (None, row) for row in rows]
    intents = [intent for intent, _ in pairs if intent is not None]
    return dict(undos_in_effect(past(*(row for _, row in pairs), intents=intents)))


def test_a_call_is_undone_by_the_undo_that_was_not_undone_itself():
    call, other = result(1, "c1"), result(2, "c2")
    undo, redo = undoing(3, "u1", "c1"), undoing(4, "u2", "u1")

    assert standing(call, other) == {}
    assert standing(call, other, undo) == {"c1": "u1"}
    assert standing(call, other, undo, redo) == {"u1": "u2"}
    assert standing(call, undo, redo, undoing(5, "u3", "c1")) == {"u1": "u2", "c1": "u3"}


def test_an_undo_that_failed_or_names_the_id_of_several_calls_tells_nothing():
    assert standing(result(1, "c1"), undoing(2, "u1", "c1", status="error")) == {}
    assert standing(result(1, "c1"), result(2, "c1"), undoing(3, "u1", "c1")) == {}
    assert standing(result(1, ""), result(2, "c1")) == {}


def intent_note(intent: str, path: str = "b") -> Note:
    call = CallMark("call_0", "create_file", "main", "S", intent)
    return Note(2_000_000_000.0, call, Doing(path, "created"))


def test_a_result_of_the_same_call_id_does_not_hide_a_call_that_was_killed():
    # Threat: a model chooses the ids of its calls, and may give the same one twice.
    first = result(1, "call_0", intent="LED-i1")
    notes = (intent_note("LED-i1"), intent_note("LED-i2", "precious"))
    calls = past(first, notes=notes)
    assert [(c.entry_id, c.outcome, c.changes[0].path) for c in calls] == [
        ("LED-1", "done", "a"),
        ("LED-i2", "unknown", "precious"),
    ]
    assert ended_notes(FoundEffects((first,), (), ()), notes) == {notes[0]}
    assert find_call(calls, "LED-i2", every).changes[0].path == "precious"
    with pytest.raises(UsageError) as refused:
        find_call(calls, "call_0", every)
    assert refused.value.hint == (
        "name one of them by its ledger entry; the newest:"
        "\n    LED-1  2026-01-01T00:00:01Z  edit: edited a"
        "\n    LED-i2  2033-05-18T03:33:20Z  create_file: created precious"
    )


def test_a_result_of_an_older_version_ends_no_note_that_names_its_intent():
    calls = past(result(1, "call_0"), notes=(intent_note("LED-i2"),))
    assert [c.outcome for c in calls] == ["done", "unknown"]


def test_a_note_of_an_older_version_is_ended_by_a_result_of_that_version_alone():
    notes = (note("c1"),)
    assert ended_notes(FoundEffects((result(1, "c1"),), (), ()), notes) == set(notes)
    newer = result(1, "c1", intent="LED-i1")
    assert ended_notes(FoundEffects((newer,), (), ()), notes) == set()


def test_an_undo_is_told_by_its_intent():
    undo = stored(1, "TOOL_INTENT", "u", "(operator)", arguments={"call": "c1", "agent": "helper"})
    other = stored(3, "TOOL_INTENT", "u", "(operator)", arguments={"call": "c2", "agent": "main"})
    done = stored(
        2,
        "TOOL_RESULT",
        "u",
        "(operator)",
        tool="undo",
        status="ok",
        effects=[EFFECT],
        intent="LED-1",
    )
    (call,) = past(done, intents=(undo, other))
    assert (call.workspace_of, call.undoes) == ("helper", "c1")


MANY = (EDIT, Change("b", "created", None, "sha256:3"))
WHOLE = {"digest": "sha256:list", "total": 2}


@pytest.mark.parametrize(
    ("content", "changes", "outcome"),
    [
        (json.dumps([change_json(change) for change in MANY]).encode(), MANY, "done"),
        (None, (), "done"),
        (b"[{}]", (), "unreadable"),
        (b"no JSON", (), "unreadable"),
    ],
)
def test_a_list_of_effects_that_is_too_long_is_read_from_the_history(content, changes, outcome):
    asked = []

    def read(digest: str) -> bytes | None:
        asked.append(digest)
        return content

    row = result(1, "c1", effects_stored=WHOLE)
    (call,) = past_calls(FoundEffects((row,), (), ()), (), read)
    assert (call.changes, call.outcome, asked) == (changes, outcome, ["sha256:list"])


@pytest.mark.parametrize("whole", ["sha256:list", {}, 7])
def test_a_record_of_such_a_list_that_is_none_is_unreadable(whole):
    (call,) = past(result(1, "c1", effects_stored=whole))
    assert (call.changes, call.outcome) == ((), "unreadable")


def undo_of(seq: int, call: str, undone: str, agent: str = "(operator)"):
    """An undo as the ledger has it: its intent and its result."""
    intent = stored(seq, "TOOL_INTENT", call, agent, arguments={"call": undone, "agent": "main"})
    told = stored(seq + 1, "TOOL_RESULT", call, agent, tool="undo", status="ok", effects=[EFFECT])
    return intent, told


def call_of(seq: int, call: str, tool: str) -> StoredEntry:
    return stored(seq, "TOOL_RESULT", call, tool=tool, status="ok", effects=[EFFECT])


@pytest.mark.parametrize(
    ("tool", "is_by_command"),
    [
        ("run_shell", True),
        ("run_shell_dev", True),
        ("commit_parked", True),
        ("create_file", False),
        ("undo", False),
    ],
)
def test_an_undo_is_by_a_command_where_what_it_undid_was(tool, is_by_command):
    intents, undos = zip(undo_of(2, "u1", "c1"), undo_of(4, "u2", "u1"), strict=True)
    calls = past(call_of(1, "c1", tool), *undos, intents=intents)
    assert [call.is_by_command for call in calls] == [is_by_command] * 3


def test_an_id_that_a_file_tool_took_too_makes_no_undo_one_of_a_command():
    intent, undo = undo_of(3, "u1", "c1")
    shell, file = call_of(1, "c1", "run_shell"), call_of(2, "c1", "create_file")
    calls = past(shell, file, undo, intents=(intent,))
    assert [call.is_by_command for call in calls] == [True, False, False]


def test_an_agents_tool_that_is_called_undo_inherits_nothing():
    intent, undo = undo_of(2, "u1", "c1", agent="main")
    calls = past(call_of(1, "c1", "run_shell"), undo, intents=(intent,))
    assert [call.is_by_command for call in calls] == [True, False]
