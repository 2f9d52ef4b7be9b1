"""The answer to an `ask`, bound to a digest of exactly what will run."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, cast

from msgspec import Struct, field

from paddock import limits
from paddock.errors import ApprovalRefusedError, ApprovalUnavailableError, IntegrityError
from paddock.text.show import cut, show_unseen
from paddock.tools.spec import SCHEMA_VERSION
from paddock.values.calls import NEVER, Cancel, Json
from paddock.values.entries import digest_of_json


class Parking(Protocol):
    def park(self, name: str) -> Json:
        """Return the effect as data that outlives the call; keep its contents under `name`."""
        ...


class ApprovalRequest(Struct, frozen=True):
    """The question as the approver sees it. `digest` identifies exactly this call."""

    digest: str
    tool: str
    arguments: Mapping[str, Json]
    actions: tuple[str, ...]
    agent: str
    reason: str
    rule: str
    """Text and place of the rule that asks."""
    policy_digest: str = ""
    target_digest: str = ""
    """Digest of the entry at the target, or `absent`; of the changes, if they are in question."""
    call_id: str = ""
    session_id: str = ""
    filled: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Arguments with another value than was given, and the defaults of those not given."""
    warnings: tuple[str, ...] = ()
    """Warnings from policy, or about the effect. They change no outcome."""
    diff: str = ""
    """The difference that the call would make, if that is in question."""
    parking: Parking | None = None
    """The effect held back for that question, kept if no approver can answer now."""
    can_wait: bool = True
    """False for a connection, which is held open: no later answer counts."""
    cancel: Cancel = NEVER
    """Cancelled once the caller no longer waits for the answer."""


class Approval(Struct, frozen=True):
    """The answer. `by` names its source, for the ledger; `code` is the error code of a refusal."""

    is_granted: bool
    by: str
    code: str = ApprovalRefusedError.code
    note: str = ""
    request_id: str = ""
    """The request kept in the inbox, or the one whose grant was used up."""
    changes_digest: str = ""
    """Digest of the changes kept with the request."""
    hint: str = ""
    """The hint of a refusal, in place of the usual hint of its code."""
    is_deferred: bool = False
    """No answer yet: the program puts the question to a person, then calls again."""


class Approver(Protocol):
    """Answers a request: once, for its digest, within the time limit."""

    def answer(self, request: ApprovalRequest) -> Approval:
        """Grant or refuse; anything unclear is a refusal."""
        ...


def unavailable(by: str, note: str, hint: str = "") -> Approval:
    return Approval(False, by, ApprovalUnavailableError.code, note, hint=hint)


class NoApprover:
    def answer(self, request: ApprovalRequest) -> Approval:
        del request
        return unavailable("nobody", "there is no approver")


class YesApprover(Struct, frozen=True):
    by: str

    def answer(self, request: ApprovalRequest) -> Approval:
        del request
        return Approval(True, self.by)


class CallbackApprover(Struct, frozen=True):
    """Asks the program's function in a thread: `True` is yes; a timeout is a refusal."""

    ask: Callable[[ApprovalRequest], bool]
    timeout_s: float = limits.approval_timeout_s

    def answer(self, request: ApprovalRequest) -> Approval:
        said, problem = _in_time(partial(self.ask, request), self.timeout_s)
        if problem is None and type(said) is not bool:
            unclear = "the approver gave no clear answer: True is yes, False is no"
            problem = unavailable("callback", unclear, f"{_MEND} True or False")
        return problem or Approval(bool(said), "callback")


class Limited(Struct, frozen=True):
    approver: Approver
    timeout_s: float

    def answer(self, request: ApprovalRequest) -> Approval:
        said, problem = _in_time(partial(answer_of, self.approver, request), self.timeout_s)
        return problem or cast("Approval", said)


_MEND: Final = "a person has to mend the program's approver: it must return"


