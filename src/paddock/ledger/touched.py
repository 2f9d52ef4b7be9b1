"""Which paths of a workspace an entry names: of its actions, effects and refusals. Pure."""

from collections.abc import Iterator
from typing import Final, cast

from paddock.values.calls import Json
from paddock.values.decisions import PATH_CATEGORIES
from paddock.values.entries import Entry

_ROOT: Final = "."
_HEADS: Final = tuple(f"tool:{category}:" for category in sorted(PATH_CATEGORIES))


def names_path(entry: Entry, path: str) -> bool:
    """Whether an entry names this path or one below it, workspace-relative; `.` is any path.

    A command names what it changed, and what policy refused to change; of more paths than
    an entry lists only those.
    """
    return any(path in {_ROOT, named} or named.startswith(f"{path}/") for named in _paths_of(entry))


def _paths_of(entry: Entry) -> Iterator[str]:
    for action in _items(entry.metadata.get("actions")):
        head, _, target = action.partition(" ") if isinstance(action, str) else ("", "", "")
        if head.startswith(_HEADS):
            yield target or _ROOT
    for effect in _items(entry.metadata.get("effects")):
        named = cast("dict[str, Json]", effect) if isinstance(effect, dict) else {}
        for path in (named.get("path"), named.get("to")):
            if isinstance(path, str):
                yield path
    for refused in _items(entry.metadata.get("refused")):
        path = cast("dict[str, Json]", refused).get("path") if isinstance(refused, dict) else None
        if isinstance(path, str):
            yield path


def _items(kept: Json) -> list[Json]:
    return cast("list[Json]", kept) if isinstance(kept, list) else []
