"""What stands in one entry of the journal, and how it is told from what a crash tore.

An entry is a file of lines, one record each:

    <SHA-256, 64 hex digits> <JSON, ASCII> LF

The digest is over the digest of the line before (the entry's own name before the first)
and the JSON, so no line of another entry, and none from before a torn one, is taken for
one of this entry. Records, in this order:

    intent   format, root, root_inode, token, directories (where temporary names may stand),
             label; perhaps a second root, by the name under which it stands in the first
    commit   steps: what stands where before and after. From here on the set is complete
             or is undone as a whole; before, it never happened
    undo     somebody was in the way: the set is being undone
    end      nothing is left to decide; temporary names may be removed

The commit is followed by NULs, over which the last two are written, so that a full disk
cannot keep an entry from being ended. What follows the last whole line is a record whose
write did not end, so nothing was done because of it.

Pure: bytes in, values out. Marks hold no device number, because a device may have
another one after a restart of the machine; a mark is compared within one directory.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from paddock.errors import IntegrityError
from paddock.values.calls import Json

FORMAT: Final = "paddock-journal/1"
FORMAT_BESIDE: Final = "paddock-journal/2"
"""Of an entry with a second root: who knows nothing of those must not settle it."""
RESERVE: Final = b"\0" * 512
"""Room for two short records, written together with the commit."""
_DIGEST_CHARS: Final = 64


class MarkKind(StrEnum):
    """What can stand at a path and be replaced."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Mark:
    """One entry, so that it can be told from any other: equal as long as nobody changed it."""

    kind: MarkKind
    inode: int
    size_bytes: int
    """0 for a directory, and so is the time: our own acts move both."""
    modified_ns: int
    held: str = ""
    """Of a directory: the digest of all that it holds."""


@dataclass(frozen=True, slots=True)
class SwapStep:
    """What stands at a path and what stands under a temporary name beside it change places.

    Either of them may be nothing: then it is a creation, or a removal.
    """

    directory: str
    """Relative to the root, `.` for the root."""
    name: str
    number: int
    """Of the temporary name, which is made of the entry's token and this."""
    old: Mark | None
    new: Mark | None


@dataclass(frozen=True, slots=True)
class Metadata:
    """Permission bits, all twelve, and perhaps a modification time."""

    mode: int
    modified_ns: int | None


@dataclass(frozen=True, slots=True)
class MetadataStep:
    """Metadata of one entry change in place."""

    directory: str
    name: str
    inode: int
    old: Metadata
    new: Metadata


Step = SwapStep | MetadataStep


@dataclass(frozen=True, slots=True)
class SecondRoot:
    """A directory elsewhere that stands for a name at the root."""

    name: str
    root: str
    """Absolute, without links."""
    root_inode: int


@dataclass(frozen=True, slots=True)
class Intent:
    """Where the steps will be: all that is needed to find what a dead owner left."""

    root: str
    """Absolute, without links."""
    root_inode: int
    token: str
    directories: tuple[str, ...]
    label: str = ""
    """What the committer calls the set; the recovery says it again."""
    beside: SecondRoot | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """What an entry says."""

    intent: Intent | None = None
    """None: the owner died before it began."""
    steps: tuple[Step, ...] | None = None
    """None: not committed."""
    is_undone: bool = False
    is_ended: bool = False


class RecordKind(StrEnum):
    """The four kinds of record, by their place in an entry."""

    INTENT = "intent"
    COMMIT = "commit"
    UNDO = "undo"
    END = "end"


def intent_payload(intent: Intent) -> Json:
    beside = intent.beside
    more: dict[str, Json] = {}
    if beside is not None:
        more["beside"] = [beside.name, beside.root, beside.root_inode]
    return {
        "format": FORMAT if beside is None else FORMAT_BESIDE,
        "record": RecordKind.INTENT,
        "root": intent.root,
        "root_inode": intent.root_inode,
        "token": intent.token,
        "directories": list(intent.directories),
        "label": intent.label,
        **more,
    }


def commit_payload(steps: tuple[Step, ...]) -> Json:
    return {"record": RecordKind.COMMIT, "steps": [_step_payload(step) for step in steps]}


def mark_payload(kind: RecordKind) -> Json:
    """The JSON of a record that says only its kind: undo, end."""
    return {"record": kind}


def _step_payload(step: Step) -> Json:
    if isinstance(step, MetadataStep):
        before: list[Json] = [step.old.mode, step.old.modified_ns]
        after: list[Json] = [step.new.mode, step.new.modified_ns]
        return ["metadata", step.directory, step.name, step.inode, before, after]
    old, new = _mark_payload(step.old), _mark_payload(step.new)
    return ["swap", step.directory, step.name, step.number, old, new]


