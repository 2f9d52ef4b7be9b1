"""What the database itself holds: who may do what, and that hosts do not wait for each other."""

import itertools
import random
import string
import threading

import pytest

from paddock.collector.accept import Left, accept_offer, accept_offers, verify_store
from paddock.collector.chains import Offer, RefusalCode
from paddock.errors import HostError, UsageError
from tests.support.collected import Host, head_of, renamed
from tests.support.postgres import empty_database, running_server

pytestmark = pytest.mark.needs("postgresql")

_numbers = itertools.count()


def opened(dsn):
    from paddock.collector.postgres import PostgresStore

    return PostgresStore(dsn)


@pytest.fixture(scope="module")
def socket():
    with running_server() as place:
        yield place


@pytest.fixture
def dsn(socket):
    return empty_database(socket)


@pytest.fixture
def store(dsn):
    with opened(dsn) as made:
        made.prepare()
        yield made


@pytest.fixture
def host(store):
    made = Host().append(9)
    store.enroll(made.chain)
    return made


@pytest.fixture
def pusher(store, dsn):
    """The connection of a role that may push, and of another one."""
    role = f"pusher{next(_numbers)}"
    store._connection.execute(f"CREATE ROLE {role} LOGIN")
    store.prepare([role])
    with opened(dsn.replace("user=paddock", f"user={role}")) as made:
        made.role = role
        yield made


def text(lines):
    return [b"".join(line + b"\n" for line in lines)]


def tables(store):
    found = store._connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'paddock_collector'"
    )
    return sorted(name for (name,) in found)


TABLES = ["chains", "checkpoints", "entries", "offers", "parts", "refusals"]


def test_the_tables_are_made_once(store):
    store.prepare()

    assert tables(store) == TABLES


def test_a_role_that_pushes_lays_offers_down_and_sees_its_progress(store, host, pusher):
    pusher.send(host.offer(), text(host.lines))
    assert [each.waiting for each in pusher.progress("web1")] == [10]

    (answer,) = accept_offers(store)

    assert answer.offer.sender == pusher.role
    assert answer.result == head_of(host.lines, host.note())
    assert [each.accepted for each in pusher.progress("web1")] == [10]


def test_another_sender_cannot_make_a_host_believe_that_its_lines_wait(store, host, pusher):
    store.send(renamed(host.offer(), stop=2**40), [])

    assert [each.waiting for each in pusher.progress("web1")] == [0]
    list(accept_offers(store))
    assert [each.refused for each in pusher.progress("web1")] == [""]


FORBIDDEN = {
    "read entries": "SELECT * FROM paddock_collector.entries",
    "read checkpoints": "SELECT * FROM paddock_collector.checkpoints",
    "read offers": "SELECT * FROM paddock_collector.offers",
    "read parts": "SELECT * FROM paddock_collector.parts",
    "write an entry": "INSERT INTO paddock_collector.entries VALUES ('web1', 'ho1m', 0, 'x')",
    "accept a checkpoint": "INSERT INTO paddock_collector.checkpoints"
    " (host, ledger, size, root, leaf, edge, note) VALUES ('web1', 'ho1m', 1, '', '', '', '')",
    "enroll a key": "INSERT INTO paddock_collector.chains VALUES ('web1', 'x', 'HO1', 'x', 'x')",
    "send for another": "INSERT INTO paddock_collector.offers"
    " (sender, batch, host, ledger, start, stop, note)"
    " VALUES ('paddock', gen_random_uuid(), 'web1', 'ho1m', 0, 1, '')",
    "take an offer back": "DELETE FROM paddock_collector.offers",
    "change an offer": "UPDATE paddock_collector.offers SET stop = 1",
    "lock a chain": "SELECT 1 FROM paddock_collector.chains FOR UPDATE",
    "change a key": "UPDATE paddock_collector.chains SET key = 'x'",
    "remove tables": "DROP TABLE paddock_collector.entries CASCADE",
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_role_that_pushes_can_do_nothing_else(store, host, pusher, what):
    import psycopg

    host.push(store, 0, 4)
    store.send(host.offer(4), text(host.lines[4:]))

    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        pusher._connection.execute(FORBIDDEN[what])

    (answer,) = accept_offers(store)
    assert answer.result == head_of(host.lines, host.note())
    assert [report.problems for report in verify_store(store, [])] == [()]


def test_a_role_that_pushes_is_told_so_where_it_tries_to_accept(pusher):
    with pytest.raises(HostError) as refused:
        list(accept_offers(pusher))

    assert "permission denied" in refused.value.message
    assert "collector's role" in refused.value.hint


ADDED_ONLY = [
    "UPDATE paddock_collector.{} SET host = 'x'",
    "DELETE FROM paddock_collector.{}",
    "TRUNCATE paddock_collector.{} CASCADE",
]


@pytest.mark.parametrize("table", ["chains", "checkpoints", "entries", "refusals"])
@pytest.mark.parametrize("statement", ADDED_ONLY)
def test_rows_are_only_ever_added_even_by_their_owner(store, host, table, statement):
    import psycopg

    host.push(store, 0, 4)
    host.push(store, 6)

    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="only ever added"):
        store._connection.execute(statement.format(table))

    assert [each.times for each in store.refused("web1", "ho1m")] == [1]
    assert [report.problems for report in verify_store(store, [])] == [()]


