"""The full path: the policy, the command parser, the whole ledger. Whatever fails is a refusal."""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TypeVar, cast

from msgspec import Struct

from paddock import limits
from paddock.apps.hook.early import entry_of, find_named, record_refusal
from paddock.apps.hook.ground import HookGround, find_ground, warned_directory
from paddock.apps.hook.images import keep_image
from paddock.apps.hook.lean import flow
from paddock.apps.hook.lean.answers import cut
from paddock.apps.hook.lean.asked import (
    IGNORED_EVENTS,
    PERMISSION_REQUEST,
    PRE_TOOL_USE,
    Asked,
    ShapeError,
    parse_asked,
)
from paddock.apps.hook.lean.judging import BOUNDARY, LeanVerdict
from paddock.apps.hook.lean.records import Identity, LeanRecord, claim_warning, decision_record
from paddock.apps.hook.lean.wrap import changed_input
from paddock.apps.hook.tickets import CommandAsked, Tickets
from paddock.assembly.ledgers import HOOK_EVENT_PACE, HOOK_PACE, open_ledger
from paddock.errors import (
    ConfigError,
    InternalError,
    InvalidArgumentsError,
    PaddockError,
    UsageError,
)
from paddock.ledger.append import Ledger
from paddock.plane.clients import note_client
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.policy.compiled import DENY
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.decisions import AgentChain

Said = TypeVar("Said")


class Given(Struct, frozen=True):
    data: bytes
    client: str
    variables: Mapping[str, str]
    directory: str
    keeps_image: bool = False


def answer(given: Given) -> bytes:
    """Return the answer to one event; empty where the client goes its usual way."""
    return guarded(given, _answer, flow.refusal_for)


def guarded(
    given: Given,
    decide: Callable[[Asked, Given, str], Said],
    refuse: Callable[[Asked | None, str, str], Said],
) -> Said:
    """Return what `decide` says; whatever goes wrong, what `refuse` says with the reason."""
    asked: Asked | None = None
    today = today_here()
    try:
        if len(given.data) > limits.hook_input_bytes_max:
            raise ShapeError(f"the input has more than {limits.hook_input_bytes_max} bytes")
        asked = parse_asked(given.data, given.client)
        return decide(asked, given, today)
    except Exception as error:  # The door: whatever it is, a refusal and not a traceback.
        return refuse(asked, _recorded(asked, given, *_said(error)), today)


def record_stop(given: Given) -> None:
    _recorded(None, given, "the decision was stopped", InternalError.code)


def _recorded(asked: Asked | None, given: Given, reason: str, code: str) -> str:
    named = find_named(given.data, given.client) if asked is None else asked
    if not code or named is None or named.event not in (PRE_TOOL_USE, PERMISSION_REQUEST):
        return reason
    try:
        record_refusal(named, reason, code, given.variables, given.directory)
    except Exception as fault:  # The door: it is refused, on record or not.
        what = fault.message if isinstance(fault, PaddockError) else type(fault).__name__
        return f"{reason}; this refusal could not be recorded: {what}"
    return reason


def _said(error: Exception) -> tuple[str, str]:
    if isinstance(error, ShapeError):
        return f"the call was not understood: {error}", InvalidArgumentsError.code
    if not isinstance(error, PaddockError):
        said = f"nothing can be decided: a defect of Paddock, {type(error).__name__}"
        return said, InternalError.code
    where = f" ({error.where})" if error.where else ""
    hint = f"; {error.hint}" if error.hint else ""
    # Where the host or the ledger failed, a second try would take its time and fail alike.
    code = error.code if isinstance(error, UsageError | ConfigError) else ""
    return f"nothing can be decided: {error.message}{where}{hint}", code


def _answer(asked: Asked, given: Given, today: str) -> bytes:
    if asked.event in IGNORED_EVENTS:
        return b""
    ground = find_ground(asked, given.variables, given.directory, today)
    note_client(read_environment(given.variables), asked.client)
    who = identity_of(ground.chain, ground.project.policy.digest)
    base = asked.cwd or given.directory
    notices = ground.project.notices
    pace = HOOK_PACE if asked.event in (PRE_TOOL_USE, PERMISSION_REQUEST) else HOOK_EVENT_PACE
    with closing(open_ledger(ground.project, LedgerName.HO1M, pace)) as ledger:
        ports = FullPorts(ledger, ground)
        if given.keeps_image:
            _keep_image(ground, asked, given)
        if not asked.is_judged:
            return with_notices(flow.answer_event(asked, ground.scene, who, ports), notices)
        try:
            judged = flow.judge_call(asked, ground.scene, ground.engine, base)
        except ShapeError as problem:
            refused = _refused(f"the call was not understood: {problem}")
            ports.append(decision_record(asked, refused, "deny", [], who))
            return with_notices(
                flow.refusal_for(asked, refused.reason, ground.scene.today), notices
            )
        said = flow.answer_call(judged, ground.scene, ground.engine, who, ports)
        return with_notices(said, notices)


def with_notices(said: bytes, notices: Sequence[str]) -> bytes:
    """Put what a person should be told behind what an answer tells him already."""
    if not notices:
        return said
    members = cast("dict[str, Json]", json.loads(said)) if said else {}
    texts = [f"Paddock: {show_name(notice)}" for notice in notices]
    told = members.get("systemMessage")
    if isinstance(told, str):
        texts.insert(0, told)
    members["systemMessage"] = cut("\n".join(texts))
    return f"{json.dumps(members)}\n".encode()


def _keep_image(ground: HookGround, asked: Asked, given: Given) -> None:
    try:
        keep_image(ground, asked, given.variables)
    except PaddockError as error:
        sys.stderr.write(f"paddock hook: no image is kept: {error.message}\n")


class FullPorts:
    def __init__(self, ledger: Ledger, ground: HookGround) -> None:
        self._ledger = ledger
        self._ground = ground

    def append(self, record: LeanRecord) -> None:
        """See `flow.EventPorts`. Raises: PaddockError."""
        self._ledger.append([entry_of(record)])

    def claim_warning(self, session_id: str, pattern: str) -> bool:
        return claim_warning(warned_directory(self._ground.project.layout), session_id, pattern)

    def wrap(self, judged: flow.LeanJudged, is_asked: bool) -> str:
        """See `flow.EventPorts`. Raises: HostError."""
        holding, line = self._ground.engine.holding, judged.wanted.line
        if holding is None or line is None:
            return ""
        ticket = ""
        if is_asked:
            question = CommandAsked(line, holding.agent, holding.kind, judged.directory)
            ticket = Tickets(self._ground.project.layout).issue(question)
        return changed_input(judged.asked, holding, judged.directory, ticket)


def identity_of(chain: AgentChain, policy_digest: str) -> Identity:
    return Identity(chain[0].name, [agent.as_json() for agent in chain], policy_digest)


def today_here() -> str:
    """In the user's time zone."""
    return time.strftime("%Y-%m-%d", time.localtime())


def _refused(reason: str) -> LeanVerdict:
    verdict = LeanVerdict([], [])
    verdict.outcome, verdict.rank = DENY, BOUNDARY
    verdict.reason, verdict.code = reason, InvalidArgumentsError.code
    return verdict
