"""Contents that a plane's ledgers name: opened, found by what names them, erased."""

import os
import re
from collections.abc import Sequence
from contextlib import closing
from typing import Final, cast

from msgspec import Struct

from paddock.assembly.history import look_at_history
from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import Project
from paddock.errors import UsageError
from paddock.ledger.query import Filter, query, query_lines
from paddock.ledger.read import stands
from paddock.pattern import lazy_pattern
from paddock.plane.layout import LedgerName
from paddock.storage.blobs import BlobStore
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import CONTENT_ERASED, DIGEST_PREFIX, Entry

BLOBS: Final = "blobs"
_DIGEST: Final = lazy_pattern(r"[0-9a-f]{64}", re.ASCII)


class NamedContent(Struct, frozen=True):
    call_id: str
    seq: int
    argument: str
    digest: str
    size_bytes: int
    is_output: bool = False
    """Kept in the history, and not to be erased alone."""


def open_blobs(project: Project) -> BlobStore:
    return BlobStore(project.layout.objects / BLOBS, os.urandom)


def contents_of_call(project: Project, call_id: str) -> tuple[NamedContent, ...]:
    """List what entries of this call name, oldest first; from the lines: an index may hide one."""
    path = project.layout.ledger_paths()[LedgerName.HO1M]
    if not stands(path):
        return ()
    return tuple(
        named
        for row in query_lines(str(path), Filter(call_id=call_id)).entries
        for named in _named(row.entry, row.seq)
    )


def read_output(project: Project, digest: str) -> bytes | None:
    """What a command printed, from the history; None where it is not there any more."""
    with look_at_history(project) as store:
        return store.read(f"sha256:{digest}") if store.has(f"sha256:{digest}") else None


def has_output(project: Project, digest: str) -> bool:
    """Whether `read_output` has something to read. Raises: ConfigError, HostError."""
    with look_at_history(project) as store:
        return store.has(f"sha256:{digest}")


def require_digest(text: str) -> str:
    """The salted digest that somebody typed. Raises: UsageError where it is none."""
    digest = text.removeprefix(DIGEST_PREFIX)
    if _DIGEST.fullmatch(digest) is None:
        raise UsageError(
            f"{quote(text)} is no digest of a content",
            hint="64 hexadecimal digits, as salted_sha256 or output_kept of an entry; or --call ID",
        )
    return digest


def erase_contents(project: Project, digests: Sequence[str], reason: str) -> tuple[str, ...]:
    """Erase contents and their salts, and put it on record; those that were there.

    Sequence: the entry is durable, then the contents go: after a kill, erase them again.
    """
    with closing(open_blobs(project)) as blobs:
        there = tuple(digest for digest in dict.fromkeys(digests) if blobs.has(digest))
        if not there:
            return ()
        record_in_governance(project, _erased(there, reason))
        for digest in there:
            blobs.erase(digest)
    return there


def find_erasure(project: Project, digest: str) -> int | None:
    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not stands(path):
        return None
    for row in reversed(query(str(path), Filter(event_type=CONTENT_ERASED)).entries):
        if digest in cast("list[Json]", row.entry.metadata.get("digests", [])):
            return row.seq
    return None


def _erased(digests: Sequence[str], reason: str) -> Entry:
    return Entry(
        CONTENT_ERASED,
        reason=reason or "an operator erased contents",
        metadata={"digests": list(digests)},
    )


def _named(entry: Entry, seq: int) -> list[NamedContent]:
    found = _outputs(entry, seq)
    arguments = entry.metadata.get("arguments")
    if not isinstance(arguments, dict):
        return found
    for name, value in cast("dict[str, Json]", arguments).items():
        if not isinstance(value, dict):
            continue
        kept = cast("dict[str, Json]", value)
        digest, size = kept.get("salted_sha256"), kept.get("bytes")
        # One with its salt in the entry was never kept.
        if isinstance(digest, str) and type(size) is int and "salt" not in kept:
            found.append(NamedContent(entry.call_id, seq, name, digest, size))
    return found


def _outputs(entry: Entry, seq: int) -> list[NamedContent]:
    streams = entry.metadata.get("output_kept")
    if not isinstance(streams, dict):
        return []
    found: list[NamedContent] = []
    for name, value in cast("dict[str, Json]", streams).items():
        kept = cast("dict[str, Json]", value) if isinstance(value, dict) else {}
        digest, size = kept.get("digest"), kept.get("bytes")
        if isinstance(digest, str) and type(size) is int:
            text = digest.removeprefix(DIGEST_PREFIX)
            found.append(NamedContent(entry.call_id, seq, name, text, size, is_output=True))
    return found
