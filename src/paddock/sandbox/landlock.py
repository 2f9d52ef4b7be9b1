"""Confine commands without user namespaces: Landlock, a seccomp filter, a supervisor.

The command works on the workspace itself. Landlock rules only allow, for a whole subtree: a
directory that contains a protected name gets no rights, and its open entries get rules one by
one. So protected files and their directories stay, and no new entry can be created beside them.
Every result lists in its gaps what this backend cannot enforce. The rule set is built here and
passed as one descriptor that the child applies; Paddock's own threads are never restricted.
"""

import contextlib
import errno
import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import SandboxUnavailableError
from paddock.kernel import landlock as kernel
from paddock.kernel.seccomp import AF_INET, AF_INET6, build_filter_among_others
from paddock.sandbox.conversation import (
    UNOBSERVED,
    CommandConversation,
    Observed,
    await_end,
    start_inside,
)
from paddock.sandbox.git_config import private_files
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.host.host_facts import directories_above
from paddock.sandbox.inside.protocol import UNHELD
from paddock.sandbox.plan import Closing
from paddock.sandbox.staging_area import claimed
from paddock.sandbox.values import CommandEnd, CommandRequest, Enforced, Enforcement, SandboxPlan
from paddock.storage.atomic import held_open, host_error
from paddock.workspace.workspace import PASS, READ_DIRECTORY, detect_resolution

LANDLOCK: Final = "landlock"

_READ: Final = kernel.EXECUTE | kernel.READ_FILE | kernel.READ_DIR
_CHANGE: Final = (
    kernel.WRITE_FILE
    | kernel.TRUNCATE
    | kernel.REMOVE_DIR
    | kernel.REMOVE_FILE
    | kernel.MAKE_DIR
    | kernel.MAKE_REG
    | kernel.MAKE_SYM
    | kernel.REFER
)
"""No devices, FIFOs or sockets."""
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PROCESSES: Final = "/proc"
"""Without it compilers and runtimes fail. The environment, memory and descriptors of processes
outside stay closed: there the kernel asks Landlock (ptrace(2), access check)."""

RULES_MAX: Final = 20_000
_PROBE: Final = "new-name"
"""Represents any name that a command could create in a directory."""


class LandlockConfinement(Struct, frozen=True):
    ruleset_fd: int
    program: bytes


@contextmanager
def confine(
    plan: SandboxPlan, root_fd: int, scratch: str, read: NameIndex, write: NameIndex
) -> Generator[LandlockConfinement]:
    """Build the rule set; `scratch` contains HOME and TMPDIR, created for this command alone.

    Raises: OSError; SandboxUnavailableError without Landlock or over `RULES_MAX`.
    """
    abi = kernel.landlock_abi()
    if abi == 0:
        raise SandboxUnavailableError("this kernel has no Landlock", hint="see: paddock doctor")
    families = (AF_INET, AF_INET6) if plan.network == "host" else ()
    program = build_filter_among_others(families)
    ruleset_fd = kernel.create_ruleset(abi, holds_network=plan.network != "host")
    with held_open(ruleset_fd):
        rules = _Rules(ruleset_fd, abi)
        rules.allow_host(_PROCESSES, _READ)
        for path in _DEVICES:
            rules.allow_host(path, kernel.READ_FILE | kernel.WRITE_FILE)
        rules.allow_host(scratch, _READ | _CHANGE)
        # Threat: a user with write access above a place has replaced a directory by a symlink.
        with held_open(os.open("/", PASS)) as slash:
            for path in plan.readable:
                rules.allow_below(slash, path.strip("/") or ".", _READ)
            for path in plan.writable:
                rules.allow_below(slash, path.strip("/") or ".", _READ | _CHANGE)
        # Listing is allowed everywhere: to deny it in a hidden directory, it would have to be
        # denied in every directory above as well.
        rules.allow_below(root_fd, ".", kernel.READ_DIR)
        for index, rights in ((read, kernel.EXECUTE | kernel.READ_FILE), (write, _CHANGE)):
            for path in _open_places(root_fd, index):
                rules.allow_below(root_fd, path, rights)
        yield LandlockConfinement(ruleset_fd, program)


