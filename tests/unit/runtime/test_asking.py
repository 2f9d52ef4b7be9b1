"""A question about what a call would change: done first, held back, and then granted or let go."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct, field

from paddock.errors import SandboxUnavailableError, StorageFullError
from paddock.runtime.approvals import Approval, NoApprover
from paddock.runtime.prepared import FREE, Bounds
from paddock.runtime.question import STOPPED
from paddock.tools.arguments import ArgumentType, flag
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.calls import ToolCall
from paddock.values.decisions import Action
from tests.unit.runtime.conftest import Answers, Door

POLICY = '[profiles.standard]\nask = ["tool:client:stager"]\n'


class Given(ArgumentType):
    effect: bool = flag("Whether the question is about the effect.", default=True)


class Staged(Struct, frozen=True, dict=True):
    """A plan, with what it holds back."""

    effect: bool
    held: Any = None
    actions: tuple[Action, ...] = (Action("client", "stager", ""),)


class HeldBack(Struct, dict=True):
    """What was done and does not stand yet."""

    log: list[str]
    digest: str = "sha256:effect"
    diff: str = "+ one line"
    warnings: tuple[str, ...] = ("one line more",)

    def commit(self) -> None:
        self.log.append("commit")

    def close(self) -> None:
        self.log.append("close")


class Stager(Struct, dict=True):
    """Says in its log what it was told to do, in order."""

    log: list[str] = field(default_factory=list)
    failure: Exception | None = None
    before_end: Callable[[], None] = lambda: None

    def resolve(self, arguments: Given, ports: Ports) -> Staged:
        return Staged(arguments.effect)

    def pin(self, plan: Staged, ports: Ports) -> tuple[Staged, str]:
        return plan, "sha256:plan"

    def asks_about_effect(self, plan: Staged, ports: Ports) -> bool:
        return plan.effect

    def stage(self, plan: Staged, ports: Ports) -> tuple[Staged, HeldBack]:
        self.log.append("stage")
        if self.failure is not None:
            raise self.failure
        self.before_end()
        held = HeldBack(self.log)
        return Staged(plan.effect, held), held

    def run(self, plan: Staged, ports: Ports) -> ToolOutput:
        self.log.append("run")
        if plan.held is not None:
            plan.held.commit()
        return ToolOutput("done", {})

    def release(self, plan: Staged) -> None:
        if plan.held is not None:
            plan.held.close()


class Button(Struct, dict=True):
    """A token; something presses it."""

    is_cancelled: bool = False

    def on_cancel(self, callback):
        return lambda: None

    def press(self) -> None:
        self.is_cancelled = True


class Scene(Struct, dict=True):
    door: Door
    stager: Stager = field(default_factory=Stager)
    bounds: Bounds = FREE

    def call(self, approver, **arguments):
        spec = ToolSpec("stager", "Stager", "d", "test", Given, Effects(reads_only=False))
        tool = Tool(spec, self.stager)
        dispatcher = self.door.dispatcher(approver, policy=POLICY, more=(tool,))
        return dispatcher.dispatch(ToolCall("C-1", "stager", arguments), self.bounds)


@pytest.fixture
def scene(door: Door) -> Scene:
    return Scene(door)


def test_a_yes_lets_just_the_effect_stand_that_was_shown(scene: Scene):
    approver = Answers()
    approver.before_answer = lambda: scene.stager.log.append("asked")
    result = scene.call(approver)

    assert result.refusal is None
    assert scene.stager.log == ["stage", "asked", "run", "commit", "close"]
    [request] = approver.asked
    assert (request.diff, request.target_digest) == ("+ one line", "sha256:effect")
    assert request.warnings == ("one line more",)
    assert scene.door.events() == ["TOOL_STAGED", "TOOL_INTENT", "TOOL_RESULT"]
    staged = scene.door.ledger.entries[0].entry
    assert (staged.decision, staged.call_id) == ("ask", "C-1")


@pytest.mark.parametrize(
    ("approver", "code"),
    [
        (Answers(Approval(False, "test")), "approval.refused"),
        (NoApprover(), "approval.unavailable"),
    ],
)
def test_any_other_answer_lets_it_go(scene: Scene, approver, code):
    result = scene.call(approver)
    assert result.refusal.code == code
    assert result.details["warnings"] == ["one line more"]
    assert result.content.splitlines()[-1] == "[warning: one line more]"
    assert scene.stager.log == ["stage", "close"]
    assert scene.door.events() == ["TOOL_STAGED", "TOOL_DENIED"]


def test_nothing_is_done_before_it_is_on_record(scene: Scene):
    scene.door.ledger.fail_with(StorageFullError("no space"))
    result = scene.call(Answers())

    assert result.refusal is not None
    assert scene.stager.log == []


def test_a_question_that_cannot_be_recorded_lets_it_go(scene: Scene):
    scene.door.approvals.failure = StorageFullError("no space")

    assert scene.call(Answers()).refusal is not None
    assert scene.stager.log == ["stage", "close"]


def test_what_cannot_be_done_is_refused_without_a_question(scene: Scene):
    scene.stager.failure = SandboxUnavailableError("the sandbox failed")
    approver = Answers()

    assert scene.call(approver).refusal.code == "sandbox.unavailable"
    assert approver.asked == []
    assert scene.door.events() == ["TOOL_STAGED", "TOOL_DENIED"]


def test_what_was_cancelled_while_it_acted_is_let_go_and_nobody_is_asked(scene: Scene):
    button, approver = Button(), Answers()
    scene.bounds = Bounds(cancel=button)
    scene.stager.before_end = button.press
    result = scene.call(approver)

    assert (result.refusal, approver.asked, scene.door.approvals.events) == (STOPPED, [], [])
    assert scene.stager.log == ["stage", "close"]
    assert scene.door.events() == ["TOOL_STAGED", "TOOL_DENIED"]


def test_what_was_cancelled_while_it_was_asked_about_is_refused_as_stopped(scene: Scene):
    scene.bounds = Bounds(cancel=Button())
    approver = Answers(Approval(False, "test", "call.cancelled"))
    result = scene.call(approver)

    assert (result.refusal, approver.asked[0].cancel) == (STOPPED, scene.bounds.cancel)
    assert scene.stager.log == ["stage", "close"]
    assert scene.door.events() == ["TOOL_STAGED", "TOOL_DENIED"]


def test_what_may_be_cancelled_and_was_not_is_asked_about(scene: Scene):
    scene.bounds = Bounds(cancel=Button())

    assert scene.call(Answers()).refusal is None
    assert scene.stager.log == ["stage", "run", "commit", "close"]


def test_who_asks_for_a_call_may_bring_who_answers_for_it(scene: Scene):
    own, runtimes = Answers(), Answers(Approval(False, "runtime"))
    scene.bounds = Bounds(approver=own)

    assert scene.call(runtimes).refusal is None
    assert (len(own.asked), runtimes.asked) == (1, [])

    scene.bounds = FREE
    assert scene.call(runtimes).refusal.code == "approval.refused"


def test_a_question_about_the_call_does_nothing_before_it(scene: Scene):
    approver = Answers()

    assert scene.call(approver, effect=False).refusal is None
    assert scene.stager.log == ["run"]
    assert (approver.asked[0].diff, approver.asked[0].target_digest) == ("", "sha256:plan")
    assert scene.door.events() == ["TOOL_INTENT", "TOOL_RESULT"]
