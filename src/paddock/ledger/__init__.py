"""The ledger: an append-only file of entries, each chained to the one before.

    format*.py   PURE  the bytes of a line, what a line may be, GENESIS, the names
    ports.py           what the runtime asks of a ledger
    disk.py            the system calls that the store makes, as a port
    store.py           LedgerFile: append by many processes and threads
    lock.py head.py commit.py recovery.py reserve.py create.py stamps.py   its parts
    segments.py        the files that a ledger is in, and how it goes on in another one
    reading.py tail.py verify.py   readers; they take no lock
    query.py index.py postings.py  questions, from posting files or from the lines
    keys.py            the ledger's own Ed25519 key

The JSONL is the truth; what stands in the folder beside it can be rebuilt from it.
The bytes are described in docs/formats/ledger.md.
"""
