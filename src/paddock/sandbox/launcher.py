"""Commands in sandboxes, from a runtime's side: one launcher process, started when first needed.

When a command has ended, the next sandbox of its plan is made, so that one starts in about a
millisecond. Owned by one process: after a fork the child has a new launcher and closes the
parent's socket, so that the parent's sandboxes still end with the parent.
"""

import contextlib
import os
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import HostError, SandboxUnavailableError
from paddock.sandbox.area import Overlaid
from paddock.sandbox.conversation import HOME, NOBODY, CommandConversation, Observed
from paddock.sandbox.git_config import private_files
from paddock.sandbox.host.host_facts import is_covered
from paddock.sandbox.inside.protocol import HOST_IDS_FIRST, ROOT_MODE, Base
from paddock.sandbox.stage import Identity, Recipe, RunningLauncher, StageDirectories, order_for
from paddock.sandbox.values import CommandEnd, CommandRequest, SandboxPlan, ShownFile
from paddock.storage.atomic import host_error

_ETC: Final = "/etc"


class GitLayer(Struct, frozen=True):
    fd: int
    path: str
    hidden: tuple[str, ...]
    shown: Overlaid
    pointer: tuple[str, str] | None = None


class Launcher:
    def __init__(self, staging: Path) -> None:
        """`staging` is ours, on a real file system, and no agent reaches it."""
        self._staging = staging
        self._lock = threading.Lock()
        self._running: RunningLauncher | None = None
        self._spare: StageDirectories | None = None
        self._stale: list[StageDirectories] = []
        self._encoded: tuple[SandboxPlan | None, str, bytes] = (None, "", b"")

    def open_stage(
        self,
        plan: SandboxPlan,
        workspace_fd: int,
        shown: Sequence[ShownFile] = (),
        git: GitLayer | None = None,
    ) -> StageDirectories:
        """Return a sandbox for one command of this plan, over the workspace of the descriptor.

        Paths in the plan are where the command sees workspace and git directory (`git`); what is
        `shown` stands for what the plan hides. Returns before it stands: `run` says if it failed.
        Raises: HostError without a launcher; SandboxUnavailableError where names cannot be hidden.
        """
        with self._lock:
            running = self._running_now()
            with contextlib.ExitStack() as undo:
                hidden = running.area.hide(workspace_fd, plan.hidden, shown)
                undo.callback(running.area.let_go, hidden)
                git_shown = ""
                if git is not None:
                    git_shown = running.area.hide(git.fd, git.hidden, laid=git.shown)
                undo.callback(running.area.let_go, git_shown)
                recipe = self._recipe(plan, hidden, workspace_fd)
                if git is not None:
                    recipe = _with_git(recipe, git, git_shown)
                spare, self._spare = self._spare, None
                if spare is not None and spare.recipe == recipe:
                    spare.was_ready = True
                    return spare
                undo.pop_all()
            if spare is not None:
                # Not now: the end of one network namespace delays the beginning of another.
                self._stale.append(spare)
        return _make(running, recipe, workspace_fd, -1 if git is None else git.fd)

    def _recipe(self, plan: SandboxPlan, hidden: str, workspace_fd: int) -> Recipe:
        if self._encoded[:2] != (plan, hidden):
            self._encoded = (plan, hidden, _encode(plan, hidden))
        mode = os.fstat(workspace_fd).st_mode & ROOT_MODE
        return Recipe(self._encoded[2], _places(plan, workspace_fd), mode, hidden)

    def prepare(self, plan: SandboxPlan, workspace_fd: int) -> None:
        """Make, at once, a sandbox that a first command of this plan will find; as `open_stage`."""
        made = self.open_stage(plan, workspace_fd)
        with self._lock:
            other, self._spare = self._spare, made
        if other is not None:
            other.close()

    def run(
        self,
        request: CommandRequest,
        stage: StageDirectories,
        observed: Observed = NOBODY,
    ) -> CommandEnd:
        """Run the command in a stage opened for its plan, to its end and that of all it started.

        Blocks. Over time or memory, or cancelled, it is killed and reported. Raises:
        SandboxUnavailableError, HostError; ValueError for a NUL, or a stage that was used.
        """
        if stage.is_used:
            raise ValueError("a stage runs one command")
        stage.is_used = True
        # Too few descriptors, or a disk too full for what is kept of the output.
        with host_error("a command cannot be listened to"):
            user = (HOST_IDS_FIRST, HOST_IDS_FIRST) if os.geteuid() == 0 else None
            talk = CommandConversation(stage.control, request, observed, user)
            with contextlib.closing(talk):
                end = talk.hold()
        self._prepare_next(stage)
        self._close_stale()
        return end

    def close(self) -> None:
        """End the launcher and every sandbox. A later call starts a new one."""
        with self._lock:
            running, self._running = self._running, None
            self._drop_spare(running)
        if running is not None and running.owner == os.getpid():
            self._close_stale()
            running.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running_now(self) -> RunningLauncher:
        running = self._running
        if running is not None and running.owner == os.getpid() and running.is_alive():
            return running
        self._drop_spare(running)
        if running is not None and running.owner == os.getpid():
            running.stop()
        self._running = RunningLauncher(self._staging, sys.executable)
        return self._running

    def _drop_spare(self, running: RunningLauncher | None) -> None:
        spare, self._spare = self._spare, None
        if spare is not None and running is not None and running.owner == os.getpid():
            self._stale.append(spare)
        elif running is None or running.owner != os.getpid():
            self._stale = []

    def _close_stale(self) -> None:
        with self._lock:
            stale, self._stale = self._stale, []
        for stage in stale:
            stage.close()

    def _prepare_next(self, used: StageDirectories) -> None:
        with self._lock:
            running = self._running
            if self._spare is not None or used.running is not running or running is None:
                return
            running.area.hold(used.recipe.hidden)
            running.area.hold(used.recipe.git_shown)
            try:
                self._spare = _make(running, used.recipe, used.workspace_fd, used.git_fd)
            except HostError:
                # The next command starts a launcher anew, and says what is wrong with it.
                self._spare = None


