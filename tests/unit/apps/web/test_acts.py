"""What is done on the page is done as at the terminal, once, and on record with its door."""

import json
import threading

import pytest

from tests.support.consoles import POLICY, console_place, make_call, serving
from tests.support.mcp_servers import McpPlace

pytestmark = pytest.mark.loopback


@pytest.fixture
def ask(place: McpPlace, console, request):
    """Have an agent ask, and return the request as the page shows it."""

    def ask(name: str) -> dict:
        kept = make_call(place, "create_file", path=f"asked/{name}", content="x\n")["approval"]
        return shown(console, kept)

    return ask


def shown(console, kept: str) -> dict:
    return next(each for each in console.get("inbox").value["requests"] if each["id"] == kept)


def named(request: dict) -> dict:
    return {"id": request["id"], "digest": request["digest"]}


def answers(place: McpPlace, request: str) -> list[dict]:
    rows = place.entries("governance", "--type", "APPROVAL_ANSWERED", "--last", "0")
    return [each["metadata"] for each in rows if each["metadata"].get("request") == request]


def test_a_yes_lets_the_very_same_call_run_once_and_names_the_door(place, console, ask):
    asked = ask("yes")
    answered = console.post("inbox/grant", **named(asked))
    assert (answered.status, answered.value["request"]["state"]) == (200, "granted")
    assert make_call(place, "create_file", path="asked/yes", content="x\n")["status"] == "ok"
    granted = [each for each in answers(place, asked["id"]) if each["answer"] == "granted"]
    assert [each["by"].endswith(" (web)") for each in granted] == [True]


def test_a_yes_can_carry_the_call_out_at_once(place, console, ask):
    answered = console.post("inbox/grant", **named(ask("now")), resume=True).value
    assert answered["result"]["status"] == "ok"
    assert (place.project / "asked/now").read_text() == "x\n"


def test_a_no_reaches_the_model_with_its_reason_and_nothing_is_made(place, console, ask):
    asked = ask("no")
    answered = console.post("inbox/refuse", **named(asked), note="use docs/ instead")
    assert (answered.status, answered.value["request"]["state"]) == (200, "refused")
    again = make_call(place, "create_file", path="asked/no", content="x\n")
    assert again["code"] == "approval.refused"
    assert "use docs/ instead" in again["content"]
    assert not (place.project / "asked/no").exists()


def test_an_answer_to_something_else_than_was_shown_counts_for_nothing(console, ask):
    asked = ask("other")
    wrong = {**named(asked), "digest": f"sha256:{'0' * 64}"}
    assert console.post("inbox/grant", **wrong).status == 409
    assert console.post("inbox/always", **wrong).status == 409
    assert shown(console, asked["id"])["state"] == "waiting"
    assert console.post("inbox/grant", **named(asked)).status == 200


def test_what_the_terminal_answered_first_the_page_is_told_and_does_not_change(place, console, ask):
    asked = ask("first")
    assert place.run("approvals", "refuse", asked["id"], "--note", "no").returncode == 0
    late = console.post("inbox/grant", **named(asked))
    assert (late.status, late.code) == (409, "approval.expired")
    assert shown(console, asked["id"])["state"] == "refused"


@pytest.mark.parametrize(("act", "state"), [("grant", "approved"), ("refuse", "refused")])
def test_a_call_that_was_asked_about_is_refused_only_once_somebody_says_no(
    console, ask, act, state
):
    asked = ask(f"state-{act}")

    def states(**wanted: str) -> set[str]:
        found = console.get("timeline", call=asked["call_id"], **wanted).value["entries"]
        return {each["state"] for each in found if each["event_type"] == "TOOL_DENIED"}

    assert (states(), states(outcome="deny")) == ({"open"}, set())
    assert console.post(f"inbox/{act}", **named(asked)).status == 200
    assert (states(), states(outcome="ask")) == ({state}, {state})
    assert states(outcome="deny") == ({state} & {"refused"})


def test_of_answers_at_once_in_two_doors_one_counts(place, console, ask):
    asked = ask("race")
    found: list[int] = []

    def answer(path: str) -> None:
        found.append(console.post(f"inbox/{path}", **named(asked)).status)

    threads = [threading.Thread(target=answer, args=(path,)) for path in ("grant", "refuse") * 4]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [200, *[409] * 7]
    said = [each["answer"] for each in answers(place, asked["id"]) if each["answer"] != "kept"]
    assert len(said) == 1


OTHERWISE = """
[profiles.standard]
allow = ["tool:file:view", "tool:search:*"]
otherwise = { "tool:file:*" = "ask" }
"""


def test_for_good_shows_the_rule_first_and_saves_it_when_asked_again(tmp_path):
    place = console_place(tmp_path, OTHERWISE)
    policy = place.project / "paddock.toml"
    with serving(place) as server:
        kept = make_call(place, "create_file", path="asked/good", content="x")["approval"]
        asked = named(shown(server, kept))
        review = server.post("inbox/always", **asked).value
        assert review["status"] == "review"
        assert "asked/good" in review["addition"]
        assert review["replay"]["newly_allowed"] == 1
        assert policy.read_text() == OTHERWISE
        wrong = server.post("inbox/always", **asked, confirm="sha256:00")
        assert (wrong.status, policy.read_text()) == (409, OTHERWISE)
        saved = server.post("inbox/always", **asked, confirm=review["confirm"])
        assert saved.value["saved"] is True
        assert review["addition"].strip() in policy.read_text()
        made = make_call(place, "create_file", path="asked/good", content="x")
        assert made["status"] == "ok"
        trusted = place.entries("governance", "--type", "POLICY_TRUSTED")[-1]
        assert trusted["metadata"]["by"].endswith(" (web)")


