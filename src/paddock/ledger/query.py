"""Find entries: read the newest first, return the newest last.

`query` uses the index and creates or extends it; code that makes decisions reads only the lines.
Either way each candidate line is parsed strictly and compared field by field, so that the same text
inside an entry's metadata does not match. Bad lines are part of the result.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from paddock import limits
from paddock.ledger.format.line import TIMESTAMP_SECONDS_MAX, encode_text, format_timestamp
from paddock.ledger.format.lines import BadLine, LineFault, StoredEntry, inspect_line
from paddock.ledger.read import LedgerReader, is_shaped, replaced_error, stands
from paddock.ledger.tail import LedgerPaths
from paddock.pattern import lazy_pattern
from paddock.plane.layout import LedgerName
from paddock.values.calls import Json
from paddock.values.decisions import PATH_CATEGORIES
from paddock.values.entries import AGENT_CHANGED, AGENT_CREATED, TOOL_INTENT, TOOL_RESULT, Entry

if TYPE_CHECKING:
    from paddock.ledger.index import Index

_ROOT: Final = "."
_PATH_ACTIONS: Final = tuple(f"tool:{category}:" for category in sorted(PATH_CATEGORIES))


def names_path(entry: Entry, path: str) -> bool:
    """Return True if an action, effect or refused change of the entry is at or below the path."""
    return next(named_paths(entry, path), None) is not None


def named_paths(entry: Entry, path: str) -> Iterator[str]:
    for named in _paths_of(entry):
        if path in {_ROOT, named} or named.startswith(f"{path}/"):
            yield named


def _paths_of(entry: Entry) -> Iterator[str]:
    for action in _items(entry, "actions"):
        head, _, target = action.partition(" ") if isinstance(action, str) else ("", "", "")
        if head.startswith(_PATH_ACTIONS):
            yield target or _ROOT
    for each in (*_items(entry, "effects"), *_items(entry, "refused")):
        named = cast("dict[str, Json]", each) if isinstance(each, dict) else {}
        yield from (path for path in map(named.get, ("path", "to")) if isinstance(path, str))


def _hosts_of(entry: Entry) -> Iterator[str]:
    yield str(entry.metadata.get("host", ""))
    for action in _items(entry, "actions"):
        head, _, target = action.partition(" ") if isinstance(action, str) else ("", "", "")
        if head.startswith("tool:net:"):
            yield target.rpartition(":")[0] or target


def _items(entry: Entry, name: str) -> list[Json]:
    kept = entry.metadata.get(name)
    return cast("list[Json]", kept) if isinstance(kept, list) else []


_FIELDS: Final = {
    "type": ("event_type", b'"event_type":'),
    "session": ("session_id", b'"session_id":'),
    "call": ("call_id", b":"),
    "agent": ("agent", b'"agent":'),
    "decision": ("decision", b'"decision":'),
}
"""By index column: the field, and the bytes before its value (a call id may be in metadata)."""
_HALF_MICROSECOND: Final = 5e-7
_NEWEST: Final = "9999-12-31T23:59:59.999999Z"


class Filter(Struct, frozen=True):
    """Conditions on an entry; None matches any. `since`, `until`: seconds since 1970, inclusive."""

    event_type: str | None = None
    session_id: str | None = None
    call_id: str | None = None
    agent: str | None = None
    decision: str | None = None
    since: float | None = None
    until: float | None = None
    path: str | None = None
    without: str | None = None  # an event type to leave out
    tool: str | None = None
    host: str | None = None
    outcome: str | None = None  # the decision, or `error` if the call failed

    def matches(self, stored: StoredEntry) -> bool:
        entry = stored.entry
        metadata = entry.metadata
        calls = (None, entry.call_id, metadata.get("client_call"))
        return (
            self.event_type in {None, entry.event_type}
            and entry.event_type != self.without
            and self.session_id in {None, entry.session_id}
            and self.call_id in calls
            and self.agent in {None, entry.agent}
            and self.decision in {None, entry.decision}
            and (self.since is None or stored.timestamp >= _bound(self.since))
            and (self.until is None or stored.timestamp <= _bound(self.until))
            and (self.path is None or names_path(entry, self.path))
            and self.tool in (None, metadata.get("tool"))
            and self.outcome in (None, entry.decision, *map(metadata.get, ("outcome", "status")))
            and (self.host is None or self.host in _hosts_of(entry))
        )

    def keys(self) -> dict[str, bytes]:
        wanted = {kind: getattr(self, name) for kind, (name, _) in _FIELDS.items()}
        return {kind: encode_text(text)[1:-1] for kind, text in wanted.items() if text is not None}

    def needles(self) -> list[bytes]:
        texts = filter(None, (self.path, self.tool, self.host, self.outcome))
        given = [encode_text(text)[1:-1] for text in texts]
        return [
            *given,
            *(b'%b"%b"' % (_FIELDS[kind][1], text) for kind, text in self.keys().items()),
        ]

    def span(self) -> dict[str, bytes]:
        bounds = {"since": self.since, "until": self.until}
        return {name: _bound(at).encode() for name, at in bounds.items() if at is not None}


def _bound(seconds: float) -> str:
    is_late = seconds >= TIMESTAMP_SECONDS_MAX
    return _NEWEST if is_late else format_timestamp(seconds + _HALF_MICROSECOND)


class BadRow(Struct, frozen=True):
    offset_bytes: int
    fault: LineFault
    detail: str


class Rows(Struct, frozen=True):
    entries: tuple[StoredEntry, ...]
    bad: tuple[BadRow, ...]
    bad_omitted: int
    unfinished_bytes: int


def query(path: str, wanted: Filter, *, last: int | None = None, before: int | None = None) -> Rows:
    """Return the `last` newest matches with `seq` below `before`. Not evidence: uses the index."""
    with closing(LedgerSearch(path)) as search:
        return search.query(wanted, last=last, before=before)


def query_lines(path: str, wanted: Filter, *, last: int | None = None) -> Rows:
    """Query without the index: anyone who can write beside the ledger can make it hide lines."""
    with LedgerReader(path) as reader:
        size = reader.size()
        end = reader.whole_bytes(size)
        return _collect(reader.lines_backwards(end), wanted, last, size - end)


class LedgerSearch:
    # Not safe to share between threads.
    def __init__(self, path: str) -> None:
        self._reader = LedgerReader(path)
        self._index: Index | None = None

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
        self._reader.close()

    def query(self, wanted: Filter, *, last: int | None = None, before: int | None = None) -> Rows:
        reader = self._reader
        if not reader.keep_up():
            raise replaced_error(reader.path)
        size = reader.size()
        end = reader.whole_bytes(size)
        place = end if before is None else _place_of(reader, before, end)
        is_small = self._index is None and size <= limits.ledger_unindexed_bytes_max
        is_short = is_small and not os.path.lexists(LedgerPaths(reader.path).index)
        if (wanted.keys() or wanted.span()) and not is_short:
            from paddock.ledger.index import Index, StaleIndexError  # noqa: PLC0415 - loads SQLite

            self._index = self._index or Index(LedgerPaths(reader.path))
            try:
                lines = self._indexed(self._index, wanted, end)
                older = (row for row in lines if row[0] < place)
                return _collect(older, wanted, last, size - end)
            except StaleIndexError:
                self._index.remove()
        return _collect(reader.lines_backwards(place), wanted, last, size - end)

    def _indexed(self, index: "Index", wanted: Filter, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines not indexed yet, then indexed ones; index the rest if it is long."""
        reader, position = self._reader, end
        covered = index.covered(reader, end)
        for position, line in reader.lines_backwards(end, covered.end):
            yield position, line
            if end - position > limits.ledger_unindexed_bytes_max:
                index.extend(reader, end)
                covered = index.covered(reader, end)
                yield from reader.lines_backwards(position, covered.end)
                break
        if covered.entries:
            for offset, line in index.lines(reader, wanted.keys() | wanted.span(), covered):
                if offset < position:
                    yield offset, line


