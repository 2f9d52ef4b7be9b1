"""What a call did to paths: from what the workspace says, and to and from the ledger's JSON."""

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
    """Of one path of a set of changes; None where nothing stood there and nothing stands."""
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
    """Return what a tool answers that changed one path: what it did, notes, what stands below."""
    rows = (said, *(f"[{note}]" for note in receipt.notes), *below)
    changes = (change_of_doing(receipt.doing),)
    return ToolOutput("\n".join(rows), details, changes, receipt.bytes_written)


def within_entry(
    changes: tuple[Change, ...], keep: Callable[[bytes], str]
) -> tuple[tuple[Change, ...], StoredEffects | None]:
    """What of many changes stands in a ledger entry, and where the whole list is kept.

    `keep` puts bytes into the history and returns their digest.

    Raises: HostError: the list cannot be kept. What it tells has happened all the same.
    """
    if len(changes) <= limits.effects_listed_max:
        return changes, None
    rows = [change_json(change) for change in changes]
    try:
        digest = keep(json.dumps(rows, separators=(",", ":")).encode("ascii"))
    except errors.StorageFullError as error:
        # Who refuses a call for lack of space says that nothing changed. Here all of it has:
        # the host failed, and what the call left is told by its notes.
        raise errors.HostError(
            f"the list of {len(rows)} changes is not kept: {error.message}"
        ) from error
    return changes[: limits.effects_listed_max], StoredEffects(digest, len(changes))


def changes_from_bytes(content: bytes) -> tuple[Change, ...]:
    """Raises: ValueError: it is no list that `within_entry` kept."""
    return tuple(map(change_from_json, decode(content, type=list[dict[str, Json]])))


def change_json(change: Change) -> dict[str, Json]:
    """As the ledger keeps it; what is as usual is left out."""
    kept: dict[str, Json] = to_builtins(change)
    kept |= {name: f"{kept[name]:04o}" for name in _MODES if name in kept}
    if change.made:
        kept["made"] = list(change.made)
    return kept


def change_from_json(kept: Mapping[str, Json]) -> Change:
    """Raises: ValueError: it is none."""
    try:
        modes = {name: int(kept[name], 8) & 0o777 for name in _MODES if kept.get(name) is not None}
    except TypeError as error:
        raise ValueError("a mode is a text") from error
    return Change(**asdict(convert({**kept, **modes}, _KeptChange)))


class _KeptChange(Change, frozen=True):
    # With the types that `spec` names and does not load.
    kind: DoingKind
    entry: DoingEntry = "file"
    entry_after: DoingEntry | Literal[""] = ""


# Where the two are not the same, the refusal says what changed, to whom it may be shown.

ABSENT: Final = "absent"  # as `if_version`: nothing may stand there

IF_VERSION: Final = "Only if the file still has this version (as a view returned it)."
IF_VERSION_OR_ABSENT: Final = (
    "Only if the file still has this version (as a view returned it), "
    f"or '{ABSENT}' for only if there is none."
)


def pinned_file(if_version: str | None, path: WritePath, ports: Ports) -> str:
    """Raises: FileChangedError where the caller wants another version; as `Workspace.version`."""
    with telling_what_changed(if_version, path.real, ports):
        found = ports.workspace.version(path.real)
        return pinned(if_version, found, path.asked)


def pinned_version(if_version: str | None, path: WritePath, ports: Ports) -> str:
    """Of what stands there now, or its absence, to bind a write to. Raises: FileChangedError."""
    if path.exists and if_version == ABSENT:
        with telling_what_changed(if_version, path.real, ports):
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
        stands = f"exists now, at {ports.workspace.version(path.real)}"
    except errors.ToolError:
        stands = "exists now"  # no file, or gone again
    return errors.FileChangedError(
        f"{quote(path.asked.relative)} {stands}",
        hint="read it, then repeat the call with its version, or use another path",
    )


@contextmanager
def telling_what_changed(
    wanted: str | EntryVersion | None, path: WorkspacePath, ports: Ports
) -> Generator[None]:
    """Have the refusal say what changed since: a diff in its hint, without what may not be viewed.

    `path` is the real one. Where nothing stands there any more, FileChangedError is raised in
    the place of a PathNotFoundError.
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
        # In the hint: the ledger keeps the message, and no contents of files.
        hint = f"{error.hint}; what changed:\n{difference}"
        raise errors.FileChangedError(error.message, where=error.where, hint=hint) from error


def plain_version(wanted: str | EntryVersion | None) -> str | None:
    return wanted.version if isinstance(wanted, EntryVersion) else wanted


def _difference(wanted: str, path: WorkspacePath, ports: Ports) -> str:
    """The diff, or a word about why there is none; empty where the message says it all."""
    # Threat: an agent that may write a file and not view it would read it in the diff.
    if not ports.shown.may_view(path.relative):
        return "[no diff: it is not yours to view]"
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
        return f"[no diff: what it held then is not kept; it has {len(now)} bytes now]"
    try:
        for content in (before, now):
            require_text(content, path.relative)
    except errors.TextError:
        return f"[no diff: no text; {len(before)} bytes then, {len(now)} bytes now]"
    from paddock.text.changes import unified_diff  # noqa: PLC0415 - few writes fail so

    return unified_diff(before, now, show_name(path.relative))