def _raised(by: str, error: Exception, answer: str) -> Approval:
    hint = f"{_MEND} {answer}, and not raise"
    return unavailable(by, f"the approver raised {type(error).__name__}", hint)


def _in_time(ask: Callable[[], object], timeout_s: float) -> tuple[object, Approval | None]:
    said: list[object] = []
    problems: list[Approval] = []

    def run() -> None:
        try:
            said.append(ask())
        except Exception as error:  # The embedding program's code: any exception is a refusal.
            problems.append(_raised("callback", error, "True or False"))

    asking = threading.Thread(target=run, name="paddock-approval", daemon=True)
    asking.start()
    asking.join(timeout_s)
    if asking.is_alive():
        return None, unavailable("callback", f"no answer within {timeout_s:g} s")
    return (said[0], None) if said else (None, problems[0])


def answer_of(approver: Approver, request: ApprovalRequest) -> Approval:
    try:
        said = cast("object", approver.answer(request))
    except IntegrityError:
        raise
    except Exception as error:  # The embedding program's code: any exception is a refusal.
        return _raised("approver", error, "an Approval")
    if not isinstance(said, Approval) or type(said.is_granted) is not bool:
        hint = f"{_MEND} an Approval whose is_granted is True or False"
        return unavailable("approver", "the approver gave no clear answer", hint)
    return said


def filled_in(given: Mapping[str, Json], bound: Mapping[str, Json]) -> dict[str, Json]:
    return {
        name: value
        for name, value in bound.items()
        if name not in given or type(given[name]) is not type(value) or given[name] != value
    }


def shown_digest(request: ApprovalRequest) -> str:
    shown = [request.reason, request.rule, list(request.warnings), request.diff]
    return digest_of_json([*shown, dict(request.filled)])


def approval_digest(
    *,
    tool: str,
    arguments: Mapping[str, Json],
    agents: Sequence[Json],
    policy_digest: str,
    target_digest: str,
    actions: Sequence[str],
) -> str:
    """Return the SHA-256 over everything that an approval covers: it counts for nothing else.

    `arguments` are the bound ones; `agents` is the whole chain, which no policy digest covers;
    `actions` are what the arguments resolve to at this moment, in order.

    Threat: a symlink is shown with its target, and leads elsewhere when the call runs; a name
    that was free is taken, and the next one is written.
    """
    call = [tool, SCHEMA_VERSION, dict(arguments), list(actions)]
    bound = [*call, list(agents), policy_digest, target_digest]
    return digest_of_json(bound)


# Threat: arguments and a cloned policy's reasons are written by others: with line
# breaks, terminal sequences or direction overrides they could forge a question.
# Everything is escaped, each part on one line, and a cut says how much is missing.

_SHOWN_CHARS_MAX: Final = 2000
_DIFF_LINES_MAX: Final = 1000


def question_of(request: ApprovalRequest) -> str:
    arguments = json.dumps(dict(request.arguments), ensure_ascii=True)
    shown = cut(arguments, _SHOWN_CHARS_MAX)
    rows = [
        f"agent {_seen(request.agent)} asks to run {_seen(request.tool)} {shown}",
        *(f"  action: {_seen(action)}" for action in request.actions),
        f"  why asked: {_seen(request.reason)}",
        *(f"  warning: {_seen(warning)}" for warning in request.warnings),
    ]
    if request.rule:
        rows.append(f"  rule: {_seen(request.rule)}")
    if request.diff:
        rows += ["  it would change:", *_diff_rows(request.diff)]
    return "\n".join(rows)


def _seen(text: str) -> str:
    return show_unseen(text)[0]


def _diff_rows(diff: str) -> list[str]:
    lines = diff.split("\n")
    rows = [f"    {_seen(line)}" for line in lines[:_DIFF_LINES_MAX]]
    missing = len(lines) - _DIFF_LINES_MAX
    return [*rows, f"    … {missing} more lines"] if missing > 0 else rows