def _encode(plan: SandboxPlan, hidden: str) -> bytes:
    """Encode for the launcher. Raises: SandboxUnavailableError where no overlay can be."""
    if plan.workspace == "/":
        raise SandboxUnavailableError(
            "the root directory cannot be a workspace for commands",
            hint="open a directory below it",
        )
    limits = plan.limits
    encode = os.fsencode
    return Base(
        workspace=encode(plan.workspace),
        stage=b"",
        hidden=encode(hidden),
        git=b"",
        git_shown=b"",
        git_pointer=[],
        home=encode(HOME),
        network=encode(plan.network),
        readable=[encode(path) for path in plan.readable],
        writable=[encode(path) for path in plan.writable],
        links=[encode(text) for link in plan.links for text in link],
        files=[
            part
            for name, content in private_files(plan.git_config)
            for part in (encode(name), content)
        ],
        caches=[encode(plan.caches)] + [b"read"] * plan.caches_read_only if plan.caches else [],
        processes=limits.processes,
        memory_mb=limits.memory_mb,
        file_mb=limits.file_mb,
        cpu_s=limits.cpu_s,
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


def _places(plan: SandboxPlan, workspace_fd: int) -> tuple[Identity, ...]:
    found = [_identity(os.fstat(workspace_fd))]
    paths = (*plan.readable, *plan.writable, *filter(None, [plan.caches]))
    # Most stand in /etc itself: none was replaced while its own time is the same.
    for path in dict.fromkeys(_ETC if path.rpartition("/")[0] == _ETC else path for path in paths):
        try:
            look = os.stat(path)
        except OSError:
            # Gone since the plan was made: the sandbox goes without.
            found.append((0, 0))
        else:
            found.append((*_identity(look), look.st_mtime_ns if path == _ETC else 0))
    return tuple(found)


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _with_git(recipe: Recipe, git: GitLayer, shown: str) -> Recipe:
    base = Base.decode(recipe.base)
    base.git = os.fsencode(git.path)
    base.git_pointer = [os.fsencode(text) for text in git.pointer or ()]
    found = os.fstat(git.fd)
    return replace(
        recipe,
        base=base.encode(),
        places=(*recipe.places, _identity(found)),
        git_shown=shown,
        git_mode=found.st_mode & ROOT_MODE,
    )


def _make(
    running: RunningLauncher, recipe: Recipe, workspace_fd: int, git_fd: int
) -> StageDirectories:
    """Ask for one sandbox, which takes over the hold of its hidden layers. Raises: HostError."""
    name = f"stage-{secrets.token_hex(8)}"
    with (
        host_error("a sandbox cannot be asked for"),
        contextlib.ExitStack() as undo,
        contextlib.ExitStack() as closing,
    ):
        undo.callback(running.area.let_go, recipe.hidden)
        undo.callback(running.area.let_go, recipe.git_shown)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        closing.enter_context(theirs)
        undo.callback(ours.close)
        workspace = os.dup(workspace_fd)
        undo.callback(os.close, workspace)
        git = -1
        if git_fd >= 0:
            git = os.dup(git_fd)
            undo.callback(os.close, git)
        _send_order(running, recipe, name, theirs.fileno(), (workspace, git))
        stage = StageDirectories(running, name, ours, recipe, workspace, git)
        undo.pop_all()
        return stage


def _send_order(
    running: RunningLauncher, recipe: Recipe, name: str, control: int, roots: tuple[int, int]
) -> None:
    content = order_for(recipe, running.area.path, name)
    workspace, git = roots
    with contextlib.ExitStack() as closing:
        order = os.memfd_create("order", os.MFD_CLOEXEC)
        closing.callback(os.close, order)
        os.write(order, content)
        fds = [control, order, workspace, running.area.fd]

        def add(hidden: str) -> None:
            if hidden:
                flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
                fds.append(os.open(hidden, flags, dir_fd=running.area.fd))
                closing.callback(os.close, fds[-1])

        add(recipe.hidden)
        fds += [git] if git >= 0 else []
        add(recipe.git_shown)
        running.make(fds)
