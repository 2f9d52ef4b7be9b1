"""A call that waits for somebody's answer, as its file keeps it. Pure.

The arguments are kept whole, for the call may be resumed: the file is private to the
plane's owner (mode 0600), and ledgers hold only the digest.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from msgspec import Struct

from paddock.errors import (
    ApprovalExpiredError,
    ConfigError,
    DirectoryNotEmptyError,
    FileChangedError,
    PathError,
    PathExistsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    PathThroughLinkError,
    SpecialFileError,
    StorageFullError,
)
from paddock.plane.strict_json import Fields, parse_object
from paddock.policy.settings import Git
from paddock.runtime.approvals import ApprovalRequest
from paddock.sandbox.changes.commit import Footing
from paddock.sandbox.changes.parking import ParkedSet, digests_of
from paddock.storage.history import History, current_call
from paddock.storage.journal import Journal
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, needed_text, result_schema
from paddock.tools.effects import change_json, changes_of, within_entry
from paddock.tools.spec import Effects, Ports, RefusedPath, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.values.entries import digest_of_json
from paddock.workspace.apply import NotingWitness
from paddock.workspace.changes import (
    ChangeReceipt,
    MakeDirectory,
    MakeLink,
    SetMetadata,
    StagedChange,
    WriteFile,
)

FORMAT: Final = 1
State = Literal["waiting", "granted", "refused"]
_TIME_MAX: Final = 253_402_300_799
"""The end of the year 9999: no calendar here goes further."""
STATES: Final[tuple[State, ...]] = ("waiting", "granted", "refused")


class Parked(Struct, frozen=True):
    """A request of the inbox. Times are whole seconds since 1970."""

    id: str
    request: ApprovalRequest
    parked_at: int
    expires_at: int
    """Of a request that waits: when it is forgotten; of a grant: when it counts no more."""
    state: State = "waiting"
    answered_by: str = ""
    note: str = ""
    changes: Json = None
    """What a command left, to be committed if somebody says yes; None of any other call."""

    @property
    def changes_digest(self) -> str:
        return "" if self.changes is None else digest_of_changes(self.changes)

    @property
    def pin(self) -> str:
        return pin_name(self.id)

    def is_expired(self, now: float) -> bool:
        return now >= self.expires_at

    def summary(self) -> dict[str, Json]:
        request = self.request
        return {
            "id": self.id,
            "state": self.state,
            "agent": request.agent,
            "tool": request.tool,
            "actions": list(request.actions),
            "reason": request.reason,
            "rule": request.rule,
            "warnings": list(request.warnings),
            "digest": request.digest,
            "policy_digest": request.policy_digest,
            "target_digest": request.target_digest,
            "has_changes": self.changes is not None,
            "call_id": request.call_id,
            "session_id": request.session_id,
            "parked_at": self.parked_at,
            "expires_at": self.expires_at,
            "answered_by": self.answered_by,
            "note": self.note,
        }


def pin_name(identity: str) -> str:
    return f"parked-{identity}"


def write_parked(parked: Parked) -> bytes:
    members = {
        "format": FORMAT,
        **parked.summary(),
        "arguments": dict(parked.request.arguments),
        "filled": dict(parked.request.filled),
        "diff": parked.request.diff,
        "changes": parked.changes,
    }
    # ASCII: an argument may hold what is no UTF-8, such as half of a surrogate pair.
    return json.dumps(members, ensure_ascii=True, indent=1).encode("ascii") + b"\n"


_KEYS: Final = frozenset(
    "format id state agent tool actions reason rule digest policy_digest target_digest call_id "
    "session_id parked_at expires_at answered_by note arguments filled diff changes "
    "has_changes warnings".split()
)


def parse_parked(content: bytes, file: str) -> Parked:
    """The request that a file holds; `file` is for messages. Raises: ConfigError: it is none."""
    fields = parse_object(content, file)
    fields.require_only(_KEYS)
    if fields.number("format") != FORMAT:
        raise fields.error("format", "this Paddock does not know the format", "remove the file")
    request = ApprovalRequest(
        digest=fields.text("digest"),
        tool=fields.text("tool"),
        arguments=_arguments(fields, "arguments"),
        actions=_texts(fields, "actions"),
        agent=fields.text("agent"),
        reason=fields.text("reason"),
        rule=fields.text("rule"),
        policy_digest=fields.text("policy_digest"),
        target_digest=fields.text("target_digest"),
        call_id=fields.text("call_id"),
        session_id=fields.text("session_id"),
        # Of an older version there are none, and its digest is none of ours either.
        filled=_arguments(fields, "filled") if "filled" in fields.members else {},
        # Nor does an older one say what policy warned of.
        warnings=_texts(fields, "warnings") if "warnings" in fields.members else (),
        diff=fields.text("diff"),
    )
    return Parked(
        id=fields.text("id"),
        request=request,
        parked_at=_time(fields, "parked_at"),
        expires_at=_time(fields, "expires_at"),
        state=fields.choice("state", STATES, "waiting"),
        answered_by=fields.text("answered_by"),
        note=fields.text("note"),
        changes=fields.members.get("changes"),
    )


def _time(fields: Fields, name: str) -> int:
    seconds = fields.number(name)
    if not 0 <= seconds <= _TIME_MAX:
        raise fields.error(
            name, f"{quote(name)} is no time: {quote(str(seconds))}", f"write 0 to {_TIME_MAX}"
        )
    return seconds


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    """As the call brought them: one may stand there twice."""
    value: Json = fields.members.get(name)
    if not isinstance(value, list):
        raise fields.error(name, f"{quote(name)} is not a list", "write a list of strings")
    texts = cast("list[Json]", value)
    found = tuple(text for text in texts if isinstance(text, str))
    if len(found) != len(texts):
        raise fields.error(name, f"{quote(name)} holds what is no text", "write strings alone")
    return found


def digest_of_changes(changes: Json) -> str:
    return digest_of_json(changes)


def _arguments(fields: Fields, name: str) -> Mapping[str, Json]:
    value: Json = fields.members.get(name)
    if not isinstance(value, dict):
        raise ConfigError(
            f"the {name} are no object", where=fields.place(name), hint="remove the file"
        )
    return cast("dict[str, Json]", value)


# It is a tool that no model has, as undo is: bound, recorded before it acts and after, kept
# in the history. Nothing runs again: exactly what was shown comes into the workspace, or
# nothing where something else stands there by now.

_ROWS_MAX: Final = 50
_CHANGED: Final = (
    DirectoryNotEmptyError,
    FileChangedError,
    PathExistsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    PathThroughLinkError,
    SpecialFileError,
)
"""What a set meets where somebody has changed the workspace. Anything else is in its way."""
_USED_UP: Final = (
    "nothing was changed, and the grant is used up: see to what is in the way, then run the"
    " command again"
)


@dataclass(frozen=True, slots=True)
class CommitArguments(ArgumentType):
    request: str = needed_text("The request whose changes are committed.")
    agent: str = needed_text("The agent whose command made them.")


class _Plan(Struct, frozen=True):
    actions: tuple[Action, ...]


class CommitParked(Struct, frozen=True):
    parked: ParkedSet
    history: History
    journal: Journal
    git: Git
    """The preset that holds for the command's agents."""

    def resolve(self, arguments: CommitArguments, ports: Ports) -> _Plan:
        """Raises: ApprovalExpiredError: the history has pruned a content of it."""
        del arguments, ports
        store = self.history.store
        for digest in digests_of(self.parked.phases):
            if not store.has(digest):
                raise ApprovalExpiredError(
                    "what was to be committed is not kept any more", hint="run the command again"
                )
            store.verify(digest)
        return _Plan(tuple(_action(change) for phase in self.parked.phases for change in phase))

    def run(self, plan: _Plan, ports: Ports) -> ToolOutput:
        """Nothing has changed where this raises what follows, and the grant is used up.

        Raises: ApprovalExpiredError: something else stands there; PathError, StorageFullError: a
        directory stays locked or is closed to us, or there is no space.
        """
        del plan
        running = current_call()
        try:
            receipt = ports.workspace.commit(
                self.parked.phases,
                self.history.store,
                self.journal,
                label="" if running is None else running.mark.call_id,
                witness=NotingWitness(self.history),
                condition=self._footing(ports),
            )
        except _CHANGED as error:
            raise ApprovalExpiredError(
                f"the workspace has changed since the command ran: {error.message}",
                hint="nothing was changed; run the command again",
            ) from error
        except (PathError, StorageFullError) as error:
            raise type(error)(error.message, where=error.where, hint=_USED_UP) from error
        return self._told(receipt)

    def _footing(self, ports: Ports) -> Footing:
        tree, parked, store = ports.workspace.tree, self.parked, self.history.store
        return Footing(tree.root_fd, parked.phases, store, self.git, parked.above, tree.resolution)

    def _told(self, receipt: ChangeReceipt) -> ToolOutput:
        rows = changes_of(receipt.changes)
        count = "1 change" if len(rows) == 1 else f"{len(rows)} changes"
        said = [f"committed {count}", *(f"  {r.kind} {quote(r.path)}" for r in rows)]
        if len(rows) > _ROWS_MAX:
            said[_ROWS_MAX + 1 :] = [f"  [and {len(rows) - _ROWS_MAX} more]"]
        refused, more = self.parked.refused, self.parked.refused_more
        details: dict[str, Json] = {
            "changes": [change_json(change) for change in rows],
            "changes_refused": [{"path": each.path, "rule": each.rule} for each in refused],
        }
        if more:
            details["not_listed"] = {"changes_refused": more}
        listed, stored = within_entry(tuple(rows), self.history.keep_for_ledger)
        return ToolOutput(
            "\n".join([*said, *self._refused_rows()]),
            details,
            listed,
            stored=stored,
            refused=tuple(RefusedPath(each.path, each.code, each.rule) for each in refused),
            refused_more=more,
        )

    def _refused_rows(self) -> list[str]:
        refused = self.parked.refused
        count = len(refused) + self.parked.refused_more
        if not count:
            return []
        rows = [f"  {show_name(r.path)}: {show_name(r.rule)}" for r in refused[:_ROWS_MAX]]
        more = [f"  [and {count - _ROWS_MAX} more]"] if count > _ROWS_MAX else []
        return [f"changes refused: {count}", *rows, *more]


def _action(change: StagedChange) -> Action:
    operation = "delete"
    if isinstance(change, WriteFile | MakeDirectory):
        operation = "create"
    elif isinstance(change, MakeLink):
        operation = "link"
    elif isinstance(change, SetMetadata):
        operation = "mode"
    return Action("file", operation, change.path.relative)


SPEC: Final = ToolSpec(
    name="commit_parked",
    title="Commit kept changes",
    description="Commit what a command left, after it was approved. For people, not for models.",
    toolset="operator",
    arguments=CommitArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=result_schema(
        {
            "changes": {"type": "array", "items": {"type": "object"}},
            "changes_refused": {"type": "array", "items": {"type": "object"}},
            "not_listed": {"type": "object", "description": "How many paths the lists leave out."},
        }
    ),
)


def commit_tool(
    parked: ParkedSet, history: History, journal: Journal, git: Git
) -> Tool[CommitArguments]:
    return Tool(SPEC, CommitParked(parked, history, journal, git))
