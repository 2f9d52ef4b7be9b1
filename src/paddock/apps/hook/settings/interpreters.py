"""Which Python an installed hook starts: the one of this machine that starts the quickest.

Builds differ by a fifth. The distribution's Python of the same version may take the lean path;
what that leaves undecided goes on in the environment's own.
"""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from paddock.apps.hook.settings.claude import Program
from paddock.errors import HostError

_DISTRIBUTION: Final = "/usr/bin/python3"
_ASKED: Final = "import sys, marshal, _json; print(sys.implementation.cache_tag)"
_IGNORED: Final = b'{"hook_event_name": "Notification", "session_id": "", "cwd": "/"}'
"""An event that loads all of the lean path, and has no effect and no answer."""
_ROUNDS: Final = 11
_WORTH_IT: Final = 0.95
"""Another one is named only where its start takes less than so much of our own's."""
_TIMEOUT_S: Final = 10
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def own_program() -> Program:
    """Raises: HostError: the interpreter does not know where it is."""
    if not sys.executable:
        raise HostError("this interpreter does not say where it is", hint="install Paddock anew")
    return Program(sys.executable, str(Path(__file__).parents[1] / "launch.py"))


def find_programs(distribution: str = _DISTRIBUTION) -> tuple[Program, ...]:
    """Return our own interpreter, and another that an entry may start. Raises: HostError."""
    own = own_program()
    if not _is_another(distribution, own.python) or not hasattr(os, "memfd_create"):
        return (own,)
    return (own, Program(distribution, own.launcher, own.python))


def choose_program(programs: Sequence[Program]) -> Program:
    own, *others = programs
    if not others:
        return own
    best = {program: float("inf") for program in programs}
    for _ in range(_ROUNDS):
        for program in programs:
            best[program] = min(best[program], _time_start(program))
    quickest = min(others, key=best.__getitem__)
    return quickest if best[quickest] < _WORTH_IT * best[own] else own


def _is_another(path: str, own: str) -> bool:
    """Require a Python of our version that nobody but root can change."""
    real = os.path.realpath(path)  # noqa: TID251 - the host's own program, outside any workspace
    if real == os.path.realpath(own):  # noqa: TID251 - the same, of this installation
        return False
    # Threat: whoever can change the program that decides decides.
    try:
        places = [os.stat(place) for place in (real, *map(str, Path(real).parents))]
    except OSError:
        return False
    if any(each.st_uid != 0 or each.st_mode & _OTHERS_WRITE for each in places):
        return False
    return _ask(path) == sys.implementation.cache_tag


def _ask(python: str) -> str | None:
    try:
        said = subprocess.run(
            [python, "-I", "-S", "-c", _ASKED],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
            env={},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.decode("ascii", "replace").strip()


def _time_start(program: Program) -> float:
    # Without a time-out, which is waited for in steps of milliseconds; the hook has its own.
    started = time.perf_counter()
    try:
        subprocess.run(
            [program.python, *program.arguments("claude")],
            input=_IGNORED,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            env={},
        )
    except (OSError, subprocess.SubprocessError):
        return float("inf")
    return time.perf_counter() - started
