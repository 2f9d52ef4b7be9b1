"""Sockets with a path: those that a command makes work, those of the host are out of reach."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.sandbox import launcher
from tests.support.shells import OPEN, Terminal, a_terminal

pytestmark = pytest.mark.needs("stage")

BOTH_ENDS = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); c.send(b"through")
print(s.accept()[0].recv(9)); os.unlink(sys.argv[1])
"""
MANAGER = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Manager() as made: print(made.list(["through"]))
"""
NODE = """
const net = require("net"), s = net.createServer(c => c.end("through"));
s.listen(process.argv[2], () => net.connect(process.argv[2]).on("data", d => { console.log(`${d}`); s.close() }));
"""
CONNECT = """
import socket, sys
for kind in (1, 2):
    try: socket.socket(socket.AF_UNIX, kind).connect(sys.argv[1]); print("reached")
    except OSError as e: print(e.errno)
"""
FILES = {"both.py": BOTH_ENDS, "manager.py": MANAGER, "net.js": NODE, "connect.py": CONNECT}


@pytest.fixture
def terminal(tmp_path: Path) -> Generator[Terminal, None, None]:
    with a_terminal(tmp_path) as made:
        made.yard.write(FILES)
        yield made


@contextmanager
def a_daemon(address: str, below: Path) -> Generator[None, None, None]:
    """A server of the host, of both kinds; its path is longer than an address may be."""
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as stream:
        os.chdir(below)
        try:
            stream.bind(address)
        finally:
            os.chdir(here)
        stream.listen()
        if not address.startswith("\0"):
            (below / address).chmod(0o777)
        yield


WORK = {
    "private /tmp": "python3 both.py /tmp/s",
    "the layer": "python3 both.py ./s",
    "a new directory": "mkdir -p a/b && python3 both.py a/b/s; rm -r a",
    "home": "python3 both.py ~/s",
    "multiprocessing.Manager": "python3 manager.py",
    "an abstract name": "python3 - <<'X'\nimport socket\ns = socket.socket(1); s.bind('\\0s'); s.listen(); socket.socket(1).connect('\\0s'); print('through')\nX",
    "node": "node net.js /tmp/n",
}


@pytest.mark.parametrize("network", ["none", "loopback"])
@pytest.mark.parametrize("name", WORK)
def test_a_socket_of_the_commands_own_works(tmp_path: Path, name: str, network: str):
    with a_terminal(tmp_path, f'[shell]\nnetwork = "{network}"\n{OPEN}') as terminal:
        terminal.yard.write(FILES)
        if name == "node" and terminal.run("command -v node")["exit_code"]:
            pytest.skip("no node here")
        said = terminal.run(WORK[name])
        assert "through" in said["stdout"], said
        assert (said["files_changed"], said["changes_refused"]) == ([], [])


def test_a_socket_that_is_left_behind_does_not_land(terminal: Terminal):
    said = terminal.run("python3 -c \"import socket; socket.socket(1).bind('left')\"; echo x > n")
    assert said["files_changed"] == ["n"]
    assert said["changes_refused"] == [
        {"path": "left", "rule": "'left' is a FIFO, socket or device"}
    ]


TRICKS = {
    "as it stands": "python3 connect.py daemon",
    "linked": "ln daemon d2; python3 connect.py d2",
    "renamed": "mv daemon d2; python3 connect.py d2",
    "opened": "chmod 777 daemon; python3 connect.py daemon",
    "by a symbolic link": "ln -s daemon d2; python3 connect.py d2",
    "through /proc": "exec 9<.; python3 connect.py /proc/self/fd/9/daemon",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_daemon_that_listens_in_the_workspace_is_out_of_reach(terminal: Terminal, trick: str):
    with a_daemon("daemon", terminal.yard.root):
        said = terminal.run(TRICKS[trick])
    assert "reached" not in said["stdout"], said
    assert said["stdout"].count("\n") == 2, said


@pytest.mark.parametrize("kind", ["read", "write"])
def test_where_policy_opens_a_directory_there_are_no_sockets(tmp_path: Path, kind: str):
    opened = tmp_path / "opened"
    opened.mkdir()
    more = '"/usr", "/bin", "/lib", "/lib64", ' if kind == "read" else ""
    with a_terminal(tmp_path, f'[shell]\n{kind} = [{more}"{opened}"]\n{OPEN}') as terminal:
        terminal.yard.write(FILES)
        with a_daemon("daemon", opened):
            said = terminal.run(f"python3 connect.py {opened}/daemon; python3 both.py /tmp/s")
    assert said["stdout"] == "1\n1\n", said


@pytest.mark.loopback
def test_on_the_hosts_network_there_are_no_sockets_and_so_no_abstract_names(tmp_path: Path):
    with a_terminal(tmp_path, f'[shell]\nnetwork = "host"\n{OPEN}') as terminal:
        terminal.yard.write(FILES)
        with a_daemon("\0paddock-daemon", tmp_path):
            said = terminal.run(
                "python3 -c \"import socket; socket.socket(1).connect('\\\\0paddock-daemon')\""
            )
    assert "Operation not permitted" in said["stderr"], said


def test_no_sockets_where_one_of_the_host_stands_in_a_readable_place(tmp_path: Path):
    asked = launcher._is_listened_in
    place = Path(os.path.realpath(tmp_path))
    assert not asked((str(place),))
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place / "s"))
        assert asked((str(place),))
        assert asked((str(place / "s"),))
        assert not asked((str(place / "other"), "/usr"))
