"""Push a plane's ledgers to a collector, and record in the collector's plane what it accepted.

An accepted checkpoint is recorded in governance after it was accepted: if a kill in between
prevents that, the next run records it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock import limits
from paddock.assembly.audit import Audit, audit_ledger, verify_not_gone
from paddock.assembly.ledgers import LEDGER_TIERS, ledger_of, record_in_governance
from paddock.assembly.project import Project
from paddock.collector.accept import Pushed, RecordedCheckpoint, push_ledger, read_key
from paddock.collector.chains import Accepted, Chain, Store
from paddock.errors import LedgerDamagedError, UsageError
from paddock.ledger.format.lines import VerifierKey
from paddock.ledger.query import BadRow, Filter, find_decided
from paddock.plane.layout import LedgerName
from paddock.values.entries import CHECKPOINT_ACCEPTED, Entry

if TYPE_CHECKING:
    from paddock.collector.postgres import PostgresStore

_DSN_HINT: Final = "give --dsn, or set PADDOCK_COLLECTOR"


def open_collector(dsn: str) -> "PostgresStore":
    if not dsn:
        raise UsageError("no collector is named", where="--dsn", hint=_DSN_HINT)
    # Imported here: nothing else needs the library, and few have it.
    from paddock.collector.postgres import PostgresStore  # noqa: PLC0415 - an extra

    return PostgresStore(dsn)


def chain_of(host: str, key: VerifierKey) -> Chain:
    ledger = key.name.rpartition("/")[2]
    if ledger not in LEDGER_TIERS:
        raise UsageError(
            f"the key {key.name!a} does not belong to a plane's ledger",
            where="--key",
            hint="paddock collector keys prints them, on the host",
        )
    return Chain(host, ledger, LEDGER_TIERS[LedgerName(ledger)], key)


def ledger_keys(project: Project) -> Mapping[str, VerifierKey]:
    paths = project.layout.ledger_paths()
    return {name: read_key(path) for name, path in paths.items() if _exists(project, name)}


def _exists(project: Project, name: LedgerName) -> bool:
    ledger = ledger_of(project, name)
    verify_not_gone(ledger)
    return ledger.path.exists()


class Push(Struct, frozen=True):
    pushed: tuple[Pushed, ...]
    unenrolled: tuple[str, ...]


def push_plane(
    project: Project, store: Store, host: str, on_progress: Callable[[str, int, int], object]
) -> Push:
    enrolled = {each.ledger: each for each in store.progress(host)}
    if not enrolled:
        raise UsageError(
            f"the collector knows no host {host!a}",
            where="HOST",
            hint="paddock collector enroll, on the collector",
        )
    pushed: list[Pushed] = []
    unenrolled: list[str] = []
    for name, path in project.layout.ledger_paths().items():
        if not _exists(project, name):
            # Threat: an attacker who removes a ledger could remove every trace of it on this host.
            if name in enrolled and enrolled[name].accepted:
                raise LedgerDamagedError(
                    f"the collector accepted {enrolled[name].accepted} entries of the ledger "
                    f"{name}, which is missing here",
                    where=ascii(str(path)),
                    hint="restore it from a backup; have the collector enroll a new plane under "
                    "another name",
                )
            continue
        if name not in enrolled:
            unenrolled.append(name)
            continue

        def report(done: int, total: int, name: str = name) -> None:
            on_progress(name, done, total)

        pushed.append(push_ledger(store, path, host, enrolled[name], report))
    return Push(tuple(pushed), tuple(unenrolled))


def recorded_checkpoints(project: Project) -> Sequence[RecordedCheckpoint]:
    """Return the accepted checkpoints of this plane's governance ledger, oldest first.

    It reads lines, not the index: an attacker who can write beside a ledger could hide rows.
    Raises: HostError, ConfigError; LedgerDamagedError if the ledger is missing.
    """
    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not _exists(project, LedgerName.GOVERNANCE):
        return []
    found: list[RecordedCheckpoint] = []
    for row in find_decided(str(path), (CHECKPOINT_ACCEPTED,), Filter()):
        if isinstance(row, BadRow):
            continue  # `audit_record` reports it
        said = row.entry.metadata
        size = said.get("size")
        if isinstance(size, int):
            host, ledger, root = (str(said.get(name)) for name in ("host", "ledger", "root"))
            found.append(RecordedCheckpoint(host, ledger, size, root, row.seq))
    return found[::-1]


def audit_record(project: Project) -> Sequence[str]:
    """List the problems of the ledger that `recorded_checkpoints` reads, one per line.

    Threat: an attacker who truncates a host's chain could also truncate its record here.
    Raises: HostError, ConfigError; LedgerDamagedError if the ledger is missing.
    """
    if not _exists(project, LedgerName.GOVERNANCE):
        return []
    found = audit_ledger(ledger_of(project, LedgerName.GOVERNANCE), Audit(full=True))
    problems = [
        f"{f'entry {each.seq}: ' if each.line else ''}{each.kind}: {each.detail}"
        for each in found.problems
    ]
    if found.problems_omitted:
        problems.append(f"{found.problems_omitted} more problems are not shown")
    return problems


def record_accepted(project: Project, store: Store) -> int:
    known = {
        (each.host, each.ledger, each.size, each.root) for each in recorded_checkpoints(project)
    }
    entries = [
        _entry(chain, each)
        for chain in store.chains()
        for each in store.accepted(chain)
        if (chain.host, chain.ledger, each.head.size, each.head.root.hex()) not in known
    ]
    for at in range(0, len(entries), limits.ledger_batch_entries_max):
        record_in_governance(project, *entries[at : at + limits.ledger_batch_entries_max])
    return len(entries)


def _entry(chain: Chain, accepted: Accepted) -> Entry:
    head = accepted.head
    return Entry(
        CHECKPOINT_ACCEPTED,
        metadata={
            "host": chain.host,
            "ledger": chain.ledger,
            "origin": chain.key.name,
            "size": head.size,
            "root": head.root.hex(),
            "note": head.note,
        },
    )
