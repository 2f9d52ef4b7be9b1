"""Run commands in sandboxes through one launcher process, started when first needed.

When a command has ended, the next sandbox of its plan is created in advance, so that it starts in
about a millisecond. A launcher belongs to one process: after a fork the child starts a new one and
closes the parent's socket, so that the parent's sandboxes still end with the parent.
"""

import contextlib
import os
import secrets
import socket
import stat
import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import HostError, SandboxUnavailableError
from paddock.sandbox.conversation import (
    HOME,
    UNOBSERVED,
    CommandConversation,
    Observed,
    await_end,
    receive_served,
    start_inside,
)
from paddock.sandbox.git_config import private_files
from paddock.sandbox.host.host_facts import is_covered
from paddock.sandbox.inside.protocol import (
    GIT,
    HOST_IDS_FIRST,
    NAME_FILES,
    ROOT_MODE,
    WORKSPACE,
    Base,
)
from paddock.sandbox.sessions.shared_state import SharedSpace
from paddock.sandbox.staging_area import StagingArea
from paddock.sandbox.values import CommandEnd, CommandRequest, SandboxPlan, ShownFile
from paddock.storage.atomic import held_open, host_error
from paddock.storage.disk import DIRECTORY
from paddock.storage.locks import call_after_fork

if TYPE_CHECKING:
    from paddock.network.decisions import NetworkTerms
    from paddock.network.egress import Egress
    from paddock.network.wall import Wall, WallThread
    from paddock.sandbox.git_layer import OpenedGit

_ETC: Final = "/etc"
_NAME_FILES: Final = tuple(f"{_ETC}/{os.fsdecode(name)}" for name, _ in NAME_FILES)
_ERROR_BYTES_MAX: Final = 2000


class RunningLauncher:
    def __init__(self, staging: Path) -> None:
        self.area = StagingArea(staging)
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._stages = 0
        self._is_stopped = False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with contextlib.ExitStack() as undo, host_error("cannot start a launcher", str(staging)):
            undo.callback(self.area.claim.release)
            self._errors = os.open("errors", flags, 0o600, dir_fd=self.area.fd)
            undo.callback(os.close, self._errors)
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(self._socket.close)
            with theirs:
                arguments = [str(theirs.fileno()), str(self.owner)]
                self._process = start_inside("main", arguments, (theirs.fileno(),), self._errors)
            undo.pop_all()
        call_after_fork(self, RunningLauncher.forget)

    def is_alive(self) -> bool:
        return not self._is_stopped and self._process.poll() is None

    def make(self, fds: list[int]) -> None:
        """Have a sandbox created; the caller owns its stage until `drop`. Raises: HostError."""
        self.tell(b"make", fds)
        with self._lock:
            self._stages += 1

    def remove(self, name: str) -> None:
        """Have a directory of the area removed; without a launcher it is removed with the area."""
        try:
            self.tell(b"drop " + name.encode("ascii"), [self.area.fd])
        except HostError:
            self._process.poll()

    def listen(self, user: int, network: int, wanted: bytes, reply: int) -> None:
        """Have sockets created in a sandbox's network and sent to `reply`. Raises: HostError."""
        self.tell(b"listen " + wanted, [reply, user, network])

    def drop(self, stage: str, layers: tuple[str, ...]) -> None:
        """Have an ended sandbox's directory removed, with the layers that are no longer used.

        Without a launcher they are removed with the area. A forked child removes nothing.
        """
        if self.owner != os.getpid():
            return
        self.area.release(*layers)
        for name in (stage, *self.area.take_unused()):
            self.remove(name)
        with self._lock:
            self._stages -= 1
            is_last = self._is_stopped and self._stages == 0
        if is_last:
            self._release()

    def tell(self, message: bytes, fds: list[int]) -> None:
        try:
            socket.send_fds(self._socket, [message], fds)
        except OSError as error:
            size = os.fstat(self._errors).st_size
            text = os.pread(self._errors, _ERROR_BYTES_MAX, max(0, size - _ERROR_BYTES_MAX))
            raise HostError(
                f"the launcher has ended: {os.strerror(error.errno or 0)}",
                hint=text.decode("utf-8", "replace").strip(),
            ) from error

    def stop(self) -> None:
        """End the launcher and wait; the `drop` of the last stage in use releases the area."""
        with self._lock:
            if self._is_stopped or self.owner != os.getpid():
                return
            self._is_stopped = True
            is_last = self._stages == 0
        self._socket.close()
        await_end(self._process)
        if is_last:
            self._release()

    def forget(self) -> None:
        """In a forked child, close our copies: the launcher must see only the parent's end."""
        if self._is_stopped:
            return
        self._socket.close()
        # The child is not the launcher's parent: waiting for it would fail, and warn.
        self._process.returncode = 0
        self._is_stopped = True
        os.close(self._errors)
        self.area.claim.forget()

    def _release(self) -> None:
        self._socket.close()
        os.close(self._errors)
        self.area.claim.release()