def _mark_payload(mark: Mark | None) -> Json:
    if mark is None:
        return None
    return [mark.kind, mark.inode, mark.size_bytes, mark.modified_ns, mark.held]


def encode_line(previous: str, payload: Json) -> tuple[bytes, str]:
    # ASCII: a name that is not UTF-8 holds lone surrogates, which JSON escapes.
    text = json.dumps(payload, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    digest = _digest(previous, text)
    return b"%s %s\n" % (digest.encode("ascii"), text), digest


def _digest(previous: str, text: bytes) -> str:
    return hashlib.sha256(previous.encode("ascii") + b"\n" + text).hexdigest()


@dataclass(frozen=True, slots=True)
class Decoded:
    """An entry's records, and where and after which digest the next line goes."""

    records: Records
    last_digest: str
    end_bytes: int


def decode(name: str, content: bytes) -> Decoded:
    """The whole lines of an entry called `name`; what was torn is left out.

    Raises:
        IntegrityError: a whole line that does not say what a record says, or comes out
            of order: no crash makes one. Or another format.
    """
    records, previous, offset = Records(), name, 0
    while True:
        end = content.find(b"\n", offset)
        line = content[offset:end] if end >= 0 else b""
        text = line[_DIGEST_CHARS + 1 :]
        if line[: _DIGEST_CHARS + 1] != f"{_digest(previous, text)} ".encode("ascii"):
            return Decoded(records, previous, offset)
        records = _with_record(name, records, text)
        previous = line[:_DIGEST_CHARS].decode("ascii")
        offset = end + 1


def _with_record(name: str, records: Records, text: bytes) -> Records:
    try:
        payload: Json = json.loads(text)
        fields = _of(dict, payload)
        kind = RecordKind(_of(str, fields["record"]))
        if kind is RecordKind.INTENT and records.intent is None:
            return Records(_intent(fields))
        if kind is RecordKind.COMMIT and records.intent is not None and records.steps is None:
            steps = tuple(_step(_of(list, step)) for step in _of(list, fields["steps"]))
            return Records(records.intent, steps)
        if kind is RecordKind.UNDO and records.steps is not None and not records.is_ended:
            return Records(records.intent, records.steps, is_undone=True)
        if kind is RecordKind.END and records.steps is not None:
            return Records(records.intent, records.steps, records.is_undone, is_ended=True)
    except (ValueError, KeyError, TypeError, RecursionError) as failure:
        raise _unreadable(name) from failure
    raise _unreadable(name)


def _unreadable(name: str) -> IntegrityError:
    return IntegrityError(
        f"journal entry {name} has a whole line that is no record of {FORMAT}",
        hint="was it written by a newer paddock?",
    )


_T = TypeVar("_T", dict[str, Json], list[Json], str, int)


def _of(kind: type[_T], value: Json) -> _T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(kind.__name__)
    return value


def _intent(fields: dict[str, Json]) -> Intent:
    beside = None
    if fields["format"] == FORMAT_BESIDE:
        name, root, inode = _of(list, fields["beside"])
        beside = SecondRoot(_of(str, name), _of(str, root), _of(int, inode))
    elif fields["format"] != FORMAT:
        raise ValueError("format")
    return Intent(
        root=_of(str, fields["root"]),
        root_inode=_of(int, fields["root_inode"]),
        token=_of(str, fields["token"]),
        directories=tuple(_of(str, name) for name in _of(list, fields["directories"])),
        label=_of(str, fields["label"]),
        beside=beside,
    )


def _step(fields: list[Json]) -> Step:
    kind, directory, name, number, one, other = fields
    place = (_of(str, directory), _of(str, name), _of(int, number))
    if kind == "metadata":
        return MetadataStep(*place, _metadata(one), _metadata(other))
    if kind != "swap":
        raise ValueError("step")
    return SwapStep(*place, _mark(one), _mark(other))


def _metadata(value: Json) -> Metadata:
    mode, modified_ns = _of(list, value)
    return Metadata(_of(int, mode), None if modified_ns is None else _of(int, modified_ns))


def _mark(value: Json) -> Mark | None:
    if value is None:
        return None
    kind, inode, size_bytes, modified_ns, held = _of(list, value)
    return Mark(
        MarkKind(_of(str, kind)),
        _of(int, inode),
        _of(int, size_bytes),
        _of(int, modified_ns),
        _of(str, held),
    )
