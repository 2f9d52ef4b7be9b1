"""What this user cannot bring into the workspace, whatever policy says.

A command has its way in its layer: it opens a read-only directory or a closed file with
chmod(1), and goes on. In the workspace they are as they were, and the commit has the
user's rights and no more. So each such change is refused by itself, before the commit
would fail over it with everything else.
"""

import os
from collections.abc import Sequence
from typing import Final

from paddock.policy.guards import PathGuards
from paddock.sandbox.changes.differences import Difference, Layers
from paddock.sandbox.changes.judging import ChangeKind, StagedJudgement
from paddock.sandbox.changes.upper import Kind
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.host.places import directories_above
from paddock.text.show import quote
from paddock.workspace.resolution import PASS_DIRECTORY

_PERMISSIONS: Final = 0o777
_ENTER_AND_WRITE: Final = os.W_OK | os.X_OK
_READABLE_BY_ALL: Final = 0o444


class Obstacles:
    """To the differences of one command. What the disk says of a directory is asked once."""

    __slots__ = ("_going", "_guards", "_holders", "_lower_fd", "_made", "_resolution", "_writable")

    def __init__(self, found: Sequence[Difference], layers: Layers, guards: PathGuards) -> None:
        """`layers` stays the caller's."""
        self._lower_fd = layers.lower_fd
        self._guards = guards
        self._resolution = layers.resolution
        self._writable: dict[str, bool] = {}
        self._holders: dict[str, str | None] = {}
        self._made = _directories(found, ChangeKind.CREATED)
        self._going = set(_directories(found, ChangeKind.DELETED))

    def find(self, difference: Difference) -> str:
        """Why this user cannot make the change; empty where nothing is in the way."""
        return (
            difference.change.obstacle
            or _of_itself(difference)
            or self._of_its_content(difference)
            or self._of_its_directory(difference)
        )

    def keep(self, judged: Sequence[StagedJudgement]) -> bool:
        """Count on the directories that do not go after all: policy keeps something in them.

        Whether what is in one of them cannot go by itself either, and is to be judged anew.
        """
        staying = {
            each.change.path
            for each in judged
            if each.change.path in self._going
            and each.change.kind is ChangeKind.DELETED
            and not each.is_allowed
        }
        self._going -= staying
        self._holders.clear()
        return any(not self._is_writable(path) for path in staying)

    def _of_its_content(self, difference: Difference) -> str:
        change, lower = difference.change, difference.lower
        if lower is None or lower.kind is not Kind.FILE or change.kind is ChangeKind.MODE:
            return ""
        if lower.mode & _READABLE_BY_ALL == _READABLE_BY_ALL:
            return ""
        if self._guards.is_below_generated(change.path):
            return ""
        parent, _, name = change.path.rpartition("/")
        if self._may(parent or ".", name, os.R_OK):
            return ""
        return "could not be kept in the history: this user may not read it"

    def _of_its_directory(self, difference: Difference) -> str:
        if _stays_in_place(difference):
            return ""
        parent = difference.change.path.rpartition("/")[0]
        if parent not in self._holders:
            self._holders[parent] = self._holder_of(difference.change.path)
        holder = self._holders[parent]
        if holder is None or self._is_writable(holder):
            return ""
        where = "the workspace's root" if holder == "." else quote(holder)
        return f"is in {where}, where this user may not write"

    def _holder_of(self, path: str) -> str | None:
        for above in reversed(directories_above(path)):
            if above in self._going:
                return None
            if above not in self._made:
                return above
        return "."

    def _is_writable(self, path: str) -> bool:
        known = self._writable.get(path)
        if known is None:
            known = self._writable[path] = self._may(path, ".", _ENTER_AND_WRITE)
        return known

    def _may(self, directory: str, name: str, rights: int) -> bool:
        try:
            fd = self._resolution.open(self._lower_fd, directory, PASS_DIRECTORY)
        except OSError:
            return True  # It is gone, or another: the commit finds that out.
        try:
            # Only where it matters: see `workspace.metadata.require_writable`.
            set_id = os.geteuid() != os.getuid()
            return os.access(name, rights, dir_fd=fd, effective_ids=set_id)
        finally:
            os.close(fd)


def _of_itself(difference: Difference) -> str:
    change, lower, upper = difference.change, difference.lower, difference.upper
    if change.kind is ChangeKind.MODIFIED and lower is not None:
        user = os.geteuid()
        if user not in (0, lower.owner):
            return f"belongs to user {lower.owner}, which a new version could not keep"
    if change.kind is ChangeKind.MODE and lower is not None and upper is not None:
        same_bits = (upper.mode ^ lower.mode) & _PERMISSIONS == 0
        same_time = upper.kind is Kind.DIRECTORY or upper.mtime_ns == lower.mtime_ns
        if same_bits and same_time:
            return "keeps its setuid, setgid and sticky bits"
    return ""


def _stays_in_place(difference: Difference) -> bool:
    change, lower = difference.change, difference.lower
    if change.kind is not ChangeKind.MODE:
        return False
    # A file with a second name becomes one of its own: see `committing`.
    return change.node is NodeKind.DIRECTORY or lower is None or lower.links == 1


def _directories(found: Sequence[Difference], kind: ChangeKind) -> frozenset[str]:
    return frozenset(
        each.change.path
        for each in found
        if each.change.kind is kind and each.change.node is NodeKind.DIRECTORY
    )
