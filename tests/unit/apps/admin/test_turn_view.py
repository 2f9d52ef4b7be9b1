"""A turn is shown while it happens: text line by line, each call as one line."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.agent.events import (
    CallDecided,
    CallFinished,
    CallStarted,
    Noticed,
    TextPiece,
    TextVoid,
    TurnOutcome,
    TurnResult,
)
from paddock.apps.admin.session import WORKING, TurnView
from paddock.apps.admin.show import KEPT_MAX, LastCalls, plain_lines
from paddock.errors import CallCancelledError
from paddock.values.calls import Refusal, ToolResult
from paddock.values.orders import OrderCost


class Wall:
    """A screen that remembers."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.growing = ""

    def show(self, block: Any) -> None:
        self.rows += plain_lines(block)

    def live(self, text: str) -> None:
        self.growing = text

    def status(self, status: Any) -> None:
        raise AssertionError(status)

    def answered(self, result: Any) -> None:
        raise AssertionError(result)


def result(response: str, outcome=TurnOutcome.SUCCESS, *, cancelled: bool = False) -> TurnResult:
    return TurnResult(response, outcome, (), OrderCost(), "SES-1", True, was_cancelled=cancelled)


def finished(number: int = 1, refusal: Refusal | None = None, *, ran: bool = True) -> CallFinished:
    answer = ToolResult(f"call_{number}", "view", "the content", refusal=refusal)
    return CallFinished(f"call_{number}", "view", {"path": "a b"}, answer, ran, 12_345)


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def view(wall) -> TurnView:
    view = TurnView(wall, LastCalls())
    view.begin()
    return view


def test_whole_lines_are_shown_and_the_last_one_grows(view, wall):
    assert wall.growing == WORKING
    view.heard(TextPiece("Hel"))
    assert (wall.rows, wall.growing) == ([], "┃ Hel")
    view.heard(TextPiece("lo.\nAnd"))
    assert (wall.rows, wall.growing) == (["┃ Hello."], "┃ And")
    view.end(result("Hello.\nAnd"))
    assert (wall.rows, wall.growing) == (["┃ Hello.", "┃ And"], "")


@given(st.text(alphabet="ab \r\n", max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_however_a_text_comes_it_is_shown_once_and_whole(text, cuts):
    wall = Wall()
    view = TurnView(wall, LastCalls())
    view.begin()
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for start, end in itertools.pairwise(places):
        view.heard(TextPiece(text[start:end]))
    view.end(result(text))
    assert all(row.startswith("┃") for row in wall.rows)
    shown = "\n".join(row.removeprefix("┃") for row in wall.rows).replace("\\r", "\r")
    assert shown.split() == text.split()


def test_an_answer_that_did_not_stream_is_shown_at_the_end(view, wall):
    view.heard(TextPiece("Let me look."))
    view.heard(CallStarted("call_1", "view"))
    view.heard(finished())
    view.end(result("There it is."))
    assert wall.rows == [
        "┃ Let me look.",
        '  #1 ok view path="a b" · not decided · 12 ms',
        "┃ There it is.",
    ]


def test_a_call_shows_decision_outcome_and_duration(view, wall):
    decided = CallDecided("call_1", "view", {}, "ask", "tool:* (paddock.toml:1)", "terminal")
    view.heard(decided)
    view.heard(CallStarted("call_1", "view"))
    assert wall.growing == "… view runs; Ctrl-C cancels"
    view.heard(finished())
    view.heard(CallDecided("call_2", "view", {}, "allow", ""))
    view.heard(finished(2, Refusal("path.not_found", "no")))
    view.heard(finished(3, Refusal("policy.denied", "no"), ran=False))
    view.heard(finished(4, Refusal("approval.refused", "no"), ran=False))
    view.heard(finished(5, Refusal("args.invalid", "no"), ran=False))
    view.heard(CallDecided("call_6", "view", {}, "allow", ""))
    view.heard(finished(6, Refusal(CallCancelledError.code, "no", "part of it was done")))
    assert wall.rows == [
        '  #1 ok view path="a b" · ask: yes by terminal · 12 ms',
        '  #2 no view path="a b" · allow · path.not_found · 12 ms',
        '  #3 no view path="a b" · deny · policy.denied · not run',
        '  #4 no view path="a b" · ask: no · approval.refused · not run',
        '  #5 no view path="a b" · not decided · args.invalid · not run',
        '  #6 no view path="a b" · allow · cancelled: part of it was done · 12 ms',
    ]


def test_what_is_void_is_said_to_be(view, wall):
    view.heard(TextPiece("half an ans"))
    view.heard(TextVoid())
    view.heard(TextPiece("The whole answer."))
    view.end(result("The whole answer."))
    assert wall.rows == [
        "┃ half an ans",
        "note: ignore the text above: the connection broke, and the model is asked again",
        "┃ The whole answer.",
    ]


def test_nothing_is_said_of_a_void_that_nobody_saw(view, wall):
    view.heard(TextVoid())
    view.heard(Noticed("this turn goes on without classify"))
    assert wall.rows == ["note: this turn goes on without classify"]


def test_no_text_of_a_model_passes_for_a_row_of_ours(view, wall):
    view.heard(finished())
    own = [*wall.rows, "note: it was allowed", "[degraded]", "main> yes"]
    view.heard(TextPiece("\n".join(own)))
    view.end(result("\n".join(own)))
    assert wall.rows[1:] == [f"┃ {row}" for row in own]


def test_how_a_turn_ended_is_said_in_words(view, wall):
    view.end(result("I could not.", TurnOutcome.DEGRADED))
    view.end(result("I was told to stop.", TurnOutcome.ERROR, cancelled=True))
    assert wall.rows == ["┃ I could not.", "[degraded]", "cancelled"]


def test_a_line_without_end_does_not_grow_for_ever(view, wall):
    for _ in range(5):
        view.heard(TextPiece("x" * 1_000))
    assert (wall.rows, wall.growing) == (["┃ " + "x" * 5_000], WORKING)


def test_the_newest_calls_can_be_shown_in_full():
    calls = LastCalls()
    for number in range(1, KEPT_MAX + 3):
        calls.finished(finished(number))
    assert (calls.find(2), calls.find(3) is None, calls.last) == (None, False, KEPT_MAX + 2)
    shown = [row for block in calls.find(calls.last).in_full() for row in plain_lines(block)]
    assert shown == [
        "  call      call_102",
        "  tool      view",
        "  decision  not decided",
        "  status    ok",
        "  duration  12 ms",
        "  {",
        '    "path": "a b"',
        "  }",
        "  │ the content",
    ]
