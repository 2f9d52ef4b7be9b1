"""Decide a command's connections and requests while it runs.

The stricter of two policies applies: the one at the sandbox's start and the current one. Each
action is asked about once, and the time to wait for an approval does not count for the command.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from paddock.network.egress import EgressError, Terms
from paddock.policy.network import NetworkJudge, Reach
from paddock.values.calls import NO_RULE, ClosedConnection, OpenedConnection, RefusedConnection
from paddock.values.decisions import Action, Outcome

if TYPE_CHECKING:
    from paddock.network.credentials import Credential
    from paddock.network.requests import Authority

ASK_S: Final = 120.0
_ASKED_AT_ONCE_MAX: Final = 4
_PENDING_MAX: Final = 16
"""Unanswered questions of one command: further ones are refused at once."""

Record = Callable[..., Coroutine[Any, Any, Any]]
"""Run a blocking function in a thread for records: they are short and never wait for an answer."""


class Witness(Protocol):
    """Approval and records for one command. Each method may block, in any thread."""

    @property
    def remedy(self) -> str:
        """How a person can allow it what no rule allows; `{}` is the host and port."""
        ...

    def ask(self, action: Action, reach: Reach) -> bool:
        """Ask the approver, for at most two minutes."""
        ...

    def opened(self, event: OpenedConnection) -> None:
        """Return when the record is durable. Raises: PaddockError, then nothing is opened."""
        ...

    def closed(self, event: ClosedConnection) -> None: ...

    def refused(self, event: RefusedConnection) -> None: ...


class NetworkTerms(Struct):
    """Policy, witness and credentials of one network."""

    judge: NetworkJudge
    latest: Callable[[], NetworkJudge | None]
    """Read the current policy: the same judge if nothing changed, None if it is broken."""
    witness: Witness
    """In a session, the witness of the command that was started last."""
    authority: "Authority | None" = None
    """The certificate authority that the sandbox trusts, if requests are judged."""
    credentials: "tuple[Credential, ...]" = ()


class Decisions:
    def __init__(self, terms: NetworkTerms, record: Record) -> None:
        self._terms, self._judge, self._record = terms, terms.judge, record
        self._asked: dict[Action, asyncio.Task[bool]] = {}
        self._is_withdrawn = False
        # Threat: a command asks for a hundred names; the approver should see a few at a time.
        self._few = asyncio.Semaphore(_ASKED_AT_ONCE_MAX)
        self._asking = 0
        self._asked_until_s = 0.0
        self.granted_s = 0.0
        """Time added to the command's deadline, for approvals."""

    async def decide(self, action: Action, judged: Callable[[NetworkJudge], Reach]) -> Reach:
        """Return the reach that allows it. Raises: EgressError."""
        found = [judged(judge) for judge in await self._judges()]
        # Of two equal outcomes take the newer one: its rule applies from now on.
        reach = max(reversed(found), key=lambda each: each.outcome)
        if reach.outcome is Outcome.ASK and not await self._is_granted(action, reach):
            raise EgressError("it was not approved")
        if reach.outcome is Outcome.DENY:
            raise EgressError(rule_of(reach))
        return replace(reach, is_judged=any(each.is_judged for each in found))

    async def terms_for(self, host: str, port: int) -> list[Terms]:
        """Return the terms of both policies for a name's addresses. Raises: EgressError."""
        return [(judge.connect(host, port).addresses, judge) for judge in await self._judges()]

    async def judge_now(self) -> NetworkJudge | None:
        return await self._record(self._terms.latest)

    def is_denied_by(self, now: NetworkJudge | None, host: str, port: int) -> bool:
        if now is self._judge:
            return False
        reach = None if now is None else now.connect(host, port)
        if reach is None or reach.outcome is Outcome.DENY:
            return True
        # Threat: policy now judges requests, but this open connection passes them unjudged.
        return reach.is_judged and not self._judge.connect(host, port).is_judged

    def withdraw(self) -> None:
        """Stop asking: the command has ended, and answers no longer count."""
        self._is_withdrawn = True
        for asked in self._asked.values():
            asked.cancel()

    async def _judges(self) -> list[NetworkJudge]:
        now = await self.judge_now()
        if now is None:
            raise EgressError("the policy cannot be read")
        return [self._judge] if now is self._judge else [self._judge, now]

    async def _is_granted(self, action: Action, reach: Reach) -> bool:
        asked = self._asked.get(action)
        if asked is None:
            if self._is_withdrawn:
                raise EgressError("the command has ended")
            if sum(not each.done() for each in self._asked.values()) >= _PENDING_MAX:
                raise EgressError("too many of its connections wait for an approval")
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
        """Extend the deadline; the time of simultaneous questions counts once."""
        before_s = self._asked_until_s if self._asking else asyncio.get_running_loop().time()
        self.granted_s += until_s - before_s
        self._asked_until_s = until_s


async def _answer_of(ask: Callable[[], bool]) -> bool:
    """Ask in a separate daemon thread: a missing answer delays neither other commands nor exit."""
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
