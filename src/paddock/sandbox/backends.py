"""Choose the backend that runs commands: the strongest that works here, or a refusal."""

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import SandboxUnavailableError
from paddock.kernel.landlock import landlock_abi
from paddock.policy.presets import RARELY_CONFINED
from paddock.policy.settings import EnforcementMode
from paddock.sandbox.canary import (
    STAGE,
    Step,
    Symptom,
    explain,
    explain_no_landlock,
    find_system_paths,
    read_switches,
    refused,
    try_landlock,
    try_stage,
    try_workspace,
)
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import BackendVerdict, Enforced, Enforcement
from paddock.storage.atomic import held_open
from paddock.workspace import detect_resolution


def examine_host(staging: Path) -> tuple[BackendVerdict, ...]:
    """Try every backend, strongest first; takes some tenths of a second; creates `staging`."""
    paths = find_system_paths()
    with Launcher(staging) as launcher:
        return (try_stage(launcher, staging, paths), try_landlock(paths))


def examine_workspace(staging: Path, workspace: str) -> BackendVerdict:
    try:
        fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        message = f"{workspace} cannot be opened: {os.strerror(error.errno or 0)}"
        return refused(STAGE, message, "a workspace is a directory")
    with held_open(fd), Launcher(staging) as launcher:
        return try_workspace(launcher, workspace, fd, find_system_paths())


NO_BACKEND: Final = "none"

UNCONFINED_GAPS: Final = (
    "the command is not confined: it can read, write and reach all that this user can",
)

_STRENGTH: Final = {Enforcement.FULL: 2, Enforcement.PARTIAL: 1, Enforcement.NONE: 0}


def choose_backend(verdicts: Sequence[BackendVerdict], enforcement: EnforcementMode) -> Enforced:
    """Return the strongest backend that works here; its gaps are only reported.

    Threat: a command that breaks the canary, so that the next one runs unconfined. Without a
    backend nothing runs (SandboxUnavailableError), unless the operator's policy says
    `best-effort`. A temporary failure of one backend also refuses the command.
    """
    for verdict in verdicts:
        # Threat: see `canary.try_stage`.
        if verdict.is_passing:
            message = f"the sandbox failed just now: {verdict.backend}: {verdict.cause}"
            raise SandboxUnavailableError(message, hint=verdict.remedy)
    working = [verdict for verdict in verdicts if verdict.enforcement is not Enforcement.NONE]
    if working:
        best = max(working, key=lambda verdict: _STRENGTH[verdict.enforcement])
        return Enforced(best.backend, best.enforcement, best.gaps)
    if enforcement == "best-effort":
        return Enforced(NO_BACKEND, Enforcement.NONE, UNCONFINED_GAPS)
    causes = "; ".join(f"{each.backend}: {each.cause}" for each in verdicts if each.cause)
    message = "this host cannot enforce the policy on a command"
    remedies = list(dict.fromkeys(each.remedy for each in verdicts if each.remedy))
    ways, look = " or ".join(remedies[:2]), "run paddock doctor for details"
    raise SandboxUnavailableError(
        f"{message} ({causes})" if causes else message, hint=f"{ways}; {look}" if ways else look
    )


Attempt = Callable[[], tuple[BackendVerdict, ...]]


class Backends:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._verdicts: tuple[BackendVerdict, ...] | None = None

    def choose(self, enforcement: EnforcementMode) -> Enforced:
        """Raises: SandboxUnavailableError: no backend works, or one failed temporarily."""
        with self._lock:
            verdicts = self._verdicts or self._attempt()
            if not any(verdict.is_passing for verdict in verdicts):
                self._verdicts = verdicts
            return choose_backend(verdicts, enforcement)


def attempt_here(launcher: Launcher, staging: Path) -> Attempt:
    def attempt() -> tuple[BackendVerdict, ...]:
        paths = find_system_paths()
        stage = try_stage(launcher, staging, paths)
        if stage.enforcement is Enforcement.FULL or stage.is_passing:
            # No backend is stronger, or none may replace it: do not try the others.
            return (stage,)
        return (stage, try_landlock(paths))

    return attempt


_REFUSALS: Final = (errno.ENOSPC, errno.EINVAL, errno.ENOSYS, errno.EPERM)


class HostFinding(Struct, frozen=True, rename={"is_there": "ok"}):
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
    is_linux, bwrap = sys.platform == "linux", shutil.which("bwrap")
    other = "" if is_linux else "commands can only be confined on Linux; file tools work"
    get = "" if bwrap else "not needed; your package manager has it"
    return [
        HostFinding("python", sys.version_info >= (3, 11), platform.python_version()),
        HostFinding("kernel", is_linux, f"{platform.system()} {platform.release()}", other),
        _openat2(),
        _landlock(),
        _seccomp(),
        _user_namespaces(),
        HostFinding("bubblewrap", bwrap is not None, bwrap or "not installed", get),
        _cgroups(),
    ]


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
    return HostFinding("landlock", False, *explain_no_landlock())


def _seccomp() -> HostFinding:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return HostFinding("seccomp", False, "/proc is not readable", "mount /proc")
    has = "\nSeccomp:" in status
    return HostFinding("seccomp", has, "filters offered" if has else "not offered")


def _user_namespaces() -> HostFinding:
    # Tried in a child process: the sysctl switches alone do not prove that it works.
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
        return HostFinding("user namespaces", True, "can be created")
    errors = done.stderr.decode("utf-8", "replace")
    code = next((code for code in _REFUSALS if os.strerror(code) in errors), errno.EPERM)
    explanation = explain(Symptom(Step.USER_NAMESPACE, code), read_switches())
    return HostFinding("user namespaces", False, *explanation)


def _cgroups() -> HostFinding:
    is_there = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    if is_there and os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK):
        return HostFinding("cgroup v2", True, "writable")
    found = "mounted, not delegated to this user" if is_there else "not mounted"
    return HostFinding("cgroup v2", False, found, "memory of a whole tree is watched instead")
