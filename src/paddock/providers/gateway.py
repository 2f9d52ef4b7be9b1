"""Define the `Provider` protocol, and retry a provider's failures.

A retry sends only the request again. No tool runs on a reply that did not arrive, so no side effect
is repeated. Retries are bounded in number and in time.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from paddock import limits
from paddock.errors import BudgetExhaustedError
from paddock.providers.failures import ProviderError
from paddock.text.json import canonical_json
from paddock.values.calls import Cancel, Json
from paddock.values.entries import digest_of
from paddock.values.models import Message, ModelRequest, ModelTurn, Stop, Usage


class TextSink(Protocol):
    """Receives text while it arrives. Called in the thread that called `route`."""

    def text(self, piece: str) -> None:
        """Receive the next piece of the answer, never empty."""
        ...

    def restarted(self) -> None:
        """Discard the text so far: the request will be sent again from the start."""
        ...


class Provider(Protocol):
    """Answers requests, possibly from several threads at once."""

    @property
    def name(self) -> str:
        """The kind of provider: `builtin`, `scripted`, `anthropic`, `openai`."""
        ...

    @property
    def model(self) -> str: ...

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        """Return the model's turn. If cancelled: with `Stop.CANCELLED` and the text so far.

        Raises: ProviderError: the provider returned no turn.
        """
        ...

    def close(self) -> None:
        """Release connections and threads. Calling it twice is harmless."""
        ...


# For the ledger, for digests, scripts and estimates.


def message_as_json(message: Message) -> dict[str, Json]:
    return to_builtins(message, enc_hook=dict)


def request_text(request: ModelRequest) -> str:
    return canonical_json(to_builtins(request, enc_hook=dict))


def request_digest(request: ModelRequest) -> str:
    return digest_of(request_text(request).encode("utf-8", "surrogatepass"))


class RetryLimits(Struct, frozen=True):
    attempts: int = limits.model_attempts_max
    first_s: float = limits.model_retry_first_s
    longest_s: float = limits.model_retry_longest_s
    budget_s: float = limits.model_retry_budget_s


def plan_wait(
    failure: ProviderError, attempt: int, waited_s: float, draw: float, allowed: RetryLimits
) -> float | None:
    """Return the seconds until attempt number `attempt` + 1; None for no further attempt.

    `draw` is a random number from 0 up to 1: clients that failed together must not retry together.
    If the server asks for a longer wait than is allowed, there is no retry, because the server
    would refuse it.
    """
    if not failure.is_transient or attempt >= allowed.attempts:
        return None
    asked = failure.retry_after_s
    if asked is None:
        step = min(allowed.first_s * 2 ** (attempt - 1), allowed.longest_s)
        wait = step * (0.5 + draw / 2)
    elif asked > allowed.longest_s:
        return None
    else:
        wait = asked + allowed.first_s * draw
    return wait if waited_s + wait <= allowed.budget_s else None


Wait = Callable[[float, Cancel | None], bool]
"""Waits for the seconds; returns early and True on cancellation."""


Pay = Callable[[Callable[[], ModelTurn]], ModelTurn]
"""Makes one attempt and pays for it: calls its argument once, and returns or raises the result.

Raises: BudgetExhaustedError: nothing was sent."""


class Gateway(Struct, frozen=True):
    provider: Provider
    wait: Wait
    draw: Callable[[], float]
    allowed: RetryLimits = RetryLimits()

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def model(self) -> str:
        return self.provider.model

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
        pay: Pay = lambda send: send(),
    ) -> ModelTurn:
        """Return the model's turn, with the number of attempts (`attempts`).

        Each attempt is made through `pay`. If cancelled, also while waiting: a turn with
        `Stop.CANCELLED`.

        Raises: ProviderError: the last one; its message states the attempts and any shortage of
            the budget. BudgetExhaustedError. ConfigError: as the provider.
        """

        def send() -> ModelTurn:
            return self.provider.route(request, on_text=on_text, cancel=cancel)

        waited = 0.0
        attempt = 1
        failed: ProviderError | None = None
        while True:
            if cancel is not None and cancel.is_cancelled:
                return cancelled_turn(self.model, attempt - 1)
            try:
                return replace(pay(send), attempts=attempt)
            except BudgetExhaustedError as short:
                if failed is None:
                    raise
                said = f", no budget for another attempt: {short.message}"
                raise _counted(failed, attempt - 1, said) from failed.__cause__
            except ProviderError as failure:
                failed = failure
            wait = plan_wait(failed, attempt, waited, self.draw(), self.allowed)
            if wait is None:
                raise _counted(failed, attempt) from failed.__cause__
            if on_text is not None:
                on_text.restarted()
            if self.wait(wait, cancel):
                return cancelled_turn(self.model, attempt)
            waited += wait
            attempt += 1


def cancelled_turn(model: str, attempts: int = 1, text: str = "") -> ModelTurn:
    return ModelTurn(
        text=text,
        tool_calls=(),
        structured=None,
        stop=Stop.CANCELLED,
        usage=Usage(),
        model=model,
        usage_is_known=attempts == 0,
        attempts=attempts,
    )


def _counted(failure: ProviderError, attempts: int, more: str = "") -> ProviderError:
    if attempts == 1 and not more:
        return failure
    tried = "once" if attempts == 1 else f"{attempts} times"
    return ProviderError(
        f"{failure.message} (tried {tried}{more})",
        kind=failure.kind,
        where=failure.where,
        hint=failure.hint,
        status=failure.status,
        retry_after_s=failure.retry_after_s,
        may_retry=failure.may_retry,
    )
