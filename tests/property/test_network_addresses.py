"""Our table of public addresses against Python's own: ours may only be stricter."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from hypothesis import example, given
from hypothesis import strategies as st

from paddock.network.egress import judge_address
from paddock.policy.network import held_addresses

# Random addresses are nearly all public: these lie around the ends of blocks.
edges = st.sampled_from([0, 10, 100, 127, 169, 172, 192, 198, 203, 224, 240, 255])
fours = st.builds(lambda *parts: IPv4Address(bytes(parts)), edges, *[st.integers(0, 255)] * 3)
heads = st.sampled_from([0, 0x64, 0x100, 0x2001, 0x2002, 0x3FFF, 0xFC00, 0xFE80, 0xFF02])
sixes = st.builds(
    lambda head, rest: IPv6Address(head << 112 | rest), heads, st.integers(0, 2**112 - 1)
)
addresses = st.one_of(st.ip_addresses(), fours, sixes)


@given(addresses)
@example(IPv4Address("192.0.0.9"))
@example(IPv6Address("::ffff:8.8.8.8"))
def test_what_may_be_reached_is_global_for_python_too_or_holds_what_is(address):
    if judge_address(address, [], []) == "":
        assert all(each.is_global for each in held_addresses(address) or (address,))


@given(addresses)
def test_a_rule_or_this_machine_decides_about_exactly_its_networks(address):
    network = IPv4Network if address.version == 4 else IPv6Network
    itself = network(address)
    plain = judge_address(address, [], [])

    assert judge_address(address, [], [itself]) != ""
    if not held_addresses(address):
        never = ("unspecified", "multicast", "broadcast")
        assert judge_address(address, [itself], [itself]) == (plain if plain in never else "")