def _collect(
    lines: Iterable[tuple[int, bytes]], wanted: Filter, last: int | None, unfinished_bytes: int
) -> Rows:
    found: list[StoredEntry] = []
    bad: list[BadRow] = []
    omitted = 0
    needles = wanted.needles()
    if last is None or last > 0:
        for row in _parsed(lines, lambda line: all(needle in line for needle in needles)):
            if isinstance(row, StoredEntry):
                if wanted.matches(row):
                    found.append(row)
            elif len(bad) < limits.ledger_problems_listed_max:
                bad.append(row)
            else:
                omitted += 1
            if len(found) == last:
                break
    return Rows(tuple(found[::-1]), tuple(bad[::-1]), omitted, unfinished_bytes)


def _parsed(
    lines: Iterable[tuple[int, bytes]], may_match: Callable[[bytes], bool]
) -> Iterator[StoredEntry | BadRow]:
    for offset, line in lines:
        if may_match(line) or not is_shaped(line):
            row = inspect_line(line)
            yield BadRow(offset, row.fault, row.detail) if isinstance(row, BadLine) else row


def _newest_first(path: str, may_match: Callable[[bytes], bool]) -> Iterator[StoredEntry | BadRow]:
    with LedgerReader(path) as reader:
        yield from _parsed(reader.lines_backwards(reader.whole_bytes(reader.size())), may_match)


