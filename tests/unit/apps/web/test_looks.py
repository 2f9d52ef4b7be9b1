"""What the console shows is what the command line says: entries, calls, files, sessions, proofs."""

import base64
import json

import pytest

from paddock.ledger.format.lines import VerifierKey
from paddock.ledger.format.notes import open_note, verify_inclusion
from tests.support.consoles import console_place, make_call, serving
from tests.support.mcp_servers import McpPlace

pytestmark = pytest.mark.loopback
NASTY = "<img src=x onerror=alert(1)>\u202e\x1b[31m\u200b"


def test_the_timeline_has_every_entry_of_every_ledger_once(place: McpPlace, console):
    for number in range(4):
        make_call(place, "create_file", path=f"t/{number}", content="x")
    found, before = [], ""
    while before is not None:
        answer = console.get("timeline", limit=3, **({"before": before} if before else {})).value
        found += [(each["ledger"], each["seq"]) for each in answer["entries"]]
        before = answer["next"]
        assert answer["damaged"] == []
    whole = [
        (name, entry["seq"])
        for name in ("governance", "ho2m", "ho1m")
        for entry in place.entries(name, "--last", "0")
    ]
    assert sorted(found) == sorted(whole)
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("asked", "targets"),
    [
        ({"path": "f/a"}, {"f/a"}),
        ({"path": "f"}, {"f/a", "f/b"}),
        ({"tool": "view"}, {"f/a"}),
        ({"outcome": "deny"}, {"f/b"}),
        ({"agent": "main", "tool": "view"}, {"f/a"}),
        ({"agent": "nobody"}, set()),
        ({"until": "2001-01-01T00:00:00Z"}, set()),
        ({"host": "example.com"}, set()),
        ({"type": "TOOL_DENIED"}, {"f/b"}),
    ],
)
def test_the_timeline_finds_what_is_asked_for(tmp_path_factory, asked, targets):
    console = _filtered(tmp_path_factory)
    found = console.get("timeline", ledger="ho1m", **asked).value["entries"]
    assert {each["target"] for each in found} - {""} == targets


_KEPT: dict = {}


def _filtered(factory):
    if not _KEPT:
        place = console_place(factory.mktemp("filtered"))
        make_call(place, "create_file", path="f/a", content="x")
        make_call(place, "view", path="f/a")
        make_call(place, "delete_file", path="f/b")
        context = serving(place)
        _KEPT["server"], _KEPT["context"] = context.__enter__(), context
    return _KEPT["server"]


@pytest.fixture(scope="module", autouse=True)
def _ended():
    yield
    if _KEPT:
        _KEPT["context"].__exit__(None, None, None)


def test_a_call_is_shown_with_decision_effects_and_what_policy_says_now(place, console):
    made = make_call(place, "create_file", path="shown.md", content="one\n")
    intent = console.get("timeline", call=made["call"], type="TOOL_INTENT").value["entries"][0]
    found = console.get("entry", ledger="ho1m", seq=intent["seq"]).value
    assert found["entry"]["id"] == intent["id"]
    call = found["call"]
    assert [each["event_type"] for each in call["entries"]] == ["TOOL_INTENT", "TOOL_RESULT"]
    told = json.loads(place.run("policy", "explain", made["call"], "--json").stdout)
    now, _ = told.pop("now"), told.pop("earlier")
    assert (call["told"], call["now"]) == (told, now)
    assert call["diff"]["paths"][0]["path"] == "shown.md"
    assert (call["can_undo"], call["standing"]) == (True, "yes")


def test_an_entry_that_is_none_is_not_found(console):
    assert console.get("entry", ledger="ho1m", seq=10**9).status == 404
    assert console.get("entry", ledger="packages", seq=0).status == 404
    assert console.get("entry", ledger="../ho1m", seq=0).status == 400
    assert console.get("entry", ledger="ho1m", seq=-1).status == 400


def test_a_proof_holds_for_its_line_and_is_signed(place: McpPlace, console):
    make_call(place, "view", path="README.md")
    console.post("ledgers/checkpoint", ledger="ho1m")
    proof = console.get("proof", ledger="ho1m", seq=2).value
    signed = open_note(proof["note"], VerifierKey.parse(proof["key"]))
    line = base64.b64decode(proof["line"])
    assert json.loads(line)["seq"] == 2
    hashes = [bytes.fromhex(each) for each in proof["path"]]
    leaf, root = bytes.fromhex(proof["leaf"]), signed.checkpoint.root
    assert proof["root"] == root.hex()
    assert verify_inclusion(leaf, 2, signed.checkpoint.size, hashes, root)


