"""A project with an agent that has a shell, for tests that really run commands through the door."""

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field

from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime
from paddock.plane.environment import read_environment
from paddock.runtime.approvals import Approver, NoApprover
from paddock.runtime.runtime import Runtime
from paddock.values.calls import ToolResult
from tests.support.places import Ran, run_command

OPEN = '[profiles.standard]\nallow = ["tool:*"]\n'
"""Everything but what path lists forbid: the shell without a question."""


class Yard(Struct, dict=True):
    """`base` holds a home and a project that is governed by `policy`."""

    base: Path
    policy: str = OPEN
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.base / "project"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def all_variables(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], **self.variables}

    def make(self) -> "Yard":
        self.root.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self.govern(self.policy)
        return self

    def govern(self, policy: str) -> None:
        """Put another policy in force, as its operator."""
        self.policy = policy
        (self.root / "paddock.toml").write_text(policy)
        ran = self.cli("trust", "--yes")
        assert ran.status == 0, ran.err

    def cli(self, *arguments: str) -> Ran:
        return run_command(*arguments, variables=self.all_variables, here=self.root)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def committed(self, files: Mapping[str, str | bytes]) -> Self:
        """The same, as a repository of the user's with these files in its first commit."""
        (self.home / ".gitconfig").write_text("[user]\n\tname = U\n\temail = u@example.org\n")
        self.git("init", "-q", "-b", "main", ".")
        self.write(files)
        self.git("add", ".")
        self.git("commit", "-qm", "first")
        return self

    def git(self, *arguments: str, where: str = ".") -> str:
        """The user's own git, outside of any sandbox."""
        identity = {"GIT_AUTHOR_NAME": "U", "GIT_AUTHOR_EMAIL": "u@example.org"}
        identity |= {"GIT_COMMITTER_NAME": "U", "GIT_COMMITTER_EMAIL": "u@example.org"}
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root / where,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], **identity},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    @contextmanager
    def opened(self, approver: Approver | None = None) -> Generator["Terminal", None, None]:
        project = open_project(self.root, read_environment(self.all_variables))
        approver = approver or NoApprover()
        with open_runtime(project, agent=None, approver=approver) as runtime:
            yield Terminal(self, runtime)

    def entries(self, kind: str, ledger: str = "ho1m") -> list[dict[str, Any]]:
        ran = self.cli("ledger", "query", "--ledger", ledger, "--type", kind, "--json")
        return [json.loads(line) for line in ran.out.splitlines()]

    def calls(self) -> list[dict[str, Any]]:
        return self.cli("history", "--json").json["calls"]


class Terminal(Struct, dict=True):
    """An agent at work in a yard."""

    yard: Yard
    runtime: Runtime

    def call(self, tool: str, **arguments: Any) -> ToolResult:
        return self.runtime.call(tool, arguments)

    def run(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The details of a command that ran."""
        result = self.call("run_shell", command=command, **arguments)
        assert result.refusal is None, result.content
        return dict(result.details)

    def sneak(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The same where nobody can see beforehand what the command does."""
        return self.run(hide(command), **arguments)

    def refuse(self, command: str, **arguments: Any) -> str:
        """The code of a command that did not run."""
        result = self.call("run_shell", command=command, **arguments)
        assert result.refusal is not None, result.content
        return result.refusal.code


class Background(Struct):
    """A command that goes on running, and what it has printed so far."""

    terminal: Terminal
    name: str
    said: str = ""

    def look(self, wait_s: int = 0) -> dict[str, Any]:
        result = self.terminal.call("shell_output", process=self.name, wait_s=wait_s)
        assert result.refusal is None, result.content
        self.said += str(result.details["output"])
        return dict(result.details)

    def until(self, text: str) -> "Background":
        """Wait until it has printed a text."""

        def has_come() -> bool:
            self.look(1)
            return text in self.said

        wait_until(has_come, f"it did not say {text!r}")
        return self

    def ended(self) -> dict[str, Any]:
        """Wait until it has ended by itself and its changes are in."""
        wait_until(lambda: "exit_code" in self.look(1), "it did not end")
        return self.look()

    def type(self, text: str) -> "Background":
        result = self.terminal.call("shell_input", process=self.name, text=text)
        assert result.refusal is None, result.content
        return self

    def sync(self) -> dict[str, Any]:
        return self._details("shell_sync")

    def stop(self) -> dict[str, Any]:
        return self._details("shell_stop")

    def _details(self, tool: str) -> dict[str, Any]:
        result = self.terminal.call(tool, process=self.name)
        assert result.refusal is None, result.content
        return dict(result.details)


def start(terminal: Terminal, command: str, **arguments: Any) -> Background:
    result = terminal.call("run_shell", command=command, background=True, **arguments)
    assert result.refusal is None, result.content
    return Background(terminal, str(result.details["process"]))


def hide(command: str) -> str:
    """A line that does the same where nobody can see beforehand what that is."""
    return f"echo {base64.b64encode(os.fsencode(command)).decode()} | base64 -d | bash"


def refused(details: Mapping[str, Any]) -> dict[str, str]:
    """Path → rule of what did not land."""
    return {row["path"]: row["rule"] for row in details["changes_refused"]}


@contextmanager
def a_terminal(base: Path, policy: str = OPEN) -> Generator[Terminal, None, None]:
    with Yard(base, policy).make().opened() as terminal:
        yield terminal


def processes() -> str:
    """The command lines of everything that runs on this machine."""
    done = subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True)
    return done.stdout


def wait_for(mark: str) -> None:
    """Until a process with this in its arguments runs."""
    wait_until(lambda: mark in processes(), f"nothing with {mark} began")


def wait_until(comes: Callable[[], bool], otherwise: str = "it did not come") -> None:
    """Until it is so; at most a minute."""
    deadline = time.monotonic() + 60
    while not comes():
        if time.monotonic() > deadline:
            raise AssertionError(otherwise)
        time.sleep(0.02)


def while_running(
    terminal: Terminal, line: str, act: Callable[[], object], before: str = "true"
) -> dict[str, Any]:
    """Run `before`, then do `act` out here, then run `line`: all while one command runs."""
    root = terminal.yard.root
    (root / "flags").mkdir()
    mark = f"{time.monotonic_ns() % 10**9}"

    def interfere() -> None:
        wait_for(f"sleep 4{mark}")
        act()
        (root / "flags/go").touch()

    thread = threading.Thread(target=interfere)
    thread.start()
    # In quotes: the shell that is given all of this would be taken for what it starts.
    waiting = f"sleep '4'{mark} & until ls flags | grep -q go; do sleep 0.02; done"
    said = terminal.run(f"{before}; {waiting}; {line}")
    thread.join()
    return said


def clear(root: Path) -> None:
    """Take everything out of a workspace but its policy."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path.name == "paddock.toml" and path.parent == root:
            continue
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
            path.rmdir()
        else:
            path.unlink()
