"""How long a search may go on."""

import time
from typing import Final

from paddock import limits
from paddock.values.calls import NEVER, Cancel

_LOOK_S: Final = 0.05
"""The longest wait before it is looked again whether the call was cancelled."""


class Until:
    """Until its time is over, `limits.search_timeout_s` from now, or it is cancelled."""

    __slots__ = ("_cancel", "_deadline")

    def __init__(self, cancel: Cancel = NEVER) -> None:
        self._cancel = cancel
        self._deadline = time.monotonic() + limits.search_timeout_s

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline or self._cancel.is_cancelled

    @property
    def wait_ms(self) -> float:
        """How long to wait for something before `is_over` is asked again."""
        return max(0.0, min(self._deadline - time.monotonic(), _LOOK_S)) * 1000
