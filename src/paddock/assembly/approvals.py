"""The inbox of a plane: opened on its directory and its governance ledger, and answered."""

import json
import os
import time
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paddock.assembly.history import open_history
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project
from paddock.errors import LedgerDamagedError
from paddock.ledger.query import BadRow, Filter, find_decided
from paddock.plane.layout import LedgerName
from paddock.values.calls import Json
from paddock.values.entries import APPROVAL_ANSWERED, ROLLBACK_ACCEPTED

if TYPE_CHECKING:
    from paddock.runtime.inbox import Inbox
    from paddock.runtime.parked import Answers, Parked

_ANSWERS: Final = (APPROVAL_ANSWERED, ROLLBACK_ACCEPTED)


def open_inbox(project: Project) -> "Inbox":
    from paddock.runtime.inbox import Inbox  # noqa: PLC0415 - for a question alone

    def release(pin: str) -> None:
        with closing(open_history(project)) as history:
            history.store.unpin(pin)

    return Inbox(
        project.layout.registries / "approvals" / "calls",
        partial(record_in_governance, project),
        lambda request: read_answers(project, [request]),
        time.time,
        os.urandom,
        release,
        partial(_notify, project.policy.settings.approvals.notify),
    )


_DETACHED: Final = ("sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh")
"""Runs a program and does not wait; an asynchronous list reads nothing unless told (POSIX)."""


def _notify(command: tuple[str, ...], parked: "Parked") -> None:
    """Start what the user wants to be told by. The call does not wait for it, nor fail with it."""
    if not command:
        return
    import subprocess  # noqa: PLC0415 - slow to load, and few are told so
    import tempfile  # noqa: PLC0415 - as above

    with tempfile.TemporaryFile() as told, suppress(OSError):
        told.write(json.dumps(parked.as_json()).encode())
        told.seek(0)
        quiet = subprocess.DEVNULL
        line = (*_DETACHED, *command)
        subprocess.run(line, stdin=told, stdout=quiet, stderr=quiet, check=False)


# Threat: a use that was edited, cut off or restored away makes a used grant a new one. So
# each answer comes from the lines themselves, never from the index; only where the
# whole ledger is what was signed, by the key's last checkpoint and the anchor, which stand
# outside the plane; and only since somebody accepted that the ledger went back.


def read_answers(project: Project, requests: Collection[str]) -> "Answers":
    """What was answered to these. Raises: LedgerDamagedError; HostError, ConfigError."""
    from paddock.assembly.auditing import audit_ledger  # noqa: PLC0415 - for a question alone
    from paddock.runtime.parked import Answers  # noqa: PLC0415 - for a question alone

    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not path.exists():
        return Answers(())
    if not audit_ledger(project.layout, project.environment, LedgerName.GOVERNANCE).is_whole:
        raise _unknown(path)
    found: list[Mapping[str, Json]] = []
    for row in find_decided(str(path), _ANSWERS, Filter()):
        if isinstance(row, BadRow):
            raise _unknown(path)
        metadata = row.entry.metadata
        if row.entry.event_type == APPROVAL_ANSWERED:
            found += [metadata] if metadata.get("request") in requests else []
        elif metadata.get("ledger") == LedgerName.GOVERNANCE:
            break
    return Answers(found)


def _unknown(path: Path) -> LedgerDamagedError:
    return LedgerDamagedError(
        "the governance ledger does not verify: nobody can tell which grants were used",
        where=str(path),
        hint="paddock ledger verify --ledger governance",
    )
