"""Keep a command's changes until the approver answers: as data, with stored contents.

Each change is kept with the expected state of its path: a changed workspace is a conflict.
`show_settled` renders the changes as a diff for the approver.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import astuple

from paddock import limits
from paddock.errors import ApprovalUnavailableError, ConfigError
from paddock.ledger.format.line import encode_json
from paddock.sandbox.changes.differences import ChangeKind, CommandChange, OpenLayers
from paddock.sandbox.changes.judgement import JudgedChange
from paddock.sandbox.changes.upper import Look
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.host.host_facts import find_content
from paddock.sandbox.values import RefusedChange
from paddock.storage.atomic import held_open, host_error
from paddock.storage.disk import digest_of_file
from paddock.storage.locks import Identity
from paddock.storage.objects import ObjectStore
from paddock.text.changes import unified_diff
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    GivenContent,
    MakeDirectory,
    MakeLink,
    Old,
    Phases,
    RemoveDirectory,
    RemoveFile,
    Seen,
    SetMetadata,
    StagedChange,
    StoredContent,
    WriteFile,
)
from paddock.workspace.metadata import FileStatus
from paddock.workspace.paths import unchecked_path
from paddock.workspace.workspace import READ_FILE

_KINDS: Final[Mapping[str, type[StagedChange]]] = {
    "write": WriteFile,
    "directory": MakeDirectory,
    "link": MakeLink,
    "remove": RemoveFile,
    "remove_directory": RemoveDirectory,
    "metadata": SetMetadata,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_PLAIN: Final = ("mode", "modified_ns", "keeps_old", "overrides_read_only", "text")
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class ParkedSet(NamedTuple):
    phases: Phases
    above: Mapping[str, Identity]
    """The directories that must not have been replaced: see `commit.CommitCondition`."""
    refused: tuple[RefusedChange, ...] = ()
    refused_more: int = 0


def park_set(
    phases: Phases,
    store: ObjectStore,
    name: str,
    above: Mapping[str, Identity],
    refused: Sequence[RefusedChange],
) -> Json:
    """Return the set as JSON; its contents are in the store, pinned under `name`.

    Raises: ApprovalUnavailableError: too large; StorageFullError, HostError.
    """
    contents = [
        change.content
        for phase in phases
        for change in phase
        if isinstance(change, WriteFile) and isinstance(change.content, GivenContent)
    ]
    total = sum(
        os.stat(each.path, dir_fd=each.dir_fd, follow_symlinks=False).st_size for each in contents
    )
    if total > limits.approval_staged_bytes_max:
        raise ApprovalUnavailableError(
            f"its changes have {total} bytes, and at most"
            f" {limits.approval_staged_bytes_max} are kept",
            hint="split the command into smaller ones, or run it when an approver is present",
        )
    with store.held():
        parked = [[_written(change, store) for change in phase] for phase in phases]
        digests = {str(each["content"]) for phase in parked for each in phase if "content" in each}
        if digests:
            # Pinned because other calls continue, and the store may fill up.
            until_s = time.time() + limits.approval_kept_s + limits.approval_granted_s
            store.pin(name, digests, until_s=until_s)
        store.sync()
    named = refused[: limits.shell_changes_listed_max]
    return {
        "phases": cast("list[Json]", parked),
        "above": [[path, *identity] for path, identity in above.items()],
        "refused": [[each.path, each.code, each.rule] for each in named],
        "refused_more": len(refused) - len(named),
    }


def unpark_set(parked: Json) -> ParkedSet:
    """Read a parked set. Raises: ConfigError: invalid, or from a version without directories."""
    try:
        if isinstance(parked, list) or ("phases" in parked and "above" not in parked):
            raise ConfigError(
                "the changes were kept by an earlier version, without their directories",
                hint="run the command again",
            )
        above = {
            _text(path): (_count(device), _count(inode)) for path, device, inode in parked["above"]
        }
        refused = tuple(
            RefusedChange(_text(path), _text(code), _text(rule))
            for path, code, rule in parked["refused"]
        )
        more = _count(parked["refused_more"])
        phases = [[_read(change) for change in phase] for phase in parked["phases"]]
        return ParkedSet(phases, above, refused, more)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"the kept changes do not load: {type(error).__name__}"
        raise ConfigError(message, hint="run the command again") from None


def digests_of(phases: Phases) -> tuple[str, ...]:
    return tuple(
        change.content.digest
        for phase in phases
        for change in phase
        if isinstance(change, WriteFile) and isinstance(change.content, StoredContent)
    )


def _written(change: StagedChange, store: ObjectStore) -> dict[str, Json]:
    kept: dict[str, Json] = {"kind": _NAMES[type(change)], "path": change.path.relative}
    kept["old"] = _old_json(change.old)
    for name in _PLAIN:
        if hasattr(change, name):
            kept[name] = getattr(change, name)
    if isinstance(change, WriteFile):
        kept["content"] = _stored(change.content, store)
    return kept


def _stored(content: object, store: ObjectStore) -> str:
    if isinstance(content, StoredContent):
        return content.digest
    if not isinstance(content, GivenContent):
        raise TypeError(f"content of type {type(content).__name__} cannot be kept")
    with held_open(os.open(content.path, _OPEN_FLAGS, dir_fd=content.dir_fd)) as fd:
        return store.put_file(fd)


def _old_json(old: Old | None) -> Json:
    if isinstance(old, Seen):
        seen: dict[str, Json] = {"seen": list(astuple(old.status))}
        return seen if old.version is None else {**seen, "version": old.version}
    if isinstance(old, AtVersion):
        return {"version": old.version}
    return None if old is None else {}


def _read(kept: Mapping[str, Json]) -> StagedChange:
    kind = _KINDS[kept["kind"]]
    given: dict[str, Any] = {name: kept[name] for name in _PLAIN if name in kept}
    given["path"] = unchecked_path(_text(kept["path"]))
    given["old"] = _old(kept["old"])
    if kind is WriteFile:
        given["content"] = StoredContent(_text(kept["content"]))
    return kind(**given)


def _old(kept: Mapping[str, Json] | None) -> Old | None:
    if kept is None:
        return None
    if "seen" in kept:
        numbers = cast("Sequence[int]", kept["seen"])
        if not all(type(number) is int for number in numbers):
            raise ValueError("status: expected numbers")
        version = _text(kept["version"]) if "version" in kept else None
        return Seen(FileStatus(*numbers), version)
    return AtVersion(_text(kept["version"])) if "version" in kept else Absent()


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return value


def _count(value: Json) -> int:
    if type(value) is not int:
        raise TypeError("expected an integer")
    return value


# Refused changes are not shown: they may be secret. The digest binds an answer to the whole set.

_FILE_BYTES_MAX: Final = 400_000
_FILE_LINES_WHOLE: Final = 20_000
_FILE_LINES_MAX: Final = 400
_PERMISSIONS: Final = 0o777
_USUAL_MODES: Final = {NodeKind.FILE: 0o644, NodeKind.DIRECTORY: 0o755}
"""A new entry with this mode is shown without it."""


class ShownDiff(Struct, frozen=True):
    text: str
    digest: str
    warnings: tuple[str, ...]


def show_settled(
    settled: Sequence[JudgedChange], layers: OpenLayers, hidden: Sequence[str]
) -> ShownDiff:
    """Return the diff of all landing changes, without content of `hidden`. Raises: HostError."""
    closed = tuple(f"{name}/" for name in hidden)
    with host_error("the changes of a command cannot be read"):
        return _show([each for each in settled if each.lands], layers, closed)


def _show(
    landing: Sequence[JudgedChange], layers: OpenLayers, closed: tuple[str, ...]
) -> ShownDiff:
    rows: list[str] = []
    bound: list[list[str | int]] = []
    left = limits.shell_diff_bytes_max
    hidden = 0
    for each in landing:
        bound.append(_digested(each.change, layers))
        row = ""
        if left > 0:
            row = _row(each.change, layers, closed, _FILE_LINES_WHOLE)
        if len(row) > left > 0:
            row = _row(each.change, layers, closed, _FILE_LINES_MAX)
        left -= len(row)
        if left < 0:
            hidden += 1
        else:
            rows.append(row)
    if hidden:
        rows.append(f"[{hidden} more changed paths are not shown: the diff is cut]")
    text = "\n".join(rows) if rows else "[nothing would change]"
    digest = digest_of(encode_json(bound).encode("utf-8", "surrogateescape"))
    warnings = dict.fromkeys(text for each in landing for text in each.warnings)
    return ShownDiff(text, digest, tuple(warnings))


def _digested(change: CommandChange, layers: OpenLayers) -> list[str | int]:
    version = change.version or ""
    is_written = change.kind in (ChangeKind.CREATED, ChangeKind.MODIFIED)
    if is_written and change.node is NodeKind.FILE:
        with held_open(layers.resolution.open(layers.upper_fd, change.path, READ_FILE)) as fd:
            version = digest_of_file(fd, os.fstat(fd).st_size)
    kinds = change.kind.value, change.node.value
    return [change.path, *kinds, change.mode, change.link_text, version]


def _row(change: CommandChange, layers: OpenLayers, closed: tuple[str, ...], lines_max: int) -> str:
    name, is_file = _name(change), change.node is NodeKind.FILE
    if change.kind is ChangeKind.MODE:
        return f"{name}: {', '.join(_metadata_notes(change, change.lower))}"
    label = f"link {change.kind.value}" if change.node is NodeKind.LINK else change.kind.value
    # Threat: a dry run on a file that may be written but not read.
    if f"{change.path}/".startswith(closed):
        closing = ["and may not be read"] if is_file else []
        return ", ".join((f"{name}: {label}", *closing, *_metadata_notes(change, None)))
    notes = [*_old_kind(change, layers), *_metadata_notes(change, change.lower)]
    before = _content(layers, layers.lower_fd, change.path, change.lower)
    after = _content(layers, layers.upper_fd, change.path, change.upper)
    if before is None or after is None or b"\0" in before + after:
        return ", ".join((f"{name}: {label}", "binary or too large to compare", *notes))
    diff = unified_diff(before, after, show_name(change.path), lines_max)
    if diff and not notes:
        return diff
    if diff:
        return f"{name}: {', '.join((label, *notes))}\n{diff}"
    return ", ".join((f"{name}: {label}", *(["empty"] if is_file else []), *notes))


def _name(change: CommandChange) -> str:
    name = show_name(change.path)
    if change.node is NodeKind.DIRECTORY and change.kind is not ChangeKind.MODE:
        return f"{name}/"
    return f"{name} -> {show_name(change.link_text)}" if change.link_text else name


def _old_kind(change: CommandChange, layers: OpenLayers) -> list[str]:
    lower = change.lower
    if change.kind is not ChangeKind.CREATED or lower is None:
        return []
    if lower.kind is not NodeKind.LINK:
        return [f"was a {lower.kind.value}"]
    return [f"was a link -> {show_name(layers.link_text(change.path) or '?')}"]


def _metadata_notes(change: CommandChange, old: Look | None) -> list[str]:
    upper, usual = change.upper, _USUAL_MODES.get(change.node)
    if usual is None or upper is None:
        return []
    if old is not None and old.kind is upper.kind:
        usual = old.mode & _PERMISSIONS
    mode = change.mode & _PERMISSIONS
    marks = [f"mode {mode:04o}"] if mode != usual else []
    if change.kind is ChangeKind.MODE and change.node is NodeKind.FILE:
        is_same = old is not None and old.status.modified_ns == upper.status.modified_ns
        marks += [] if is_same else ["time"]
    return marks


def _content(layers: OpenLayers, root_fd: int, path: str, look: Look | None) -> bytes | None:
    if look is None or look.kind is not NodeKind.FILE:
        return b""
    return find_content(root_fd, path, _FILE_BYTES_MAX, layers.resolution)
