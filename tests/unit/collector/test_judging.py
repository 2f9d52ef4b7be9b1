"""What a collector takes in, and every other thing that a host could offer instead."""

import json
from collections.abc import Sequence

import pytest

from paddock.collector.chains import (
    NOTHING_YET,
    Chain,
    ChainHead,
    Judging,
    Offer,
    OfferRefusal,
    OfferRefusedError,
    RefusalCode,
)
from paddock.ledger.format.line import PREV_OF_GENESIS, leaf_hash
from paddock.ledger.format.lines import Genesis
from paddock.ledger.signing import make_key
from paddock.testing.memory_ledger import MemoryLedger
from paddock.values.entries import Entry
from tests.support.collected import Host, head_of, renamed
from tests.support.ledgers import note


def judge(
    chain: Chain, stored: Sequence[bytes], head: ChainHead, offer: Offer, lines: Sequence[bytes]
) -> ChainHead | OfferRefusal:
    """What comes of an offer whose lines arrive two at a time."""
    try:
        judging = Judging(chain, head, offer, lambda start, stop: stored[start:stop])
        for at in range(0, len(lines), 2):
            judging.take(lines[at : at + 2])
        return judging.end()
    except OfferRefusedError as refused:
        return refused.refusal


@pytest.fixture
def host():
    return Host().append(9)


def after(host: Host, size: int) -> tuple[list[bytes], ChainHead]:
    """What is kept when the first `size` lines were taken in."""
    lines = host.lines[:size]
    return lines, head_of(lines, host.note(lines))


def refused(host, offer, lines, size=0):
    stored, head = after(host, size) if size else ([], NOTHING_YET)
    found = judge(host.chain, stored, head, offer, lines)
    assert isinstance(found, OfferRefusal)
    return found.code


def test_a_ledger_is_taken_from_its_first_line(host):
    found = judge(host.chain, [], NOTHING_YET, host.offer(), host.lines)

    assert found == head_of(host.lines, host.note())


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9])
def test_lines_that_go_on_are_taken(host, size):
    stored, head = after(host, size)

    found = judge(host.chain, stored, head, host.offer(size), host.lines[size:])

    assert found == head_of(host.lines, host.note())


@pytest.mark.parametrize("start", range(5))
def test_lines_that_are_here_already_may_come_again_before_new_ones(host, start):
    stored, head = after(host, 5)

    found = judge(host.chain, stored, head, host.offer(start), host.lines[start:])

    assert found == head_of(host.lines, host.note())


def test_only_new_lines_are_given_back(host):
    stored, head = after(host, 5)
    offer = host.offer(3)
    judging = Judging(host.chain, head, offer, lambda a, b: stored[a:b])

    assert judging.take(host.lines[3:7]) == host.lines[5:7]


def test_a_gap_is_refused(host):
    assert refused(host, host.offer(6), host.lines[6:], size=5) == RefusalCode.GAP
    assert refused(host, host.offer(1), host.lines[1:]) == RefusalCode.GAP


def test_a_gap_inside_is_refused(host):
    lines = host.lines[:4] + host.lines[5:]

    assert refused(host, host.offer(), lines) == RefusalCode.CHAIN


def test_a_line_that_is_here_with_other_bytes_is_a_fork(host):
    other = Host().append(4).append(6, word="other")

    assert refused(host, other.offer(4), other.lines[4:], size=7) == RefusalCode.FORKED
    assert refused(host, other.offer(), other.lines, size=7) == RefusalCode.FORKED


def test_a_history_that_leaves_the_one_that_is_here_is_a_fork(host):
    other = Host().append(4).append(6, word="other")

    assert refused(host, other.offer(7), other.lines[7:], size=7) == RefusalCode.FORKED


def test_two_roots_of_one_size_are_a_fork(host):
    other = Host().append(4).append(5, word="other")

    assert refused(host, other.offer(9), other.lines[9:], size=9) == RefusalCode.FORKED


