"""Find whether the backend `stage` works here, by running a command in it and looking.

Once in a process a command does in a small workspace what it may and what it may not, and both
are checked from outside. What fails for the moment says nothing about the host: it is not
remembered, and no weaker backend takes over for it.

Remedies: why a backend does not start on this host, and what an operator does about it.
"""

import errno
import os
import threading
from enum import Enum
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import HostError, PaddockError, SandboxUnavailableError
from paddock.policy.settings import ShellLimits
from paddock.sandbox.area import claimed, has_command_users
from paddock.sandbox.changes.upper import Kind, host_owner, read_changes
from paddock.sandbox.conversation import ConfinementError
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import (
    BackendVerdict,
    CommandEnd,
    CommandRequest,
    Ending,
    Enforcement,
    SandboxPlan,
)
from paddock.storage.atomic import held_open

# Remedies. Pure.
#
# Rules only explain what was tried; a wrong one can mislead, never open anything. Sources:
# user_namespaces(7), landlock(7), seccomp(2), overlayfs (userxattr), AppArmor's documentation.


class Step(Enum):
    USER_NAMESPACE = "user namespaces"
    MOUNTS = "mounts in a user namespace"
    OVERLAY = "an overlay of the workspace"
    IDENTITY_MAP = "identity-mapped mounts"
    SECCOMP = "a seccomp filter"
    LANDLOCK = "Landlock"
    NOT_ROOT = "a user other than root"


class Symptom(Struct, frozen=True):
    step: Step
    code: int = 0
    detail: str = ""


class HostSwitches(Struct, frozen=True):
    apparmor_restricts: str | None = None
    userns_clone: str | None = None
    user_namespaces_max: str | None = None
    has_command_users: bool = True
    """Started by root, there are ids for users who are nobody else's: `HOST_IDS_FIRST`."""
    has_own_filter: bool = False
    """A seccomp filter holds this process already, as in a container."""
    security_modules: str | None = None


class RemedyExplanation(Struct, frozen=True):
    cause: str
    remedy: str


_CONTAINER: Final = (
    "start the container with a seccomp profile that allows {calls}"
    " (as with --security-opt seccomp=unconfined)"
)
_REFUSED: Final = frozenset({errno.EPERM, errno.EACCES})
_MISSING: Final = frozenset({errno.ENOSYS, errno.EINVAL})


def explain(symptom: Symptom, host: HostSwitches) -> RemedyExplanation:
    if symptom.step in (Step.USER_NAMESPACE, Step.MOUNTS):
        return _user_namespace(symptom, host)
    if symptom.step is Step.LANDLOCK:
        return _landlock(symptom, host)
    if symptom.step is Step.SECCOMP:
        return RemedyExplanation(
            _what_failed(symptom),
            "a kernel with CONFIG_SECCOMP_FILTER, and no filter that forbids it",
        )
    if symptom.step is Step.NOT_ROOT:
        return RemedyExplanation(
            symptom.detail or "started by root, and no other user can take over the workspace",
            "start paddock as the user who owns the workspace",
        )
    return _mount(symptom)


def _user_namespace(symptom: Symptom, host: HostSwitches) -> RemedyExplanation:
    if host.userns_clone == "0":
        return RemedyExplanation(
            "unprivileged user namespaces are switched off",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        )
    if host.user_namespaces_max == "0":
        return RemedyExplanation(
            "the host allows no user namespaces", "sysctl -w user.max_user_namespaces=15000"
        )
    if not host.has_command_users:
        return RemedyExplanation(
            "started by root in a container whose range of ids is too small: none is left for"
            " a user whom commands could be",
            "start paddock as the plain user who owns the workspace, or give the container a"
            " larger range of ids",
        )
    if symptom.code == errno.ENOSPC:
        most = host.user_namespaces_max or "15000"
        return RemedyExplanation(
            f"the host allows no more namespaces: {most} for each user, and fewer in a container",
            f"outside of it, sysctl -w user.max_user_namespaces to more than {most}, and the like"
            " for mnt, pid, net, ipc, uts and cgroup",
        )
    if host.apparmor_restricts == "1" and symptom.code in _REFUSED:
        # AppArmor lets unshare(2) succeed and then takes the capabilities: the mount fails.
        return RemedyExplanation(
            "AppArmor forbids unprivileged user namespaces",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile"
            " with `userns,` for this interpreter",
        )
    if host.has_own_filter and symptom.code in (*_REFUSED, errno.ENOSYS):
        return RemedyExplanation(
            "a seccomp filter, such as a container's, forbids it",
            _CONTAINER.format(calls="unshare, clone and mount"),
        )
    if symptom.code in _MISSING:
        return RemedyExplanation(
            "the kernel has no user namespaces", "a kernel with CONFIG_USER_NS (Linux 5.11)"
        )
    return RemedyExplanation(_what_failed(symptom), "allow this user to make user namespaces")


