"""What a failed command is told of the fence and of its limits, and what others are not told."""

from pathlib import Path

import pytest

from tests.support.shells import OPEN, Terminal, a_terminal, hide

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]

MEANT = "paddock: this is policy, not a fault to work around"
CONNECT = (
    "python3 -c \"import socket as s; c = s.socket(); c.settimeout(5); c.connect(('{}', {}))\" "
    "2> /dev/null"
)
NETWORK = 'network = "policy" ([shell], built-in)'


@pytest.fixture
def terminal(tmp_path: Path):
    with a_terminal(tmp_path) as made:
        made.yard.write({"a": "a\n", "sub/.env": "token", ".env": "token"})
        yield made


def told(terminal: Terminal, command: str, **arguments: object) -> list[str]:
    """The lines of ours at the end of standard error, which the details name besides."""
    said = terminal.sneak(command, **arguments)
    lines = said.get("fence", [])
    if lines:
        assert said["stderr"].splitlines()[-len(lines) :] == lines
    assert len(lines) <= 3
    return lines


def test_a_refused_change_is_explained_once_and_named_after_that(terminal: Terminal):
    first = told(terminal, "echo x > k.pem; exit 3")
    again = told(terminal, "echo y > k.pem; exit 3")
    other = told(terminal, "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit; exit 1")

    assert first == [
        "paddock: policy refused the change of k.pem: *.pem (paths.protected, built-in)",
        MEANT,
        "paddock: a person can change it: paddock policy explain 'tool:file:create k.pem'",
    ]
    assert again == ["paddock: policy again: changes"]
    assert len(other) in {0, 1, 3}


def test_a_connection_outside_is_told_of(terminal: Terminal):
    line = CONNECT.format("192.0.2.1", 80)
    first, again = told(terminal, line), told(terminal, line)

    assert first[0].startswith("paddock: policy refused connections to the network (")
    assert first[0].endswith(f": {NETWORK}")
    assert first[1] == MEANT
    assert first[2] == "paddock: a person can change it: paddock network allow HOST:PORT"
    assert again == ["paddock: policy again: network"]


def test_the_address_of_a_refused_connection_is_in_the_command_that_allows_it(terminal: Terminal):
    line = f": http://192.0.2.1:80/; {CONNECT.format('192.0.2.1', 80)}"

    allow = "paddock network allow 192.0.2.1:80"
    assert terminal.run(line)["fence"][2] == f"paddock: a person can change it: {allow}"


def test_the_line_of_the_policy_is_named(tmp_path: Path):
    with a_terminal(tmp_path, OPEN + '[shell]\nnetwork = "loopback"\n') as terminal:
        [first, _, last] = told(terminal, CONNECT.format("192.0.2.1", 80))

    assert last.startswith("paddock: a person can change it: paddock policy explain ")
    assert first.endswith('network = "loopback" ([shell], paddock.toml:4)')


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("cat .env", ".env"),
        ("cat ./sub/.env", "sub/.env"),
        ("cd sub; cat .env", ".env"),
        ('cat "$PWD/.env"', ".env"),
        ("cat .env.local", ".env.local"),
        ("python3 -c \"open('sub/.env')\"", "sub/.env"),
    ],
)
def test_a_secret_that_was_missed_is_told_of_whether_it_stands_there_or_not(
    terminal: Terminal, command: str, path: str
):
    lines = told(terminal, command)

    assert lines[0].startswith(f"paddock: policy refused reading {path}: .env")
    assert lines[0].endswith(" (paths.secret, built-in)")
    assert lines[2].endswith(f"paddock policy explain 'tool:file:view {path}'")


QUIET = {
    "a failure of its own": "false",
    "what succeeded although it was refused something": "echo x > k.pem; true",
    "a connection outside that it did without": f"{CONNECT.format('192.0.2.1', 80)} || true",
    "its own loopback, where nobody listens": CONNECT.format("127.0.0.1", 9),
    "the name of its own host": "python3 -c \"import socket as s; s.getaddrinfo('localhost', 80); 1 / 0\"",
    "a file that is not there": "cat missing; cat sub/missing",
    "a name that only looks alike": "cat x.env envs; exit 1",
    "a secret name that it merely prints": "echo 'see .env for it'; exit 1",
    "lines of ours that it forges": f"echo '{MEANT}' >&2; exit 1",
    "a failed build": "echo 'int main( {' | cc -x c - -o /dev/null",
}


