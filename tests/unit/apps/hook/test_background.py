"""A client's background command, started as its shell starts it: it meets the others of its session."""

import os
import signal
import socket
import socketserver
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.apps.hook.test_wrapped import STANDARD, Shell, opened_shell

pytestmark = pytest.mark.needs("stage")

ONE, OTHER = "1" * 32, "2" * 32
"""Sessions: `of` gives the option that names one to a command."""
SERVER = "exec python3 -u -m http.server 8123"
"""What it prints on its standard error tells when it can be reached, and what was asked for."""
FETCH = (
    "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://localhost:8123/{}\").status)'"
)


@pytest.fixture
def shell() -> Generator[Shell]:
    with opened_shell() as made:
        yield made


def of(shell: Shell, session: str) -> str:
    return f"--session={shell.client.place.base}/sessions/{session}"


def meeting_place(shell: Shell, session: str = ONE) -> Path:
    return Path(of(shell, session).partition("=")[2])


@contextmanager
def background(
    shell: Shell, command: str, *options: str, session: str = ONE
) -> Generator[subprocess.Popen[str]]:
    """It runs in the background, and has said that it is ready; killed where a test leaves it."""
    # Of two sessions the last one counts.
    given = ("--background", of(shell, session), *options)
    with shell.started(command, *given) as running:
        try:
            yield running
        finally:
            running.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def stopped(running: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """What it said on its standard error, until a signal of its client had ended it."""
    running.send_signal(number)
    return running.communicate()[1]


def test_a_server_is_met_by_a_later_command_of_its_session_and_by_no_other(shell: Shell):
    with background(shell, SERVER) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("Serving HTTP")
        met = shell.run(FETCH.format("README.md"), of(shell, ONE))
        other = shell.run(FETCH.format("README.md"), of(shell, OTHER))
        none = shell.run(FETCH.format("README.md"))
        said = stopped(server)

    assert (met.stdout, met.stderr, met.returncode) == ("200\n", "", 0)
    assert not meeting_place(shell).exists()
    assert [each.returncode for each in (other, none)] == [1, 1]
    assert "Connection refused" in other.stderr
    assert said.count("GET /README.md") == 1
    assert server.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_a_stopped_one_changed_lands_is_on_record_and_can_be_undone(number: int, shell: Shell):
    command = "echo x > made; touch .env.local; echo written; exec sleep 1000"
    with background(shell, command, "--call=toolu_1") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "written\n"
        said = stopped(running, number)

    assert running.returncode == 128 + signal.SIGTERM
    assert said.startswith("paddock: policy refused the change of .env.local")
    assert (shell.project / "made").read_text() == "x\n"
    assert not (shell.project / ".env.local").exists()
    calls = [
        (row.event_type, row.call_id)
        for kind in ("TOOL_INTENT", "TOOL_RESULT")
        for row in shell.client.entries(kind)
        if row.metadata.get("client_call") == "toolu_1"
    ]
    call_id = calls[0][1]
    assert calls == [("TOOL_INTENT", call_id), ("TOOL_RESULT", call_id)]
    assert shell.client.place.run("undo", call_id).status == 0
    assert not (shell.project / "made").exists()


def test_one_that_does_not_listen_is_killed_and_what_it_changed_lands(shell: Shell):
    deaf = "trap '' TERM; echo x > made; echo deaf; while :; do sleep 1000; done"
    with background(shell, deaf) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "deaf\n"
        stopped(running)

    assert running.returncode == 128 + signal.SIGKILL
    assert (shell.project / "made").read_text() == "x\n"


def test_one_that_ends_by_itself_has_its_own_status_and_its_changes_land(shell: Shell):
    ran = shell.run("echo x > made; exit 3", "--background", of(shell, ONE))

    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 3)
    assert (shell.project / "made").read_text() == "x\n"


@pytest.mark.parametrize("option", ["--shell", "--client"])
def test_one_ends_with_its_clients_shell_and_with_its_client(option: str, shell: Shell):
    with subprocess.Popen(["/bin/sleep", "1000"]) as parent:
        command = "echo x > made; echo written; exec sleep 1000"
        with background(shell, command, f"{option}={parent.pid}") as ended:
            assert ended.stdout is not None
            assert ended.stdout.readline() == "written\n"
            parent.kill()
            ended.communicate()

    assert ended.returncode == 128 + signal.SIGTERM
    assert (shell.project / "made").read_text() == "x\n"


