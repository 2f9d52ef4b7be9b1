"""Running commands under Landlock, from a runtime's side: one keeper process for each command.

A keeper costs an interpreter's start (some 20 ms), which a host that closes user
namespaces pays. It is a program of its own, because only a process that does nothing
else may adopt orphans and may take all that it adopts for one command's.
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.errors import HostError
from paddock.sandbox.claims import claimed
from paddock.sandbox.conversation import NOBODY, Conversation, Observed
from paddock.sandbox.git_config import private_files
from paddock.sandbox.inside.orders import UNHELD
from paddock.sandbox.landlock import Area, Ground, LandlockConfinement, confine, identity_for
from paddock.sandbox.values import CommandEnd, CommandRequest, Enforced, SandboxPlan

_PROGRAM: Final = str(Path(__file__).with_name("inside") / "keeper.py")
_PREFIX: Final = "paddock-command-"
_STOP_WAIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Workplace:
    """A workspace and what of it is closed to the command that is to run."""

    fd: int
    read: Area
    write: Area


@dataclass(frozen=True, slots=True)
class HeldEnd:
    end: CommandEnd
    enforced: Enforced


def run_landlocked(
    request: CommandRequest, workplace: Workplace, observed: Observed = NOBODY
) -> HeldEnd:
    """Run one command on the workspace itself, to its end and that of all it started.

    Blocks; many threads may be in here. What the command changed stands.

    Raises:
        SandboxUnavailableError: no Landlock here, or a command would have to be root.
        HostError: the keeper cannot be started, or ended without a report.
        ValueError: a NUL in an argument.
    """
    identity = _identity(workplace.fd)
    with _scratch(request.plan, identity) as scratch:
        ground = Ground(workplace.fd, (scratch,))
        with confine(request.plan, ground, workplace.read, workplace.write) as held:
            end = _keep(request, held, scratch, observed, identity)
            return HeldEnd(end, held.enforced)


def run_unheld(
    request: CommandRequest, workspace_fd: int, enforced: Enforced, observed: Observed = NOBODY
) -> HeldEnd:
    """As `run_landlocked`, but nothing holds the command to the policy: `enforced` says so.

    Only where an operator's policy wants it so. It is still not root, gains no privileges,
    has its limits, and nothing of it is left when it has ended.

    Raises: SandboxUnavailableError, HostError, ValueError as above.
    """
    identity = _identity(workspace_fd)
    with _scratch(request.plan, identity) as scratch:
        return HeldEnd(_keep(request, None, scratch, observed, identity), enforced)


def _identity(workspace_fd: int) -> tuple[int, int] | None:
    owner = os.fstat(workspace_fd)
    return identity_for(os.geteuid(), (owner.st_uid, owner.st_gid))


def _keep(
    request: CommandRequest,
    held: LandlockConfinement | None,
    scratch: str,
    observed: Observed,
    identity: tuple[int, int] | None,
) -> CommandEnd:
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with control, theirs:
        keeper = _start(held, theirs, _terms(request.plan, identity, scratch))
        theirs.close()
        try:
            talk = Conversation(control, request, observed, identity)
            with contextlib.closing(talk):
                return talk.hold()
        finally:
            control.close()
            _await(keeper)


def _terms(plan: SandboxPlan, identity: tuple[int, int] | None, scratch: str) -> list[str]:
    uid, gid = identity or (-1, -1)
    limits = plan.limits
    numbers = (uid, gid, limits.processes, limits.memory_mb, limits.file_mb, limits.cpu_s)
    return [*map(str, numbers), scratch]


def _start(
    held: LandlockConfinement | None, theirs: socket.socket, terms: list[str]
) -> subprocess.Popen[bytes]:
    program = os.memfd_create("filter", os.MFD_CLOEXEC)
    try:
        fds: tuple[int, ...] = (theirs.fileno(),)
        numbers = [str(theirs.fileno()), UNHELD, UNHELD]
        if held is not None:
            os.write(program, held.program)
            fds = (theirs.fileno(), held.ruleset_fd, program)
            numbers = [str(fd) for fd in fds]
        # Isolated, without site: nothing of the user's is loaded. Never preexec_fn, which
        # copies this whole process and may deadlock in a threaded one.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _PROGRAM, *numbers, *terms],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=fds,
            cwd="/",
            env={},
            start_new_session=True,
        )
    except OSError as error:
        raise HostError(
            f"the keeper of a command cannot be started: {os.strerror(error.errno or 0)}",
            where=sys.executable,
        ) from error
    finally:
        os.close(program)


def _await(keeper: subprocess.Popen[bytes]) -> None:
    """It ends once the socket is closed and its command's tree is gone."""
    try:
        keeper.wait(_STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


@contextmanager
def _scratch(plan: SandboxPlan, identity: tuple[int, int] | None) -> Generator[str]:
    """HOME and TMPDIR of one command, which it alone may enter; gone afterwards.

    What a process that was killed left of the kind goes first.
    """
    with contextlib.ExitStack() as held:
        try:
            place = held.enter_context(claimed(Path(tempfile.gettempdir()), _PREFIX))
            _furnish(place, plan, identity)
        except OSError as error:
            raise HostError(
                f"no private directory for a command: {os.strerror(error.errno or 0)}"
            ) from error
        yield os.fspath(place)


def _furnish(place: Path, plan: SandboxPlan, identity: tuple[int, int] | None) -> None:
    home, temporary = place / "home", place / "tmp"
    for directory in (home, temporary):
        directory.mkdir(mode=0o700)
    made: list[Path] = []
    for name, content in private_files(plan.git_config):
        file = home / name
        above = [each for each in file.parents if each.is_relative_to(home) and each != home]
        for directory in reversed(above):
            directory.mkdir(mode=0o700, exist_ok=True)
        file.write_bytes(content)
        made += [file, *above]
    if identity is None:
        return
    # Threat: the user who gets it exchanges it for a link while root is at work on it. So
    # the place stays root's own, and he gets there only when all is done.
    for path in (*made, home, temporary):
        os.chown(path, *identity, follow_symlinks=False)
    place.chmod(0o711)
