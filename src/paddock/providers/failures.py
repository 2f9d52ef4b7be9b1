"""Define the common errors of all providers, and cancellation."""

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from typing import Final

from paddock.errors import HostError, ModelFailedError
from paddock.values.calls import Cancel


class FailureKind(StrEnum):
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    BROKEN = "broken"
    """The answer ended early, arrived in the wrong order, or violates the protocol."""
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    SERVER = "server"
    KEY = "key"
    PERMISSION = "permission"
    QUOTA = "quota"
    REQUEST = "request"
    NOT_FOUND = "not_found"
    TOO_LARGE = "too_large"
    SCRIPT = "script"
    """A script or a cassette has no answer for this request."""


TRANSIENT: Final = frozenset(
    {
        FailureKind.CONNECTION,
        FailureKind.TIMEOUT,
        FailureKind.BROKEN,
        FailureKind.RATE_LIMITED,
        FailureKind.OVERLOADED,
        FailureKind.SERVER,
    }
)
"""Temporary failures. No tool has run, so a retry repeats no side effect."""


class ProviderError(ModelFailedError):
    """A provider's failure.

    `status` is the HTTP status, or 0. `retry_after_s` is the wait that the server asks for.
    `may_retry` is the server's statement on whether a retry makes sense.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        where: str = "",
        hint: str = "",
        status: int = 0,
        retry_after_s: float | None = None,
        may_retry: bool | None = None,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s
        self.may_retry = may_retry

    @property
    def is_transient(self) -> bool:
        return self.kind in TRANSIENT if self.may_retry is None else self.may_retry


_BY_STATUS: Final = {
    400: FailureKind.REQUEST,
    401: FailureKind.KEY,
    402: FailureKind.QUOTA,
    403: FailureKind.PERMISSION,
    404: FailureKind.NOT_FOUND,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER,
    413: FailureKind.TOO_LARGE,
    425: FailureKind.SERVER,
    429: FailureKind.RATE_LIMITED,
    503: FailureKind.OVERLOADED,
    504: FailureKind.TIMEOUT,
    529: FailureKind.OVERLOADED,
}
_BY_WORD: Final = {
    "api_error": FailureKind.SERVER,
    "authentication_error": FailureKind.KEY,
    "billing_error": FailureKind.QUOTA,
    "insufficient_quota": FailureKind.QUOTA,
    "invalid_api_key": FailureKind.KEY,
    "invalid_request_error": FailureKind.REQUEST,
    "not_found_error": FailureKind.NOT_FOUND,
    "overloaded_error": FailureKind.OVERLOADED,
    "permission_error": FailureKind.PERMISSION,
    "rate_limit_error": FailureKind.RATE_LIMITED,
    "rate_limit_exceeded": FailureKind.RATE_LIMITED,
    "request_too_large": FailureKind.TOO_LARGE,
    "server_error": FailureKind.SERVER,
    "server_is_overloaded": FailureKind.OVERLOADED,
    "timeout_error": FailureKind.TIMEOUT,
}


def kind_of(status: int, *words: str) -> FailureKind:
    """Return the kind for an HTTP status and the error words of the body.

    An exhausted quota also has status 429, but waiting does not help. So the body's words are
    checked first.
    """
    for word in words:
        if word in _BY_WORD:
            return _BY_WORD[word]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return FailureKind.SERVER if status >= 500 else FailureKind.REQUEST


HINTS: Final = {
    FailureKind.CONNECTION: "check that the server is running and that base_url is correct",
    FailureKind.KEY: "set the key's environment variable, or name another with api_key_env",
    FailureKind.QUOTA: "the account of this key has no quota left",
    FailureKind.NOT_FOUND: "check the model's name, and that the key may use the model",
    FailureKind.TOO_LARGE: "the conversation is too long for this model",
}


def missing_sdk(name: str) -> HostError:
    return HostError(
        f"the provider '{name}' needs the package '{name}'",
        hint=f"pip install 'paddock[{name}]'",
    )


class CancelToken:
    """Cancelled once, permanently. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._next = 0

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        """Stop all work that has this token. Calling it twice is harmless."""
        with self._lock:
            self._event.set()
            waiting = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in waiting:
            callback()

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` on cancellation, or now if cancelled; return a function to unregister."""
        with self._lock:
            is_late = self._event.is_set()
            key = self._next
            self._next += 1
            if not is_late:
                self._callbacks[key] = callback
        if is_late:
            callback()
        return partial(self._forget, key)

    def _forget(self, key: int) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


@contextmanager
def stopped_by(*parents: Cancel) -> Generator[CancelToken]:
    token = CancelToken()
    with ExitStack() as held:
        for parent in parents:
            held.callback(parent.on_cancel(token.cancel))
        yield token


def wait_or_cancel(seconds: float, cancel: Cancel | None) -> bool:
    woken = threading.Event()
    if cancel is None:
        return woken.wait(seconds)
    forget = cancel.on_cancel(woken.set)
    try:
        return woken.wait(seconds)
    finally:
        forget()
