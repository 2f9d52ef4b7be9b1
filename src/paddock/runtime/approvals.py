"""Someone's answer to an `ask`, bound to a digest of exactly what will run."""

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
        """The effect as data that outlives the call; what it needs stays under `name`."""
        ...


class ApprovalRequest(Struct, frozen=True):
    """What is shown to whoever is asked. `digest` names exactly this call."""

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
    """Of what stands at the target, or `absent`; of the changes where they are asked about."""
    call_id: str = ""
    session_id: str = ""
    filled: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Arguments that count with another value than was given, or with none: the defaults."""
    warnings: tuple[str, ...] = ()
    """What policy, or a look at the effect, warns of. It changes no outcome."""
    diff: str = ""
    """Where the question is about what the call would change: the difference."""
    parking: Parking | None = None
    """What was held back for that question, to be kept if nobody can answer now."""
    can_wait: bool = True
    """Whether a later answer still counts: not for a connection, which is held open."""
    cancel: Cancel = NEVER
    """Cancelled when nobody waits for the answer any more."""


class Approval(Struct, frozen=True):
    """The answer. `by` says who or what gave it, for the ledger.

    `code` is that of the refusal where it was not granted.
    """

    is_granted: bool
    by: str
    code: str = ApprovalRefusedError.code
    note: str = ""
    request_id: str = ""
    """Of the inbox: the kept request, or the one whose grant was used up for this."""
    changes_digest: str = ""
    """Of the changes that were kept with the request."""
    hint: str = ""
    """What to do about a no, where that is not what its code says."""
    is_deferred: bool = False
    """No answer yet: whoever was asked puts the question to a person, and calls again."""


class Approver(Protocol):
    """Whoever can be asked. Answers once, for this digest, within the time limit."""

    def answer(self, request: ApprovalRequest) -> Approval:
        """Yes or no; anything unclear is no."""
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
    """Asks the program's function in a thread: `True` is yes; after `timeout_s` it is a no."""

    ask: Callable[[ApprovalRequest], bool]
    timeout_s: float = limits.approval_timeout_s

    def answer(self, request: ApprovalRequest) -> Approval:
        said, problem = _in_time(partial(self.ask, request), self.timeout_s)
        if not problem and type(said) is not bool:
            problem = "the approver gave no clear answer: True is yes, False is no"
        return unavailable("callback", problem) if problem else Approval(bool(said), "callback")


class Limited(Struct, frozen=True):
    approver: Approver
    timeout_s: float

    def answer(self, request: ApprovalRequest) -> Approval:
        said, problem = _in_time(partial(answer_of, self.approver, request), self.timeout_s)
        return said if isinstance(said, Approval) else unavailable("callback", problem)


def _in_time(ask: Callable[[], object], timeout_s: float) -> tuple[object, str]:
    said: list[object] = []
    problems: list[str] = []

    def run() -> None:
        try:
            said.append(ask())
        except Exception as error:  # The embedding program's code: whatever it raises is a no.
            problems.append(f"the approver raised {type(error).__name__}")

    asking = threading.Thread(target=run, name="paddock-approval", daemon=True)
    asking.start()
    asking.join(timeout_s)
    if asking.is_alive():
        return None, f"no answer within {timeout_s:g} s"
    return (said[0], "") if said else (None, "".join(problems))


def answer_of(approver: Approver, request: ApprovalRequest) -> Approval:
    try:
        said = cast("object", approver.answer(request))
    except IntegrityError:
        raise
    except Exception as error:  # The embedding program's code: whatever it raises is a no.
        return unavailable("approver", f"the approver raised {type(error).__name__}")
    if not isinstance(said, Approval) or type(said.is_granted) is not bool:
        return unavailable("approver", "the approver gave no clear answer")
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
    """SHA-256 over everything that an approval is for: it never counts for anything else.

    `arguments` are the bound ones; `agents` the whole chain, which no policy digest covers;
    `actions` what the arguments come to here and now, in order.

    Threat: a link is shown with what it leads to, and leads elsewhere when the call runs; a
    name that was free is taken, and the next one is written.
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
