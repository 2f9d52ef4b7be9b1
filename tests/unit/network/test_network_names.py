"""Names of hosts, questions for them, and the addresses that they have inside."""

import struct
from ipaddress import IPv4Address

import pytest

from paddock.network.names import (
    SYNTHETIC_NETWORK,
    HostQuestion,
    SyntheticNames,
    answer,
    read_question,
)
from paddock.policy.network import canonical_host

ADDRESS = IPv4Address("198.18.0.7")
A, NS, AAAA, OPT, HTTPS, ANY = 1, 2, 28, 41, 65, 255


def question(name: bytes, kind: int = A, space: int = 1, flags: int = 0x100, rest: bytes = b""):
    labels = b"".join(bytes([len(label)]) + label for label in name.split(b".") if label)
    records = 1 if rest else 0
    header = struct.pack(">6H", 0x1234, flags, 1, 0, 0, records)
    return header + labels + b"\0" + struct.pack(">2H", kind, space) + rest


def opt(version: int = 0, flags: int = 0) -> bytes:
    return struct.pack(">BHHBBHH", 0, OPT, 4096, 0, version, flags, 0)


def answered(message: bytes, found: IPv4Address | bool = ADDRESS):
    read = read_question(message)
    return None if read is None else answer(read, found)


def head(code: int, answers: int = 0, others: int = 0, asked: int = 1) -> bytes:
    return struct.pack(">6H", 0x1234, 0x8180 | code, asked, answers, 0, others)


def asked(message: bytes) -> bytes:
    return message[12:]


# --- canonical names ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("example.org", "example.org"),
        ("EXAMPLE.Org.", "example.org"),
        ("localhost", "localhost"),
        ("_ssh._tcp.example.org", "_ssh._tcp.example.org"),
        ("-a-.b_c", "-a-.b_c"),
        ("1.2.3.4.example", "1.2.3.4.example"),
        ("0x.example", "0x.example"),
        ("x" * 63 + ".org", "x" * 63 + ".org"),
        (".".join(["x" * 49] * 5) + ".xyz.", ".".join(["x" * 49] * 5) + ".xyz"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_a_name_has_one_form(text: str, name: str):
    assert canonical_host(text) == name
    assert canonical_host(name) == name


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "a..b", ".example.org", "example.org..", "a b.example", "a/b", "a:443"),
        *("*.example.org", "user@example.org", "a%00.example", "a\0.example", "a\n", "exa\\mple"),
        *("127.0.0.1", "127.1", "1", "0x7f000001", "0x", "0X7F.0xg", "a.0x1", "10.0.0.1.", "a.007"),
        *("::1", "[::1]", "x" * 64 + ".org", "x." * 126 + "xy", "a" * 100_000, "ü" * 100_000),
        *("straße.example", "ΣΑΣς.example", "a\u200db.example", "STRAẞE.example"),
        *("BÜCHER。example。", "ｅｘａｍｐｌｅ.org"),
        *("１２７.0.0.１", "a／b.example", "\u0378.example", "ü" * 60 + ".example"),
    ],
)
def test_what_is_no_name_is_refused(text: str):
    with pytest.raises(ValueError, match=".") as raised:
        canonical_host(text)

    assert len(str(raised.value)) < 700
    assert "\0" not in str(raised.value)


# --- questions and answers ------------------------------------------------------


def test_a_known_name_has_the_address_that_it_was_given():
    message = question(b"eXample.ORG")

    assert read_question(message) == HostQuestion(
        0x1234, 0x100, asked=asked(message), name="example.org", wants_address=True
    )
    assert answered(message) == (
        head(0, answers=1) + asked(message) + b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + ADDRESS.packed
    )


@pytest.mark.parametrize("kind", [NS, AAAA, HTTPS, ANY, 0, 65535])
def test_other_types_of_a_known_name_are_empty_and_of_an_unknown_one_unknown(kind: int):
    message = question(b"example.org", kind)

    assert read_question(message) == HostQuestion(
        0x1234, 0x100, asked=asked(message), name="example.org"
    )
    assert answered(message) == head(0) + asked(message)
    assert answered(message, False) == head(3) + asked(message)


