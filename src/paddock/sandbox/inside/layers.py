"""What a sandbox is mounted from: places of the host, held and cloned before it has a root."""

from __future__ import annotations

import os
import stat

from paddock.kernel import mounts
from paddock.sandbox.inside.orders import Base

SHIELDED = mounts.READ_ONLY | mounts.NO_SUID | mounts.NO_DEVICES
"""How a place looks that a command only reads."""


def caches_look(base: Base) -> int:
    """How the caches look; no owner is mapped: what commands leave there is nobody's here."""
    return SHIELDED if base.caches[1:] else mounts.NO_SUID | mounts.NO_DEVICES


class Layers:
    """What the overlay is made of, as descriptors.

    `stage` holds `upper` and `work`, and nothing else needs it. `git` is a git directory
    outside of the workspace, with an overlay of its own; -1 where there is none, as with
    `hidden` and `git_shown`.
    For a plain user these are directories to be looked at from the new namespaces;
    for root, trees that the launcher detached while it was root of the host.
    """

    __slots__ = ("git", "git_shown", "hidden", "stage", "trees", "workspace")

    def __init__(
        self,
        workspace: int = -1,
        stage: int = -1,
        hidden: int = -1,
        git: int = -1,
        git_shown: int = -1,
    ) -> None:
        self.workspace = workspace
        self.stage = stage
        self.hidden = hidden
        self.git = git
        self.git_shown = git_shown
        self.trees: dict[bytes, int] = {}

    def overlaid(self) -> list[int]:
        fds = (self.workspace, self.stage, self.hidden, self.git, self.git_shown)
        return [fd for fd in fds if fd >= 0]

    def descriptors(self) -> list[int]:
        return [*self.overlaid(), *self.trees.values()]

    def close(self) -> None:
        for fd in self.descriptors():
            os.close(fd)


def detach_layers(base: Base, layers: Layers, id_map: int) -> Layers:
    """Clone, as root of the host, everything that the sandbox will mount.

    In the sandbox nobody is root of the host any more, and then directories such as
    /root could not be passed through. What lies below an overlay alone shows its owners
    mapped: so files of root are the command's own to read and to change, in the overlay.
    """
    taken = Layers()
    try:
        taken.workspace = mounts.clone_tree(layers.workspace, b"", recursive=False)
        mounts.set_tree(taken.workspace, SHIELDED, recursive=False, id_map=id_map)
        taken.stage = mounts.clone_tree(layers.stage, b"", recursive=False)
        if layers.hidden >= 0:
            taken.hidden = mounts.clone_tree(layers.hidden, b"", recursive=False)
        if layers.git >= 0:
            taken.git = mounts.clone_tree(layers.git, b"", recursive=False)
            mounts.set_tree(taken.git, SHIELDED, recursive=False, id_map=id_map)
        if layers.git_shown >= 0:
            taken.git_shown = mounts.clone_tree(layers.git_shown, b"", recursive=False)
        for path in base.readable:
            detach_into(taken.trees, path, SHIELDED, -1)
        for path in base.writable:
            detach_into(taken.trees, path, mounts.NO_SUID | mounts.NO_DEVICES, id_map)
        for path in base.caches[:1]:
            detach_into(taken.trees, path, caches_look(base), -1)
    except OSError:
        taken.close()
        raise
    return taken


def detach_into(trees: dict[bytes, int], path: bytes, attributes: int, id_map: int) -> None:
    """Clone what stands at a real path of the host, if it still does. Raises: OSError."""
    place = _hold_real(path)
    if place is None:
        return
    try:
        tree = mounts.clone_tree(place, b"", recursive=True)
    except FileNotFoundError:
        # Removed since it was opened, as caches are that are cleared.
        return
    finally:
        os.close(place)
    trees[path] = tree
    mounts.set_tree(tree, attributes, recursive=True, id_map=id_map)


def _hold_real(path: bytes) -> int | None:
    """A descriptor of a path that had no link in it; None where nothing stands there now.

    Threat: who may write above it has exchanged a directory for a link since the plan was
    made, and a command would read, or write, what that leads to.
    """
    here = os.open(b"/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path.split(b"/"):
        if not part:
            continue
        above = here
        try:
            here = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        except (FileNotFoundError, NotADirectoryError):
            return None
        finally:
            os.close(above)
    if stat.S_ISLNK(os.fstat(here).st_mode):
        os.close(here)
        return None
    return here
