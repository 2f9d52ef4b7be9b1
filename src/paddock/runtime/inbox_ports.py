"""What the inbox needs besides its directory: the record of answers, and the kept contents."""

from typing import Protocol

from paddock.runtime.approvals import Approval, ApprovalRequest
from paddock.runtime.parked import Parked


class ApprovalBook(Protocol):
    """The governance ledger, as the inbox uses it."""

    def answered(self, parked: Parked, answer: str) -> None:
        """Record an answer, or its use, durably. Raises: PaddockError; then it does not count."""
        ...

    def record_use(self, request: ApprovalRequest, approval: Approval) -> None:
        """Record that this call has used up a kept request's answer. Raises: as `answered`."""
        ...

    def is_granted(self, parked: Parked, now: float) -> bool:
        """Whether this very request was granted on record, until later than `now`, and not used.

        Raises: LedgerDamagedError: the record is not what was written.
        """
        ...

    def is_used(self, parked: Parked) -> bool:
        """Whether a yes to this request was used up, on record. Raises: as `is_granted`."""
        ...

    def is_kept(self, parked: Parked) -> bool:
        """Whether this very request, as it is shown, and these very changes were kept on record.

        Raises: as `is_granted`.
        """
        ...


class PinnedContents(Protocol):
    """The history, as the inbox uses it: it holds the contents of changes that wait."""

    def release(self, pin: str) -> None:
        """Keep no longer what was pinned under this name; nothing is fine.

        Raises: ConfigError, HostError.
        """
        ...
