"""A package registry and a git server that a host reaches by name, over TLS, through its proxy."""

import http.server
import subprocess
import sys
import threading
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddock.network.requests import Authority
from tests.support.networks import a_proxy, a_server

TOKEN = "of-nobody-at-all"
_HOSTS = ("packages.example.org", "files.example.org", "git.example.org")
_WHEEL = "gadgets-1.0-py3-none-any.whl"
_PAGES = {
    "simple/index.html": '<a href="gadgets/">gadgets</a>\n',
    "simple/gadgets/index.html": f'<a href="https://files.example.org/{_WHEEL}">{_WHEEL}</a>\n',
}
_MODULES = {
    "gadgets.py": "SIZE = 7\n",
    "gadgets-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: gadgets\nVersion: 1.0\n",
    "gadgets-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


@contextmanager
def a_registry(site: Path, home: Path, project: Path) -> Generator[dict[str, str]]:
    """Serve `gadgets` and two repositories; the variables by which a host goes there.

    pip of that home has the index for its own, the project has an environment and a remote there,
    and programs in it believe the registry's authority. `private.git` is for who has `TOKEN`.
    """
    authority = Authority(datetime.now(UTC))
    trusted = project / ".venv" / "authority.pem"
    _fill(site)
    _use_index(home, project, trusted, authority.pem)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(site))

        def do_GET(self) -> None:
            if "/private.git" in self.path and self.headers["Authorization"] != f"Bearer {TOKEN}":
                self.send_error(403)
            else:
                super().do_GET()

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context = authority.serving("*.example.org")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = {f"{host}:443": server.server_address[1] for host in _HOSTS}
        with a_server(a_proxy(ports)) as proxy:
            yield {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}", "SSL_CERT_FILE": str(trusted)}
        server.shutdown()


def _fill(site: Path) -> None:
    for name, text in _PAGES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    with zipfile.ZipFile(site / _WHEEL, "w") as wheel:
        for name, text in _MODULES.items():
            wheel.writestr(name, text)
        record = "".join(f"{name},,\n" for name in (*_MODULES, "gadgets-1.0.dist-info/RECORD"))
        wheel.writestr("gadgets-1.0.dist-info/RECORD", record)
    repository = site / "letters.git"
    identity = ("-c", "user.name=U", "-c", "user.email=u@example.org")
    for words in (
        ("init", "-q", "-b", "main", "."),
        (*identity, "commit", "-q", "--allow-empty", "-m", "letter"),
        ("update-server-info",),
    ):
        repository.mkdir(exist_ok=True)
        subprocess.run(["git", *words], cwd=repository, check=True)
    (repository / ".git").rename(site / "bare")
    repository.rmdir()
    (site / "bare").rename(repository)
    (site / "private.git").symlink_to(repository)


def _use_index(home: Path, project: Path, trusted: Path, pem: str) -> None:
    (home / ".config/pip").mkdir(parents=True)
    index = "[global]\nindex-url = https://packages.example.org/simple\n"
    (home / ".config/pip/pip.conf").write_text(index)
    subprocess.run([sys.executable, "-m", "venv", str(trusted.parent)], check=True)
    trusted.write_text(pem)
    (trusted.parent / "pip.conf").write_text(f"[global]\ncert = {trusted}\n")
    for words in (
        ("config", "http.sslCAInfo", str(trusted)),
        ("remote", "add", "origin", "https://git.example.org/letters.git"),
    ):
        subprocess.run(["git", *words], cwd=project, check=True)
