"""Asks whoever sits at the terminal; anything but an explicit yes is no."""

import itertools
import threading
from typing import Final

from paddock import limits
from paddock.apps.admin.ports import Answer, Choice, Keyboard, Silence
from paddock.apps.admin.preview import Previews
from paddock.apps.admin.question import BRIEF, WHOLE, Extent, question_for
from paddock.errors import ApprovalUnavailableError
from paddock.runtime.approvals import Approval, ApprovalRequest

BY: Final = "terminal"


class TerminalApprover:
    """Remembers what is always granted, by session and digest: nothing but exactly the same call.

    Threat: "in this session" is what was agreed to, and the shell goes on with another one.

    Agents that work side by side ask one after another.
    """

    def __init__(
        self, keyboard: Keyboard, previews: Previews, timeout_s: float = limits.approval_timeout_s
    ) -> None:
        self._keyboard = keyboard
        self._previews = previews
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._always: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def answer(self, request: ApprovalRequest) -> Approval:
        """Yes or no within the time limit; silence is a no that can be answered later."""
        with self._lock:
            return self._answer(request)

    def _answer(self, request: ApprovalRequest) -> Approval:
        call = (request.session_id, request.digest)
        before = self._always.get(call)
        if before is not None:
            return Approval(True, f"{BY} (always, since {before})")
        said, question_id = self._ask(request, BRIEF)
        if said is Choice.EXPAND:
            said, question_id = self._ask(request, WHOLE)
        if isinstance(said, Silence):
            note = said.value
            if said is Silence.TOO_LATE:
                note = f"no answer within {self._timeout_s:g} s"
            return Approval(False, BY, ApprovalUnavailableError.code, note)
        if said is Choice.ALWAYS:
            self._always[call] = question_id
        return Approval(said in {Choice.YES, Choice.ALWAYS}, BY)

    def _ask(self, request: ApprovalRequest, extent: Extent) -> tuple[Choice | Silence, str]:
        question_id = f"Q{next(self._numbers)}"
        preview = self._previews.of(request, extent.lines_max)
        question = question_for(request, question_id, preview, extent, self._timeout_s)
        answer = self._keyboard.answer(question)
        if isinstance(answer, Silence):
            return answer, question_id
        return _counted(answer, question_id, question.choices), question_id


def _counted(answer: Answer, question_id: str, choices: tuple[Choice, ...]) -> Choice:
    # Threat: an answer to an earlier question arrives when another one stands there.
    if answer.question_id != question_id or answer.choice not in choices:
        return Choice.NO
    return answer.choice
