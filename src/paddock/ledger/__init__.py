"""The ledger: an append-only file of entries, each chained to the one before.

    format/        PURE  the bytes of a line, the tree over them, signed notes
    ports.py       what the runtime asks of a ledger
    disk.py        the system calls that the store makes, as a port
    segments.py    a ledger's files, and how it goes on in another one
    details.py     what may stand beside it
    head.py        what keeps writers apart: locks, and how far the ledger reaches
    reserve.py     space for what must be recorded
    recovery.py    opening its files, making them, putting a torn end aside
    append.py      LedgerFile: append by many processes and threads
    read.py        readers; they take no lock
    query.py       questions, from the index or from the lines
    index.py       SQLite beside the ledger: which lines hold a value
    export.py      what goes out, also as a page that verifies itself
    signing.py     the ledger's own Ed25519 key, and who signs with it
    checkpoint.py  the tree beside the lines; signed sizes and roots
    proof.py       that a line stands in it, and that it only grew
    sealing.py     a ledger that checkpoints itself
    anchors.py     where checkpoints go
    verify/        whether a ledger is what its writers wrote

The JSONL is the truth; what stands in the folder beside it can be rebuilt from it.
The bytes are described in docs/formats/ledger.md.
"""
