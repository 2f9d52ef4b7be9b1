"""The collector's tables in PostgreSQL, and every query. The only module that knows `psycopg`.

A batch is one transaction. It locks the row of its own chain, and no row that two chains
share: hosts do not wait for each other.

# Threat: a DSN can hold a password, and so can what the library says of one that it cannot
read. Of the DSN only host, port, database and user are ever shown.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self
from uuid import uuid4

from paddock.collector.chains import (
    NOTHING_YET,
    Accepted,
    Chain,
    Head,
    Offer,
    Progress,
    Refusal,
    RefusalCode,
    Refused,
)
from paddock.collector.schema import GRANTS, SCHEMA
from paddock.collector.store import OFFERS_MAX
from paddock.errors import ConfigError, HostError, UsageError
from paddock.ledger.format_genesis import VerifierKey
from paddock.ledger.format_merkle import HASH_BYTES

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
_LINES_FETCHED: Final = 64
"""A line has up to 1 MiB, so few are held at a time."""
_PARTS_FETCHED: Final = 2
_HEADS: Final = (
    "SELECT size, root, leaf, edge, note, "
    """to_char(accepted AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') """
    "FROM paddock_collector.checkpoints WHERE host = %s AND ledger = %s ORDER BY size"
)


class PostgresStore:
    """See `Store`. One connection."""

    def __init__(self, dsn: str) -> None:
        """Connect.

        Raises:
            UsageError: the DSN is none.
            HostError: there is no such server, or it says no.
        """
        try:
            named = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError:
            # What the library says of it quotes it.
            raise UsageError(
                "the DSN of the collector cannot be read",
                where="--dsn or PADDOCK_COLLECTOR",
                hint="such as postgresql://paddock@collector.example/ledgers?sslmode=verify-full",
            ) from None
        self._secret = str(named.get("password") or "")
        shown = ("host", "port", "dbname", "user")
        self.where = " ".join(f"{key}={named[key]!a}" for key in shown if named.get(key))
        with self._asking("reach it"):
            timeout = named.get("connect_timeout") or _CONNECT_TIMEOUT_S
            self._connection = psycopg.connect(
                dsn, autocommit=True, connect_timeout=int(timeout), application_name="paddock"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See `Store`."""
        self._connection.close()

    def prepare(self, pushers: Sequence[str] = ()) -> None:
        """Make the tables where they are missing, and let these roles push.

        Raises: HostError.
        """
        with self._asking("make the tables"), self._connection.transaction():
            self._connection.execute(SCHEMA)
            for role in pushers:
                for grant in GRANTS:
                    self._connection.execute(sql.SQL(grant).format(sql.Identifier(role)))

    def enroll(self, chain: Chain) -> bool:
        """See `Store`."""
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
                f"the host {chain.host!a} has its ledger {chain.ledger} enrolled with another key",
                hint="a key is never replaced: enroll the host under another name",
            )
        return False

    def chains(self) -> Sequence[Chain]:
        """See `Store`. Raises: also LedgerDamagedError where a key is none."""
        with self._asking("read what is enrolled"):
            rows = self._connection.execute(
                "SELECT host, ledger, tier, key FROM paddock_collector.chains ORDER BY host, ledger"
            ).fetchall()
        return [
            Chain(host, ledger, tier, VerifierKey.parse(key)) for host, ledger, tier, key in rows
        ]

    def accepted(self, chain: Chain) -> Sequence[Accepted]:
        """See `Store`."""
        with self._asking("read checkpoints"):
            found = self._connection.execute(_HEADS, (chain.host, chain.ledger))
            return [_accepted(row) for row in found]

    def newest(self, chain: Chain) -> Accepted | None:
        """See `Store`."""
        with self._asking("read a checkpoint"):
            row = self._connection.execute(
                _HEADS + " DESC LIMIT 1", (chain.host, chain.ledger)
            ).fetchone()
            return None if row is None else _accepted(row)

    def lines(self, chain: Chain) -> Iterator[tuple[int, bytes]]:
        """See `Store`."""
        with self._asking("read entries"), self._connection.cursor("entries") as cursor:
            cursor.itersize = _LINES_FETCHED
            cursor.execute(
                "SELECT seq, line FROM paddock_collector.entries "
                "WHERE host = %s AND ledger = %s ORDER BY seq",
                (chain.host, chain.ledger),
            )
            yield from cursor

    def progress(self, host: str) -> Sequence[Progress]:
        """See `Store`."""
        with self._asking("read the progress"):
            found = self._connection.execute(
                "SELECT ledger, accepted, waiting, refused FROM paddock_collector.progress "
                "WHERE host = %s ORDER BY ledger",
                (host,),
            )
            return [Progress(*row) for row in found]

    def send(self, offer: Offer, parts: Iterable[bytes]) -> None:
        """See `Store`."""
        batch = uuid4()
        with self._asking("lay an offer down"), self._connection.transaction():
            self._connection.execute(
                "INSERT INTO paddock_collector.offers (batch, host, ledger, start, stop, note) "
                "VALUES (%s, %s, %s, %s, %s, %s)",
                (batch, offer.host, offer.ledger, offer.start, offer.stop, offer.note),
            )
            for number, part in enumerate(parts):
                self._connection.execute(
                    "INSERT INTO paddock_collector.parts (batch, part, lines) VALUES (%s, %s, %s)",
                    (batch, number, part),
                )

    def offers(self) -> Sequence[Offer]:
        """See `Store`."""
        with self._asking("read what waits"):
            found = self._connection.execute(
                "SELECT host, ledger, start, stop, note, number, sender "
                "FROM paddock_collector.offers ORDER BY number LIMIT %s",
                (OFFERS_MAX,),
            )
            return [Offer(*row) for row in found]

    def waiting(self, chain: Chain) -> int:
        """See `Store`."""
        with self._asking("read what waits"):
            row = self._connection.execute(
                "SELECT coalesce(max(stop), 0) FROM paddock_collector.offers "
                "WHERE host = %s AND ledger = %s",
                (chain.host, chain.ledger),
            ).fetchone()
            return 0 if row is None else row[0]

    @contextmanager
    def taking(self, chain: Chain, offer: Offer) -> Generator["PostgresTaking"]:
        """See `Store`."""
        with self._asking("take an offer in"), self._connection.transaction():
            # A process that was stopped may hold it.
            self._connection.execute(
                "SELECT set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,)
            )
            # The row of this chain alone. What is read after it is newer than the lock.
            self._connection.execute(
                "SELECT 1 FROM paddock_collector.chains WHERE host = %s AND ledger = %s FOR UPDATE",
                (chain.host, chain.ledger),
            )
            yield PostgresTaking(self, self._connection, chain, offer)

    def refuse(self, offer: Offer, refusal: Refusal) -> None:
        """See `Store`."""
        with self._asking("refuse an offer"), self._connection.transaction():
            dropped = self._connection.execute(
                "DELETE FROM paddock_collector.offers WHERE number = %s", (offer.number,)
            )
            if dropped.rowcount:
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
        """See `Store`."""
        with self._asking("read what was refused"):
            found = self._connection.execute(
                "SELECT DISTINCT ON (code) "
                "host, ledger, start, stop, note, number, sender, code, message, "
                """to_char(refused AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), """
                "count(*) OVER (PARTITION BY code) FROM paddock_collector.refusals "
                "WHERE host = %s AND ledger = %s ORDER BY code, number DESC",
                (host, ledger),
            )
            return [
                Refused(Offer(*row[:7]), Refusal(RefusalCode(row[7]), row[8]), row[9], row[10])
                for row in found
            ]

    @contextmanager
    def steady(self) -> Generator[None]:
        """See `Store`."""
        with self._asking("read"), self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    @contextmanager
    def _asking(self, what: str) -> Generator[None]:
        """Turn what the library raises into our error. Raises: HostError."""
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


class PostgresTaking:
    """See `Taking`."""

    def __init__(
        self,
        store: PostgresStore,
        connection: "psycopg.Connection[tuple[object, ...]]",
        chain: Chain,
        offer: Offer,
    ) -> None:
        """The chain is locked."""
        self._connection = connection
        self._chain = chain
        self._offer = offer
        newest = store.newest(chain)
        self.head = NOTHING_YET if newest is None else newest.head
        found = connection.execute(
            "SELECT 1 FROM paddock_collector.offers WHERE number = %s", (offer.number,)
        )
        self.is_waiting = found.fetchone() is not None

    def parts(self) -> Iterator[bytes]:
        """See `Taking`."""
        with self._connection.cursor("parts") as cursor:
            cursor.itersize = _PARTS_FETCHED
            cursor.execute(
                "SELECT lines FROM paddock_collector.parts "
                "JOIN paddock_collector.offers USING (sender, batch) "
                "WHERE number = %s ORDER BY part",
                (self._offer.number,),
            )
            for (part,) in cursor:
                yield _bytes(part)

    def stored(self, start: int, stop: int) -> Iterator[bytes]:
        """See `Taking`."""
        with self._connection.cursor("stored") as cursor:
            cursor.itersize = _LINES_FETCHED
            cursor.execute(
                "SELECT line FROM paddock_collector.entries "
                "WHERE host = %s AND ledger = %s AND seq >= %s AND seq < %s ORDER BY seq",
                (self._chain.host, self._chain.ledger, start, stop),
            )
            for (line,) in cursor:
                yield _bytes(line)

    def add(self, start: int, lines: Sequence[bytes]) -> None:
        """See `Taking`."""
        chain = self._chain
        with (
            self._connection.cursor() as cursor,
            cursor.copy(
                "COPY paddock_collector.entries (host, ledger, seq, line) FROM STDIN"
            ) as copy,
        ):
            for seq, line in enumerate(lines, start):
                copy.write_row((chain.host, chain.ledger, seq, line))

    def keep(self, head: Head) -> None:
        """See `Taking`."""
        self._connection.execute(
            "INSERT INTO paddock_collector.checkpoints "
            "(host, ledger, size, root, leaf, edge, note) VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (
                *(self._chain.host, self._chain.ledger, head.size),
                *(head.root, head.leaf, b"".join(head.edge), head.note),
            ),
        )
        self._connection.execute(
            "DELETE FROM paddock_collector.offers WHERE number = %s", (self._offer.number,)
        )


def _accepted(row: tuple[object, ...]) -> Accepted:
    size, root, leaf, edge, note, at = row
    edge = _bytes(edge)
    hashes = tuple(edge[at : at + HASH_BYTES] for at in range(0, len(edge), HASH_BYTES))
    return Accepted(Head(int(str(size)), _bytes(root), str(leaf), hashes, str(note)), str(at))


def _bytes(value: object) -> bytes:
    """A bytea, as the library gives it. Raises: HostError where it is something else."""
    if isinstance(value, bytes):
        return value
    raise HostError("the collector's tables are not of this version")


def _hint(fault: psycopg.Error) -> str:
    if isinstance(fault, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
        return "paddock collector init makes the tables"
    if isinstance(fault, psycopg.errors.InsufficientPrivilege):
        return "hosts push and look at their progress; all else is for the collector's own role"
    return ""