def test_what_a_killed_one_changed_is_dropped_and_the_next_command_says_so(shell: Shell):
    with background(shell, "echo x > made; exec sleep 1000") as running:
        running.kill()
        out, _ = running.communicate()
    said = [shell.run("true", of(shell, ONE)).stderr for _ in range(2)]

    assert out == ""
    assert not (shell.project / "made").exists()
    killed = "a background command was killed: its changes since it began were discarded"
    assert said == [f"paddock: {killed}\n", ""]


def test_commands_meet_as_long_as_one_in_the_background_lives(shell: Shell):
    """The first one held the network that the second one serves in, and a third meets both."""
    with background(shell, "exec sleep 1000") as first, background(shell, SERVER) as second:
        assert second.stdout is not None
        assert second.stdout.readline().startswith("Serving HTTP")
        stopped(first)
        again = shell.run(FETCH.format("README.md"), of(shell, ONE))
        with background(shell, f"{FETCH.format('README.md')}; exec sleep 1000") as third:
            assert third.stdout is not None
            assert third.stdout.readline() == "200\n"
            second.kill()
            second.wait()
            gone = shell.run(FETCH.format("README.md"), of(shell, ONE))

    assert (again.stdout, again.stderr) == ("200\n", "")
    assert gone.returncode == 1
    assert "Connection refused" in gone.stderr


