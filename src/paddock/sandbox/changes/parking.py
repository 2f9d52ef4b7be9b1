"""What a command left, kept until somebody has answered: as data, with its contents stored.

What it believes to stand at each path goes with it: a changed workspace is a conflict.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import astuple

from paddock import limits
from paddock.errors import ApprovalUnavailableError, ConfigError
from paddock.sandbox.values import RefusedChange
from paddock.storage.atomic import held_open
from paddock.storage.locks import Identity
from paddock.storage.objects import ObjectStore
from paddock.values.calls import Json
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

_KINDS: Final[Mapping[str, type[StagedChange]]] = {
    "write": WriteFile,
    "directory": MakeDirectory,
    "link": MakeLink,
    "remove": RemoveFile,
    "remove_directory": RemoveDirectory,
    "metadata": SetMetadata,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_PLAIN: Final = (
    "mode",
    "modified_ns",
    "keeps_old",
    "overrides_read_only",
    "text",
)
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class ParkedSet(NamedTuple):
    phases: Phases
    above: Mapping[str, Identity]
    """The directories that have to be those of then: see `footing`."""
    refused: tuple[RefusedChange, ...] = ()
    refused_more: int = 0


def park_phases(phases: Phases, store: ObjectStore, name: str) -> list[Json]:
    """Return the set as JSON, its contents in the store, pinned under `name`.

    Raises: ApprovalUnavailableError: too large; StorageFullError, HostError.
    """
    contents = [
        change.content
        for phase in phases
        for change in phase
        if isinstance(change, WriteFile) and isinstance(change.content, GivenContent)
    ]
    total = sum(map(_size, contents))
    if total > limits.approval_staged_bytes_max:
        raise ApprovalUnavailableError(
            f"what it changed has {total} bytes, and at most"
            f" {limits.approval_staged_bytes_max} are kept",
            hint="split the command into smaller ones, or ask a person to be there for it",
        )
    with store.held():
        parked = [[_written(change, store) for change in phase] for phase in phases]
        digests = {str(each["content"]) for phase in parked for each in phase if "content" in each}
        if digests:
            # Other calls go on, and the store may fill.
            until_s = time.time() + limits.approval_kept_s + limits.approval_granted_s
            store.pin(name, digests, until_s=until_s)
        store.sync()
    return cast("list[Json]", parked)


def park_set(
    phases: list[Json], above: Mapping[str, Identity], refused: Sequence[RefusedChange]
) -> Json:
    named = refused[: limits.shell_changes_listed_max]
    return {
        "phases": phases,
        "above": [[path, *identity] for path, identity in above.items()],
        "refused": [list(astuple(each)) for each in named],
        "refused_more": len(refused) - len(named),
    }


def unpark_set(parked: Json) -> ParkedSet:
    """Read back; ConfigError for none, or one of an earlier version without directories."""
    try:
        if isinstance(parked, list) or ("phases" in parked and "above" not in parked):
            raise ConfigError(
                "an earlier version kept the changes, and not in which directories they belong",
                hint="run the command again",
            )
        above = {
            _text(path): (_count(device), _count(inode)) for path, device, inode in parked["above"]
        }
        refused = tuple(RefusedChange(*map(_text, each)) for each in parked["refused"])
        more = _count(parked["refused_more"])
        return ParkedSet(_unpark_phases(parked["phases"]), above, refused, more)
    except (KeyError, TypeError, ValueError) as error:
        raise _no_set(error) from None


def _unpark_phases(parked: Json) -> list[list[StagedChange]]:
    try:
        return [[_read(change) for change in phase] for phase in parked]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _no_set(error) from None


def _no_set(error: Exception) -> ConfigError:
    return ConfigError(
        f"the kept changes do not load: {type(error).__name__}", hint="run the command again"
    )


def digests_of(phases: Phases) -> tuple[str, ...]:
    return tuple(
        change.content.digest
        for phase in phases
        for change in phase
        if isinstance(change, WriteFile) and isinstance(change.content, StoredContent)
    )


def _size(content: GivenContent) -> int:
    return os.stat(content.path, dir_fd=content.dir_fd, follow_symlinks=False).st_size


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
        raise TypeError(f"content of the kind {type(content).__name__} cannot be kept")
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
            raise ValueError("a status is numbers")
        version = _text(kept["version"]) if "version" in kept else None
        return Seen(FileStatus(*numbers), version)
    return AtVersion(_text(kept["version"])) if "version" in kept else Absent()


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is wanted")
    return value


def _count(value: Json) -> int:
    if type(value) is not int:
        raise TypeError("a number is wanted")
    return value
