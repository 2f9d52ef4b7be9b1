"""One sandbox that stands, and the directories of its layers, until a command has run in it."""

import contextlib
import os
import socket
import stat
from dataclasses import dataclass
from typing import Self

from paddock.errors import HostError
from paddock.sandbox.inside.orders import Base
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


class StageDirectories:
    """The layers of one run: `upper` holds what the command changed, once it has ended.

    Belongs to who opened it, until `close`. `run` uses it once.
    """

    __slots__ = ("_left_mode", "control", "is_used", "name", "recipe", "running", "workspace_fd")

    def __init__(
        self, running: Running, name: str, control: socket.socket, recipe: Recipe, workspace: int
    ) -> None:
        """Takes over the socket and the descriptor."""
        self.running = running
        self.name = name
        self.control = control
        self.recipe = recipe
        self.workspace_fd = workspace
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
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        name, area = f"{self.name}/upper", self.running.area.fd
        try:
            mode = stat.S_IMODE(os.stat(name, dir_fd=area, follow_symlinks=False).st_mode)
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                # A command that closed its root shut out us as well, unless we are root.
                os.chmod(name, mode | stat.S_IRWXU, dir_fd=area)
            opened = os.open(name, flags, dir_fd=area)
        except OSError as error:
            raise HostError(
                f"the upper layer cannot be read: {os.strerror(error.errno or 0)}", where=self.path
            ) from error
        self._left_mode = mode
        return opened

    def close(self) -> None:
        """End the sandbox if it still stands, and let its layers go away."""
        if self.workspace_fd < 0:
            return
        os.close(self.workspace_fd)
        self.workspace_fd = -1
        if self.running.owner == os.getpid():
            # The sandbox ends when it sees this; closing alone would not do where a forked
            # child of ours has the same socket open.
            with contextlib.suppress(OSError):
                self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        self.running.drop(self.name, self.recipe.hidden)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def order_for(recipe: Recipe, area: str, name: str) -> tuple[bytes, bytes]:
    """The order for one sandbox, and the name of its whiteouts in the area, if it has any."""
    base = Base.decode(recipe.base)
    hidden = base.hidden
    base.stage = os.fsencode(f"{area}/{name}")
    base.hidden = os.fsencode(area) + b"/" + hidden if hidden else b""
    return base.encode(), hidden
