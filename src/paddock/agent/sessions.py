"""Run a session: one turn per message, delegated orders, and entries for its start and end."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from msgspec import Struct

from paddock.agent.contracts import EXECUTE
from paddock.agent.events import TurnResult
from paddock.agent.executor import Assignment, Executor
from paddock.agent.supervisor import Charter, Supervisor
from paddock.errors import UsageError
from paddock.providers.budgets import Budget
from paddock.providers.failures import stopped_by
from paddock.runtime.messages import text_of
from paddock.values.calls import NEVER, Cancel, Json
from paddock.values.orders import OrderType, WorkOrder


class ChildAgent(Struct, frozen=True):
    charter: Charter
    executor: Executor


class Session:
    """Safe to use from several threads. Show a person `notices` once."""

    def __init__(
        self,
        supervisor: Supervisor,
        open_child: Callable[[str], AbstractContextManager[ChildAgent]],
        close: Callable[[], None],
        facts: Mapping[str, Json],
        notices: tuple[str, ...],
    ) -> None:
        """`close` releases all parts, and is called once.

        `open_child` opens a descendant agent for a `with` block. Raises: UsageError: no such agent.
        """
        self._supervisor = supervisor
        self._facts = facts
        self.notices = notices
        self._office = supervisor.office
        self._open_child = open_child
        self._release = close
        self._lock = threading.Lock()
        self._running = 0
        self._is_closed = False
        try:
            self._office.append(self._office.scribe.session_started(facts))
        except BaseException:
            close()
            raise

    @property
    def session_id(self) -> str:
        return self._office.scribe.session_id

    @property
    def charter(self) -> Charter:
        return self._supervisor.charter

    @property
    def facts(self) -> Mapping[str, Json]:
        return self._facts

    @property
    def budget(self) -> Budget:
        return self._office.budget

    @property
    def supervisor(self) -> Supervisor:
        return self._supervisor

    def handle_turn(self, user_message: str, cancel: Cancel = NEVER) -> TurnResult:
        """Answer a message; see `Supervisor.handle_turn`.

        If `close` was called meanwhile, the last running turn ends the session, and raises as
        `close`. If the listener raised, the turn is cancelled and recorded, and this and every
        later turn raise the same error.

        Raises: UsageError: the message is not text, or the session was closed.
        """
        message = text_of("the message", user_message)
        with self._running_turn(cancel) as stop:
            return self.supervisor.handle_turn(message, stop)

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
        office, own = self._office, self.charter
        with self._running_turn(cancel) as stop, self._open_child(agent) as child:
            # Threat: a declaration may give a child a tool that its parent does not have.
            tools = tuple(name for name in child.charter.tools_allowed if name in own.tools_allowed)
            order = office.dispatch(
                OrderType.EXECUTE,
                {"task": task},
                own.constraints(EXECUTE, tools, budget),
                turn=self.supervisor.turns,
                executor=agent,
            )
            scope = office.budget.child(order.wo_id, order.constraints.token_budget)
            assignment = Assignment(order, scope, child.charter.system_prompt, streams=False)
            done = child.executor.carry_out(assignment, stop).order
            self.supervisor.add_cost(done.cost)
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
        supervisor, office = self.supervisor, self._office
        try:
            office.append(office.scribe.session_ended(supervisor.turns, supervisor.cost))
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _running_turn(self, cancel: Cancel) -> Generator[Cancel]:
        listener = self._office.listener
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
