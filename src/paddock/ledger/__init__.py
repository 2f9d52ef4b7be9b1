"""The ledger: an append-only file of entries, each chained to the one before.

    format/            PURE  the bytes of a line, what a line may be, GENESIS, the names
    ports.py presence.py  what the runtime asks of a ledger; whether there is one
    disk.py mounts.py  the system calls that the store makes, as a port
    paths.py details.py  a ledger's files, and what may stand beside it
    store.py pending.py   LedgerFile: append by many processes and threads
    lock.py yielding.py head.py commit.py recovery.py reserve.py create.py stamps.py   its parts
    place.py           whether its files still stand where they were opened
    segments.py        the files that a ledger is in, and how it goes on in another one
    reading.py tail.py   readers; they take no lock
    query.py index.py postings.py  questions, from posting files or from the lines
    decided.py effects.py touched.py  what was decided and what was changed, from the lines
    export*.py named.py  what goes out, also as a page that verifies itself; ledgers by name
    keys.py signing*.py  the ledger's own Ed25519 key, and who signs with it
    tree.py checkpoints.py proof.py  the tree beside the lines; signed sizes and roots; proofs
    sealing.py anchors.py programs.py  a ledger that checkpoints itself; where checkpoints go
    verify/ scan.py      two passes, one that hashes and one that parses; what is held elsewhere

The JSONL is the truth; what stands in the folder beside it can be rebuilt from it.
The bytes are described in docs/formats/ledger.md.
"""
