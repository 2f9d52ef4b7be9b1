"""Entries of all ledgers, newest first; one of them whole, with its call; and what goes on now.

Only the lines are read: no index is made by a look. A search that takes long ends, and says
from where the next one goes on.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal, cast

from msgspec import Meta

import paddock
from paddock import limits
from paddock.agent.recorded import list_sessions
from paddock.apps.command import seconds_of
from paddock.apps.web.desk import Desk, HttpRefusal, entry_json, error_json, row_json, state_of
from paddock.apps.web.inbox import open_requests
from paddock.assembly.history import NamedContent, contents_of_call, read_output
from paddock.assembly.past import UndoStanding, open_past
from paddock.assembly.project import Project
from paddock.assembly.questions import decided_now, told_calls
from paddock.assembly.sessions import sessions_of
from paddock.errors import PaddockError, UsageError
from paddock.ledger.format.lines import BadLine, StoredEntry, inspect_line
from paddock.ledger.query import BadRow, Filter, find_numbered, query
from paddock.ledger.read import LedgerReader, gone_error, is_known, is_shaped
from paddock.plane.layout import LedgerName
from paddock.text.json import Strict
from paddock.values import entries
from paddock.values.calls import Json

_RECENT: Final = 50
_LOOKED_AT: Final = 500
_REFUSED_MAX: Final = 20
_SESSIONS_MAX: Final = 10
_RUNNING_S: Final = 3600
"""An intent without its end that is older than this is taken for one that was killed."""
_OUTPUT_CHARS_MAX: Final = 100_000
_BAD_MAX: Final = 50


class TimelineAsked(Strict, frozen=True):
    ledger: LedgerName | None = None
    type: str | None = None
    agent: str | None = None
    session: str | None = None
    call: str | None = None
    tool: str | None = None
    outcome: Literal["allow", "confine", "ask", "deny", "failed"] | None = None
    path: str | None = None
    host: str | None = None
    since: str | None = None
    until: str | None = None
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100

    def filter(self) -> Filter:
        return Filter(
            event_type=self.type,
            session_id=self.session,
            call_id=self.call,
            agent=self.agent,
            since=seconds_of(self.since, "since"),
            until=seconds_of(self.until, "until"),
            path=self.path,
        )

    def matches(self, row: StoredEntry) -> bool:
        """What no filter of the ledger's own asks for."""
        metadata = row.entry.metadata
        outcomes = (metadata.get("outcome"), row.entry.decision)
        is_failed = self.outcome == "failed" and state_of(row.entry) == "failed"
        return (
            self.tool in (None, metadata.get("tool"))
            and (self.outcome is None or is_failed or self.outcome in outcomes)
            and (self.host is None or self.host in _hosts(row.entry))
        )

    def positions(self) -> dict[str, int]:
        """Where an earlier answer ended, by ledger: byte offsets. Raises: HttpRefusal."""
        pairs = [part.partition(":") for part in self.before.split(",") if part]
        if not all(at.isascii() and at.isdecimal() and len(at) < 18 for _, _, at in pairs):
            raise HttpRefusal(400, "args.invalid", "before is no cursor of an earlier answer")
        return {name: int(at) for name, _, at in pairs}


def _hosts(entry: entries.Entry) -> Iterator[str]:
    yield str(entry.metadata.get("host", ""))
    actions = entry.metadata.get("actions")
    for action in cast("list[Json]", actions) if isinstance(actions, list) else []:
        head, _, target = str(action).partition(" ")
        if head.startswith("tool:net:"):
            yield target.rpartition(":")[0] or target


_TIME: Final = slice(58, 85)
"""Of a line that is shaped as an entry's."""


class _Source:
    """The entries of one ledger that are wanted, from a place in it backwards."""

    def __init__(
        self, name: str, reader: LedgerReader, asked: TimelineAsked, end: int | None, until: float
    ) -> None:
        self.name, self._asked, self._wanted, self._until = name, asked, asked.filter(), until
        self._needles = self._wanted.needles()
        last = reader.whole_bytes(reader.size())
        self.position = last if end is None else min(end, last)
        """Nothing behind it is wanted any more."""
        self._lines = reader.lines_backwards(self.position)
        self.newest: StoredEntry | None = None
        self._offset = self.position
        self.bad: list[Json] = []
        self.is_cut = False
        self.looked_at = ""
        self.advance()

    def advance(self) -> None:
        self.position, self.newest = self._offset, None
        for offset, line in self._lines:
            self._offset = offset
            row = self._parsed(offset, line)
            if row is not None and self._wanted.matches(row) and self._asked.matches(row):
                self.newest = row
                return
            self.position = offset
            if time.monotonic() > self._until:
                self.is_cut = True
                return

    def _parsed(self, offset: int, line: bytes) -> StoredEntry | None:
        if is_shaped(line):
            self.looked_at = line[_TIME].decode(errors="replace")
            span = self._wanted.span()
            if not span.get("since", b"") <= line[_TIME] <= span.get("until", b"\xff"):
                return None
            if not all(needle in line for needle in self._needles):
                return None
        found = inspect_line(line)
        if isinstance(found, BadLine) and len(self.bad) < _BAD_MAX:
            said: dict[str, Json] = {"fault": found.fault, "detail": found.detail}
            self.bad.append({"ledger": self.name, "offset_bytes": offset, **said})
        return found if isinstance(found, StoredEntry) else None


