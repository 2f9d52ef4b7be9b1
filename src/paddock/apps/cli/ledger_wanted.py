"""What more than one question of `paddock ledger` takes from its options, and says."""

from pathlib import Path

from paddock.apps.cli.options import Options, nearest
from paddock.apps.cli.times import seconds_of
from paddock.assembly.site import PlaneSite
from paddock.errors import UsageError
from paddock.ledger.presence import gone_error, is_known
from paddock.ledger.query import Filter, query
from paddock.plane.layout import LedgerName
from paddock.text.show import quote
from paddock.values.entries import EVENT_TYPES


def ledger_that_is_there(site: PlaneSite, options: Options) -> Path:
    """The file of the ledger that is named.

    Raises: UsageError: it was not made yet; LedgerDamagedError: it is gone.
    """
    path = site.layout.ledger_paths()[LedgerName(options.ledger)]
    if path.exists():
        return path
    if is_known(path):
        raise gone_error(path, options.ledger)
    raise UsageError(
        f"the ledger {options.ledger} does not exist yet",
        where="--ledger",
        hint="it is made with its first entry",
    )


def require_known_type(options: Options, ledger: Path) -> None:
    """Refuse a type that is none of ours and that no entry has: nothing found would say nothing.

    A later version may have written a type that this one does not know.

    Raises: UsageError, LedgerDamagedError, HostError.
    """
    given = options.type
    if given is None or given in EVENT_TYPES:
        return
    if query(str(ledger), Filter(event_type=given), last=1).entries:
        return
    raise UsageError(
        f"no event type is called {quote(given)}, in the ledger {options.ledger} neither",
        where="--type",
        hint=nearest(given.upper(), sorted(EVENT_TYPES))
        or "without --type each row shows its own, such as TOOL_DENIED",
    )


def filter_of(options: Options, path: str | None = None) -> Filter:
    """Which entries are wanted; `path`: those that name it. Raises: UsageError: no time."""
    return Filter(
        event_type=options.type,
        session_id=options.session,
        call_id=options.call,
        agent=options.agent,
        decision=options.decision,
        since=seconds_of(options.since, "--since"),
        until=seconds_of(options.until, "--until"),
        path=path,
    )


def unfinished(size_bytes: int) -> str:
    """What to say of an append that is on its way, or torn."""
    return f"{size_bytes} bytes follow the last whole line"
