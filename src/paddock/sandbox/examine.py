"""Which backends work on this host: each tried by running a command in it and looking."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Final

from paddock.errors import HostError, PaddockError
from paddock.kernel.landlock import landlock_abi
from paddock.policy.engine import load_policy
from paddock.policy.settings import SYSTEM_READ
from paddock.sandbox.canary import BACKEND as STAGE
from paddock.sandbox.canary import (
    Ground,
    canary_plan,
    expect_an_end,
    failed_now,
    is_passing,
    read_switches,
    try_stage,
    try_workspace,
)
from paddock.sandbox.claims import claimed
from paddock.sandbox.closing import ReadJudge, WriteJudge
from paddock.sandbox.conversation import ConfinementError
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.host.places import is_covered, topmost
from paddock.sandbox.host.standing import Resolver
from paddock.sandbox.landlock import BACKEND, Area, HeldEnd, Workplace, run_landlocked
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.remedies import Step, Symptom, explain
from paddock.sandbox.values import CommandRequest, Ending, Enforcement, Verdict
from paddock.values.agents import Agent
from paddock.workspace.resolve import held_open

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


def examine_host(staging: Path) -> tuple[Verdict, ...]:
    """Every backend, the strongest first. Takes some tenths of a second.

    `staging` is where the layers of commands are to lie; it is made if missing.
    """
    ground = system_ground()
    try:
        with Launcher(staging) as launcher:
            stage = try_stage(launcher, staging, ground)
    except OSError as error:
        stage = Verdict(
            STAGE, Enforcement.NONE, (), f"it cannot be tried: {os.strerror(error.errno or 0)}"
        )
    return (stage, try_landlock(ground))


def examine_workspace(staging: Path, workspace: str) -> Verdict:
    """Whether the backend `stage` works on this very workspace; nothing is done in it.

    It may lie on another file system than `staging`, where `examine_host` tries it: in a
    container, on an overlay.
    """
    try:
        fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        said = f"{workspace} cannot be opened: {os.strerror(error.errno or 0)}"
        return Verdict(STAGE, Enforcement.NONE, (), said, "a workspace is a directory")
    try:
        with Launcher(staging) as launcher:
            return try_workspace(launcher, workspace, fd, system_ground())
    except OSError as error:
        return Verdict(
            STAGE, Enforcement.NONE, (), f"it cannot be tried: {os.strerror(error.errno or 0)}"
        )
    finally:
        os.close(fd)


def system_ground() -> Ground:
    """The system directories of this host, and the links that lead to them."""
    resolver = Resolver()
    found = [standing for path in SYSTEM_READ if (standing := resolver.find(path)) is not None]
    readable = topmost(standing.real for standing in found)
    links = {link for standing in found for link in standing.links}
    return Ground(
        readable, tuple(sorted(link for link in links if not is_covered(link[0], readable)))
    )


def try_landlock(ground: Ground) -> Verdict:
    """Run a command under Landlock now. Never raises for what a host lacks."""
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
        return Verdict(BACKEND, Enforcement.NONE, (), error.message, error.hint)
    except OSError as error:
        if is_passing(error.errno or 0, ""):
            return failed_now(BACKEND, HostError(f"no place to try it in: {error.strerror}"))
        return _explained(Symptom(Step.LANDLOCK, error.errno or 0, error.strerror or ""))


def _why_not() -> int:
    modules = read_switches().security_modules
    return errno.ENOSYS if modules is None else errno.EOPNOTSUPP


def _try_in_a_workspace(ground: Ground) -> Verdict:
    with claimed(Path(tempfile.gettempdir()), "paddock-canary-") as cage:
        _furnish(cage)
        kept = _run(cage, ground)
        said = _judge(cage, kept)
    if said:
        return Verdict(
            BACKEND,
            Enforcement.NONE,
            (),
            f"it does not hold: {said}",
            "please report this, with your kernel's version",
        )
    as_root = (_AS_ROOT,) if os.geteuid() == 0 else ()
    return Verdict(BACKEND, Enforcement.PARTIAL, (*as_root, *kept.enforced.gaps))


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


def _run(cage: Path, ground: Ground) -> HeldEnd:
    workspace = cage / "workspace"
    plan = canary_plan(os.fspath(workspace), ground, (".env",))
    argv = ("/bin/sh", "-c", _SCRIPT, "canary", os.fspath(cage / "outside"))
    policy = load_policy(None)
    read, write = ReadJudge(policy, _CHAIN), WriteJudge(policy, _CHAIN)
    with held_open(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        workplace = Workplace(
            fd, Area(NameIndex(read).find(fd), read), Area(NameIndex(write).find(fd), write)
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


def _explained(symptom: Symptom) -> Verdict:
    told = explain(symptom, read_switches())
    return Verdict(BACKEND, Enforcement.NONE, (), told.cause, told.remedy)
