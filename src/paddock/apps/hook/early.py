"""Refusals from before a decision: on record like any other, where the call names its tool.

The ledger is found without the policy, which may be why there is no decision.
"""

import json
import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final, cast

from paddock.apps.hook.ground import start_of
from paddock.apps.hook.lean.asked import (
    PERMISSION_REQUEST,
    PRE_TOOL_USE,
    RECORDED_EVENTS,
    TEXTS,
    Asked,
    ShapeError,
    parse_json,
)
from paddock.apps.hook.lean.judging import LeanVerdict
from paddock.apps.hook.lean.records import Identity, LeanRecord, decision_record
from paddock.assembly.ledgers import HOOK_PACE, open_plane_ledger
from paddock.plane.create import open_plane
from paddock.plane.discover import find_root
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.policy.compiled import DENY
from paddock.values.calls import Json
from paddock.values.entries import Entry

_DECIDED: Final = frozenset({PRE_TOOL_USE, PERMISSION_REQUEST})
_UNASKED: Final = ("outcome", "rule", "source", "policy_digest")


def find_named(data: bytes, client: str) -> Asked | None:
    """Read a call off an input that is not understood; arguments only if all read them alike."""
    try:
        found, is_plain = parse_json(data), True
    except ShapeError:
        found, is_plain = _loosely(data), False
    if not isinstance(found, dict):
        return None
    members = cast("dict[str, object]", found)
    event, tool = members.get("hook_event_name"), members.get("tool_name")
    is_other = isinstance(event, str) and event in RECORDED_EVENTS - _DECIDED
    if not isinstance(tool, str) or not tool or is_other:
        return None
    texts = {name: said for name in TEXTS if isinstance(said := members.get(name), str)}
    asked = Asked(
        PRE_TOOL_USE, client or ("codex" if "turn_id" in members else "claude"), {**texts}
    )
    given = members.get("tool_input")
    asked.tool = tool
    if is_plain and isinstance(given, dict):
        asked.input = cast("dict[str, Json]", given)
    if not os.path.isabs(asked.cwd):
        asked.cwd = ""
    return asked


def record_refusal(
    asked: Asked, reason: str, code: str, variables: Mapping[str, str], directory: str
) -> None:
    """Put a call on record that is refused and that nothing was decided about.

    Raises: UsageError, ConfigError, HostError, and of the ledger damaged, busy and full.
    """
    environment = read_environment(variables)
    start = start_of(asked.client, asked.cwd, variables, directory)
    layout = open_plane(find_root(Path(start), environment), environment).layout
    verdict = LeanVerdict([], [])
    verdict.outcome, verdict.reason, verdict.code = DENY, reason, code
    # Nobody has looked yet whose profile it is.
    who = Identity(asked.agent_type, [], "")
    record = decision_record(asked, verdict, "deny", [], who)
    for name in _UNASKED:
        del record.metadata[name]
    with closing(open_plane_ledger(layout, environment, LedgerName.HO1M, HOOK_PACE)) as ledger:
        ledger.append([entry_of(record)])


def _loosely(data: bytes) -> object:
    try:
        return cast("object", json.JSONDecoder().raw_decode(data.decode().lstrip())[0])
    except (ValueError, RecursionError):
        return None


def entry_of(record: LeanRecord) -> Entry:
    return Entry(
        event_type=record.event_type,
        decision=record.decision,
        reason=record.reason,
        session_id=record.session_id,
        agent=record.agent,
        call_id=record.call_id,
        metadata=record.metadata,
    )
