"""Verify a plane's ledgers against checkpoints kept elsewhere; accept, set aside, export.

A ledger is compared with its signer's last checkpoint, the anchor (for governance, the highest),
the entries in the ledger above, the notes beside it, and the caller's checkpoints.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.json import encode
from msgspec.structs import asdict, replace

import paddock
from paddock import errors
from paddock.assembly import ledgers
from paddock.assembly.ledgers import PlaneLedger, ledger_of
from paddock.assembly.project import PlaneSite, Project
from paddock.ledger.anchors import Anchor
from paddock.ledger.checkpoint import set_aside_notes
from paddock.ledger.export import Exported, PageText, export_page, make_page
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.lines import StoredEntry, inspect_line, parse_genesis
from paddock.ledger.format.notes import NoteError, read_checkpoint
from paddock.ledger.query import BadRow, Filter, find_decided
from paddock.ledger.read import (
    LedgerReader,
    find_genesis,
    gone_error,
    is_known,
    list_starts,
    stands,
    unfinished,
)
from paddock.ledger.signing import load_key, read_signed
from paddock.ledger.tail import LedgerPaths
from paddock.ledger.tree import checkpoints_folder, read_notes
from paddock.ledger.verify import (
    ChainFault,
    Held,
    LedgerProblem,
    Remembered,
    Verification,
    verify,
)
from paddock.plane import discover
from paddock.plane.environment import Environment, anchor_directory
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.storage import atomic
from paddock.storage.disk import Disk
from paddock.text.json import BrokenJsonError, read_json
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import CHECKPOINT, ROLLBACK_ACCEPTED, Entry, clean

_COMPARED: Final = 64
"""Checkpoints of the ledger above that a fast verification compares; a full one compares all."""
_MEMORY_BYTES_MAX: Final = 16_000_000
_FORMAT: Final = 2


class Audit(Struct, frozen=True):
    given: Sequence[Held] = ()
    full: bool = False
    parsed: bool = False


_USUAL: Final = Audit()


def audit_ledger(ledger: PlaneLedger, asked: Audit = _USUAL) -> Verification:
    signed, anchor = _signed(ledger), _anchor_of(ledger)
    anchored = [] if anchor is None else anchor.read()
    held = [
        *signed,
        *(Held(anchor.where, note) for note in anchored if anchor is not None),
        *_from_above(ledger, None if asked.full else _COMPARED),
        *asked.given,
    ]
    file = anchor_directory(ledger.layout, ledger.environment) / f"{ledger.name}.verified"
    since = None if asked.full or asked.given else _read_memory(file)
    found = verify(str(ledger.path), held=held, since=since, parse_all=asked.parsed)
    if found.memory is not None:
        _keep_memory(file, found.memory)
    if anchor is not None and signed and not anchored:
        return replace(found, problems=(*found.problems, _nothing_anchored(anchor)))
    return found


def site_to_write(site: PlaneSite) -> PlaneSite:
    """Return the site for a command that writes; a copy is refused as by any other one.

    Threat: keys are found by the plane's name: a copy that is signed makes the plane itself look
    rolled back, and what is accepted in a copy is forgotten for the plane too.
    """
    if not site.is_copy:
        return site
    root = discover.find_root(site.layout.root, site.environment, site.layout.root)
    return PlaneSite(root, discover.plane_for(root, site.environment), site.environment)


def is_held_elsewhere(ledger: PlaneLedger) -> bool:
    """Return True if the ledger must exist: the one above has a checkpoint of it.

    For governance, its key has one. Threat: a ledger that was removed with all files beside it
    leaves no trace there. Raises: HostError, ConfigError if a checkpoint cannot be read.
    """
    return bool(_signed(ledger) if ledger.above is None else _from_above(ledger, 1))


def ledgers_known(site: PlaneSite, names: Sequence[LedgerName]) -> list[LedgerName]:
    known = (ledger_of(site, name) for name in names)
    return [each.name for each in known if is_known(each.path) or is_held_elsewhere(each)]


def verify_not_gone(ledger: PlaneLedger) -> None:
    if not stands(ledger.path) and is_held_elsewhere(ledger):
        raise gone_error(ledger.path, ledger.name)


def _signed(ledger: PlaneLedger) -> list[Held]:
    if ledgers.ledger_settings(ledger.environment).signer:
        last = ledger.signer().last()
        note = None if last is None else last.note
    else:
        # Read only the note: an auditor may not have the key.
        note = read_signed(ledger.key_file)
    return [] if note is None else [Held("what its key signed last", note)]


def _anchor_of(ledger: PlaneLedger) -> Anchor | None:
    if ledger.above is not None:
        return None
    genesis = find_genesis(str(ledger.path))
    return ledger.anchor("" if genesis is None else genesis.origin)


def _nothing_anchored(anchor: Anchor) -> LedgerProblem:
    """Report an empty anchor if the ledger's key has signed a checkpoint.

    Threat: a directory that is not mounted, or another branch, holds nothing that could
    contradict a ledger that was restored together with its key.
    """
    return LedgerProblem(
        ChainFault.ANCHOR,
        line=0,
        seq=0,
        offset_bytes=0,
        detail=f"{anchor.where} holds no checkpoint, and the ledger's key signed some; "
        "a new anchor gets its first with paddock ledger checkpoint",
    )


def _from_above(ledger: PlaneLedger, last: int | None) -> list[Held]:
    """Return the checkpoints that the ledger above holds of this one: the `last`, or all (None).

    It reads lines, not the index: an attacker who can write beside that ledger could hide rows.
    """
    above = ledger.above
    if above is None or not above.path.exists():
        return []
    found: list[Held] = []
    for row in find_decided(str(above.path), (CHECKPOINT, ROLLBACK_ACCEPTED), Filter()):
        # Leave a line that holds no entry to the verification of the ledger above.
        if isinstance(row, BadRow) or row.entry.metadata.get("ledger") != ledger.name:
            continue
        note = row.entry.metadata.get("note")
        if row.entry.event_type == ROLLBACK_ACCEPTED or len(found) == last:
            break
        if isinstance(note, str):
            # Check the newest one's signature; the others only have to agree with it.
            is_authentic = bool(found)
            source = f"entry {row.seq} of {above.name}"
            found.append(Held(source, note, is_outside=False, is_authentic=is_authentic))
    return found[::-1]


class _Memory(Remembered, frozen=True):
    format: int = 0


def _read_memory(file: Path) -> Remembered | None:
    # Ignore a memory that does not load: then the whole ledger is read.
    try:
        content = atomic.read_file(file, _MEMORY_BYTES_MAX)
        kept = None if content is None else convert(read_json(content.decode()), _Memory)
    except (errors.ConfigError, errors.HostError, BrokenJsonError, ValidationError, ValueError):
        return None
    return kept if kept is not None and kept.format == _FORMAT else None


def _keep_memory(file: Path, memory: Remembered) -> None:
    atomic.make_directories(file.parent)
    atomic.replace_file(file, encode(_Memory(**asdict(memory), format=_FORMAT)))


class PlaneWitness(Struct, frozen=True):
    """See `LedgerWitness`. Keys and anchors are outside of the plane."""

    project: Project

    def expects(self, name: LedgerName) -> bool:
        return is_held_elsewhere(ledger_of(self.project, name))

    def knows_plane(self) -> bool:
        governance = ledger_of(self.project, LedgerName.GOVERNANCE)
        if self._has_signer or governance.key_file.exists():
            return True
        if not self._anchors.exists():
            return False
        anchor = _anchor_of(governance)
        return bool(_signed(governance)) or (anchor is not None and bool(anchor.read()))

    def verify(self, name: LedgerName, path: Path) -> Verification:
        """See `LedgerWitness`. Threat: a ledger that was cut or restored verifies on its own."""
        ledger = ledger_of(self.project, name)
        is_known = ledger.key_file.exists() or self._anchors.exists()
        if not is_known and not self._has_signer:
            return verify(str(path))  # a plane from elsewhere: nothing is known about it here
        return audit_ledger(ledger, Audit(full=True))

    def problem(self, name: LedgerName, found: Verification) -> str:
        """See `LedgerWitness`. Threat: another ledger, which verifies, was put in its place."""
        file = ledger_of(self.project, name).key_file
        if not file.exists() or found.genesis is None:
            return ""
        expected = str(load_key(str(file)).verifier)
        is_own = found.genesis.public_key == expected
        return "" if is_own else "it was made with another key than this plane's"

    @property
    def _anchors(self) -> Path:
        """This host's anchors of the plane, which remain if the keys are lost."""
        return anchor_directory(self.project.layout, self.project.environment)

    @property
    def _has_signer(self) -> bool:
        return bool(ledgers.ledger_settings(self.project.environment).signer)


