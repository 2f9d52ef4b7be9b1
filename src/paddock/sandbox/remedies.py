"""Why a backend does not start on this host, and what an operator does about it. Pure.

Rules only explain what was tried; a wrong one can mislead, never open anything. Sources:
user_namespaces(7), landlock(7), seccomp(2), overlayfs (userxattr), AppArmor's documentation.
"""

import errno
from enum import Enum
from typing import Final

from msgspec import Struct


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
    """Started by root, there are ids for users who are nobody else's: see `stages`."""
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
            _failed(symptom), "a kernel with CONFIG_SECCOMP_FILTER, and no filter that forbids it"
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
    return RemedyExplanation(_failed(symptom), "allow this user to make user namespaces")


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
    return RemedyExplanation(_failed(symptom), "a kernel with Landlock (Linux 5.13)")


def _mount(symptom: Symptom) -> RemedyExplanation:
    if symptom.step is Step.IDENTITY_MAP:
        return RemedyExplanation(
            _failed(symptom),
            "start paddock as the user who owns the workspace, or put the workspace on a file"
            " system with identity-mapped mounts (ext4, xfs, btrfs; Linux 5.12)",
        )
    if symptom.code in (*_REFUSED, errno.ENODEV, *_MISSING, errno.ELOOP):
        return RemedyExplanation(
            f"{_failed(symptom)}: an old kernel, or a workspace on an overlay itself",
            "put the workspace on a volume or another file system (in a container: a bind mount),"
            " with Linux 5.11 or newer",
        )
    return RemedyExplanation(_failed(symptom), "put the workspace on a local file system")


def _failed(symptom: Symptom) -> str:
    name = errno.errorcode.get(symptom.code, str(symptom.code)) if symptom.code else ""
    told = " ".join(part for part in (symptom.detail, name) if part)
    return f"{symptom.step.value} cannot be had" + (f" ({told})" if told else "")