_NUMBER: Final = lazy_pattern(rb',"seq":(0|[1-9]\d{0,15}),"prev":"[0-9a-f]{64}"\}')
_NUMBER_BYTES: Final = 120


def _place_of(reader: LedgerReader, seq: int, end: int) -> int:
    """Return the offset of the first entry with `seq` or more, by bisection."""
    begin = 0
    while begin < end:
        middle = reader.whole_bytes((begin + end) // 2)
        middle = end if middle <= begin else middle
        for offset, line in reader.lines_backwards(middle, begin):
            found = _NUMBER.search(line, max(0, len(line) - _NUMBER_BYTES))
            if found is not None:
                begin, end = (middle, end) if int(found[1]) < seq else (begin, offset)
                break
        else:
            begin = middle
    return end


def find_numbered(path: str, seq: int) -> StoredEntry | None:
    found = query(path, Filter(), last=1, before=seq + 1).entries
    return found[0] if found and found[0].seq == seq else None


def find_decided(
    path: str, event_types: Sequence[str], wanted: Filter, holding: bytes = b""
) -> Iterator[StoredEntry | BadRow]:
    """Yield entries of these types that `wanted` matches, newest first, without the index."""
    kinds = [f'"event_type":"{name}"'.encode() for name in event_types]
    needles = (*wanted.needles(), holding)

    def may_match(line: bytes) -> bool:
        return any(kind in line for kind in kinds) and all(needle in line for needle in needles)

    for row in _newest_first(path, may_match):
        if isinstance(row, BadRow) or (row.entry.event_type in event_types and wanted.matches(row)):
            yield row


_RESULT = f'"event_type":"{TOOL_RESULT}"'.encode()
_INTENT = f'"event_type":"{TOOL_INTENT}"'.encode()
_NO_EFFECTS = b'"effects":[]'


class FoundEffects(Struct, frozen=True):
    """Newest last. `bad`: lines that hold no entry."""

    results: tuple[StoredEntry, ...]
    """`TOOL_RESULT` entries with effects, or with effects recorded as unknown."""
    intents: tuple[StoredEntry, ...]
    bad: tuple[BadRow, ...]


def find_effects(path: str, intents_of: Sequence[str] = ()) -> FoundEffects:
    agents = [f'"agent":"{name}"'.encode() for name in intents_of]

    def may_match(line: bytes) -> bool:
        is_intent = _INTENT in line and any(name in line for name in agents)
        return is_intent or (_RESULT in line and _NO_EFFECTS not in line)

    return effects_in([*_newest_first(path, may_match)][::-1], intents_of)


def effects_in(
    rows: Sequence[StoredEntry | BadRow], intents_of: Sequence[str] = ()
) -> FoundEffects:
    """Sort rows into results, intents of these agents, and bad lines."""
    stored = [row for row in rows if isinstance(row, StoredEntry)]
    calls = [row for row in stored if row.entry.event_type == TOOL_RESULT]
    results = [row for row in calls if row.entry.metadata.get("effects")]
    asked = [row for row in stored if row.entry.agent in intents_of]
    intents = [row for row in asked if row.entry.event_type == TOOL_INTENT]
    bad = [row for row in rows if isinstance(row, BadRow)]
    return FoundEffects(tuple(results), tuple(intents), tuple(bad))


def find_declarations(path: str) -> tuple[StoredEntry, ...]:
    found = find_decided(path, (AGENT_CREATED, AGENT_CHANGED), Filter())
    return tuple(reversed([row for row in found if isinstance(row, StoredEntry)]))


_NOTHING: Final = Rows((), (), 0, 0)
_PASSED_MAX: Final = 1_000


class Ledgers(Struct, frozen=True):
    paths: Mapping[LedgerName, Path]

    def newest_first(self, name: LedgerName) -> Iterator[StoredEntry | BadRow]:
        path = self.paths[name]
        return _newest_first(str(path), lambda _: True) if stands(path) else iter(())

    def query(self, name: LedgerName, wanted: Filter, last: int | None, skip: int = 0) -> Rows:
        """Return the `last` newest after `skip` newer ones, which are read in small batches."""
        path, before = self.paths[name], None
        while stands(path):
            passed = query(str(path), wanted, last=min(skip, _PASSED_MAX), before=before)
            if not passed.entries:
                return query(str(path), wanted, last=last, before=before) if skip < 1 else _NOTHING
            skip, before = skip - len(passed.entries), passed.entries[0].seq
        return _NOTHING
