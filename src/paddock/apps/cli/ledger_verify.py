"""`paddock ledger verify`, `checkpoint`, `proof`, `accept-rollback` and `set-aside`."""

from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from paddock.apps.cli.ledger import NAMES
from paddock.apps.cli.ledger_query import read_note, require_ledger
from paddock.apps.command import Options, Reply, fields, find_site, write_new_file
from paddock.apps.console import EXIT_INTEGRITY, EXIT_NO, Console
from paddock.assembly import audit
from paddock.assembly.ledgers import ledger_of
from paddock.assembly.project import PlaneSite
from paddock.errors import ConfigError, HostError, LedgerDamagedError, PaddockError, UsageError
from paddock.ledger import tree
from paddock.ledger.format import notes
from paddock.ledger.query import Filter, query
from paddock.ledger.read import find_genesis, gone_error
from paddock.ledger.tail import LedgerPaths
from paddock.ledger.verify import Held, Verification
from paddock.plane.layout import LedgerName
from paddock.text.show import quote
from paddock.values.calls import Json


def run_verify(options: Options, console: Console) -> int:
    site = find_site(options, console)
    paths = site.layout.ledger_paths()
    known = audit.ledgers_known(site, NAMES)
    names = [LedgerName(options.ledger)] if options.ledger else known
    # Threat: a ledger whose file was removed has no line left that could fail.
    gone = [name for name in names if name in known and not paths[name].exists()]
    given = [_read_given(each, console) for each in options.checkpoint]
    there = [name for name in names if name not in gone]
    unplaced = _unplaced(given, site, there)
    reports: dict[LedgerName, Verification] = {}
    faults: dict[LedgerName, PaddockError] = {}
    for name in there:
        # Threat: one unreadable ledger would hide damage to the others.
        try:
            reports[name] = _audited(site, name, given, unplaced, full=options.full)
        except UsageError:
            raise
        except PaddockError as fault:
            faults[name] = fault
    kept = {each.held.source for each in given}
    reply = _reply(reports, faults, kept, is_any=bool(names), is_copy=site.is_copy)
    reply.show(options, console)
    for name in gone:
        console.report(gone_error(paths[name], name))
    for problem in unplaced:
        console.report(LedgerDamagedError(problem.why, where=problem.held.source))
    wrong = [each for name in reports if options.full for each in _wrong_index(paths[name])]
    for error in wrong:
        console.report(error)
    is_damaged = bool(gone or unplaced or wrong) or not all(
        report.is_whole for report in reports.values()
    )
    unread = list(faults.values())
    # If nothing is damaged, the first fault is raised: it sets the exit status and is reported.
    for fault in unread if is_damaged else unread[1:]:
        console.report(fault)
    if unread and not is_damaged:
        raise unread[0]
    return EXIT_INTEGRITY if is_damaged else 0


def _reply(
    reports: dict[LedgerName, Verification],
    faults: dict[LedgerName, PaddockError],
    kept: set[str],
    *,
    is_any: bool,
    is_copy: bool,
) -> Reply:
    found = {name: audit.report_json(report) for name, report in reports.items()}
    unread = {
        name: {"whole": False, "error": fault.message, **fields(fault, "code", "where")}
        for name, fault in faults.items()
    }
    text: list[str] = []
    for name, report in reports.items():
        text += audit.report_rows(name, report, is_copy=is_copy)
    text += [
        f"{name}: extends {each.source}, which has {each.size} entries"
        for name, report in reports.items()
        for each in report.agreements
        if each.source in kept
    ]
    text += [f"{name}: NOT VERIFIED, {fault.message}" for name, fault in faults.items()]
    return Reply({**found, **unread}, text if is_any else "no ledger exists yet", is_ours=True)


class _Given(NamedTuple):
    held: Held
    origin: str
    why: str


def _read_given(name: str, console: Console) -> _Given:
    held = Held(f"{name!a}", read_note(name, console))
    try:
        checkpoint = notes.read_checkpoint(held.note)
    except notes.NoteError as fault:
        return _Given(held, "", fault.message)
    why = f"a checkpoint of {checkpoint.origin!a}, which is not a ledger of this plane"
    return _Given(held, checkpoint.origin, why)


def _unplaced(given: list[_Given], site: PlaneSite, names: list[LedgerName]) -> list[_Given]:
    """Return the checkpoints of no ledger here, so that a forged one is reported, not ignored."""
    origins = {_origin(site, name) for name in names}
    return [each for each in given if not each.origin or each.origin not in origins]


def _origin(site: PlaneSite, name: LedgerName) -> str:
    path = site.layout.ledger_paths()[name]
    try:
        genesis = find_genesis(str(path)) if path.exists() else None
    except PaddockError:
        return ""  # reported when the ledger is verified
    return "" if genesis is None else genesis.origin


def _audited(
    site: PlaneSite, name: LedgerName, given: list[_Given], unplaced: list[_Given], *, full: bool
) -> Verification:
    require_ledger(site, name)
    origin = _origin(site, name)
    mine = [each.held for each in given if each not in unplaced and each.origin == origin]
    asked = audit.Audit(mine, full=full, parsed=full)
    return audit.audit_ledger(ledger_of(site, name), asked)


def _wrong_index(path: Path) -> list[PaddockError]:
    from paddock.ledger.index import is_wrong

    index = LedgerPaths(str(path)).index
    try:
        if not is_wrong(str(path)):
            return []
    except PaddockError as fault:
        return [fault]
    return [
        LedgerDamagedError(
            "the index does not match the ledger: ledger query may miss entries",
            where=ascii(index),
            hint=f"remove {index}: it is rebuilt from the ledger",
        )
    ]