def test_two_that_start_at_once_meet(shell: Shell):
    asked = FETCH.format("README.md")
    until_met = f"until {asked} 2>/dev/null; do sleep 0.05; done"
    with (
        subprocess.Popen(
            shell.arguments(SERVER, "--background", of(shell, ONE)),
            cwd=shell.project,
            env=shell.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server,
        background(shell, f"{until_met}; exec sleep 1000") as client,
    ):
        assert client.stdout is not None
        assert client.stdout.readline() == "200\n"
        server.kill()


REACHES = """
[profiles.standard]
allow = ["tool:file:*", "tool:shell:*", "tool:net:connect *.example.org:8080"]
"""
ASK = r"""python3 -c '
import socket, sys
made = socket.create_connection(("{}", 8080), 10)
made.sendall(b"hello\n")
print(made.recv(100).decode().strip(), flush=True)
'"""


class Proxy(socketserver.BaseRequestHandler):
    """The user's proxy: every name leads to an echo."""

    def handle(self) -> None:
        asked = self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        said = self.request.recv(1000)
        self.request.sendall(asked.split()[1] + b" " + said)


@pytest.fixture
def reaching(shell: Shell) -> Iterator[Shell]:
    shell.client.write_policy(REACHES)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        shell.client.variables["HTTPS_PROXY"] = f"http://127.0.0.1:{proxy.server_address[1]}"
        yield shell
        proxy.shutdown()


@pytest.mark.loopback
def test_each_command_decides_and_records_its_own_connections(reaching: Shell):
    asks = "getent hosts nobody.example.com"
    with background(reaching, f"{ASK.format('a.example.org')}; {SERVER}", "--call=one") as server:
        assert line(server) == "a.example.org:8080 hello\n"
        assert line(server).startswith("Serving HTTP")
        inside = f"{ASK.format('b.example.org')}; {FETCH.format('README.md')}; {asks}"
        ran = reaching.run(inside, of(reaching, ONE), "--call=two")
        with background(
            reaching, f"{ASK.format('c.example.org')}; cat; sleep 1000", "--call=three"
        ) as other:
            assert line(other) == "c.example.org:8080 hello\n"
            server.kill()
            server.wait()
            last = reaching.run(ASK.format("d.example.org"), of(reaching, ONE), "--call=four")

    assert (ran.stdout, ran.returncode) == ("b.example.org:8080 hello\n200\n", 2)
    assert "nobody.example.com" in ran.stderr
    assert last.stdout == "d.example.org:8080 hello\n"
    opened = [
        (row.metadata["client_call"], row.metadata["host"])
        for row in reaching.client.entries("NET_CONNECT")
    ]
    assert opened == [
        ("one", "a.example.org"),
        ("two", "b.example.org"),
        ("three", "c.example.org"),
        ("four", "d.example.org"),
    ]
    (refused,) = reaching.client.entries("NET_REFUSED")
    assert refused.metadata["client_call"] == "two"


def told(shell: Shell, tool: str, path: Path | str, session_id: str = "SES-1") -> bytes:
    """What the hook answers after its client's own tool has changed a file: nothing."""
    fields = {"tool_input": {"file_path": str(path)}, "tool_response": {}}
    event = shell.client.event(tool, hook_event_name="PostToolUse", session_id=session_id, **fields)
    return shell.client.say(event).raw


def clients(shell: Shell) -> str:
    """The session that the hook's events name, as the hook names it to commands."""
    (ho2,) = (shell.client.place.home / ".local/state/paddock/planes").glob("*/HO2")
    return f"{ho2}/scratch/hook-sessions/{sha256(b'SES-1').hexdigest()[:32]}"


WATCH = r"""
import ctypes, os
libc = ctypes.CDLL(None)
heard = libc.inotify_init()
libc.inotify_add_watch(heard, b".", 0x80 | 0x200)  # IN_MOVED_TO, IN_DELETE
print(open("page.html").read().strip(), flush=True)
while True:
    said = os.read(heard, 4096).replace(b"\0", b" ")
    if b"page.html" in said:
        found = open("page.html").read().strip() if os.path.exists("page.html") else "gone"
        print(found, flush=True)
    if b".env" in said and os.path.exists(".env"):
        print("a secret", flush=True)
"""


def test_a_watcher_hears_what_its_client_and_other_commands_change(shell: Shell):
    page = shell.project / "page.html"
    page.write_text("first\n")
    (shell.project / "watch.py").write_text(WATCH)
    session = f"--session={clients(shell)}"
    with background(shell, "exec python3 watch.py", session) as watcher:
        assert line(watcher) == "first\n"
        # As the client writes: a new file in the place of the old one.
        (shell.project / "new").write_text("second\n")
        (shell.project / "new").rename(page)
        (shell.project / ".env").write_text("SECRET=1\n")
        assert told(shell, "Edit", shell.project / ".env") == told(shell, "Edit", page) == b""
        assert line(watcher) == "second\n"
        assert shell.run("echo third > page.html", session).returncode == 0
        assert line(watcher) == "third\n"
        page.unlink()
        told(shell, "Write", f"{shell.project}/src/../page.html")
        assert line(watcher) == "gone\n"
        assert stopped(watcher) == ""

    assert not page.exists()


def test_what_both_change_is_a_conflict_and_the_clients_stays(shell: Shell):
    page = shell.project / "page.html"
    page.write_text("first\n")
    session = f"--session={clients(shell)}"
    command = "echo mine > page.html; echo x > made; echo written; exec sleep 1000"
    with background(shell, command, session) as running:
        assert line(running) == "written\n"
        page.write_text("theirs\n")
        told(shell, "Edit", page)
        said = stopped(running)

    assert said.startswith("paddock: NOTHING WAS KEPT: ")
    assert "page.html" in said
    assert page.read_text() == "theirs\n"
    assert not (shell.project / "made").exists()


def test_messages_that_are_none_and_paths_that_lead_away_change_nothing(shell: Shell):
    (shell.project / "away").symlink_to(shell.client.place.outside)
    (shell.project / "watch.py").write_text(WATCH)
    (shell.project / "page.html").write_text("first\n")
    with background(shell, "exec python3 watch.py") as watcher:
        assert line(watcher) == "first\n"
        (name,) = os.listdir(meeting_place(shell))
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
            open(os.devnull, "rb") as no_socket,
        ):
            sender.connect(f"{meeting_place(shell)}/{name}")
            for path in ("/etc/passwd", "..", f"{shell.project}/../x", f"{shell.project}/away/x",
                         "", "\udcff", f"{shell.project}", "x" * 5000):  # fmt: skip
                sender.send(b"changed\0" + os.fsencode(path))
            for message in (b"", b"changed", b"join", b"\0" * 100, os.urandom(500)):
                sender.send(message)
            socket.send_fds(sender, [b"join"], [no_socket.fileno()] * 3)
        (shell.project / "page.html").write_text("second\n")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"{meeting_place(shell)}/{name}")
            sender.send(b"changed\0" + os.fsencode(shell.project / "page.html"))
        assert line(watcher) == "second\n"
        assert shell.run("true", of(shell, ONE)).returncode == 0


def test_files_in_the_meeting_place_that_are_no_commands_are_left_alone(shell: Shell):
    with background(shell, SERVER) as server:
        assert line(server).startswith("Serving HTTP")
        (name,) = os.listdir(meeting_place(shell))
        prefix = name.partition("-")[0]
        planted = meeting_place(shell) / f"{prefix}-0"
        planted.write_text("pid 1, of course\n")
        (meeting_place(shell) / f"{prefix}-1").symlink_to(name)
        met = shell.run(FETCH.format("README.md"), of(shell, ONE))

    assert (met.stdout, met.stderr) == ("200\n", "")
    assert planted.exists()


