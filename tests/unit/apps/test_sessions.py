"""Sessions of a project: opened, closed, resumed, exported, delegated, two at once."""

import json
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.agent.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CallDecided,
    CallFinished,
    CallStarted,
    Event,
    Spent,
    TextPiece,
    TurnOutcome,
)
from paddock.agent.session_log import export_session, find_session, list_sessions
from paddock.agent.sessions import Session
from paddock.assembly.agents import create_agent
from paddock.assembly.project import Project
from paddock.assembly.project_open import open_project
from paddock.assembly.sessions import SessionWish, open_session, require_session, sessions_of
from paddock.errors import ConfigError, LedgerDamagedError, UsageError
from paddock.plane.admin import BudgetTable
from paddock.plane.agents import AgentSpec
from paddock.plane.environment import read_environment
from paddock.providers.failures import FailureKind
from paddock.providers.scripted import Say, ScriptedCall, ScriptedFailure, ScriptedModel
from paddock.runtime.approvals import YesApprover
from paddock.values.models import AssistantMessage, Stop, ToolAnswers, Usage, UserMessage
from paddock.values.orders import OrderFailure, OrderState
from tests.support.agents import Heard

VIEW = ScriptedCall("view", {"path": "a.txt"})
OF_THE_LEDGER = frozenset({"GENESIS", "CHECKPOINT"})


def write(path: str) -> ScriptedCall:
    return ScriptedCall("create_file", {"path": path, "content": "x"})


class Place:
    """A home and a project."""

    def __init__(self, base: Path) -> None:
        self.home, self.root = base / "home", base / "project"
        for folder in (self.home, self.root):
            folder.mkdir()
        (self.root / "a.txt").write_text("alpha\n")
        self.heard = Heard()

    def project(self) -> Project:
        return open_project(self.root, read_environment({"HOME": str(self.home)}))

    def configure(self, text: str) -> None:
        file = self.home / ".config/paddock/config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def open(self, *steps: Say, **wish) -> Session:
        wish.setdefault("provider", ScriptedModel(steps))
        return open_session(self.project(), SessionWish(listener=self.heard, **wish))

    def entries(self, ledger: str) -> list:
        rows = sessions_of(self.project()).query(ledger, _everything(), None).entries
        return [row.entry for row in rows]

    def types(self, ledger: str) -> list[str]:
        return [entry.event_type for entry in self.entries(ledger)]


def _everything():
    from paddock.ledger.query import Filter

    return Filter()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- a session ---------------------------------------------------------------------


def test_a_session_has_its_start_its_turns_and_its_end_on_record(place):
    with place.open(Say(calls=(write("b.txt"),)), Say("written")) as session:
        result = session.handle_turn("write b.txt")

    assert (result.outcome, (place.root / "b.txt").read_text()) == (TurnOutcome.SUCCESS, "x")
    assert [kind for kind in place.types("ho2m") if kind not in OF_THE_LEDGER] == [
        "SESSION_START",
        "WO_PLANNED",
        "WO_DISPATCHED",
        "QUALITY_GATE",
        "WO_CHAIN_COMPLETE",
        "TURN_RECORDED",
        "SESSION_END",
    ]
    assert [kind for kind in place.types("ho1m") if kind not in OF_THE_LEDGER] == [
        "LLM_CALL",
        "TOOL_INTENT",
        "TOOL_RESULT",
        "LLM_CALL",
        "WO_COMPLETED",
    ]
    own = {entry.session_id for name in ("ho1m", "ho2m") for entry in place.entries(name)}
    assert own == {"", session.session_id}  # the ledger's own have none


