"""Programs that people use reach test servers by name, each by its own client and its own way."""

import http.server
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.support.networks import a_proxy, a_server
from tests.support.postgres import OWNER, running_server
from tests.support.shells import Yard

pytestmark = [
    pytest.mark.needs("stage"),
    pytest.mark.needs("bash"),
    pytest.mark.needs("git"),
    pytest.mark.loopback,
]

POLICY = """
[profiles.standard]
extends = "standard"
allow = ["tool:shell:*", "tool:net:connect *.example.org:22,80,443,5432"]
"""
LINE = "whom it may concern\n"


@contextmanager
def a_yard(base: Path, ports: dict[str, int]) -> Generator[Yard]:
    """A project whose host goes out through a proxy that knows these `HOST:PORT`."""
    with a_server(a_proxy(ports)) as proxy:
        yield Yard(base, POLICY, {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}).make()


def run(yard: Yard, line: str) -> dict[str, Any]:
    with yard.opened() as terminal:
        return terminal.run(line)


@contextmanager
def a_site(root: Path, certificate: Path | None = None) -> Generator[int]:
    """The files of a directory over HTTP, or HTTPS with a certificate and its key in one file."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(root))

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def certify(host: str, into: Path) -> Path:
    """A certificate that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, SHA256())
    )
    into.write_bytes(
        made.public_bytes(Encoding.PEM)
        + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return into


def make_repository(at: Path) -> None:
    at.mkdir()
    (at / "letter.txt").write_text(LINE)
    for line in (
        "init -q -b main",
        "add letter.txt",
        "-c user.name=U -c user.email=u@example.org commit -q -m letter",
        "update-server-info",
    ):
        subprocess.run(["git", *line.split()], cwd=at, check=True)


def test_git_clones_over_https(tmp_path: Path):
    make_repository(tmp_path / "letters")
    certificate = certify("git.example.org", tmp_path / "server.pem")
    with (
        a_site(tmp_path / "letters" / ".git", certificate) as port,
        a_yard(tmp_path / "yard", {"git.example.org:443": port}) as yard,
    ):
        shutil.copy(certificate, yard.root / "authority.crt")
        said = run(
            yard,
            "GIT_SSL_CAINFO=$PWD/authority.crt git clone -q https://git.example.org/ copy"
            " && cat copy/letter.txt",
        )

    assert said["stdout"] == LINE, said["stderr"]
    assert said["network"]["refused"] == []


@contextmanager
def an_ssh_server(folder: Path) -> Generator[int]:
    """Of this user, for whoever has the key `folder/user`; its own key is `folder/host`."""
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    if os.geteuid() == 0:
        # Where sshd, started by root, has its unprivileged part stand: the service makes it.
        Path("/run/sshd").mkdir(exist_ok=True)
    with ExitStack() as held:

        def serve(client: Any) -> None:
            # As inetd does: a server for each connection, on its descriptor.
            options = (
                f"HostKey={folder / 'host'}",
                f"AuthorizedKeysFile={folder / 'user.pub'}",
                "StrictModes=no",
                "UsePAM=no",
            )
            words = [word for option in options for word in ("-o", option)]
            subprocess.run(
                [str(shutil.which("sshd", path=SSHD_PATH)), "-i", "-f", "/dev/null", *words],
                stdin=client.fileno(),
                stdout=client.fileno(),
                stderr=subprocess.DEVNULL,
                check=False,
            )

        yield held.enter_context(a_server(serve))


SSHD_PATH = f"{os.environ['PATH']}:/usr/sbin"


@pytest.mark.needs("sshd")
def test_git_clones_over_ssh_from_a_host_that_the_user_knows(tmp_path: Path):
    make_repository(tmp_path / "letters")
    with (
        an_ssh_server(tmp_path) as port,
        a_yard(tmp_path / "yard", {"git.example.org:22": port}) as yard,
    ):
        shutil.copy(tmp_path / "user", yard.root / "deploy_key")
        clone = (
            "rm -rf copy; chmod 600 deploy_key; GIT_SSH_COMMAND='ssh -i deploy_key' "
            f"git clone -q ssh://$(id -un)@git.example.org{tmp_path}/letters copy"
            " && cat copy/letter.txt"
        )
        unknown = run(yard, clone)
        (yard.home / ".ssh").mkdir()
        key = (tmp_path / "host.pub").read_text()
        (yard.home / ".ssh/known_hosts").write_text(f"git.example.org {key}")
        known = run(yard, clone)

    assert "Host key verification failed" in unknown["stderr"]
    assert known["stdout"] == LINE, known["stderr"]


@pytest.mark.needs("postgresql")
def test_psql_asks_a_database(tmp_path: Path):
    with (
        running_server(port := free_port()),
        a_yard(tmp_path, {"db.example.org:5432": port}) as yard,
    ):
        said = run(yard, f"psql -h db.example.org -U {OWNER} -Atc 'SELECT 6 * 7' postgres")

    assert said["stdout"] == "42\n", said["stderr"]


def free_port() -> int:
    with a_server(lambda client: None) as port:
        return port


JAVA = """
import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
        var handler = HttpResponse.BodyHandlers.ofString();
        System.out.print(HttpClient.newHttpClient().send(request, handler).body());
    }
}
"""
NODE = "fetch(process.argv[1]).then(a => a.text()).then(t => process.stdout.write(t))"
PYTHON = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode(), end='')"


@pytest.mark.parametrize(
    ("program", "line"),
    [
        pytest.param("java", "java Fetch.java {0}", marks=pytest.mark.needs("java")),
        pytest.param("node", f'node -e "{NODE}" {{0}}', marks=pytest.mark.needs("node")),
        pytest.param("python3", f'python3 -c "{PYTHON}" {{0}}'),
    ],
)
def test_a_language_reads_a_page_by_its_own_client(tmp_path: Path, program: str, line: str):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/letter.txt").write_text(LINE)
    with (
        a_site(tmp_path / "site") as port,
        a_yard(tmp_path / "yard", {"web.example.org:80": port}) as yard,
    ):
        (yard.root / "Fetch.java").write_text(JAVA)
        said = run(yard, line.format("http://web.example.org/letter.txt"))

    assert said["stdout"] == LINE, said["stderr"]
    assert said["network"] == {"connections": 1, "refused": [], "not_listed": 0}


HOSTS_POLICY = """
[profiles.standard]
extends = "standard"
allow = ["tool:shell:*"]

[[profiles.standard.rules]]
action = "tool:net:connect shop.example.org:PORT"
outcome = "allow"
addresses = ["127.0.0.0/8"]
"""


@pytest.mark.needs("root")
@pytest.mark.needs("curl")
def test_a_name_that_only_the_hosts_file_knows_leads_where_that_says(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "letter").write_text(LINE)
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost shop.example.org\n")
    with a_site(tmp_path / "site") as port:
        yard = Yard(tmp_path / "yard", HOSTS_POLICY.replace("PORT", str(port))).make()
        line = f"curl -sS http://shop.example.org:{port}/letter"
        call = "import sys; from paddock.apps.cli.entry import console; sys.exit(console())"
        done = subprocess.run(
            [
                *(
                    "unshare",
                    "--mount",
                    "sh",
                    "-c",
                    f'mount --bind {hosts} /etc/hosts && exec "$@"',
                    "sh",
                ),
                *(sys.executable, "-c", call, "call", "run_shell", f"command={line}", "--json"),
            ],
            cwd=yard.root,
            env={**yard.all_variables, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert '"stdout": "whom it may concern\\n"' in done.stdout, done.stdout + done.stderr
