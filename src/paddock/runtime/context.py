"""What a dispatcher works with; all of it given by the host."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from paddock.ledger.ports import Ledger
from paddock.runtime.approvals import ApprovalLog, Approver, NoApprover
from paddock.runtime.contents import Contents
from paddock.runtime.judge import Judge
from paddock.runtime.records import Caller
from paddock.runtime.registry import Registry
from paddock.storage.history import CallHistory
from paddock.tools.spec import Ports

_NO_HISTORY: Final = CallHistory()
_NOBODY: Final = NoApprover()


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Context:
    """What a dispatcher works with; all of it given by the host.

    `randomness(n)` returns n unpredictable bytes; `monotonic_ns` measures durations.
    """

    registry: Registry
    judge: Judge
    ports: Ports
    ledger: Ledger
    approver: Approver
    approvals: ApprovalLog
    caller: Caller
    randomness: Callable[[int], bytes]
    keeper: Approver = _NOBODY
    """Keeps what nobody is asked about now, so that it can be answered."""
    history: CallHistory = _NO_HISTORY
    contents: Contents | None = None
    """Where contents of arguments are kept; None: their digests alone are."""
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    after_write: Callable[[], None] = _do_nothing
    """Called when a call that may write is over and on record."""