def test_an_entry_without_a_checkpoint_has_no_proof_until_one_is_made(tmp_path):
    place = console_place(tmp_path)
    with serving(place) as server:
        kept = make_call(place, "create_file", path="asked/x", content="x")["approval"]
        newest = server.get("timeline", ledger="governance", limit=1).value["entries"][0]["seq"]
        server.post("inbox/refuse", id=kept, digest=_digest_of(server, kept), note="")
        newest = server.get("timeline", ledger="governance", limit=1).value["entries"][0]["seq"]
        assert server.post("ledgers/checkpoint", ledger="governance").status == 200
        assert server.get("proof", ledger="governance", seq=newest).status == 200


def _digest_of(server, wanted: str) -> str:
    requests = server.get("inbox").value["requests"]
    return next(each["digest"] for each in requests if each["id"] == wanted)


def test_files_and_their_differences_are_those_of_history(place: McpPlace, console):
    make_call(place, "create_file", path="h/a.md", content="one\n")
    make_call(place, "str_replace", path="h/a.md", old_str="one", new_str="two")
    found = console.get("files", path="h/a.md").value
    history = json.loads(place.run("history", "h/a.md", "--json").stdout)["calls"]
    assert found["calls"] == history[::-1]
    assert [(each["path"], each["changes"]) for each in found["files"]] == [("h/a.md", 2)]
    newest = history[-1]["entry"]
    told = json.loads(place.run("diff", newest, "--json").stdout)
    assert console.get("diff", call=newest).value == told


def test_sessions_are_listed_and_read_whole(place: McpPlace, console):
    assert place.run("run", "--model", "builtin", "what files are there?").returncode == 0
    listed = console.get("sessions").value["sessions"]
    assert listed == json.loads(place.run("session", "list", "--json").stdout)[::-1]
    shown = console.get("session", id=listed[0]["session_id"]).value
    turns = json.loads(place.run("session", "show", listed[0]["session_id"], "--json").stdout)
    assert shown["turns"] == turns["turns"]
    assert shown["calls"]
    assert console.get("session", id="SES-none").status == 400


def test_a_session_goes_on_with_one_more_turn(place: McpPlace, console):
    assert place.run("run", "--model", "builtin", "what files are there?").returncode == 0
    session = console.get("sessions").value["sessions"][0]["session_id"]
    turn = console.post("session/resume", id=session, task="what files are there?")
    assert (turn.status, turn.value["outcome"]) == (200, "success")
    assert len(console.get("session", id=session).value["turns"]) == 2


def test_ledgers_are_listed_verified_and_exported_as_they_are_stored(place: McpPlace, console):
    make_call(place, "view", path="README.md")
    listed = {each["name"]: each for each in console.get("ledgers").value["ledgers"]}
    assert listed["packages"]["exists"] is False
    entries = place.entries("ho1m", "--last", "0")
    assert listed["ho1m"]["entries"] == len(entries)
    report = console.post("ledgers/verify", ledger="ho1m").value
    assert (report["is_sound"], report["entries"]) == (True, len(entries))
    lines = console.get("ledgers/export", ledger="ho1m").body
    assert [json.loads(each)["id"] for each in lines.splitlines()] == [e["id"] for e in entries]
    page = console.get("ledgers/export", ledger="ho1m", format="html")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith(
        "default-src 'none'; script-src 'self'"
    )
    assert console.get("ledgers/export", ledger="packages").status == 404


def test_what_agents_say_comes_back_as_the_text_that_it_is(place: McpPlace, console):
    make_call(place, "create_file", path=f"n/{NASTY.replace('/', '')[:20]}", content=NASTY)
    make_call(place, "view", path=NASTY)
    for path in ("now", "timeline", "files"):
        answer = console.get(path)
        assert answer.headers["content-type"] == "application/json"
        # ASCII, so that no reader of it can be misled by what it would draw.
        assert answer.body.isascii()
    kept = make_call(place, "create_file", path="asked/nasty", content=NASTY)["approval"]
    requests = {each["id"]: each for each in console.get("inbox").value["requests"]}
    assert requests[kept]["arguments"]["content"] == NASTY


def test_a_policy_that_is_not_trusted_is_said_to_be(tmp_path):
    place = console_place(tmp_path)
    with serving(place) as server:
        assert server.get("now").value["notices"] == []
        policy = place.project / "paddock.toml"
        policy.write_text(policy.read_text() + "# by hand\n")
        now = server.get("now").value
        assert "is not trusted (it has changed since it was trusted)" in now["notices"][0]
        assert [each["state"] for each in now["walls"] if each["name"] == "files"] == ["partly"]


def test_a_policy_that_does_not_load_hides_no_record(tmp_path):
    place = console_place(tmp_path)
    make_call(place, "view", path="README.md")
    with serving(place) as server:
        (place.project / "paddock.toml").write_text("[profiles\n")
        now = server.get("now").value
        assert server.get("timeline").value["entries"]
        assert "paddock.toml" in now["notices"][0]
        assert server.get("policy").value["error"]["code"] == "config.invalid"
        assert server.get("timeline").status == 200
