"""A workspace with a launcher beside it, and commands in it, for tests that really run some."""

import functools
import os
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.network.decisions import NetworkTerms
from paddock.network.egress import Egress
from paddock.policy.settings import SYSTEM_READ, Network, ShellLimits
from paddock.sandbox.changes.upper import RawChange, read_changes
from paddock.sandbox.launcher import Launcher, StageDirectories
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


class Way(StrEnum):
    """How a command of a test runs: alone; in a session, with a terminal of its own; or in a network
    that another process made, as the background commands of a client do."""

    ALONE = "alone"
    LASTING = "lasting"
    JOINED = "joined"


_way: ContextVar[Way] = ContextVar("way", default=Way.ALONE)

T = TypeVar("T")


@contextmanager
def all_run(way: Way) -> Generator[None, None, None]:
    """Have every command of a room run in this way."""
    before = _way.set(way)
    try:
        yield
    finally:
        _way.reset(before)


def once_a_way(act: Callable[..., T]) -> Callable[..., T]:
    """Keep what it returned, for each of its arguments and each way."""

    @functools.cache
    def kept(way: Way, *given: object) -> T:
        with all_run(way):
            return act(*given)

    return lambda *given: kept(_way.get(), *given)


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
        with self.opened(request) as (request, stage):
            end = self.launcher.run(request, stage)
            upper = stage.open_upper()
            try:
                layer = read_changes(upper, self.fd)
            finally:
                os.close(upper)
        return end, {change.path: change for change in layer.changes}

    @contextmanager
    def opened(
        self, request: CommandRequest, terms: NetworkTerms | None = None
    ) -> Generator[tuple[CommandRequest, StageDirectories], None, None]:
        """A stage for one command, in the way in which all run."""
        if _way.get() is Way.ALONE:
            with self.launcher.open_stage(request.plan, self.fd) as stage:
                yield request, stage
            return
        with ExitStack() as held:
            joined: tuple[int, ...] = ()
            if _way.get() is Way.JOINED:
                other = held.enter_context(Launcher(self.home / "staging-of-another"))
                joined = held.enter_context(closing(other.open_session(request.plan, None))).spaces
            opened = self.launcher.open_session(request.plan, terms, joined[:2])
            space = held.enter_context(closing(opened))
            stage = self.launcher.open_stage(request.plan, self.fd, session=space)
            held.enter_context(stage)
            yield request if joined else replace(request, terminal=(80, 24)), stage

    def shell(self, line: str, **how: object) -> CommandEnd:
        return self.run("/bin/sh", "-c", line, **how)

    def python(self, code: str, *arguments: str, **how: object) -> CommandEnd:
        return self.run(PYTHON, "-c", code, *arguments, **how)


def said(end: CommandEnd) -> str:
    """All of standard output, which must have been kept whole."""
    assert end.stdout.missing_bytes == 0
    text = (end.stdout.head + end.stdout.tail).decode("utf-8", "replace")
    # As a terminal ends its lines.
    return text.replace("\r\n", "\n")


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
