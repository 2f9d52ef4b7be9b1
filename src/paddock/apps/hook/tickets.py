"""What a person is being asked in a client's own prompt, so that the answer counts once.

The client runs the wrapped line only after a yes. It carries a ticket: for this one command of
this agent in this directory, once, for an hour.

Threat: whoever knows the ticket starts the line without the yes. It runs that very command, as
confined as ever, and is used up; from within the sandbox no ticket can be reached.
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
            # Of two who use it at once one removes it.
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
    """Says yes to the one question whose ticket the wrapped line carries."""

    def __init__(self, tickets: Tickets, ticket: str, question: CommandAsked) -> None:
        self._tickets = tickets
        self._ticket = ticket
        self._question = question

    def answer(self, request: "ApprovalRequest") -> "Approval":
        """Grant once, for the command; never for a difference, which nobody has seen."""
        # What it knows of tools and of the workspace is much to load, and the hook itself has none.
        from paddock.runtime.approvals import Approval  # noqa: PLC0415 - only who runs it

        is_about_command = not request.diff and request.arguments.get("command") == (
            self._question.command
        )
        if is_about_command and self._ticket and self._tickets.use(self._ticket, self._question):
            return Approval(True, "the client's own prompt")
        note = "nobody can be asked from the client's shell"
        return Approval(False, "nobody", ApprovalUnavailableError.code, note)
