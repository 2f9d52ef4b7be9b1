"""Every attack of the list, for real: it reaches its goal without a sandbox, and not within.

Run as root and as a plain user: the list says what only root could do anyway.
"""

import ctypes
import functools
import json
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from tests.kernel.attacks import ATTACKS
from tests.support.disks import tree
from tests.support.sandboxes import PYTHON, Way, a_room, all_run, complained, once_a_way, said

pytestmark = [pytest.mark.needs("stage"), pytest.mark.loopback]

PROGRAM = Path(__file__).with_name("attacks.py")
LIBC = ctypes.CDLL(None, use_errno=True)
KEY = 0x50414444
VICTIM = """
import ctypes, sys, time
kept = open(sys.argv[1])
memory = ctypes.create_string_buffer(b"precious")
print(kept.fileno(), ctypes.addressof(memory), flush=True)
sys.stdin.read()
"""


class Found(Struct, dict=True):
    """What one attack came to."""

    reached: bool
    why: str


@contextmanager
def a_victim(outside: Path) -> Generator[dict, None, None]:
    with subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", VICTIM, str(outside / "secret")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=outside,
        env={"SECRET": "hunter2"},
    ) as victim:
        fd, address = victim.stdout.readline().split()
        yield {"victim": victim.pid, "victim_fd": int(fd), "victim_address": int(address)}


@contextmanager
def listeners(where: Path, readable: Path) -> Generator[dict, None, None]:
    """Servers of the host, on every kind of address."""
    with ExitStack() as stack:
        servers = {"tcp": socket.create_server(("127.0.0.1", 0))}
        if has_ipv6():
            servers["tcp6"] = socket.create_server(("::1", 0), family=socket.AF_INET6)
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        paths = {"socket": str(where / "daemon"), "readable_socket": str(readable / "daemon")}
        for name, address in (*paths.items(), ("abstract", f"paddock-{os.getpid()}")):
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(f"\0{address}" if name == "abstract" else address)
            server.listen()
        paths |= {"readable_datagrams": str(readable / "datagrams")}
        names = {"abstract_datagrams": f"\0paddock-datagrams-{os.getpid()}"}
        for address in (*paths.values(), *names.values()):
            if "datagrams" in address:
                receiver = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                receiver.bind(address)
        # For everybody: whoever the command is, it is not this that stops it.
        for path in paths.values():
            os.chmod(path, 0o777)
        ports = {name: stack.enter_context(each).getsockname()[1] for name, each in servers.items()}
        threading.Thread(target=_call_back, args=(servers["tcp"],), daemon=True).start()
        threading.Thread(target=_echo, args=(udp,), daemon=True).start()
        yield {
            "tcp6": 9,
            **ports,
            **paths,
            **{name: address[1:] for name, address in names.items()},
            "udp": udp.getsockname()[1],
            "abstract": f"paddock-{os.getpid()}",
        }


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _call_back(server: socket.socket) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            client.settimeout(1)
            try:
                port = client.recv(16)
                if port:
                    socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
            except OSError:
                continue


def _echo(server: socket.socket) -> None:
    while True:
        try:
            content, sender = server.recvfrom(16)
            server.sendto(content, sender)
        except OSError:
            return


@contextmanager
def shared_memory() -> Generator[dict, None, None]:
    segment = LIBC.shmget(KEY, 4096, 0o1000 | 0o600)
    queue = LIBC.msgget(KEY, 0o1000 | 0o600)
    name = f"/paddock-{os.getpid()}".encode()
    LIBC.mq_open.restype = ctypes.c_int
    posix = LIBC.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)
    try:
        yield {
            "segment": segment,
            "segment_key": KEY,
            "queue_key": KEY,
            "posix_queue": name[1:].decode(),
        }
    finally:
        LIBC.shmctl(segment, 0, None)
        LIBC.msgctl(queue, 0, None)
        LIBC.mq_unlink(name)
        os.close(posix)


@contextmanager
def a_key() -> Generator[dict, None, None]:
    """In the user's own keyring; where there are none, there is nothing to see."""
    name = f"paddock-key-{os.getpid()}"
    add, control = ((217, 219), (248, 250))[platform.machine() == "x86_64"]
    key = LIBC.syscall(add, b"user", name.encode(), b"x", 1, -4)
    try:
        yield {"key": name}
    finally:
        if key >= 0:
            LIBC.syscall(control, 9, key, -4)


