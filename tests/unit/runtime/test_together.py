"""The calls of one turn: decided before any runs, reads at once, writes in order, one result each."""

import threading

import pytest
from msgspec import Struct

from paddock.errors import LedgerDamagedError
from paddock.providers.failures import CancelToken
from paddock.runtime.dispatch import dispatch_all
from paddock.runtime.messages import Malformed
from paddock.runtime.prepared import Bounds
from paddock.tools.arguments import ArgumentType, plain_text
from paddock.tools.spec import READS, Change, Effects, StoppedCallError, Tool, ToolOutput, ToolSpec
from paddock.values.calls import LeftEffect, Refusal, ToolCall
from paddock.values.decisions import Action
from tests.unit.runtime.conftest import Answers

WRITES = Effects(reads_only=False)
OPEN = '[profiles.standard]\nallow = ["tool:*"]\n'


class Named(ArgumentType):
    """Arguments of the tools below."""

    name: str = plain_text("Which.")


class Plan(Struct, frozen=True, dict=True):
    name: str
    actions: tuple[Action, ...]


class Does:
    """A tool that does what it is made with."""

    def __init__(self, does):
        self.does = does

    def resolve(self, arguments, ports):
        return Plan(arguments.name, (Action("client", "does", arguments.name),))

    def run(self, plan, ports):
        return self.does(plan.name, ports) or ToolOutput(f"did {plan.name}", {})


def tool(name, does, effects=READS) -> Tool:
    return Tool(ToolSpec(name, name, name, "workspace", Named, effects), Does(does))


def calls(*wanted) -> list[ToolCall]:
    return [ToolCall(f"C-{n}", name, {"name": arg}) for n, (name, arg) in enumerate(wanted, 1)]


class Watch:
    def __init__(self):
        self.seen = []

    def decided(self, call, judged):
        self.seen.append(("decided", call.id))

    def started(self, call):
        self.seen.append(("started", call.id))

    def finished(self, call, done, duration_us):
        self.seen.append(("finished", call.id, done.ran))


def test_reads_that_stand_together_run_at_the_same_time(door):
    # Each waits for the other: one after the other would never end.
    both = threading.Barrier(2, timeout=30)
    meets = tool("meets", lambda name, ports: both.wait() and None)
    dispatcher = door.dispatcher(policy=OPEN, more=(meets,))

    done = dispatch_all(dispatcher, calls(("meets", "a"), ("meets", "b")))

    assert [each.result.content for each in done] == ["did a", "did b"]


def test_calls_that_write_run_one_after_another_in_their_order(door):
    running, order = [], []

    def alone(name, ports):
        running.append(name)
        order.append(list(running))
        running.remove(name)

    writes = tool("writes", alone, WRITES)
    dispatcher = door.dispatcher(policy=OPEN, more=(writes,))

    dispatch_all(dispatcher, calls(*[("writes", str(n)) for n in range(5)]))

    assert order == [["0"], ["1"], ["2"], ["3"], ["4"]]


def test_a_write_waits_for_the_reads_before_it_and_holds_up_those_behind(door):
    order = []

    def note(name, ports):
        order.append(name)

    tools = (tool("reads", note), tool("writes", note, WRITES))
    dispatcher = door.dispatcher(policy=OPEN, more=tools)
    asked = calls(("reads", "r1"), ("reads", "r2"), ("writes", "w"), ("reads", "r3"))

    done = dispatch_all(dispatcher, asked)

    assert order.index("w") == 2
    assert order[3] == "r3"
    assert [each.result.call_id for each in done] == ["C-1", "C-2", "C-3", "C-4"]


def test_everything_is_decided_and_asked_before_anything_runs(door):
    watch = Watch()
    asked_for = []
    answers = Answers(before_answer=lambda: asked_for.append(door.names()))
    dispatcher = door.dispatcher(answers)
    asked = [
        ToolCall("C-1", "create_file", {"path": "a.txt", "content": "x"}),
        ToolCall("C-2", "create_file", {"path": "asked/b.txt", "content": "x"}),
    ]

    dispatch_all(dispatcher, asked, watcher=watch)

    assert asked_for == [[]]
    assert watch.seen == [
        ("decided", "C-1"),
        ("decided", "C-2"),
        ("started", "C-1"),
        ("finished", "C-1", True),
        ("started", "C-2"),
        ("finished", "C-2", True),
    ]


def test_an_approval_does_not_count_once_an_earlier_call_changed_its_target(door):
    (door.root / "asked").mkdir()
    (door.root / "asked/a.txt").write_text("old")
    asked = [
        ToolCall("C-1", "str_replace", {"path": "asked/a.txt", "old_str": "old", "new_str": "1"}),
        ToolCall("C-2", "str_replace", {"path": "asked/a.txt", "old_str": "old", "new_str": "2"}),
    ]

    done = dispatch_all(door.dispatcher(Answers()), asked)

    assert [each.result.status for each in done] == ["ok", "error"]
    assert done[1].result.refusal.code == "text.changed"
    assert (door.root / "asked/a.txt").read_text() == "1"


