"""Build the ledger entries of events, with digests of file content and unknown arguments."""

import posix
import time

from paddock.apps.hook.lean.judge import LeanVerdict, Rule
from paddock.apps.hook.lean.request import DeclinedError, HookEvent
from paddock.ledger.format.line import ID_BYTES, encode_fields, format_id, format_timestamp, sha256
from paddock.policy.compiled import WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.apps.hook.lean.image import Identity
    from paddock.values.calls import Json

HOOK_DECISION = "HOOK_DECISION"
HOOK_EVENT = "HOOK_EVENT"

KEPT_ARGUMENTS = frozenset(
    "file_path notebook_path path command description pattern subagent_type edit_mode "
    "cell_id".split()
)
TEXT_CHARS_MAX = 4096
NAME_CHARS_MAX = 200
ACTION_CHARS_MAX = 16384
ARGUMENTS_MAX = 100
ACTIONS_MAX = 200
SALT_BYTES = 16
_CHANGING = ("Write", "Edit", "MultiEdit", "NotebookEdit")
_DIRECTORY = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC | posix.O_NOFOLLOW
_FLAGS = posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW


class LeanRecord:
    def __init__(
        self,
        event_type: str,
        event: HookEvent,
        agent: str,
        decision: str,
        reason: str,
        metadata: "dict[str, Json]",
    ) -> None:
        self.event_type = event_type
        self.decision = decision
        self.reason = clean(reason, TEXT_CHARS_MAX)
        self.session_id = clean(event.session_id, NAME_CHARS_MAX)
        self.agent = clean(agent, NAME_CHARS_MAX)
        self.call_id = clean(event.call_id, NAME_CHARS_MAX)
        self.metadata = metadata


def encode_record(record: LeanRecord, random: bytes, seconds: float) -> bytes:
    """Encode the line without its chain fields. Raises: DeclinedError: a value is not allowed."""
    names = (record.decision, record.reason, record.session_id, record.agent, record.call_id)
    texts = (record.event_type, "", *names)
    try:
        moment = format_timestamp(seconds)
        return encode_fields(format_id(random), moment, texts, record.metadata)
    except ValueError as why:
        raise DeclinedError(f"an entry that the ledger cannot store: {why}") from None


def decision_record(
    event: HookEvent,
    verdict: LeanVerdict,
    answer: str,
    warnings: "list[str]",
    who: "Identity",
) -> LeanRecord:
    rule = verdict.rule
    agent, chain, policy_digest = who
    metadata: dict[str, Json] = {
        "tool": clean(event.tool, NAME_CHARS_MAX),
        "arguments": recorded_arguments(event),
        "actions": recorded_actions(verdict.actions),
        "client": event.client,
        "answer": answer,
    }
    if event.agent_id:
        metadata["agent_id"] = clean(event.agent_id, NAME_CHARS_MAX)
    if verdict.code:
        metadata["code"] = verdict.code
    if warnings:
        metadata["warnings"] = [clean(said, TEXT_CHARS_MAX) for said in warnings]
    if len(verdict.matched) > 1:
        metadata["matched"] = [
            {"outcome": WORDS[each[0]], **_place_json(each)}
            for each in verdict.matched[:ACTIONS_MAX]
        ]
    metadata["outcome"] = WORDS[verdict.outcome]
    metadata["rule"] = None if rule is None else _place_json(rule)
    metadata["source"] = "no rule" if rule is None else rule[2]
    metadata["policy_digest"] = policy_digest
    metadata["agents"] = chain
    word = WORDS[verdict.outcome]
    return LeanRecord(HOOK_DECISION, event, agent, word, verdict.reason, metadata)


def event_record(event: HookEvent, agent: str) -> LeanRecord:
    metadata: dict[str, Json] = {"event": event.name, "client": event.client}
    if event.agent_id:
        metadata["agent_id"] = clean(event.agent_id, NAME_CHARS_MAX)
    if event.tool:
        metadata["tool"] = clean(event.tool, NAME_CHARS_MAX)
        metadata["arguments"] = recorded_arguments(event)
    duration = event.members.get("duration_ms")
    if type(duration) is int and 0 <= duration < 1 << 53:
        metadata["duration_ms"] = duration
    for name in ("source", "reason"):
        said = event.members.get(name)
        if type(said) is str:
            metadata[name] = clean(said, NAME_CHARS_MAX)
    if "error" in event.members:
        metadata["error"] = digest_of(event.members["error"])
    return LeanRecord(HOOK_EVENT, event, agent, "", "", metadata)


