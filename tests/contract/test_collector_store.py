"""What the store of a collector's chains does, in PostgreSQL."""

import pytest

from paddock.collector.accept import (
    OfferAnswer,
    RecordedCheckpoint,
    accept_offer,
    accept_offers,
    verify_store,
)
from paddock.collector.chains import Offer, OfferRefusal, Progress, RefusalCode
from paddock.errors import ConfigError, LedgerDamagedError
from tests.support.collected import Host, give, head_of, renamed
from tests.support.postgres import empty_database, running_server

pytestmark = pytest.mark.needs("postgresql")


class InDatabase:
    def __init__(self, socket):
        from paddock.collector.postgres import PostgresStore

        self.store = PostgresStore(empty_database(socket))
        self.store.prepare()

    def _change(self, statement, *values):
        """As whoever owns the database can: the trigger is taken away for it."""
        connection = self.store._connection
        for turn in ("DISABLE", "ENABLE"):
            for table in ("entries", "checkpoints", "chains"):
                connection.execute(f"ALTER TABLE paddock_collector.{table} {turn} TRIGGER USER")
            if turn == "DISABLE":
                connection.execute(statement, values)

    def change_line(self, chain, seq, line):
        self._change(
            "UPDATE paddock_collector.entries SET line = %s"
            " WHERE host = %s AND ledger = %s AND seq = %s",
            *(line, chain.host, chain.ledger, seq),
        )

    def remove_from(self, chain, seq):
        self._change(
            "DELETE FROM paddock_collector.entries WHERE host = %s AND ledger = %s AND seq >= %s",
            *(chain.host, chain.ledger, seq),
        )

    def remove_checkpoints(self, chain, above):
        self._change(
            "DELETE FROM paddock_collector.checkpoints"
            " WHERE host = %s AND ledger = %s AND size > %s",
            *(chain.host, chain.ledger, above),
        )

    def forget_chain(self, chain):
        self.remove_from(chain, 0)
        self.remove_checkpoints(chain, 0)
        self._change(
            "DELETE FROM paddock_collector.chains WHERE host = %s AND ledger = %s",
            *(chain.host, chain.ledger),
        )


@pytest.fixture(scope="module")
def socket():
    with running_server() as place:
        yield place


@pytest.fixture
def kind(socket):
    kept = InDatabase(socket)
    yield kept
    kept.store.close()


@pytest.fixture
def store(kind):
    return kind.store


@pytest.fixture
def host(store):
    made = Host().append(9)
    assert store.enroll(made.chain)
    return made


def stored(store, chain):
    with store.steady():
        return list(store.lines(chain))


def verified(store, *recorded):
    return list(verify_store(store, recorded))


def problems(store, *recorded):
    return [report.problems for report in verified(store, *recorded)]


def test_what_is_taken_in_is_what_was_written(store, host):
    taken = host.push(store)

    assert taken == head_of(host.lines, host.note())
    assert stored(store, host.chain) == list(enumerate(host.lines))
    assert store.newest(host.chain).head == taken
    assert store.offers() == []
    assert problems(store) == [()]


def test_pushes_go_on_where_the_last_one_ended(store, host):
    host.push(store, 0, 4)
    host.append(3)
    host.push(store, 4)

    assert stored(store, host.chain) == list(enumerate(host.lines))
    assert [each.head.size for each in store.accepted(host.chain)] == [4, 13]
    assert store.newest(host.chain) == store.accepted(host.chain)[-1]
    assert problems(store) == [()]


def test_a_refused_offer_leaves_nothing_but_its_reason(store, host):
    host.push(store, 0, 4)
    altered = [*host.lines[4:9], host.lines[9].replace(b"note 8", b"NOTE 8")]

    refusal = give(store, host.offer(4), altered)

    assert refusal.code == RefusalCode.ROOT
    assert stored(store, host.chain) == list(enumerate(host.lines[:4]))
    assert [each.head.size for each in store.accepted(host.chain)] == [4]
    assert store.offers() == []
    (kept,) = store.refused("web1", "ho1m")
    assert (kept.refusal, kept.offer.start, kept.offer.note) == (refusal, 4, host.note())
    assert kept.times == 1
    assert host.push(store, 4) == head_of(host.lines, host.note())


def test_an_offer_for_nobody_is_refused(store, host):
    stranger = Host("web2", seed=2).append(2)

    assert stranger.push(store).code == RefusalCode.NOT_ENROLLED
    assert give(store, renamed(host.offer(), ledger="ho2m"), host.lines).code == (
        RefusalCode.NOT_ENROLLED
    )