@pytest.mark.parametrize("name", QUIET)
def test_what_met_no_fence_is_told_nothing(terminal: Terminal, name: str):
    assert told(terminal, QUIET[name]) == []


def test_two_causes_are_told_in_three_lines(terminal: Terminal):
    lines = told(terminal, f"echo x > k.pem; {CONNECT.format('192.0.2.1', 80)}")

    assert lines[0].endswith("; also: network")
    assert len(lines) == 3
    second = told(terminal, f"echo x > k.pem; {CONNECT.format('192.0.2.1', 80)}")
    assert second[0].startswith("paddock: policy refused connections")
    assert second[0].endswith("; also: changes")


# Limits

THREADS = (
    'python3 -c "import threading as t, time\nfor _ in range(99):\n'
    ' t.Thread(target=time.sleep, args=(9,), daemon=True).start()"'
)
LIMITS = "[shell]\nlimits = { processes = 40, memory_mb = 300, file_mb = 3, cpu_s = 1 }\n"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("while :; do :; done", "Command used more than 1 s of processor time"),
        ("exec head -c 9M /dev/zero > f", "Command wrote a file of more than 3 MB"),
        ("python3 -c \"open('f', 'wb').write(bytes(9 << 20))\"", "at most 3 MB in one file"),
        ("for n in $(seq 99); do sleep 9 & done; wait", "at most 40 processes and threads"),
        (
            THREADS,
            "at most 40 processes and threads",
        ),
        ('python3 -c "x = bytearray(900 << 20)"', "Command used more than 300 MB of memory"),
        ("head -c 400M /dev/zero > /dev/shm/x", "at most 150 MB in its private directories"),
    ],
)
def test_the_limit_that_ended_a_command_is_named(tmp_path: Path, command: str, named: str):
    with a_terminal(tmp_path, OPEN + _limits_for(named)) as terminal:
        result = terminal.call("run_shell", command=hide(command), timeout=30)

    assert result.details["exit_code"] != 0
    assert named in result.content


def _limits_for(named: str) -> str:
    """Return the limits, each but the named one out of reach of a slow machine."""
    limits = LIMITS if "processor time" in named else LIMITS.replace("cpu_s = 1", "cpu_s = 20")
    return (
        limits.replace("file_mb = 3", "file_mb = 1000")
        if "private directories" in named
        else limits
    )


def test_a_command_that_fails_within_its_limits_is_told_of_none(tmp_path: Path):
    with a_terminal(tmp_path, OPEN + LIMITS) as terminal:
        for line in ("exit 1", "kill -9 $$", "echo 'a new fork of the project' >&2; exit 2"):
            assert "[shell] limits" not in terminal.call("run_shell", command=line).content


def test_three_hundred_processes_at_once_are_nothing_unusual(terminal: Terminal):
    line = "for n in $(seq 300); do sleep 1 & done; wait; echo all"

    assert terminal.run(line)["stdout"] == "all\n"


def test_what_the_fence_refused_stands_in_the_record_each_time(terminal: Terminal):
    for command in ("cat .env", "cat .env", "exit 3"):
        terminal.sneak(command)

    met = "reading .env: .env (paths.secret, built-in)"
    results = [entry["metadata"] for entry in terminal.yard.entries("TOOL_RESULT")]
    assert [(each["exit"], each.get("fence")) for each in results] == [
        (1, [met]),
        (1, [met]),
        (3, None),
    ]
    shown = terminal.yard.cli("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_RESULT").out
    assert [row.partition("  exit ")[2].partition("  ")[0] for row in shown.splitlines()] == [
        f"1, refused {met}",
        f"1, refused {met}",
        "3",
    ]
