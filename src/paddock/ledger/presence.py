"""Whether a ledger is there, was never made, or is gone."""

import os
from pathlib import Path
from typing import Final

from paddock.errors import LedgerDamagedError
from paddock.ledger.paths import LedgerPaths
from paddock.storage.atomic import host_errors

_PATHS: Final = LedgerPaths("")
_BEFORE: Final = frozenset(os.path.basename(path) for path in (_PATHS.lock, _PATHS.new))
"""What stands beside a ledger before there is one."""


def is_known(path: Path) -> bool:
    """Whether there is this ledger, or beside it what only a ledger leaves. Raises: HostError."""
    if path.exists():
        return True
    folder = Path(LedgerPaths(str(path)).folder)
    with host_errors("listing", folder):
        try:
            return not _BEFORE.issuperset(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return False


def stands(path: Path) -> bool:
    """Whether the ledger is there; where it is not, it was never made.

    Threat: a ledger that was removed would pass for one in which nothing stands yet.

    Raises: LedgerDamagedError: it is gone. HostError.
    """
    if path.exists():
        return True
    if not is_known(path):
        return False
    # Another process may have made it between the two looks.
    if path.exists():
        return True
    raise gone_error(path, path.stem)


def gone_error(path: Path, name: str) -> LedgerDamagedError:
    return LedgerDamagedError(
        f"the ledger {name} is gone: what is kept of it says that there was one",
        where=str(path),
        hint="restore it from a backup",
    )
