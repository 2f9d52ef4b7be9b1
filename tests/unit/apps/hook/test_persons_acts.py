"""A person's acts, from within a client that has the hook, and from a terminal beside it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hooks import LAUNCHER, Client

PROGRAM = [sys.executable, "-c", "from paddock.apps.cli.main import console; console()"]
ACT = ["trust", "--yes"]
MESSAGE = "run it in a terminal of your own"
# PYTHONPATH: the tree that is tested may be a mutant's.
OURS = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
FAKE = """#!{python}
import json, subprocess, sys
for line in sys.stdin:
    words, stdin = json.loads(line)
    done = subprocess.run(words, input=stdin, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""


class FakeClaude:
    """A process with a client's name and variables, which starts what it is told."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        program = client.place.base / name
        program.write_text(FAKE.format(python=sys.executable))
        program.chmod(0o755)
        self.process = subprocess.Popen(
            [str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=client.root,
            env={**client.environment, **OURS, "CLAUDECODE": "1"},
        )

    def start(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([words, stdin]) + "\n")
        self.process.stdin.flush()
        status, out, err = json.loads(self.process.stdout.readline())
        return status, out, err

    def hook(self, tool: str = "", /, **fields: object) -> None:
        """One event, through the shell, as the client has its hooks started."""
        event = self.client.event(tool, **fields).decode()
        line = f"{sys.executable} -I -S {LAUNCHER}; exit $?"
        status, _, err = self.start("sh", "-c", line, stdin=event)
        assert (status, err) == (0, "")


@contextmanager
def running(client: Client, name: str = "claude") -> Iterator[FakeClaude]:
    fake = FakeClaude(client, name)
    try:
        yield fake
    finally:
        fake.process.communicate(timeout=60)


def person(client: Client, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same command in a terminal of the user's own, or in CI."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=client.root,
        env={**client.environment, **OURS, **variables},
    )


def trusted(client: Client) -> list[str]:
    store = client.place.home / ".local/state/paddock/trust"
    return sorted(each.name for each in store.iterdir()) if store.exists() else []


@pytest.fixture
def governed(client: Client) -> Client:
    (client.place.project / "paddock.toml").write_text('[paths]\nwarned = ["/lib/**"]\n')
    return client


def test_a_person_beside_a_client_and_after_it_does_what_an_agent_in_it_may_not(governed: Client):
    with running(governed) as claude:
        claude.hook(hook_event_name="SessionStart")
        status, out, err = claude.start(*PROGRAM, *ACT)
        assert (status, out, "policy.denied" in err, MESSAGE in err) == (1, "", True, True), err
        assert trusted(governed) == []

        assert person(governed, *ACT).returncode == 0
        assert len(trusted(governed)) == 1
    # Its mark counts for nobody any more, even where a client's variables are left.
    assert person(governed, *ACT, CLAUDECODE="1").returncode == 0


DESCENDING = [
    ["sh", "-c", '"$@"; exit $?', "sh", *PROGRAM, *ACT],
    ["env", "-i", "HOME={home}", *PROGRAM, *ACT],
    ["env", "HOME=/nowhere/at/all", "PADDOCK_HOME={home}/.local/state/paddock", *PROGRAM, *ACT],
    ["setsid", "-f", *PROGRAM, *ACT],
    [*PROGRAM, "--plane", "{root}", "trust", "--yes"],
    [*PROGRAM, "hook", "uninstall", "--yes"],
    [*PROGRAM, "hook", "install", "--yes"],
    [*PROGRAM, "agent", "create", "mole", "--profile", "admin"],
    [*PROGRAM, "approvals", "grant", "APR-0123456789abcdef", "--always", "--yes"],
    [*PROGRAM, "call", "create_file", '{"path": "a", "content": "x"}', "--yes"],
    [*PROGRAM, "undo", "CALL"],
]


def test_whoever_descends_from_a_hooked_client_is_no_person(governed: Client):
    home, root = str(governed.place.home), governed.root
    with running(governed) as claude:
        claude.hook("Bash", tool_input={"command": "true"})
        for words in DESCENDING:
            filled = [each.replace("{home}", home).replace("{root}", root) for each in words]
            _, _, err = claude.start(*filled)
            assert MESSAGE in err, (words, err)
            assert (trusted(governed), (governed.place.project / "a").exists()) == ([], False)


READING = [
    ["where"],
    ["policy", "check", "tool:file:view README.md"],
    ["call", "view", '{"path": "README.md"}'],
    ["trust", "--help"],
    ["approvals", "list"],
    ["hook", "status"],
]


def test_what_only_reads_works_in_a_hooked_client(governed: Client):
    with running(governed) as claude:
        claude.hook(hook_event_name="SessionStart")
        for arguments in READING:
            assert claude.start(*PROGRAM, *arguments)[0] == 0, arguments


def test_what_the_client_starts_itself_is_not_refused_to_it(governed: Client):
    with running(governed) as claude:
        claude.hook(hook_event_name="SessionStart")
        event = governed.event("Read", tool_input={"file_path": "README.md"}).decode()
        assert claude.start(*PROGRAM, "hook", stdin=event)[0] == 0
        assert MESSAGE not in claude.start(*PROGRAM, "mcp")[2]
        executed = claude.start(
            *PROGRAM, "hook", "exec", "--agent", "main", "--directory", ".", "true"
        )
        assert MESSAGE not in executed[2]


@pytest.mark.parametrize("name", ["claude", "node"])
def test_a_client_without_the_hook_is_as_today(governed: Client, name: str):
    with running(governed, name) as claude:
        assert claude.start(*PROGRAM, *ACT)[0] == 0
    assert len(trusted(governed)) == 1


def test_who_tries_the_hook_by_hand_is_still_a_person(governed: Client):
    event = governed.event("Read", tool_input={"file_path": "README.md"}).decode()
    line = f'{sys.executable} -I -S {LAUNCHER} <event >/dev/null && "$@"'
    Path(governed.root, "event").write_text(event)
    done = subprocess.run(
        ["sh", "-c", line, "sh", *PROGRAM, *ACT],
        cwd=governed.root,
        env={**governed.environment, **OURS},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


ACTS = [
    "paddock trust --yes",
    "paddock hook uninstall --yes",
    "paddock approvals grant APR-0123456789abcdef --yes",
    "paddock call run_shell '{}' --yes",
    "paddock agent create x --profile admin",
    "paddock ledger accept-rollback",
    "python3 -m paddock trust --yes",
    "cd / && uv run paddock web",
    "true; sh -c 'paddock trust --yes'",
    "python3 - <<'END'\nfrom paddock.apps.cli.main import console\nconsole()\nEND",
]


@pytest.mark.parametrize(
    "policy",
    [
        "",
        '[profiles.standard]\nallow = ["tool:*"]\n',
        '[profiles.standard]\nallow = ["tool:shell:run paddock *", "tool:shell:run *"]\n',
        '[profiles.standard]\notherwise = { "tool:shell:*" = "allow" }\n[hook]\non_allow = "approve"\n',
    ],
)
def test_the_hook_denies_a_persons_act_whatever_the_policy(client: Client, policy):
    client.write_policy(policy)
    for command in ACTS:
        said = client.ask("Bash", tool_input={"command": command})
        assert (said.word, MESSAGE in said.reason) == ("deny", True), command


def test_the_hook_says_nothing_to_what_only_reads(client: Client):
    commands = [
        "paddock where",
        "paddock policy explain 'tool:file:create x'",
        "git log",
        "ls paddock",
    ]
    assert client.words(commands) == dict.fromkeys(commands, "none")
