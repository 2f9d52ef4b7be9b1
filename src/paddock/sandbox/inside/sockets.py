"""A private network: its loopback, and sockets made in it that are served from outside.

A socket belongs to the namespace that it was made in, whoever holds it. So what answers a command's
questions for names and its connections is made here, handed to the runtime, and closed here: there
is no link between this network and the host's, and nothing inside keeps a capability or a copy.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import struct

from paddock.kernel import mounts

NAME_SERVER = "127.0.0.53"
SYNTHETIC = ("198.18.0.0", 15)
"""Addresses that stand for names, of a range that is for tests of devices alone (RFC 2544)."""
OWN_ADDRESS = "198.18.0.1"
_BACKLOG = 128
_LO = 1
"""The number of the loopback, which is the first device of every network namespace."""
_INTERFACE_UP = 0x1 | 0x40
"""IFF_UP and IFF_RUNNING (linux/if.h)."""
_SET_INTERFACE_FLAGS = 0x8914
"""SIOCSIFFLAGS, one number on every machine (linux/sockios.h)."""

# rtnetlink(7): linux/netlink.h, linux/rtnetlink.h, linux/if_addr.h.
_ROUTE_MESSAGES = 0
_NEW_ADDRESS = 20
_NEW_ROUTE = 24
_REQUEST = 0x1 | 0x4 | 0x200 | 0x400
"""NLM_F_REQUEST, ACK, EXCL, CREATE."""
_ADDRESS, _LOCAL = 1, 2
_DESTINATION, _DEVICE = 1, 4
_LOCAL_TABLE = 255
_STATIC = 4
_SCOPE_HOST = 254
_LOCAL_ROUTE = 2
"""RTN_LOCAL: what is sent there arrives here."""


def raise_loopback() -> None:
    door = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    # struct ifreq: a name of 16 bytes, then a union of 24.
    fcntl.ioctl(door.fileno(), _SET_INTERFACE_FLAGS, struct.pack("16sh22x", b"lo", _INTERFACE_UP))
    door.close()


def open_network(literals: list[bytes]) -> list[int]:
    """Return descriptors: user and network namespace, the name server's socket.

    `literals`: further networks, as `ADDRESS/BITS`, that shall arrive here. Raises: OSError.
    """
    raise_loopback()
    door = _socket.socket(
        _socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _ROUTE_MESSAGES
    )
    # With an address besides 127.0.0.1 a resolver asks for addresses at all (AI_ADDRCONFIG).
    own = _socket.inet_aton(OWN_ADDRESS)
    _ask(
        door,
        _NEW_ADDRESS,
        struct.pack("=BBBBI", _socket.AF_INET, 32, 0, _SCOPE_HOST, _LO),
        ((_LOCAL, own), (_ADDRESS, own)),
    )
    for address, bits in (SYNTHETIC, *_networks(literals)):
        head = struct.pack(
            "=8BI", _socket.AF_INET, bits, 0, 0, _LOCAL_TABLE, _STATIC, _SCOPE_HOST, _LOCAL_ROUTE, 0
        )
        device = struct.pack("=I", _LO)
        _ask(
            door, _NEW_ROUTE, head, ((_DESTINATION, _socket.inet_aton(address)), (_DEVICE, device))
        )
    door.close()
    spaces = [
        os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("user", "net")
    ]
    questions = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    questions.bind((NAME_SERVER, 53))
    return [*spaces, questions.detach()]


def _networks(literals: list[bytes]) -> list[tuple[str, int]]:
    parts = (literal.decode("ascii").partition("/") for literal in literals)
    return [(address, int(bits)) for address, _, bits in parts]


def listen_at(address: str, port: int) -> int:
    """Listen without reuse of the address: nobody inside can take a share. Raises: OSError."""
    made = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    made.bind((address, port))
    made.listen(_BACKLOG)
    return made.detach()


def listen_within(user: int, network: int, wanted: bytes, reply: int) -> None:
    """Enter a sandbox's network for good, listen at each `ADDRESS PORT`, and send the sockets.

    The answer holds an errno for each, 0 where there is a socket. Called in a process of its own.
    """
    if os.geteuid() != 0:
        # The user that made a namespace has every capability in it; root has them already, and
        # would lose those on the host.
        mounts.enter_namespace(user, mounts.NEW_USER)
    mounts.enter_namespace(network, mounts.NEW_NETWORK)
    made: list[int] = []
    codes: list[int] = []
    for line in wanted.split(b"\n"):
        address, _, port = line.decode("ascii").partition(" ")
        try:
            made.append(listen_at(address, int(port)))
            codes.append(0)
        except OSError as error:
            codes.append(error.errno or errno.EIO)
    send_descriptors(reply, b" ".join(b"%d" % code for code in codes), made)


def send_descriptors(door: int, said: bytes, fds: list[int]) -> None:
    speaking = _socket.socket(fileno=door)
    try:
        rights = struct.pack(f"{len(fds)}i", *fds)
        speaking.sendmsg([said], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if fds else [])
    finally:
        speaking.detach()


def _ask(
    door: _socket.socket, kind: int, head: bytes, attributes: tuple[tuple[int, bytes], ...]
) -> None:
    body = head + b"".join(
        struct.pack("=HH", 4 + len(value), name) + value for name, value in attributes
    )
    # struct nlmsghdr: length, type, flags, sequence, port.
    door.sendall(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST, 1, 0) + body)
    # struct nlmsgerr behind it begins with the negative errno; EEXIST: as wanted already.
    (code,) = struct.unpack_from("=i", door.recv(4096), 16)
    if code not in (0, -errno.EEXIST):
        raise OSError(-code, os.strerror(-code))
