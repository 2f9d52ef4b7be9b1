"""One sandbox that stands, and the directories of its layers, until a command has run in it."""

import contextlib
import os
import socket
import stat
from dataclasses import dataclass
from typing import Self

from paddock.errors import HostError
from paddock.sandbox.inside.orders import Base
from paddock.sandbox.inside.stages import GIT, WORKSPACE
from paddock.sandbox.running import Running


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a sandbox was made from; two of the same are as good as each other."""

    base: bytes
    """A `Base` as bytes, without the stage's own name."""
    places: tuple[tuple[int, int], ...]
    """Device and inode of the workspace and of every place that is mounted: a directory
    that was replaced since is another place."""
    mode: int
    """Of the workspace's root, as the layer's own root has it: see `inside.stages`."""
    hidden: str = ""
    """The layer of whiteouts in the staging area; see `StagingArea.hide`."""
    git_shown: str = ""
    git_mode: int = 0


class StageDirectories:
    """The layers of one run: `upper` holds what the command changed, once it has ended.

    Belongs to who opened it, until `close`. `run` uses it once.
    """

    __slots__ = (
        *("_left_mode", "control", "git_fd", "is_used", "name", "recipe", "running"),
        "workspace_fd",
    )

    def __init__(
        self,
        running: Running,
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
        self._left_mode = recipe.mode

    @property
    def path(self) -> str:
        """The stage's directory; `upper` and `work` are in it."""
        return f"{self.running.area.path}/{self.name}"

    @property
    def new_mode(self) -> int | None:
        """The mode that the command gave the root, known from `open_upper` on; None for none."""
        return None if self._left_mode == self.recipe.mode else self._left_mode

    def open_upper(self) -> int:
        """A new descriptor of the upper layer's root, for reading what changed.

        Raises: HostError where no sandbox was made.
        """
        opened, self._left_mode = self._open(WORKSPACE)
        return opened

    def open_git(self) -> int:
        """The same of the git directory outside of the workspace; -1 where there is none."""
        return -1 if self.git_fd < 0 else self._open(GIT)[0]

    def take_git(self, upper_fd: int, name: str) -> None:
        """Give what was done to the git directory a name in the upper layer. Raises: OSError.

        The directory itself keeps its mode, whatever the command made of it.
        """
        area, git = self.running.area.fd, f"{self.name}/{os.fsdecode(GIT[0])}"
        os.chmod(git, self.recipe.git_mode | stat.S_IRWXU, dir_fd=area)
        os.rename(git, name, src_dir_fd=area, dst_dir_fd=upper_fd)

    def put_aside(self, upper_fd: int, name: str) -> None:
        """Take a name out of the upper layer; it goes with the stage. Raises: OSError."""
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
        """End the sandbox if it still stands, and let its layers go away."""
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
