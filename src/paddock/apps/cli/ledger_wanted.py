"""What more than one question of `paddock ledger` takes from its options, and says."""

from pathlib import Path

from paddock.apps.cli.options import Options
from paddock.apps.cli.times import seconds_of
from paddock.assembly.site import PlaneSite
from paddock.errors import UsageError
from paddock.ledger.presence import gone_error, is_known
from paddock.ledger.query import Filter
from paddock.plane.layout import LedgerName


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
