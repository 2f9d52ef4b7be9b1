"""A command's outputs, as whoever asked for it holds them."""

import os
import socket
import stat

import pytest

from paddock.policy.settings import ShellLimits
from paddock.sandbox.conversation import UNOBSERVED, CommandConversation
from paddock.sandbox.values import CommandRequest, SandboxPlan

pytestmark = pytest.mark.needs("linux")

PLAN = SandboxPlan(
    workspace="/ws",
    readable=(),
    writable=(),
    hidden=(),
    network="none",
    git="safe",
    commit="each",
    enforcement="required",
    limits=ShellLimits(),
    environment=(),
    policy_digest="",
)
REQUEST = CommandRequest(PLAN, ("true",), ".", 1.0, 100)


@pytest.fixture
def outputs():
    """A conversation's two outputs, as the sandbox at the other end gets them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    user = (1234, 1235) if os.geteuid() == 0 else None
    with ours, theirs:
        conversation = CommandConversation(ours, REQUEST, UNOBSERVED, user)
        _, (order, given, *ends), _, _ = socket.recv_fds(theirs, 16, 4)
        yield ends
        for fd in (order, given, *ends):
            os.close(fd)
        conversation.close()


def other_ends(end: int) -> list[int]:
    """Descriptors of this process of the same pipe."""
    pipe = os.readlink(f"/proc/self/fd/{end}")
    fds = [int(name) for name in os.listdir("/proc/self/fd")]
    return [
        fd
        for fd in fds
        if fd != end
        and os.path.lexists(f"/proc/self/fd/{fd}")
        and os.readlink(f"/proc/self/fd/{fd}") == pipe
    ]


def test_nobody_who_reads_the_pipe_too_makes_us_wait_for_it(outputs):
    for end in outputs:
        assert [os.get_blocking(fd) for fd in other_ends(end)] == [False]
        assert os.get_blocking(end)


def test_who_opens_an_output_by_its_name_is_the_command_alone(outputs):
    user = (1234, 1235) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for end in outputs:
        found = os.fstat(end)
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (*user, 0o600)
