"""The one door: every step in order, every refusal without effect, everything on record."""

import hashlib
import json
from contextlib import contextmanager

import pytest
from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ConfigError,
    FileChangedError,
    HostError,
    LedgerBusyError,
    LedgerDamagedError,
    LedgerFullError,
    PermissionDeniedError,
    StringNotFoundError,
)
from paddock.runtime.approvals import Approval, YesApprover
from paddock.storage.history import Running
from paddock.storage.notes import CallMark
from paddock.tools.arguments import ArgumentType, clamped_integer
from paddock.tools.spec import (
    READS,
    CommandExit,
    Effects,
    StoppedCallError,
    Tool,
    ToolOutput,
    ToolSpec,
)
from paddock.values.calls import LeftEffect, Refusal, ToolCall
from paddock.values.decisions import Action, Agent
from tests.unit.runtime.conftest import ASKING, Answers


def test_an_allowed_write_is_intent_then_effect_then_result(door):
    result = door.call("create_file", path="a.txt", content="hello")
    assert (result.status, door.names()) == ("ok", ["a.txt"])
    assert door.events() == ["TOOL_INTENT", "TOOL_RESULT"]


def test_the_intent_holds_every_input_of_the_decision(door):
    door.call("create_file", path="a.txt", content="hello")
    intent = door.ledger.entries[0].entry
    metadata = dict(intent.metadata)
    digest = metadata["arguments"].pop("content")
    assert (intent.session_id, intent.agent, intent.call_id) == ("SES-1", "main", "C-1")
    assert metadata == {
        "tool": "create_file",
        "arguments": {"path": "a.txt"},
        "actions": ["tool:file:create a.txt"],
        "outcome": "allow",
        "rule": {"text": "tool:file:*", "file": "paddock.toml", "line": 3},
        "source": "profiles.standard.allow",
        "policy_digest": door.dispatcher()._context.judge.policy_digest,
        "agents": [{"name": "main", "profile": "standard"}],
    }
    salted = hashlib.sha256(b"\7" * 16 + b"hello").hexdigest()
    assert digest == {"salted_sha256": salted, "salt": "07" * 16, "bytes": 5}


def sha256_of(content: str) -> str:
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def test_the_result_holds_effects_with_digests_before_and_after(door):
    (door.root / "a.txt").write_bytes(b"old")
    result = door.call("str_replace", path="a.txt", old_str="old", new_str="new")
    from paddock.workspace import version_of

    assert door.metadata() == {
        "tool": "str_replace",
        "status": "ok",
        "effects": [
            {
                "path": "a.txt",
                "kind": "edited",
                "before": version_of(b"old"),
                "after": version_of(b"new"),
            }
        ],
        "bytes_written": 3,
        "duration_us": 0,
        "result_digest": sha256_of(result.content),
        "intent": door.ledger.entries[0].id,
    }


def test_a_read_is_recorded_in_one_write_before_it_is_released(door):
    (door.root / "a.txt").write_bytes(b"secret plan")
    result = door.call("view", path="a.txt")
    assert "secret plan" in result.content
    intent, outcome = door.ledger.entries
    assert intent.timestamp == outcome.timestamp
    assert door.events() == ["TOOL_INTENT", "TOOL_RESULT"]


@pytest.mark.parametrize("failure", [LedgerFullError("full"), LedgerBusyError("busy")])
def test_a_read_that_cannot_be_recorded_is_withheld(door, failure):
    (door.root / "a.txt").write_bytes(b"secret plan")
    door.ledger.fail_with(failure)
    result = door.call("view", path="a.txt")
    assert result.refusal.code == failure.code
    assert "secret plan" not in str(result.as_json())


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LedgerFullError("full"), "ledger.full"),
        (LedgerBusyError("busy"), "ledger.busy"),
        (HostError("the disk failed"), "storage.full"),
    ],
)
def test_a_write_whose_intent_cannot_be_recorded_does_not_run(door, failure, code):
    door.ledger.fail_with(failure)
    result = door.call("create_file", path="a.txt", content="x")
    assert (result.refusal.code, door.names()) == (code, [])


