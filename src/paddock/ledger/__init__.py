"""The ledger: an append-only file of entries, each chained to the one before.

    format/        PURE  the bytes of a line, the tree over them, signed notes
    ports.py       what the runtime asks of a ledger
    tail.py        the head file and its marks, lines put behind them, the whole append of the hook
    segments.py    where its files are, and the one text that they make
    head.py        make the head file whole, the locks of writers, the space they keep
    recovery.py    open, make and rotate its files, put a torn end aside
    append.py      LedgerFile: append by many processes and threads
    read.py        readers; they take no lock
    query.py       questions, from the lines or from index.py (SQLite beside the ledger)
    export.py      what goes out, also as a page that verifies itself
    signing.py     the ledger's own Ed25519 key, and who signs with it
    tree.py        its Merkle tree in files, and the notes beside it
    checkpoint.py  sign sizes and roots, by itself when they are due; anchors.py: keep them
    proof.py       that a line stands in it, and that it only grew
    verify.py      whether a ledger is what its writers wrote

The JSONL is the truth; what stands in the folder beside it can be rebuilt from it.
The bytes are described in docs/formats/ledger.md.
"""
