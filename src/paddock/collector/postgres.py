"""Define the collector's PostgreSQL tables and every query. The only module that uses `psycopg`.

A batch is one transaction. It locks only the row of its chain, so hosts do not wait for each other.

Threat: a DSN can contain a password, and so can the library's message about an invalid one. Only
the DSN's host, port, database and user are ever shown.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, Self
from uuid import uuid4

from paddock.collector.chains import (
    OFFERS_MAX,
    Accepted,
    Chain,
    ChainHead,
    Offer,
    OfferRefusal,
    Progress,
    RefusalCode,
    Refused,
)
from paddock.errors import ConfigError, HostError, UsageError
from paddock.ledger.format.lines import VerifierKey
from paddock.ledger.format.notes import HASH_BYTES

try:
    import psycopg
except ImportError as missing:
    raise ConfigError(
        "the collector needs psycopg and libpq, and one of them is missing",
        hint="pip install 'paddock[collector]', and the distribution's libpq (Debian: libpq5)",
    ) from missing
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

_CONNECT_TIMEOUT_S: Final = 10
_LOCK_TIMEOUT: Final = "30s"
"""The limit for lock waits: a pushing role, or a stopped process, may hold the lock."""
_LINES_FETCHED: Final = 64
"""Few at a time, because a line has up to 1 MiB."""
_PARTS_FETCHED: Final = 2


_HEADS: Final[LiteralString] = (
    "SELECT size, root, leaf, edge, note, "
    """to_char(accepted AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') """
    "FROM paddock_collector.checkpoints WHERE host = %s AND ledger = %s ORDER BY size"
)
_OFFERS: Final[LiteralString] = (
    "SELECT host, ledger, start, stop, note, edge, number, sender "
    "FROM paddock_collector.offers WHERE number > %s ORDER BY number LIMIT %s"
)
_REFUSED: Final[LiteralString] = (
    "SELECT DISTINCT ON (code) host, ledger, start, stop, note, number, sender, code, message, "
    """to_char(refused AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), """
    "count(*) OVER (PARTITION BY code) FROM paddock_collector.refusals "
    "WHERE host = %s AND ledger = %s ORDER BY code, number DESC"
)
_LOCKED_CHAIN: Final[LiteralString] = (
    "SELECT 1 FROM paddock_collector.chains WHERE host = %s AND ledger = %s FOR UPDATE"
)
_LOCKED_OFFER: Final[LiteralString] = (
    "SELECT 1 FROM paddock_collector.offers WHERE number = %s FOR UPDATE NOWAIT"
)
"""Without waiting: a sender who locks many offers would block all others."""

# Entries, checkpoints, enrolled keys and refusals are only ever added: a trigger refuses other
# changes, unless the tables' owner removes it. A pushing role may send offers for any host, and
# read the progress of every host: of its own offers, and each chain's accepted size. It can read
# nothing else, and cannot forge the sender of an offer: the database sets `sender`.
#
# Threat: such a role can keep a transaction open, and with it locks on `offers`, `parts` and
# `progress`. So existing objects are left alone, without a lock that would have to wait; all other
# locks have a timeout (`lock_timeout`).