def test_an_unknown_name_has_no_address():
    message = question(b"denied.example")

    assert answered(message, False) == head(3) + asked(message)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("name", [b"localhost", b"LocalHost", b"a.b.localhost"])
def test_localhost_and_names_below_it_are_the_loopback_and_nobody_is_asked(
    name: bytes, is_known: bool
):
    message, other = question(name), question(name, AAAA)
    read = read_question(message)

    assert read is not None
    assert read.name == ""
    assert answered(message, ADDRESS if is_known else False) == (
        head(0, answers=1) + asked(message) + b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4\x7f\0\0\1"
    )
    assert answered(other, ADDRESS if is_known else False) == head(0) + asked(other)


@pytest.mark.parametrize("name", [b"localhost.example", b"notlocalhost", b"localhost.localdomain"])
def test_a_name_that_only_resembles_localhost_is_decided(name: bytes):
    read = read_question(question(name))

    assert read is not None
    assert read.name == name.decode()


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"a$b.example",
        b"127.0.0.1",
        b"a.0x7f",
        b"a b",
        b"\xff.example",
        b"b\xc3\xbccher.example",
    ],
)
def test_a_name_that_is_none_is_a_format_error_with_its_question(name: bytes):
    message = question(name)

    assert answered(message) == head(1) + asked(message)


def test_a_dot_within_a_label_makes_no_other_name_of_it():
    message = question(b"evil_example.org").replace(b"_", b".")

    assert answered(message) == head(1) + asked(message)


@pytest.mark.parametrize("code_of", [(3, 5), (4, 5), (255, 5), (0, 5)])
def test_another_class_is_refused(code_of: tuple[int, int]):
    space, code = code_of
    message = question(b"example.org", space=space)

    assert answered(message) == head(code) + asked(message)


@pytest.mark.parametrize(
    ("rest", "code", "extended", "flags"),
    [(opt(), 0, 0, 0), (opt(flags=0xFFFF), 0, 0, 0x8000), (opt(version=1), 0, 1, 0)],
)
def test_edns_is_answered_in_kind(rest: bytes, code: int, extended: int, flags: int):
    message = question(b"example.org", AAAA, rest=rest)
    ours = struct.pack(">BHHBBHH", 0, OPT, 1232, extended, 0, flags, 0)

    assert answered(message) == head(code, others=1) + message[12 : -len(rest)] + ours


def test_an_option_within_edns_is_left_unread():
    cookie = struct.pack(">BHHBBHH2H8s", 0, OPT, 4096, 0, 0, 0, 12, 10, 8, b"cookie!!")
    message = question(b"example.org", rest=cookie)
    read = read_question(message)

    assert read is not None
    assert (read.name, read.code) == ("example.org", 0)


@pytest.mark.parametrize(
    "rest",
    [
        *(b"\0", opt()[:-1], opt() + b"\0", opt() + opt(), b"\xc0\x0c" + opt()[1:]),
        *(opt()[:-1] + b"\x01", b"\0" + struct.pack(">2HIH", A, 1, 0, 0)),
    ],
)
def test_anything_else_after_the_question_is_a_format_error(rest: bytes):
    message = question(b"example.org", rest=rest)
    read = read_question(message)

    assert read is not None
    assert (read.name, read.code) == ("", 1)


@pytest.mark.parametrize("counts", [(0, 0, 0, 0), (2, 0, 0, 0), (65535, 0, 0, 0)])
def test_another_number_of_questions_than_one_is_a_format_error(counts: tuple[int, ...]):
    message = bytearray(question(b"example.org"))
    message[4:12] = struct.pack(">4H", *counts)

    assert answered(bytes(message)) == head(1, asked=0)


@pytest.mark.parametrize("counts", [(1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1), (1, 0, 0, 65535)])
def test_records_that_are_announced_and_not_there_are_a_format_error(counts: tuple[int, ...]):
    message = bytearray(question(b"example.org"))
    message[4:12] = struct.pack(">4H", *counts)

    assert answered(bytes(message)) == head(1) + asked(bytes(message))


