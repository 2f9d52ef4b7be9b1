"""Hold the open session, its runtime and its status for the shell and its commands."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final, Self

from msgspec import Struct

from paddock.agent import events
from paddock.agent.events import TurnOutcome, TurnResult
from paddock.agent.sessions import Session
from paddock.apps.admin.plain import Keyboard, Screen
from paddock.apps.admin.show import (
    SPOKEN,
    Block,
    LastCalls,
    Sandboxed,
    StatusLine,
    TextLook,
    TextSpan,
    line,
    lines,
    note,
    spoken,
)
from paddock.assembly.project import Project, is_made_with_dev, new_call_id
from paddock.assembly.runtimes import open_runtime
from paddock.assembly.sessions import SessionWish, open_session
from paddock.assembly.shells import STAGING
from paddock.errors import SandboxUnavailableError
from paddock.policy.decide import shell_for
from paddock.providers.failures import CancelToken, stopped_by
from paddock.providers.structured import as_map, as_text
from paddock.runtime.approvals import Approver
from paddock.runtime.messages import asked_call
from paddock.runtime.prepared import Bounds
from paddock.runtime.runtime import Runtime
from paddock.sandbox.backends import choose_backend, examine_host
from paddock.sandbox.values import BackendVerdict, Enforcement
from paddock.values.calls import Json

_PARTIAL_CHARS_MAX: Final = 4_000
"""A partial line of this length is printed without waiting for its end."""
WORKING: Final = "… working; Ctrl-C cancels"


class TurnView:
    def __init__(self, screen: Screen, calls: LastCalls) -> None:
        self._screen = screen
        self._calls = calls
        self._partial = ""
        self._said = ""
        """The text of the current or last model turn."""

    def begin(self) -> None:
        self._partial = self._said = ""
        self._screen.live(WORKING)

    def heard(self, event: events.Event) -> None:
        match event:
            case events.TextPiece():
                self._piece(event.text)
            case events.TextVoid():
                self._void()
            case events.CallDecided():
                self._calls.decided(event)
            case events.CallStarted():
                self._end_text()
                self._screen.live(f"… {event.tool} runs; Ctrl-C cancels")
            case events.CallPrinted():
                self._screen.live(f"… {event.line}")
            case events.CallFinished():
                self._end_text()
                self._screen.show(self._calls.finished(event).as_line())
                self._screen.live(WORKING)
            case events.Noticed():
                self._flush()
                self._screen.show(note(event.text))
            case _:
                pass

    def end(self, result: TurnResult) -> None:
        self.stop()
        show = self._screen.show
        if result.was_cancelled:
            show(line(TextSpan("cancelled", TextLook.WARN)))
        elif result.outcome is not TurnOutcome.SUCCESS:
            show(spoken(result.response, TextLook.WARN))
            show(line(TextSpan(f"[{result.outcome.value}]", TextLook.WARN)))
        elif self._said.strip() != result.response.strip():
            show(spoken(result.response))
        if result.tools_withheld:
            show(note(result.note))

    def stop(self) -> None:
        self._flush()
        self._screen.live("")

    def _piece(self, piece: str) -> None:
        self._said += piece
        # A line end may be split between two pieces.
        text = (self._partial + piece).replace("\r\n", "\n")
        *whole, partial = text.split("\n")
        for each in whole:
            self._screen.show(spoken(each))
        if len(partial) > _PARTIAL_CHARS_MAX:
            self._screen.show(spoken(partial))
            partial = ""
        self._partial = partial
        self._screen.live(f"{SPOKEN}{partial}" if partial else WORKING)

    def _void(self) -> None:
        was_shown = bool(self._said.strip())
        self._end_text()
        if was_shown:
            said = "ignore the text above: the connection broke, and the model is asked again"
            self._screen.show(note(said))

    def _end_text(self) -> None:
        self._flush()
        self._said = ""

    def _flush(self) -> None:
        if self._partial.strip():
            self._screen.show(spoken(self._partial))
        self._partial = ""


class Setting(Struct, frozen=True):
    project: Project
    agent: str | None
    model: str | None
    variables: Mapping[str, str]
    examine: Callable[[Project, str | None], Sandboxed]


class AdminContext:
    def __init__(
        self, setting: Setting, screen: Screen, keyboard: Keyboard, approver: Approver
    ) -> None:
        self.setting = setting
        self.screen = screen
        self.keyboard = keyboard
        self.calls = LastCalls()
        self.view = TurnView(screen, self.calls)
        self.is_leaving = False
        self._approver = approver
        self._spent: dict[str, int] = {}
        self._runtime: Runtime | None = None
        # Fixed when the plane was created.
        self._made_with_dev = is_made_with_dev(setting.project)
        self.sandbox = setting.examine(setting.project, setting.agent)
        self.session = self._open(None)

    @property
    def project(self) -> Project:
        return self.setting.project

    @property
    def show(self) -> Callable[[Block], None]:
        return self.screen.show

    @property
    def runtime(self) -> Runtime:
        if self._runtime is None:
            self._runtime = open_runtime(
                self.project,
                agent=self.session.charter.agent,
                approver=events.HeardApprover(self._approver, self),
                session_id=self.session.session_id,
            )
        return self._runtime

    def resume(self, session_id: str) -> None:
        """End this session and continue another. Raises: PaddockError; this one then stays open."""
        opened = self._open(session_id)
        try:
            # The session's agent may have another sandbox than this one's.
            sandbox = self.setting.examine(self.project, opened.charter.agent)
            self.close()
        except BaseException:
            opened.close()
            raise
        self.session, self.sandbox = opened, sandbox
        self.refresh()

    def close(self) -> None:
        runtime, self._runtime = self._runtime, None
        try:
            if runtime is not None:
                runtime.close()
        finally:
            self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def heard(self, event: events.Event) -> None:
        if isinstance(event, events.Spent):
            self._spent[event.wo_id] = event.cost.total_tokens
            self.refresh()
        self.view.heard(event)

    def turn(self, message: str) -> TurnResult:
        token = CancelToken()
        self._spent.clear()
        self.view.begin()
        try:
            with self._interruptible(token):
                result = self.session.handle_turn(message, token)
        finally:
            self._spent.clear()
            self.refresh()
        self.view.end(result)
        self.screen.answered(result)
        return result

    def call_in_full(self, tool: str, arguments: Json) -> None:
        token = CancelToken()
        asked = asked_call(new_call_id(), tool, arguments)
        shown = events.OneAtATime(self)
        self.view.begin()
        try:
            with self._interruptible(token), stopped_by(token, shown.failed) as stop:
                bounds = Bounds(cancel=stop, on_output=events.HeardOutput(shown))
                [done] = self.runtime.call_all([asked], bounds, events.HeardCalls(shown))
        finally:
            self.view.stop()
        shown.raise_fault()
        self.screen.show(lines(done.result.content, gutter="  │ "))

    def _interruptible(self, token: CancelToken) -> AbstractContextManager[None]:
        def stop() -> None:
            self.screen.live("… cancelling")
            token.cancel()

        return self.keyboard.interrupting(stop)

    def status(self) -> StatusLine:
        session = self.session
        facts = session.facts
        model, gate = as_map(facts.get("model")), as_map(facts.get("dual_gate"))
        return StatusLine(
            agent=session.charter.agent,
            profile=as_text(facts.get("profile")),
            provider=as_text(model.get("provider")),
            model=as_text(model.get("name")),
            gate_is_open=gate.get("open") is True,
            sandbox=self.sandbox,
            tokens=session.supervisor.cost.total_tokens + sum(self._spent.values()),
            tokens_left=session.budget.free,
            made_with_dev=self._made_with_dev,
        )

    def refresh(self) -> None:
        self.screen.status(self.status())

    def _open(self, resume: str | None) -> Session:
        setting = self.setting
        wish = SessionWish(
            agent=None if resume else setting.agent,
            model=setting.model,
            approver=self._approver,
            listener=self,
            variables=setting.variables,
            resume=resume,
        )
        return open_session(setting.project, wish)


def examine(project: Project) -> tuple[BackendVerdict, ...]:
    return examine_host(project.environment.paddock_home / STAGING)


def find_sandbox(project: Project, agent: str | None) -> Sandboxed:
    """Return the sandbox of this agent's commands. Raises: UsageError: unknown agent."""
    name = project.agent_named(agent)
    policy = project.policy_for(project.agents.read(name))
    enforcement = shell_for(policy, project.agents.chain(name)).enforcement
    try:
        chosen = choose_backend(examine(project), enforcement)
    except SandboxUnavailableError:
        return Sandboxed(Enforcement.NONE, refused=True)
    return Sandboxed(chosen.enforcement, chosen.backend)