class GoesAway:
    """A listener whose screen is gone when a certain kind of event comes."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.fault = BrokenPipeError("nobody reads")

    def heard(self, event: Event) -> None:
        if isinstance(event, self.kind):
            raise self.fault


@pytest.mark.parametrize("kind", [CallDecided, CallStarted, CallFinished, TextPiece, Spent])
def test_a_listener_that_fails_ends_the_turn_and_makes_no_call_twice(place, kind):
    # A model that was told nothing of a call that ran would make it again.
    place.heard = GoesAway(kind)
    model = ScriptedModel([*[Say("so", calls=(write("b.txt"),))] * 6])

    with place.open(provider=model) as session, pytest.raises(BrokenPipeError) as raised:
        session.handle_turn("write b.txt")

    assert raised.value is place.heard.fault
    assert place.types("ho1m").count("TOOL_INTENT") <= 1
    assert place.types("ho1m").count("LLM_CALL") == len(model.requests) <= 2
    (turn,) = [entry for entry in place.entries("ho2m") if entry.event_type == "TURN_RECORDED"]
    assert turn.metadata["outcome"] == "cancelled"


def test_a_session_whose_listener_failed_begins_nothing_more(place):
    place.heard = GoesAway(Spent)
    model = ScriptedModel([Say("one"), Say("two")])

    with place.open(provider=model) as session:
        for _ in range(2):
            with pytest.raises(BrokenPipeError):
                session.handle_turn("hello")

    assert place.types("ho2m").count("TURN_RECORDED") == 1
    assert place.types("ho2m").count("SESSION_END") == 1


def test_a_call_whose_listener_fails_when_it_is_over_counts_as_made(place):
    place.heard = GoesAway(CallFinished)

    with (
        place.open(Say(calls=(write("b.txt"),)), Say("written")) as session,
        pytest.raises(BrokenPipeError),
    ):
        session.handle_turn("write b.txt")

    (turn,) = [entry for entry in place.entries("ho2m") if entry.event_type == "TURN_RECORDED"]
    assert turn.metadata["cost"]["tool_calls"] == 1
    assert (place.root / "b.txt").read_text() == "x"


def test_the_start_says_who_works_with_what(place):
    with place.open() as session:
        start = place.entries("ho2m")[-1]

    assert (start.event_type, start.agent) == ("SESSION_START", "main")
    facts = dict(start.metadata)
    assert facts["model"] == {"provider": "scripted", "name": "script"}
    assert facts["dual_gate"]["open"] is False
    assert "create_file" in facts["tools_allowed"]
    assert facts["resumed"] is False
    assert session.facts == facts


def test_a_closed_session_answers_nothing(place):
    session = place.open()
    session.close()
    session.close()

    with pytest.raises(UsageError):
        session.handle_turn("hello")
    assert place.types("ho2m").count("SESSION_END") == 1


class Held(ScriptedModel):
    """A script whose steps wait for `go`; the first that waits says so with `begun`."""

    def __init__(self, *steps: Say) -> None:
        super().__init__(steps)
        self.begun, self.go = threading.Event(), threading.Event()

    def route(self, request, **more):
        self.begun.set()
        assert self.go.wait(60)
        return super().route(request, **more)


def closed_during(place: Place, session: Session, model: Held, work) -> list:
    """What `work` came to, the session having been closed while it ran."""
    done = []
    thread = threading.Thread(target=lambda: done.append(work()))
    thread.start()
    try:
        assert model.begun.wait(60)
        session.close()
        for late in (session.handle_turn, lambda text: session.delegate("helper", text)):
            with pytest.raises(UsageError, match="the session was closed"):
                late("late")
        assert "SESSION_END" not in place.types("ho2m")
    finally:
        model.go.set()
        thread.join()
    session.close()
    return done


def test_a_turn_during_which_the_session_is_closed_comes_to_its_end(place):
    model = Held(Say(calls=(write("b.txt"),)), Say("written"))
    session = place.open(provider=model)

    (result,) = closed_during(place, session, model, lambda: session.handle_turn("write b.txt"))

    assert (result.outcome, result.response) == (TurnOutcome.SUCCESS, "written")
    assert (place.root / "b.txt").read_text() == "x"
    entries = [e for e in place.entries("ho2m") if e.event_type not in OF_THE_LEDGER]
    assert [entry.event_type for entry in entries[-2:]] == ["TURN_RECORDED", "SESSION_END"]
    assert place.types("ho2m").count("SESSION_END") == 1
    end = entries[-1].metadata
    assert (end["turns"], end["cost"]["total_tokens"]) == (1, result.cost.total_tokens)
    with place.open(resume=session.session_id):
        pass


def test_an_order_during_which_the_session_is_closed_comes_to_its_end(place):
    create_agent(place.project(), AgentSpec("helper", parent="main", workspace=place.root))
    model = Held(Say("seen"))
    session = place.open(provider=model)

    (order,) = closed_during(place, session, model, lambda: session.delegate("helper", "look"))

    assert order.output_result == {"response_text": "seen"}
    assert "WO_COMPLETED" in place.types("ho1m")
    (end,) = [e.metadata for e in place.entries("ho2m") if e.event_type == "SESSION_END"]
    assert (end["turns"], end["cost"]["total_tokens"]) == (0, 15)


def test_questions_and_answers_are_heard(place):
    place.configure('[profiles.standard]\nallow = ["tool:file:view"]\nask = ["tool:file:create"]\n')
    steps = (Say(calls=(write("b.txt"),)), Say("written"))

    with place.open(*steps, approver=YesApprover("a person")) as session:
        session.handle_turn("write it")

    assert [event.request.tool for event in place.heard.of(ApprovalAsked)] == ["create_file"]
    assert [event.approval.by for event in place.heard.of(ApprovalAnswered)] == ["a person"]
    assert [event.by for event in place.heard.of(CallDecided)] == ["a person"]
    asked = [kind for kind in place.types("governance") if kind.startswith("APPROVAL")]
    assert asked == ["APPROVAL_ASKED", "APPROVAL_ANSWERED"]


def test_two_sessions_at_once_keep_their_turns_apart(place):
    steps = (Say(calls=(VIEW,)), Say("done"))
    sessions = [place.open(*steps * 3) for _ in range(2)]
    results: dict[str, list] = {}

    def talk(session: Session) -> None:
        results[session.session_id] = [session.handle_turn(f"turn {n}") for n in range(3)]

    threads = [threading.Thread(target=talk, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()

    for session_id, turns in results.items():
        assert [turn.outcome for turn in turns] == [TurnOutcome.SUCCESS] * 3
        recorded = find_session(sessions_of(place.project()), session_id)
        assert [turn.number for turn in recorded.turns] == [1, 2, 3]
        assert {o.wo_id.split("-")[2] for t in turns for o in t.work_orders} == {
            session_id.removeprefix("SES-")
        }


# --- models -----------------------------------------------------------------------


def test_without_any_choice_the_built_in_model_answers(place):
    with open_session(place.project(), SessionWish()) as session:
        result = session.handle_turn("hello")

    assert "built-in model" in result.response


def test_the_users_default_provider_answers_where_nobody_chose(place, tmp_path):
    script = tmp_path / "steps.json"
    script.write_text(json.dumps([{"text": "from the script"}]))
    place.configure(f'[providers.default]\nprovider = "scripted"\nmodel = "{script}"\n')

    with open_session(place.project(), SessionWish()) as session:
        assert session.handle_turn("hi").response == "from the script"


@pytest.mark.parametrize("model", ["nobody", "scripted", "scripted:/nowhere", "anthropic"])
def test_a_model_that_cannot_be_used_opens_nothing(place, model):
    with pytest.raises(ConfigError):
        open_session(place.project(), SessionWish(model=model))
    assert "SESSION_START" not in place.types("ho2m")


# --- resume ------------------------------------------------------------------------


def first_turn(place: Place) -> str:
    with place.open(Say(calls=(VIEW,)), Say("it says alpha")) as session:
        session.handle_turn("what is in a.txt?")
    return session.session_id


def test_a_resumed_session_remembers_what_both_said_and_says_what_is_missing(place):
    session_id = first_turn(place)
    model = ScriptedModel([Say("yes")])

    with place.open(provider=model, resume=session_id) as session:
        result = session.handle_turn("really?")

    assert model.requests[0].messages[:2] == (
        UserMessage("what is in a.txt?"),
        AssistantMessage("it says alpha"),
    )
    assert any("keep_model_contents" in notice for notice in session.notices)
    assert (result.session_id, result.turn) == (session_id, 2)
    assert [order.wo_id[-3:] for order in result.work_orders] == ["002"]


def test_where_contents_are_kept_the_calls_come_back_too(place):
    place.configure("[ledger]\nkeep_model_contents = true\n")
    session_id = first_turn(place)
    model = ScriptedModel([Say("yes")])

    with place.open(provider=model, resume=session_id) as session:
        session.handle_turn("really?")

    user, call, answers, answer = model.requests[0].messages[:4]
    assert user == UserMessage("what is in a.txt?")
    assert call.tool_calls[0].name == "view"
    assert isinstance(answers, ToolAnswers)
    assert "alpha" in answers.answers[0].content
    assert answer == AssistantMessage("it says alpha")
    assert not any("keep_model_contents" in notice for notice in session.notices)


def test_a_resumed_session_is_one_session_with_two_starts(place):
    session_id = first_turn(place)
    with place.open(Say("yes"), resume=session_id) as session:
        session.handle_turn("really?")

    (listed,) = list_sessions(sessions_of(place.project()))
    assert (listed.session_id, len(listed.turns)) == (session_id, 2)
    starts = [e for e in place.entries("ho2m") if e.event_type == "SESSION_START"]
    assert [start.metadata["resumed"] for start in starts] == [False, True]


def kept(place: Place, *steps: Say | ScriptedFailure, outcome: str = "success") -> Session:
    """A session of one turn whose contents are kept, closed."""
    place.configure("[ledger]\nkeep_model_contents = true\n")
    with place.open(*steps) as session:
        assert session.handle_turn("make b.txt").outcome.value == outcome
    return session


def live_and_resumed(place: Place, session: Session) -> tuple[list, list, tuple[str, ...]]:
    """The conversation before the next turn, as it was and as it is restored; the notices."""
    live = session.supervisor._conversation.fit(10**6)[0]
    with place.open(resume=session.session_id) as again:
        restored = again.supervisor._conversation.fit(10**6)[0]
    return list(live), list(restored), again.notices


MADE = Say("I make it", calls=(write("b.txt"),))
REFUSED = ScriptedFailure(FailureKind.REQUEST, "hiccup")


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ((MADE, Say("It is made.")), "success"),
        ((MADE, REFUSED, Say("It is made.")), "success"),
        ((MADE, Say("half", stop=Stop.MAX_TOKENS), Say("It is made.")), "success"),
        ((REFUSED, MADE, Say("It is made.")), "success"),
        ((MADE, REFUSED, REFUSED, REFUSED), "degraded"),
        ((MADE, Say("no", stop=Stop.REFUSAL)), "degraded"),
    ],
    ids=["one-order", "failed-after", "cut", "failed-before", "all-failed", "refused"],
)
def test_calls_of_orders_that_were_not_accepted_come_back_too(place, steps, outcome):
    session = kept(place, *steps, outcome=outcome)

    live, restored, notices = live_and_resumed(place, session)

    assert restored == live
    assert any(isinstance(message, ToolAnswers) for message in restored)
    assert [notice for notice in notices if "restored" in notice] == []


def test_calls_whose_results_nobody_was_told_are_missed_aloud(place):
    refused = Say("again", calls=(write(".git/config"),))
    steps = [replace(refused, text=f"again {n}") for n in range(2)]
    twice = Say("both", calls=(write(".git/a"), write(".git/b")))
    session = kept(place, steps[0], twice, outcome="degraded")

    live, restored, notices = live_and_resumed(place, session)

    assert sum(isinstance(message, ToolAnswers) for message in live) == 2
    assert sum(isinstance(message, ToolAnswers) for message in restored) == 1
    assert restored[-2:] == [AssistantMessage("both"), live[-1]]
    assert "of 1 turns the last calls before a failure are not restored" in notices


def test_without_contents_the_orders_that_were_not_accepted_are_missed_aloud(place):
    with place.open(MADE, REFUSED, Say("It is made.")) as session:
        session.handle_turn("make b.txt")

    _, restored, notices = live_and_resumed(place, session)

    assert restored == [UserMessage("make b.txt"), AssistantMessage("It is made.")]
    assert any(notice.startswith("of 1 turns only message and") for notice in notices)


def test_a_resumed_session_has_spent_what_it_spent_before(place):
    create_agent(place.project(), AgentSpec("helper", parent="main", workspace=place.root))
    too_large = ScriptedFailure(FailureKind.TOO_LARGE)
    with place.open(*[too_large] * 3, Say("seen", usage=None)) as session:
        session.handle_turn("hello")
        session.delegate("helper", "look")
        before = session.budget.account

    with place.open(resume=session.session_id) as again:
        assert again.budget.account == before
        facts = again.facts
    assert before.spent > 4 * 8_192
    assert facts["tokens_before"] == before.spent


def test_a_session_that_was_resumed_spends_no_more_than_one_that_was_not(place):
    table = BudgetTable()
    all_of_it = Say("done", usage=Usage(table.session_tokens))
    with place.open(all_of_it) as session:
        assert session.handle_turn("hello").outcome is TurnOutcome.SUCCESS

    model = ScriptedModel((Say("never"),))
    with place.open(provider=model, resume=session.session_id) as again:
        result = again.handle_turn("more")
    with place.open(Say("done")) as other:
        assert other.handle_turn("hello").outcome is TurnOutcome.SUCCESS

    assert result.work_orders[-1].error.code is OrderFailure.BUDGET_EXHAUSTED
    assert model.steps_left == 1


@pytest.mark.parametrize("session_id", ["SES-0000000000000000", "../../x", "", "WO-1"])
def test_a_session_that_is_not_there_is_not_resumed(place, session_id):
    with pytest.raises(UsageError):
        place.open(resume=session_id)


def test_a_session_that_is_open_is_not_opened_a_second_time(place):
    with place.open() as session, pytest.raises(UsageError):
        place.open(resume=session.session_id)
    with place.open(resume=session.session_id):
        assert list((place.home / ".local/state/paddock/sessions").iterdir()) != []
    assert list((place.home / ".local/state/paddock/sessions").iterdir()) == []


def test_a_session_belongs_to_its_agent(place):
    session_id = first_turn(place)
    create_agent(place.project(), AgentSpec("helper", parent="main"))

    with pytest.raises(UsageError):
        place.open(resume=session_id, agent="helper")


def test_an_export_holds_every_entry_of_the_session_and_no_other(place):
    session_id = first_turn(place)
    first_turn(place)
    project = place.project()

    exported = export_session(sessions_of(project), require_session(project, session_id))

    assert exported["session"]["session_id"] == session_id
    assert exported["turns"][0]["response"] == "it says alpha"
    entries = [entry for rows in exported["entries"].values() for entry in rows]
    assert {entry["session_id"] for entry in entries} == {session_id}
    assert all({"seq", "prev", "id"} <= set(entry) for entry in entries)


# --- delegating ------------------------------------------------------------------------


def test_a_child_does_the_task_and_only_its_answer_comes_back(place):
    create_agent(place.project(), AgentSpec("helper", parent="main", workspace=place.root))

    with place.open(Say(calls=(VIEW,)), Say("it says alpha")) as session:
        order = session.delegate("helper", "look at a.txt", 50_000)

    assert order.output_result == {"response_text": "it says alpha"}
    calls = [e for e in place.entries("ho1m") if e.event_type == "TOOL_INTENT"]
    assert [(call.agent, call.session_id) for call in calls] == [("helper", session.session_id)]
    assert [agent["name"] for agent in calls[0].metadata["agents"]] == ["helper", "main"]
    planned = next(e for e in place.entries("ho2m") if e.event_type == "WO_PLANNED")
    assert (planned.agent, planned.metadata["executor"]) == ("main", "helper")


@pytest.mark.parametrize("budget", [0, -1, True, 1.5, "many"])
def test_a_child_is_given_a_number_of_tokens_or_nothing_is_begun(place, budget):
    create_agent(place.project(), AgentSpec("helper", parent="main", workspace=place.root))

    with place.open() as session, pytest.raises(UsageError, match=f"budget is {budget!r}"):
        session.delegate("helper", "look at a.txt", budget)

    assert place.types("ho2m").count("WO_PLANNED") == 0


def test_a_child_has_no_more_than_its_parent_may_do(place):
    place.configure(
        '[profiles.standard]\nallow = ["tool:file:*"]\ndeny = ["tool:file:create secret/**"]\n'
    )
    new = AgentSpec("helper", "open", parent="main", workspace=place.root)
    create_agent(place.project(), new)

    with place.open(Say(calls=(write("secret/x"),)), Say("no")) as session:
        session.delegate("helper", "write it")

    assert "TOOL_DENIED" in place.types("ho1m")
    assert not (place.root / "secret").exists()


def test_a_child_has_only_tools_that_both_have(place):
    new = AgentSpec("helper", parent="main", workspace=place.root, toolsets=("search",))
    create_agent(place.project(), new)
    model = ScriptedModel((Say(calls=(write("b.txt"),)), Say("no")))

    with place.open(provider=model) as session:
        session.delegate("helper", "write it")

    assert [tool.name for tool in model.requests[0].tools] == ["grep", "find", "ls"]
    assert not (place.root / "b.txt").exists()


def test_a_childs_tokens_are_the_sessions(place):
    create_agent(place.project(), AgentSpec("helper", parent="main", workspace=place.root))

    with place.open(Say("one")) as session:
        session.delegate("helper", "go", 50_000)
        assert session.budget.account.spent == 15
        order = session.delegate("helper", "go", 10)

    assert order.state is OrderState.FAILED
    assert order.error.code is OrderFailure.BUDGET_EXHAUSTED


def test_what_was_delegated_stands_in_the_sessions_cost(place):
    create_agent(place.project(), AgentSpec("helper", parent="main", workspace=place.root))
    model = ScriptedModel((*[Say("seen", usage=Usage(100, 50))] * 8, Say("done")))

    with place.open(provider=model) as session:
        orders = []
        threads = [
            threading.Thread(target=lambda: orders.append(session.delegate("helper", "look")))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        result = session.handle_turn("hello")
        cost = session.supervisor.cost

    assert [order.cost.total_tokens for order in orders] == [150] * 8
    assert (result.cost.total_tokens, cost.total_tokens, cost.llm_calls) == (15, 1_215, 9)
    assert session.budget.account.spent == 1_215
    (end,) = [e.metadata for e in place.entries("ho2m") if e.event_type == "SESSION_END"]
    assert end["cost"] == cost.as_json()


def test_children_side_by_side_each_do_their_part(place):
    names = ["ada", "bea", "cleo"]
    for name in names:
        create_agent(place.project(), AgentSpec(name, parent="main", workspace=place.root))
    orders = {}

    with open_session(place.project(), SessionWish(listener=place.heard)) as session:

        def work(name: str) -> None:
            task = f'write a file at {name}.txt with the content "{name}"'
            orders[name] = session.delegate(name, task, 60_000)

        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert {name: order.state for name, order in orders.items()} == dict.fromkeys(
        names, OrderState.COMPLETED
    )
    assert [(place.root / f"{name}.txt").read_text() for name in names] == names
    assert len({order.wo_id for order in orders.values()}) == 3


def test_a_damaged_ledger_shows_no_sessions(place):
    session_id = first_turn(place)
    path = place.project().layout.ledger_paths()["ho2m"]
    path.write_bytes(path.read_bytes().replace(b'"outcome":"success"', b'"outcome": "failure"', 1))

    for ask in (
        lambda: list_sessions(sessions_of(place.project())),
        lambda: place.open(resume=session_id),
    ):
        with pytest.raises(LedgerDamagedError):
            ask()


@pytest.mark.parametrize("agent", ["main", "stranger", "nobody", "../x"])
def test_only_a_descendant_is_delegated_to(place, agent):
    create_agent(place.project(), AgentSpec("stranger", "open", workspace=place.root))

    with place.open() as session, pytest.raises(UsageError):
        session.delegate(agent, "go")
    assert "WO_PLANNED" not in place.types("ho2m")