def test_a_link_that_an_earlier_call_moves_into_the_way_leads_nowhere(door):
    # Threat: the second path is decided while nothing stands there, and the first call
    # moves a link to a protected directory to exactly that place.
    (door.root / ".git").mkdir()
    (door.root / "link").symlink_to(".git")
    asked = [
        ToolCall("C-1", "move_file", {"path": "link", "to": "docs"}),
        ToolCall("C-2", "create_file", {"path": "docs/config", "content": "evil"}),
    ]

    done = dispatch_all(door.dispatcher(policy=OPEN), asked)

    assert done[1].result.status == "error"
    assert list((door.root / ".git").iterdir()) == []


def test_a_refused_call_is_a_result_in_its_place_and_the_others_run(door):
    (door.root / "a.txt").write_text("alpha")
    asked = [
        ToolCall("C-1", "nope", {}),
        ToolCall("C-2", "view", {"path": "a.txt"}),
        Malformed(ToolCall("C-3", "view", {}), Refusal("args.invalid", "no JSON")),
        ToolCall("C-4", "create_file", {"path": "migrations/1", "content": ""}),
    ]

    done = dispatch_all(door.dispatcher(), asked)

    codes = [each.result.refusal and each.result.refusal.code for each in done]
    assert codes == ["tool.unknown", None, "args.invalid", "policy.denied"]
    assert [each.ran for each in done] == [False, True, False, False]


# --- bounds -----------------------------------------------------------------------------


def test_a_tool_outside_the_bounds_is_denied_and_the_answer_names_what_is_allowed(door):
    bounds = Bounds(frozenset({"view", "grep"}), "WO-1")
    asked = [ToolCall("C-1", "create_file", {"path": "a.txt", "content": "x"})]

    (done,) = dispatch_all(door.dispatcher(), asked, bounds)

    assert done.result.refusal == Refusal(
        "tool.unknown",
        "the tool 'create_file' is not allowed here",
        "the tools that are allowed: grep, view",
    )
    assert (door.names(), door.events()) == ([], ["TOOL_DENIED"])


def test_a_tool_outside_the_bounds_is_named_so_also_where_its_arguments_are_none(door):
    asked = [Malformed(ToolCall("C-1", "create_file", {}), Refusal("args.invalid", "no JSON"))]

    (done,) = dispatch_all(door.dispatcher(), asked, Bounds(frozenset({"view"})))

    assert "not allowed here" in done.result.content


def test_an_order_stands_in_every_entry_of_its_calls(door):
    bounds = Bounds(None, "WO-SES-1-001")
    asked = [
        ToolCall("C-1", "create_file", {"path": "a.txt", "content": "x"}),
        ToolCall("C-2", "view", {"path": "a.txt"}),
        ToolCall("C-3", "view", {"path": "none"}),
        ToolCall("C-4", "nope", {}),
    ]

    dispatch_all(door.dispatcher(), asked, bounds)

    assert {row.entry.submission_id for row in door.ledger.entries} == {"WO-SES-1-001"}
    assert len(door.ledger.entries) == 7


# --- cancelling -------------------------------------------------------------------------------


def test_what_was_cancelled_before_it_began_did_nothing_and_is_on_record(door):
    cancel = CancelToken()
    cancel.cancel()
    asked = [ToolCall("C-1", "create_file", {"path": "a.txt", "content": "x"})]

    (done,) = dispatch_all(door.dispatcher(), asked, Bounds(cancel=cancel))

    assert done.result.refusal.code == "call.cancelled"
    assert (door.names(), door.events()) == ([], ["TOOL_DENIED"])
    assert door.metadata()["effect"] == "none"


def test_nobody_is_asked_once_the_turn_is_cancelled(door):
    cancel = CancelToken()
    answers = Answers(before_answer=cancel.cancel)
    asked = [
        ToolCall(f"C-{n}", "create_file", {"path": f"asked/{n}", "content": "x"}) for n in (1, 2)
    ]

    done = dispatch_all(door.dispatcher(answers), asked, Bounds(cancel=cancel))

    assert len(answers.asked) == 1
    assert [each.result.refusal.code for each in done] == ["call.cancelled"] * 2
    assert door.names() == []


