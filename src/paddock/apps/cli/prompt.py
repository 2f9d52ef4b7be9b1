"""Ask a person at a terminal, so that a model cannot fake the question or the answer."""

from typing import Final

from paddock import limits
from paddock.apps.cli.asking import NoTerminalError, ask_yes
from paddock.apps.cli.console import Console
from paddock.errors import ApprovalUnavailableError
from paddock.runtime.approvals import Approval, ApprovalRequest, question_of

_QUESTION: Final = "allow this once? [y/N] "


class PromptApprover:
    """Asks on the terminal; anything but an explicit yes is no.

    Threat: arguments that carry terminal sequences or direction overrides could
    draw a question of their own, and keys typed before the question was drawn
    could answer it. The first are escaped, the second are thrown away.
    """

    def __init__(self, console: Console, timeout_s: float = limits.approval_timeout_s) -> None:
        self._console = console
        self._timeout_s = timeout_s

    def answer(self, request: ApprovalRequest) -> Approval:
        """Yes or no within the time limit; end of input and time-out are a no."""
        console = self._console
        console.warn(question_of(request))
        try:
            said = ask_yes(console.stdin, console.stderr, _QUESTION, self._timeout_s)
        except NoTerminalError:
            return Approval(
                False, "terminal", ApprovalUnavailableError.code, "no terminal to ask on"
            )
        if said is None:
            note = f"no answer within {self._timeout_s:g} s"
            console.warn("")
            return Approval(False, "terminal", ApprovalUnavailableError.code, note)
        return Approval(said, "terminal")
