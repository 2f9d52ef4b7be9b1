"""Show the changes of past calls, from the ledger and from notes of calls it has no outcome of."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from paddock import limits
from paddock.errors import HostError, IntegrityError, PathError, TextError, UsageError
from paddock.ledger.format.line import format_timestamp
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import FoundEffects
from paddock.storage.notes import DoingKind, Note
from paddock.storage.objects import StoreReader
from paddock.text.changes import unified_diff
from paddock.text.show import quote, show_name
from paddock.tools.effects import change_from_json, change_of_doing, changes_from_bytes
from paddock.tools.spec import Change, Shown
from paddock.values.calls import Json
from paddock.values.decisions import OPERATOR
from paddock.workspace import Workspace
from paddock.workspace.changes import EntryState, entry_state

_LISTED_MAX: Final = 5
_PATHS_DESCRIBED_MAX: Final = 3
_COMPARED_BYTES_MAX: Final = 64_000_000
_LINES_MAX: Final = 2_000
_UNDO: Final = "undo"
_COMMANDS: Final = frozenset({"run_shell", "run_shell_dev", "commit_parked"})

_Key = tuple[str, str]

PastOutcome: TypeAlias = Literal["done", "failed", "unknown", "unreadable"]
"""`failed`: the call ended in an error, and may have left changes; `unknown`: it was killed before
its result was recorded, or still runs; `unreadable`: this version cannot read its record."""


class PastCall(Struct, frozen=True):
    call_id: str
    entry_id: str
    """Id of its result in the ledger, or of its intent if it has no result."""
    timestamp: str
    agent: str
    workspace_of: str
    """The agent whose workspace the paths are relative to."""
    session_id: str
    tool: str
    outcome: PastOutcome
    changes: tuple[Change, ...]
    undoes: str = ""
    """The id of the call that this undo undid."""
    undoes_command: bool = False
    """True for the undo of a command, also through other undos."""

    @property
    def is_by_command(self) -> bool:
        return self.tool in _COMMANDS or self.undoes_command

    def touches(self, path: str) -> bool:
        return any(
            path in {".", name} or name.startswith(f"{path}/")
            for change in self.changes
            for name in (change.path, change.to)
            if name is not None
        )


def past_calls(
    effects: FoundEffects,
    notes: Sequence[Note],
    stored_bytes: Callable[[str], bytes | None] = lambda _: None,
) -> tuple[PastCall, ...]:
    """Return every call that changed something, oldest first.

    `stored_bytes` reads, by digest, a list of effects that was too long for its entry; it returns
    None once the history has pruned it. A note counts until the ledger has a result of its call
    that names the effects.
    """
    intents = {
        key: intent
        for intent in effects.intents
        for key in (("", intent.id), (intent.entry.session_id, intent.entry.call_id))
    }
    noted: dict[_Key, list[Note]] = {}
    for note in notes:
        noted.setdefault(_key_of_note(note), []).append(note)
    calls: list[PastCall] = []
    for stored in effects.results:
        key = _key(stored)
        if _names_effects(stored):
            noted.pop(key, None)
            calls.append(_of_result(stored, intents.get(key), stored_bytes))
        elif key in noted:
            calls.append(_of_notes(noted.pop(key), "failed", intents.get(key), stored.id))
    calls += [_of_notes(rows, "unknown", intents.get(key)) for key, rows in noted.items()]
    # A stable sort: calls with the same timestamp keep the ledger's order.
    return _mark_undone_commands(sorted(calls, key=lambda call: call.timestamp))


def _mark_undone_commands(calls: Sequence[PastCall]) -> tuple[PastCall, ...]:
    """Mark each undo of a command's changes; `calls` are oldest first.

    Threat: a model gives a call of a file tool the id of a command, so that its undo may
    change files that no tool may write. Every call with that id has to be by a command.
    """
    by_command: dict[str, bool] = {}
    marked: list[PastCall] = []
    for call in calls:
        is_undo = call.agent == OPERATOR and call.tool == _UNDO
        inherits = is_undo and by_command.get(call.undoes, False)
        known = replace(call, undoes_command=True) if inherits else call
        by_command[call.call_id] = known.is_by_command and by_command.get(call.call_id, True)
        marked.append(known)
    return tuple(marked)


def ended_notes(effects: FoundEffects, notes: Sequence[Note]) -> frozenset[Note]:
    recorded = {_key(row) for row in effects.results if _names_effects(row)}
    return frozenset(note for note in notes if _key_of_note(note) in recorded)


def _names_effects(stored: StoredEntry) -> bool:
    return isinstance(stored.entry.metadata.get("effects"), list)


# Threat: a model chooses the ids of its calls, and may use one twice: the result of the
# first must not hide the second, which was killed. So a call is identified by its intent's
# entry. Results and notes of older versions lack it, and are identified by session and call
# id. The two kinds of key cannot collide, because one has an empty half.


def _key(stored: StoredEntry) -> _Key:
    intent = stored.entry.metadata.get("intent")
    if isinstance(intent, str) and intent:
        return "", intent
    return stored.entry.session_id, stored.entry.call_id


def _key_of_note(note: Note) -> _Key:
    call = note.call
    return ("", call.intent) if call.intent else (call.session_id, call.call_id)


def _of_result(
    stored: StoredEntry, intent: StoredEntry | None, stored_bytes: Callable[[str], bytes | None]
) -> PastCall:
    entry = stored.entry
    changes = _changes_in(entry.metadata["effects"])
    whole = entry.metadata.get("effects_stored")
    if whole is not None:
        changes = _stored_changes(whole, stored_bytes)
    outcome: PastOutcome = "done" if entry.metadata.get("status") == "ok" else "failed"
    return PastCall(
        call_id=entry.call_id,
        entry_id=stored.id,
        timestamp=stored.timestamp,
        agent=entry.agent,
        workspace_of=_argument(intent, "agent") or entry.agent,
        session_id=entry.session_id,
        tool=str(entry.metadata.get("tool", "")),
        outcome=outcome if changes is not None else "unreadable",
        changes=changes or (),
        undoes=_argument(intent, "call"),
    )


def _changes_in(kept: Json) -> tuple[Change, ...] | None:
    try:
        return tuple(change_from_json(change) for change in cast("list[dict[str, Json]]", kept))
    except (ValueError, TypeError, AttributeError):
        return None  # written by a later version, or by another program


def _stored_changes(
    kept: Json, stored_bytes: Callable[[str], bytes | None]
) -> tuple[Change, ...] | None:
    try:
        content = stored_bytes(str(kept["digest"]))
        return () if content is None else changes_from_bytes(content)
    except (ValueError, TypeError, LookupError):
        return None


def _of_notes(
    notes: Sequence[Note], outcome: PastOutcome, intent: StoredEntry | None, entry_id: str = ""
) -> PastCall:
    call = notes[0].call
    return PastCall(
        call_id=call.call_id,
        entry_id=entry_id or call.intent,
        timestamp=format_timestamp(notes[0].written_s),
        agent=call.agent,
        workspace_of=_argument(intent, "agent") or call.agent,
        session_id=call.session_id,
        tool=call.tool,
        outcome=outcome,
        changes=tuple(change_of_doing(note.doing) for note in notes),
        undoes=_argument(intent, "call"),
    )


def _argument(intent: StoredEntry | None, name: str) -> str:
    if intent is None:
        return ""
    value = cast("dict[str, Json]", intent.entry.metadata.get("arguments", {})).get(name)
    return value if isinstance(value, str) else ""


def undos_in_effect(calls: Sequence[PastCall]) -> Mapping[str, str]:
    """Map each undone call to its undo, by id; an undo that was undone does not count."""
    known = Counter(call.call_id for call in calls)
    found: dict[str, str] = {}
    for call in reversed(calls):
        is_in_effect = call.outcome == "done" and call.call_id not in found
        if call.undoes and is_in_effect and known[call.undoes] == 1:
            found.setdefault(call.undoes, call.call_id)
    return found


def describe_changes(call: PastCall, is_shown: Callable[[PastCall, Change], bool]) -> str:
    undone = f"undoes {show_name(call.undoes)}: " if call.undoes else ""
    rows: list[str] = []
    for change in call.changes[:_PATHS_DESCRIBED_MAX]:
        if not is_shown(call, change):
            rows.append(f"{change.kind} a secret path")
            continue
        to = f" to {show_name(change.to)}" if change.to else ""
        rows.append(f"{change.kind} {show_name(change.path)}{to}")
    more = len(call.changes) - _PATHS_DESCRIBED_MAX
    if more > 0:
        rows.append(f"and {more} more")
    return undone + (", ".join(rows) or "its changes are not recorded")


def find_call(
    calls: Sequence[PastCall], wanted: str, is_shown: Callable[[PastCall, Change], bool]
) -> PastCall:
    """Return the call with this id, or whose result has this entry id.

    Threat: a model chooses the ids of its calls, and could reuse another's so that the wrong one is
    undone. Of several matches none is returned. Raises: UsageError if there is none, or several: it
    lists their changes, as far as `is_shown` allows.
    """
    found = [call for call in calls if wanted and wanted in {call.call_id, call.entry_id}]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no call {quote(wanted)} changed anything", hint="paddock history lists those that did"
        )
    rows = [
        f"\n    {call.entry_id}  {call.timestamp[:19]}Z  {show_name(call.tool)}: "
        f"{describe_changes(call, is_shown)}"
        for call in found[-_LISTED_MAX:]
        if call.entry_id
    ]
    raise UsageError(
        f"{len(found)} calls have the id {quote(wanted)}",
        hint=f"name one of them by its ledger entry; the newest:{''.join(rows)}",
    )


def state_at(workspace: Workspace, path: str) -> EntryState | None:
    return entry_state(workspace, workspace.resolve_entry(path))


class PathDiff(Struct, frozen=True, rename={"text": "diff"}):
    path: str
    kind: DoingKind
    text: str


class Diffs(Struct, frozen=True):
    paths: tuple[PathDiff, ...]
    hidden: int

    def as_json(self) -> dict[str, Json]:
        return {"paths": to_builtins(self.paths), "secret_paths": self.hidden}


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
        shown = self.shown.is_shown
        visible = [c for c in call.changes if shown(c.path) and shown(c.to or c.path)]
        found = (PathDiff(c.path, c.kind, text) for c in visible if (text := differing(c)))
        return Diffs(tuple(found), len(call.changes) - len(visible))

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
            left, mode = change.mode_after, f"{now.mode:04o}"
            return "" if left in {None, now.mode} else f"mode {mode} now, {left:04o} after the call"
        if now is None:
            return "" if change.kind == "deleted" else "is gone"
        if now.kind.value == "directory":
            return "is a directory now"
        present = self._present(path, now)
        left = b"" if change.kind == "deleted" else self._stored(change.after)
        if left is not None:
            return _compared(change, left, present, "now")
        shown = _compared(change, self._stored(change.before), present, "now")
        return f"[the content after the call is not kept; compared with that before it]\n{shown}"

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
