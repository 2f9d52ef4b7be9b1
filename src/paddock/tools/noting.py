"""Noting a set of changes in the history before it happens: what the keeper does for one."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.history.keeping import History, current_call
from paddock.history.notes import Doing
from paddock.tools.effects import change_of_path
from paddock.tools.spec import Change
from paddock.workspace.changes import ChangedPath


@dataclass(frozen=True, slots=True)
class NotingWitness:
    """The witness of a set (`Workspace.commit`) that a call makes.

    What the set replaces is in the store by then; with the notes a killed call is found
    and can be undone.
    """

    history: History

    def will_change(self, rows: Sequence[ChangedPath]) -> None:
        """Note all of it, with one sync. Raises: StorageFullError, HostError."""
        running = current_call()
        changes = [change for row in rows if (change := change_of_path(row)) is not None]
        if running is not None and changes:
            self.history.note_all(running, [_doing_of(change) for change in changes])


def _doing_of(change: Change) -> Doing:
    return Doing(
        change.path,
        change.kind,
        entry=change.entry,
        before=change.before,
        after=change.after,
        mode=change.mode,
        entry_after=change.entry_after,
        is_kept=change.kept,
        mode_after=change.mode_after,
    )
