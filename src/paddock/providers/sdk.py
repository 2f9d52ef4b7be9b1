"""What both SDKs have in common: their errors, converted in one place."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, cast

from paddock.providers.failures import HINTS, FailureKind, ProviderError, kind_of
from paddock.providers.keys import Key
from paddock.providers.wire_json import as_map, as_text
from paddock.text.show import quote
from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class SdkErrors:
    """An SDK's exception classes by what they mean. `transport` is the HTTP client's own."""

    status: type[Exception]
    timeout: type[Exception]
    connection: type[Exception]
    base: type[Exception]
    transport: type[Exception]


@contextmanager
def converted(errors: SdkErrors, key: Key, provider: str) -> Generator[None]:
    """Turn whatever the SDK raises into a ProviderError, without the key in it.

    A stream that is cut may surface as the HTTP client's own error.
    """
    try:
        yield
    except errors.status as error:
        raise _of_status(cast("Any", error), key, provider) from None
    except errors.timeout:
        raise ProviderError(
            f"{provider} did not answer in time", kind=FailureKind.TIMEOUT
        ) from None
    except (errors.connection, errors.transport) as error:
        root = _root_of(error)
        if isinstance(root, ProviderError):  # a cassette in the network's place
            raise root from None
        why = key.scrub(str(root) or type(root).__name__)
        raise ProviderError(
            f"the connection to {provider} failed: {quote(why)}",
            kind=FailureKind.CONNECTION,
            hint=HINTS[FailureKind.CONNECTION],
        ) from None
    except UnicodeEncodeError:
        raise ProviderError(
            "the conversation holds half of a surrogate pair, which no wire can carry",
            kind=FailureKind.REQUEST,
            hint="it may come from a file name or a paste that is not UTF-8",
        ) from None
    except errors.base as error:
        raise _of_body(as_map(getattr(error, "body", None)), str(error), key, provider) from None


def _root_of(error: BaseException) -> BaseException:
    """The innermost cause: the SDK's own text is only "Connection error."."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def error_of(body: Mapping[str, Json], key: Key, provider: str) -> ProviderError:
    """The error that an event in the middle of a stream reports."""
    return _of_body(body, "", key, provider)


def _of_body(body: Mapping[str, Json], text: str, key: Key, provider: str) -> ProviderError:
    reported = _reported(body)
    # An error without a word we know, in the middle of an answer: the server's fault.
    kind = kind_of(500, *reported.words)
    what = next(filter(None, reported.words), "an error")
    said = reported.message or text or "no reason given"
    return ProviderError(
        f"{provider} reports {what}: {quote(key.scrub(said))}",
        kind=kind,
        hint=HINTS.get(kind, ""),
    )


class _Reported(NamedTuple):
    """What an error's body says of itself: its code and type, and a text for people."""

    words: tuple[str, str]
    message: str


def _reported(body: Mapping[str, Json]) -> _Reported:
    inner = as_map(body.get("error")) or body
    words = (as_text(inner.get("code")), as_text(inner.get("type")))
    return _Reported(words, as_text(inner.get("message")))


def _of_status(error: Any, key: Key, provider: str) -> ProviderError:
    status = int(error.status_code)
    headers = cast("Mapping[str, str]", error.response.headers)
    reported = _reported(as_map(error.body))
    kind = kind_of(status, *reported.words)
    return ProviderError(
        f"{provider} answers {status}: {quote(key.scrub(reported.message or str(error)))}",
        kind=kind,
        hint=HINTS.get(kind, ""),
        status=status,
        retry_after_s=_retry_after(headers),
        may_retry={"true": True, "false": False}.get(headers.get("x-should-retry", "")),
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from `retry-after-ms`, or from `retry-after` (RFC 9110, 10.2.3)."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        until = parsedate_to_datetime(value)
        # The server's own clock, where it shows it: ours may be wrong.
        now = parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, (_aware(until) - _aware(now)).total_seconds())


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None