# Accepting a rollback: earlier checkpoints are kept under other names. The acceptance is an
# entry of the ledger itself and of the one above, or for the highest goes to the anchor; an
# auditor who kept an earlier checkpoint still sees that the ledger contradicts it.

_ACCEPTABLE: Final = frozenset({ChainFault.ROLLED_BACK, ChainFault.REWRITTEN, ChainFault.ANCHOR})
ORDER: Final = (LedgerName.GOVERNANCE, LedgerName.PACKAGES, LedgerName.HO2M, LedgerName.HO1M)
"""Highest first: an acceptance is recorded in the ledger above."""


_ACCEPTED: Final = "the ledger was rolled back, and a person accepts that"
_SET_ASIDE: Final = "the ledger was damaged: a person set it aside, and this one replaces it"


class RolledBack(Struct, frozen=True):
    name: LedgerName
    entries: int
    problems: tuple[LedgerProblem, ...]
    evidence: Mapping[str, Json] = {}
    """The place and the last good entry of a ledger that was set aside."""


def find_rolled_back(
    layout: PlaneLayout, environment: Environment, names: tuple[LedgerName, ...]
) -> list[RolledBack]:
    found: list[RolledBack] = []
    above = set(map(ledgers.LEDGER_ABOVE.get, names))
    for name in ORDER:
        ledger = PlaneLedger(layout, environment, name)
        if name not in names and (ledger.path.exists() or name not in above):
            continue
        if not stands(ledger.path):
            # As in a plane that was created again. A missing ledger above is accepted too: it is
            # created again to record the rollback, and its key still has the earlier checkpoint.
            found += [RolledBack(name, 0, (_all_missing(each),)) for each in _signed(ledger)]
            continue
        report = audit_ledger(ledger, Audit(full=True))
        if report.problems:
            _require_acceptable(name, report)
            rolled_back = RolledBack(name, report.entries, report.problems)
            begun = _find_begun(ledger) or rolled_back
            found.append(replace(rolled_back, evidence=begun.evidence))
    return found