def _landlock(symptom: Symptom, host: HostSwitches) -> RemedyExplanation:
    if symptom.code == errno.ENOSYS:
        return RemedyExplanation(
            "the kernel has no Landlock", "a kernel with CONFIG_SECURITY_LANDLOCK (Linux 5.13)"
        )
    modules = host.security_modules
    if symptom.code == errno.EOPNOTSUPP or (modules is not None and "landlock" not in modules):
        listed = f",{modules.strip()}" if modules else ",…"
        return RemedyExplanation("Landlock is switched off", f"boot with lsm=landlock{listed}")
    if symptom.code in _REFUSED:
        return RemedyExplanation(
            "a seccomp filter, such as a container's, forbids Landlock",
            _CONTAINER.format(calls="the landlock calls"),
        )
    return RemedyExplanation(_what_failed(symptom), "a kernel with Landlock (Linux 5.13)")


def _mount(symptom: Symptom) -> RemedyExplanation:
    if symptom.step is Step.IDENTITY_MAP:
        return RemedyExplanation(
            _what_failed(symptom),
            "start paddock as the user who owns the workspace, or put the workspace on a file"
            " system with identity-mapped mounts (ext4, xfs, btrfs; Linux 5.12)",
        )
    if symptom.code in (*_REFUSED, errno.ENODEV, *_MISSING, errno.ELOOP):
        return RemedyExplanation(
            f"{_what_failed(symptom)}: an old kernel, or a workspace on an overlay itself",
            "put the workspace on a volume or another file system (in a container: a bind mount),"
            " with Linux 5.11 or newer",
        )
    return RemedyExplanation(_what_failed(symptom), "put the workspace on a local file system")


def _what_failed(symptom: Symptom) -> str:
    name = errno.errorcode.get(symptom.code, str(symptom.code)) if symptom.code else ""
    told = " ".join(part for part in (symptom.detail, name) if part)
    return f"{symptom.step.value} cannot be had" + (f" ({told})" if told else "")


BACKEND: Final = "stage"
_TIMEOUT_S: Final = 10.0
_OUTPUT_BYTES: Final = 65_536
_NAMESPACES: Final = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")

_PASSING: Final = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR, errno.EIO}
)

_STEPS: Final = {
    "user namespace": Step.USER_NAMESPACE,
    "users": Step.USER_NAMESPACE,
    "identity-mapped mounts": Step.IDENTITY_MAP,
    "layers of the workspace": Step.OVERLAY,
    "overlay of the workspace": Step.OVERLAY,
    "privileges": Step.SECCOMP,
}

# One line of shell builtins but for readlink, so that little has to be readable.
_SCRIPT: Final = """
echo changed > kept; echo new > made; : > gone; rm gone
read -r secret < hidden && echo "saw hidden"
read -r secret < below/hidden && echo "saw hidden"
read -r secret < "$1" && echo "saw outside"
echo x > "$1.new"
echo 0 > /proc/sys/kernel/printk && echo "wrote settings"
for kind in {namespaces}; do echo "ns $kind $(readlink /proc/self/ns/$kind)"; done
while read -r line; do echo "status $line"; done < /proc/self/status
echo end
"""


class CanaryGround(Struct, frozen=True):
    readable: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


