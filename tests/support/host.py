"""What this host can show: one probe for each name of the `needs` marker.

A probe tries the thing itself; a version number or a file's presence proves
little inside containers.
"""

import ctypes
import errno
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Final

NEEDS_ROOT: Final = "runs as root only"
NEEDS_PLAIN_USER: Final = "runs as a plain user only"
NEEDS_IMAGE: Final = "needs a file system in an image"
IDENTITY_REASONS: Final = ("runs as root", "runs as a plain user", NEEDS_IMAGE)
"""What a skip's reason begins with that stays a skip in CI: the other run shows it, or no
installation gives it, as a loop device that a container's host does not lend."""


def _root() -> str | None:
    return None if os.geteuid() == 0 else NEEDS_ROOT


def _plain_user() -> str | None:
    return NEEDS_PLAIN_USER if os.geteuid() == 0 else None


def _linux() -> str | None:
    return None if sys.platform == "linux" else "needs Linux"


def _openat2() -> str | None:
    if sys.platform != "linux":
        return "needs openat2(2), which only Linux has"
    # Number 437 on every architecture (it came after they were unified); a
    # size of 0 is EINVAL where the call exists and ENOSYS or EPERM where not.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(437, -100, b".", None, 0)
    found = ctypes.get_errno()
    return None if found == errno.EINVAL else f"needs openat2(2): {os.strerror(found)}"


def _user_namespaces() -> str | None:
    unshare = shutil.which("unshare")
    if unshare is None:
        return "needs user namespaces: no unshare(1) to try them with"
    tried = subprocess.run(
        [unshare, "--user", "--map-root-user", "true"], capture_output=True, text=True, check=False
    )
    return None if tried.returncode == 0 else f"needs user namespaces: {tried.stderr.strip()}"


def _landlock() -> str | None:
    if sys.platform != "linux":
        return "needs landlock(7), which only Linux has"
    # Number 444 on every architecture; flag 1 asks for the version, with null and 0.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(444, None, 0, 1) > 0:
        return None
    return f"needs landlock(7): {os.strerror(ctypes.get_errno())}"


def _stage() -> str | None:
    """Tried as the product tries it: a command in a sandbox, and what it could do."""
    from paddock.sandbox.canary import SystemPaths, try_stage
    from paddock.sandbox.launcher import Launcher
    from tests.support.sandboxes import system_places

    with tempfile.TemporaryDirectory() as staging, Launcher(Path(staging)) as launcher:
        ground = SystemPaths(*system_places())
        verdict = try_stage(launcher, Path(staging), ground)
        for _ in range(5):
            # A busy machine is not one that lacks something.
            verdict = try_stage(launcher, Path(staging), ground) if verdict.is_passing else verdict
    return None if not verdict.cause else f"needs sandboxes: {verdict.cause}; {verdict.remedy}"


def _loop_device() -> str | None:
    """A file system in an image, made and mounted."""
    with tempfile.TemporaryDirectory() as folder:
        image, mounted = f"{folder}/image", f"{folder}/mounted"
        os.mkdir(mounted)
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        mounting = ["mount", "-o", "loop", image, mounted]
        for command in (["mkfs.ext4", "-q", image], mounting, ["umount", mounted]):
            try:
                subprocess.run(command, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as fault:
                return f"{NEEDS_IMAGE}: {fault}"
    return None


def _postgresql() -> str | None:
    from tests.support.postgres import missing

    return missing()


def _program(name: str) -> Callable[[], str | None]:
    def probe() -> str | None:
        return None if shutil.which(name) else f"needs the program {name}"

    return probe


def clients_folder() -> Path:
    """Where the real clients were installed: `npm ci --prefix tests/clients`."""
    named = os.environ.get("PADDOCK_CLIENTS")
    folder = Path(named) if named else Path(__file__).parents[1] / "clients"
    return folder / "node_modules" / ".bin"


def _client(name: str) -> Callable[[], str | None]:
    def probe() -> str | None:
        if (clients_folder() / name).exists():
            return None
        return f"needs the real client {name}: npm ci --prefix tests/clients"

    return probe


AXE: Final = Path(__file__).parents[1] / "web_pages/node_modules/axe-core/axe.min.js"


def _axe() -> str | None:
    return None if AXE.exists() else "needs axe-core: npm ci --prefix tests/web_pages"


PROBES: Final = MappingProxyType(
    {
        "root": _root,
        "plain_user": _plain_user,
        "linux": _linux,
        "openat2": _openat2,
        "user_namespaces": _user_namespaces,
        "stage": _stage,
        "landlock": _landlock,
        "loop_device": _loop_device,
        "bash": _program("bash"),
        "zsh": _program("zsh"),
        "git": _program("git"),
        "git-lfs": _program("git-lfs"),
        "make": _program("make"),
        "bwrap": _program("bwrap"),
        "curl": _program("curl"),
        "vim": _program("vim"),
        "node": _program("node"),
        "npm": _program("npm"),
        "chromium": _program("chromium"),
        "axe": _axe,
        "java": _program("java"),
        "sshd": _program("/usr/sbin/sshd"),
        "postgresql": _postgresql,
        "claude": _client("claude"),
        "codex": _client("codex"),
    }
)


@functools.cache
def missing(what: str) -> str | None:
    """Why this host cannot show `what`; None where it can."""
    return PROBES[what]()
