"""Closed files that git tracks, as the commands of one agent see them: looked for before each.

A file that is merely not there looks deleted to git, and the next `git add -A` deletes it
for everybody. So what the index says stands in its place; see `git_contents`.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from paddock.errors import HostError
from paddock.sandbox.changes.comparing import Comparing
from paddock.sandbox.changes.differences import Layers
from paddock.sandbox.git.entries import FILE_MODES
from paddock.sandbox.git.tracked import OutsideIndex, Tracked, TrackedNames
from paddock.sandbox.git_contents import GitContents, stamp_of
from paddock.sandbox.git_layer import OpenedGit
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import CommandEnd, CommandRequest, SandboxPlan, ShownFile


@dataclass(frozen=True, slots=True)
class ShownNames:
    """Workspace-relative, sorted."""

    names: tuple[str, ...]
    differing: tuple[str, ...]
    """Those whose working copy is not what was shown."""


@dataclass(frozen=True, slots=True)
class TrackedFiles:
    """What one command is shown."""

    files: Mapping[str, ShownFile]
    """By path."""
    tracked: Tracked


class TrackedView:
    """Of one workspace. Safe for threads."""

    __slots__ = ("_contents", "_lock", "_names")

    def __init__(self) -> None:
        """Knows nothing yet."""
        self._names = TrackedNames()
        self._contents = GitContents()
        self._lock = threading.Lock()

    def look(
        self, launcher: Launcher, plan: SandboxPlan, root_fd: int, git: OpenedGit | None = None
    ) -> TrackedFiles:
        """What stands for the plan's hidden names, and for what is below them.

        `git` is the git directory outside of the workspace, where there is one.

        Raises: SandboxUnavailableError, HostError: git could not be asked.
        """
        with self._lock:
            outside = _index_of(git)
            tracked = self._names.find(root_fd, plan.workspace, plan.hidden, outside)

            def run(request: CommandRequest) -> CommandEnd:
                layer = None if git is None else git.layer
                with launcher.open_stage(request.plan, root_fd, git=layer) as stage:
                    return launcher.run(request, stage)

            def stamp(name: str) -> tuple[int, ...]:
                if outside is not None and name.startswith(".git/"):
                    return stamp_of(outside.fd, name.removeprefix(".git/"))
                return stamp_of(root_fd, name)

            folder = "" if outside is None else outside.folder
            shown = self._contents.show(tracked.names, plan, run, stamp, folder)
        return TrackedFiles({each.path: each for each in shown}, tracked)

    def is_current(self, view: TrackedFiles, root_fd: int, git: OpenedGit | None = None) -> bool:
        """Whether the indexes are still those that `look` went by.

        Threat: one that was changed between the look and the moment from which changes by
        others count. A command would commit the old content, and nobody would notice.
        """
        return self._names.is_current(root_fd, view.tracked, _index_of(git))


def _index_of(git: OpenedGit | None) -> OutsideIndex | None:
    if git is None:
        return None
    outside = git.outside
    return OutsideIndex(git.beside.fd, outside.index, outside.folder)


def differing(shown: Mapping[str, ShownFile], layers: Layers) -> ShownNames:
    """Compare what was shown with what stands there. Raises: HostError."""
    comparing = Comparing(layers.upper_fd, layers.lower_fd)
    found: list[str] = []
    try:
        for path, file in sorted(shown.items()):
            if file.mode in FILE_MODES and not comparing.is_lower(path, file.content):
                found.append(path)
    except OSError as error:
        raise HostError(
            f"a working copy cannot be read: {os.strerror(error.errno or 0)}"
        ) from error
    return ShownNames(tuple(sorted(shown)), tuple(found))