_SCHEMA: Final[LiteralString] = """
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
-- Threat: an index entry cannot hold a long name, so an offer with one could be neither refused nor
-- accepted. No host or ledger is enrolled with one.
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
"""For PostgreSQL 14 or newer. Idempotent."""

_GRANTS: Final[tuple[LiteralString, ...]] = (
    "GRANT USAGE ON SCHEMA paddock_collector TO {}",
    "GRANT SELECT ON paddock_collector.progress TO {}",
    "GRANT INSERT (batch, host, ledger, start, stop, note, edge) ON paddock_collector.offers TO {}",
    "GRANT INSERT (batch, part, lines) ON paddock_collector.parts TO {}",
)


class PostgresStore:
    def __init__(self, dsn: str) -> None:
        try:
            named = conninfo_to_dict(dsn)
            timeout_s = int(str(named.get("connect_timeout") or _CONNECT_TIMEOUT_S))
        except (psycopg.ProgrammingError, ValueError):
            # The library's message quotes the DSN.
            raise UsageError(
                "the DSN of the collector cannot be read",
                where="--dsn or PADDOCK_COLLECTOR",
                hint="such as postgresql://paddock@collector.example/ledgers?sslmode=verify-full",
            ) from None
        self._secret = str(named.get("password") or "")
        shown = ("host", "port", "dbname", "user")
        self.where = " ".join(f"{key}={named[key]!a}" for key in shown if named.get(key))
        with self._asking("reach it"):
            self._connection = psycopg.connect(
                dsn,
                autocommit=True,
                connect_timeout=timeout_s,
                application_name="paddock",
                client_encoding="utf8",
            )
        self._held_chains: set[tuple[str, str]] = set()
        try:
            self._begin()
        except HostError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _begin(self) -> None:
        encoding = self._connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise HostError(
                f"the collector's database has the encoding {encoding}, but UTF8 is needed",
                where=self.where,
                hint="create another one: createdb --encoding=UTF8 --template=template0 NAME",
            )
        with self._asking("set a limit"):
            self._connection.execute(
                "SELECT set_config('lock_timeout', %s, false)", (_LOCK_TIMEOUT,)
            )

    def prepare(self, pushers: Sequence[str] = ()) -> None:
        with self._asking("create the tables"), self._connection.transaction():
            self._connection.execute(_SCHEMA)
            for role in pushers:
                for grant in _GRANTS:
                    self._connection.execute(sql.SQL(grant).format(sql.Identifier(role)))

    def enroll(self, chain: Chain) -> bool:
        with self._asking("enroll a key"), self._connection.transaction():
            done = self._connection.execute(
                "INSERT INTO paddock_collector.chains (host, ledger, tier, origin, key) "
                "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (chain.host, chain.ledger, chain.tier, chain.key.name, str(chain.key)),
            )
            if done.rowcount:
                return True
        known = [each for each in self.chains() if each.host == chain.host]
        if chain not in known:
            raise ConfigError(
                f"the ledger {chain.ledger} of host {chain.host!a} is enrolled with another key",
                hint="a key is never replaced: enroll the host under another name",
            )
        return False

    def chains(self) -> Sequence[Chain]:
        with self._asking("read the enrolled keys"):
            rows = self._connection.execute(
                "SELECT host, ledger, tier, key FROM paddock_collector.chains ORDER BY host, ledger"
            ).fetchall()
        return [
            Chain(host, ledger, tier, VerifierKey.parse(key)) for host, ledger, tier, key in rows
        ]

    def accepted(self, chain: Chain) -> Sequence[Accepted]:
        with self._asking("read checkpoints"):
            found = self._connection.execute(_HEADS, (chain.host, chain.ledger))
            return [_accepted_of(row) for row in found]

    def newest(self, chain: Chain) -> Accepted | None:
        with self._asking("read a checkpoint"):
            row = self._connection.execute(
                _HEADS + " DESC LIMIT 1", (chain.host, chain.ledger)
            ).fetchone()
            return None if row is None else _accepted_of(row)

    def lines(self, chain: Chain) -> Iterator[tuple[int, bytes]]:
        with self._asking("read entries"), self._connection.cursor("entries") as cursor:
            cursor.itersize = _LINES_FETCHED
            cursor.execute(
                "SELECT seq, line FROM paddock_collector.entries "
                "WHERE host = %s AND ledger = %s ORDER BY seq",
                (chain.host, chain.ledger),
            )
            yield from cursor

    def progress(self, host: str) -> Sequence[Progress]:
        with self._asking("read the progress"):
            found = self._connection.execute(
                "SELECT ledger, accepted, waiting, refused FROM paddock_collector.progress "
                "WHERE host = %s ORDER BY ledger",
                (host,),
            )
            return [Progress(*row) for row in found]

    def send(self, offer: Offer, parts: Iterable[bytes]) -> None:
        batch = uuid4()
        with self._asking("store an offer"), self._connection.transaction():
            self._connection.execute(
                "INSERT INTO paddock_collector.offers "
                "(batch, host, ledger, start, stop, note, edge) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (
                    *(batch, offer.host, offer.ledger, offer.start, offer.stop),
                    *(offer.note, b"".join(offer.edge)),
                ),
            )
            for number, part in enumerate(parts):
                self._connection.execute(
                    "INSERT INTO paddock_collector.parts (batch, part, lines) VALUES (%s, %s, %s)",
                    (batch, number, part),
                )

    def offers(self, after: int = 0) -> Sequence[Offer]:
        with self._asking("read pending offers"):
            found = self._connection.execute(_OFFERS, (after, OFFERS_MAX))
            return [_offer_of(row) for row in found]

    def waiting(self, chain: Chain) -> int:
        with self._asking("read pending offers"):
            row = self._connection.execute(
                "SELECT coalesce(max(stop), 0) FROM paddock_collector.offers "
                "WHERE host = %s AND ledger = %s",
                (chain.host, chain.ledger),
            ).fetchone()
            return 0 if row is None else row[0]

    @contextmanager
    def taking(self, chain: Chain, offer: Offer) -> Generator[bool]:
        with self._asking("accept an offer"), self._connection.transaction():
            self._lock_chain(chain)
            found = self._connection.execute(_LOCKED_OFFER, (offer.number,))
            yield found.fetchone() is not None

    def parts(self, offer: Offer) -> Iterator[bytes]:
        with self._connection.cursor("parts") as cursor:
            cursor.itersize = _PARTS_FETCHED
            cursor.execute(
                "SELECT lines FROM paddock_collector.parts "
                "JOIN paddock_collector.offers USING (sender, batch) "
                "WHERE number = %s ORDER BY part",
                (offer.number,),
            )
            for (part,) in cursor:
                yield _bytes_of(part)

    def stored(self, chain: Chain, start: int, stop: int) -> Iterator[bytes]:
        with self._connection.cursor("stored") as cursor:
            cursor.itersize = _LINES_FETCHED
            cursor.execute(
                "SELECT line FROM paddock_collector.entries "
                "WHERE host = %s AND ledger = %s AND seq >= %s AND seq < %s ORDER BY seq",
                (chain.host, chain.ledger, start, stop),
            )
            for (line,) in cursor:
                yield _bytes_of(line)

    def add(self, chain: Chain, start: int, lines: Sequence[bytes]) -> None:
        with (
            self._connection.cursor() as cursor,
            cursor.copy(
                "COPY paddock_collector.entries (host, ledger, seq, line) FROM STDIN"
            ) as copy,
        ):
            for seq, line in enumerate(lines, start):
                copy.write_row((chain.host, chain.ledger, seq, line))

    def keep(self, chain: Chain, offer: Offer, head: ChainHead) -> None:
        self._connection.execute(
            "INSERT INTO paddock_collector.checkpoints "
            "(host, ledger, size, root, leaf, edge, note) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (
                *(chain.host, chain.ledger, head.size),
                *(head.root, head.leaf, b"".join(head.edge), head.note),
            ),
        )
        self._connection.execute(
            "DELETE FROM paddock_collector.offers WHERE number = %s", (offer.number,)
        )

    def _lock_chain(self, chain: Chain) -> None:
        name = (chain.host, chain.ledger)
        # A stopped process may hold the lock: wait for it only once.
        wait = " NOWAIT" if name in self._held_chains else ""
        try:
            self._connection.execute(_LOCKED_CHAIN + wait, name)
        except psycopg.errors.LockNotAvailable:
            self._held_chains.add(name)
            raise

    def drop(self, offer: Offer) -> None:
        with self._asking("drop an offer"), self._connection.transaction():
            self._drop(offer)

    def _drop(self, offer: Offer) -> bool:
        is_waiting = self._connection.execute(_LOCKED_OFFER, (offer.number,)).fetchone()
        self._connection.execute(
            "DELETE FROM paddock_collector.offers WHERE number = %s", (offer.number,)
        )
        return is_waiting is not None

    def refuse(self, offer: Offer, refusal: OfferRefusal) -> None:
        with self._asking("refuse an offer"), self._connection.transaction():
            if self._drop(offer):
                self._connection.execute(
                    "INSERT INTO paddock_collector.refusals "
                    "(number, sender, host, ledger, start, stop, note, code, message) "
                    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    (
                        *(offer.number, offer.sender, offer.host, offer.ledger),
                        *(offer.start, offer.stop, offer.note),
                        *(refusal.code.value, refusal.message),
                    ),
                )

    def refused(self, host: str, ledger: str) -> Sequence[Refused]:
        with self._asking("read the refusals"):
            found = self._connection.execute(_REFUSED, (host, ledger))
            return [_refused_of(row) for row in found]

    @contextmanager
    def steady(self) -> Generator[None]:
        with self._asking("read"), self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    @contextmanager
    def _asking(self, what: str) -> Generator[None]:
        try:
            yield
        except psycopg.Error as fault:
            said = str(fault).strip() or type(fault).__name__
            if self._secret:
                said = said.replace(self._secret, "***")
            raise HostError(
                f"the collector's database cannot {what}: {said}",
                where=self.where,
                hint=_hint(fault),
            ) from None


def _accepted_of(row: tuple[Any, ...]) -> Accepted:
    size, root, leaf, edge, note, at = row
    return Accepted(ChainHead(size, _bytes_of(root), leaf, _hashes(edge), note), at)


def _offer_of(row: tuple[Any, ...]) -> Offer:
    host, ledger, start, stop, note, edge, number, sender = row
    return Offer(host, ledger, start, stop, note, _hashes(edge), number, sender)


def _refused_of(row: tuple[Any, ...]) -> Refused:
    host, ledger, start, stop, note, number, sender, code, message, at, times = row
    offer = Offer(host, ledger, start, stop, note, number=number, sender=sender)
    return Refused(offer, OfferRefusal(RefusalCode(code), message), at, times)


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    raise HostError("the collector's tables are not of this version")


def _hashes(value: object) -> tuple[bytes, ...]:
    edge = _bytes_of(value)
    return tuple(edge[at : at + HASH_BYTES] for at in range(0, len(edge), HASH_BYTES))


def _hint(fault: psycopg.Error) -> str:
    if isinstance(fault, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
        return "create the tables: paddock collector init"
    if isinstance(fault, psycopg.errors.InsufficientPrivilege):
        return "hosts may push and read their progress; the rest needs the collector's role"
    if isinstance(fault, psycopg.errors.LockNotAvailable):
        return "another session locks it: see pg_stat_activity; end it with pg_terminate_backend"
    return ""