class Canary:
    def __init__(self, launcher: Launcher, staging: Path, ground: CanaryGround) -> None:
        self._launcher = launcher
        self._staging = staging
        self._ground = ground
        self._lock = threading.Lock()
        self._verdict: BackendVerdict | None = None

    def verdict(self) -> BackendVerdict:
        with self._lock:
            if self._verdict is None or self._verdict.is_passing:
                self._verdict = try_stage(self._launcher, self._staging, self._ground)
            return self._verdict


def try_stage(launcher: Launcher, staging: Path, ground: CanaryGround) -> BackendVerdict:
    """Threat: a command uses up what the canary needs: such a verdict is passing, or none holds."""
    try:
        staging.mkdir(mode=0o700, parents=True, exist_ok=True)
        with claimed(staging, "canary-") as cage:
            _furnish(cage)
            said = _run(launcher, cage, ground)
    except PaddockError as error:
        return _explained(error)
    except OSError as error:
        return _failed(f"no place to try it in: {os.strerror(error.errno or 0)}")
    if said:
        return _failed(
            f"it does not hold: {said}", "please report this, with your kernel's version"
        )
    return BackendVerdict(BACKEND, Enforcement.FULL)


def try_workspace(
    launcher: Launcher, workspace: str, fd: int, ground: CanaryGround
) -> BackendVerdict:
    """Try a sandbox over this very workspace, maybe on another file system; run nothing in it."""
    plan = canary_plan(workspace, ground, ())
    request = CommandRequest(plan, ("/bin/sh", "-c", ":"), ".", _TIMEOUT_S, _OUTPUT_BYTES)
    try:
        with launcher.open_stage(plan, fd) as stage:
            launcher.run(request, stage)
    except PaddockError as error:
        return _explained(error)
    gaps = gaps_over(fd)
    remedy = "start paddock as the user who owns the workspace" if gaps else ""
    return BackendVerdict(BACKEND, Enforcement.FULL, gaps, remedy=remedy)


def gaps_over(workspace_fd: int) -> tuple[str, ...]:
    owner = os.fstat(workspace_fd).st_uid
    if os.geteuid() != 0 or owner == 0:
        return ()
    # A command is root's user there. Would it be the owner, it could not change what Paddock,
    # which is root, makes for it.
    said = f"started by root, and user {owner} owns the workspace: a command can change only"
    return (f"{said} what belongs to root or is open to everybody, and git distrusts the rest",)


def _explained(error: PaddockError) -> BackendVerdict:
    if isinstance(error, ConfinementError):
        return explain_failure(error)
    if isinstance(error, HostError):
        return failed_now(BACKEND, error)
    return _failed(error.message, error.hint)


def explain_failure(error: ConfinementError) -> BackendVerdict:
    if is_passing(error.number, error.step):
        return failed_now(BACKEND, error)
    step = _STEPS.get(error.step, Step.MOUNTS)
    told = explain(Symptom(step, error.number, error.step), read_switches())
    return _failed(told.cause, told.remedy)


def is_passing(number: int, step: str) -> bool:
    is_full = number in (errno.ENOSPC, errno.EDQUOT)
    # Of user namespaces, ENOSPC says that the host allows none, or none any deeper.
    return number in _PASSING or (is_full and step != "user namespace")


def failed_now(backend: str, error: PaddockError) -> BackendVerdict:
    remedy = "try again; while it fails, commands are refused"
    return BackendVerdict(backend, Enforcement.NONE, (), error.message, remedy, is_passing=True)


def expect_an_end(end: CommandEnd) -> None:
    """Raises: HostError where the canary's command was cut short: this host is busy."""
    if end.ending in (Ending.TIMED_OUT, Ending.MEMORY):
        raise HostError(f"a first command in a sandbox came to no end: {end.ending.value}")