def test_an_older_checkpoint_takes_nothing_back(host):
    assert refused(host, host.offer(0, 5), host.lines[:5], size=7) == RefusalCode.BEHIND
    assert refused(host, host.offer(5), host.lines[5:], size=10) == RefusalCode.BEHIND


def test_a_shorter_history_that_differs_is_a_fork_and_not_merely_old(host):
    other = Host().append(2).append(2, word="other")

    assert refused(host, other.offer(), other.lines, size=7) == RefusalCode.FORKED


# Threat: a checkpoint is public. Whoever may push can send it with lines of his own under it.
@pytest.mark.parametrize("start", [0, 3, 9])
def test_other_lines_under_the_checkpoint_that_is_here_are_nothing_new(host, start):
    lines = [b"junk"] * (10 - start)

    assert refused(host, host.offer(start), lines, size=10) == RefusalCode.BEHIND


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (3, 5), (0, 10), (3, 10), (6, 10)])
def test_other_lines_under_a_true_checkpoint_are_no_second_history(host, start, stop):
    junk = [b"junk", *host.lines[start + 1 : stop]]

    assert refused(host, host.offer(start, stop), junk, size=7) == RefusalCode.ROOT


def test_an_entry_that_nobody_signed_is_no_second_history(host):
    stranger = Host().append(6, word="other").append(3)

    assert refused(host, host.offer(7), stranger.lines[7:], size=7) == RefusalCode.ROOT


def test_a_second_history_is_one_only_where_its_tree_is_shown(host):
    other = Host().append(4).append(6, word="other")
    tree = other.offer(7).edge

    for edge in ((), tree[:-1], (b"\0" * 32, *tree[1:]), host.offer(7).edge):
        offer = renamed(other.offer(7), edge=edge)
        assert refused(host, offer, other.lines[7:], size=7) == RefusalCode.ROOT
    assert refused(host, other.offer(7), other.lines[7:], size=7) == RefusalCode.FORKED


def test_what_departs_is_said(host):
    stored, head = after(host, 7)
    other = Host().append(4).append(6, word="other")
    junk = [b"junk", *other.lines[6:]]

    assert judge(host.chain, stored, head, other.offer(7), other.lines[7:]) == OfferRefusal(
        RefusalCode.FORKED, "line 7 does not follow the line before it"
    )
    assert judge(host.chain, stored, head, other.offer(5), junk) == OfferRefusal(
        RefusalCode.ROOT,
        "line 5 differs from the accepted one, and the lines do not produce the signed root",
    )


def test_a_checkpoint_by_another_key_is_refused(host):
    stranger = make_key(host.key.verifier.name, b"x" * 32)
    signed = renamed(host.offer(), note=host.note(key=stranger))

    assert refused(host, signed, host.lines) == RefusalCode.NOTE


NO_NOTES = {
    "nothing": lambda text: "",
    "no signature": lambda text: text.partition("\n\n")[0] + "\n",
    "another size": lambda text: text.replace("\n10\n", "\n11\n"),
    "another origin": lambda text: text.replace("paddock/web1", "paddock/web2", 1),
    "too long": lambda text: text + "x" * 20_000,
    "a surrogate": lambda text: "\ud800" + text,
}


@pytest.mark.parametrize("name", NO_NOTES)
def test_what_is_no_checkpoint_of_the_ledger_is_refused(host, name):
    offer = renamed(host.offer(), note=NO_NOTES[name](host.note()))

    assert refused(host, offer, host.lines) == RefusalCode.NOTE


def test_a_checkpoint_of_another_ledger_of_the_host_is_refused(host):
    sessions = Host(ledger="ho2m", seed=2).append(9)

    assert refused(host, sessions.offer(), sessions.lines) == RefusalCode.NOTE


def test_an_altered_line_is_refused(host):
    altered = host.lines[4].replace(b"note 3", b"NOTE 3")

    lines = [*host.lines[:4], altered, *host.lines[5:]]
    assert refused(host, host.offer(), lines) == RefusalCode.CHAIN