_SET_ASIDE: Final = "keep it as it is, and start a new ledger? [y/N] "
_ACCEPT: Final = "continue from these entries? checkpoints signed before no longer count [y/N] "


def run_checkpoint(options: Options, console: Console) -> int:
    site, name = audit.site_to_write(find_site(options, console)), LedgerName(options.ledger)
    require_ledger(site, name)
    with closing(ledger_of(site, name).open()) as ledger:
        signed = ledger.seal()
    if options.out is not None:
        write_new_file(Path(console.directory / options.out), [signed.note.encode()])
    if options.json:
        made = signed.checkpoint
        named = {"ledger": name, **fields(made, "origin", "size"), "root": made.root.hex()}
        console.write_json({**named, "note": signed.note})
    elif options.out is None:
        console.write_bytes(signed.note.encode())
    return 0


def run_proof(options: Options, console: Console) -> int:
    site, entry = find_site(options, console), options.entry
    if (entry is None) == (options.since is None):
        raise UsageError(
            "give one of SEQ, CALL-ID or --from SIZE", hint="paddock ledger proof --help"
        )
    is_call = isinstance(entry, str)
    usual = LedgerName.HO1M if is_call else LedgerName.GOVERNANCE
    name = LedgerName(options.ledger or usual)
    path = str(require_ledger(site, name))
    if entry is None:
        signed = _newest(site, name, path, options.since)
        _show_consistency(tree.prove_consistency(path, options.since, signed), options, console)
        return 0
    numbers = _entries_of(path, name, entry, console) if is_call else [entry]
    newest = query(path, Filter(), last=1).entries
    if newest and max(numbers) > newest[-1].seq:
        count = newest[-1].seq + 1
        raise UsageError(
            f"the ledger {name} has {count} entries, 0 to {count - 1}, and no entry {max(numbers)}",
            where="SEQ|CALL-ID",
            hint=f"paddock ledger query --ledger {name} --last 1 shows the newest",
        )
    signed = _newest(site, name, path, max(numbers) + 1)
    for number in numbers:
        proof = tree.prove_inclusion(path, number, signed)
        if not options.json:
            console.write_bytes(proof.text.encode())
            continue
        hashes: list[Json] = [each.hex() for each in proof.hashes]
        proved = {**fields(proof, "seq", "size"), "leaf": proof.leaf.hex(), "hashes": hashes}
        console.write_json({**proved, "note": proof.note})
    return 0


def _entries_of(path: str, name: LedgerName, call_id: str, console: Console) -> list[int]:
    rows = query(path, Filter(call_id=call_id))
    if rows.bad:
        console.advise(f"{len(rows.bad)} lines are not valid entries: paddock ledger verify")
    if not rows.entries:
        raise UsageError(
            f"the ledger {name} has no entry of the call {quote(call_id)}",
            where="SEQ|CALL-ID",
            hint=f"paddock ledger query --ledger {name} --json shows the ids of its calls",
        )
    for row in rows.entries:
        console.warn(f"entry {row.seq}: {row.entry.event_type}")
    return [row.seq for row in rows.entries]


def run_accept_rollback(options: Options, console: Console) -> Reply:
    site = audit.site_to_write(find_site(options, console))
    names = (LedgerName(options.ledger),) if options.ledger else audit.ORDER
    gone = audit.find_rolled_back(site.layout, site.environment, names)
    for each in gone:
        for problem in each.problems:
            (console.warn if options.json else console.say)(f"{each.name}: {problem.detail}")
    ledgers: list[Json] = [each.name for each in gone]
    if gone and not options.yes and not console.agrees(_ACCEPT):
        return Reply({"status": "error", "ledgers": ledgers}, "not accepted", EXIT_NO)
    by = "--yes" if options.yes else "person"
    for each in gone:
        audit.accept_rollback(ledger_of(site, each.name), each, by)
    said = "accepted and recorded" if gone else "no ledger is rolled back"
    return Reply({"status": "ok", "ledgers": ledgers}, said)


def run_set_aside(options: Options, console: Console) -> Reply:
    site, name = audit.site_to_write(find_site(options, console)), LedgerName(options.ledger)
    for each in audit.find_damage(ledger_of(site, name)):
        (console.warn if options.json else console.say)(f"{name}: {each}")
    if not options.yes and not console.agrees(_SET_ASIDE):
        return Reply({"status": "error", "ledger": name, "kept": None}, "not set aside", EXIT_NO)
    by = "--yes" if options.yes else "person"
    kept = str(audit.set_aside(ledger_of(site, name), by))
    said = f"{name} is kept in {kept}; a new ledger continues it, and records that"
    return Reply({"status": "ok", "ledger": name, "kept": kept}, said)


def _newest(site: PlaneSite, name: LedgerName, path: str, needed: int) -> notes.SignedCheckpoint:
    found = tree.find_signed(path)
    if found is not None and found.checkpoint.size >= needed:
        return found
    site = audit.site_to_write(site)
    try:
        with closing(ledger_of(site, name).open()) as ledger:
            return ledger.seal()
    except (ConfigError, HostError):
        # Without the key, an older checkpoint still proves the entries it covers.
        if found is None:
            raise
        return found


def _show_consistency(proof: tree.ConsistencyProof, options: Options, console: Console) -> None:
    root, hashes = proof.old_root.hex(), [each.hex() for each in proof.hashes]
    if not options.json:
        for row in (f"from {proof.old} {root}", *hashes, ""):
            console.say(row)
        console.write_bytes(proof.note.encode())
        return
    named: dict[str, Json] = {"from": proof.old, "root": root, "size": proof.size}
    console.write_json({**named, "hashes": list[Json](hashes), "note": proof.note})
