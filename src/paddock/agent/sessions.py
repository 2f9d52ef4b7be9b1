"""Run a session: one turn per message, delegated orders, and entries for its start and end."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Self

from msgspec import Struct

from paddock.agent.contracts import EXECUTE
from paddock.agent.events import OneAtATime, TurnResult
from paddock.agent.executor import Assignment, Executor
from paddock.agent.supervisor import Charter, Office, Supervisor
from paddock.errors import UsageError
from paddock.providers.budgets import Budget
from paddock.providers.failures import stopped_by
from paddock.runtime.messages import text_of
from paddock.values.calls import NEVER, Cancel, Json
from paddock.values.orders import Constraints, OrderType, WorkOrder

DELEGATED_TURNS_MAX: Final = 10


class ChildAgent(Struct, frozen=True):
    charter: Charter
    executor: Executor


class SessionParts(Struct, frozen=True):
    """The parts of a session. `close` releases all of them, and is called once.

    `open_child` opens a descendant agent for a `with` block. Raises: UsageError: no such agent.
    """

    charter: Charter
    supervisor: Supervisor
    office: Office
    open_child: Callable[[str], AbstractContextManager[ChildAgent]]
    listener: OneAtATime
    close: Callable[[], None]
    facts: Mapping[str, Json]
    notices: tuple[str, ...] = ()


class Session:
    """Safe to use from several threads. Show a person `notices` once."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._running = 0
        self._is_closed = False
        self.notices = parts.notices
        try:
            office = parts.office
            office.append(office.scribe.session_started(parts.facts))
        except BaseException:
            parts.close()
            raise

    @property
    def session_id(self) -> str:
        return self._parts.office.scribe.session_id

    @property
    def charter(self) -> Charter:
        return self._parts.charter

    @property
    def facts(self) -> Mapping[str, Json]:
        return self._parts.facts

    @property
    def budget(self) -> Budget:
        return self._parts.office.budget

    @property
    def supervisor(self) -> Supervisor:
        return self._parts.supervisor

    def handle_turn(self, user_message: str, cancel: Cancel = NEVER) -> TurnResult:
        """Answer a message; see `Supervisor.handle_turn`.

        If `close` was called meanwhile, the last running turn ends the session, and raises as
        `close`. If the listener raised, the turn is cancelled and recorded, and this and every
        later turn raise the same error.

        Raises: UsageError: the message is not text, or the session was closed.
        """
        message = text_of("the message", user_message)
        with self._running_turn(cancel) as stop:
            return self._parts.supervisor.handle_turn(message, stop)

    def delegate(
        self, agent: str, task: str, budget: int | None = None, cancel: Cancel = NEVER
    ) -> WorkOrder:
        """Delegate `task` to a descendant agent; return its order, completed or failed.

        The child's authority is the intersection: every decision is the stricter of both agents'
        decisions, and its tools are those that both have. Its tokens are charged to the session,
        not to a turn: at most `budget`, or by default an order's limit.

        Raises: UsageError: not a descendant, or an invalid `budget`. Otherwise as `handle_turn`.
        """
        if budget is not None and (type(budget) is not int or budget < 1):
            raise UsageError(f"budget is {budget!r}", hint="give a number of tokens, 1 or more")
        office, own = self._parts.office, self._parts.charter
        with self._running_turn(cancel) as stop, self._parts.open_child(agent) as child:
            # Threat: a declaration may give a child a tool that its parent does not have.
            tools = tuple(name for name in child.charter.tools_allowed if name in own.tools_allowed)
            constraints = Constraints(
                prompt_contract_id=EXECUTE,
                tools_allowed=tools,
                turn_limit=DELEGATED_TURNS_MAX if tools else 1,
                token_budget=own.order_tokens if budget is None else budget,
                timeout_s=own.order_timeout_s,
            )
            supervisor = self._parts.supervisor
            order = office.dispatch(
                OrderType.EXECUTE,
                {"task": task},
                constraints,
                turn=supervisor.turns,
                executor=agent,
            )
            scope = office.budget.child(order.wo_id, constraints.token_budget)
            assignment = Assignment(order, scope, child.charter.system_prompt, streams=False)
            done = child.executor.carry_out(assignment, stop).order
            supervisor.add_cost(done.cost)
            return done

    def close(self) -> None:
        """Record the end and release everything. Calling it again does nothing.

        New turns are refused at once. It does not wait for turns in other threads: the last of them
        to finish ends the session.

        Raises: PaddockError: the end could not be recorded; everything is still released.
        """
        with self._lock:
            is_last = not self._is_closed and self._running == 0
            self._is_closed = True
        if is_last:
            self._end()

    def _end(self) -> None:
        parts = self._parts
        try:
            supervisor = parts.supervisor
            parts.office.append(
                parts.office.scribe.session_ended(supervisor.turns, supervisor.cost)
            )
        finally:
            parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _running_turn(self, cancel: Cancel) -> Generator[Cancel]:
        listener = self._parts.listener
        listener.raise_fault()
        with self._lock:
            if self._is_closed:
                raise UsageError("the session was closed", hint="open a new one, or resume it")
            self._running += 1
        try:
            with stopped_by(cancel, listener.failed) as stop:
                yield stop
            listener.raise_fault()
        finally:
            # Closing the ledger during a turn would lose its record, so the last turn closes it.
            with self._lock:
                self._running -= 1
                is_last = self._is_closed and self._running == 0
            if is_last:
                self._end()