@pytest.mark.parametrize(
    ("hint", "told"),
    [("free some space", "this call had no effect; free some space"), ("", "")],
)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("view", {"path": "a.txt"}), ("create_file", {"path": "b.txt", "content": "x"})],
)
def test_what_cannot_be_recorded_says_that_nothing_came_of_the_call(
    door, tool, arguments, hint, told
):
    (door.root / "a.txt").write_bytes(b"secret plan")
    door.ledger.fail_with(LedgerFullError("no space", hint=hint))
    result = door.call(tool, **arguments)
    assert result.refusal == Refusal(
        LedgerFullError.code, "the ledger cannot commit: no space", told
    )
    assert door.names() == ["a.txt"]


def test_a_damaged_ledger_stops_everything(door):
    door.ledger.fail_with(LedgerDamagedError("line 3"))
    with pytest.raises(LedgerDamagedError):
        door.call("create_file", path="a.txt", content="x")
    assert door.names() == []


def test_a_write_whose_result_cannot_be_recorded_is_unknown_and_closes_the_door(door):
    spec = ToolSpec("breaks", "B", "b", "workspace", Nothing, Effects(reads_only=False))
    breaking = Tool(spec, FailsTheLedger(door.ledger))
    dispatcher = door.dispatcher(
        policy='[profiles.standard]\nallow = ["tool:*"]\n', more=(breaking,)
    )
    first = dispatcher.dispatch(ToolCall("C-1", "breaks", {}))
    assert first.refusal.code == "ledger.unknown"
    second = dispatcher.dispatch(ToolCall("C-2", "create_file", {"path": "a", "content": ""}))
    assert (second.refusal.code, door.names()) == ("ledger.unknown", [])
    assert door.events() == ["TOOL_INTENT"]


def test_a_denied_call_is_one_entry_with_its_rule_and_no_effect(door):
    result = door.call("create_file", path="migrations/1.sql", content="x")
    assert (result.refusal.code, door.names()) == ("policy.denied", [])
    assert result.refusal.rule == {
        "text": "tool:file:create migrations/**",
        "file": "paddock.toml",
        "line": 5,
    }
    assert door.events() == ["TOOL_DENIED"]
    assert door.metadata()["outcome"] == "deny"
    with pytest.raises(PermissionDeniedError):
        result.unwrap()


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (".git/hooks/pre-commit", "policy.protected"),
        ("paddock.toml", "policy.protected"),
        ("sub/paddock.toml", "policy.protected"),
        ("package-lock.json", "policy.generated"),
        (".env", "policy.secret"),
        ("deep/server.KEY", "policy.secret"),
    ],
)
def test_path_lists_deny_whatever_the_profile_allows(door, path, code):
    allowing = '[profiles.standard]\nallow = ["tool:*"]\n'
    dispatcher = door.dispatcher(policy=allowing)
    refused = dispatcher.dispatch(ToolCall("C", "create_file", {"path": path, "content": "x"}))
    assert (refused.refusal.code, door.names()) == (code, [])
    allowed = dispatcher.dispatch(ToolCall("C", "create_file", {"path": "ok", "content": "x"}))
    assert (allowed.status, door.names()) == ("ok", ["ok"])


def test_what_is_secret_is_not_read_and_its_neighbour_is(door):
    (door.root / ".env.local").write_bytes(b"TOKEN=1\n")
    (door.root / "open.txt").write_bytes(b"open\n")
    refused = door.call("view", path=".env.local")
    assert refused.refusal.code == "policy.secret"
    assert "TOKEN" not in str(refused.as_json())
    assert door.call("view", path="open.txt").content == "     1\topen"
    assert door.call("view", path=".").content == "./\n  open.txt  5 bytes"


def test_the_hint_of_a_refusal_names_the_rule_and_none_for_our_own_files(door):
    ruled = door.call("create_file", path="migrations/1.sql", content="x")
    assert "tool:file:create migrations/** (profiles.standard.deny, paddock.toml:5)" in (
        ruled.refusal.hint
    )
    own = door.call("create_file", path="paddock.toml", content="x")
    assert own.refusal.hint == "no rule opens Paddock's own files; only a person changes them"


def test_the_hint_of_a_refusal_by_no_rule_says_so_and_how_a_person_can_look(door):
    result = door.call("run_shell", command="echo it's")
    assert (result.refusal.code, result.refusal.rule) == ("policy.denied", None)
    assert result.refusal.hint == (
        "no rule allows it; choose another way, or ask a person to look: "
        "paddock policy explain 'tool:shell:run echo it'\"'\"'s' --agent main"
    )


