"""Noting a set of changes in the history before it happens: what the keeper does for one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from paddock.storage.history import History, current_call
from paddock.storage.notes import Doing
from paddock.workspace.changes import ChangedPath, EntryState


@dataclass(frozen=True, slots=True)
class NotingWitness:
    """The witness of a set (`Workspace.commit`) that a call makes; without a call it notes nothing.

    What the set replaces is in the store by then; with the notes a killed call is found
    and can be undone.
    """

    history: History

    def will_change(self, rows: Sequence[ChangedPath]) -> None:
        """Note all of it, with one sync. Raises: StorageFullError, HostError."""
        running = current_call()
        doings = [doing for row in rows if (doing := doing_of_path(row)) is not None]
        if running is not None and doings:
            self.history.note_all(running, doings)


def doing_of_path(row: ChangedPath) -> Doing | None:
    """What is done to one path of a set; None where nothing stood there and nothing will stand."""
    before, after = row.before, row.after
    if before is None and after is None:
        return None
    if before is None:
        created = cast("EntryState", after)
        return Doing(
            row.path.relative,
            "created",
            created.kind.value,
            after=created.version,
            mode_after=_mode_of(created),
        )
    kind, entry_after = "overwritten", ""
    if after is None:
        kind = "deleted"
    elif after.kind is not before.kind:
        entry_after = after.kind.value
    elif after.version == before.version:
        kind = "touched" if after.mode == before.mode else "mode"
    # Of another kind the number alone says nothing: what comes back gets the usual mode.
    is_gone = after is None or after.kind is not before.kind or after.mode != before.mode
    return Doing(
        row.path.relative,
        kind,
        before.kind.value,
        before=before.version,
        after=None if after is None else after.version,
        entry_after=entry_after,
        mode=_mode_of(before) if is_gone else None,
        mode_after=_mode_of(after),
        # Of a directory there is no content to keep, and the text of a link is always kept.
        is_kept=row.kept or before.kind.value != "file" or kind in {"mode", "touched"},
    )


def _mode_of(state: EntryState | None) -> int | None:
    return None if state is None or state.kind.value == "link" else state.mode
