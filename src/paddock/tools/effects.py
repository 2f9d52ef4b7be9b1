"""The changes of a call: from the workspace's receipts, and to and from the ledger's JSON."""

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from msgspec import convert, to_builtins
from msgspec.json import decode
from msgspec.structs import asdict

from paddock import errors, limits
from paddock.storage.notes import Doing, DoingEntry, DoingKind
from paddock.text.edit import require_text
from paddock.text.show import quote, show_name
from paddock.tools.spec import Change, Ports, StoredEffects, ToolOutput, pinned
from paddock.values.calls import Json
from paddock.workspace import EntryVersion, WorkspacePath, WritePath
from paddock.workspace.changes import ChangedPath, doing_of_path

if TYPE_CHECKING:
    from paddock.workspace.single_change import SingleReceipt

_MODES: Final = ("mode", "mode_after")


def change_of_path(row: ChangedPath) -> Change | None:
    """Convert one path of a set of changes; None if it was absent before and after."""
    doing = doing_of_path(row)
    return None if doing is None else change_of_doing(doing)


def changes_of(rows: Iterable[ChangedPath]) -> list[Change]:
    return [change for row in rows if (change := change_of_path(row)) is not None]


def change_of_doing(doing: Doing) -> Change:
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


def written_output(
    receipt: "SingleReceipt", said: str, details: Mapping[str, Json], *below: str
) -> ToolOutput:
    """Build the result of a tool that changed one path: summary, notes, then `below`."""
    rows = (said, *(f"[{note}]" for note in receipt.notes), *below)
    changes = (change_of_doing(receipt.doing),)
    return ToolOutput("\n".join(rows), details, changes, receipt.bytes_written)


def within_entry(
    changes: tuple[Change, ...], keep: Callable[[bytes], str]
) -> tuple[tuple[Change, ...], StoredEffects | None]:
    """Return the changes that a ledger entry has room for, and where the whole list is stored.

    `keep` puts bytes into the history and returns their digest.

    Raises: HostError: the list cannot be stored. The changes have happened all the same.
    """
    if len(changes) <= limits.effects_listed_max:
        return changes, None
    rows = [change_json(change) for change in changes]
    try:
        digest = keep(json.dumps(rows, separators=(",", ":")).encode("ascii"))
    except errors.StorageFullError as error:
        # StorageFullError means that nothing changed. Here the changes are made: report a host
        # failure; the call's notes have what it left.
        raise errors.HostError(
            f"cannot store the list of {len(rows)} changes: {error.message}"
        ) from error
    return changes[: limits.effects_listed_max], StoredEffects(digest, len(changes))


def changes_from_bytes(content: bytes) -> tuple[Change, ...]:
    """Read a list that `within_entry` stored. Raises: ValueError."""
    return tuple(map(change_from_json, decode(content, type=list[dict[str, Json]])))


def change_json(change: Change) -> dict[str, Json]:
    """Return the ledger's form of a change, without default values."""
    kept: dict[str, Json] = to_builtins(change)
    kept |= {name: f"{kept[name]:04o}" for name in _MODES if name in kept}
    if change.made:
        kept["made"] = list(change.made)
    return kept


def change_from_json(kept: Mapping[str, Json]) -> Change:
    """Raises: ValueError: not a change."""
    try:
        modes = {name: int(kept[name], 8) & 0o777 for name in _MODES if kept.get(name) is not None}
    except TypeError as error:
        raise ValueError("a mode must be a text") from error
    return Change(**asdict(convert({**kept, **modes}, _KeptChange)))


class _KeptChange(Change, frozen=True):
    # Restates the types that `spec` names but does not load.
    kind: DoingKind
    entry: DoingEntry = "file"
    entry_after: DoingEntry | Literal[""] = ""


# If the versions differ, the refusal shows what changed to an agent that may view the file.

ABSENT: Final = "absent"  # as `if_version`: the file must not exist

