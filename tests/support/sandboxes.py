"""A workspace with a launcher beside it, and commands in it, for tests that really run some."""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.network.egress import Egress
from paddock.policy.settings import SYSTEM_READ, Network, ShellLimits
from paddock.sandbox.changes.upper import RawChange, read_changes
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import CommandEnd, CommandRequest, GitConfig, SandboxPlan

PYTHON = os.path.realpath(sys.executable)
"""The interpreter behind the tests' environment: what a plan can make readable."""


def system_places() -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """What a plan lists of this host: real directories, and the links that lead to them."""
    links = tuple((path, os.readlink(path)) for path in SYSTEM_READ if os.path.islink(path))
    wanted = {os.path.realpath(path) for path in SYSTEM_READ if os.path.exists(path)}
    wanted.add(os.path.realpath(sys.base_prefix))
    topmost = [
        path
        for path in wanted
        if not any(path != one and path.startswith(f"{one}/") for one in wanted)
    ]
    return tuple(sorted(topmost)), tuple(link for link in links if link[0].count("/") == 1)


def usual(**limits: int) -> ShellLimits:
    """Limits of which the memory, too, is a number."""
    return replace(ShellLimits(memory_mb=4096), **limits)


class Room(Struct, dict=True):
    """One workspace with its launcher."""

    home: Path
    launcher: Launcher
    workspace: Path
    fd: int
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    limits: ShellLimits = field(default_factory=usual)
    network: Network = "loopback"
    hidden: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()

    def plan(self) -> SandboxPlan:
        readable, links = system_places()
        return SandboxPlan(
            workspace=str(self.workspace),
            readable=tuple(sorted((*readable, *self.readable))),
            writable=self.writable,
            hidden=self.hidden,
            network=self.network,
            git="safe",
            commit="each",
            enforcement="required",
            limits=self.limits,
            environment=(("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin")),
            policy_digest="",
            git_config=GitConfig((("user.name", "A Tester"), ("user.email", "tester@example.org"))),
            links=links,
            literals=self.literals,
        )

    def request(
        self, *argv: str, cwd: str = ".", timeout_s: float = 60.0, kept: int = 100_000
    ) -> CommandRequest:
        return CommandRequest(self.plan(), argv, cwd, timeout_s, kept)

    def run(self, *argv: str, **how: object) -> CommandEnd:
        """The command's end; its changes are dropped."""
        return self.run_and_read(*argv, **how)[0]

    def run_and_read(self, *argv: str, **how: object) -> tuple[CommandEnd, dict[str, RawChange]]:
        """The command's end, and what it changed."""
        request = self.request(*argv, **how)
        with self.launcher.open_stage(request.plan, self.fd) as stage:
            end = self.launcher.run(request, stage)
            upper = stage.open_upper()
            try:
                layer = read_changes(upper, self.fd)
            finally:
                os.close(upper)
        return end, {change.path: change for change in layer.changes}

    def shell(self, line: str, **how: object) -> CommandEnd:
        return self.run("/bin/sh", "-c", line, **how)

    def python(self, code: str, *arguments: str, **how: object) -> CommandEnd:
        return self.run(PYTHON, "-c", code, *arguments, **how)


def said(end: CommandEnd) -> str:
    """All of standard output, which must have been kept whole."""
    assert end.stdout.missing_bytes == 0
    return (end.stdout.head + end.stdout.tail).decode("utf-8", "replace")


def complained(end: CommandEnd) -> str:
    return (end.stderr.head + end.stderr.tail).decode("utf-8", "replace")


@contextmanager
def a_room(
    home: Path, outside: "Callable[[], Egress] | None" = None
) -> Generator[Room, None, None]:
    """A room below `home`, taken down with everything that still runs in it."""
    workspace = home / "workspace"
    workspace.mkdir(exist_ok=True)
    fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY)
    try:
        with Launcher(home / "staging", outside) as launcher:
            yield Room(home, launcher, workspace, fd)
    finally:
        os.close(fd)
