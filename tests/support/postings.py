"""Posting files of a ledger, made however small it is, and spoiled by whoever can write there."""

from dataclasses import replace
from pathlib import Path

from paddock.ledger.disk import SystemDisk
from paddock.ledger.format.posting_files import (
    HEADER_BYTES,
    POSTINGS,
    Kind,
    encode_header,
    parse_header,
)
from paddock.ledger.index import Piece, PostingIndex
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.postings import run_path
from paddock.ledger.reading import LedgerReader


def post_all(ledger: Path, start: int = 0, end: int | None = None) -> dict[Kind, Path]:
    """Post all lines of a ledger in one file, from one place to another; where that stands."""
    paths = LedgerPaths(str(ledger))
    index = PostingIndex(SystemDisk(), paths)
    with LedgerReader(str(ledger)) as reader:
        end = end or reader.size()
        assert index.post(reader, (0, end), Piece(start, end, None))
    index.close()
    return {kind: Path(run_path(paths, kind, start, end)) for kind in Kind}


def hide_all(ledger: Path, start: int = 0, end: int | None = None) -> None:
    """Have posting files name no line there at all, in a way that a question believes."""
    files = post_all(ledger, start, end)
    for kind in POSTINGS:
        header = parse_header(files[kind].read_bytes()[:HEADER_BYTES])
        files[kind].write_bytes(encode_header(replace(header, keys=0, rows=0)) + bytes(4))