def _all_missing(held: Held) -> LedgerProblem:
    count = "some"
    with suppress(NoteError):
        count = str(read_checkpoint(held.note).size)
    lost = f"the ledger is missing: {count} entries were signed ({held.source})"
    return LedgerProblem(ChainFault.ROLLED_BACK, 0, 0, 0, lost)


def accept_rollback(ledger: PlaneLedger, gone: RolledBack, by: str) -> None:
    entry = Entry(
        ROLLBACK_ACCEPTED,
        reason=_SET_ASIDE if gone.evidence else _ACCEPTED,
        metadata={
            "ledger": ledger.name,
            "entries": gone.entries,
            "by": by,
            "found": [clean(each.detail) for each in gone.problems],
            **gone.evidence,
        },
    )
    # Sequence: recorded here, without a checkpoint → above → contradicting checkpoints dropped →
    # a new one → anchor. Until both entries are durable a checkpoint contradicts the ledger: after
    # a kill it still fails and is accepted again, or all is on record.
    signer, above = ledger.signer(), ledger.above
    with ExitStack() as opened:
        # All are opened first: if the one above is damaged, nothing is recorded here either.
        *upper, own = (
            opened.enter_context(closing(each.open()))
            for each in (above, ledger)
            if each is not None
        )
        _, mark, segment = own.write([entry])
        own.commit(mark, segment)
        for each in upper:
            each.append([entry])
    signer.forget()
    set_aside_notes(checkpoints_folder(str(ledger.path)), 0)
    signed = ledger.checkpointer().make()
    anchor = _anchor_of(ledger)
    if anchor is None:
        ledger.take(signed)
    else:
        anchor.accept_rollback(signed)


def _require_acceptable(name: LedgerName, report: Verification) -> None:
    other = [each for each in report.problems if each.kind not in _ACCEPTABLE]
    if other:
        raise errors.LedgerDamagedError(
            f"the ledger {name} is damaged: {other[0].detail}",
            where=f"line {other[0].line}",
            hint=f"paddock ledger verify --ledger {name}",
        )