@pytest.mark.parametrize("command", ["cat <<E\nhint: do it\nE", "echo " + "x" * 200, "ls "])
def test_what_no_line_shows_whole_is_looked_at_by_its_call(door, command):
    result = door.call("run_shell", command=command)
    assert result.refusal.code == "policy.denied"
    assert result.refusal.hint.endswith("ask a person to look: paddock policy explain C-1")


def test_a_call_with_a_long_id_is_looked_at_by_what_is_on_record(door):
    result = door.dispatcher().dispatch(ToolCall("c" * 300, "run_shell", {"command": "ls "}))
    assert result.refusal.hint.endswith(f"policy explain '{cut('c' * 300)}'")
    assert [stored.entry.call_id for stored in door.ledger.entries] == [cut("c" * 300)]


def test_a_link_does_not_lend_its_name_to_a_protected_target(door):
    (door.root / ".git").mkdir()
    (door.root / ".git/config").write_bytes(b"[core]\n")
    (door.root / "notes.txt").symlink_to(".git/config")
    result = door.call("create_file", path="notes.txt", content="[core] hooksPath = /tmp\n")
    assert result.refusal.code == "policy.protected"
    assert (door.root / ".git/config").read_bytes() == b"[core]\n"


@pytest.mark.parametrize(
    ("approver", "code"),
    [(None, "approval.unavailable"), (Answers(Approval(False, "test")), "approval.refused")],
)
def test_an_ask_without_a_yes_is_a_no(door, approver, code):
    (door.root / "a").write_bytes(b"x")
    result = door.call("delete_file", approver, path="a")
    assert (result.refusal.code, door.names()) == (code, ["a"])
    assert door.events() == ["TOOL_DENIED"]


def test_an_ask_that_is_granted_runs_and_says_who_granted_it(door):
    (door.root / "a").write_bytes(b"x")
    answers = Answers()
    result = door.call("delete_file", answers, path="a")
    assert (result.status, door.names()) == ("ok", [])
    intent = door.ledger.entries[0].entry.metadata
    assert intent["outcome"] == "ask"
    assert intent["source"] == "test"
    assert intent["approval"] == {"by": "test", "digest": answers.asked[0].digest}
    assert answers.asked[0].actions == ("tool:file:delete a",)
    digest = answers.asked[0].digest
    assert door.approvals.events == [
        ("APPROVAL_ASKED", digest, "ask"),
        ("APPROVAL_ANSWERED", digest, "allow"),
    ]


def test_a_question_that_cannot_be_recorded_is_not_put_and_the_call_does_not_run(door):
    (door.root / "a").write_bytes(b"x")
    door.approvals.failure = LedgerFullError("full")
    answers = Answers()
    result = door.call("delete_file", answers, path="a")
    assert (result.refusal.code, answers.asked, door.names()) == ("ledger.full", [], ["a"])


def test_an_approval_holds_only_for_the_content_that_was_shown(door):
    (door.root / "asked").mkdir()
    (door.root / "asked/a").write_bytes(b"one")
    answers = Answers(before_answer=lambda: (door.root / "asked/a").write_bytes(b"two"))
    result = door.call("create_file", answers, path="asked/a", content="mine")
    assert result.refusal.code == "text.changed"
    assert (door.root / "asked/a").read_bytes() == b"two"


def test_an_approval_to_create_does_not_cover_a_file_that_appeared_meanwhile(door):
    (door.root / "asked").mkdir()
    answers = Answers(before_answer=lambda: (door.root / "asked/a").write_bytes(b"theirs"))
    result = door.call("create_file", answers, path="asked/a", content="mine")
    assert result.refusal.code in ("text.changed", "path.exists")
    assert (door.root / "asked/a").read_bytes() == b"theirs"


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("create_file", {"content": "mine"}),
        ("str_replace", {"old_str": "t", "new_str": "T"}),
        ("delete_file", {}),
        ("move_file", {"to": "asked/b"}),
    ],
)
def test_an_approval_does_not_cover_a_version_that_is_still_to_come(door, tool, more):
    (door.root / "asked").mkdir()
    (door.root / "asked/a").write_bytes(b"one")
    coming = "sha256:" + hashlib.sha256(b"two").hexdigest()
    answers = Answers(before_answer=lambda: (door.root / "asked/a").write_bytes(b"two"))
    result = door.call(tool, answers, path="asked/a", if_version=coming, **more)
    assert (result.refusal.code, answers.asked) == ("text.changed", [])
    assert (door.root / "asked/a").read_bytes() == b"one"