def today_here() -> str:
    """Return YYYY-MM-DD in the user's time zone."""
    return time.strftime("%Y-%m-%d", time.localtime())


def recorded_actions(actions: "list[str]") -> "list[str]":
    kept = [clean(action, ACTION_CHARS_MAX) for action in actions[:ACTIONS_MAX]]
    if len(actions) > ACTIONS_MAX:
        kept.append(f"{len(actions) - ACTIONS_MAX} more actions")
    return kept


def recorded_arguments(event: HookEvent) -> "dict[str, Json]":
    kept: dict[str, Json] = {}
    is_known = not event.tool.startswith("mcp__") and event.tool != "apply_patch"
    for name, value in event.input.items():
        if len(kept) >= ARGUMENTS_MAX:
            kept["…"] = f"{len(event.input) - ARGUMENTS_MAX} more arguments"
            break
        is_number = type(value) is int and abs(value) < 1 << 53
        is_text = type(value) is str and is_known and name in KEPT_ARGUMENTS
        if type(value) is str:
            is_text = is_text and len(value) <= TEXT_CHARS_MAX and is_plain(value)
        is_kept = value is None or type(value) is bool or is_number or is_text
        kept[clean(name, NAME_CHARS_MAX)] = value if is_kept else digest_of(value)
    return kept


def digest_of(value: "Json") -> "dict[str, Json]":
    text = value if type(value) is str else repr(value)
    content = text.encode("utf-8", "surrogatepass")
    salt = posix.urandom(SALT_BYTES)
    digest = sha256(salt)
    digest.update(content)
    return {"salted_sha256": digest.hexdigest(), "salt": salt.hex(), "bytes": len(content)}


def is_plain(value: str) -> bool:
    if value.isascii():
        return "\0" not in value
    return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def clean(value: str, chars_max: int) -> str:
    """Escape characters that the ledger refuses, and state how much was cut."""
    if len(value) > chars_max:
        value = f"{value[:chars_max]}… ({len(value) - chars_max} more characters)"
    if is_plain(value):
        return value
    return "".join(
        f"\\u{ord(c):04x}" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in value
    )


def _place_json(rule: Rule) -> "dict[str, Json]":
    _, text, _, file, line = rule
    return {"text": clean(text, TEXT_CHARS_MAX), "file": file, "line": line}


def session_path(warned: str, session_id: str) -> str:
    """Return the directory, beside `warned`, of a client's session; nobody's if it has no name."""
    named = session_id.encode("utf-8", "surrogatepass") or posix.urandom(ID_BYTES)
    return f"{warned.rpartition('/')[0]}/hook-sessions/{sha256(named).hexdigest()[:32]}"


def show_change(session: str, event: HookEvent) -> None:
    """Have the session's background commands shown a file that the client has changed.

    See `sandbox.sessions.client_session`.
    """
    path = event.input.get("file_path", event.input.get("notebook_path"))
    if event.tool not in _CHANGING or type(path) is not str:
        return
    try:
        here = posix.open(session, _DIRECTORY)
    except OSError:
        return
    from _socket import AF_UNIX, SOCK_DGRAM, socket

    message = b"changed\0" + path.encode("utf-8", "surrogateescape")
    for name in posix.listdir(here):
        sock = socket(AF_UNIX, SOCK_DGRAM)
        sock.setblocking(False)
        try:
            # The path may be longer than unix(7) takes.
            sock.sendto(message, f"/proc/self/fd/{here}/{name}")
        except OSError:
            # It has ended, or takes no messages: then it does not see the change.
            continue
        finally:
            sock.close()
    posix.close(here)


def was_shown(directory: str, session_id: str, said: str) -> bool:
    """Return True if the session has seen this text. Without a session it has not."""
    try:
        posix.lstat(_mark_path(directory, session_id, said))
    except OSError:
        return False
    return session_id != ""


def note_shown(directory: str, session_id: str, said: str) -> bool:
    """Record in an empty file that a session sees this text; return True if it is new to it.

    If the file cannot be created, the text counts as new: repeating a warning is safe.
    """
    try:
        if session_id:
            posix.close(posix.open(_mark_path(directory, session_id, said), _FLAGS, 0o600))
    except OSError as fault:
        return type(fault) is not FileExistsError
    return True


def _mark_path(directory: str, session_id: str, said: str) -> str:
    mark = sha256(f"{session_id}\0{said}".encode("utf-8", "surrogatepass"))
    return f"{directory}/{mark.hexdigest()[:32]}"
