"""What this host offers, found by trying and not by version strings."""

import errno
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.kernel.landlock import landlock_abi
from paddock.policy.presets import RARELY_CONFINED
from paddock.sandbox.canary import read_switches
from paddock.sandbox.remedies import Step, Symptom, explain
from paddock.workspace import detect_resolution

_REFUSALS: Final = (errno.ENOSPC, errno.EINVAL, errno.ENOSYS, errno.EPERM)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the host has or lacks, what follows, and the remedy."""

    name: str
    is_there: bool
    found: str
    remedy: str = ""


def find_rarely_confined(search_path: str, outside: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of this host that `outside` leaves to nobody yet.

    `search_path` is PATH, `outside` the patterns of `[hook]`.
    """
    named = {words[0] for pattern in outside if (words := pattern.split())}
    return tuple(
        name
        for name in RARELY_CONFINED
        if name not in named and shutil.which(name, path=search_path) is not None
    )


def offered_outside(names: tuple[str, ...]) -> str:
    """The line of policy that leaves these programs to a client."""
    return f"outside = {json.dumps([f'{name} *' for name in names])}"


def probe_host() -> list[Finding]:
    """Everything that `paddock doctor` tells. Starts at most two short commands."""
    return [
        _python(),
        _kernel(),
        _openat2(),
        _landlock(),
        _seccomp(),
        _user_namespaces(),
        _bubblewrap(),
        _cgroups(),
    ]


def _python() -> Finding:
    return Finding("python", sys.version_info >= (3, 11), platform.python_version())


def _kernel() -> Finding:
    is_linux = sys.platform == "linux"
    remedy = "" if is_linux else "commands can only be confined on Linux; file tools work"
    return Finding("kernel", is_linux, f"{platform.system()} {platform.release()}", remedy)


def _openat2() -> Finding:
    way = detect_resolution().name
    if way == "openat2":
        return Finding("openat2", True, "paths are resolved by the kernel in one call")
    remedy = "none needed: the walk is as safe and a little slower (Linux 5.6 has openat2)"
    return Finding("openat2", False, "paths are walked component by component", remedy)


def _landlock() -> Finding:
    try:
        abi = landlock_abi()
    except OSError as error:
        return Finding("landlock", False, f"refused: {os.strerror(error.errno or 0)}", "")
    if abi:
        return Finding("landlock", True, f"ABI {abi}")
    switches = read_switches()
    code = errno.ENOSYS if switches.security_modules is None else errno.EOPNOTSUPP
    told = explain(Symptom(Step.LANDLOCK, code), switches)
    return Finding("landlock", False, told.cause, told.remedy)


def _seccomp() -> Finding:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return Finding("seccomp", False, "/proc is not readable", "mount /proc")
    has = "\nSeccomp:" in status
    return Finding("seccomp", has, "filters offered" if has else "not offered")


def _user_namespaces() -> Finding:
    """Tried in a child: whether the switches allow it says less than doing it."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return Finding(
            "user namespaces", False, "not tried: no unshare program", "install util-linux"
        )
    command = [unshare, "--user", "--map-root-user", "true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("user namespaces", False, f"not tried: {type(error).__name__}")
    if done.returncode == 0:
        return Finding("user namespaces", True, "can be made")
    said = done.stderr.decode("utf-8", "replace")
    code = next((code for code in _REFUSALS if os.strerror(code) in said), errno.EPERM)
    told = explain(Symptom(Step.USER_NAMESPACE, code), read_switches())
    return Finding("user namespaces", False, told.cause, told.remedy)


def _bubblewrap() -> Finding:
    path = shutil.which("bwrap")
    if path is None:
        return Finding(
            "bubblewrap", False, "not installed", "not needed; your package manager has it"
        )
    return Finding("bubblewrap", True, path)


def _cgroups() -> Finding:
    root = Path("/sys/fs/cgroup/cgroup.controllers")
    if not root.exists():
        return Finding(
            "cgroup v2", False, "not mounted", "memory of a whole tree is watched instead"
        )
    is_ours = os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK)
    found = "writable" if is_ours else "mounted, not delegated to this user"
    return Finding(
        "cgroup v2", is_ours, found, "" if is_ours else "memory of a whole tree is watched instead"
    )
