"""The server on standard streams: real pipes, and the real program behind them."""

import contextlib
import fcntl
import io
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from paddock import limits
from paddock.apps.cli.main import main
from paddock.apps.console import Console
from tests.support import forked
from tests.support.mcp_servers import PADDOCK, YES, McpPlace, make_place
from tests.support.places import Ran

PATIENCE_S = 60.0
"""Far above what anything here takes; reached only where an answer never comes."""
ASKED = {"name": "create_file", "arguments": {"path": "asked/a", "content": "x"}}


def request(request_id: object, method: str, params: object = None) -> dict[str, object]:
    fields = {} if params is None else {"params": params}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, **fields}


def refused(why: str, request_id: object = None, code: int = -32600) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": why}}


HANDSHAKE = request(
    0,
    "initialize",
    {
        "protocolVersion": "2025-06-18",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    },
)
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}


class Program(Struct, frozen=True, dict=True):
    """A server, and its client's side of the streams."""

    process: subprocess.Popen[bytes]

    def send(self, *messages: object) -> None:
        lines = (json.dumps(message).encode() for message in messages)
        self.write(b"".join(line + b"\n" for line in lines))

    def write(self, content: bytes) -> None:
        self.process.stdin.write(content)

    def receive(self) -> Any:
        self.wait_for_output()
        return json.loads(self.process.stdout.readline())

    def wait_for_output(self) -> None:
        assert select.select([self.process.stdout], [], [], PATIENCE_S)[0]

    def ask(self, request_id: object = 1) -> Any:
        """Make a call that waits for its person, up to the question."""
        self.send(request(request_id, "tools/call", ASKED))
        question = self.receive()
        assert question["method"] == "elicitation/create"
        return question

    def signal(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def close(self) -> tuple[int, bytes]:
        """The status, and what came out after the input was closed."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out


@contextlib.contextmanager
def running(place: McpPlace, before: str = "") -> Iterator[Program]:
    process = subprocess.Popen(
        [*forked.command(before + forked.CONSOLE), "mcp"],
        cwd=place.project,
        env=place.variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    with process:
        try:
            program = Program(process)
            program.send(HANDSHAKE)
            assert program.receive()["id"] == 0
            program.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield program
        finally:
            process.kill()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> McpPlace:
    return make_place(tmp_path_factory.mktemp("mcp"))


@pytest.fixture
def program(place) -> Iterator[Program]:
    with running(place) as program:
        yield program


def serve(place: McpPlace, *lines: bytes) -> Ran:
    """A server in this process, on files of its own, up to the end of its input."""
    err = io.StringIO()
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as out:
        given.buffer.write(b"".join(line + b"\n" for line in lines))
        given.seek(0)
        console = Console(given, out, err, place.variables, place.project)
        status = main(["mcp"], console)
        out.seek(0)
        return Ran(status, out.read(), err.getvalue())


def answers(ran: Ran) -> list[object]:
    return [json.loads(line) for line in ran.out.splitlines()]


def last_entry(place: McpPlace) -> tuple[str, str]:
    entry = place.entries("ho1m")[-1]
    return entry["event_type"], entry["metadata"]["code"]


PING = json.dumps(request(1, "ping")).encode()


# --- lines that are no messages ------------------------------------------------------


def test_every_line_that_is_no_message_is_answered_and_ends_nothing(place):
    ran = serve(
        place,
        b"{",
        b"[" + PING + b"]",
        b"",
        json.dumps(request(1.5, "ping")).encode(),
        json.dumps(request(7, "tools/call", {"name": "view", "arguments": "\ud83d"})).encode(),
        PING,
    )
    assert answers(ran) == [
        refused(
            "not valid JSON: EOF while parsing an object at line 1 column 1",
            code=-32700,
        ),
        refused("batches are not supported: send one message per line"),
        refused("'id' must be a string or an integer, not '1.5'"),
        refused(
            "the message cannot be read: half of a surrogate pair, "
            "unexpected end of hex escape at line 1 column 100",
            7,
        ),
        PONG,
    ]


def test_what_is_not_utf8_runs_nothing(place, program):
    arguments = {"path": "café", "content": "x"}
    call = request(1, "tools/call", {"name": "create_file", "arguments": arguments})
    line = json.dumps(call, ensure_ascii=False)
    broken = line.encode("latin-1")
    program.write(broken + b"\n")
    at = broken.index(b"\xe9")
    assert program.receive() == refused(f"not UTF-8 at byte {at}", code=-32700)
    assert not list(place.project.glob("caf*"))
    program.write(line.encode() + b"\n")
    assert program.receive()["result"]["isError"] is False
    assert [path.name for path in place.project.glob("caf*")] == ["café"]


def test_a_line_over_the_limit_is_answered_and_the_next_one_is_served(program):
    size = limits.mcp_body_bytes_max
    program.write(PING.ljust(size) + b"\n")
    assert program.receive() == PONG
    program.write(PING.ljust(size + 1) + b"\n" + PING + b"\n")
    assert program.receive() == refused(f"message too large: over {size} bytes")
    assert program.receive() == PONG


def test_a_notification_that_cannot_be_used_is_said_on_stderr_alone(program):
    program.send({"jsonrpc": "1.0", "method": "notifications/x"}, request(1, "ping"))
    assert program.receive() == PONG
    said = program.process.stderr.readline()
    why = """notification: 'jsonrpc' must be "2.0", not '"1.0"'"""
    assert said.decode() == f"paddock mcp: a message was ignored, {why}\n"


def test_text_streams_are_served(place):
    assert answers(serve(place, PING)) == [PONG]
    assert answers(serve(place, b"\xff", PING)) == [
        refused("not UTF-8 at byte 0", code=-32700),
        PONG,
    ]


# --- requests that run ---------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        {"result": None},
        {"result": "accept"},
        {"error": {"code": "a"}},
        {"result": {"action": "accept", "content": YES}, "error": {"code": 1, "message": "no"}},
    ],
)
def test_an_answer_of_another_shape_ends_the_question_without_a_yes(place, program, said):
    question = program.ask()
    program.send({"jsonrpc": "2.0", "id": question["id"], **said})
    answer = program.receive()
    assert answer["id"] == 1
    (said,) = answer["result"]["content"]
    assert said["text"].startswith("error[approval.unavailable]")
    assert not (place.project / "asked").exists()


def test_an_answer_that_says_yes_lets_the_call_run(place, program):
    question = program.ask()
    said = {"action": "accept", "content": YES}
    program.send({"jsonrpc": "2.0", "id": question["id"], "result": said})
    assert program.receive()["result"]["isError"] is False
    assert (place.project / "asked/a").read_text() == "x"
    shutil.rmtree(place.project / "asked")


@pytest.mark.parametrize("again", [7, "7"])
def test_a_request_with_the_id_of_one_that_runs_is_refused(program, again):
    question = program.ask(7)
    program.send(request(again, "ping"))
    assert program.receive() == refused("a request with the id '7' is still running", again)
    program.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    assert program.receive()["id"] == 7
    program.send(request(again, "ping"))
    assert program.receive() == {"jsonrpc": "2.0", "id": again, "result": {}}


def test_the_id_of_a_request_that_was_cancelled_is_free_again(program):
    program.ask(7)
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 7}}
    program.send({"jsonrpc": "2.0", **cancelled})
    still_running = refused("a request with the id '7' is still running", 7)
    answer = still_running
    while answer == still_running or answer.get("method") == cancelled["method"]:
        program.send(request(7, "ping"))
        answer = program.receive()
    assert answer == {"jsonrpc": "2.0", "id": 7, "result": {}}


# --- the end -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_whose_client_says_nothing(program, number):
    assert program.signal(number) == 0


@pytest.mark.parametrize("is_input_open", [True, False])
def test_a_signal_ends_a_server_whose_client_reads_nothing(program, is_input_open):
    out = program.process.stdout
    room = fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 4096)
    program.send(request(1, "tools/list"))
    program.wait_for_output()
    if not is_input_open:
        program.process.stdin.close()
    assert program.signal(signal.SIGTERM) == 0
    # It was in the middle of its answer.
    assert len(out.read()) <= room


def test_a_signal_ends_calls_that_run_and_they_are_recorded(place, program):
    program.ask()
    assert program.signal(signal.SIGTERM) == 0
    assert last_entry(place) == ("TOOL_DENIED", "call.cancelled")


def test_the_end_of_the_input_ends_calls_that_run_and_they_are_recorded(place, program):
    program.ask()
    status, _ = program.close()
    assert (status, last_entry(place)) == (0, ("TOOL_DENIED", "call.cancelled"))


def test_what_came_before_the_end_of_the_input_is_answered(program):
    out = program.process.stdout
    fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 4096)
    program.send(*(request(number, "tools/list") for number in range(1, 6)))
    program.send(request(6, "ping"))
    status, rest = program.close()
    assert status == 0
    assert sorted(json.loads(line)["id"] for line in rest.splitlines()) == list(range(1, 7))


def test_a_client_that_leaves_ends_the_server(program):
    program.process.stdout.close()
    program.send(request(1, "ping"))
    assert program.process.wait(PATIENCE_S) == 0
    assert program.process.stderr.read() == b""


def test_a_file_can_be_served_as_well(place, tmp_path):
    (tmp_path / "in").write_bytes(PING)
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as out:
        streams = {"stdin": given, "stdout": out}
        subprocess.run(
            [*PADDOCK, "mcp"], cwd=place.project, env=place.variables, check=True, **streams
        )
    assert json.loads((tmp_path / "out").read_bytes()) == PONG


def test_an_output_that_takes_nothing_is_an_error_of_the_host(place):
    with open(os.devnull, "rb") as nothing, open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [*PADDOCK, "mcp"],
            cwd=place.project,
            env=place.variables,
            check=False,
            input=PING,
            stdout=full,
            stderr=subprocess.PIPE,
        )
        assert (ran.returncode, ran.stderr) == (
            5,
            b"error[host]: the standard streams cannot be used\n",
        )
        ran = subprocess.run(
            [*PADDOCK, "mcp"],
            cwd=place.project,
            env=place.variables,
            check=False,
            stdin=nothing,
            stdout=full,
            stderr=subprocess.PIPE,
        )
        assert (ran.returncode, ran.stderr) == (0, b"")


def test_what_is_printed_by_mistake_goes_to_stderr(place):
    before = (
        "import atexit, subprocess; "
        "atexit.register(subprocess.run, ['echo', 'by a command']); "
        "atexit.register(print, 'printed at the end'); "
    )
    with running(place, before) as program:
        program.send(request(1, "ping"))
        assert program.receive() == PONG
        program.process.stdin.close()
        assert program.process.stdout.read() == b""
        said = program.process.stderr.read().splitlines()
    assert sorted(said) == [b"by a command", b"printed at the end"]


def test_a_call_whose_arguments_are_no_object_is_on_record(place):
    before = len(place.entries("ho1m"))
    with running(place) as program:
        for request_id, name, arguments in (
            (1, "view", []),
            (2, "no_such_tool", []),
            (3, "view", None),
        ):
            params = {"name": name, "arguments": arguments}
            program.send(request(request_id, "tools/call", params))
            answer = program.receive()
            assert answer["id"] == request_id
            assert ("error" in answer) is (arguments is not None)
        program.close()
    entries = [e for e in place.entries("ho1m")[before:] if e["event_type"] == "TOOL_DENIED"]
    # Where there are no arguments, the call is an ordinary one that lacks its path.
    assert [(e["metadata"]["tool"], e["metadata"]["code"], e["reason"]) for e in entries] == [
        ("view", "args.invalid", "the arguments are an array, not an object"),
        ("view", "args.invalid", entries[-1]["reason"]),
    ]


def test_a_call_in_which_a_name_is_given_twice_is_refused_and_does_not_run(place):
    line = (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "create_file", '
        b'"arguments": {"path": "one", "path": "two", "content": "x"}}}\n'
    )
    with running(place) as program:
        program.write(line)
        assert program.receive() == refused("'path' is given twice: give every name once", 1)
        program.write(line.replace(b'"path": "two", ', b""))
        assert program.receive()["result"]["isError"] is False
        program.close()
    assert (place.project / "one").read_text() == "x"
    assert not (place.project / "two").exists()
