"""The launcher's process, and one sandbox that stands until a command has run in it."""

import contextlib
import os
import socket
import stat
import subprocess
import threading
import weakref
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from paddock.errors import HostError
from paddock.sandbox.area import StagingArea
from paddock.sandbox.inside.protocol import GIT, WORKSPACE, Base

_PROGRAM: Final = str(Path(__file__).with_name("inside") / "main.py")
_STOP_WAIT_S: Final = 10.0
_SAID_BYTES_MAX: Final = 2000


class RunningLauncher:
    def __init__(self, staging: Path, interpreter: str) -> None:
        self.area = StagingArea(staging)
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._stages = 0
        self._is_stopped = False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._said = os.open("said", flags, 0o600, dir_fd=self.area.fd)
            self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self.area.close()
            raise _no_launcher(error, interpreter) from error
        try:
            # Isolated, without site: nothing of the user's and nothing slow is loaded. Never
            # preexec_fn, which copies this whole process and may deadlock in a threaded one.
            self._process = subprocess.Popen(
                [interpreter, "-I", "-S", _PROGRAM, str(theirs.fileno()), str(self.owner)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError as error:
            self._let_go()
            raise _no_launcher(error, interpreter) from error
        finally:
            theirs.close()
        _ours.add(self)

    def is_alive(self) -> bool:
        return not self._is_stopped and self._process.poll() is None

    def make(self, fds: list[int]) -> None:
        """Have a sandbox made; its stage is the caller's until `drop`. Raises: HostError."""
        self._tell(b"make", fds)
        with self._lock:
            self._stages += 1

    def drop(self, stage: str, hidden: tuple[str, ...]) -> None:
        """Have an ended sandbox's directory removed, with layers that nobody else uses.

        Without a launcher it goes with the area; in a child of the owner nothing is ours to remove.
        """
        if self.owner != os.getpid():
            return
        for name in hidden:
            self.area.let_go(name)
        for name in (stage, *self.area.take_unused()):
            try:
                self._tell(b"drop " + name.encode("ascii"), [self.area.fd])
            except HostError:
                self._process.poll()
        with self._lock:
            self._stages -= 1
            is_last = self._is_stopped and self._stages == 0
        if is_last:
            self._let_go()

    def _tell(self, what: bytes, fds: list[int]) -> None:
        try:
            socket.send_fds(self._door, [what], fds)
        except OSError as error:
            raise HostError(
                f"the launcher has ended: {os.strerror(error.errno or 0)}", hint=self.last_words()
            ) from error

    def last_words(self) -> str:
        size = os.fstat(self._said).st_size
        said = os.pread(self._said, _SAID_BYTES_MAX, max(0, size - _SAID_BYTES_MAX))
        return said.decode("utf-8", "replace").strip()

    def stop(self) -> None:
        """Wait until it is gone. The last stage, which may be read yet, takes the rest along."""
        with self._lock:
            if self._is_stopped or self.owner != os.getpid():
                return
            self._is_stopped = True
            is_last = self._stages == 0
        _ours.discard(self)
        self._door.close()
        try:
            self._process.wait(_STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if is_last:
            self._let_go()

    def forget(self) -> None:
        """In a child of the owner close our end: the launcher must see only the parent's."""
        self._door.close()
        # The child is not the launcher's parent: waiting for it would fail, and warn.
        self._process.returncode = 0
        self._is_stopped = True
        os.close(self._said)
        self.area.forget()

    def _let_go(self) -> None:
        self._door.close()
        os.close(self._said)
        self.area.close()


def _no_launcher(error: OSError, interpreter: str) -> HostError:
    return HostError(
        f"the launcher cannot be started: {os.strerror(error.errno or 0)}", where=interpreter
    )


_ours: "weakref.WeakSet[RunningLauncher]" = weakref.WeakSet()


def _forget_all() -> None:
    for running in list(_ours):
        running.forget()
        _ours.discard(running)


os.register_at_fork(after_in_child=_forget_all)


Identity = tuple[int, ...]


class Recipe(Struct, frozen=True):
    base: bytes
    """A `Base` as bytes, without the stage's own name."""
    places: tuple[Identity, ...]
    """Device and inode of the workspace and of every place that is mounted: a directory
    that was replaced since is another place."""
    mode: int
    hidden: str = ""
    git_shown: str = ""
    git_mode: int = 0


class StageDirectories:
    """The layers of one run: `upper` holds what the ended command changed. Used once."""

    __slots__ = (
        *("_left_mode", "control", "git_fd", "is_used", "name", "recipe", "running"),
        *("was_ready", "workspace_fd"),
    )

    def __init__(
        self,
        running: RunningLauncher,
        name: str,
        control: socket.socket,
        recipe: Recipe,
        workspace: int,
        git: int,
    ) -> None:
        """Takes over the socket and the descriptors; `git` is -1 where there is none."""
        self.running = running
        self.name = name
        self.control = control
        self.recipe = recipe
        self.workspace_fd = workspace
        self.git_fd = git
        self.is_used = False
        self.was_ready = False
        self._left_mode = recipe.mode

    @property
    def path(self) -> str:
        return f"{self.running.area.path}/{self.name}"

    @property
    def new_mode(self) -> int | None:
        """The mode that the command gave the root, known from `open_upper` on; None for none."""
        return None if self._left_mode == self.recipe.mode else self._left_mode

    def open_upper(self) -> int:
        """Return a descriptor of the upper layer's root. Raises: HostError without a sandbox."""
        opened, self._left_mode = self._open(WORKSPACE)
        return opened

    def open_git(self) -> int:
        return -1 if self.git_fd < 0 else self._open(GIT)[0]

    def take_git(self, upper_fd: int, name: str) -> None:
        """Give it a name in the upper layer, with its old mode. Raises: OSError."""
        area, git = self.running.area.fd, f"{self.name}/{os.fsdecode(GIT[0])}"
        os.chmod(git, self.recipe.git_mode | stat.S_IRWXU, dir_fd=area)
        os.rename(git, name, src_dir_fd=area, dst_dir_fd=upper_fd)

    def put_aside(self, upper_fd: int, name: str) -> None:
        area = self.running.area.fd
        os.rename(name, f"{self.name}/aside", src_dir_fd=upper_fd, dst_dir_fd=area)

    def _open(self, names: tuple[bytes, bytes]) -> tuple[int, int]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        name, area = f"{self.name}/{os.fsdecode(names[0])}", self.running.area.fd
        try:
            mode = stat.S_IMODE(os.stat(name, dir_fd=area, follow_symlinks=False).st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                # A command that closed its root shut out us as well, unless we are root.
                os.chmod(name, mode | stat.S_IRWXU, dir_fd=area)
            return os.open(name, flags, dir_fd=area), mode
        except OSError as error:
            raise HostError(
                f"the upper layer cannot be read: {os.strerror(error.errno or 0)}", where=self.path
            ) from error

    def close(self) -> None:
        if self.workspace_fd < 0:
            return
        os.close(self.workspace_fd)
        self.workspace_fd = -1
        if self.git_fd >= 0:
            os.close(self.git_fd)
            self.git_fd = -1
        if self.running.owner == os.getpid():
            # The sandbox ends when it sees this; closing alone would not do where a forked
            # child of ours has the same socket open.
            with contextlib.suppress(OSError):
                self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        self.running.drop(self.name, (self.recipe.hidden, self.recipe.git_shown))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def order_for(recipe: Recipe, area: str, name: str) -> bytes:
    base = Base.decode(recipe.base)
    base.stage = os.fsencode(f"{area}/{name}")
    base.hidden = os.fsencode(f"{area}/{recipe.hidden}") if recipe.hidden else b""
    base.git_shown = os.fsencode(f"{area}/{recipe.git_shown}") if recipe.git_shown else b""
    return base.encode()
