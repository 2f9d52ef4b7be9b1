"""The ledger: an append-only file of entries, each chained to the one before.

    format/                           its bytes, PURE, as docs/formats/ledger.md has them
    append, files, tail               write; the lean hook loads tail.py alone
    read, query, index, export        read, without a lock; search; export
    checkpoint, signing, anchors      sign sizes and roots, and keep them elsewhere
    tree, verify                      prove lines by them; find what was changed or cut off

The JSONL is the truth; beside it only signatures and torn bytes cannot be rebuilt from it.
"""
