"""Find which backends work here by running a test command in each.

The command tries allowed and forbidden actions in a small workspace, and both results are checked
from outside. A temporary failure says nothing about the host: it is not cached, and no weaker
backend replaces the one that failed. Every cause comes with a remedy for the operator.
"""

import contextlib
import errno
import os
import tempfile
from collections.abc import Generator, Iterable
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from paddock.errors import HostError, PaddockError, SandboxUnavailableError
from paddock.kernel.landlock import landlock_abi
from paddock.policy.engine import load_policy
from paddock.policy.settings import SYSTEM_READ, ShellLimits
from paddock.sandbox.changes.upper import host_owner, read_changes
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.host.host_facts import Resolver, is_covered, topmost
from paddock.sandbox.landlock import LANDLOCK, enforced_by_landlock, run_in_place
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.plan import ReadJudge, WriteJudge
from paddock.sandbox.staging_area import claimed, has_command_users
from paddock.sandbox.values import (
    BackendVerdict,
    CommandEnd,
    CommandRequest,
    ConfinementError,
    Ending,
    Enforced,
    Enforcement,
    SandboxPlan,
)
from paddock.storage.atomic import held_open
from paddock.values.decisions import Agent

# Remedies. Pure.
#
# These rules only explain a failed attempt: a wrong one may mislead, but grants nothing. Sources:
# user_namespaces(7), landlock(7), seccomp(2), overlayfs (userxattr), AppArmor's documentation.


class Step(Enum):
    USER_NAMESPACE = "user namespaces"
    MOUNTS = "mounts in a user namespace"
    OVERLAY = "an overlay of the workspace"
    IDENTITY_MAP = "identity-mapped mounts"
    SECCOMP = "a seccomp filter"
    LANDLOCK = "Landlock"


class Symptom(Struct, frozen=True):
    step: Step
    code: int = 0
    detail: str = ""


class HostSwitches(Struct, frozen=True):
    apparmor_restricts: str | None = None
    userns_clone: str | None = None
    user_namespaces_max: str | None = None
    has_command_users: bool = True
    """When started by root: the ids from `HOST_IDS_FIRST` on can be mapped."""
    has_own_filter: bool = False
    """A seccomp filter already applies to this process, as in a container."""
    security_modules: str | None = None


class RemedyExplanation(NamedTuple):
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
            "started by root in a container whose id range is too small: no user id is left for"
            " commands",
            "start paddock as the unprivileged owner of the workspace, or give the container a"
            " larger id range",
        )
    if symptom.code == errno.ENOSPC:
        most = host.user_namespaces_max or "15000"
        return RemedyExplanation(
            f"the host allows no more namespaces: {most} per user, fewer in a container",
            f"outside the container, sysctl -w user.max_user_namespaces to more than {most}, and"
            " the same for mnt, pid, net, ipc, uts and cgroup",
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
    return RemedyExplanation(_what_failed(symptom), "allow this user to create user namespaces")


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
            f"{_what_failed(symptom)}: an old kernel, or a workspace that is itself on an overlay",
            "put the workspace on a volume or another file system (in a container: a bind mount),"
            " with Linux 5.11 or newer",
        )
    return RemedyExplanation(_what_failed(symptom), "put the workspace on a local file system")


def _what_failed(symptom: Symptom) -> str:
    name = errno.errorcode.get(symptom.code, str(symptom.code)) if symptom.code else ""
    detail = " ".join(part for part in (symptom.detail, name) if part)
    return f"cannot set up {symptom.step.value}" + (f" ({detail})" if detail else "")


STAGE: Final = "stage"
_TIMEOUT_S: Final = 10.0
_OUTPUT_BYTES: Final = 65_536
_NAMESPACES: Final = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
_PLAIN_ID: Final = 65_534
"""The kernel's overflow id, which owns nothing important (user_namespaces(7))."""
_AS_ROOT: Final = "started by root, it supports only workspaces that another user owns"
_CHAIN: Final = (Agent("canary", "standard"),)

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

# Shell builtins only, except readlink, so that few files have to be readable.
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

# Shell builtins only, so that few files have to be readable. `$1` is outside the workspace.
_LANDLOCK_SCRIPT: Final = """
echo changed > open/kept && echo new > open/made && echo "did its work"
read -r secret < .env && echo "saw a secret"
read -r secret < "$1" && echo "saw outside"
echo x > "$1.new" && echo "wrote outside"
echo x > site.pem && echo "wrote what is protected"
echo x > beside.pem && echo "made what is protected"
echo 0 > /proc/sys/kernel/printk && echo "wrote settings"
echo end
"""


class SystemPaths(Struct, frozen=True):
    readable: tuple[str, ...]
    links: tuple[tuple[str, str], ...]


