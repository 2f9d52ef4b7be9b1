"""Which backend carries commands out: the strongest that works here, tried once, or a refusal."""

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import HostError, PaddockError, SandboxUnavailableError
from paddock.kernel.landlock import landlock_abi
from paddock.policy.engine import load_policy
from paddock.policy.presets import RARELY_CONFINED
from paddock.policy.settings import SYSTEM_READ, EnforcementMode
from paddock.sandbox.area import claimed
from paddock.sandbox.canary import BACKEND as STAGE
from paddock.sandbox.canary import (
    Canary,
    CanaryGround,
    Step,
    Symptom,
    canary_plan,
    expect_an_end,
    explain,
    failed_now,
    is_passing,
    read_switches,
    try_stage,
    try_workspace,
)
from paddock.sandbox.conversation import ConfinementError
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.host.host_facts import Resolver, is_covered, topmost
from paddock.sandbox.landlock import BACKEND, HeldEnd, LandlockArea, Workplace, run_landlocked
from paddock.sandbox.landlock import BACKEND as LANDLOCK
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.plan import ReadJudge, WriteJudge
from paddock.sandbox.values import BackendVerdict, CommandRequest, Ending, Enforced, Enforcement
from paddock.storage.atomic import held_open
from paddock.values.decisions import Agent
from paddock.workspace import detect_resolution

__all__ = ["LANDLOCK", "NO_BACKEND", "STAGE", "Attempt", "Backends", "attempt_here"]

_PLAIN_ID: Final = 65_534
"""The kernel's overflow id: what owns nothing that matters (user_namespaces(7))."""
_AS_ROOT: Final = "started by root, it serves only workspaces that another user owns"
_CHAIN: Final = (Agent("canary", "standard"),)
_TIMEOUT_S: Final = 10.0
_OUTPUT_BYTES: Final = 65_536

# One line of shell builtins, so that little has to be readable. `$1` lies outside.
_SCRIPT: Final = """
echo changed > open/kept && echo new > open/made && echo "did its work"
read -r secret < .env && echo "saw a secret"
read -r secret < "$1" && echo "saw outside"
echo x > "$1.new" && echo "wrote outside"
echo x > site.pem && echo "wrote what is protected"
echo x > beside.pem && echo "made what is protected"
echo 0 > /proc/sys/kernel/printk && echo "wrote settings"
echo end
"""


def examine_host(staging: Path) -> tuple[BackendVerdict, ...]:
    """Try every backend, the strongest first; takes some tenths of a second; makes `staging`."""
    ground = system_ground()
    try:
        with Launcher(staging) as launcher:
            stage = try_stage(launcher, staging, ground)
    except OSError as error:
        stage = BackendVerdict(
            STAGE, Enforcement.NONE, (), f"it cannot be tried: {os.strerror(error.errno or 0)}"
        )
    return (stage, try_landlock(ground))


def examine_workspace(staging: Path, workspace: str) -> BackendVerdict:
    try:
        fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        said = f"{workspace} cannot be opened: {os.strerror(error.errno or 0)}"
        return BackendVerdict(STAGE, Enforcement.NONE, (), said, "a workspace is a directory")
    try:
        with Launcher(staging) as launcher:
            return try_workspace(launcher, workspace, fd, system_ground())
    except OSError as error:
        return BackendVerdict(
            STAGE, Enforcement.NONE, (), f"it cannot be tried: {os.strerror(error.errno or 0)}"
        )
    finally:
        os.close(fd)


def system_ground() -> CanaryGround:
    resolver = Resolver()
    found = [standing for path in SYSTEM_READ if (standing := resolver.find(path)) is not None]
    readable = topmost(standing.real for standing in found)
    links = {link for standing in found for link in standing.links}
    return CanaryGround(
        readable, tuple(sorted(link for link in links if not is_covered(link[0], readable)))
    )


def try_landlock(ground: CanaryGround) -> BackendVerdict:
    try:
        if landlock_abi() == 0:
            return _explained(Symptom(Step.LANDLOCK, _why_not()))
        return _try_in_a_workspace(ground)
    except ConfinementError as error:
        if is_passing(error.number, error.step):
            return failed_now(BACKEND, error)
        return _explained(Symptom(Step.LANDLOCK, error.number, error.step))
    except HostError as error:
        return failed_now(BACKEND, error)
    except PaddockError as error:
        return BackendVerdict(BACKEND, Enforcement.NONE, (), error.message, error.hint)
    except OSError as error:
        if is_passing(error.errno or 0, ""):
            return failed_now(BACKEND, HostError(f"no place to try it in: {error.strerror}"))
        return _explained(Symptom(Step.LANDLOCK, error.errno or 0, error.strerror or ""))


def _why_not() -> int:
    modules = read_switches().security_modules
    return errno.ENOSYS if modules is None else errno.EOPNOTSUPP