def search(desk: Desk, asked: TimelineAsked) -> dict[str, Json]:
    until, ends = time.monotonic() + limits.web_search_s, asked.positions()
    rows: list[Json] = []
    damaged: list[Json] = []
    names = [name for name in desk.ledgers() if asked.ledger in (None, name)]
    with ExitStack() as held:
        sources: list[_Source] = []
        for name in names:
            try:
                path = _known(desk.ledgers()[name], name)
                if path is not None:
                    reader = held.enter_context(LedgerReader(str(path)))
                    sources.append(_Source(name, reader, asked, ends.get(name), until))
            except PaddockError as error:
                damaged.append({"ledger": name, "error": error_json(error)})
        while len(rows) < asked.limit and not any(each.is_cut for each in sources):
            there = [each for each in sources if each.newest is not None]
            if not there:
                break
            source = max(there, key=_when)
            rows.append(row_json(source.name, cast("StoredEntry", source.newest)))
            source.advance()
    is_more = any(each.is_cut or each.newest is not None for each in sources)
    cursor = ",".join(f"{each.name}:{each.position}" for each in sources)
    return {
        "entries": rows,
        "next": cursor if is_more else None,
        "searched_to": min(filter(None, (each.looked_at for each in sources)), default=None),
        "bad": [bad for each in sources for bad in each.bad],
        "damaged": damaged,
    }


def _when(source: _Source) -> str:
    return "" if source.newest is None else source.newest.timestamp


def _known(path: Path, name: LedgerName) -> Path | None:
    if not path.exists() and is_known(path):
        raise gone_error(path, name)
    return path if path.exists() else None


class NowAsked(Strict, frozen=True):
    pass


def show_now(desk: Desk, asked: NowAsked) -> dict[str, Json]:
    rows: list[tuple[LedgerName, StoredEntry]] = []
    damaged: list[Json] = []
    for name, path in desk.ledgers().items():
        try:
            found = query(str(path), Filter(), last=_LOOKED_AT) if _known(path, name) else None
        except PaddockError as error:
            damaged.append({"ledger": name, "error": error_json(error)})
            continue
        rows += [(name, row) for row in found.entries] if found else []
        bad = found.bad if found else ()
        damaged += [{"ledger": name, "error": _bad_error(each)} for each in bad]
    rows.sort(key=lambda each: (each[1].timestamp, each[1].seq), reverse=True)
    refused = [row_json(*each) for each in rows if state_of(each[1].entry) == "refused"]
    return {
        "version": paddock.__version__,
        "root": str(desk.site.root.path),
        "name": desk.site.root.path.name,
        "agents": _agents(rows),
        "running": [row_json(*each) for each in _running(rows)],
        "refused": list[Json](refused[:_REFUSED_MAX]),
        "recent": [row_json(*each) for each in rows[:_RECENT]],
        "damaged": damaged,
        **_of_project(desk),
    }


def _bad_error(bad: BadRow) -> dict[str, Json]:
    said = f"byte {bad.offset_bytes}: {bad.fault}: {bad.detail}"
    hint = "paddock ledger verify"
    return {"code": "ledger.damaged", "message": said, "where": "", "hint": hint}


def _of_project(desk: Desk) -> dict[str, Json]:
    """What depends on what governs: where that does not load, the rest is shown, and this said."""
    found: dict[str, Json] = {"notices": [], "sessions": [], "waiting": [], "walls": []}
    try:
        project = desk.project()
        found["notices"] = list[Json](project.notices)
        found["walls"] = _walls(project)
        found["waiting"] = [each for each in open_requests(project) if each["state"] == "waiting"]
        sessions = list_sessions(sessions_of(project))[: -_SESSIONS_MAX - 1 : -1]
        found["sessions"] = [each.as_json() for each in sessions]
    except PaddockError as error:
        found["notices"] = [error.render()]
    return found


def _agents(rows: Iterable[tuple[LedgerName, StoredEntry]]) -> list[Json]:
    found: dict[str, dict[str, Json]] = {}
    for _, row in rows:
        if not row.entry.agent or row.entry.event_type not in _CALLS:
            continue
        usual: dict[str, Json] = {"name": row.entry.agent, "at": row.timestamp}
        agent = found.setdefault(row.entry.agent, {**usual, "calls": 0, "refused": 0})
        agent["calls"] = cast("int", agent["calls"]) + 1
        is_refused = state_of(row.entry) == "refused"
        agent["refused"] = cast("int", agent["refused"]) + is_refused
    return list[Json](found.values())


_CALLS: Final = frozenset({entries.TOOL_RESULT, entries.TOOL_DENIED, entries.HOOK_DECISION})
_ENDS: Final = frozenset({entries.TOOL_RESULT, entries.TOOL_DENIED})


