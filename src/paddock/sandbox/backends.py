"""Which backend carries a runtime's commands out: tried once, when the first one comes."""

import threading
from collections.abc import Callable
from pathlib import Path

from paddock.policy.settings import EnforcementMode
from paddock.sandbox.canary import BACKEND as STAGE
from paddock.sandbox.canary import Canary
from paddock.sandbox.choice import NO_BACKEND, choose_backend
from paddock.sandbox.examine import system_ground, try_landlock
from paddock.sandbox.landlock import BACKEND as LANDLOCK
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import Enforced, Enforcement, Verdict

__all__ = ["LANDLOCK", "NO_BACKEND", "STAGE", "Attempt", "Backends", "attempt_here"]

Attempt = Callable[[], tuple[Verdict, ...]]
"""Tries the backends now, the strongest first, as far as is needed to choose one."""


class Backends:
    """The verdicts of one attempt, which is made once. Safe for threads."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._lock = threading.Lock()
        self._verdicts: tuple[Verdict, ...] | None = None

    def choose(self, enforcement: EnforcementMode) -> Enforced:
        """The strongest that works here; see `choice.choose_backend`.

        Raises: SandboxUnavailableError, with the remedy; or it cannot be found out just now.
        """
        with self._lock:
            verdicts = self._verdicts or self._attempt()
            if not any(verdict.is_passing for verdict in verdicts):
                self._verdicts = verdicts
            return choose_backend(verdicts, enforcement)


def attempt_here(launcher: Launcher, staging: Path) -> Attempt:
    """Tries them on this host: each runs a command. `staging` is the launcher's."""

    def attempt() -> tuple[Verdict, ...]:
        ground = system_ground()
        stage = Canary(launcher, staging, ground).verdict()
        if stage.enforcement is Enforcement.FULL or stage.is_passing:
            # Nothing is stronger, or nothing may take its place: the others need not be tried.
            return (stage,)
        return (stage, try_landlock(ground))

    return attempt
