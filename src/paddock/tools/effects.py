"""What a call did to paths: from what the workspace says, and to and from the ledger's JSON."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast, get_args

from paddock import limits
from paddock.errors import HostError, StorageFullError
from paddock.storage.notes import Doing, DoingEntry, DoingKind
from paddock.tools.spec import Change, StoredEffects
from paddock.values.calls import Json
from paddock.workspace import DeleteReceipt, MoveReceipt, WriteReceipt
from paddock.workspace.apply import doing_of_path
from paddock.workspace.changes import ChangedPath

_KINDS: Final[frozenset[DoingKind]] = frozenset(get_args(DoingKind))
_ENTRIES: Final[frozenset[DoingEntry]] = frozenset(get_args(DoingEntry))


def change_of_write(receipt: WriteReceipt, kind: DoingKind) -> Change:
    made = tuple(directory.relative for directory in receipt.created_directories)
    return Change(receipt.path.relative, kind, receipt.version_before, receipt.version, made=made)


def change_of_move(receipt: MoveReceipt) -> Change:
    return Change(
        receipt.path.relative,
        "moved",
        receipt.version,
        receipt.version,
        to=receipt.to.relative,
        entry=receipt.kind.value,
        made=tuple(directory.relative for directory in receipt.created_directories),
    )


def change_of_delete(receipt: DeleteReceipt) -> Change:
    return Change(
        receipt.path.relative,
        "deleted",
        receipt.version_before,
        None,
        entry=receipt.kind.value,
        mode=receipt.mode_before,
    )


def change_of_path(row: ChangedPath) -> Change | None:
    """Of one path of a set of changes; None where nothing stood there and nothing stands."""
    doing = doing_of_path(row)
    return None if doing is None else change_of_doing(doing)


def changes_of(rows: Iterable[ChangedPath]) -> list[Change]:
    """Of a set of changes, as `change_of_path` of each."""
    return [change for row in rows if (change := change_of_path(row)) is not None]


def change_of_doing(doing: Doing) -> Change:
    """What a note says that a call was about to do, as if it had been done."""
    return Change(
        doing.path,
        doing.kind,
        doing.before,
        doing.after,
        to=doing.to,
        entry=doing.entry,
        entry_after=doing.entry_after,
        mode=None if doing.kind == "moved" else doing.mode,
        mode_after=doing.mode_after,
        made=doing.made,
        kept=doing.is_kept,
    )


def within_entry(
    changes: tuple[Change, ...], keep: Callable[[bytes], str]
) -> tuple[tuple[Change, ...], StoredEffects | None]:
    """What of many changes stands in a ledger entry, and where the whole list is kept.

    `keep` puts bytes into the history and returns their digest.

    Raises:
        HostError: the list cannot be kept. What it tells has happened all the same.
    """
    if len(changes) <= limits.effects_listed_max:
        return changes, None
    rows = [change_json(change) for change in changes]
    try:
        digest = keep(json.dumps(rows, separators=(",", ":")).encode("ascii"))
    except StorageFullError as error:
        # Who refuses a call for lack of space says that nothing changed. Here all of it has:
        # the host failed, and what the call left is told by its notes.
        raise HostError(f"the list of {len(rows)} changes is not kept: {error.message}") from error
    return changes[: limits.effects_listed_max], StoredEffects(digest, len(changes))


def changes_from_bytes(content: bytes) -> tuple[Change, ...]:
    """The list that `within_entry` kept.

    Raises:
        ValueError: it is none.
    """
    try:
        rows = cast("object", json.loads(content))
        if isinstance(rows, list):
            return tuple(change_from_json(row) for row in cast("list[dict[str, Json]]", rows))
    except (TypeError, AttributeError) as error:
        raise ValueError("no list of changes") from error
    raise ValueError("no list of changes")


def change_json(change: Change) -> dict[str, Json]:
    """As the ledger keeps it; what is as usual is left out."""
    kept: dict[str, Json] = {
        "path": change.path,
        "kind": change.kind,
        "before": change.before,
        "after": change.after,
    }
    if change.to is not None:
        kept["to"] = change.to
    if change.entry != "file":
        kept["entry"] = change.entry
    if change.entry_after:
        kept["entry_after"] = change.entry_after
    if change.mode is not None:
        kept["mode"] = f"{change.mode:04o}"
    if change.mode_after is not None:
        kept["mode_after"] = f"{change.mode_after:04o}"
    if change.made:
        kept["made"] = list(change.made)
    if not change.kept:
        kept["kept"] = False
    return kept


def change_from_json(kept: Mapping[str, Json]) -> Change:
    """The change that `change_json` made this of.

    Raises:
        ValueError: it is none.
    """
    made = cast("list[Json]", kept.get("made", []))
    kind, entry = _text(kept.get("kind")), _text(kept.get("entry", "file"))
    entry_after = _text(kept.get("entry_after", ""))
    if (
        kind not in _KINDS
        or entry not in _ENTRIES
        or (entry_after != "" and entry_after not in _ENTRIES)
    ):
        raise ValueError(f"no such change: {kind!r} of {entry!r}")
    return Change(
        path=_text(kept.get("path")),
        kind=kind,
        before=_optional(kept.get("before")),
        after=_optional(kept.get("after")),
        to=_optional(kept.get("to")),
        entry=entry,
        entry_after=entry_after,
        mode=_mode(kept.get("mode")),
        mode_after=_mode(kept.get("mode_after")),
        made=tuple(_text(name) for name in made),
        kept=kept.get("kept", True) is True,
    )


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text is wanted: {value!r}")  # noqa: TRY004 - one kind for the caller
    return value


def _mode(value: Json) -> int | None:
    return None if value is None else int(_text(value), 8) & 0o777


def _optional(value: Json) -> str | None:
    return None if value is None else _text(value)
