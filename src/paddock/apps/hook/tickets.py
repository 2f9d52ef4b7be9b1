"""Single-use tickets for commands that a user approves in the client's prompt.

The client runs the wrapped command line only after the user approves. The line carries a ticket,
which is valid once, within an hour, for this command of this agent in this directory.

Threat: a process that reads the ticket runs the line without approval. It can run only that
command, in the same sandbox, once; no process inside a sandbox can read a ticket.
"""

import os
import secrets
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock.errors import ApprovalUnavailableError
from paddock.plane.layout import PlaneLayout
from paddock.storage.atomic import create_file, make_directories
from paddock.values.entries import digest_of_json

if TYPE_CHECKING:
    from paddock.runtime.approvals import Approval, ApprovalRequest

LIFE_S: Final = 3600
_BYTES: Final = 16
_DIGITS: Final = frozenset("0123456789abcdef")
_CONTENT_BYTES_MAX: Final = 200


class CommandAsked(Struct, frozen=True):
    command: str
    agent: str
    kind: str
    directory: str

    @property
    def digest(self) -> str:
        return digest_of_json([self.command, self.agent, self.kind, self.directory])


class Tickets:
    def __init__(self, layout: PlaneLayout) -> None:
        self._directory = layout.ho2 / "scratch" / "hook-asked"

    def issue(self, question: CommandAsked) -> str:
        make_directories(self._directory)
        self._sweep()
        ticket = secrets.token_hex(_BYTES)
        create_file(self._directory / ticket, question.digest.encode("ascii"), 0o600)
        return ticket

    def use(self, ticket: str, question: CommandAsked) -> bool:
        if len(ticket) != 2 * _BYTES or not _DIGITS.issuperset(ticket):
            return False
        path = self._directory / ticket
        try:
            is_late = time.time() - os.lstat(path).st_mtime > LIFE_S
            with path.open("rb") as file:
                content = file.read(_CONTENT_BYTES_MAX)
            # If two processes use it at once, only one can remove it.
            os.unlink(path)
        except OSError:
            return False
        return not is_late and content == question.digest.encode("ascii")

    def _sweep(self) -> None:
        for path in self._directory.iterdir():
            try:
                if time.time() - os.lstat(path).st_mtime > LIFE_S:
                    os.unlink(path)
            except FileNotFoundError:
                continue


class TicketApprover:
    """Approves the one command whose ticket the wrapped line carries."""

    def __init__(self, tickets: Tickets, ticket: str, question: CommandAsked) -> None:
        self._tickets = tickets
        self._ticket = ticket
        self._question = question

    def answer(self, request: "ApprovalRequest") -> "Approval":
        """Approve the command once. Never approve changes to files: the user has not seen them."""
        # The module loads the tools and the workspace, which the hook itself does not need.
        from paddock.runtime.approvals import Approval  # noqa: PLC0415 - only the wrapper needs it

        is_about_command = not request.diff and request.arguments.get("command") == (
            self._question.command
        )
        if is_about_command and self._ticket and self._tickets.use(self._ticket, self._question):
            return Approval(True, "the client's own prompt")
        note = "no approver can be reached from the client's shell"
        return Approval(False, "nobody", ApprovalUnavailableError.code, note)