def read_switches() -> HostSwitches:
    kernel = Path("/proc/sys/kernel")
    return HostSwitches(
        apparmor_restricts=_read(kernel / "apparmor_restrict_unprivileged_userns"),
        userns_clone=_read(kernel / "unprivileged_userns_clone"),
        user_namespaces_max=_read(Path("/proc/sys/user/max_user_namespaces")),
        has_command_users=has_command_users(),
        has_own_filter="\nSeccomp:\t2" in (_read(Path("/proc/self/status")) or ""),
        security_modules=_read(Path("/sys/kernel/security/lsm")),
    )


def _furnish(cage: Path) -> None:
    workspace = cage / "workspace"
    (workspace / "below").mkdir(parents=True)
    cage.chmod(0o755)
    for path in ("kept", "hidden", "below/hidden"):
        (workspace / path).write_text("old\n")
    (cage / "outside").write_text("outside\n")


def _run(launcher: Launcher, cage: Path, ground: CanaryGround) -> str:
    workspace = cage / "workspace"
    plan = canary_plan(os.fspath(workspace), ground, ("below/hidden", "hidden"))
    script = _SCRIPT.format(namespaces=" ".join(_NAMESPACES))
    outside = os.fspath(cage / "outside")
    request = CommandRequest(
        plan, ("/bin/sh", "-c", script, "canary", outside), ".", _TIMEOUT_S, _OUTPUT_BYTES
    )
    with (
        held_open(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as fd,
        launcher.open_stage(plan, fd) as stage,
    ):
        end = launcher.run(request, stage)
        with held_open(stage.open_upper()) as upper:
            return _judge_end(end) or _judge_layers(upper, fd, cage)


def canary_plan(workspace: str, ground: CanaryGround, hidden: tuple[str, ...]) -> SandboxPlan:
    return SandboxPlan(
        workspace=workspace,
        readable=ground.readable,
        writable=(),
        hidden=hidden,
        network="loopback",
        git="safe",
        commit="each",
        enforcement="required",
        limits=ShellLimits(memory_mb=1024),
        environment=(("PATH", "/usr/bin:/bin"),),
        policy_digest="",
        links=ground.links,
    )


def _judge_end(end: CommandEnd) -> str:
    expect_an_end(end)
    if end.ending is not Ending.EXITED or end.exit_code != 0:
        raise SandboxUnavailableError(
            f"a first command in it ended badly: {end.ending.value} {end.exit_code} {end.reason}",
            hint="sh and readlink have to be readable for commands",
        )
    lines = end.stdout.head.decode("utf-8", "replace").splitlines()
    for line in lines:
        if line.startswith(("saw ", "wrote ")):
            return f"a command {line}"
    status = {
        key: value.strip()
        for key, _, value in (
            line.removeprefix("status ").partition(":") for line in lines if ":" in line
        )
    }
    wanted = {"CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    for key, value in wanted.items():
        if status.get(key) != value:
            return f"a command has {key} {status.get(key)!r}"
    for kind in _NAMESPACES:
        # Followed by a link's text such as net:[4026531840].
        own = f"ns {kind} {os.readlink(f'/proc/self/ns/{kind}')}"
        if own in lines or not any(line.startswith(f"ns {kind} {kind}:[") for line in lines):
            return f"a command shares the host's {kind} namespace"
    return "" if lines[-1:] == ["end"] else "a command did not come to its end"


def _judge_layers(upper: int, lower: int, cage: Path) -> str:
    changes = {change.path: change for change in read_changes(upper, lower).changes}
    if set(changes) != {"kept", "made"} or any(
        change.kind is not Kind.FILE for change in changes.values()
    ):
        return f"the changes read are not those made: {sorted(changes)}"
    made = os.stat("made", dir_fd=upper)
    if os.geteuid() == 0 and made.st_uid == host_owner(made.st_uid):
        return f"a command ran as user {made.st_uid} of the host"
    if (cage / "workspace/kept").read_text() != "old\n" or (cage / "workspace/made").exists():
        return "a command wrote to the workspace itself"
    return "a command wrote outside" if (cage / "outside.new").exists() else ""


def _failed(cause: str, remedy: str = "") -> BackendVerdict:
    return BackendVerdict(BACKEND, Enforcement.NONE, (), cause, remedy)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
