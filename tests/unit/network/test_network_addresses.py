"""Which addresses a name may lead to, also where one address holds another."""

from ipaddress import IPv4Address, ip_address, ip_network

import pytest

from paddock.network.egress import addresses_in_hosts_file, judge_address
from paddock.policy.network import held_addresses

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
EVERYTHING = ("0.0.0.0/0", "::/0")
OWN = ("8.8.4.4/32", "8.8.4.0/24", "2a00:1450::7/128", "2a00:1450::/64", "2002:808:101:7::/64")


def judged(address: str, allowed: tuple[str, ...] = (), own: tuple[str, ...] = OWN) -> str:
    return judge_address(
        ip_address(address),
        [ip_network(each) for each in allowed],
        [ip_network(each) for each in own],
    )


PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
    *("126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255"),
    *("172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0"),
    *("198.17.255.255", "198.20.0.0", "223.255.255.255", "2000::1", "2001:200::1", "2606:4700::1"),
    *("2a00:1450::1:0:0:0:7", "2001:db7:ffff::", "2001:db9::", "3ffe:ffff::1", "3fff:1000::"),
]
NOT_PUBLIC = {
    "10.0.0.0": "private",
    "10.255.255.255": "private",
    "172.16.0.0": "private",
    "172.31.255.255": "private",
    "192.168.255.255": "private",
    "fc00::1": "private",
    "fdff:ffff::": "private",
    "fec0::1": "private",
    "127.0.0.1": "loopback",
    "127.255.255.255": "loopback",
    "::1": "loopback",
    "169.254.169.254": "link-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "100.64.0.0": "carrier-grade NAT",
    "100.127.255.255": "carrier-grade NAT",
    "168.63.129.16": "a cloud platform service",
    "192.0.0.9": "reserved for protocols",
    "192.0.0.255": "reserved for protocols",
    "192.88.99.1": "reserved for protocols",
    "2001:1::1": "reserved for protocols",
    "2001:1ff:ffff::": "reserved for protocols",
    "198.18.0.0": "reserved for benchmarks",
    "198.19.255.255": "reserved for benchmarks",
    "192.0.2.1": "for documentation",
    "203.0.113.255": "for documentation",
    "2001:db8::1": "for documentation",
    "3fff:fff::1": "for documentation",
    "240.0.0.1": "reserved",
    "255.255.255.254": "reserved",
    "100::1": "not public",
    "5f00::1": "not public",
    "4000::1": "not public",
    "1fff::1": "not public",
    "::ffff:0:8.8.8.8": "not public",
    "64:ff9b:1:1::8.8.8.8": "not public",
    "64:ff9b:1:0:a:0:500:1": "not public",
    "64:ff9b:2::8.8.8.8": "not public",
    "8.8.4.4": "on this machine",
    "8.8.4.5": "on a network of this machine",
    "2a00:1450::7": "on this machine",
    "2a00:1450::8": "on a network of this machine",
}
NEVER = {
    "0.0.0.0": "unspecified",
    "0.255.255.255": "unspecified",
    "::": "unspecified",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "ff02::1": "multicast",
    "255.255.255.255": "broadcast",
    "8.8.4.255": "broadcast",
}


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_reached(address: str):
    assert judged(address) == ""


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_any_other_may_be_reached_only_where_a_rule_lists_it(address: str):
    plain = address.partition("%")[0]

    assert judged(address) == NOT_PUBLIC[address]
    assert judged(address, allowed=("1.2.3.4/32", "2606::/16")) == NOT_PUBLIC[address]
    assert judged(address, allowed=EVERYTHING) == ""
    assert judged(address, allowed=(plain,)) == ""


@pytest.mark.parametrize("address", NEVER)
def test_no_rule_leads_to_the_unspecified_a_multicast_or_a_broadcast_address(address: str):
    assert [judged(address, allowed) for allowed in ((), EVERYTHING, (address,))] == [
        NEVER[address]
    ] * 3


