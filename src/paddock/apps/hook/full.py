"""The full path: the policy, the command parser, the whole ledger. Every failure is a refusal."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar, cast

from msgspec import Struct

from paddock import errors, limits
from paddock.apps.hook.context import FullContext, keep_image, open_context
from paddock.apps.hook.lean import flow, request
from paddock.apps.hook.lean.judge import LeanFinding, LeanVerdict
from paddock.apps.hook.lean.records import LeanRecord, decision_record, today_here
from paddock.apps.hook.tickets import CommandAsked, Tickets
from paddock.assembly.ledgers import (
    HOOK_EVENT_PACE,
    HOOK_PACE,
    PlaneLedger,
    open_ledger,
)
from paddock.ledger.append import Ledger
from paddock.plane.clients import note_client
from paddock.plane.create import open_plane
from paddock.plane.discover import find_root
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.policy.compiled import DENY, NOTHING
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import Entry

_DECIDED: Final = frozenset({request.PRE_TOOL_USE, request.PERMISSION_REQUEST})
_UNASKED: Final = ("outcome", "rule", "source", "policy_digest")

Result = TypeVar("Result")


class HookInput(Struct, frozen=True):
    data: bytes
    client: str
    variables: Mapping[str, str]
    directory: str
    keeps_image: bool = False


def answer(given: HookInput) -> bytes:
    """Return the answer to one event; empty if the client proceeds as usual."""
    return answer_or_refuse(given, _answer, flow.refusal_for)


def answer_or_refuse(
    given: HookInput,
    decide: Callable[[request.HookEvent, HookInput, str], Result],
    refuse: Callable[[request.HookEvent | None, str, str], Result],
) -> Result:
    """Return the result of `decide`; on any error that of `refuse`, with the reason."""
    event: request.HookEvent | None = None
    today = today_here()
    try:
        if len(given.data) > limits.hook_input_bytes_max:
            raise request.ShapeError(f"the input has more than {limits.hook_input_bytes_max} bytes")
        event = request.parse_event(given.data, given.client)
        return decide(event, given, today)
    except Exception as error:  # Fail closed: every error is a refusal, not a traceback.
        return refuse(event, _record_refusal(event, given, *_describe(error)), today)


def record_stop(given: HookInput) -> None:
    _record_refusal(None, given, "the decision was stopped", errors.InternalError.code)


def _record_refusal(
    event: request.HookEvent | None, given: HookInput, reason: str, code: str
) -> str:
    named = salvage_call(given.data, given.client) if event is None else event
    if not code or named is None or named.name not in _DECIDED:
        return reason
    try:
        record_refusal(named, reason, code, given.variables, given.directory)
    except Exception as fault:  # Fail closed: the call is refused, recorded or not.
        what = fault.message if isinstance(fault, errors.PaddockError) else type(fault).__name__
        return f"{reason}; this refusal could not be recorded: {what}"
    return reason


def _describe(error: Exception) -> tuple[str, str]:
    if isinstance(error, request.ShapeError):
        return f"the call was not understood: {error}", errors.InvalidArgumentsError.code
    if not isinstance(error, errors.PaddockError):
        said = f"the call cannot be judged: a defect of Paddock, {type(error).__name__}"
        return said, errors.InternalError.code
    where = f" ({error.where})" if error.where else ""
    hint = f"; {error.hint}" if error.hint else ""
    # After a failure of the host or the ledger, recording the refusal would fail the same way.
    code = error.code if isinstance(error, errors.UsageError | errors.ConfigError) else ""
    return f"the call cannot be judged: {error.message}{where}{hint}", code


def _answer(event: request.HookEvent, given: HookInput, today: str) -> bytes:
    if event.name in request.IGNORED_EVENTS:
        return b""
    context = open_context(event, given.variables, given.directory, today)
    note_client(read_environment(given.variables), event.client)
    notices = context.project.notices
    pace = HOOK_PACE if event.name in _DECIDED else HOOK_EVENT_PACE
    with closing(open_ledger(context.project, LedgerName.HO1M, pace)) as ledger:
        ports = FullPorts(ledger, context)
        try:
            if given.keeps_image:
                keep_image(context, event, given.variables)
        except errors.PaddockError as error:
            sys.stderr.write(f"paddock hook: cannot write the policy image: {error.message}\n")
        try:
            said = flow.answer(event, context, event.cwd or given.directory, ports)
        except request.ShapeError as problem:
            reason = f"the call was not understood: {problem}"
            code = errors.InvalidArgumentsError.code
            ports.append(decision_record(event, _refused(reason, code), "deny", [], context.who))
            said = flow.refusal_for(event, reason, context.today)
        return _with_notices(said, notices)


def _with_notices(said: bytes, notices: Sequence[str]) -> bytes:
    if not notices:
        return said
    members = cast("dict[str, Json]", json.loads(said)) if said else {}
    texts = [f"Paddock: {show_name(notice)}" for notice in notices]
    earlier = members.get("systemMessage")
    if isinstance(earlier, str):
        texts.insert(0, earlier)
    members["systemMessage"] = flow.cut("\n".join(texts))
    return f"{json.dumps(members)}\n".encode()


class FullPorts:
    def __init__(self, ledger: Ledger, context: FullContext) -> None:
        self._ledger = ledger
        self._context = context

    def append(self, record: LeanRecord) -> None:
        """See `flow.EventPorts`. Raises: PaddockError."""
        self._ledger.append([entry_of(record)])

    def wrap(self, judged: flow.LeanJudged, is_asked: bool) -> str:
        """See `flow.EventPorts`. Raises: HostError."""
        wrapper, line = self._context.wrapper, judged.wanted.line
        if wrapper is None or line is None:
            return ""
        ticket = ""
        if is_asked:
            question = CommandAsked(line, wrapper.agent, wrapper.kind, judged.directory)
            ticket = Tickets(self._context.project.layout).issue(question)
        session = self._context.session
        return flow.wrap_input(judged.event, wrapper, judged.directory, session, ticket)


def _refused(reason: str, code: str) -> LeanVerdict:
    return LeanVerdict(LeanFinding(DENY, NOTHING, reason, code=code), [], [])


def salvage_call(data: bytes, client: str) -> request.HookEvent | None:
    """Read the call from an invalid input, with its arguments only if the JSON is unambiguous."""
    is_plain = True
    try:
        found = request.parse_json(data)
    except request.ShapeError:
        is_plain = False
        try:
            found = json.JSONDecoder().raw_decode(data.decode().lstrip())[0]
        except (ValueError, RecursionError):
            return None
    if not isinstance(found, dict):
        return None
    members = cast("dict[str, object]", found)
    event, tool = members.get("hook_event_name"), members.get("tool_name")
    is_other = isinstance(event, str) and event in request.RECORDED_EVENTS - _DECIDED
    if not isinstance(tool, str) or not tool or is_other:
        return None
    texts = {name: said for name in request.TEXTS if isinstance(said := members.get(name), str)}
    event = request.HookEvent(request.PRE_TOOL_USE, request.client_of(client, members), {**texts})
    event.tool = tool
    given = members.get("tool_input")
    if is_plain and isinstance(given, dict):
        event.input = cast("dict[str, Json]", given)
    if not os.path.isabs(event.cwd):
        event.cwd = ""
    return event


def record_refusal(
    event: request.HookEvent, reason: str, code: str, variables: Mapping[str, str], directory: str
) -> None:
    """Record a call that is refused without a policy decision.

    Raises: UsageError, ConfigError, HostError, and the ledger's errors: damaged, busy, full.
    """
    environment = read_environment(variables)
    start = request.start_of(event.client, event.cwd, variables, directory)
    layout = open_plane(find_root(Path(start), environment), environment).layout
    # The agent and its profile are not resolved yet.
    who = (event.agent_type, list[Json](), "")
    record = decision_record(event, _refused(reason, code), "deny", [], who)
    for name in _UNASKED:
        del record.metadata[name]
    with closing(PlaneLedger(layout, environment, LedgerName.HO1M).open(HOOK_PACE)) as ledger:
        ledger.append([entry_of(record)])


def entry_of(record: LeanRecord) -> Entry:
    return Entry(**vars(record))
