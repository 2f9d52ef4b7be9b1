"""A command's connections through the door: asked about, on record, told to the model."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paddock.network import wall
from paddock.runtime.approvals import Approval, ApprovalRequest
from tests.support.hooks import installed_command
from tests.support.networks import TALK, a_proxy, a_server, echo
from tests.support.shells import Yard

pytestmark = [
    pytest.mark.needs("stage"),
    pytest.mark.needs("bash"),
    pytest.mark.loopback,
]

READ = """
[shell]
read = ["/usr", "/lib", "/lib64", "/bin"]
"""


def policy(rule: str) -> str:
    return f'[profiles.standard]\nextends = "standard"\n{rule} = ["tool:net:connect db.example.org:5432"]\n'


class Answering:
    """Answers each question alike, and keeps what it was asked."""

    def __init__(self, is_granted: bool) -> None:
        self.is_granted = is_granted
        self.asked: list[ApprovalRequest] = []

    def answer(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        return Approval(self.is_granted, "a tester")


def talk(base: Path, rule: str, approver: Answering | None = None, host: str = "db.example.org"):
    with a_server(echo) as port, a_server(a_proxy({"db.example.org:5432": port})) as proxy:
        yard = Yard(base, policy(rule), {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}).make()
        with yard.opened(approver) as terminal:
            said = terminal.run(f"python3 -c '{TALK}' {host} 5432")
    return yard, said


def test_an_allowed_connection_is_on_record_before_and_after(tmp_path: Path):
    yard, said = talk(tmp_path, "allow")

    assert said["stdout"] == "hello\none\n"
    assert said["network"] == {"connections": 1, "refused": [], "not_listed": 0}
    (opened,), (closed,) = yard.entries("NET_CONNECT"), yard.entries("NET_CLOSED")
    (intent,) = yard.entries("TOOL_INTENT")
    assert opened["call_id"] == closed["call_id"] == intent["call_id"]
    assert opened["metadata"] == {
        "host": "db.example.org",
        "port": 5432,
        "address": "via proxy",
        "server_name": "",
    }
    assert "tool:net:connect db.example.org:5432" in opened["reason"]
    assert closed["metadata"] | {"duration_us": 0} == {
        "host": "db.example.org",
        "port": 5432,
        "address": "via proxy",
        "server_name": "",
        "sent_bytes": 4,
        "received_bytes": 10,
        "duration_us": 0,
    }


def test_a_refused_name_is_on_record_and_told(tmp_path: Path):
    yard, said = talk(tmp_path, "allow", host="other.example.org")

    assert said["network"] == {
        "connections": 0,
        "refused": [
            {"host": "other.example.org", "port": 0, "why": "no rule allows it", "count": 2}
        ],
        "not_listed": 0,
    }
    assert "paddock network allow other.example.org" in said["stderr"]
    (refused,) = yard.entries("NET_REFUSED")
    assert refused["metadata"] == {"host": "other.example.org", "port": 0}
    assert yard.entries("NET_CONNECT") == []
    assert "  other.example.org  no rule allows it  " in refusals_shown(yard)


def refusals_shown(yard: Yard) -> str:
    return yard.cli("ledger", "query", "--ledger", "ho1m", "--type", "NET_REFUSED").out


def test_an_allowed_host_that_does_not_answer_is_not_said_to_be_policy(tmp_path: Path):
    with a_server(a_proxy({})) as proxy:
        yard = Yard(tmp_path, policy("allow"), {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}).make()
        with yard.opened() as terminal:
            said = terminal.call("run_shell", command=f"python3 -c '{TALK}' db.example.org 5432")

    place, why = "db.example.org:5432", "the host does not answer"
    told = f"connections not made: 1\n  {place}: policy allows it, but it failed: {why}\n"
    assert told in said.content
    assert "refused" not in said.content
    assert "this is policy" not in said.content
    assert said.details["exit_code"] != 0
    assert f"  {place}  {why}  " in refusals_shown(yard)


PROBES = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try: print(socket.create_connection((host, int(port)), 5).recv(5).decode())
    except OSError as error: print(type(error).__name__)
"""