def _running(
    rows: Iterable[tuple[LedgerName, StoredEntry]],
) -> list[tuple[LedgerName, StoredEntry]]:
    ended: set[tuple[str, str]] = set()
    found: list[tuple[LedgerName, StoredEntry]] = []
    since = Filter(since=time.time() - _RUNNING_S)
    for name, row in rows:
        key = (row.entry.session_id, row.entry.call_id)
        if row.entry.event_type in _ENDS:
            ended.add(key)
        elif row.entry.event_type == entries.TOOL_INTENT and key not in ended:
            ended.add(key)
            found += [(name, row)] if since.matches(row) else []
    return found


def _walls(project: Project) -> list[Json]:
    """What stands between agents and the rest, in one sentence each."""
    from paddock.assembly.runtimes import STAGING  # noqa: PLC0415 - it loads every tool
    from paddock.sandbox.backends import examine_host  # noqa: PLC0415 - it tries each, once

    shell = project.policy.settings.shell
    best = examine_host(project.environment.paddock_home / STAGING)[0]
    state = {"full": "on", "partial": "partly"}.get(best.enforcement.value, "off")
    own = project.files.project
    is_trusted = own is None or own.trusted
    policy = "the policy is in force" if is_trusted else f"the policy is not trusted: {own.reason}"
    nets = {"none": "commands reach nothing", "host": "commands reach what this machine reaches"}
    net = nets.get(shell.network, "commands reach what policy names, and each is on record")
    return [
        {"name": "files", "state": "on" if is_trusted else "partly", "said": policy},
        {
            "name": "commands",
            "state": state,
            "said": best.cause or "; ".join(best.gaps) or "the kernel holds every command",
        },
        {"name": "network", "state": "off" if shell.network == "host" else state, "said": net},
        {"name": "record", "state": "on", "said": "every call is on record before it runs"},
    ]


class EntryAsked(Strict, frozen=True):
    ledger: LedgerName
    seq: Annotated[int, Meta(ge=0)]


def require_entry(desk: Desk, asked: EntryAsked) -> StoredEntry:
    path = _known(desk.ledgers()[asked.ledger], asked.ledger)
    found = None if path is None else find_numbered(str(path), asked.seq)
    if found is None:
        said = f"the ledger {asked.ledger} has no entry {asked.seq}"
        raise HttpRefusal(404, "web.unknown", said)
    return found


def show_entry(desk: Desk, asked: EntryAsked) -> dict[str, Json]:
    stored = require_entry(desk, asked)
    is_call = bool(stored.entry.call_id)
    call = _call_json(desk, stored) if is_call else None
    return {"entry": entry_json(asked.ledger, stored), "call": call}


def _call_json(desk: Desk, stored: StoredEntry) -> dict[str, Json]:
    entry = stored.entry
    wanted = Filter(call_id=entry.call_id, session_id=entry.session_id or None)
    rows: list[tuple[LedgerName, StoredEntry]] = []
    for name, path in desk.ledgers().items():
        if path.exists():
            rows += [(name, row) for row in query(str(path), wanted).entries]
    rows.sort(key=lambda each: (each[1].timestamp, each[1].seq))
    found: dict[str, Json] = {"entries": [entry_json(*each) for each in rows]}
    found |= {"told": None, "now": None, "text": "", "diff": None, "outputs": []}
    calls, governance = desk.ledgers()[LedgerName.HO1M], desk.ledgers()[LedgerName.GOVERNANCE]
    told, _ = told_calls(calls, entry.call_id, governance, entry.session_id)
    if told:
        found |= {"told": told[0].as_json(), "text": told[0].render()}
        found["now"] = decided_now(desk.project, told[0]).as_json()
    # The record is shown whatever has become of the project since.
    with suppress(PaddockError):
        project = desk.project()
        found["outputs"] = [*_outputs(project, entry.call_id)]
        found |= _changes(project, [row.id for _, row in rows])
    return found


def _changes(project: Project, ids: Iterable[str]) -> Mapping[str, Json]:
    with open_past(project) as past:
        call = next((each for each in past.calls if each.entry_id in set(ids)), None)
        if call is None:
            return {"can_undo": False, "standing": "", "entry_id": ""}
        standing = past.standing(call)
        found: dict[str, Json] = {
            "can_undo": standing is UndoStanding.UNDOABLE,
            "standing": standing,
            "entry_id": call.entry_id,
        }
        with suppress(UsageError):  # its agent works elsewhere by now
            found["diff"] = past.diff(call).as_json()
        return found


def _outputs(project: Project, call_id: str) -> Iterator[Json]:
    for each in islice(contents_of_call(project, call_id), _OUTPUTS_MAX):
        if each.is_output:
            yield _output(project, each)


_OUTPUTS_MAX: Final = 20


def _output(project: Project, named: NamedContent) -> dict[str, Json]:
    content = read_output(project, named.digest) or b""
    text = content.decode("utf-8", "backslashreplace")
    return {
        "stream": named.argument,
        "digest": named.digest,
        "bytes": named.size_bytes,
        "text": text[:_OUTPUT_CHARS_MAX],
        "is_cut": len(text) > _OUTPUT_CHARS_MAX or len(content) < named.size_bytes,
    }