def enforced_by_landlock(plan: SandboxPlan) -> Enforced:
    return Enforced(LANDLOCK, Enforcement.PARTIAL, gaps(plan, kernel.landlock_abi()))


def gaps(plan: SandboxPlan, abi: int) -> tuple[str, ...]:
    found = [
        "changes take effect at once: they are not judged, not staged, and not in the history",
        "a protected name can be created in a directory that has no protected name yet",
        "no entry can be created in a directory that contains a protected name",
        "mode, times and attributes of this user's files outside can be changed",
        "a file with a hard link outside the workspace is changed there too",
        "symlinks that lead out of the workspace can be created",
        "names of files that may not be read can be listed",
        "git fails on a tracked file that may not be read, without losing data",
        "command lines of other processes and names of this user's keys can be read",
        "there is no private /tmp: use TMPDIR; the host's /tmp is closed unless policy opens it",
        "caches are not kept from one command to the next",
        "there is no /dev/shm and no System V memory: semaphores of multiprocessing fail",
    ]
    more = (
        (plan.git == "safe", "git cannot write: .git is read-only as a whole"),
        (
            plan.git_outside is not None,
            "git does not work: its directory is outside the workspace",
        ),
        (plan.commit == "all", 'commit = "all" is not enforced: changes cannot be undone'),
        (
            plan.network in ("loopback", "policy"),
            "there is no private loopback: network sockets are refused",
        ),
        (plan.network == "host", "the host's services on its loopback can be reached"),
        (abi < 2, "files cannot be moved from one directory to another"),
        (abi < 3, "this user's files outside can be truncated"),
        (abi < 6, "processes of this user can be signalled"),
    )
    return (*found, *(text for holds, text in more if holds))


def identity_for(euid: int, owner: tuple[int, int]) -> tuple[int, int] | None:
    """Return the user and group that a command runs as; None to keep the current user.

    `owner` is the workspace's: another user could not work on its files. Raises:
    SandboxUnavailableError for a workspace of root's.
    """
    if euid != 0:
        return None
    if owner[0] == 0:
        raise SandboxUnavailableError(
            "started by root, and the workspace belongs to root: without user namespaces a"
            " command would have to run as root",
            hint="start paddock as another user, or give the workspace to one",
        )
    return owner


class _Rules(Struct):
    fd: int
    abi: int
    count: int = 0

    def allow_host(self, path: str, rights: int) -> None:
        try:
            fd = os.open(path, PASS)
        except OSError:
            return
        self._allow(fd, rights)

    def allow_below(self, root_fd: int, path: str, rights: int) -> None:
        """Allow `rights` below `path`, unless a symlink is on the way."""
        try:
            fd = detect_resolution().open(root_fd, path, PASS)
        except OSError:
            return
        self._allow(fd, rights)

    def _allow(self, fd: int, rights: int) -> None:
        self.count += 1
        with held_open(fd):
            if self.count > RULES_MAX:
                raise SandboxUnavailableError(
                    f"the workspace needs more than {RULES_MAX} Landlock rules",
                    hint="keep protected files in a few separate directories",
                )
            rights &= kernel.handled_files(self.abi)
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= kernel.OF_FILES
            if rights:
                kernel.allow_path(self.fd, fd, rights)


def _open_places(root_fd: int, index: NameIndex) -> Iterator[str]:
    closed, judge = frozenset(index.find(root_fd)), index.judge
    above = {parent for path in closed for parent in (".", *directories_above(path))}
    waiting = ["."]
    while waiting:
        directory = waiting.pop()
        new = _PROBE if directory == "." else f"{directory}/{_PROBE}"
        may_grow = judge.judge(new, is_directory=False) is Closing.OPEN
        if may_grow and directory not in above:
            yield directory
            continue
        for path, is_directory in _entries(root_fd, directory):
            is_closed = path in closed
            if is_closed and judge.judge(path, is_directory) is Closing.SEALED:
                continue
            if is_directory:
                waiting.append(path)
            elif not is_closed:
                yield path


