"""Detect whether a client's commands can run in the sandbox here, and if not, why.

A preflight check runs a command in the sandbox; its result is cached for an hour of the same boot.
The cached result permits nothing: the wrapper checks again, and refuses if the sandbox fails.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from paddock.apps.hook.settings.claude import settings_files, truth_at
from paddock.errors import ConfigError, HostError, SandboxUnavailableError
from paddock.plane.clients import read_client_file
from paddock.plane.create import MAIN_AGENT
from paddock.plane.environment import Environment
from paddock.storage.atomic import make_directories, replace_file
from paddock.text.show import show_name
from paddock.values.calls import Json

LIFE_S: Final = 3600
LIFE_OF_NO_S: Final = 300
BOOT: Final = "/proc/sys/kernel/random/boot_id"
STAGING: Final = "staging"
_KEPT_BYTES_MAX: Final = 4096
_TRIAL_S: Final = 60


def why_host_cannot(environment: Environment) -> str:
    path, _ = cache_files(environment)
    kept = _read_cache(path)
    now, boot = time.time(), boot_id()
    if kept is not None and kept.get("boot") == boot and kept.get("user") == os.geteuid():
        found, since = kept.get("why"), kept.get("since")
        if isinstance(found, str) and isinstance(since, int | float):
            life_s = LIFE_OF_NO_S if found else LIFE_S
            if boot and 0 <= now - since < life_s:
                return found
    found = _run_preflight(environment)
    said: dict[str, Json] = {"boot": boot, "user": os.geteuid(), "why": found, "since": now}
    make_directories(path.parent)
    replace_file(path, json.dumps(said).encode("ascii"))
    return found


def cache_files(environment: Environment) -> tuple[Path, Path]:
    folder = environment.paddock_home / "hook"
    return folder / "confines.json", folder / "codex.json"


def forget_host(environment: Environment) -> None:
    cache_files(environment)[0].unlink(missing_ok=True)


def boot_id() -> str:
    try:
        with open(BOOT, encoding="ascii") as file:
            return file.read(_KEPT_BYTES_MAX).strip()
    except OSError:
        return ""


def _run_preflight(environment: Environment) -> str:
    # Imported here: a hook that reads the cached result does not load the sandbox.
    from paddock.sandbox.backends import Backends, attempt_here  # noqa: PLC0415 - see above
    from paddock.sandbox.launcher import Launcher  # noqa: PLC0415 - see above
    from paddock.sandbox.values import Enforcement  # noqa: PLC0415 - see above

    staging = environment.paddock_home / STAGING
    try:
        with Launcher(staging) as launcher:
            enforced = Backends(attempt_here(launcher, staging)).choose("required")
    except (SandboxUnavailableError, HostError) as error:
        return error.message
    if enforced.enforcement is not Enforcement.FULL:
        return f"the sandbox of this host ({enforced.backend}) confines commands only in part"
    return ""


def why_client_cannot(
    client: str, root: Path, environment: Environment, variables: Mapping[str, str]
) -> str:
    if client == "codex":
        tried = _read_cache(cache_files(environment)[1])
        if tried is not None and tried.get("why") == "":
            return ""
        why = tried.get("why") if tried is not None else "paddock hook install has not tested it"
        return f"Codex runs commands in its own sandbox: {why}"
    on = "sandbox.enabled is true in {}: Claude Code runs commands in its own sandbox"
    files = settings_files(root, environment.home, variables)
    names = ("sandbox", "enabled")
    return why_switched(files, names, "turns on a sandbox", on, follows=True)


def why_switched(
    files: Sequence[Path], names: tuple[str, ...], does: str, on: str, *, follows: bool
) -> str:
    """Say why a Claude Code switch is or may be on. `follows`: follow a project's symlinks."""
    for path in files:
        try:
            file = read_client_file(path, follows=follows or path == files[-1])
            is_on = None if file.content is None else truth_at(file.text, str(path), names)
        except (ConfigError, HostError) as error:
            return f"cannot determine whether {path} {does}: {error.message}"
        if is_on is not None:
            return on.format(path) if is_on else ""
    return ""


def try_in_codex(root: Path, program: Sequence[str], variables: Mapping[str, str]) -> str:
    """Run the wrapper as Codex would; return why it does not work, or an empty text."""
    codex = shutil.which("codex", path=variables.get("PATH", ""))
    if codex is None:
        return "codex was not found on PATH"
    line = [codex, "sandbox", "--", *program, "--plane", str(root), "--agent", MAIN_AGENT]
    try:
        done = subprocess.run(
            [*line, "--", "true"],
            cwd=root,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"the test could not run: {type(error).__name__}"
    if done.returncode == 0:
        return ""
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    said = f": {show_name(last[0])}" if last else ""
    return f"the wrapper failed in a test there (status {done.returncode}{said})"


def save_trial(environment: Environment, why: str) -> None:
    _, path = cache_files(environment)
    make_directories(path.parent)
    replace_file(path, json.dumps({"why": why, "program": sys.executable}).encode("ascii"))


def _read_cache(path: Path) -> dict[str, Json] | None:
    try:
        with path.open("rb") as file:
            found = cast("object", json.loads(file.read(_KEPT_BYTES_MAX)))
    except (OSError, ValueError):
        return None
    return cast("dict[str, Json]", found) if isinstance(found, dict) else None