def _try_in_a_workspace(ground: CanaryGround) -> BackendVerdict:
    with claimed(Path(tempfile.gettempdir()), "paddock-canary-") as cage:
        _furnish(cage)
        kept = _run(cage, ground)
        said = _judge(cage, kept)
    if said:
        return BackendVerdict(
            BACKEND,
            Enforcement.NONE,
            (),
            f"it does not hold: {said}",
            "please report this, with your kernel's version",
        )
    as_root = (_AS_ROOT,) if os.geteuid() == 0 else ()
    return BackendVerdict(BACKEND, Enforcement.PARTIAL, (*as_root, *kept.enforced.gaps))


def _furnish(cage: Path) -> None:
    workspace = cage / "workspace"
    (workspace / "open").mkdir(parents=True)
    for path in ("open/kept", ".env", "site.pem", "../outside"):
        (workspace / path).write_text("old\n")
    if os.geteuid() == 0:
        # Threat: who gets them exchanges one for a link meanwhile. He gets there last.
        for path in (workspace, *workspace.rglob("*"), cage / "outside"):
            os.chown(path, _PLAIN_ID, _PLAIN_ID, follow_symlinks=False)
        cage.chmod(0o711)


def _run(cage: Path, ground: CanaryGround) -> HeldEnd:
    workspace = cage / "workspace"
    plan = canary_plan(os.fspath(workspace), ground, (".env",))
    argv = ("/bin/sh", "-c", _SCRIPT, "canary", os.fspath(cage / "outside"))
    policy = load_policy(None)
    read, write = ReadJudge(policy, _CHAIN), WriteJudge(policy, _CHAIN)
    with held_open(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        workplace = Workplace(
            fd,
            LandlockArea(NameIndex(read).find(fd), read),
            LandlockArea(NameIndex(write).find(fd), write),
        )
        return run_landlocked(CommandRequest(plan, argv, ".", _TIMEOUT_S, _OUTPUT_BYTES), workplace)


def _judge(cage: Path, kept: HeldEnd) -> str:
    end = kept.end
    expect_an_end(end)
    lines = end.stdout.head.decode("utf-8", "replace").splitlines()
    if end.ending is not Ending.EXITED or lines != ["did its work", "end"]:
        return f"a command ended {end.ending.value} and said {lines}"
    workspace = cage / "workspace"
    if (workspace / "open/kept").read_text() != "changed\n":
        return "a command could not write its workspace"
    untouched = [workspace / ".env", workspace / "site.pem", cage / "outside"]
    if any(path.read_text() != "old\n" for path in untouched):
        return "a command wrote what it may not"
    if (cage / "outside.new").exists() or (workspace / "beside.pem").exists():
        return "a command made what it may not"
    return ""


def _explained(symptom: Symptom) -> BackendVerdict:
    told = explain(symptom, read_switches())
    return BackendVerdict(BACKEND, Enforcement.NONE, (), told.cause, told.remedy)


NO_BACKEND: Final = "none"

NOTHING_IS_HELD: Final = (
    "the command is not confined: it can read, write and reach all that this user can",
)

_STRENGTH: Final = {Enforcement.FULL: 2, Enforcement.PARTIAL: 1, Enforcement.NONE: 0}


def choose_backend(verdicts: Sequence[BackendVerdict], enforcement: EnforcementMode) -> Enforced:
    """Return the strongest backend that works here; gaps count only in what results say.

    Threat: a command that breaks the canary, so that the next one runs free. Without a backend
    nothing runs (SandboxUnavailableError), unless the operator's policy says `best-effort`; nor
    while one that may work has failed for the moment.
    """
    for verdict in verdicts:
        # Threat: see `canary.try_stage`.
        if verdict.is_passing:
            said = f"the sandbox failed just now: {verdict.backend}: {verdict.cause}"
            raise SandboxUnavailableError(said, hint=verdict.remedy)
    working = [verdict for verdict in verdicts if verdict.enforcement is not Enforcement.NONE]
    if working:
        best = max(working, key=lambda verdict: _STRENGTH[verdict.enforcement])
        return Enforced(best.backend, best.enforcement, best.gaps)
    if enforcement == "best-effort":
        return Enforced(NO_BACKEND, Enforcement.NONE, NOTHING_IS_HELD)
    raise SandboxUnavailableError(_what_is_missing(verdicts), hint=_what_to_do(verdicts))


def _what_is_missing(verdicts: Sequence[BackendVerdict]) -> str:
    said = "this host cannot hold a command to the policy"
    causes = "; ".join(f"{each.backend}: {each.cause}" for each in verdicts if each.cause)
    return f"{said} ({causes})" if causes else said


def _what_to_do(verdicts: Sequence[BackendVerdict]) -> str:
    remedies = list(dict.fromkeys(each.remedy for each in verdicts if each.remedy))
    ways = " or ".join(remedies[:2])
    look = "paddock doctor tells more"
    return f"{ways}; {look}" if ways else look


Attempt = Callable[[], tuple[BackendVerdict, ...]]


class Backends:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._verdicts: tuple[BackendVerdict, ...] | None = None

    def choose(self, enforcement: EnforcementMode) -> Enforced:
        """Raises: SandboxUnavailableError, with the remedy; or it cannot be found out just now."""
        with self._lock:
            verdicts = self._verdicts or self._attempt()
            if not any(verdict.is_passing for verdict in verdicts):
                self._verdicts = verdicts
            return choose_backend(verdicts, enforcement)


def attempt_here(launcher: Launcher, staging: Path) -> Attempt:
    def attempt() -> tuple[BackendVerdict, ...]:
        ground = system_ground()
        stage = Canary(launcher, staging, ground).verdict()
        if stage.enforcement is Enforcement.FULL or stage.is_passing:
            # Nothing is stronger, or nothing may take its place: the others need not be tried.
            return (stage,)
        return (stage, try_landlock(ground))

    return attempt


_REFUSALS: Final = (errno.ENOSPC, errno.EINVAL, errno.ENOSYS, errno.EPERM)


class HostFinding(Struct, frozen=True):
    name: str
    is_there: bool
    found: str
    remedy: str = ""


def find_rarely_confined(search_path: str, outside: tuple[str, ...]) -> tuple[str, ...]:
    named = {words[0] for pattern in outside if (words := pattern.split())}
    return tuple(
        name
        for name in RARELY_CONFINED
        if name not in named and shutil.which(name, path=search_path) is not None
    )


def offered_outside(names: tuple[str, ...]) -> str:
    return f"outside = {json.dumps([f'{name} *' for name in names])}"


def probe_host() -> list[HostFinding]:
    return [
        HostFinding("python", sys.version_info >= (3, 11), platform.python_version()),
        _kernel(),
        _openat2(),
        _landlock(),
        _seccomp(),
        _user_namespaces(),
        _bubblewrap(),
        _cgroups(),
    ]


def _kernel() -> HostFinding:
    is_linux = sys.platform == "linux"
    remedy = "" if is_linux else "commands can only be confined on Linux; file tools work"
    return HostFinding("kernel", is_linux, f"{platform.system()} {platform.release()}", remedy)


def _openat2() -> HostFinding:
    way = detect_resolution().name
    if way == "openat2":
        return HostFinding("openat2", True, "paths are resolved by the kernel in one call")
    remedy = "none needed: the walk is as safe and a little slower (Linux 5.6 has openat2)"
    return HostFinding("openat2", False, "paths are walked component by component", remedy)


def _landlock() -> HostFinding:
    try:
        abi = landlock_abi()
    except OSError as error:
        return HostFinding("landlock", False, f"refused: {os.strerror(error.errno or 0)}", "")
    if abi:
        return HostFinding("landlock", True, f"ABI {abi}")
    switches = read_switches()
    code = errno.ENOSYS if switches.security_modules is None else errno.EOPNOTSUPP
    told = explain(Symptom(Step.LANDLOCK, code), switches)
    return HostFinding("landlock", False, told.cause, told.remedy)


def _seccomp() -> HostFinding:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return HostFinding("seccomp", False, "/proc is not readable", "mount /proc")
    has = "\nSeccomp:" in status
    return HostFinding("seccomp", has, "filters offered" if has else "not offered")


def _user_namespaces() -> HostFinding:
    """Tried in a child: whether the switches allow it says less than doing it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return HostFinding(
            "user namespaces", False, "not tried: no unshare program", "install util-linux"
        )
    command = [unshare, "--user", "--map-root-user", "true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return HostFinding("user namespaces", False, f"not tried: {type(error).__name__}")
    if done.returncode == 0:
        return HostFinding("user namespaces", True, "can be made")
    said = done.stderr.decode("utf-8", "replace")
    code = next((code for code in _REFUSALS if os.strerror(code) in said), errno.EPERM)
    told = explain(Symptom(Step.USER_NAMESPACE, code), read_switches())
    return HostFinding("user namespaces", False, told.cause, told.remedy)


def _bubblewrap() -> HostFinding:
    path = shutil.which("bwrap")
    if path is None:
        return HostFinding(
            "bubblewrap", False, "not installed", "not needed; your package manager has it"
        )
    return HostFinding("bubblewrap", True, path)


def _cgroups() -> HostFinding:
    root = Path("/sys/fs/cgroup/cgroup.controllers")
    if not root.exists():
        return HostFinding(
            "cgroup v2", False, "not mounted", "memory of a whole tree is watched instead"
        )
    is_ours = os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK)
    found = "writable" if is_ours else "mounted, not delegated to this user"
    return HostFinding(
        "cgroup v2", is_ours, found, "" if is_ours else "memory of a whole tree is watched instead"
    )
