"""What keeps a collector's chains, as a port. `PostgresStore` keeps it, and `MemoryCollector`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, LiteralString, Protocol

from paddock.collector.chains import (
    Accepted,
    Chain,
    ChainHead,
    Offer,
    OfferRefusal,
    Progress,
    RefusalCode,
    Refused,
)
from paddock.errors import HostError
from paddock.ledger.format.notes import HASH_BYTES

OFFERS_MAX: Final = 1_000
"""As many are looked at in one go, however many a sender lays down."""


class Taking(Protocol):
    """One chain, locked until the block is left; then all of it is kept, or after an error none."""

    @property
    def head(self) -> ChainHead:
        """How far the chain was taken in."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether the offer still waits: another process may have been first."""
        ...

    def parts(self) -> Iterator[bytes]:
        """The offer's lines in order, each with its LF, many in a part."""
        ...

    def stored(self, start: int, stop: int) -> Iterable[bytes]:
        """Lines that were taken in before."""
        ...

    def add(self, start: int, lines: Sequence[bytes]) -> None: ...

    def keep(self, head: ChainHead) -> None:
        """Keep the accepted checkpoint; the offer is done with."""
        ...


class Store(Protocol):
    """Keeps the chains of many hosts, never changed or removed. Raises, each method: HostError."""

    def enroll(self, chain: Chain) -> bool:
        """Let a host push a ledger; False if so already. Raises: ConfigError: another key."""
        ...

    def chains(self) -> Sequence[Chain]:
        """All that are enrolled, by host and ledger."""
        ...

    def accepted(self, chain: Chain) -> Sequence[Accepted]:
        """The checkpoints of a chain that were accepted, the newest last."""
        ...

    def newest(self, chain: Chain) -> Accepted | None: ...

    def lines(self, chain: Chain) -> Iterator[tuple[int, bytes]]:
        """Every line that was taken in, with its number, in order. In a `steady` block."""
        ...

    def progress(self, host: str) -> Sequence[Progress]:
        """What a pushing host may know of its chains, by ledger."""
        ...

    def send(self, offer: Offer, parts: Iterable[bytes]) -> None:
        """Lay an offer down, all of it or nothing. Nobody looked at it yet."""
        ...

    def offers(self, after: int = 0) -> Sequence[Offer]:
        """Return the first `OFFERS_MAX` that wait, of those after the number `after`."""
        ...

    def waiting(self, chain: Chain) -> int:
        """How far the offers that wait for a chain reach, by whomever; 0 for none."""
        ...

    def taking(self, chain: Chain, offer: Offer) -> AbstractContextManager[Taking]:
        """Lock this chain alone, to take an offer in. Raises: HostError."""
        ...

    def drop(self, offer: Offer) -> None:
        """Drop an offer that waits. Raises: HostError: also where another holds it."""
        ...

    def refuse(self, offer: Offer, refusal: OfferRefusal) -> None:
        """Drop an offer that waits, and keep why. Raises: HostError: as `drop`."""
        ...

    def refused(self, host: str, ledger: str) -> Sequence[Refused]:
        """What was refused of a chain, enrolled or not: one for each code, by code.

        Threat: who refuses to be quiet must not push what matters out of sight.
        """
        ...

    def steady(self) -> AbstractContextManager[None]:
        """A block in which every answer is of one moment."""
        ...

    def close(self) -> None: ...


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
    size, root, leaf, edge, note, at = row
    head = ChainHead(int(str(size)), bytes_of(root), str(leaf), _hashes(edge), str(note))
    return Accepted(head, str(at))


def offer_of(row: tuple[object, ...]) -> Offer:
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
    if isinstance(value, bytes):
        return value
    raise HostError("the collector's tables are not of this version")


def _hashes(value: object) -> tuple[bytes, ...]:
    edge = bytes_of(value)
    return tuple(edge[at : at + HASH_BYTES] for at in range(0, len(edge), HASH_BYTES))


# Entries, checkpoints, enrolled keys and refusals are only ever added: a trigger refuses all
# else, for everybody who does not own the tables and take the trigger away. A role that pushes
# may lay offers down, for any host, and look at the progress of every host: that of its own
# offers, and how far each chain was taken in. It reads nothing else, and it cannot say in whose
# name an offer came: `sender` is the database's word.
#
# Threat: such a role may keep a transaction open, and with it locks on `offers`, `parts` and
# `progress`. What is there already is therefore not touched, with no lock that they stop; all
# else has a limit (`lock_timeout`).