def test_what_a_rule_asks_about_no_other_rule_lifts_and_the_page_says_so(console, ask):
    refused = console.post("inbox/always", **named(ask("rule")))
    assert (refused.status, "change that rule by hand" in refused.value["error"]["hint"]) == (
        409,
        True,
    )


def test_an_undo_brings_back_what_was_and_names_the_door(place, console):
    make_call(place, "create_file", path="u/a.md", content="one\n")
    edit = make_call(place, "str_replace", path="u/a.md", old_str="one", new_str="two")["call"]
    undone = console.post("undo", call=edit).value
    assert undone["status"] == "ok"
    assert (place.project / "u/a.md").read_text() == "one\n"
    recorded = place.entries("ho1m", "--call", undone["call"])
    assert {each["metadata"].get("door") for each in recorded} == {"web"}


def test_an_undo_that_would_lose_work_is_refused_and_shows_what_stands_against_it(place, console):
    made = make_call(place, "create_file", path="u/b.md", content="one\n")["call"]
    (place.project / "u/b.md").write_text("mine\n")
    refused = console.post("undo", call=made).value
    assert refused["status"] == "error"
    assert "+mine" in refused["since"]["paths"][0]["diff"]
    assert (place.project / "u/b.md").read_text() == "mine\n"


def test_an_undo_of_no_call_is_refused(console):
    assert console.post("undo", call="CALL-none").status == 400


TIGHTER = POLICY.replace(
    'deny = ["tool:file:delete"]', 'deny = ["tool:file:delete", "tool:file:create secret/**"]'
)


@pytest.fixture
def policed(tmp_path):
    place = console_place(tmp_path)
    make_call(place, "create_file", path="secret/a", content="x")
    with serving(place) as server:
        yield place, server


def test_a_policy_is_saved_and_trusted_when_its_review_is_confirmed(policed):
    place, server = policed
    before = server.get("policy").value
    assert (before["text"], before["trusted"]) == (POLICY, True)
    review = server.post("policy/save", text=TIGHTER, before=before["digest"]).value
    assert review["status"] == "review"
    assert review["replay"]["newly_denied"] == 1
    assert '+deny = ["tool:file:delete", "tool:file:create secret/**"]' in review["diff"]
    assert (place.project / "paddock.toml").read_text() == POLICY
    saved = server.post(
        "policy/save", text=TIGHTER, before=before["digest"], confirm=review["confirm"]
    ).value
    after = server.get("policy").value
    assert (after["text"], after["trusted"], after["digest"]) == (TIGHTER, True, saved["digest"])
    assert make_call(place, "create_file", path="secret/b", content="x")["code"] == "policy.denied"
    trusted = place.entries("governance", "--type", "POLICY_TRUSTED")[-1]["metadata"]
    assert (trusted["digest"], trusted["by"].endswith(" (web)")) == (saved["digest"], True)


def test_another_text_than_was_shown_is_not_saved(policed):
    place, server = policed
    before = server.get("policy").value["digest"]
    confirm = server.post("policy/save", text=TIGHTER, before=before).value["confirm"]
    other = server.post("policy/save", text=POLICY + "# x\n", before=before, confirm=confirm)
    assert (other.status, other.code) == (409, "web.changed")
    assert (place.project / "paddock.toml").read_text() == POLICY


def test_a_file_that_changed_meanwhile_is_not_overwritten(policed):
    place, server = policed
    before = server.get("policy").value["digest"]
    confirm = server.post("policy/save", text=TIGHTER, before=before).value["confirm"]
    (place.project / "paddock.toml").write_text(POLICY + "# by hand\n")
    late = server.post("policy/save", text=TIGHTER, before=before, confirm=confirm)
    assert (late.status, late.code) == (409, "web.changed")
    assert (place.project / "paddock.toml").read_text() == POLICY + "# by hand\n"


def test_a_policy_that_does_not_load_is_not_saved_and_says_where(policed):
    _, server = policed
    before = server.get("policy").value["digest"]
    refused = server.post("policy/save", text="[profiles\n", before=before)
    assert (refused.status, refused.code) == (409, "config.invalid")
    for path in ("lint", "test", "diff", "replay"):
        answer = server.post(f"policy/{path}", text="[profiles\n")
        assert (answer.status, answer.code) == (200, "config.invalid")


def test_the_questions_are_those_of_the_command_line_and_change_nothing(policed):
    place, server = policed
    draft = place.project / "draft.toml"
    draft.write_text(TIGHTER)

    def told(*arguments: str):
        return json.loads(place.run("policy", *arguments, "--json").stdout)

    assert server.post("policy/lint", text=TIGHTER).value["findings"] == [
        {**each, "file": "paddock.toml"} for each in told("lint", "draft.toml")
    ]
    assert server.post("policy/test", text=TIGHTER).value == told("test", "draft.toml")
    replay = server.post("policy/replay", text=TIGHTER).value
    replayed = told("replay", "--policy", "draft.toml")
    assert replay["newly_denied"] == replayed["newly_denied"] == 1
    explained = server.post("policy/explain", action="tool:file:create secret/x", text=TIGHTER)
    assert explained.value["outcome"] == "deny"
    now = server.post("policy/explain", action="tool:file:create secret/x").value
    assert now == {**told("explain", "tool:file:create secret/x"), "text": now["text"]}
    assert "secret" in server.post("policy/diff", text=TIGHTER).value["text"]
    assert (place.project / "paddock.toml").read_text() == POLICY