def ran_in_a_session(base: Path, *places: str, times: int = 2) -> tuple[Yard, list[dict[str, Any]]]:
    """Have each of some commands in one session try the same places."""
    with a_server(echo) as port, a_server(a_proxy({"db.example.org:5432": port})) as proxy:
        yard = Yard(base, policy("allow"), {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}).make()
        line = f"python3 -c '{PROBES}' {' '.join(places)}"
        with yard.opened() as terminal:
            return yard, [terminal.run(line, session="one") for _ in range(times)]


def test_each_command_of_a_session_hears_of_its_own_refusals_and_has_them_on_record(tmp_path: Path):
    yard, (first, second) = ran_in_a_session(tmp_path, *(f"n{n}.example.org:1" for n in range(55)))

    assert first["network"] == second["network"]
    assert (len(first["network"]["refused"]), first["network"]["not_listed"]) == (50, 10)
    options = "--ledger ho1m --type NET_REFUSED --last 0 --json"
    kept = yard.cli("ledger", "query", *options.split())
    counts = [json.loads(line)["metadata"].get("count", 1) for line in kept.out.splitlines()]
    assert sorted(counts) == [1] * 100 + [10, 10]


def test_the_limit_of_connections_is_each_commands_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wall, "_CONNECTIONS_IN_ALL_MAX", 2)

    _, (first, second) = ran_in_a_session(tmp_path, *["db.example.org:5432"] * 3)

    assert first["stdout"] == second["stdout"] == "hello\nhello\nConnectionResetError\n"
    assert second["network"]["connections"] == 2


@pytest.mark.parametrize("is_granted", [True, False])
def test_a_connection_that_is_asked_about_waits_for_the_answer(tmp_path: Path, is_granted: bool):
    approver = Answering(is_granted)
    yard, said = talk(tmp_path, "ask", approver)

    (request,) = approver.asked
    assert request.actions == ("tool:net:connect db.example.org:5432",)
    assert (said["exit_code"] == 0) is is_granted
    assert len(yard.entries("NET_CONNECT")) == is_granted
    answered = yard.entries("APPROVAL_ANSWERED", "governance")
    assert [entry["decision"] for entry in answered] == ["allow" if is_granted else "deny"]


def test_a_command_that_a_hook_confines_meets_the_wall(tmp_path: Path):
    line = f"for host in db other; do python3 -c '{TALK}' $host.example.org 5432; done 2>&1"
    with a_server(echo) as port, a_server(a_proxy({"db.example.org:5432": port})) as proxy:
        yard = Yard(tmp_path, policy("allow"), {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}).make()
        event = {"cwd": str(yard.root), "tool_name": "Bash", "tool_input": {"command": line}}
        asked = as_a_client(yard, installed_command(), json.dumps(event))
        answer = json.loads(asked.stdout)["hookSpecificOutput"]
        assert answer["permissionDecision"] == "allow"
        ran = as_a_client(yard, ("/bin/bash", "-c", answer["updatedInput"]["command"]))

    shown = ran.stdout.splitlines()
    assert (shown[:2], "not known" in shown[-1]) == (["hello", "one"], True), ran
    (opened,), (refused,) = yard.entries("NET_CONNECT"), yard.entries("NET_REFUSED")
    assert (opened["metadata"]["host"], opened["metadata"]["port"]) == ("db.example.org", 5432)
    assert refused["metadata"]["host"] == "other.example.org"
    (intent,) = yard.entries("TOOL_INTENT")
    assert opened["call_id"] == refused["call_id"] == intent["call_id"]


def as_a_client(
    yard: Yard, command: tuple[str, ...], given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=yard.root,
        env=yard.all_variables,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
