"""What one command's connections and requests come to, decided while it runs.

By the stricter of the policy at the sandbox's start and the policy now. What is asked about is
asked once, and while somebody is asked the command's time stands still.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from paddock.network.egress import NoWayError, Terms
from paddock.policy.network import NetworkJudge, Reach
from paddock.values.calls import NO_RULE, ClosedConnection, OpenedConnection, RefusedConnection
from paddock.values.decisions import Action, Outcome

if TYPE_CHECKING:
    from paddock.network.credentials import Credential
    from paddock.network.requests import Authority

ASK_S: Final = 120.0
_ASKED_AT_ONCE_MAX: Final = 4
_PENDING_MAX: Final = 16
"""Questions of one command that nobody has answered: what comes then is refused at once."""

Record = Callable[..., Coroutine[Any, Any, Any]]
"""Do what blocks, in a thread for records: they are short, and wait for no answer of anybody."""


class Witness(Protocol):
    """Who can be asked for one command, and keeps the record. Each may block, in any thread."""

    def ask(self, action: Action, reach: Reach) -> bool:
        """Ask whoever can answer, for at most two minutes."""
        ...

    def opened(self, event: OpenedConnection) -> None:
        """Return when it is durable. Raises: PaddockError, then nothing is opened."""
        ...

    def closed(self, event: ClosedConnection) -> None: ...

    def refused(self, event: RefusedConnection) -> None: ...


class NetworkTerms(Struct):
    """What decides for one network's connections, and who is asked and keeps the record."""

    judge: NetworkJudge
    latest: Callable[[], NetworkJudge | None]
    """Read what policy says by now: the same judge if nothing changed, None if it is broken."""
    witness: Witness
    """In a session, that of the command which was started last."""
    authority: "Authority | None" = None
    """Whose certificates the sandbox believes, where requests are judged."""
    credentials: "tuple[Credential, ...]" = ()


class Decisions:
    def __init__(self, terms: NetworkTerms, record: Record) -> None:
        self._terms, self._judge, self._record = terms, terms.judge, record
        self._asked: dict[Action, asyncio.Task[bool]] = {}
        self._is_withdrawn = False
        # Threat: a command that asks for a hundred names; a person sees a few at a time.
        self._few = asyncio.Semaphore(_ASKED_AT_ONCE_MAX)
        self._asking = 0
        self._asked_until_s = 0.0
        self.granted_s = 0.0
        """By how much the command's time is longer, as somebody was or is asked."""

    async def decide(self, action: Action, judged: Callable[[NetworkJudge], Reach]) -> Reach:
        """Return how it is allowed. Raises: NoWayError."""
        found = [judged(judge) for judge in await self._judges()]
        # Of two that say the same the newer: what it names is what holds from now on.
        reach = max(reversed(found), key=lambda each: each.outcome)
        if reach.outcome is Outcome.ASK and not await self._is_granted(action, reach):
            raise NoWayError("nobody allowed it")
        if reach.outcome is Outcome.DENY:
            raise NoWayError(rule_of(reach))
        return replace(reach, is_judged=any(each.is_judged for each in found))

    async def places(self, host: str, port: int) -> list[Terms]:
        """Return where a name may lead, by each of the two policies. Raises: NoWayError."""
        return [(judge.connect(host, port).addresses, judge) for judge in await self._judges()]

    async def judge_now(self) -> NetworkJudge | None:
        return await self._record(self._terms.latest)

    def is_denied_by(self, now: NetworkJudge | None, host: str, port: int) -> bool:
        if now is self._judge:
            return False
        reach = None if now is None else now.connect(host, port)
        if reach is None or reach.outcome is Outcome.DENY:
            return True
        # Threat: policy begins to judge requests, and what flows already is seen by nobody.
        return reach.is_judged and not self._judge.connect(host, port).is_judged

    def withdraw(self) -> None:
        """Ask about nothing any more: the command has ended, and no answer counts."""
        self._is_withdrawn = True
        for asked in self._asked.values():
            asked.cancel()

    async def _judges(self) -> list[NetworkJudge]:
        now = await self.judge_now()
        if now is None:
            raise NoWayError("the policy cannot be read")
        return [self._judge] if now is self._judge else [self._judge, now]

    async def _is_granted(self, action: Action, reach: Reach) -> bool:
        asked = self._asked.get(action)
        if asked is None:
            if self._is_withdrawn:
                raise NoWayError("the command has ended")
            if sum(not each.done() for each in self._asked.values()) >= _PENDING_MAX:
                raise NoWayError("too many questions about its connections wait for an answer")
            asked = self._asked[action] = asyncio.create_task(self._ask(action, reach))
        return await asyncio.shield(asked)

    async def _ask(self, action: Action, reach: Reach) -> bool:
        loop = asyncio.get_running_loop()
        self._grant_until(loop.time() + ASK_S)
        self._asking += 1
        try:
            async with self._few:
                return await _answer_of(partial(self._terms.witness.ask, action, reach))
        finally:
            if self._asking == 1:
                self._grant_until(loop.time())
            self._asking -= 1

    def _grant_until(self, until_s: float) -> None:
        """Of several questions at once the time counts once."""
        before_s = self._asked_until_s if self._asking else asyncio.get_running_loop().time()
        self.granted_s += until_s - before_s
        self._asked_until_s = until_s


async def _answer_of(ask: Callable[[], bool]) -> bool:
    """Ask in a thread of its own: no other command waits for who does not answer, and no exit."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bool] = loop.create_future()

    def run() -> None:
        is_granted = False
        try:
            is_granted = ask()
        finally:
            # The loop may have ended, and the command with it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(
                    lambda: answered.done() or answered.set_result(is_granted)
                )

    threading.Thread(target=run, name="paddock-network-question", daemon=True).start()
    return await answered


def rule_of(reach: Reach) -> str:
    return reach.rule.said if reach.rule is not None else NO_RULE