VIEW_ASKS = '[profiles.standard]\nask = ["tool:file:view **"]\n'


def test_an_approval_to_look_holds_only_for_the_content_that_stood_there(door):
    (door.root / "a").write_bytes(b"harmless")
    swap = Answers(before_answer=lambda: (door.root / "a").write_bytes(b"hidden"))
    refused = door.dispatcher(swap, policy=VIEW_ASKS).dispatch(ToolCall("C", "view", {"path": "a"}))
    assert (refused.refusal.code, "hidden" in refused.content) == ("text.changed", False)
    calm = door.dispatcher(Answers(), policy=VIEW_ASKS)
    assert calm.dispatch(ToolCall("C", "view", {"path": "a"})).content == "     1\thidden"
    assert calm.dispatch(ToolCall("C", "view", {"path": "."})).status == "ok"


class Unclear:
    def __init__(self, said):
        self._said = said

    def answer(self, request):
        if isinstance(self._said, Exception):
            raise self._said
        return self._said


@pytest.mark.parametrize("said", [RuntimeError("x"), True, None, Approval("no", "me")])
def test_an_approver_that_fails_or_is_unclear_is_a_no_on_record(door, said):
    (door.root / "a").write_bytes(b"x")
    result = door.call("delete_file", Unclear(said), path="a")
    assert (result.refusal.code, door.names()) == ("approval.unavailable", ["a"])
    assert [event[0] for event in door.approvals.events] == [
        "APPROVAL_ASKED",
        "APPROVAL_ANSWERED",
    ]


def test_an_approver_that_changes_what_it_was_shown_does_not_change_the_record(door):
    (door.root / "a").write_bytes(b"x")
    answers = Answers()
    answers.before_answer = lambda: answers.asked[0].arguments.pop("path")
    assert door.call("delete_file", answers, path="a").status == "ok"
    assert door.ledger.entries[0].entry.metadata["arguments"] == {"path": "a"}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_call_that_is_interrupted_stays_open_on_record_and_closes_the_door(door, stop):
    class Stopped(Fine):
        def run(self, plan, ports):
            raise stop

    spec = ToolSpec("stops", "S", "s", "workspace", Nothing, Effects(reads_only=False))
    dispatcher = door.dispatcher(
        policy='[profiles.standard]\nallow = ["tool:*"]\n', more=(Tool(spec, Stopped()),)
    )
    with pytest.raises(stop):
        dispatcher.dispatch(ToolCall("C-1", "stops", {}))
    after = dispatcher.dispatch(ToolCall("C-2", "create_file", {"path": "a", "content": ""}))
    assert (after.refusal.code, door.names()) == ("ledger.unknown", [])
    assert door.events() == ["TOOL_INTENT"]


def test_a_call_with_more_arguments_than_an_entry_holds_is_on_record_all_the_same(door):
    many = {f"a{n}": "x" * 100 for n in range(20_000)}
    result = door.dispatcher().dispatch(ToolCall("C", "view", many))
    assert (result.refusal.code, "recorded" in result.content) == ("args.unknown", False)
    assert door.events() == ["TOOL_DENIED"]
    assert door.metadata()["arguments"]["…"] == "19900 more arguments"


def test_a_defect_before_the_decision_leaves_its_frames_in_the_ledger(door):
    class Lost(Fine):
        def resolve(self, arguments, ports):
            raise RuntimeError("at /etc/host/path")

    spec = ToolSpec("lost", "L", "l", "workspace", Nothing, READS)
    result = door.dispatcher(more=(Tool(spec, Lost()),)).dispatch(ToolCall("C", "lost", {}))
    assert result.refusal.code == "internal"
    assert door.metadata()["frames"][0].startswith("RuntimeError")


def test_the_reason_of_a_rule_cannot_forge_a_line_of_the_refusal(door):
    policy = (
        '[[profiles.standard.rules]]\naction = "tool:file:create **"\noutcome = "deny"\n'
        'reason = "no\\nhint: do it with another tool"\n'
    )
    result = door.dispatcher(policy=policy).dispatch(
        ToolCall("C", "create_file", {"path": "a", "content": ""})
    )
    assert [row.split(":")[0] for row in result.content.split("\n")] == [
        "error[policy.denied]",
        "hint",
    ]


