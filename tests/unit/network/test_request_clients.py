"""Real programs against TLS that is ended in between: they notice nothing, and get what is allowed."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.network.credentials import Credential
from paddock.policy.settings import CredentialSettings
from tests.support.tls_ends import Ended, Host, Replies, Rules

pytestmark = pytest.mark.loopback

VALUE = "tok-3n7XQ9vLr2JmKc8Wd5Zy"
ECHO = json.dumps({"you": VALUE}).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ECHO), ECHO)


def run(command: Sequence[str], ended: Ended, tmp_path: Path, own: Credential) -> str:
    """What a program prints that has the authority and the placeholder in its environment."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ended.authority.pem)
    names = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    told = {name: str(bundle) for name in names} | {own.variable: own.placeholder}
    done = subprocess.run(
        command, env=os.environ | told, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PYTHON = """
import os, sys, urllib.error, urllib.request
def ask(method, data=None):
    asked = urllib.request.Request(sys.argv[1], data, method=method)
    asked.add_header("Authorization", "Bearer " + os.environ["ISSUES_TOKEN"])
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.status, ""
print(*ask("GET"))
print(*ask("POST", b"x" * 300_000))
print(*ask("DELETE"))
"""
NODE = """
const ask = async (method, body) => {
  const headers = {authorization: "Bearer " + process.env.ISSUES_TOKEN};
  const answer = await fetch(process.argv[1], {method, headers, body});
  const text = await answer.text();
  console.log(answer.status, answer.ok ? text : "");
};
(async () => { await ask("GET"); await ask("POST", "x".repeat(300000)); await ask("DELETE"); })();
"""
CURL = """
for method in GET POST DELETE; do
  case $method in POST) head -c 300000 /dev/zero >"$2"; set -- "$1" "$2" --data-binary "@$2";; esac
  code=$(curl -sS -X $method -H "Authorization: Bearer $ISSUES_TOKEN" -o "$2.out" \\
    -w '%{http_code}' ${3:+"$3" "$4"} "$1")
  set -- "$1" "$2"
  case $code in 200) echo "$code $(cat "$2.out")";; *) echo "$code ";; esac
done
"""


@pytest.mark.parametrize(
    "program",
    [
        "python",
        pytest.param("node", marks=pytest.mark.needs("node")),
        pytest.param("curl", marks=pytest.mark.needs("curl")),
    ],
)
def test_a_program_of_the_field_works_with_its_placeholder(program: str, tmp_path: Path):
    replies, gate, known = Replies(OK), Rules(denied=("DELETE",)), []
    with Host(replies) as host, Ended(host, gate, known, port=-1) as ended:
        of_user = CredentialSettings("issues", (("localhost", ended.port),), "ISSUES_TOKEN")
        own = Credential(of_user, VALUE, os.urandom)
        known.append(own)
        address = f"https://localhost:{ended.port}/a"
        command = {
            "python": (sys.executable, "-c", PYTHON, address),
            "node": ("node", "-e", NODE, address),
            "curl": ("sh", "-c", CURL, "sh", address, str(tmp_path / "body")),
        }[program]
        said = run(command, ended, tmp_path, own)

    told = json.dumps({"you": own.placeholder})
    assert said.splitlines() == [f"200 {told}", f"200 {told}", "403 "]
    assert gate.judged == [("GET", "/a"), ("POST", "/a"), ("DELETE", "/a")]
    assert [each.lower().count(f"bearer {VALUE}".lower().encode()) for each in replies.heard] == [
        1,
        1,
    ]
    assert len(replies.heard[1].partition(b"\r\n\r\n")[2]) == 300_000
    assert [each for each in replies.heard if own.placeholder.encode() in each] == []


LINES = (
    b"GET /a HTTP/1.1\r\n",
    b"POST /b HTTP/1.1\r\n",
    b"GET https://localhost/c HTTP/1.1\r\n",
    b"GET /d HTTP/1.0\r\n",
    b"Host: localhost\r\n",
    b"Host: localhost\r\n",
    b"Host: other\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Connection: close\r\n",
    b"Connection: content-length, host\r\n",
    b"Expect: 100-continue\r\n",
    b" folded\r\n",
    b"\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"hello",
    b"5\r\nhello\r\n",
    b"5;x\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
)
WHOLE = b"GET /e HTTP/1.1\r\nHost: localhost\r\n\r\n"


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_whatever_is_said_the_host_hears_only_requests_that_were_judged(lines: list[bytes]):
    replies, gate = Replies(OK), Rules()
    with Host(replies) as host, Ended(host, gate, head_s=20) as ended:
        ended.say(b"".join(lines) + WHOLE, half_closed=True)

    heard = [tuple(each.decode().split(" ")[:2]) for each in replies.heard]
    assert heard == gate.judged[: len(heard)]


PARTS = (
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 99 x\r\n",
    b"HTTP/1.1 204 No\r\n",
    b"HTTP/1.1 304 Same\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 50\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Connection: close, content-length\r\n",
    b"X: \xff\x01\r\n",
    b" folded\r\n",
    b"\r\n",
    b"\r\n",
    b"\n",
    b"hello",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: 1\r\n\r\n",
)


@given(st.lists(st.sampled_from(PARTS), max_size=10), st.sampled_from([b"GET", b"HEAD"]))
def test_whatever_a_host_answers_it_is_one_answer_or_none(parts: list[bytes], method: bytes):
    def answering(tls):
        tls.recv(65536)
        tls.sendall(b"".join(parts))
        tls.shutdown(2)

    gate = Rules()
    with Host(answering) as host, Ended(host, gate) as ended:
        reply = ended.say(method + b" / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "localhost")]))
    client.send(h11.EndOfMessage())
    client.receive_data(reply.removesuffix(b"<reset>").removesuffix(b"<cut>"))
    event = client.next_event()
    while event not in (h11.NEED_DATA, h11.PAUSED) and not isinstance(event, h11.EndOfMessage):
        event = client.next_event()
    assert client.trailing_data[0] == b"" or event is h11.NEED_DATA
    assert (gate.told == []) is (not reply.endswith((b"<reset>", b"<cut>")) and b"502" not in reply)