def find_system_paths() -> SystemPaths:
    resolver = Resolver()
    found = [place for path in SYSTEM_READ if (place := resolver.find(path)) is not None]
    readable = topmost(place.real for place in found)
    links = {link for place in found for link in place.links}
    return SystemPaths(
        readable, tuple(sorted(link for link in links if not is_covered(link[0], readable)))
    )


def try_stage(launcher: Launcher, staging: Path, paths: SystemPaths) -> BackendVerdict:
    """Threat: a command exhausts resources that the canary needs: that verdict is temporary."""
    try:
        staging.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _cage(staging, "canary-", ("kept", "hidden", "below/hidden")) as cage:
            cage.chmod(0o755)
            problem = _hold_in_stage(launcher, cage, paths)
    except PaddockError as error:
        return _explain_error(STAGE, error)
    except OSError as error:
        return refused(STAGE, f"no directory to try it in: {os.strerror(error.errno or 0)}")
    return _broken(STAGE, problem) if problem else BackendVerdict(STAGE, Enforcement.FULL)


def try_workspace(
    launcher: Launcher, workspace: str, fd: int, paths: SystemPaths
) -> BackendVerdict:
    """Try a sandbox over this workspace, which may be on another file system; run a no-op."""
    request = _request(workspace, paths, (), ":")
    try:
        with launcher.open_stage(request.plan, fd) as stage:
            launcher.run(request, stage)
    except PaddockError as error:
        return _explain_error(STAGE, error)
    gaps = gaps_over(fd)
    remedy = "start paddock as the user who owns the workspace" if gaps else ""
    return BackendVerdict(STAGE, Enforcement.FULL, gaps, remedy=remedy)


def try_landlock(paths: SystemPaths) -> BackendVerdict:
    try:
        if landlock_abi() == 0:
            return refused(LANDLOCK, *explain_no_landlock())
        place = Path(tempfile.gettempdir())
        names = ("open/kept", ".env", "site.pem")
        with _cage(place, "paddock-canary-", names) as cage:
            _give_away(cage)
            problem, enforced = _hold_by_landlock(cage, paths)
    except (PaddockError, OSError) as error:
        return _explain_error(LANDLOCK, error)
    if problem:
        return _broken(LANDLOCK, problem)
    as_root = (_AS_ROOT,) if os.geteuid() == 0 else ()
    return BackendVerdict(LANDLOCK, Enforcement.PARTIAL, (*as_root, *enforced.gaps))


def gaps_over(workspace_fd: int) -> tuple[str, ...]:
    owner = os.fstat(workspace_fd).st_uid
    if os.geteuid() != 0 or owner == 0:
        return ()
    # A command runs as root's mapped user: the owner could not change files that Paddock creates.
    limit = f"started by root, and user {owner} owns the workspace: a command can change only"
    return (f"{limit} files of root or with write access for all, and git distrusts the rest",)


def refused(backend: str, cause: str, remedy: str = "") -> BackendVerdict:
    return BackendVerdict(backend, Enforcement.NONE, (), cause, remedy)


def _broken(backend: str, problem: str) -> BackendVerdict:
    remedy = "please report this, with your kernel's version"
    return refused(backend, f"it does not confine commands: {problem}", remedy)


def _explain_error(backend: str, error: PaddockError | OSError) -> BackendVerdict:
    if isinstance(error, OSError):
        number, where, cause = error.errno or 0, error.strerror or "", "no directory to try it in: "
        cause += where
    elif isinstance(error, ConfinementError):
        number, where, cause = error.number, error.step, error.message
    elif isinstance(error, HostError):
        return _failed_now(backend, error.message)
    else:
        return refused(backend, error.message, error.hint)
    is_full = number in (errno.ENOSPC, errno.EDQUOT)
    # For user namespaces, ENOSPC means that the host allows none, or no deeper nesting.
    if number in _PASSING or (is_full and where != "user namespace"):
        return _failed_now(backend, cause)
    step = Step.LANDLOCK if backend == LANDLOCK else _STEPS.get(where, Step.MOUNTS)
    return refused(backend, *explain(Symptom(step, number, where), read_switches()))


def _failed_now(backend: str, cause: str) -> BackendVerdict:
    remedy = "try again; while it fails, commands are refused"
    return BackendVerdict(backend, Enforcement.NONE, (), cause, remedy, is_passing=True)


def _expect_an_end(end: CommandEnd) -> None:
    """Raises: HostError where the canary's command was cut short: this host is busy."""
    if end.ending in (Ending.TIMED_OUT, Ending.MEMORY):
        raise HostError(f"the test command in a sandbox did not finish: {end.ending.value}")


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


def explain_no_landlock() -> "RemedyExplanation":
    switches = read_switches()
    code = errno.ENOSYS if switches.security_modules is None else errno.EOPNOTSUPP
    return explain(Symptom(Step.LANDLOCK, code), switches)