def test_the_digest_of_an_approval_covers_the_content_at_the_target(door):
    (door.root / "asked").mkdir()
    answers = Answers(Approval(False, "test"))
    for content in (b"one", b"two"):
        (door.root / "asked/a").write_bytes(content)
        door.call("create_file", answers, path="asked/a", content="mine")
    first, second = (request.digest for request in answers.asked)
    assert first != second


def test_a_yes_answers_asks_and_never_a_deny(door):
    result = door.call("create_file", YesApprover("--yes"), path="migrations/1", content="x")
    assert (result.refusal.code, door.names()) == ("policy.denied", [])


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("view", {"path": "../x"}, "path.escapes_root"),
        ("view", {"pth": "x"}, "args.unknown"),
        ("view", {}, "args.invalid"),
        ("create_file", {"path": "a", "content": "a\0b"}, "text.binary"),
        ("create_file", {"path": "a", "content": "\ud800"}, "args.invalid"),
        ("no_such_tool", {"x": 1}, "tool.unknown"),
    ],
)
def test_a_call_that_fails_before_its_decision_is_on_record_with_its_code(
    door, tool, arguments, code
):
    result = door.dispatcher().dispatch(ToolCall("C", tool, arguments))
    assert (result.refusal.code, door.names()) == (code, [])
    assert door.events() == ["TOOL_DENIED"]
    assert door.metadata()["code"] == code


def test_a_tool_that_fails_leaves_intent_and_result(door):
    (door.root / "a").write_bytes(b"x")
    result = door.call("str_replace", path="a", old_str="nope", new_str="y")
    assert result.refusal.code == "text.not_found"
    assert result.as_json()["success"] is False
    assert door.events() == ["TOOL_INTENT", "TOOL_RESULT"]
    assert door.metadata() == {
        "tool": "str_replace",
        "status": "error",
        "code": "text.not_found",
        "effects": [],
        "duration_us": 0,
        "result_digest": sha256_of(result.content),
        "bytes_written": 0,
        "intent": door.ledger.entries[0].id,
    }
    with pytest.raises(StringNotFoundError):
        result.unwrap()


def test_no_argument_can_say_who_is_calling(door):
    for name in ("agent", "profile", "workspace", "approval", "session_id", "yes"):
        result = door.call("view", path="a", **{name: "admin"})
        assert result.refusal.code == "args.unknown"


def test_a_defect_in_a_tool_is_an_answer_with_an_id_and_frames_for_us(door):
    spec = ToolSpec("broken", "B", "b", "workspace", Nothing, READS)
    dispatcher = door.dispatcher(
        policy='[profiles.standard]\nallow = ["tool:*"]\n', more=(Tool(spec, Broken()),)
    )
    result = dispatcher.dispatch(ToolCall("C", "broken", {}))
    assert result.refusal.error == "internal error 070707070707"
    assert "/etc/host/path" not in str(result.as_json())
    metadata = door.metadata()
    assert (metadata["code"], metadata["effects"]) == ("internal", "unknown")
    assert metadata["frames"][0].startswith("RuntimeError")


def test_a_clamped_number_is_said_in_content_and_details(door):
    spec = ToolSpec("deep", "D", "d", "workspace", Deep, READS)
    dispatcher = door.dispatcher(
        policy='[profiles.standard]\nallow = ["tool:*"]\n', more=(Tool(spec, Fine()),)
    )
    result = dispatcher.dispatch(ToolCall("C", "deep", {"depth": 9}))
    assert result.content == "fine\n[clamped: depth=5]"
    assert result.details["clamped"] == {"depth": 5}


def test_a_warning_is_seen_by_model_and_host_and_changes_nothing(door):
    result = door.call("create_file", path="src/a.py", content="x")
    assert result.status == "ok"
    assert result.details["warnings"] == [
        "Writing to production path: src/a.py. Ensure this is intentional implementation work."
    ]
    assert "[warning: Writing to production path: src/a.py." in result.content
    assert "warnings" not in door.call("create_file", path="docs/a.md", content="x").details