@contextmanager
def a_world(home: Path) -> Generator[dict, None, None]:
    """All that there is to reach, and the file that says so."""
    outside, readable, workspace = home / "outside", home / "readable", home / "workspace"
    for folder in (outside, readable, workspace / "deep/down", home / "house/.ssh"):
        folder.mkdir(parents=True)
    (home / "house/.ssh/id").write_text("private key")
    for name in ("secret", "file", "linked", "shared"):
        (outside / name).write_text(f"old {name}")
    os.link(outside / "shared", workspace / "shared")
    (workspace / ".env").write_text("token")
    (workspace / "deep/down/.env").write_text("token")
    shutil.copy(PROGRAM, readable / "attacks.py")
    (readable / "leased").write_text("waited for")
    marked = {
        "shm": f"/dev/shm/paddock-{os.getpid()}",
        "tmp": f"{tempfile.gettempdir()}/paddock-{os.getpid()}",
    }
    with (
        a_victim(outside) as victim,
        listeners(workspace, readable) as sockets,
        shared_memory() as segments,
        a_key() as key,
    ):
        for path in marked.values():
            Path(path + ".mark").write_text("host")
        world = {"outside": str(outside), "readable": str(readable), "workspace": str(workspace)}
        world |= {"home": str(home / "house"), **marked, **victim, **sockets, **segments, **key}
        (readable / "world.json").write_text(json.dumps(world))
        try:
            yield world
        finally:
            for path in marked.values():
                for each in (path, path + ".mark"):
                    Path(each).unlink(missing_ok=True)


def command(world: dict) -> list[str]:
    return [
        PYTHON,
        "-I",
        "-S",
        f"{world['readable']}/attacks.py",
        f"{world['readable']}/world.json",
    ]


def parse(lines: str, outside: Path) -> dict[str, Found]:
    found = {}
    for line in lines.splitlines():
        row = json.loads(line)
        reached = row["reached"]
        effect = ATTACKS[row["name"]].effect
        if effect is not None:
            reached = (outside / effect[0]).read_text() == effect[1]
        found[row["name"]] = Found(reached, row["why"])
    return found


@functools.cache
def without() -> dict[str, Found]:
    """Each attack with nothing in its way."""
    with tempfile.TemporaryDirectory() as home, a_world(Path(home)) as world:
        leaked = os.open(world["outside"], os.O_RDONLY)
        ran = subprocess.run(
            command(world),
            capture_output=True,
            text=True,
            pass_fds=(leaked,),
            env={"SECRET": "hunter2", "PATH": "/usr/bin:/bin"},
            check=True,
        )
        os.close(leaked)
        return parse(ran.stdout, Path(world["outside"]))


@once_a_way
def within() -> dict[str, Found]:
    """Each attack in a sandbox; the place outside stays byte for byte what it was."""
    os.environ["SECRET"] = "hunter2"
    with tempfile.TemporaryDirectory() as home, a_world(Path(home)) as world:
        leaked = os.open(world["outside"], os.O_RDONLY)
        os.set_inheritable(leaked, True)
        before = tree(Path(world["outside"])), sorted(os.listdir(world["readable"]))
        with a_room(Path(home)) as room:
            room.readable = (world["readable"],)
            room.hidden = (".env", "deep/down/.env")
            end = room.run(*command(world))
        os.close(leaked)
        assert (tree(Path(world["outside"])), sorted(os.listdir(world["readable"]))) == before
        assert not (Path(world["workspace"]) / "link-to-file").exists()
        assert not Path(world["shm"]).exists()
        assert end.exit_code == 0, complained(end)
        return parse(said(end), Path(world["outside"]))


def test_the_list_is_numbered_and_was_tried_whole(capsys):
    tried = within()
    with capsys.disabled():
        reached = sum(found.reached for found in without().values())
        print(f"\n{len(tried)} attacks tried, {reached} reach their goal without a sandbox")

    assert [attack.number for attack in ATTACKS.values()] == [*range(1, len(ATTACKS) + 1)]
    assert list(tried) == list(ATTACKS)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_that_works_without_a_sandbox_does_not_work_within(name: str, way: Way):
    with all_run(way):
        free, held = without()[name], within()[name]

    assert not held.reached, held
    if ATTACKS[name].works_for == "root":
        assert free.reached == (os.geteuid() == 0), free
