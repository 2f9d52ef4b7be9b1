"""The full path: the policy itself, the command parser, the whole ledger.

Total: whatever goes wrong, the answer is a refusal, in words that name the reason.
"""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from paddock import limits
from paddock.apps.hook.ground import Ground, find_ground
from paddock.apps.hook.images import keep_image
from paddock.apps.hook.lean import flow
from paddock.apps.hook.lean.asked import IGNORED_EVENTS, Asked, ShapeError, parse_asked
from paddock.apps.hook.lean.judging import BOUNDARY, DENY, Verdict
from paddock.apps.hook.lean.places import find_place
from paddock.apps.hook.lean.records import Identity, Record, decision_record
from paddock.apps.hook.lean.seen import is_first
from paddock.apps.hook.records_of import agent_json, warned_directory
from paddock.apps.hook.wrapping import CommandPlace, wrapped_input
from paddock.assembly import HOOK_PACE, open_ledger
from paddock.errors import PaddockError
from paddock.ledger.ports import Ledger
from paddock.values.agents import AgentChain
from paddock.values.entries import Entry


@dataclass(frozen=True, slots=True)
class Given:
    """What the process was started with, and what stood on its input."""

    data: bytes
    client: str
    variables: Mapping[str, str]
    directory: str
    program: tuple[str, ...] = ("paddock",)
    """What starts Paddock's command line, for commands that are wrapped in the sandbox."""
    keeps_image: bool = False
    """Whether an image for the lean path is made: it found none that it may use."""


def answer(given: Given) -> bytes:
    """Return the answer to one event; empty where the client goes its usual way."""
    asked: Asked | None = None
    today = today_here()
    try:
        if len(given.data) > limits.hook_input_bytes_max:
            raise ShapeError(f"the input has more than {limits.hook_input_bytes_max} bytes")
        asked = parse_asked(given.data, given.client)
        if asked.event in IGNORED_EVENTS:
            return b""
        return _answer(asked, given, today)
    except ShapeError as problem:
        return flow.refusal_for(asked, f"the call was not understood: {problem}", today)
    except PaddockError as error:
        where = f" ({error.where})" if error.where else ""
        hint = f"; {error.hint}" if error.hint else ""
        said = f"nothing can be decided: {error.message}{where}{hint}"
        return flow.refusal_for(asked, said, today)
    except Exception as error:  # The door: a defect of ours is a refusal, not a traceback.
        said = f"nothing can be decided: a defect of Paddock, {type(error).__name__}"
        return flow.refusal_for(asked, said, today)


def _answer(asked: Asked, given: Given, today: str) -> bytes:
    ground = find_ground(asked, given.variables, given.directory, today)
    who = identity_of(ground.chain, ground.project.policy.digest)
    base = asked.cwd or given.directory
    with closing(open_ledger(ground.project, "ho1m", HOOK_PACE)) as ledger:
        ports = FullPorts(ledger, ground, given.program, base)
        if given.keeps_image:
            _keep_image(ground, asked, given)
        if not asked.is_judged:
            return flow.answer_event(asked, ground.scene, who, ports)
        try:
            judged = flow.judge_call(asked, ground.scene, ground.engine, base)
        except ShapeError as problem:
            refused = _refused(f"the call was not understood: {problem}")
            ports.append(decision_record(asked, refused, "deny", [], who, os.urandom))
            raise
        return flow.answer_call(judged, ground.scene, ground.engine, who, ports)


def _keep_image(ground: Ground, asked: Asked, given: Given) -> None:
    """Make the next call quick. Without an image it is decided like this one."""
    try:
        keep_image(ground, asked, given.variables)
    except PaddockError as error:
        sys.stderr.write(f"paddock hook: no image is kept: {error.message}\n")


class FullPorts:
    """The whole ledger, and what the plane keeps for the hook."""

    __slots__ = ("_base", "_ground", "_ledger", "_program")

    def __init__(self, ledger: Ledger, ground: Ground, program: tuple[str, ...], base: str) -> None:
        self._ledger = ledger
        self._ground = ground
        self._program = program
        self._base = base

    def append(self, record: Record) -> None:
        """See `flow.Ports`. Raises: PaddockError."""
        self._ledger.append([entry_of(record)])

    def is_first(self, session_id: str, pattern: str) -> bool:
        """See `flow.Ports`."""
        return is_first(warned_directory(self._ground.project.layout), session_id, pattern)

    def randomness(self, size: int) -> bytes:
        """See `flow.Ports`."""
        return os.urandom(size)

    def wrap(self, asked: Asked) -> str:
        """See `flow.Ports`."""
        ground = self._ground
        agent = ground.chain[0].name
        directory = find_place(self._base, self._base, ground.scene)
        if agent not in ground.project.agents.names() or not directory.names:
            # Only an agent of the plane has a runtime, and only in its workspace.
            return ""
        place = CommandPlace(ground.scene.root, agent, directory.names[-1])
        return wrapped_input(asked, self._program, place)


def entry_of(record: Record) -> Entry:
    """The record as the ledger takes it."""
    return Entry(
        event_type=record.event_type,
        decision=record.decision,
        reason=record.reason,
        session_id=record.session_id,
        agent=record.agent,
        call_id=record.call_id,
        metadata=record.metadata,
    )


def identity_of(chain: AgentChain, policy_digest: str) -> Identity:
    """Who acts, as entries keep it: enough to decide again."""
    return Identity(chain[0].name, [agent_json(agent) for agent in chain], policy_digest)


def today_here() -> str:
    """The date where the user is."""
    return time.strftime("%Y-%m-%d", time.localtime())


def _refused(reason: str) -> Verdict:
    verdict = Verdict([], [])
    verdict.outcome, verdict.rank = DENY, BOUNDARY
    verdict.reason, verdict.code = reason, "args.invalid"
    return verdict
