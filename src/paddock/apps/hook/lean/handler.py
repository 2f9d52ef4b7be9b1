"""Decide, record and answer one event from the policy image, or leave it to the full path.

Nothing has a side effect before the append, so the full path can start again from the beginning.
"""

import posix
import time

from paddock.apps.hook.lean import flow
from paddock.apps.hook.lean.image import (
    HookContext,
    find_homes,
    image_path,
    key_path,
    load_image,
)
from paddock.apps.hook.lean.records import (
    HOOK_EVENT,
    LeanRecord,
    encode_record,
    today_here,
)
from paddock.apps.hook.lean.request import (
    IGNORED_EVENTS,
    SHELL_TOOL,
    DeclinedError,
    parse_event,
    start_of,
)
from paddock.ledger.format.line import ID_BYTES
from paddock.ledger.tail import AppendFailedError, NotPlainError, append_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.values.calls import Json

INPUT_BYTES_MAX = 64_000_000
"""Same as `limits.hook_input_bytes_max`."""
HELD_S = 3600
"""The age up to which an image's preflight result for the sandbox is used."""

_ASK = "ask"
_CLIENT_START, _CLIENT_END = "SessionStart", "SessionEnd"
CHECKPOINT_S = 1.0
WAITED_CHECKPOINT_S = 60.0
_UNHURRIED = ("PostToolUse", "PostToolUseFailure", "SessionStart")
"""Events for which no call waits: the full path then stores a checkpoint of earlier entries."""


class Attempt:
    image: "Json"
    context: HookContext

    def __init__(self, data: bytes, client: str, variables: "Mapping[str, str]") -> None:
        self.data = data
        self.client = client
        self.variables = variables
        self.has_image = False
        """True if the image is valid, and the ledger that it names is the current one."""
        self.has_recorded = False

    def answer(self) -> bytes:
        """Raises: DeclinedError (the full path decides), ShapeError: nothing was recorded."""
        if len(self.data) > INPUT_BYTES_MAX:
            raise DeclinedError("a huge input")
        event = parse_event(self.data, self.client)
        if event.name in IGNORED_EVENTS:
            return b""
        here = posix.getcwd()
        start = start_of(event.client, event.cwd, self.variables, here)
        homes = find_homes(self.variables)
        path = image_path(homes, event, start, self.variables)
        self.image = load_image(path, key_path(homes))
        self.has_image = True
        if event.agent_id and not event.agent_type:
            raise DeclinedError("a sub-agent without a type")
        if event.tool == SHELL_TOOL and not 0 <= time.time() - self.image["since"] < HELD_S:
            # Have the full path write a new image.
            self.has_image = False
            raise DeclinedError("the preflight check of the sandbox must run again")
        self.context = HookContext(self.image, event, start, today_here())
        try:
            if event.name == _CLIENT_START and not self._is_noted(event.client, homes.paddock):
                raise DeclinedError("a client's process that is not noted yet")
            return flow.answer(event, self.context, event.cwd or here, self)
        except DeclinedError:
            # A full ledger continues in another file, which the image does not name.
            self.has_image = self._has_ledger()
            raise
        except AppendFailedError as failed:
            reason = f"the call cannot be judged: {failed}"
            return flow.refusal_for(event, reason, self.context.today)

    def append(self, record: LeanRecord) -> None:
        """Raises: DeclinedError, AppendFailedError."""
        # Only an `ask` answer is a question; an empty answer leaves the call to the client.
        if record.metadata.get("answer") == _ASK or record.metadata.get("event") == _CLIENT_END:
            raise DeclinedError("an entry that needs a checkpoint at once")
        ledger, folder, identity = self.image["ledger"]
        if record.event_type == HOOK_EVENT and is_checkpoint_due(folder, record.metadata):
            raise DeclinedError("a checkpoint is due, which only the full path stores")
        body = encode_record(record, posix.urandom(ID_BYTES), time.time())
        self.has_recorded = True
        try:
            append_plain(ledger, identity, body)
        except NotPlainError as why:
            raise DeclinedError(str(why)) from None

    def wrap(self, judged: flow.LeanJudged, is_asked: bool) -> str:
        """Leave questions to the full path. Raises: DeclinedError."""
        wrapper = self.context.wrapper
        if is_asked or wrapper is None:
            raise DeclinedError("a question about a command")
        return flow.wrap_input(judged.event, wrapper, judged.directory, self.context.session)

    def _has_ledger(self) -> bool:
        ledger, _, identity = self.image["ledger"]
        try:
            status = posix.stat(ledger)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == identity

    def _is_noted(self, client: str, paddock: str) -> bool:
        """Return True if the client has a mark (`paddock.plane.clients`), or needs none."""
        if client != "codex" and "CLAUDECODE" not in self.variables:
            return True
        pid = self.variables.get("CLAUDE_PID", "")
        try:
            marks = posix.listdir(f"{paddock}/hook/clients")
        except OSError:
            return False
        return pid != "" and any(mark.startswith(f"{pid}-") for mark in marks)


def is_checkpoint_due(folder: str, metadata: "dict[str, Json]") -> bool:
    """Compare the directory's change time, which is cheaper than listing the checkpoints."""
    event = metadata["event"]
    if event not in _UNHURRIED:
        return False
    # Codex has no asynchronous hooks.
    is_waited_for = metadata["client"] != "claude" and event != "SessionStart"
    pause_s = WAITED_CHECKPOINT_S if is_waited_for else CHECKPOINT_S
    try:
        return not 0 <= time.time() - posix.stat(f"{folder}/checkpoints").st_mtime < pause_s
    except OSError:
        return True
