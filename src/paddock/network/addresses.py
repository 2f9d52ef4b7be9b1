"""Which addresses a name may lead to: public ones, and those that a rule lists. PURE.

Threat: the owner of an allowed name lets it lead to a router, a metadata service, a database or
this machine; plainly, or within an IPv6 address that a translator turns back.

The tables follow IANA's registries of special-purpose addresses (RFC 6890, iana-ipv4-special-
registry, iana-ipv6-special-registry), multicast addresses and global unicast addresses. They are
stricter for blocks of protocols: all of 192.0.0.0/24 and 2001::/23. Python's `is_global` is no
such table: it holds for multicast, 168.63.129.16, and private hosts behind NAT64 or 6to4.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, TypeAlias

from paddock.policy.network import held_addresses

_Address: TypeAlias = IPv4Address | IPv6Address
_Network: TypeAlias = IPv4Network | IPv6Network
_Table: TypeAlias = tuple[tuple[_Network, str], ...]


def _table(*rows: tuple[str, str]) -> _Table:
    return tuple((ip_network(block), word) for word, blocks in rows for block in blocks.split())


_NEVER: Final = _table(
    ("unspecified", "0.0.0.0/8 ::/128"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("broadcast", "255.255.255.255/32"),
)
_NOT_PUBLIC: Final = _table(
    ("loopback", "127.0.0.0/8 ::1/128"),
    ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("shared by a provider's customers", "100.64.0.0/10"),
    ("a service of the cloud", "168.63.129.16/32"),
    ("for protocols", "192.0.0.0/24 192.88.99.0/24 2001::/23"),
    ("for measuring networks", "198.18.0.0/15"),
    ("for documents", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("reserved", "240.0.0.0/4"),
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")


def judge_address(address: _Address, allowed: Sequence[_Network], own: Sequence[_Network]) -> str:
    """Return why the address may not be reached, in a few words; empty where it may.

    `allowed`: what a rule lets pass besides public addresses; never an unspecified, multicast or
    broadcast one. `own`: this machine's addresses, and the networks that it is directly on.
    An address that holds IPv4 addresses is judged as each of these.
    """
    held = held_addresses(address)
    words = [_judge(each, allowed, own) for each in held or (address,)]
    if held and not _is_in(address, allowed):
        words.append(_judge_own(address, own))
    return next(filter(None, words), "")


def _judge(address: _Address, allowed: Sequence[_Network], own: Sequence[_Network]) -> str:
    for each in own:
        if each.version == 4 and each.prefixlen < 31 and address == each.broadcast_address:
            return "broadcast"
    never = _find(address, _NEVER)
    if never or _is_in(address, allowed):
        return never
    word = _find(address, _NOT_PUBLIC)
    if not word and isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "not public"
    return word or _judge_own(address, own)


def _judge_own(address: _Address, own: Sequence[_Network]) -> str:
    found = [each.num_addresses for each in own if address in each]
    if not found:
        return ""
    return "of this machine" if min(found) == 1 else "of a network that this machine is on"


def _find(address: _Address, table: _Table) -> str:
    return next((word for network, word in table if address in network), "")


def _is_in(address: _Address, networks: Sequence[_Network]) -> bool:
    return any(address in network for network in networks)