SCHEMA: Final[LiteralString] = """
CREATE SCHEMA IF NOT EXISTS paddock_collector;
SET LOCAL search_path TO paddock_collector, pg_temp;

CREATE TABLE IF NOT EXISTS chains (
    host text NOT NULL,
    ledger text NOT NULL,
    tier text NOT NULL,
    origin text NOT NULL,
    key text NOT NULL,
    PRIMARY KEY (host, ledger)
);
CREATE TABLE IF NOT EXISTS entries (
    host text NOT NULL,
    ledger text NOT NULL,
    seq bigint NOT NULL CHECK (seq >= 0),
    line bytea NOT NULL,
    PRIMARY KEY (host, ledger, seq),
    FOREIGN KEY (host, ledger) REFERENCES chains
);
CREATE TABLE IF NOT EXISTS checkpoints (
    host text NOT NULL,
    ledger text NOT NULL,
    size bigint NOT NULL CHECK (size > 0),
    root bytea NOT NULL,
    leaf text NOT NULL,
    edge bytea NOT NULL,
    note text NOT NULL,
    accepted timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host, ledger, size),
    FOREIGN KEY (host, ledger) REFERENCES chains
);
CREATE TABLE IF NOT EXISTS offers (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch uuid NOT NULL,
    sender text NOT NULL DEFAULT session_user,
    host text NOT NULL,
    ledger text NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    note text NOT NULL CHECK (octet_length(note) <= 16384),
    UNIQUE (sender, batch)
);
CREATE TABLE IF NOT EXISTS parts (
    sender text NOT NULL DEFAULT session_user,
    batch uuid NOT NULL,
    part bigint NOT NULL,
    lines bytea NOT NULL CHECK (octet_length(lines) <= 8388608),
    PRIMARY KEY (sender, batch, part),
    FOREIGN KEY (sender, batch) REFERENCES offers (sender, batch) ON DELETE CASCADE
);
CREATE TABLE IF NOT EXISTS refusals (
    number bigint PRIMARY KEY,
    sender text NOT NULL,
    host text NOT NULL,
    ledger text NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    note text NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    refused timestamptz NOT NULL DEFAULT clock_timestamp()
);

DO $$
BEGIN
-- Threat: an index has no room for a long name, so an offer with one could be neither refused
-- nor taken. No host and no ledger is enrolled under one.
IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'offers_names'
        AND conrelid = 'offers'::regclass) THEN
    DELETE FROM offers WHERE octet_length(host) > 63 OR octet_length(ledger) > 63;
    ALTER TABLE offers ADD CONSTRAINT offers_names
        CHECK (octet_length(host) <= 63 AND octet_length(ledger) <= 63);
END IF;
IF NOT EXISTS (SELECT FROM pg_attribute WHERE attname = 'edge'
        AND attrelid = 'offers'::regclass) THEN
    ALTER TABLE offers ADD COLUMN edge bytea NOT NULL DEFAULT ''
        CHECK (octet_length(edge) <= 2048);
END IF;
IF to_regclass('refusals_of') IS NULL THEN
    CREATE INDEX refusals_of ON refusals (host, ledger, code, number);
END IF;
IF to_regclass('offers_of') IS NULL THEN
    CREATE INDEX offers_of ON offers (host, ledger, stop);
END IF;
IF to_regclass('progress') IS NULL THEN
CREATE VIEW progress AS
SELECT chain.host, chain.ledger,
    coalesce(newest.size, 0) AS accepted,
    coalesce((
        SELECT max(stop) FROM offers
        WHERE (host, ledger, sender) = (chain.host, chain.ledger, session_user)
    ), 0) AS waiting,
    coalesce((
        SELECT code FROM refusals
        WHERE (host, ledger, sender) = (chain.host, chain.ledger, session_user)
            AND refused > coalesce(newest.accepted, '-infinity')
        ORDER BY number DESC LIMIT 1
    ), '') AS refused
FROM chains AS chain
LEFT JOIN LATERAL (
    SELECT size, accepted FROM checkpoints
    WHERE (host, ledger) = (chain.host, chain.ledger)
    ORDER BY size DESC LIMIT 1
) AS newest ON true;
END IF;
END
$$;

CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON chains
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE OR REPLACE TRIGGER only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON refusals
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
"""
"""PostgreSQL 14 or newer. Again over what is there already it changes nothing."""

GRANTS: Final[tuple[LiteralString, ...]] = (
    "GRANT USAGE ON SCHEMA paddock_collector TO {}",
    "GRANT SELECT ON paddock_collector.progress TO {}",
    "GRANT INSERT (batch, host, ledger, start, stop, note, edge) ON paddock_collector.offers TO {}",
    "GRANT INSERT (batch, part, lines) ON paddock_collector.parts TO {}",
)