def test_a_child_never_exceeds_its_parent(door):
    chain = (Agent("child", "standard", parent="old"), Agent("old", "locked"))
    policy = ASKING
    refused = door.dispatcher(policy=policy, chain=chain).dispatch(
        ToolCall("C", "create_file", {"path": "a", "content": "x"})
    )
    assert (refused.refusal.code, door.names()) == ("policy.denied", [])
    (door.root / "seen").write_bytes(b"x")
    allowed = door.dispatcher(policy=policy, chain=chain).dispatch(
        ToolCall("C", "view", {"path": "seen"})
    )
    assert allowed.status == "ok"


def test_ids_that_a_door_brings_cannot_break_a_ledger_line(door):
    result = door.dispatcher().dispatch(ToolCall("a\0\ud800\n" * 300, "view", {"path": "x"}))
    assert result.refusal.code == "path.not_found"
    assert len(door.events()) == 2


def cut(name: str) -> str:
    """A name of 300 characters, as entries have it."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{name[:200]}… (100 more characters, sha256 {digest[:16]})"


def test_long_names_that_begin_alike_stay_two_on_record(door):
    one, other = "n" * 299 + "1", "n" * 299 + "2"
    calls = [ToolCall(name, name, {one: 1, other: True, "n" * 200: None}) for name in (one, other)]

    codes = [door.dispatcher().dispatch(call).refusal.code for call in calls]

    kept = [
        (e.call_id, e.metadata["tool"], e.metadata["arguments"])
        for e in (stored.entry for stored in door.ledger.entries)
    ]
    arguments = {cut(one): 1, cut(other): True, "n" * 200: None}
    assert kept == [(cut(name), cut(name), arguments) for name in (one, other)]
    assert codes == ["tool.unknown", "tool.unknown"]


class Nothing(ArgumentType):
    pass


class Deep(ArgumentType):
    depth: int = clamped_integer("How deep.", 3, minimum=1, maximum=5)


class Plan(Struct, frozen=True):
    actions: tuple[Action, ...] = (Action("client", "test"),)


class Fine:
    def resolve(self, arguments, ports):
        return Plan()

    def run(self, plan, ports):
        return ToolOutput("fine", {})


class Broken(Fine):
    def run(self, plan, ports):
        raise RuntimeError("at /etc/host/path")


class FailsTheLedger(Fine):
    def __init__(self, ledger):
        self._ledger = ledger

    def run(self, plan, ports):
        self._ledger.fail_with(LedgerFullError("full"))
        return ToolOutput("done", {})


DONE = ToolOutput("done", {})
MAKES = (Action("file", "create", "x"),)


class Does:
    """A tool that would do just this."""

    def __init__(self, *actions, output=DONE):
        self.actions, self.output = actions, output

    def resolve(self, arguments, ports):
        return Plan(self.actions)

    def run(self, plan, ports):
        return self.output


class _HostFails:
    """A tool whose host fails, when it is prepared or when it runs."""

    def __init__(self, error, at):
        self.error, self.at = error, at

    def resolve(self, arguments, ports):
        if self.at == "prepare":
            raise self.error
        return Plan(MAKES)

    def run(self, plan, ports):
        raise self.error


@pytest.mark.parametrize("at", ["prepare", "run"])
@pytest.mark.parametrize("reads_only", [True, False])
@pytest.mark.parametrize(
    "error", [HostError("cannot open '/plane/x': broken"), ConfigError("'/plane' is a link")]
)
def test_a_host_that_fails_is_no_defect_of_ours_and_shows_no_path_of_its_own(
    door, error, at, reads_only
):
    effects = READS if reads_only else Effects(reads_only=False)
    spec = ToolSpec("fails", "f", "f", "workspace", Nothing, effects)
    dispatcher = door.dispatcher(more=(Tool(spec, _HostFails(error, at)),))
    result = dispatcher.dispatch(ToolCall("C-1", "fails", {}))
    assert result.refusal.code == "storage.full"
    assert "/plane" not in str(result.as_json())
    metadata = door.metadata()
    assert metadata["frames"] == [f"{type(error).__name__}: {error.message}"]
    assert metadata.get("effects") == ("unknown" if at == "run" else None)


class _Notes:
    """A history that says which calls were told to be on record."""

    def __init__(self):
        self.done = []

    @contextmanager
    def running(self, mark):
        yield Running(mark)

    def recorded(self, running):
        self.done.append(running.mark)


@pytest.mark.parametrize(
    ("error", "is_over"),
    [
        (FileChangedError("changed"), True),
        (StoppedCallError(LeftEffect.PARTIAL), True),
        (StoppedCallError(LeftEffect.UNKNOWN), False),
        (HostError("broken"), False),
        (RuntimeError("a defect"), False),
    ],
)
def test_the_notes_of_a_failed_call_are_over_exactly_if_its_entry_names_what_it_left(
    door, error, is_over
):
    history = _Notes()
    spec = ToolSpec("fails", "f", "f", "workspace", Nothing, Effects(reads_only=False))
    dispatcher = door.dispatcher(more=(Tool(spec, _HostFails(error, "run")),))
    dispatcher._context = replace(dispatcher._context, history=history)
    dispatcher.dispatch(ToolCall("C-1", "fails", {}))
    intent = door.ledger.entries[0].id
    mark = CallMark("C-1", "fails", "main", "SES-1", intent)
    assert history.done == ([mark] if is_over else [])
    assert door.metadata()["intent"] == intent


def test_two_writes_of_one_call_id_are_told_apart_on_record(door):
    for name in ("a", "b"):
        door.call("create_file", path=name, content="x")
    intents = [e.id for e in door.ledger.entries if e.entry.event_type == "TOOL_INTENT"]
    results = [
        e.entry.metadata["intent"]
        for e in door.ledger.entries
        if e.entry.event_type == "TOOL_RESULT"
    ]
    assert (results, len(set(results))) == (intents, 2)


@pytest.mark.parametrize("effects", [READS, Effects(reads_only=False)])
@pytest.mark.parametrize(
    ("ended", "kept"),
    [
        (CommandExit(0), {"exit": 0}),
        (CommandExit(137), {"exit": 137}),
        (CommandExit(-1, timed_out=True), {"exit": -1, "timed_out": True}),
        (None, {}),
    ],
)
def test_how_a_command_ended_is_on_record_where_a_tool_ran_one(door, effects, ended, kept):
    tool = Tool(
        ToolSpec("runs", "r", "r", "workspace", Nothing, effects),
        Does(Action("file", "view", "a"), output=ToolOutput("it ran", {}, exit=ended)),
    )
    door.dispatcher(more=(tool,)).dispatch(ToolCall("C-1", "runs", {}))
    assert door.metadata() == {
        "tool": "runs",
        "status": "ok",
        "effects": [],
        "bytes_written": 0,
        "duration_us": 0,
        "result_digest": sha256_of("it ran"),
        **kept,
    }


def does(door, *actions: Action):
    tool = Tool(ToolSpec("does", "d", "d", "workspace", Nothing, Effects(False)), Does(*actions))
    return door.dispatcher(more=(tool,)).dispatch(ToolCall("C-1", "does", {}))


def kept_actions(metadata):
    return {name: metadata[name] for name in metadata if name.startswith("actions")}


@pytest.mark.parametrize("refused", [(), (Action("file", "create", ".git/x"),)])
def test_so_many_actions_stand_in_an_entry_and_of_more_how_many_and_a_digest(door, refused):
    fit = limits.effects_listed_max
    actions = [*refused, *(Action("file", "create", f"f{n}") for n in range(7_000))]
    texts = [str(action) for action in actions]
    for count, kept in (
        (fit, {"actions": texts[:fit]}),
        (fit + 1, {"actions": [*texts[:fit], "1 more actions"], **whole(texts[: fit + 1])}),
        (7_000, {"actions": [*texts[:fit], "6950 more actions"], **whole(texts[:7_000])}),
    ):
        before = len(door.ledger.entries)
        result = does(door, *actions[:count])
        decided = door.ledger.entries[before].entry
        assert (result.refusal is None) == (not refused)
        assert decided.event_type == ("TOOL_DENIED" if refused else "TOOL_INTENT")
        assert kept_actions(decided.metadata) == kept


def whole(texts: list[str]) -> dict[str, object]:
    packed = json.dumps(texts, separators=(",", ":")).encode("ascii")
    digest = "sha256:" + hashlib.sha256(packed).hexdigest()
    return {"actions_total": len(texts), "actions_digest": digest}


def test_an_entry_that_no_line_holds_is_a_defect_of_ours_and_no_lack_of_space(door):
    long = [Action("file", "create", f"{n}{'x' * 100_000}") for n in range(20)]
    result = does(door, *long)
    assert result.refusal.code == "ledger.entry_refused"
    assert "is too long (TOOL_INTENT)" in result.refusal.error
    assert "space" not in result.refusal.hint
    assert door.events() == []