def test_an_address_of_this_machine_is_public_to_others():
    assert [judged(address, own=()) for address in ("8.8.4.4", "8.8.4.255", "2a00:1450::7")] == [
        ""
    ] * 3


def holding(held: str) -> dict[str, str]:
    """Addresses that hold this one, in each way."""
    number = int(IPv4Address(held))
    high, low = f"{number >> 16:x}", f"{number & 0xFFFF:x}"
    flipped = IPv4Address(number ^ 0xFFFFFFFF)
    return {
        "mapped": f"::ffff:{held}",
        "compatible": f"::{held}",
        "NAT64": f"64:ff9b::{held}",
        "local NAT64": f"64:ff9b:1::{held}",
        "6to4": f"2002:{high}:{low}::1",
        "Teredo server": f"2001:0:{high}:{low}:8000:63bf:f7f7:f7f7",
        "Teredo client": f"2001:0:808:808:8000:63bf:{flipped}",
    }


WAYS = list(holding("8.8.8.8"))
HELD = ["10.0.0.1", "127.0.0.1", "169.254.169.254", "168.63.129.16", "100.64.0.1", "8.8.4.4"]


@pytest.mark.parametrize("way", WAYS)
def test_an_address_that_holds_a_public_one_may_be_reached(way: str):
    assert judged(holding("1.1.1.1")[way]) == ""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("held", HELD)
def test_an_address_that_holds_another_is_judged_as_that(way: str, held: str):
    address = holding(held)[way]

    assert IPv4Address(held) in held_addresses(ip_address(address))
    assert judged(address) == judged(held) != ""
    assert judged(address, allowed=("2000::/3", "::/0")) == judged(held) != ""
    assert judged(address, allowed=(held,)) == ""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("held", ["0.0.0.0", "224.0.0.1", "255.255.255.255", "8.8.4.255"])
def test_what_never_passes_does_not_pass_within_another(way: str, held: str):
    assert judged(holding(held)[way], EVERYTHING) == NEVER[held]


def test_both_addresses_of_teredo_have_to_pass():
    address = "2001:0:a00:1:8000:63bf:3f57:fffe"  # 10.0.0.1, 192.168.0.1

    assert [str(each) for each in held_addresses(ip_address(address))] == [
        "10.0.0.1",
        "192.168.0.1",
    ]
    assert judged(address, allowed=("192.168.0.0/16",)) == "private"
    assert judged(address, allowed=("10.0.0.0/8",)) == "private"
    assert judged(address, allowed=PRIVATE) == ""


def test_an_address_that_holds_a_public_one_may_itself_be_of_this_machines_network():
    assert judged("2002:808:101:7::5") == "on a network of this machine"
    assert judged("2002:808:101:8::5") == ""
    assert judged("2002:808:101:7::5", allowed=("2002:808:101:7::5/128",)) == ""


@pytest.mark.parametrize("address", ["8.8.8.8", "::", "::1", "2606::1", "64:ff9b:1:1::1.1.1.1"])
def test_other_addresses_hold_none(address: str):
    assert held_addresses(ip_address(address)) == ()


HOSTS = """
127.0.0.1\tlocalhost
10.0.0.7   db.example.org Shop.Example.org  # 10.0.0.8 old.example.org
fe80::7%eth0 db.example.org
not-an-address  odd.example.org
10.0.0.9
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("db.example.org", ["10.0.0.7", "fe80::7"]),
        ("shop.example.org", ["10.0.0.7"]),
        ("localhost", ["127.0.0.1"]),
        ("old.example.org", []),
        ("odd.example.org", []),
        ("example.org", []),
        ("10.0.0.9", []),
        ("", []),
    ],
)
def test_a_name_of_the_hosts_file_leads_where_that_says(name, found):
    assert addresses_in_hosts_file(HOSTS, name) == [ip_address(each) for each in found]
