"""The one family of errors of every provider, whatever its SDK raises; and cancellation."""

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
    """The answer ended early, came in the wrong order, or was not what the wire promises."""
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
"""Failures that may pass. No tool ran, so asking again repeats no effect."""


class ProviderError(ModelFailedError):
    """How a provider fails.

    `status` is the HTTP status, 0 where there was none. `retry_after_s` is how long
    the server asks to be left alone. `may_retry` is the server's own word on it.
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
    """The kind for an HTTP status and the words that the error's body uses for itself.

    A quota that is used up comes as 429 as well; waiting does not help there, so the
    body's word counts first.
    """
    for word in words:
        if word in _BY_WORD:
            return _BY_WORD[word]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return FailureKind.SERVER if status >= 500 else FailureKind.REQUEST


HINTS: Final = {
    FailureKind.CONNECTION: "is the server running, and is base_url right?",
    FailureKind.KEY: "set the key's variable, or name another with api_key_env",
    FailureKind.QUOTA: "the account behind the key has nothing left to spend",
    FailureKind.NOT_FOUND: "is the model's name right, and does the key reach it?",
    FailureKind.TOO_LARGE: "the conversation is too long for this model",
}


def missing_sdk(name: str) -> HostError:
    return HostError(
        f"the provider '{name}' needs the package '{name}'",
        hint=f"pip install 'paddock[{name}]'",
    )


class CancelToken:
    """Cancelled once, for good. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._next = 0

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        """Stop everything that was given this token. Twice is harmless."""
        with self._lock:
            self._event.set()
            waiting = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in waiting:
            callback()

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when cancelled, or now if it is already; return what unregisters it."""
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
