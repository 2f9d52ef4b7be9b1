"""The ledger: an append-only file of entries, each chained to the one before.

    format/                           its bytes, PURE, as docs/formats/ledger.md has them
    append, files, tail               write; tail.py is all that the hook needs of it
    read, query, index, export        read, without a lock; ask; hand out
    checkpoint, signing, anchors      have sizes and roots signed, and kept elsewhere
    tree, verify                      prove by them, and say whether it is what was written

The JSONL is the truth; what stands in the folder beside it can be rebuilt from it.
"""
