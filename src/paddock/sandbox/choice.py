"""Which backend carries a command out: the strongest that works here, or a refusal. Pure."""

from collections.abc import Sequence
from typing import Final

from paddock.errors import SandboxUnavailableError
from paddock.policy.settings import EnforcementMode
from paddock.sandbox.values import Enforced, Enforcement, Verdict

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