# A damaged ledger is evidence: keep it unchanged, with all files beside it, and begin another.
# Sequence: moved, file by file, the folder last → the evidence read → accepted like a rollback.
# Until the folder is moved no process can begin another ledger in its place, and until the
# acceptance is on record the last checkpoint contradicts that one. It also names the directory: so
# after a kill the same command finds what was moved, and continues.


def find_damage(ledger: PlaneLedger) -> tuple[str, ...]:
    """Return why a ledger cannot be used any more. Raises: UsageError if it can."""
    path, name = ledger.path, ledger.name
    if not path.exists():
        if is_known(path) or is_held_elsewhere(ledger):
            return (gone_error(path, name).message,)
        raise errors.UsageError(f"the ledger {name} does not exist yet", where="--ledger")
    try:
        report = audit_ledger(ledger, Audit(full=True, parsed=True))
        _require_acceptable(name, report)
    except errors.LedgerDamagedError as damaged:
        return (damaged.message,)
    if not report.problems:
        raise errors.UsageError(f"the ledger {name} is whole", where="--ledger")
    if (begun := _find_begun(ledger)) is not None:
        stopped = f"a set-aside that was stopped kept the one before in {begun.evidence['kept']}"
        return (*(each.detail for each in report.problems), stopped)
    hint = f"accept that: paddock ledger accept-rollback --ledger {name}"
    said = f"the ledger {name} was rolled back, and its lines are whole"
    raise errors.UsageError(said, hint=hint)


def set_aside(ledger: PlaneLedger, by: str) -> Path:
    """Keep a damaged ledger unchanged, begin another that names it, and return where it is."""
    if ledger.above is not None:
        # If the one above is damaged, fail before anything is moved: it has to be mended first.
        ledger.above.open().close()
    kept, _ = _place_aside(ledger)
    atomic.make_directories(kept)
    paths = LedgerPaths(str(ledger.path))
    moved = (paths.ledger, *map(paths.sealed, list_starts(Disk(), paths)), paths.folder)
    if _find_begun(ledger) is not None:
        moved = ()  # what is there now belongs to the new one
    with atomic.host_errors("setting aside", Path(paths.ledger)):
        for each in (each for each in map(Path, moved) if each.exists()):
            if (kept / each.name).exists():
                raise errors.HostError("another ledger is kept there already", where=str(kept))
            each.rename(kept / each.name)
            atomic.sync_directory(kept)
            atomic.sync_directory(each.parent)
    accept_rollback(ledger, _read_evidence(ledger), by)
    return kept


def _place_aside(ledger: PlaneLedger) -> tuple[Path, list[str]]:
    signed = [each.note for each in _signed(ledger)]
    title = f"{ledger.name}.{hashlib.sha256(''.join(signed).encode()).hexdigest()[:16]}"
    return ledger.layout.objects / "set-aside" / title, signed


def _find_begun(ledger: PlaneLedger) -> RolledBack | None:
    """Return the evidence of a set-aside that was stopped after it had begun the new ledger."""
    kept, _ = _place_aside(ledger)
    if not ledger.path.exists() or not kept.is_dir() or not any(kept.iterdir()):
        return None
    found = audit_ledger(ledger, Audit(full=True, parsed=True)).problems
    is_sound = _ACCEPTABLE.issuperset(each.kind for each in found)
    return _read_evidence(ledger) if is_sound else None


def _read_evidence(ledger: PlaneLedger) -> RolledBack:
    name, (kept, signed) = ledger.name, _place_aside(ledger)
    evidence: dict[str, Json] = {
        "kept": kept.relative_to(ledger.layout.root).as_posix(),
        "signed": [clean(each) for each in signed],
    }
    file = kept / ledger.path.name
    if not file.exists():
        return RolledBack(name, 0, (), evidence)
    try:
        held = [Held("what its key signed last", each) for each in signed]
        report = verify(str(file), held=held, parse_all=True)
    except errors.PaddockError as fault:
        problem = LedgerProblem(ChainFault.CHANGED, 0, 0, 0, fault.message)
        return RolledBack(name, 0, (problem,), evidence)
    good = min((each.line - 1 for each in report.problems if each.line), default=report.entries)
    with LedgerReader(str(file)) as reader:
        lines = chain.from_iterable(lines for _, lines in reader.lines())
        last = next(islice(lines, good - 1, good), None) if good else None
    head: Json = None if last is None else {"seq": good - 1, "hash": leaf_hash(last)}
    return RolledBack(name, report.entries, report.problems, {**evidence, "good": head})


