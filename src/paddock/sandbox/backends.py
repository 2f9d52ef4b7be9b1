"""Which backend carries commands out: the strongest that works here, tried once, or a refusal."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from paddock.errors import SandboxUnavailableError
from paddock.policy.settings import EnforcementMode
from paddock.sandbox.canary import BACKEND as STAGE
from paddock.sandbox.canary import Canary
from paddock.sandbox.examine import system_ground, try_landlock
from paddock.sandbox.landlock import BACKEND as LANDLOCK
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.values import Enforced, Enforcement, Verdict

__all__ = ["LANDLOCK", "NO_BACKEND", "STAGE", "Attempt", "Backends", "attempt_here"]


NO_BACKEND: Final = "none"
"""The backend's name in a result where nothing confines the command."""

NOTHING_IS_HELD: Final = (
    "the command is not confined: it can read, write and reach all that this user can",
)

_STRENGTH: Final = {Enforcement.FULL: 2, Enforcement.PARTIAL: 1, Enforcement.NONE: 0}


def choose_backend(verdicts: Sequence[Verdict], enforcement: EnforcementMode) -> Enforced:
    """The strongest backend that works here; the first among equals.

    A backend with gaps counts under `required` too: it says its gaps in each result.
    Only where none works at all do the two differ: `required` refuses, `best-effort`
    runs the command unconfined and says so.

    Threat: a command that breaks the canary, so that the next one runs free. Without
    a backend nothing runs, unless the operator's own policy says `best-effort`.

    Raises:
        SandboxUnavailableError: no backend works, and the policy requires one; or one that
            may work has failed for the moment.
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


def _what_is_missing(verdicts: Sequence[Verdict]) -> str:
    said = "this host cannot hold a command to the policy"
    causes = "; ".join(f"{each.backend}: {each.cause}" for each in verdicts if each.cause)
    return f"{said} ({causes})" if causes else said


def _what_to_do(verdicts: Sequence[Verdict]) -> str:
    remedies = list(dict.fromkeys(each.remedy for each in verdicts if each.remedy))
    ways = " or ".join(remedies[:2])
    look = "paddock doctor tells more"
    return f"{ways}; {look}" if ways else look


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