IF_VERSION: Final = "Act only if the file still has this version, as an earlier call returned it."
IF_VERSION_OR_ABSENT: Final = f"{IF_VERSION} '{ABSENT}': act only if the file does not exist."


def pinned_file(if_version: str | None, path: WritePath, ports: Ports) -> str:
    """Return the file's version. Raises: FileChangedError, and as `Workspace.version`."""
    with explaining_change(if_version, path.real, ports):
        found = ports.workspace.version(path.real)
        return pinned(if_version, found, path.asked)


def pinned_version(if_version: str | None, path: WritePath, ports: Ports) -> str:
    """Return the version, or ABSENT, to bind a write to. Raises: FileChangedError."""
    if path.exists and if_version == ABSENT:
        with explaining_change(if_version, path.real, ports):
            raise refusal_of_presence(path, ports)
    if path.exists:
        return pinned_file(if_version, path, ports)
    if if_version is not None and if_version != ABSENT:
        raise _refusal_of_absence(if_version, path.asked, "leave if_version out to create it")
    return ABSENT


def _refusal_of_absence(wanted: str, path: WorkspacePath, hint: str) -> errors.FileChangedError:
    return errors.FileChangedError(
        f"{quote(path.relative)} is not at version {quote(wanted)}: it does not exist", hint=hint
    )


def refusal_of_presence(path: WritePath, ports: Ports) -> errors.FileChangedError:
    try:
        state = f"exists now, at {ports.workspace.version(path.real)}"
    except errors.ToolError:
        state = "exists now"  # not a file, or removed again
    return errors.FileChangedError(
        f"{quote(path.asked.relative)} {state}",
        hint="read it, then repeat the call with its version, or use another path",
    )


@contextmanager
def explaining_change(
    wanted: str | EntryVersion | None, path: WorkspacePath, ports: Ports
) -> Generator[None]:
    """Add a diff of what changed since `wanted` to the hint of a refusal.

    `path` is the real one. If the file is gone, FileChangedError replaces PathNotFoundError.
    """
    try:
        yield
    except errors.PathNotFoundError as error:
        plain = plain_version(wanted)
        if plain is None or plain == ABSENT:
            raise
        hint = "it was moved or deleted meanwhile; list the files"
        raise _refusal_of_absence(plain, path, hint) from error
    except errors.FileChangedError as error:
        plain = plain_version(wanted)
        difference = "" if plain is None else _difference(plain, path, ports)
        if not difference:
            raise
        # In the hint, not the message: the ledger keeps the message, but no file contents.
        hint = f"{error.hint}; what changed:\n{difference}"
        raise errors.FileChangedError(error.message, where=error.where, hint=hint) from error


def plain_version(wanted: str | EntryVersion | None) -> str | None:
    return wanted.version if isinstance(wanted, EntryVersion) else wanted


def _difference(wanted: str, path: WorkspacePath, ports: Ports) -> str:
    """Return the diff, or why there is none; empty if the message needs none."""
    # Threat: an agent that may write a file but not view it would read it in the diff.
    if not ports.shown.may_view(path.relative):
        return "[no diff: you may not view this file]"
    bytes_max = ports.limits.view_bytes_max
    try:
        now = ports.workspace.read_all(path, bytes_max)
    except errors.PathNotFoundError:
        return ""
    except errors.ToolError as error:
        return f"[no diff: {error.message}]"
    before = b"" if wanted == ABSENT else None
    if before is None and ports.earlier is not None:
        before = ports.earlier.content(path.relative, wanted, bytes_max)
    if before is None:
        return f"[no diff: its earlier content is not stored; it has {len(now)} bytes now]"
    try:
        for content in (before, now):
            require_text(content, path.relative)
    except errors.TextError:
        return f"[no diff: not text; {len(before)} bytes then, {len(now)} bytes now]"
    from paddock.text.changes import unified_diff  # noqa: PLC0415 - few writes need it

    return unified_diff(before, now, show_name(path.relative))
