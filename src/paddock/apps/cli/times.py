"""Times as people type them."""

from datetime import UTC, datetime

from paddock.errors import UsageError
from paddock.text.show import quote


def seconds_of(text: str | None, option: str) -> float | None:
    """RFC 3339 as seconds since 1970; UTC where it names no zone. Raises: UsageError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{quote(text)} is no time", where=option, hint="such as 2026-01-31T12:00:00Z"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