def test_a_part_has_a_size(pusher, host):
    with pytest.raises(HostError, match="parts_lines_check"):
        pusher.send(host.offer(), [b"x" * (9 << 20)])


def long_name():
    """As long as an index of the database has no room for, and no compression helps."""
    return "".join(random.Random(1).choices(string.ascii_letters, k=2682))


@pytest.mark.parametrize("field", ["host", "ledger"])
def test_a_name_has_a_size(pusher, host, field):
    fits, longer = (renamed(host.offer(), **{field: "x" * size}) for size in (63, 64))

    pusher.send(fits, [])
    with pytest.raises(HostError, match="offers_names"):
        pusher.send(longer, [])


def as_they_were(store):
    """The tables as they were before names had a size."""
    store._connection.execute(
        "ALTER TABLE paddock_collector.offers DROP CONSTRAINT offers_names, DROP COLUMN edge"
    )


def test_tables_that_are_there_get_what_they_lack(store, host):
    as_they_were(store)
    store._connection.execute(
        "INSERT INTO paddock_collector.offers (batch, host, ledger, start, stop, note)"
        " VALUES (gen_random_uuid(), %s, 'x', 0, 1, '')",
        (long_name(),),
    )

    store.prepare()

    assert store.offers() == []
    with pytest.raises(HostError, match="offers_names"):
        store.send(renamed(host.offer(), host=long_name()), [])
    assert host.push(store) == head_of(host.lines, host.note())


def test_an_offer_that_can_be_neither_taken_nor_refused_does_not_stop_the_others(store, host):
    store._connection.execute("ALTER TABLE paddock_collector.offers DROP CONSTRAINT offers_names")
    store.send(renamed(host.offer(), host=long_name(), ledger="x"), [])
    store.send(host.offer(), text(host.lines))

    first, second = accept_offers(store)

    assert isinstance(first.result, Left)
    assert "refusals_of" in first.result.message
    assert second.result == head_of(host.lines, host.note())
    assert store.offers() == [first.offer]


def test_an_offer_that_its_sender_holds_does_not_stop_the_others(store, host, pusher):
    for _ in range(2):
        pusher.send(renamed(host.offer(), host="web9"), [])
    store.send(host.offer(), text(host.lines))

    with pusher._connection.transaction():
        pusher._connection.execute(
            # Any row that refers to an offer keeps a lock on it.
            "INSERT INTO paddock_collector.parts (batch, part, lines) SELECT %s, 7, 'x'",
            (batches(store)[0],),
        )
        first, second, third = accept_offers(store)
        assert store.offers() == [first.offer]

    assert isinstance(first.result, Left)
    assert "could not obtain lock" in first.result.message
    assert second.result.code == RefusalCode.NOT_ENROLLED
    assert third.result == head_of(host.lines, host.note())
    (again,) = accept_offers(store)
    assert again.result.code == RefusalCode.NOT_ENROLLED


def test_an_offer_for_an_enrolled_host_that_its_sender_holds_is_left(store, host, pusher):
    pusher.send(host.offer(), text(host.lines))

    with pusher._connection.transaction():
        pusher._connection.execute(
            "INSERT INTO paddock_collector.parts (batch, part, lines) VALUES (%s, 7, 'x')",
            (batches(store)[0],),
        )
        (left,) = accept_offers(store)
        pusher._connection.execute("ROLLBACK")
        pusher._connection.execute("BEGIN")
    (taken,) = accept_offers(store)

    assert isinstance(left.result, Left)
    assert taken.result == head_of(host.lines, host.note())


def batches(store):
    found = store._connection.execute("SELECT batch FROM paddock_collector.offers ORDER BY number")
    return [batch for (batch,) in found]


def test_a_sender_that_keeps_a_transaction_open_stops_no_init_and_no_push(
    store, dsn, host, pusher, monkeypatch
):
    monkeypatch.setattr("paddock.collector.postgres._LOCK_TIMEOUT", "10ms")
    with opened(dsn) as second, pusher._connection.transaction():
        pusher.send(renamed(host.offer(), host="web9"), [b"x"])
        pusher.progress("web1")
        second.prepare([pusher.role])
        assert host.push(second) == head_of(host.lines, host.note())


def test_nothing_waits_for_a_lock_without_end(store, dsn, host, monkeypatch):
    monkeypatch.setattr("paddock.collector.postgres._LOCK_TIMEOUT", "10ms")
    with opened(dsn) as second, store._connection.transaction():
        store._connection.execute("LOCK TABLE paddock_collector.offers")
        with pytest.raises(HostError, match="lock timeout") as refused:
            second.send(host.offer(), text(host.lines))

    assert "pg_stat_activity" in refused.value.hint


