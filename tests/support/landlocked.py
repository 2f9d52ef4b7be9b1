"""Running one command under the Landlock backend, without the launcher.

A keeper is forked, and the command by it; as root the command becomes the plain user.
Everything that the children need is imported before they are made.
"""

import os
import pwd
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.kernel.syscalls import adopt_orphans
from paddock.policy.engine import Policy, load_policy
from paddock.policy.settings import SYSTEM_READ, ShellLimits
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.inside.supervisor import end_descendants, hold
from paddock.sandbox.landlock import LandlockConfinement, confine
from paddock.sandbox.plan import ReadJudge, WriteJudge
from paddock.sandbox.values import SandboxPlan
from paddock.values.decisions import Agent, AgentChain
from tests.support.users import PLAIN_USER

CHAIN: AgentChain = (Agent("main", "standard"),)


class Ran(Struct, frozen=True, dict=True):
    """How a command under Landlock ended."""

    code: int
    output: str
    killed: int
    """Processes that still ran when it ended."""


class Held(Struct, dict=True):
    """A workspace with a private directory, and the policy that its commands are held to."""

    workspace: Path
    scratch: Path
    policy: Policy = field(default_factory=lambda: load_policy(None))
    chain: AgentChain = CHAIN
    network: str = "loopback"

    def confine(self, root_fd: int) -> AbstractContextManager[LandlockConfinement]:
        read = NameIndex(ReadJudge(self.policy, self.chain))
        write = NameIndex(WriteJudge(self.policy, self.chain))
        plan = plan_for(self.workspace, self.network)
        return confine(plan, root_fd, str(self.scratch), read, write)

    def run(self, line: str) -> Ran:
        """Run a shell line in the workspace, held."""
        root_fd = os.open(self.workspace, os.O_PATH | os.O_DIRECTORY)
        try:
            with self.confine(root_fd) as held:
                return _run(line, self, held)
        finally:
            os.close(root_fd)


def plan_for(workspace: Path, network: str = "loopback") -> SandboxPlan:
    """A plan with the system directories, as they are on this host."""
    readable = sorted({os.path.realpath(path) for path in SYSTEM_READ if os.path.exists(path)})
    return replace(
        SandboxPlan(
            workspace=str(workspace),
            readable=tuple(readable),
            writable=(),
            hidden=(),
            network="loopback",
            git="safe",
            commit="each",
            enforcement="required",
            limits=ShellLimits(memory_mb=4096),
            environment=(),
            policy_digest="sha256:0",
        ),
        network=network,
    )


def _run(line: str, ground: Held, held: LandlockConfinement) -> Ran:
    user = pwd.getpwnam(PLAIN_USER)
    identity = (user.pw_uid, user.pw_gid) if os.geteuid() == 0 else None
    said_read, said_write = os.pipe()
    told_read, told_write = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        code = 120
        try:
            os.close(said_read)
            adopt_orphans()
            command = os.fork()
            if command == 0:
                _become(line, ground, held, identity, said_write)
            os.close(said_write)
            _, status = os.waitpid(command, 0)
            os.write(told_write, str(len(end_descendants())).encode())
            code = os.waitstatus_to_exitcode(status)
            code = code if code >= 0 else 128 - code
        finally:
            os._exit(code)
    os.close(said_write)
    os.close(told_write)
    # The keeper holds no end of the output: it ends with the last process of the command.
    with os.fdopen(told_read, "rb") as told:
        killed = int(told.read() or b"-1")
    with os.fdopen(said_read, "rb") as said:
        output = said.read().decode(errors="replace")
    _, status = os.waitpid(keeper, 0)
    return Ran(os.waitstatus_to_exitcode(status), output, killed)


def _become(
    line: str,
    ground: Held,
    held: LandlockConfinement,
    identity: tuple[int, int] | None,
    output: int,
) -> None:
    try:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(ground.workspace)
        os.setsid()
        hold((held.ruleset_fd, held.program), identity)
        os.closerange(3, 256)
        scratch = str(ground.scratch)
        environment = {"PATH": "/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch}
        os.execve("/bin/sh", ["sh", "-c", line], environment)
    except BaseException as error:
        os.write(2, repr(error).encode())
        os._exit(126)