def test_what_was_refused_is_counted_by_its_code_and_noise_hides_nothing(store, host):
    host.push(store, 0, 7)
    Host().append(9, word="other").push(store)
    for start in (8, 9):
        host.push(store, start)

    found = store.refused("web1", "ho1m")

    assert [(each.refusal.code, each.times, each.offer.start) for each in found] == [
        (RefusalCode.FORKED, 1, 0),
        (RefusalCode.GAP, 2, 9),
    ]
    assert store.refused("web1", "ho2m") == []


def test_a_ledger_under_another_hosts_name_is_refused(store, host):
    other = Host("web2", seed=2).append(5)
    store.enroll(other.chain)

    assert give(store, renamed(host.offer(), host="web2"), host.lines).code == RefusalCode.NOTE
    assert store.newest(other.chain) is None


def test_a_part_that_ends_within_a_line_is_refused(store, host):
    store.send(host.offer(), [b"\n".join(host.lines)])

    assert accept_offer(store, store.offers()[0]).code == RefusalCode.LINE


def test_a_fork_is_refused_and_the_first_history_stays(store, host):
    host.push(store, 0, 7)
    other = Host().append(4).append(6, word="other")

    assert other.push(store, 0).code == RefusalCode.FORKED
    assert other.push(store, 7).code == RefusalCode.FORKED
    assert other.push(store, 4).code == RefusalCode.FORKED
    assert stored(store, host.chain) == list(enumerate(host.lines[:7]))
    assert problems(store) == [()]


def test_what_is_sent_twice_is_taken_once(store, host):
    for _ in range(2):
        store.send(host.offer(), [b"".join(line + b"\n" for line in host.lines)])

    first, second = (answer.result for answer in accept_offers(store))

    assert first == head_of(host.lines, host.note())
    assert second.code == RefusalCode.BEHIND
    assert problems(store) == [()]


def test_two_pushes_that_overlap_are_nothing_that_a_host_is_told_of(store, host):
    for _ in range(2):
        store.send(host.offer(), [b"".join(line + b"\n" for line in host.lines)])

    assert len(list(accept_offers(store))) == 2

    assert store.progress("web1") == [Progress("ho1m", 10, 0, "")]
    assert (store.refused("web1", "ho1m"), store.offers()) == ([], [])


def test_an_offer_that_another_process_took_is_left_alone(store, host):
    store.send(host.offer(), [b"".join(line + b"\n" for line in host.lines)])
    (offer,) = store.offers()
    accept_offer(store, offer)

    assert accept_offer(store, offer).code == RefusalCode.BEHIND
    assert store.refused("web1", "ho1m") == []


def test_offers_are_looked_at_in_the_order_of_their_arrival(store, host):
    second = Host("web2", seed=2).append(3)
    store.enroll(second.chain)
    for each in (host, second):
        store.send(each.offer(), [b"".join(line + b"\n" for line in each.lines)])

    answers = list(accept_offers(store))

    assert [answer.offer.host for answer in answers] == ["web1", "web2"]
    assert answers == [
        OfferAnswer(answers[0].offer, head_of(host.lines, host.note())),
        OfferAnswer(answers[1].offer, head_of(second.lines, second.note())),
    ]


def test_many_offers_are_looked_at_in_several_goes(store, host, monkeypatch):
    monkeypatch.setattr(f"{type(store).__module__}.OFFERS_MAX", 3)
    for _ in range(4):
        store.send(Offer("web1", "ho1m", 0, 5, "x"), [])
    assert store.waiting(host.chain) == 5

    assert [len(list(accept_offers(store))) for _ in range(3)] == [3, 1, 0]
    assert store.waiting(host.chain) == 0


def test_offers_are_looked_at_from_one_of_them_on(store, host):
    for _ in range(3):
        store.send(Offer("web1", "ho1m", 0, 5, "x"), [])
    first, second, third = store.offers()

    assert store.offers(first.number) == [second, third]
    assert [each.offer for each in accept_offers(store, second.number)] == [third]
    assert store.offers(third.number) == []
    assert store.offers() == [first, second]


def test_an_offer_that_breaks_off_was_never_laid_down(store, host):
    def parts():
        yield host.lines[0] + b"\n"
        raise LedgerDamagedError("the end is missing")

    with pytest.raises(LedgerDamagedError):
        store.send(host.offer(), parts())

    assert store.offers() == []


def test_a_long_history_comes_in_many_parts(store, host):
    host.append(700)

    assert host.push(store) == head_of(host.lines, host.note())
    assert problems(store) == [()]


def test_a_key_is_enrolled_once_and_never_replaced(store, host):
    other = Host(seed=9)

    assert store.enroll(host.chain) is False
    with pytest.raises(ConfigError, match="with another key"):
        store.enroll(other.chain)
    assert store.chains() == [host.chain]