@pytest.mark.parametrize(
    "name",
    [
        b"\xc0\x0c",  # itself
        b"\x01a\xc0\x0c",  # a loop over a label
        b"\xc0\x00",  # the header
        b"\x40" + b"a" * 64 + b"\0",  # reserved
        b"\x80\0",
        b"\x3f" + b"a" * 10,  # beyond the end
        b"\x01a" * 128 + b"\0",  # 257 octets
        b"\x01a" * 30_000 + b"\0",
        b"\x01a",  # no end
        b"",
    ],
)
def test_a_question_that_cannot_be_read_is_a_format_error_without_it(name: bytes):
    header = struct.pack(">6H", 0x1234, 0x100, 1, 0, 0, 0)

    assert answered(header + name + b"\0\1\0\1") == head(1, asked=0)


def test_a_question_cut_anywhere_is_a_format_error_or_nothing():
    message = question(b"example.org")

    assert {answered(message[:size]) for size in range(12)} == {None}
    assert {answered(message[:size]) for size in range(12, len(message))} == {head(1, asked=0)}


def test_the_longest_name_is_read_and_its_answer_fits_a_datagram():
    name = b".".join([b"x" * 62] * 4)[:-1] + b"y"
    message = question(name + b"z", rest=opt())

    assert len(name + b"z") == 252
    assert answered(message) is not None
    assert len(answered(message) or b"") <= 512


@pytest.mark.parametrize("flags", [0x8180, 0x8000, 0xFFFF])
def test_an_answer_is_never_answered(flags: int):
    assert answered(question(b"example.org", flags=flags)) is None


def test_more_than_a_frame_can_hold_is_dropped():
    assert answered(question(b"example.org") + bytes(70_000)) is None


@pytest.mark.parametrize("opcode", [1, 2, 4, 5, 15])
def test_another_operation_is_not_implemented(opcode: int):
    message = question(b"example.org", flags=opcode << 11)

    assert answered(message) == struct.pack(">6H", 0x1234, 0x8080 | opcode << 11 | 4, 0, 0, 0, 0)


def test_a_question_that_says_it_was_cut_is_a_format_error():
    message = question(b"example.org", flags=0x300)

    assert answered(message) == head(1) + asked(message)


@pytest.mark.parametrize(
    ("captured", "name", "wants_address"),
    [
        # glibc 2.36: getaddrinfo, without and with `options edns0`
        ("d0b801000001000000000000074578616d706c65036f72670000010001", "example.org", True),
        ("e62f01000001000000000001074578616d706c65036f726700001c000100002904b0000000000000", "example.org", False),
        # c-ares 1.18: resolve4 of Node
        ("b1e20100000100000000000006632d61726573076578616d706c650000010001", "c-ares.example", True),
    ],
)  # fmt: skip
def test_what_real_resolvers_ask_is_read(captured: str, name: str, wants_address: bool):
    read = read_question(bytes.fromhex(captured))

    assert read is not None
    assert (read.name, read.code, read.wants_address) == (name, 0, wants_address)


# --- synthetic addresses --------------------------------------------------------


def test_a_name_keeps_its_address_with_its_key_and_has_another_with_another():
    ours, again, others = (SyntheticNames(key) for key in (b"k" * 32, b"k" * 32, b"o" * 32))
    names = ["example.org", "a.example", "b.example"]
    given = [ours.address_of(name) for name in names]

    assert [again.address_of(name) for name in reversed(names)] == given[::-1]
    assert [ours.address_of(name) for name in names] == given
    assert [others.address_of(name) for name in names] != given


def test_each_of_four_thousand_names_has_an_address_of_its_own_and_then_there_is_no_room():
    names = SyntheticNames(b"k")
    given = {f"n{number}.example": names.address_of(f"n{number}.example") for number in range(4096)}

    assert len(set(given.values())) == 4096
    assert all(address is not None and address in SYNTHETIC_NETWORK for address in given.values())
    assert {names.name_of(address): address for address in given.values() if address} == given
    never = (SYNTHETIC_NETWORK[at] for at in (0, 1, -1))
    assert set(given.values()).isdisjoint(never)
    assert names.address_of("one.more.example") is None
    assert names.address_of("n0.example") == given["n0.example"]


def test_an_address_that_nobody_was_given_has_no_name():
    names = SyntheticNames(b"k")

    assert names.name_of(ADDRESS) is None
