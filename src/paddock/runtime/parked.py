"""A call that waits for somebody's answer, as its file keeps it. Pure.

The arguments are kept whole, for the call may be resumed: the file is private to the
plane's owner (mode 0600), and ledgers hold only the digest.
"""

import json
from functools import partial
from typing import Annotated, Any, Final, Literal, cast

from msgspec import Meta, Struct

from paddock.errors import (
    ApprovalExpiredError,
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
from paddock.plane.json_files import JsonFile, parse_file
from paddock.policy.settings import Git
from paddock.runtime.approvals import ApprovalRequest
from paddock.sandbox.changes.commit import Footing
from paddock.sandbox.changes.parking import ParkedSet, digests_of
from paddock.storage.history import History, current_call
from paddock.storage.journal import Journal
from paddock.text.json import Strict
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, needed_text, result_schema
from paddock.tools.effects import change_json, changes_of, within_entry
from paddock.tools.spec import Effects, Ports, RefusedPath, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.values.entries import digest_of_json
from paddock.workspace.apply import commit_changes, note_changes
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


class Parked(Struct, frozen=True):
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


_Time = Annotated[int, Meta(ge=0, le=_TIME_MAX)]


class _ParkedFile(Strict, frozen=True, kw_only=True):
    format: int
    id: str
    state: State = "waiting"
    agent: str
    tool: str
    actions: tuple[str, ...]
    reason: str
    rule: str
    digest: str
    policy_digest: str
    target_digest: str
    call_id: str
    session_id: str
    parked_at: _Time
    expires_at: _Time
    answered_by: str
    note: str
    diff: str
    has_changes: Any = None
    # An older version says neither what policy warned of, nor what was filled in; its digest is
    # none of ours either.
    warnings: tuple[str, ...] = ()


_OF_THE_CALL: Final = ("arguments", "filled")


def parse_parked(content: bytes, file: str) -> Parked:
    """The request that a file holds; `file` is for messages. Raises: ConfigError."""
    given = parse_file(content, file)
    # What the call brought may hold half of a surrogate pair, and the rest not.
    brought = {name: given.members.get(name, {}) for name in (*_OF_THE_CALL, "changes")}
    rest = {name: each for name, each in given.members.items() if name not in brought}
    read = JsonFile(file, rest, content).convert(_ParkedFile)
    if read.format != FORMAT:
        raise given.error("format", "this Paddock does not know the format", "remove the file")
    for name in _OF_THE_CALL:
        if not isinstance(brought[name], dict) or "arguments" not in given.members:
            raise given.error(name, f"the {name} are no object", "remove the file")
    request = ApprovalRequest(
        **{
            name: getattr(read, name)
            for name in ApprovalRequest.__struct_fields__
            if name in read.__struct_fields__
        },
        **cast("Any", {name: brought[name] for name in _OF_THE_CALL}),
    )
    return Parked(
        id=read.id,
        request=request,
        parked_at=read.parked_at,
        expires_at=read.expires_at,
        state=read.state,
        answered_by=read.answered_by,
        note=read.note,
        changes=given.members.get("changes"),
    )


def digest_of_changes(changes: Json) -> str:
    return digest_of_json(changes)


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
            receipt = commit_changes(
                ports.workspace,
                self.parked.phases,
                self.history.store,
                self.journal,
                label="" if running is None else running.mark.call_id,
                witness=partial(note_changes, self.history),
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
        tree, parked, store = ports.workspace, self.parked, self.history.store
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