def test_an_altered_last_line_does_not_make_the_root(host):
    lines = [*host.lines[:-1], host.lines[-1].replace(b"note 8", b"NOTE 8")]

    assert refused(host, host.offer(), lines) == RefusalCode.ROOT


NO_LINES = {
    "empty": b"",
    "garbage": b"garbage",
    "spaces": b' {"id": 1}',
    "too long": b"x" * (1 << 21),
    "no text": b"\xff" * 400,
}


@pytest.mark.parametrize("name", NO_LINES)
def test_a_line_that_is_no_entry_is_refused_though_it_is_signed(host, name):
    lines = [*host.lines, NO_LINES[name]]
    offer = renamed(host.offer(), stop=11, note=host.note(lines))

    assert refused(host, offer, lines) == RefusalCode.LINE


def test_a_line_in_other_bytes_is_refused_though_it_is_signed(host):
    fields = json.loads(host.lines[-1])
    lines = [*host.lines[:-1], json.dumps(fields).encode()]
    offer = renamed(host.offer(), note=host.note(lines))

    assert refused(host, offer, lines) == RefusalCode.LINE


def test_a_second_first_line_is_refused_though_it_is_signed(host):
    host.append_entry(Entry("GENESIS", metadata=json.loads(host.lines[0])["metadata"]))

    assert refused(host, host.offer(), host.lines) == RefusalCode.CHAIN


@pytest.mark.parametrize(
    "genesis",
    [
        lambda key: Genesis(key.name, "HO2", str(key)),
        lambda key: Genesis("paddock/web1/other", "HO1", str(key)),
        lambda key: Genesis(key.name, "HO1", str(make_key(key.name, b"y" * 32).verifier)),
    ],
    ids=["another tier", "another origin", "another key"],
)
def test_a_first_line_of_another_ledger_is_refused_though_it_is_signed(host, genesis):
    ledger = MemoryLedger(genesis=genesis(host.key.verifier))
    ledger.append([note("x")])
    lines = ledger.text.split(b"\n")[:-1]
    offer = renamed(host.offer(), stop=2, note=host.note(lines))

    assert refused(host, offer, lines) == RefusalCode.GENESIS


def test_a_first_line_that_is_no_genesis_is_refused_though_it_is_signed(host):
    line = host.lines[1].replace(b'"seq":1', b'"seq":0')
    line = line.replace(leaf_hash(host.lines[0]).encode(), PREV_OF_GENESIS.encode())
    offer = renamed(host.offer(), stop=1, note=host.note([line]))

    assert refused(host, offer, [line]) == RefusalCode.GENESIS


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 9), (0, 11), (10, 10), (11, 10), (-1, 10), (0, 10**15)]
)
def test_an_offer_has_to_end_where_its_checkpoint_does(host, start, stop):
    offer = renamed(host.offer(), start=start, stop=stop)

    assert refused(host, offer, host.lines) == RefusalCode.SIZE


def test_more_or_fewer_lines_than_were_signed_are_refused(host):
    assert refused(host, host.offer(0, 9), host.lines) == RefusalCode.SIZE
    assert refused(host, host.offer(), host.lines[:9]) == RefusalCode.SIZE


def test_more_lines_than_were_signed_are_refused_before_they_are_looked_at(host):
    offer = host.offer(0, 4)
    judging = Judging(host.chain, NOTHING_YET, offer, lambda a, b: [])

    with pytest.raises(OfferRefusedError) as found:
        judging.take([b"x"] * 100_000)

    assert found.value.refusal.code == RefusalCode.SIZE


def test_from_a_changed_edge_no_root_comes_out_right(host):
    stored, head = after(host, 5)
    changed = ChainHead(head.size, head.root, head.leaf, (b"\0" * 32, *head.edge[1:]), head.note)
    missing = ChainHead(head.size, head.root, head.leaf, head.edge[1:], head.note)

    for each in (changed, missing):
        found = judge(host.chain, stored, each, host.offer(5), host.lines[5:])
        assert isinstance(found, OfferRefusal)
        assert found.code == RefusalCode.ROOT