@contextlib.contextmanager
def _cage(place: Path, prefix: str, names: Iterable[str]) -> Generator[Path]:
    with claimed(place, prefix) as cage:
        for path in (*(cage / "workspace" / name for name in names), cage / "outside"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("old\n")
        yield cage


def _give_away(cage: Path) -> None:
    if os.geteuid() == 0:
        workspace = cage / "workspace"
        # Threat: the new owner replaces a file by a symlink. He can enter only after the chmod.
        for path in (workspace, *workspace.rglob("*"), cage / "outside"):
            os.chown(path, _PLAIN_ID, _PLAIN_ID, follow_symlinks=False)
        cage.chmod(0o711)


def _hold_in_stage(launcher: Launcher, cage: Path, paths: SystemPaths) -> str:
    workspace = cage / "workspace"
    script = _SCRIPT.format(namespaces=" ".join(_NAMESPACES))
    request = _request(os.fspath(workspace), paths, ("below/hidden", "hidden"), script)
    with (
        held_open(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as fd,
        launcher.open_stage(request.plan, fd) as stage,
    ):
        end = launcher.run(request, stage)
        with held_open(stage.open_upper()) as upper:
            return _judge_end(end) or _judge_layers(upper, fd, cage)


def _hold_by_landlock(cage: Path, paths: SystemPaths) -> tuple[str, Enforced]:
    workspace = cage / "workspace"
    request = _request(os.fspath(workspace), paths, (".env",), _LANDLOCK_SCRIPT)
    policy = load_policy(None)
    read, write = (NameIndex(judge(policy, _CHAIN)) for judge in (ReadJudge, WriteJudge))
    with held_open(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        end = run_in_place(request, fd, (read, write))
    return _judge_landlocked(cage, end), enforced_by_landlock(request.plan)


def _request(
    workspace: str, paths: SystemPaths, hidden: tuple[str, ...], script: str
) -> CommandRequest:
    outside = f"{os.path.dirname(workspace)}/outside"
    plan = SandboxPlan(
        workspace=workspace,
        readable=paths.readable,
        writable=(),
        hidden=hidden,
        network="loopback",
        git="safe",
        commit="each",
        enforcement="required",
        limits=ShellLimits(memory_mb=1024),
        environment=(("PATH", "/usr/bin:/bin"),),
        policy_digest="",
        links=paths.links,
    )
    argv = ("/bin/sh", "-c", script, "canary", outside)
    return CommandRequest(plan, argv, ".", _TIMEOUT_S, _OUTPUT_BYTES)


def _judge_end(end: CommandEnd) -> str:
    _expect_an_end(end)
    if end.ending is not Ending.EXITED or end.exit_code != 0:
        raise SandboxUnavailableError(
            f"the test command in it failed: {end.ending.value} {end.exit_code} {end.reason}",
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
        # A link's text, such as net:[4026531840].
        own = f"ns {kind} {os.readlink(f'/proc/self/ns/{kind}')}"
        if own in lines or not any(line.startswith(f"ns {kind} {kind}:[") for line in lines):
            return f"a command shares the host's {kind} namespace"
    return "" if lines[-1:] == ["end"] else "a command did not finish"


def _judge_layers(upper: int, lower: int, cage: Path) -> str:
    changes = {change.path: change.upper for change in read_changes(upper, lower).changes}
    kinds = {None if look is None else look.kind for look in changes.values()}
    if set(changes) != {"kept", "made"} or kinds != {NodeKind.FILE}:
        return f"the changes read differ from those made: {sorted(changes)}"
    made = os.stat("made", dir_fd=upper)
    if os.geteuid() == 0 and made.st_uid == host_owner(made.st_uid):
        return f"a command ran as user {made.st_uid} of the host"
    if (cage / "workspace/kept").read_text() != "old\n" or (cage / "workspace/made").exists():
        return "a command wrote to the workspace itself"
    return "a command wrote outside" if (cage / "outside.new").exists() else ""


def _judge_landlocked(cage: Path, end: CommandEnd) -> str:
    _expect_an_end(end)
    lines = end.stdout.head.decode("utf-8", "replace").splitlines()
    if end.ending is not Ending.EXITED or lines != ["did its work", "end"]:
        return f"a command ended {end.ending.value} and printed {lines}"
    workspace = cage / "workspace"
    if (workspace / "open/kept").read_text() != "changed\n":
        return "a command could not write to its workspace"
    untouched = [workspace / ".env", workspace / "site.pem", cage / "outside"]
    if any(path.read_text() != "old\n" for path in untouched):
        return "a command wrote to a forbidden file"
    if (cage / "outside.new").exists() or (workspace / "beside.pem").exists():
        return "a command created a forbidden file"
    return ""


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