def test_hosts_do_not_wait_for_each_other(store, dsn, host):
    other = Host("web2", seed=2).append(3)
    store.enroll(other.chain)
    store.send(host.offer(), text(host.lines))
    store.send(other.offer(), text(other.lines))
    mine, others = store.offers()

    with opened(dsn) as second, store.taking(host.chain, mine):
        # A lock that both needed would keep this waiting for ever.
        second._connection.execute("SET lock_timeout = '10s'")
        assert accept_offer(second, others) == head_of(other.lines, other.note())


def test_a_chain_that_somebody_holds_is_not_waited_for_without_end(store, dsn, host, monkeypatch):
    monkeypatch.setattr("paddock.collector.postgres._LOCK_TIMEOUT", "10ms")
    store.send(host.offer(), text(host.lines))
    (offer,) = store.offers()

    with (
        opened(dsn) as second,
        store.taking(host.chain, offer),
        pytest.raises(HostError, match="lock timeout"),
    ):
        accept_offer(second, offer)

    assert accept_offer(store, offer) == head_of(host.lines, host.note())


def test_a_chain_that_somebody_holds_is_waited_for_once(store, dsn, host, monkeypatch):
    monkeypatch.setattr("paddock.collector.postgres._LOCK_TIMEOUT", "10ms")
    for _ in range(2):
        store.send(host.offer(), text(host.lines))
    first, _ = store.offers()

    with opened(dsn) as second, store.taking(host.chain, first):
        said = [answer.result.message.splitlines()[0] for answer in accept_offers(second)]

    cannot = "the collector's database cannot accept an offer"
    assert said == [
        f"{cannot}: canceling statement due to lock timeout",
        f'{cannot}: could not obtain lock on row in relation "chains"',
    ]


def test_a_database_that_is_gone_ends_all(store, dsn, host):
    for _ in range(2):
        store.send(host.offer(), text(host.lines))
    with opened(dsn) as second:
        answers = accept_offers(second)
        assert next(answers).result == head_of(host.lines, host.note())
        second._connection.close()
        with pytest.raises(HostError, match="the connection is closed"):
            next(answers)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_keeps_text_otherwise_is_refused(dsn, encoding):
    name = f"as_{encoding.lower()}"
    with opened(dsn) as own:
        own._connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'"
            " LC_COLLATE 'C' LC_CTYPE 'C'"
        )

    with pytest.raises(HostError) as refused:
        opened(dsn.replace("dbname=postgres", f"dbname={name}"))

    assert f"the encoding {encoding}, but UTF8 is needed" in refused.value.message
    assert "--encoding=UTF8" in refused.value.hint


def test_text_comes_as_it_is_whatever_a_client_asks_for(store, dsn):
    with opened(f"{dsn} client_encoding=latin1") as second:
        store.send(Offer("web1", "ho1m", 0, 1, "— a note"), [])

        assert [each.note for each in second.offers()] == ["— a note"]


def test_two_processes_take_one_offer_once(store, dsn, host):
    store.send(host.offer(), text(host.lines))
    (offer,) = store.offers()
    with opened(dsn) as second:
        results = []
        threads = [
            threading.Thread(target=lambda s=each: results.append(accept_offer(s, offer)))
            for each in (store, second)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    taken = head_of(host.lines, host.note())
    assert taken in results
    (other,) = [each for each in results if each != taken]
    assert other.code == RefusalCode.BEHIND
    assert store.refused("web1", "ho1m") == []
    assert [report.problems for report in verify_store(store, [])] == [()]


def test_a_verification_sees_one_moment(store, dsn, host):
    host.push(store, 0, 4)
    reports = verify_store(store, [])
    with opened(dsn) as second, store.steady():
        assert len(store.accepted(host.chain)) == 1
        host.push(second, 4)
        assert len(store.accepted(host.chain)) == 1
        assert len(list(store.lines(host.chain))) == 4

    assert [report.entries for report in reports] == [10]


def test_without_tables_the_way_to_them_is_said(dsn):
    with opened(dsn) as empty, pytest.raises(HostError) as failed:
        empty.chains()

    assert failed.value.hint == "create the tables: paddock collector init"


UNREADABLE = [
    "postgresql//me:correct-horse@db/x",
    "host=db password=correct-horse what",
    "postgresql://me:correct-horse@db:port:5/x?no",
    "host=db password=correct-horse connect_timeout=abc",
    "host=db password=correct-horse connect_timeout=1.5",
    "host=\udcff password=correct-horse",
]


@pytest.mark.parametrize("unreadable", UNREADABLE)
def test_a_dsn_that_cannot_be_read_is_not_shown(unreadable):
    with pytest.raises(UsageError) as refused:
        opened(unreadable)

    assert "correct-horse" not in refused.value.render()


@pytest.mark.parametrize("form", ["host={} password={}", "postgresql://me:{1}@/x?host={0}"])
def test_a_password_is_in_no_message(tmp_path, form):
    with pytest.raises(HostError) as refused:
        opened(form.format(tmp_path, "correct-horse"))

    assert "correct-horse" not in refused.value.render()
    assert f"host='{tmp_path}'" in refused.value.where