Identity = tuple[int, ...]


class Recipe(Struct, frozen=True):
    base: bytes
    """A `Base` as bytes, without the stage's name."""
    places: tuple[Identity, ...]
    """Device and inode of the workspace and of every mounted place, to detect a directory that
    was replaced since."""
    mode: int
    git_mode: int
    layers: tuple[str, str]
    """Names in the area of the layers over the workspace and over its git directory."""
    session: str


class StageDirectories(Struct, eq=False):
    """The layers of one run: `upper` holds what the ended command changed. Used once."""

    running: RunningLauncher
    name: str
    control: socket.socket
    recipe: Recipe
    workspace_fd: int
    git_fd: int
    """-1 for none. The object owns the socket and the descriptors."""
    session: SharedSpace | None = None
    is_used: bool = False
    was_ready: bool = False
    new_mode: int | None = None
    """The root's mode if the command changed it, else None; known after `open_upper`."""

    @property
    def path(self) -> str:
        return f"{self.running.area.path}/{self.name}"

    def open_upper(self) -> int:
        """Return a descriptor of the upper layer's root. Raises: HostError without a sandbox."""
        opened, mode = self._open(WORKSPACE)
        self.new_mode = None if mode == self.recipe.mode else mode
        return opened

    def open_git(self) -> int:
        return -1 if self.git_fd < 0 else self._open(GIT)[0]

    def take_git(self, upper_fd: int, name: str) -> None:
        """Move the git layer to `name` in the upper layer, with its old mode. Raises: OSError."""
        area, git = self.running.area.fd, f"{self.name}/{os.fsdecode(GIT[0])}"
        os.chmod(git, self.recipe.git_mode | stat.S_IRWXU, dir_fd=area)
        os.rename(git, name, src_dir_fd=area, dst_dir_fd=upper_fd)

    def put_aside(self, upper_fd: int, name: str) -> None:
        area = self.running.area.fd
        os.rename(name, f"{self.name}/aside", src_dir_fd=upper_fd, dst_dir_fd=area)

    def _open(self, names: tuple[bytes, bytes]) -> tuple[int, int]:
        name, area = f"{self.name}/{os.fsdecode(names[0])}", self.running.area.fd
        with host_error("the upper layer cannot be read", self.path):
            mode = stat.S_IMODE(os.stat(name, dir_fd=area, follow_symlinks=False).st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                # A command that closed its root locks Paddock out as well, unless it is root.
                os.chmod(name, mode | stat.S_IRWXU, dir_fd=area)
            return os.open(name, DIRECTORY, dir_fd=area), mode

    def close(self) -> None:
        if self.workspace_fd < 0:
            return
        for fd in (self.workspace_fd, self.git_fd):
            _close_any(fd)
        self.workspace_fd = self.git_fd = -1
        if self.running.owner == os.getpid():
            # This ends the sandbox; closing is not enough while a forked child has the same
            # socket open.
            with contextlib.suppress(OSError):
                self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        self.running.drop(self.name, self.recipe.layers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CopiedLayer(Struct, eq=False):
    """A copy of a running command's changes at one moment."""

    running: RunningLauncher
    name: str
    fd: int
    marks: dict[str, tuple[int, ...]]
    """Each entry's mark at that moment."""
    new_mode: int | None = None

    @classmethod
    def make(cls, running: RunningLauncher) -> "CopiedLayer":
        """Create an empty layer. Raises: HostError."""
        name = f"copy-{secrets.token_hex(8)}"
        with host_error("cannot copy the changes of a command"):
            os.mkdir(name, 0o700, dir_fd=running.area.fd)
            fd = os.open(name, DIRECTORY, dir_fd=running.area.fd)
        return cls(running, name, fd, {})

    def open_upper(self) -> int:
        return os.dup(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.running.remove(self.name)


class Launcher:
    def __init__(self, staging: Path, outside: "Callable[[], Egress] | None" = None) -> None:
        """`staging` is private, on a real file system, and out of every agent's reach.

        `outside`: the network access of plans whose network is `policy`.
        """
        self._staging = staging
        self._outside = outside
        self._wall: WallThread | None = None
        self._lock = threading.Lock()
        self._running: RunningLauncher | None = None
        self._spare: StageDirectories | None = None
        """For the plan that ran last. That of another plan is closed after a command has run,
        because the end of a network namespace delays the creation of the next."""

    def open_stage(
        self,
        plan: SandboxPlan,
        workspace_fd: int,
        shown: Sequence[ShownFile] = (),
        git: "OpenedGit | None" = None,
        session: SharedSpace | None = None,
    ) -> StageDirectories:
        """Return a sandbox for one command of this plan, over the workspace of the descriptor.

        The plan's paths are those that the command sees; `shown` files replace hidden names.
        Returns before the sandbox is ready: `run` reports a failure. Raises: HostError without a
        launcher; SandboxUnavailableError where names cannot be hidden.
        """
        with self._lock:
            running = self._running_now()
            if session is not None and session.running is not running:
                raise SandboxUnavailableError(
                    "the session's shared state is lost with the process that held it",
                    hint="start the session again: reset",
                )
            hidden = running.area.hide(workspace_fd, plan.hidden, shown)
            with contextlib.ExitStack() as undo:
                undo.callback(running.area.release, hidden)
                git_shown = running.area.hide(git.beside.fd, git.hidden, git.shown) if git else ""
                undo.callback(running.area.release, git_shown)
                layers = hidden, git_shown
                base = _encode(plan, git, running.area.path, layers)
                root = os.fstat(workspace_fd)
                found = root if git is None else os.fstat(git.beside.fd)
                places = (_identity(root), _identity(found), *_places(plan))
                mode, git_mode = (each.st_mode & ROOT_MODE for each in (root, found))
                shared = "" if session is None else session.name
                recipe = Recipe(base, places, mode, git_mode, layers, shared)
                spare = self._spare
                if spare is not None and spare.recipe == recipe:
                    self._spare, spare.was_ready = None, True
                    return spare
                undo.pop_all()
        return _make(running, recipe, workspace_fd, -1 if git is None else git.beside.fd, session)

    def run(
        self,
        request: CommandRequest,
        stage: StageDirectories,
        observed: Observed = UNOBSERVED,
    ) -> CommandEnd:
        """Run the command in a stage of its plan, until it and all its processes have ended.

        Blocks. Over its time or memory limit, or cancelled, it is killed and reported. Raises:
        SandboxUnavailableError, HostError; ValueError for a NUL, or a stage that was used.
        """
        if stage.is_used:
            raise ValueError("a stage runs one command")
        stage.is_used = True
        # Fails on too few descriptors, or a disk too full for the spooled output.
        with contextlib.ExitStack() as held, host_error("cannot follow a command"):
            user = (HOST_IDS_FIRST, HOST_IDS_FIRST) if os.geteuid() == 0 else None
            network = self._hold_network(request.plan, stage, observed, held)
            tally = None if network is None else network.begin()
            if network is not None:
                request = replace(request, env=(*request.env, *network.placeholders()))
            talk = CommandConversation(stage.control, request, observed, user, network)
            with contextlib.closing(talk):
                end = talk.hold()
        if network is not None and tally is not None:
            end = replace(end, network=network.finish(tally))
        self._prepare_next(stage)
        return end

    def _hold_network(
        self,
        plan: SandboxPlan,
        stage: StageDirectories,
        observed: Observed,
        held: contextlib.ExitStack,
    ) -> "Wall | None":
        if plan.network != "policy":
            return None
        if stage.session is not None:
            return stage.session.network
        if observed.network is None:
            raise AssertionError("a command with a network, but without network terms")
        wall = self._serve(stage.running, receive_served(stage.control, 3), observed.network)
        held.callback(wall.end)
        return wall

    def _serve(
        self, running: RunningLauncher, spaces: Sequence[int], terms: "NetworkTerms"
    ) -> "Wall":
        if self._outside is None:
            raise AssertionError("a network, but no egress")
        from paddock.network.wall import WallThread  # noqa: PLC0415 - few commands have one

        with self._lock:
            if self._wall is None or self._wall.owner != os.getpid():
                self._wall = WallThread(self._outside())
        return self._wall.hold(spaces, partial(running.listen, *spaces[:2]), terms)

    def open_session(
        self, plan: SandboxPlan, terms: "NetworkTerms | None", joined: Sequence[int] = ()
    ) -> SharedSpace:
        """Create what a session shares, or enter the namespaces `joined` and serve their network.

        Raises: HostError, SandboxUnavailableError.
        """
        with self._lock:
            running = self._running_now()
        name = f"session-{secrets.token_hex(8)}"
        with contextlib.ExitStack() as undo, host_error("a session cannot be opened"):
            os.mkdir(name, 0o700, dir_fd=running.area.fd)
            undo.callback(running.remove, name)
            if os.geteuid() == 0:
                os.chown(name, HOST_IDS_FIRST, HOST_IDS_FIRST, dir_fd=running.area.fd)
            shared = SharedSpace(running, name)
            if plan.network in ("loopback", "policy"):
                shared.spaces = _open_network(running, plan, joined)
            undo.pop_all()
        if terms is not None and plan.network == "policy":
            shared.network = self._serve(running, shared.spaces, terms)
        return shared

    def close(self) -> None:
        """End the launcher and every sandbox. A later call starts a new one."""
        with self._lock:
            running, self._running = self._running, None
            spare, self._spare = self._spare, None
            wall, self._wall = self._wall, None
        for each in (wall, spare):
            if each is not None:
                each.close()
        if running is not None:
            running.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running_now(self) -> RunningLauncher:
        running = self._running
        if running is None or not running.is_alive():
            spare, self._spare = self._spare, None
            if spare is not None:
                spare.close()
            if running is not None:
                running.stop()
            running = self._running = RunningLauncher(self._staging)
        return running

    def _prepare_next(self, used: StageDirectories) -> None:
        with self._lock:
            running = used.running
            old = self._spare
            is_made = old is not None and old.recipe == used.recipe
            if is_made or running is not self._running:
                return
            self._spare = None
            running.area.hold(*used.recipe.layers)
            # On failure the next command starts a new launcher, and reports its problem.
            with contextlib.suppress(HostError):
                fds = used.workspace_fd, used.git_fd
                self._spare = _make(running, used.recipe, *fds, used.session)
        if old is not None:
            old.close()


def _open_network(
    running: RunningLauncher, plan: SandboxPlan, joined: Sequence[int]
) -> tuple[int, ...]:
    is_served = plan.network == "policy"
    literals = plan.literals if is_served else ()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            order = " ".join(("share", plan.network, *literals))
            running.tell(order.encode(), [theirs.fileno(), *joined])
        return tuple(receive_served(ours, 3 if is_served else 2))


def _encode(
    plan: SandboxPlan, git: "OpenedGit | None", area: str, layers: tuple[str, str]
) -> bytes:
    """Encode for the launcher. Raises: SandboxUnavailableError where no overlay is possible."""
    if plan.workspace == "/":
        raise SandboxUnavailableError(
            "the root directory cannot be a workspace for commands",
            hint="open a directory below it",
        )
    limits = plan.limits
    encode = os.fsencode
    covered = _NAME_FILES if plan.network == "policy" else ()
    files = [(encode(name), content) for name, content in private_files(plan.git_config)]
    hidden, git_shown = (encode(f"{area}/{name}") if name else b"" for name in layers)
    return Base(
        workspace=encode(plan.workspace),
        stage=b"",
        hidden=hidden,
        git=b"" if git is None else encode(git.outside.common),
        git_shown=git_shown,
        git_pointer=[] if git is None else [encode(text) for text in git.pointer],
        home=encode(HOME),
        network=encode(plan.network),
        readable=[encode(path) for path in plan.readable if path not in covered],
        writable=[encode(path) for path in plan.writable],
        links=[encode(text) for link in plan.links for text in link],
        files=[part for file in files for part in file],
        caches=[encode(plan.caches)] + [b"read"] * plan.caches_read_only if plan.caches else [],
        processes=limits.processes,
        memory_mb=limits.memory_mb,
        file_mb=limits.file_mb,
        cpu_s=limits.cpu_s,
        known_hosts=encode(plan.known_hosts),
        authorities=plan.authorities.encode("ascii"),
        literals=[encode(text) for text in plan.literals] if plan.network == "policy" else [],
        sockets=int(plan.unix_sockets and not _is_listened_in(plan.readable)),
    ).encode()


def _is_listened_in(places: tuple[str, ...]) -> bool:
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
            # proc(5): seven columns, then the path, where there is one.
            rows = [row.rstrip("\n").split(maxsplit=7) for row in table]
    except OSError:
        return True
    return any(is_covered(path, places) for *_, path in rows if path.startswith("/"))


def _places(plan: SandboxPlan) -> tuple[Identity, ...]:
    found: list[Identity] = []
    paths = (*plan.readable, *plan.writable, *filter(None, [plan.caches]))
    # Most are in /etc itself: none was replaced while the time of /etc is the same.
    for path in dict.fromkeys(_ETC if path.rpartition("/")[0] == _ETC else path for path in paths):
        try:
            look = os.stat(path)
        except OSError:
            # Removed since the plan was compiled: the sandbox does without it.
            found.append((0, 0))
        else:
            found.append((*_identity(look), look.st_mtime_ns if path == _ETC else 0))
    return tuple(found)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _make(
    running: RunningLauncher,
    recipe: Recipe,
    workspace_fd: int,
    git_fd: int,
    session: SharedSpace | None = None,
) -> StageDirectories:
    """Request one sandbox, which takes over the use of its hidden layers. Raises: HostError."""
    name = f"stage-{secrets.token_hex(8)}"
    base = Base.decode(recipe.base)
    base.stage = os.fsencode(f"{running.area.path}/{name}")
    joined: tuple[int, ...] = ()
    if session is not None:
        joined = session.spaces[:2]
        base.session = os.fsencode(f"{running.area.path}/{session.name}")
        base.joins = int(bool(joined))
        if session.network is not None:
            base.name_server = os.fsencode(session.name_server)
    with (
        host_error("cannot request a sandbox"),
        contextlib.ExitStack() as undo,
        contextlib.ExitStack() as sent,
    ):
        undo.callback(running.area.release, *recipe.layers)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sent.enter_context(theirs)
        undo.callback(ours.close)
        workspace, git = (os.dup(fd) if fd >= 0 else -1 for fd in (workspace_fd, git_fd))
        for fd in (workspace, git):
            undo.callback(_close_any, fd)
        order = sent.enter_context(held_open(os.memfd_create("order", os.MFD_CLOEXEC)))
        os.write(order, base.encode())
        layers = [sent.enter_context(_open_layer(running, name)) for name in recipe.layers]
        # In the order in which the launcher reads them; absent ones are not sent.
        fds = (theirs.fileno(), order, workspace, running.area.fd, layers[0], git, layers[1])
        running.make([*(fd for fd in fds if fd >= 0), *joined])
        undo.pop_all()
        return StageDirectories(running, name, ours, recipe, workspace, git, session)


@contextlib.contextmanager
def _open_layer(running: RunningLauncher, name: str) -> Generator[int]:
    if not name:
        yield -1
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    with held_open(os.open(name, flags, dir_fd=running.area.fd)) as fd:
        yield fd


def _close_any(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
