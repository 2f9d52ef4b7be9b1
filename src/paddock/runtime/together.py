"""The calls of one turn: all are decided before any runs; one result each, in order.

What stands next to each other and only reads runs at once, in threads. A call that
writes waits for those before it and holds up those behind it, so that a read after a
write sees what was written, and no two writes of a turn meet.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from paddock import limits
from paddock.runtime.answers import unless_allowed
from paddock.runtime.dispatch import Dispatcher
from paddock.runtime.messages import Asked, Malformed
from paddock.runtime.prepared import FREE, Bounds, Judged, Prepared
from paddock.values.calls import ToolCall, ToolResult


class Done(NamedTuple):
    """A call's result. `ran` is false where it was refused before it began."""

    result: ToolResult
    ran: bool


class CallWatcher(Protocol):
    """Hears what becomes of each call. Called from several threads at once."""

    def decided(self, call: ToolCall, judged: Judged) -> None:
        """It may run: what policy said, and who approved it."""
        ...

    def started(self, call: ToolCall) -> None:
        """It runs now."""
        ...

    def finished(self, call: ToolCall, done: Done, duration_us: int) -> None:
        """It is over; refused ones were not started."""
        ...


class _Nobody:
    def decided(self, call: ToolCall, judged: Judged) -> None:
        """Nothing to do."""

    def started(self, call: ToolCall) -> None:
        """Nothing to do."""

    def finished(self, call: ToolCall, done: Done, duration_us: int) -> None:
        """Nothing to do."""


NOBODY: Final[CallWatcher] = _Nobody()


def dispatch_all(
    dispatcher: Dispatcher,
    asked: Sequence[Asked],
    bounds: Bounds = FREE,
    watcher: CallWatcher = NOBODY,
) -> list[Done]:
    """Run the calls of one turn: exactly one result for each, in their order.

    Raises: IntegrityError where the ledger is damaged.
    """
    turn = _Turn(dispatcher, bounds, watcher)
    waiting: list[_Step] = []
    done: list[Done] = []
    try:
        for each in asked:
            waiting.append(turn.decide(each))  # noqa: PERF401 - kept where a later one raises
        for group in _groups(list(waiting)):
            # From here on the group lets go of its plans itself.
            del waiting[: len(group)]
            done += turn.run(group)
    finally:
        for step in waiting:
            if isinstance(step, Prepared):
                dispatcher.let_go(step)
    return done


_Step = Prepared | Done


def _groups(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Neighbours that may run at once."""
    group: list[_Step] = []
    for step in steps:
        if isinstance(step, Prepared) and not step.tool.reads_only:
            yield group
            yield [step]
            group = []
        else:
            group.append(step)
    yield group


@dataclass(frozen=True, slots=True)
class _Turn:
    dispatcher: Dispatcher
    bounds: Bounds
    watcher: CallWatcher

    def decide(self, asked: Asked) -> _Step:
        if isinstance(asked, Malformed):
            call = asked.call
            refusal = unless_allowed(call.tool, self.bounds) or asked.refusal
            found: Prepared | ToolResult = self.dispatcher.refuse(call, refusal, self.bounds)
        else:
            call = asked
            found = self.dispatcher.prepare(call, self.bounds)
        if isinstance(found, Prepared):
            try:
                self.watcher.decided(call, found.judged)
            except BaseException:
                self.dispatcher.let_go(found)
                raise
            return found
        done = Done(found, ran=False)
        self.watcher.finished(call, done, 0)
        return done

    def run(self, group: Sequence[_Step]) -> list[Done]:
        """In this thread where there is nothing to do at once."""
        ready = [step for step in group if isinstance(step, Prepared)]
        if len(ready) < 2:
            return [self.finish(step) for step in group]
        with ThreadPoolExecutor(min(len(ready), limits.reads_together_max)) as threads:
            return list(threads.map(self.finish, group))

    def finish(self, step: _Step) -> Done:
        if isinstance(step, Done):
            return step
        monotonic_ns = self.dispatcher.monotonic_ns
        self.watcher.started(step.call)
        started = monotonic_ns()
        done = Done(self.dispatcher.run(step), ran=True)
        self.watcher.finished(step.call, done, (monotonic_ns() - started) // 1000)
        return done