@pytest.mark.parametrize("is_background", [False, True])
def test_a_meeting_place_that_others_can_write_in_is_not_believed(
    shell: Shell, is_background: bool
):
    meeting_place(shell).mkdir(parents=True)
    meeting_place(shell).chmod(0o777)
    ran = shell.run("echo x > made", *["--background"] * is_background, of(shell, ONE))

    assert ran.returncode == 126
    assert "is open to other users" in ran.stderr
    assert not (shell.project / "made").exists()


def test_agents_of_another_kind_do_not_meet_it(shell: Shell):
    with background(shell, SERVER) as server:
        assert line(server).startswith("Serving HTTP")
        own = shell.run(FETCH.format("README.md"), of(shell, ONE))
        other = shell.run(FETCH.format("README.md"), of(shell, ONE), "--kind=Explore")

    assert (own.returncode, other.returncode) == (0, 1)


def test_no_command_sees_the_place_where_they_meet(shell: Shell):
    place = clients(shell)
    with background(shell, "exec sleep 1000", f"--session={place}"):
        assert os.listdir(place) != []
        ran = shell.run(f"ls {place}", f"--session={place}")

    assert ran.returncode == 2


def descendants(pid: int) -> set[int]:
    rows = [Path(f"/proc/{each}/stat") for each in os.listdir("/proc") if each.isdigit()]
    above: dict[int, int] = {}
    for row in rows:
        with suppress(OSError):
            above[int(row.parent.name)] = int(row.read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {each for each, parent in above.items() if parent in found} - found:
        found |= more
    return found


def test_a_client_that_ends_all_that_its_shell_started_loses_nothing(shell: Shell):
    """As Claude Code does: SIGTERM to each descendant of the shell, the launcher among them."""
    shell.is_forked = False
    command = "echo x > made; python3 -c 'print(1, flush=True)'; sleep 1000"
    with background(shell, command) as running:
        assert line(running) == "1\n"
        for pid in descendants(running.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        running.communicate()

    assert (shell.project / "made").read_text() == "x\n"


FETCHING = """
import socket
try:
    socket.create_connection(("localhost", 8123)).close()
    print("met")
except OSError as error:
    print(type(error).__name__)
"""
NARROW = """
[[profiles.standard.rules]]
action = "tool:net:connect a.example.org:8080"
outcome = "allow"
commands = ["python3 fetch.py"]
"""
KEPT_IN = """
[[profiles.standard.rules]]
action = "tool:shell:run python3 fetch.py"
outcome = "allow"
network = "loopback"
"""
LITERAL = """
[[profiles.standard.rules]]
action = "tool:net:connect 203.0.113.7:8080"
outcome = "allow"
"""


@pytest.mark.parametrize("policy", [STANDARD + NARROW, REACHES + KEPT_IN])
def test_a_command_with_rules_of_its_own_has_a_network_of_its_own(policy: str, shell: Shell):
    shell.client.write_policy(policy)
    (shell.project / "fetch.py").write_text(FETCHING)
    with background(shell, SERVER) as server:
        assert line(server).startswith("Serving HTTP")
        alone = shell.run("python3 fetch.py", of(shell, ONE))
        met = shell.run(FETCH.format("README.md"), of(shell, ONE))

    assert (alone.stdout, met.stdout, met.stderr) == ("ConnectionRefusedError\n", "200\n", "")
    assert alone.stderr.endswith("without the ports of background commands\n")


def test_where_a_literal_address_may_be_reached_each_command_has_a_network_of_its_own(shell: Shell):
    shell.client.write_policy(STANDARD + LITERAL)
    (shell.project / "fetch.py").write_text(FETCHING)
    with background(shell, SERVER) as server:
        assert line(server).startswith("Serving HTTP")
        alone = shell.run("python3 fetch.py", of(shell, ONE))
        said = stopped(server)

    own = "paddock: a background command has a network of its own: its ports cannot be reached\n"
    assert (alone.stdout, alone.stderr) == ("ConnectionRefusedError\n", own)
    assert said.endswith("without the ports of background commands\n")


def test_one_that_stands_still_holds_nobody_up_for_long_and_that_is_said(shell: Shell):
    shell.is_forked = False
    with background(shell, SERVER) as server:
        assert line(server).startswith("Serving HTTP")
        server.send_signal(signal.SIGSTOP)
        ran = shell.run("echo ran", of(shell, ONE))
        server.send_signal(signal.SIGCONT)
        again = shell.run(FETCH.format("README.md"), of(shell, ONE))

    silent = "paddock: a background command does not answer: its ports cannot be reached\n"
    assert (ran.stdout, ran.stderr) == ("ran\n", silent)
    assert (again.stdout, again.stderr) == ("200\n", "")
