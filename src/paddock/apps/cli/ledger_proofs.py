"""`paddock ledger checkpoint`, `proof` and `accept-rollback`."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from paddock.apps.cli.console import Console
from paddock.apps.cli.new_file import write_new_file
from paddock.apps.cli.options import Options
from paddock.assembly.auditing import WentBack, accept_rollback, find_gone_back, ledgers_known
from paddock.assembly.ledgers import open_plane_ledger
from paddock.assembly.site import PlaneSite
from paddock.errors import ConfigError, HostError, UsageError
from paddock.ledger.checkpoints import checkpoints_folder, read_notes
from paddock.ledger.format.genesis import VerifierKey
from paddock.ledger.format.notes import SignedCheckpoint
from paddock.ledger.presence import gone_error, is_known
from paddock.ledger.proof import (
    ConsistencyProof,
    InclusionProof,
    prove_consistency,
    prove_inclusion,
)
from paddock.ledger.query import Filter, query
from paddock.ledger.scan import find_genesis
from paddock.ledger.signing import open_note
from paddock.plane.layout import LedgerName
from paddock.text.show import quote
from paddock.values.calls import Json

_GO_ON: Final = "go on from what is here? what was signed before counts no more [y/N] "


def run_checkpoint(site: PlaneSite, options: Options, console: Console) -> int:
    """Make a checkpoint, carry it up, and hand it out."""
    name = LedgerName(options.ledger)
    _require_ledger(site, name)
    with closing(open_plane_ledger(site.layout, site.environment, name)) as ledger:
        signed = ledger.seal()
    if options.out is not None:
        write_new_file(Path(console.directory / options.out), [signed.note.encode()])
    if options.json:
        checkpoint = signed.checkpoint
        console.write_json(
            {
                "ledger": name,
                "origin": checkpoint.origin,
                "size": checkpoint.size,
                "root": checkpoint.root.hex(),
                "note": signed.note,
            }
        )
    elif options.out is None:
        console.write_bytes(signed.note.encode())
    return 0


def run_proof(site: PlaneSite, options: Options, console: Console) -> int:
    """Prove an entry, the entries of a call, or that the ledger only grew."""
    entry = options.entry
    if (entry is None) == (options.since is None):
        raise UsageError(
            "give either SEQ, CALL-ID or --from SIZE", hint="paddock ledger proof --help"
        )
    is_call = isinstance(entry, str)
    usual = LedgerName.HO1M if is_call else LedgerName.GOVERNANCE
    name = LedgerName(options.ledger or usual)
    _require_ledger(site, name)
    path = str(site.layout.ledger_paths()[name])
    if entry is None:
        signed = _newest(site, name, path, options.since)
        _show_consistency(prove_consistency(path, options.since, signed), options, console)
        return 0
    numbers = _entries_of(path, name, entry, console) if is_call else [entry]
    _require_entry(path, name, max(numbers))
    signed = _newest(site, name, path, max(numbers) + 1)
    for number in numbers:
        _show_inclusion(prove_inclusion(path, number, signed), options, console)
    return 0


def _entries_of(path: str, name: LedgerName, call_id: str, console: Console) -> list[int]:
    """The numbers of a call's entries, oldest first, each said on stderr with what it is."""
    rows = query(path, Filter(call_id=call_id))
    if rows.bad:
        console.warn(f"{len(rows.bad)} lines of the ledger hold no entry: paddock ledger verify")
    if not rows.entries:
        raise UsageError(
            f"the ledger {name} has no entry of a call {quote(call_id)}",
            where="SEQ|CALL-ID",
            hint=f"paddock ledger query --ledger {name} --json shows the ids of its calls",
        )
    for row in rows.entries:
        console.warn(f"entry {row.seq}: {row.entry.event_type}")
    return [row.seq for row in rows.entries]


def run_rollback(
    site: PlaneSite, all_names: Sequence[LedgerName], options: Options, console: Console
) -> int:
    """0 accepted, or nothing to accept; 1 not."""
    layout, environment = site.layout, site.environment
    known = ledgers_known(layout, environment, all_names)
    names = (LedgerName(options.ledger),) if options.ledger else tuple(known)
    gone = find_gone_back(layout, environment, names)
    for each in gone:
        for problem in each.problems:
            (console.warn if options.json else console.say)(f"{each.name}: {problem.detail}")
    if gone and not options.yes and not console.agrees(_GO_ON):
        return _end(options, console, gone, is_accepted=False)
    for each in gone:
        accept_rollback(layout, environment, each, "--yes" if options.yes else "person")
    return _end(options, console, gone, is_accepted=True)


def _end(options: Options, console: Console, gone: list[WentBack], *, is_accepted: bool) -> int:
    names: list[Json] = [each.name for each in gone]
    if options.json:
        console.write_json({"status": "ok" if is_accepted else "error", "ledgers": names})
    elif not gone:
        console.say("no ledger went back")
    else:
        console.say("accepted, and on record" if is_accepted else "not accepted")
    return 0 if is_accepted else 1


def _require_ledger(site: PlaneSite, name: LedgerName) -> None:
    path = site.layout.ledger_paths()[name]
    if not path.exists():
        if is_known(path):
            raise gone_error(path, name)
        raise UsageError(f"the ledger {name} does not exist yet", where="--ledger")


def _require_entry(path: str, name: str, number: int) -> None:
    rows = query(path, Filter(), last=1).entries
    if rows and number > rows[-1].seq:
        count = rows[-1].seq + 1
        raise UsageError(
            f"the ledger {name} has {count} entries, 0 to {count - 1}, and no entry {number}",
            where="SEQ|CALL-ID",
            hint=f"paddock ledger query --ledger {name} --last 1 shows the newest",
        )


def _newest(site: PlaneSite, name: LedgerName, path: str, needed: int) -> SignedCheckpoint:
    """The newest checkpoint; a new one where that does not cover so many entries."""
    found: SignedCheckpoint | None = None
    genesis = find_genesis(path)
    notes = read_notes(checkpoints_folder(path))
    if notes and genesis is not None:
        found = open_note(notes[-1][1], VerifierKey.parse(genesis.public_key))
        if found.checkpoint.size >= needed:
            return found
    try:
        with closing(open_plane_ledger(site.layout, site.environment, name)) as ledger:
            return ledger.seal()
    except (ConfigError, HostError):
        # Without the key an older checkpoint still proves what it covers.
        if found is None:
            raise
        return found


def _show_inclusion(proof: InclusionProof, options: Options, console: Console) -> None:
    if not options.json:
        console.write_bytes(proof.text.encode())
        return
    console.write_json(
        {
            "seq": proof.seq,
            "size": proof.size,
            "leaf": proof.leaf.hex(),
            "hashes": [each.hex() for each in proof.hashes],
            "note": proof.note,
        }
    )


def _show_consistency(proof: ConsistencyProof, options: Options, console: Console) -> None:
    if not options.json:
        console.say(f"from {proof.old} {proof.old_root.hex()}")
        for each in proof.hashes:
            console.say(each.hex())
        console.say("")
        console.write_bytes(proof.note.encode())
        return
    console.write_json(
        {
            "from": proof.old,
            "root": proof.old_root.hex(),
            "size": proof.size,
            "hashes": [each.hex() for each in proof.hashes],
            "note": proof.note,
        }
    )