class LedgerPage(NamedTuple):
    content: bytes
    found: Exported
    notes: list[str]


def ledger_page(
    path: Path, name: str, wanted: Filter | None, last: int | None, others: Sequence[str] = ()
) -> LedgerPage:
    """Export a page that verifies itself, with the newest checkpoint beside it and `others`."""
    newest = [note for _, note in read_notes(checkpoints_folder(str(path)))[-1:]]
    notes = list(dict.fromkeys((*newest, *others)))
    sizes: list[int] = []
    for note in notes:
        with suppress(NoteError):
            sizes.append(read_checkpoint(note).size)
    found = export_page(str(path), wanted, last, sizes)
    return LedgerPage(make_page(_page_text(name, found, notes), found.rows), found, notes)


def _page_text(name: str, found: Exported, notes: list[str]) -> PageText:
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    about = (
        f"{found.shown} of {found.lines} lines, exported {now} by Paddock {paddock.__version__}."
    )
    if found.torn_bytes:
        about += f" {found.torn_bytes} bytes after the last whole line were left out."
    key, first = "", found.rows[0] if found.rows else b""
    stored = inspect_line(first) if isinstance(first, bytes) else None
    if isinstance(stored, StoredEntry):
        with suppress(errors.PaddockError):
            key = parse_genesis(stored).public_key
    return PageText(f"Ledger {name}", about, key, notes)


def report_rows(name: str, report: Verification, *, is_copy: bool = False) -> Iterator[str]:
    state = "whole" if report.is_whole else "DAMAGED"
    head = "" if report.head is None else f", head {report.head.seq} {report.head.hash[:16]}"
    yield f"{name}: {state}, {report.entries} entries{head}"
    for problem in report.problems:
        where = f"line {problem.line} (seq {problem.seq}, byte {problem.offset_bytes}): "
        yield f"  {where if problem.line else ''}{problem.kind}: {problem.detail}"
    if report.problems_omitted:
        yield f"  {report.problems_omitted} more problems are not shown"
    # No command changes a copied plane, so none is proposed.
    kinds = set[ChainFault]() if is_copy else {each.kind for each in report.problems}
    if kinds - _ACCEPTABLE:
        yield f"  to continue without it: paddock ledger set-aside --ledger {name}"
    elif kinds - {ChainFault.ANCHOR}:
        yield "  restored on purpose? then: paddock ledger accept-rollback"
    for open_ in report.unanswered:
        call = f"{show_name(open_.tool)} (call {show_name(open_.call_id)}, seq {open_.seq})"
        yield f"  unknown outcome: {call}"
    if report.torn_bytes:
        torn = unfinished(report.torn_bytes)
        yield f"  {torn}" + ("; the next append sets them aside" if report.is_whole else "")
    if report.unread_entries:
        yield (
            f"  {report.unread_entries} entries were found whole before, in files that were not "
            "touched since: --full reads them again"
        )
    if report.is_whole and report.covered_entries:
        yield f"  entries 0 to {report.covered_entries - 1} are as they were signed"
    if report.uncovered:
        yield f"  {report.uncovered}"


def report_json(report: Verification) -> dict[str, Json]:
    head = None if report.head is None else {"seq": report.head.seq, "hash": report.head.hash}
    return {
        "whole": report.is_whole,
        "entries": report.entries,
        "head": head,
        "problems": [to_builtins(each) for each in report.problems],
        "problems_omitted": report.problems_omitted,
        "unknown": [
            {"seq": each.seq, "call_id": each.call_id, "tool": each.tool}
            for each in report.unanswered
        ],
        "torn_bytes": report.torn_bytes,
        "covered_entries": report.covered_entries,
        "uncovered_entries": max(0, report.entries - report.covered_entries),
        "uncovered": report.uncovered,
        "unread_entries": report.unread_entries,
        "checkpoints": [{"source": each.source, "size": each.size} for each in report.agreements],
    }
