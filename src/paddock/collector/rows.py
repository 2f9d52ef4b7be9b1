"""Queries of the collector's tables, and what their rows are as values."""

from typing import Final, LiteralString

from paddock.collector.chains import Accepted, Head, Offer, OfferRefusal, RefusalCode, Refused
from paddock.errors import HostError
from paddock.ledger.format.merkle import HASH_BYTES

HEADS: Final[LiteralString] = (
    "SELECT size, root, leaf, edge, note, "
    """to_char(accepted AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') """
    "FROM paddock_collector.checkpoints WHERE host = %s AND ledger = %s ORDER BY size"
)
OFFERS: Final[LiteralString] = (
    "SELECT host, ledger, start, stop, note, edge, number, sender "
    "FROM paddock_collector.offers WHERE number > %s ORDER BY number LIMIT %s"
)
REFUSED: Final[LiteralString] = (
    "SELECT DISTINCT ON (code) host, ledger, start, stop, note, number, sender, code, message, "
    """to_char(refused AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), """
    "count(*) OVER (PARTITION BY code) FROM paddock_collector.refusals "
    "WHERE host = %s AND ledger = %s ORDER BY code, number DESC"
)
LOCKED_CHAIN: Final[LiteralString] = (
    "SELECT 1 FROM paddock_collector.chains WHERE host = %s AND ledger = %s FOR UPDATE"
)
LOCKED_OFFER: Final[LiteralString] = (
    "SELECT 1 FROM paddock_collector.offers WHERE number = %s FOR UPDATE NOWAIT"
)
"""Without waiting: one who holds many of his offers would stop all others."""


def accepted_of(row: tuple[object, ...]) -> Accepted:
    """A row of `HEADS`. Raises: HostError: the tables are not of this version."""
    size, root, leaf, edge, note, at = row
    head = Head(int(str(size)), bytes_of(root), str(leaf), _hashes(edge), str(note))
    return Accepted(head, str(at))


def offer_of(row: tuple[object, ...]) -> Offer:
    """A row of `OFFERS`. Raises: HostError: the tables are not of this version."""
    host, ledger, start, stop, note, edge, number, sender = row
    return Offer(
        *(str(host), str(ledger), int(str(start)), int(str(stop)), str(note)),
        *(_hashes(edge), int(str(number)), str(sender)),
    )


def refused_of(row: tuple[object, ...]) -> Refused:
    host, ledger, start, stop, note, number, sender, code, message, at, times = row
    offer = Offer(
        *(str(host), str(ledger), int(str(start)), int(str(stop)), str(note)),
        number=int(str(number)),
        sender=str(sender),
    )
    refusal = OfferRefusal(RefusalCode(str(code)), str(message))
    return Refused(offer, refusal, str(at), int(str(times)))


def bytes_of(value: object) -> bytes:
    """A bytea, as the library gives it. Raises: HostError where it is something else."""
    if isinstance(value, bytes):
        return value
    raise HostError("the collector's tables are not of this version")


def _hashes(value: object) -> tuple[bytes, ...]:
    edge = bytes_of(value)
    return tuple(edge[at : at + HASH_BYTES] for at in range(0, len(edge), HASH_BYTES))
