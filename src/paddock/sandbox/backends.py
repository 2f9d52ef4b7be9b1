"""Which backend carries a runtime's commands out: tried once, when the first one comes."""

import threading
from pathlib import Path

from paddock.policy.settings import Enforcement
from paddock.sandbox.canary import BACKEND as STAGE
from paddock.sandbox.canary import Canary, Ground
from paddock.sandbox.choice import NO_BACKEND, choose_backend
from paddock.sandbox.examine import system_ground, try_landlock
from paddock.sandbox.landlock import BACKEND as LANDLOCK
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import Enforced, Held, Verdict

__all__ = ["LANDLOCK", "NO_BACKEND", "STAGE", "Backends"]


class Backends:
    """The verdicts on this host's backends, each found once. Safe for threads."""

    def __init__(self, launcher: Launcher, staging: Path, ground: Ground | None = None) -> None:
        """`ground`: what the canary's command may read, by default the system directories."""
        self._launcher = launcher
        self._staging = staging
        self._ground = ground
        self._lock = threading.Lock()
        self._verdicts: tuple[Verdict, ...] | None = None

    def choose(self, enforcement: Enforcement) -> Enforced:
        """The strongest that works here; see `choice.choose_backend`.

        Raises: SandboxUnavailableError, with the remedy; or it cannot be found out just now.
        """
        with self._lock:
            verdicts = self._verdicts or self._try()
            if not any(verdict.is_passing for verdict in verdicts):
                self._verdicts = verdicts
            return choose_backend(verdicts, enforcement)

    def _try(self) -> tuple[Verdict, ...]:
        ground = self._ground or system_ground()
        stage = Canary(self._launcher, self._staging, ground).verdict()
        if stage.enforcement is Held.FULL or stage.is_passing:
            # Nothing is stronger, or nothing may take its place: the others need not be tried.
            return (stage,)
        return (stage, try_landlock(ground))
