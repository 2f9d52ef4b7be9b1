"""A ticket stands for one question to a person: once, and for nothing else."""

import os

from msgspec.structs import replace

from paddock.apps.hook.tickets import LIFE_S, CommandAsked, TicketApprover, Tickets
from paddock.errors import ApprovalUnavailableError
from paddock.plane.layout import PlaneLayout
from paddock.runtime.approvals import Approval, ApprovalRequest
from paddock.values.decisions import PlaneKind

PUSH = CommandAsked("git push", "main", "", ".")
NO = Approval(
    False,
    "nobody",
    ApprovalUnavailableError.code,
    "no approver can be reached from the client's shell",
)


def tickets_in(tmp_path) -> Tickets:
    return Tickets(PlaneLayout(tmp_path, PlaneKind.PROJECT))


def request(command: str, diff: str = "") -> ApprovalRequest:
    return ApprovalRequest(
        "sha256:x", "run_shell", {"command": command}, (), "main", "", "", diff=diff
    )


def test_a_ticket_counts_once(tmp_path):
    tickets = tickets_in(tmp_path)
    ticket = tickets.issue(PUSH)

    assert [tickets.use(ticket, PUSH), tickets.use(ticket, PUSH)] == [True, False]


def test_a_ticket_counts_for_the_very_command_agent_and_directory_alone(tmp_path):
    tickets = tickets_in(tmp_path)
    for other in (
        replace(PUSH, command="git push -f"),
        replace(PUSH, agent="other"),
        replace(PUSH, kind="Explore"),
        replace(PUSH, directory="src"),
    ):
        assert not tickets.use(tickets.issue(PUSH), other)


def test_a_ticket_that_was_never_issued_or_is_a_path_counts_for_nothing(tmp_path):
    tickets = tickets_in(tmp_path)
    ticket = tickets.issue(PUSH)
    forged = ("", "0" * 32, f"../hook-asked/{ticket}", f"./{ticket}", ticket.upper() + "x")

    assert [tickets.use(each, PUSH) for each in forged] == [False] * 5
    assert tickets.use(ticket, PUSH)


def test_a_ticket_runs_out_and_is_swept(tmp_path):
    tickets = tickets_in(tmp_path)
    old, other = tickets.issue(PUSH), tickets.issue(PUSH)
    for each in (old, other):
        (path,) = tmp_path.rglob(each)
        os.utime(path, (0, path.stat().st_mtime - LIFE_S - 1))
    assert not tickets.use(old, PUSH)
    tickets.issue(PUSH)

    assert list(tmp_path.rglob(other)) == []


def test_the_approver_says_yes_once_to_the_command_and_never_to_a_difference(tmp_path):
    tickets = tickets_in(tmp_path)

    def approver() -> TicketApprover:
        return TicketApprover(tickets, tickets.issue(PUSH), PUSH)

    yes = approver()
    assert yes.answer(request("git push")) == Approval(True, "the client's own prompt")
    assert yes.answer(request("git push")) == NO
    assert approver().answer(request("git push -f")) == NO
    assert approver().answer(request("git push", diff="--- a")) == NO
    assert TicketApprover(tickets, "", PUSH).answer(request("git push")) == NO