def _entries(root_fd: int, directory: str) -> list[tuple[str, bool]]:
    """List entries without symlinks: Landlock gives rights to their targets instead."""
    try:
        fd = detect_resolution().open(root_fd, directory, READ_DIRECTORY)
    except OSError as failure:
        if directory == "." and failure.errno != errno.ENOENT:
            raise
        return []
    prefix = "" if directory == "." else f"{directory}/"
    with held_open(fd), os.scandir(fd) as entries:
        return [
            (prefix + entry.name, entry.is_dir(follow_symlinks=False))
            for entry in entries
            if not entry.is_symlink()
        ]


# A supervisor costs the start of an interpreter (about 20 ms). It is a separate process, because
# only a process without other children can treat every orphan it adopts as the command's.

_PREFIX: Final = "paddock-command-"


def run_in_place(
    request: CommandRequest,
    workspace_fd: int,
    closed: tuple[NameIndex, NameIndex] | None,
    observed: Observed = UNOBSERVED,
) -> CommandEnd:
    """Run one command on the workspace itself, until it and all its processes have ended.

    `closed`: the names closed to reading and to writing, which Landlock enforces. With None the
    command is not confined, which only the operator's policy allows: it still is not root, gains
    no privileges, has limits, and leaves no process behind. Raises: SandboxUnavailableError: no
    Landlock, or it would run as root; HostError: the supervisor failed; ValueError: a NUL.
    """
    owner = os.fstat(workspace_fd)
    identity = identity_for(os.geteuid(), (owner.st_uid, owner.st_gid))
    with _scratch(request.plan, identity) as scratch, contextlib.ExitStack() as confined:
        confinement = None
        if closed is not None:
            confinement = confined.enter_context(
                confine(request.plan, workspace_fd, scratch, *closed)
            )
        return _supervise(request, confinement, scratch, observed, identity)


def _supervise(
    request: CommandRequest,
    confinement: LandlockConfinement | None,
    scratch: str,
    observed: Observed,
    identity: tuple[int, int] | None,
) -> CommandEnd:
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with control, theirs, held_open(os.memfd_create("filter", os.MFD_CLOEXEC)) as program:
        fds: tuple[int, ...] = (theirs.fileno(),)
        if confinement is not None:
            os.write(program, confinement.program)
            fds = (*fds, confinement.ruleset_fd, program)
        most = request.plan.limits
        limits = most.processes, most.memory_mb, most.file_mb, most.cpu_s
        numbers = [str(fd) for fd in fds] + ([UNHELD, UNHELD] if confinement is None else [])
        terms = [str(number) for number in (*(identity or (-1, -1)), *limits)]
        supervisor = start_inside(
            "supervisor", [*numbers, *terms, scratch], fds, subprocess.DEVNULL
        )
        theirs.close()
        try:
            talk = CommandConversation(control, request, observed, identity)
            with contextlib.closing(talk):
                return talk.hold()
        finally:
            control.close()
            await_end(supervisor)


@contextmanager
def _scratch(plan: SandboxPlan, identity: tuple[int, int] | None) -> Generator[str]:
    """Create HOME and TMPDIR for one command; sweep leftovers of killed processes."""
    with contextlib.ExitStack() as held:
        with host_error("cannot create a private directory for a command"):
            place = held.enter_context(claimed(Path(tempfile.gettempdir()), _PREFIX))
            _furnish(place, plan, identity)
        yield os.fspath(place)


def _furnish(place: Path, plan: SandboxPlan, identity: tuple[int, int] | None) -> None:
    home, temporary = place / "home", place / "tmp"
    for directory in (home, temporary):
        directory.mkdir(mode=0o700)
    for name, content in private_files(plan.git_config):
        file = home / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_bytes(content)
    if identity is None:
        return
    # Threat: the new owner replaces a file by a symlink while root is still working here. So
    # the directory above stays root's, and opens to him only when everything is done.
    for path in (*home.rglob("*"), home, temporary):
        os.chown(path, *identity, follow_symlinks=False)
    place.chmod(0o711)
