"""What may stand in `NAME.d/`, beside a ledger: every name that this package gives. Pure."""

import os
import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

from paddock.ledger.checkpoint import checkpoints_folder
from paddock.ledger.segments import LedgerPaths
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import is_temporary_name

_PATHS: Final = LedgerPaths("NAME.jsonl")
_CHECKPOINTS: Final = checkpoints_folder(_PATHS.ledger).name
_TORN: Final = os.path.basename(_PATHS.torn)
_FILES: Final = frozenset(
    os.path.basename(path)
    for path in (_PATHS.next, _PATHS.lock, _PATHS.commit_lock, _PATHS.head, _PATHS.new)
) | {"index.sqlite", "index.sqlite-journal", "index.lock", "tree.edge", "tree.edge.new"}
_NUMBERED: Final = lazy_pattern(r"tree\.\d{1,2}|ballast\.\d{1,10}\.[0-9a-f]{1,16}", re.ASCII)
"""A ballast file has a name only between two system calls, or where one was killed there."""
_FOLDERS_BEFORE: Final = (
    "offsets",
    *(f"by-{kind}" for kind in ("time", "type", "session", "call", "agent", "decision")),
)
"""Of the files that answered questions before there was an index: they mean nothing any more."""
_IN_FOLDERS: Final[Mapping[str, re.Pattern[str]]] = {
    _CHECKPOINTS: lazy_pattern(r"\d{1,16}(?:\.before-rollback)?", re.ASCII),
    _TORN: lazy_pattern(r"draft|\d{1,16}-[0-9a-f]{64}(?:\.pending)?", re.ASCII),
    **{folder: lazy_pattern(r"draft|\d{16}-\d{16}", re.ASCII) for folder in _FOLDERS_BEFORE},
}


class Detail(Enum):
    """What a name beside a ledger belongs to."""

    FILE = "file"
    DIRECTORY = "directory"


def find_detail(path: str) -> Detail | None:
    """What stands at `path`, relative to `NAME.d/`; None where a ledger keeps nothing there."""
    folder, _, name = path.rpartition("/")
    if folder:
        pattern = _IN_FOLDERS.get(folder)
        is_ours = pattern is not None and pattern.fullmatch(name) is not None
        is_left = folder == _CHECKPOINTS and is_temporary_name(name)
        return Detail.FILE if is_ours or is_left else None
    if name in _IN_FOLDERS:
        return Detail.DIRECTORY
    return Detail.FILE if name in _FILES or _NUMBERED.fullmatch(name) else None
