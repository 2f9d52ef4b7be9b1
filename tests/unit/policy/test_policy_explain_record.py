"""A recorded call as it is told: what came of it, and what policy did not let stand."""

from paddock.policy.explain_record import Kept, RecordedCall
from paddock.values.calls import Json
from paddock.values.entries import Entry

INTENT = Kept(3, "2026-11-20T10:00:00Z", Entry("TOOL_INTENT", call_id="C", metadata={"tool": "t"}))


def told(metadata: dict[str, Json]) -> RecordedCall:
    result = Entry("TOOL_RESULT", call_id="C", metadata={"status": "ok", **metadata})
    return RecordedCall(INTENT, Kept(4, "2026-11-20T10:00:01Z", result))


def test_what_a_command_was_refused_is_told_path_by_path() -> None:
    rows: list[Json] = [{"path": "a", "code": "policy.denied", "rule": "no a (x.toml:3)"}]
    call = told({"effects": [], "refused": rows, "refused_total": 3})

    assert call.render().splitlines()[-3:] == [
        "  result: ok, seq 4",
        "  refused: a: no a (x.toml:3)",
        "  refused: 2 more",
    ]
    assert call.as_json()["result"] == {
        "seq": 4,
        "time": "2026-11-20T10:00:01Z",
        "status": "ok",
        "code": "",
        "effects": [],
        "refused": rows,
    }


def test_nothing_is_told_of_refusals_where_there_were_none() -> None:
    assert told({"effects": []}).render().splitlines()[-1] == "  result: ok, seq 4"
    assert "  refused:" not in RecordedCall(INTENT, None).render()