@pytest.mark.parametrize("effects", [READS, WRITES], ids=["reads", "writes"])
@pytest.mark.parametrize("effect", LeftEffect)
def test_a_call_that_was_stopped_says_what_it_left_behind(door, effect, effects):
    change = Change("a.txt", "created", None, "sha256:" + "0" * 64)

    def stopped(name, ports):
        assert ports.cancel.is_cancelled
        raise StoppedCallError(effect, changes=(change,) if effect is LeftEffect.PARTIAL else ())

    # The token is pulled once the call is past the last look at it.
    class Late:
        seen = 0

        @property
        def is_cancelled(self):
            Late.seen += 1
            return Late.seen > 2

        def on_cancel(self, callback):
            return lambda: None

    dispatcher = door.dispatcher(policy=OPEN, more=(tool("stops", stopped, effects),))

    (done,) = dispatch_all(dispatcher, calls(("stops", "x")), Bounds(cancel=Late()))

    assert done.result.refusal.code == "call.cancelled"
    assert door.events() == ["TOOL_INTENT", "TOOL_RESULT"]
    metadata = door.metadata()
    assert (metadata["status"], metadata["effect"]) == ("error", effect.value)
    expected = {"none": 0, "partial": 1, "unknown": "unknown"}[effect.value]
    found = metadata["effects"]
    assert (found if isinstance(found, str) else len(found)) == expected


def test_damage_stops_all_of_them(door):
    door.ledger.fail_with(LedgerDamagedError("line 3"))
    (door.root / "a.txt").write_text("alpha")

    with pytest.raises(LedgerDamagedError):
        dispatch_all(door.dispatcher(), [ToolCall("C-1", "view", {"path": "a.txt"})] * 3)


def test_a_plan_that_never_runs_is_let_go(door):
    let_go = []

    class Holds(Does):
        def release(self, plan):
            let_go.append(plan.name)

    class Damages(Watch):
        def started(self, call):
            door.ledger.fail_with(LedgerDamagedError("line 3"))

    holds = tool("holds", lambda name, ports: None, WRITES)
    holds.handler = Holds(lambda name, ports: None)
    dispatcher = door.dispatcher(policy=OPEN, more=(holds,))
    asked = calls(("holds", "a"), ("holds", "b"), ("nope", "c"), ("holds", "d"))

    with pytest.raises(LedgerDamagedError):
        dispatch_all(dispatcher, asked, watcher=Damages())

    assert let_go == ["a", "b", "d"]


def test_the_calls_of_a_message_are_answered_in_order(door):
    from paddock.runtime.runtime import Runtime

    dispatcher = door.dispatcher()
    runtime = Runtime(dispatcher, dispatcher._context.tools, lambda: "C", lambda: None)
    (door.root / "a.txt").write_text("alpha")
    message = {
        "content": [
            {"type": "tool_use", "id": "t1", "name": "view", "input": {"path": "a.txt"}},
            {"type": "text", "text": "and"},
            {"type": "tool_use", "id": "t2", "name": "nope", "input": {}},
            {"type": "tool_use", "id": "t3", "name": "view", "input": {"path": "a.txt"}},
        ]
    }

    blocks = runtime.answer("anthropic", message)

    assert [(block["tool_use_id"], block["is_error"]) for block in blocks] == [
        ("t1", False),
        ("t2", True),
        ("t3", False),
    ]


@pytest.mark.parametrize("reason", ["tool_use", "max_tokens"])
def test_calls_of_a_cut_message_are_answered_and_recorded_and_do_not_run(door, reason):
    from paddock.runtime.runtime import Runtime

    dispatcher = door.dispatcher()
    runtime = Runtime(dispatcher, dispatcher._context.tools, lambda: "C", lambda: None)
    arguments = {"path": "new.txt", "content": "the first half of"}
    message = {
        "content": [{"type": "tool_use", "id": "t1", "name": "create_file", "input": arguments}],
        "stop_reason": reason,
    }

    (block,) = runtime.answer("anthropic", message)

    is_cut = reason == "max_tokens"
    assert (block["tool_use_id"], block["is_error"]) == ("t1", is_cut)
    assert ("error[call.dropped]: it was not run" in block["content"]) is is_cut
    assert (door.root / "new.txt").exists() is not is_cut
    recorded = [
        (row.entry.event_type, row.entry.metadata.get("code")) for row in door.ledger.entries
    ]
    whole = [("TOOL_INTENT", None), ("TOOL_RESULT", None)]
    assert recorded == ([("TOOL_DENIED", "call.dropped")] if is_cut else whole)


class Deaf(Watch):
    def decided(self, call, judged):
        raise RuntimeError("the watcher failed")


def test_a_call_is_let_go_where_its_watcher_fails_once_it_was_prepared(door):
    released = []

    class Holds(Does):
        def release(self, plan):
            released.append(plan.name)

    spec = ToolSpec("holds", "h", "h", "workspace", Named, WRITES)
    dispatcher = door.dispatcher(policy=OPEN, more=(Tool(spec, Holds(None)),))
    with pytest.raises(RuntimeError):
        dispatch_all(dispatcher, calls(("holds", "a")), watcher=Deaf())
    assert released == ["a"]