def test_chains_are_listed_by_host_and_ledger(store, host):
    others = [Host("web2", seed=3), Host("db1", seed=4), Host("web1", "ho2m", seed=5)]
    for each in others:
        store.enroll(each.chain)

    assert [(each.host, each.ledger) for each in store.chains()] == [
        ("db1", "ho1m"),
        ("web1", "ho1m"),
        ("web1", "ho2m"),
        ("web2", "ho1m"),
    ]


def test_a_host_sees_how_far_it_came(store, host):
    assert store.progress("web1") == [Progress("ho1m", 0, 0, "")]
    store.send(host.offer(0, 4), [b"".join(line + b"\n" for line in host.lines[:4])])
    assert store.progress("web1") == [Progress("ho1m", 0, 4, "")]
    list(accept_offers(store))
    assert store.progress("web1") == [Progress("ho1m", 4, 0, "")]
    assert isinstance(host.push(store, 6), OfferRefusal)
    assert store.progress("web1") == [Progress("ho1m", 4, 0, "collector.gap")]
    host.push(store, 4)
    assert store.progress("web1") == [Progress("ho1m", 10, 0, "")]
    assert store.progress("web2") == []


def test_an_offer_of_impossible_numbers_harms_nobody(store, host):
    store.send(Offer("web1", "ho1m", -(2**62), 2**62, "x"), [])
    store.send(host.offer(), [b"".join(line + b"\n" for line in host.lines)])

    first, second = (answer.result for answer in accept_offers(store))

    assert (first.code, second) == (RefusalCode.NOTE, head_of(host.lines, host.note()))


# --- what verify finds ----------------------------------------------------------


RECORDED = "the checkpoint of 10 entries that entry 17 of the collector's own ledger recorded"


def accepted(host, size):
    return RecordedCheckpoint("web1", "ho1m", size, head_of(host.lines[:size], "").root.hex(), 17)


def test_an_altered_entry_is_found(kind, store, host):
    host.push(store)
    kind.change_line(host.chain, 4, host.lines[4].replace(b"note 3", b"NOTE 3"))

    assert problems(store) == [("entry 5: it does not follow the entry before it",)]


def test_an_altered_last_entry_is_found(kind, store, host):
    host.push(store)
    kind.change_line(host.chain, 9, host.lines[9].replace(b"note 8", b"NOTE 8"))

    assert problems(store) == [("the first 10 entries are not those that were signed",)]


def test_bytes_that_are_no_entry_are_found(kind, store, host):
    host.push(store)
    kind.change_line(host.chain, 9, b"x")

    (found,) = problems(store)
    assert found[0].startswith("entry 9: garbage")


def test_an_end_that_was_cut_off_is_found(kind, store, host):
    host.push(store, 0, 4)
    host.push(store, 4)
    kind.remove_from(host.chain, 6)

    assert problems(store) == [("10 entries were signed, and 6 are here",)]


def test_an_end_cut_off_with_its_checkpoint_shows_against_what_was_recorded(kind, store, host):
    host.push(store, 0, 4)
    host.push(store, 4)
    kind.remove_from(host.chain, 4)
    kind.remove_checkpoints(host.chain, 4)

    assert problems(store) == [()]
    assert problems(store, accepted(host, 4), accepted(host, 10)) == [(f"{RECORDED} is missing",)]


def test_entries_without_a_checkpoint_are_found(kind, store, host):
    host.push(store, 0, 4)
    host.push(store, 4)
    kind.remove_checkpoints(host.chain, 4)

    assert problems(store) == [("no accepted checkpoint covers the entries from 4 on",)]


def test_a_history_put_in_anothers_place_shows_against_what_was_recorded(kind, store, host):
    host.push(store)
    kind.forget_chain(host.chain)
    other = Host().append(9, word="other")
    store.enroll(other.chain)
    other.push(store)

    assert problems(store) == [()]
    (found,) = verified(store, accepted(host, 10))
    assert found.compared == 0
    assert found.problems == (f"{RECORDED} has a different root here",)


def test_a_chain_that_is_gone_shows_against_what_was_recorded(kind, store, host):
    host.push(store)
    kind.forget_chain(host.chain)

    assert problems(store, accepted(host, 10)) == [
        ("the chain is missing, but checkpoints of it were recorded as accepted",)
    ]


def test_what_was_recorded_and_agrees_is_counted(store, host):
    host.push(store, 0, 4)
    host.push(store, 4)

    (found,) = verified(store, accepted(host, 4), accepted(host, 10))

    assert (found.entries, found.checkpoints, found.compared, found.problems) == (10, 2, 2, ())
