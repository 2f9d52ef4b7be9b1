"""What a call changed, and what changed since, as a person reads it."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError, IntegrityError, PathError, TextError
from paddock.runtime.past import PastCall
from paddock.runtime.undo import state_at
from paddock.storage.notes import DoingKind
from paddock.storage.objects import StoreReader
from paddock.text.changes import unified_diff
from paddock.text.show import show_name
from paddock.tools.spec import Change, Shown
from paddock.workspace import Workspace
from paddock.workspace.changes import EntryState

_COMPARED_BYTES_MAX: Final = 64_000_000
_LINES_MAX: Final = 2_000


class PathDiff(Struct, frozen=True):
    path: str
    kind: DoingKind
    text: str


class Diffs(Struct, frozen=True):
    paths: tuple[PathDiff, ...]
    hidden: int


class Differ(Struct, frozen=True):
    workspace: Workspace
    store: StoreReader
    shown: Shown

    def of_call(self, call: PastCall) -> Diffs:
        return self._each(call, self._done)

    def since(self, call: PastCall) -> Diffs:
        return self._each(call, self._since)

    def _each(self, call: PastCall, differing: Callable[[Change], str]) -> Diffs:
        # Threat: the policy in force may have made a path secret since.
        visible = [change for change in call.changes if self._is_shown(change)]
        found = (PathDiff(c.path, c.kind, text) for c in visible if (text := differing(c)))
        return Diffs(tuple(found), len(call.changes) - len(visible))

    def _is_shown(self, change: Change) -> bool:
        return all(self.shown.is_shown(name) for name in (change.path, change.to or change.path))

    def _done(self, change: Change) -> str:
        if change.kind == "moved":
            return f"moved from {show_name(change.path)} to {show_name(change.to or '')}"
        if change.kind == "touched" or (change.kind == "mode" and change.mode is None):
            return "touched: its content and its mode are as before"
        if change.kind == "mode":
            after = "" if change.mode_after is None else f" → {change.mode_after:04o}"
            return f"mode {change.mode:04o}{after}"
        if "directory" in {change.entry, change.entry_after}:
            return f"{change.kind}: {change.entry}"
        before = b"" if change.kind == "created" else self._stored(change.before)
        if change.kind == "deleted":
            return _compared(change, before, b"", "before")
        return _compared(change, before, self._left(change), "after")

    def _left(self, change: Change) -> bytes | None:
        stored = self._stored(change.after)
        if stored is not None or change.after is None:
            return stored
        now = self._state(change.path)
        return self._present(change.path, now) if now and now.version == change.after else None

    def _since(self, change: Change) -> str:
        path = change.to if change.kind == "moved" and change.to else change.path
        now = self._state(path)
        if now is not None and now.version == change.after and change.kind != "deleted":
            return _mode_since(change, now)
        if now is None:
            return "" if change.kind == "deleted" else "is gone"
        if now.kind.value == "directory":
            return "is a directory now"
        present = self._present(path, now)
        left = b"" if change.kind == "deleted" else self._stored(change.after)
        if left is not None:
            return _compared(change, left, present, "now")
        shown = _compared(change, self._stored(change.before), present, "now")
        return f"[what the call left is not kept; this is from what it found]\n{shown}"

    def _state(self, path: str) -> EntryState | None:
        try:
            return state_at(self.workspace, path)
        except (PathError, TextError):
            return None

    def _present(self, path: str, now: EntryState) -> bytes | None:
        if now.link_text is not None:
            return now.link_text.encode("utf-8", "surrogateescape")
        try:
            target = self.workspace.resolve_entry(path).path
            return self.workspace.read_all(target, _COMPARED_BYTES_MAX)
        except (PathError, TextError):
            return None

    def _stored(self, digest: str | None) -> bytes | None:
        if digest is None or self.store.stored_bytes(digest) > _COMPARED_BYTES_MAX:
            return None
        try:
            return self.store.read(digest)
        except IntegrityError:
            raise
        except HostError:
            return None  # pruned


def _mode_since(change: Change, now: EntryState) -> str:
    if change.mode_after in {None, now.mode}:
        return ""
    return f"mode {now.mode:04o} now, {change.mode_after:04o} after the call"


def _compared(change: Change, before: bytes | None, after: bytes | None, missing: str) -> str:
    name = show_name(change.path)
    if before is None:
        return f"[{name}: the content before is not kept, or too large to compare]"
    if after is None:
        return f"[{name}: the content {missing} is not kept, or too large to compare]"
    if _is_binary(before) or _is_binary(after):
        return f"[{name}: binary, {len(before)} bytes before, {len(after)} bytes {missing}]"
    return unified_diff(before, after, name, _LINES_MAX)


def _is_binary(content: bytes) -> bool:
    return b"\0" in content[: limits.binary_probe_bytes]
