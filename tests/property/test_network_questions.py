"""DNS questions that a hostile program sends: each has an answer or none, with little work."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from paddock.network.names import SYNTHETIC_NETWORK, answer, read_question
from paddock.policy.network import canonical_host
from tests.support.hostile_bytes import lines_run, spoilt

VALID = [
    bytes.fromhex(captured)
    for captured in (
        "d0b801000001000000000000074578616d706c65036f72670000010001",
        "e62f01000001000000000001074578616d706c65036f726700001c000100002904b0000000000000",
        "80ea010000010000000000000178096c6f63616c686f73740000010001",
    )
]


@given(st.integers(0, 2**64))
def test_no_message_is_too_bad_for_a_short_answer_that_is_one(seed: int):
    for message in spoilt(seed, VALID):
        read = read_question(message)
        if read is None:
            assert len(message) < 12 or message[2] & 0x80
            continue
        for is_known in (True, False):
            reply = answer(read, SYNTHETIC_NETWORK[7] if is_known else False)
            number, flags, asked, answers, authorities, others = struct.unpack_from(">6H", reply)

            assert len(reply) <= 512
            assert (number, flags & 0x8000) == (int.from_bytes(message[:2], "big"), 0x8000)
            assert reply[12:].startswith(message[12 : 12 + len(read.asked)])
            assert (asked, authorities, others) == (bool(read.asked), 0, bool(read.edns))
            assert answers <= (is_known or read.is_local)
            assert read_question(reply) is None
        assert read.name == "" or canonical_host(read.name) == read.name


@given(st.binary(max_size=80))
def test_labels_of_any_bytes_make_a_name_only_where_they_are_one(label: bytes):
    size = bytes([len(label) & 0x3F])
    message = VALID[0][:12] + size + label[: size[0]] + b"\3org\0\0\1\0\1"
    read = read_question(message)

    assert read is not None
    assert read.name in ("", label[: size[0]].decode("latin-1").lower() + ".org")


@given(st.text(max_size=300))
def test_a_canonical_name_stays_what_it_is(text: str):
    try:
        name = canonical_host(text)
    except ValueError:
        return

    assert name.isascii()
    assert name == name.lower()
    assert canonical_host(name) == canonical_host(name + ".") == name


def test_the_longest_messages_are_a_few_hundred_lines_of_work():
    head = VALID[0][:12]
    worst = [
        head + b"\1a" * 32_000,
        head + b"\x3f" * 65_000,
        head + b"\xc0\x0c" * 32_000,
        VALID[1] + bytes(65_000),
        bytes(65_535),
    ]

    assert max(lines_run(read_question, message) for message in worst) < 1_000
